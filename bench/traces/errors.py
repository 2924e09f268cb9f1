"""What can be wrong with a trace."""

from __future__ import annotations


class TraceMissing(Exception):
    """There is no such trace in the folder of traces: a benchmark skips what needs it and gives this as the reason."""


class TraceUnknown(ValueError):
    """There is no trace of that name, and no file. The message says which names there are."""


class TraceMalformed(ValueError):
    """A row is not what its columns say. The message begins with the file and the line."""
