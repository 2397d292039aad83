"""Replay: a trace through the engine, into a run folder."""
