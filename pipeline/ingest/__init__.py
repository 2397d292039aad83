"""Logs and generators in, traces out."""
