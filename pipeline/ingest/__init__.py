"""Logs to traces: `ingest` reads a log of any known format, `read_trace` gives a trace to a replay."""

from pipeline.ingest.importer import digest, ingest
from pipeline.ingest.read import read_trace
from pipeline.ingest.summary import IngestSummary

__all__ = ["IngestSummary", "digest", "ingest", "read_trace"]
