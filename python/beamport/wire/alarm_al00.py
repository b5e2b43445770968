"""`al00`: the alarm state of a process variable."""

from collections import namedtuple
from enum import Enum

from beamport._core import _wire_read, _wire_write

FILE_IDENTIFIER = b"al00"

AlarmInfo = namedtuple("AlarmInfo", ("source", "timestamp_ns", "severity", "message"))


class Severity(Enum):
    """How bad it is."""

    OK = 0
    MINOR = 1
    MAJOR = 2
    INVALID = 3


def deserialise_al00(buffer) -> AlarmInfo:
    """Read a message."""
    source, timestamp, severity, message = _wire_read("al00", buffer)
    return AlarmInfo(source, timestamp, Severity[severity], message)


def serialise_al00(source: str, timestamp_ns: int, severity: Severity, message: str) -> bytes:
    """Write a message."""
    return _wire_write("al00", (source, timestamp_ns, getattr(severity, "value", None), message))
