"""`f144`: one value of a process variable."""

from typing import Any, NamedTuple

from beamport._core import _wire_read, serialise_f144

__all__ = ["FILE_IDENTIFIER", "ExtractedLogData", "deserialise_f144", "serialise_f144"]

FILE_IDENTIFIER = b"f144"

ExtractedLogData = NamedTuple("LogData", (("source_name", str), ("value", Any), ("timestamp_unix_ns", int)))


def deserialise_f144(buffer) -> ExtractedLogData:
    """Read a message; an array is a read-only view of the buffer."""
    source_name, timestamp, value = _wire_read("f144", buffer)
    return ExtractedLogData(source_name, value, timestamp)
