"""Scheduler policies: one module each, with `Parts`, the arrays it needs, and `run`, its loop (see `engine`)."""
