"""Errors a person can act on, each with the exit code of the command that met it.

A message names file, row or key, the value found, and what would be right. It never holds text of a
prompt or a completion.
"""


class ServecastError(Exception):
    """Base of every error that is the input's fault, not the program's."""

    exit_code = 2


class TraceError(ServecastError):
    """A log or a trace cannot be used."""


class ConfigError(ServecastError):
    """A setting is unknown, out of range, or contradicts another one."""


class RunError(ServecastError):
    """A run folder is missing, incomplete or of another schema version."""


class QueryError(ServecastError):
    """A query file or a statement is wrong."""


class ReplayError(ServecastError):
    """The engine stopped for a reason that a correct engine never has."""

    exit_code = 3
