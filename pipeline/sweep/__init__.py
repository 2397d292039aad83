"""Sweep: one trace under many settings, each point a run of its own, and the point to choose."""
