"""`ep00`: whether a process variable can be reached."""

from __future__ import annotations

from collections import namedtuple

from beamport._core import _wire_read, _wire_write
from beamport.wire.fbschemas.epics_connection_info_ep00 import EventType

FILE_IDENTIFIER = b"ep00"

EpicsConnection = namedtuple("EpicsConnection", ("timestamp", "type", "source_name", "service_id"))


def serialise_ep00(timestamp_ns: int, event_type: int, source_name: str, service_id: str | None = None) -> bytes:
    """Write a message; `event_type` is a number of `EventType`."""
    named = () if service_id is None else (service_id,)
    return _wire_write("ep00", (timestamp_ns, event_type, source_name, *named))


def deserialise_ep00(buffer) -> EpicsConnection:
    """Read a message."""
    timestamp, kind, source_name, service_id = _wire_read("ep00", buffer)
    return EpicsConnection(timestamp, getattr(EventType.EventType, kind), source_name, service_id)
