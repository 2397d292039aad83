"""Servecast: replay the request log of an LLM service through an exact model of its engine."""

__version__ = "0.1.0"
