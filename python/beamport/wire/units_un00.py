"""`un00`: the unit of a process variable."""

from __future__ import annotations

from collections import namedtuple

from beamport._core import _wire_read, _wire_write

FILE_IDENTIFIER = b"un00"

UnitInfo = namedtuple("UnitInfo", ("source", "timestamp_ns", "units"))


def deserialise_un00(buffer) -> UnitInfo:
    """Read a message."""
    return UnitInfo._make(_wire_read("un00", buffer))


def serialise_un00(source: str, timestamp_ns: int, units: str | None) -> bytes:
    """Write a message; `None` where it has no unit."""
    return _wire_write("un00", (source, timestamp_ns, units))
