"""Scheduler policies: what each one is set to, and the arrays it needs; the decisions are made in the kernel."""
