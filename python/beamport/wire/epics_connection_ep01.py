"""`ep01`: whether a process variable can be reached."""

from __future__ import annotations

from collections import namedtuple
from enum import Enum

from beamport._core import _wire_read, _wire_write

FILE_IDENTIFIER = b"ep01"

EpicsPVConnection = namedtuple("EpicsPVConnection", ("timestamp", "status", "source_name", "service_id"))


class ConnectionInfo(Enum):
    """The state of a connection."""

    UNKNOWN = 0
    NEVER_CONNECTED = 1
    CONNECTED = 2
    DISCONNECTED = 3
    DESTROYED = 4
    CANCELLED = 5
    FINISHED = 6
    REMOTE_ERROR = 7


def serialise_ep01(timestamp_ns: int, status: ConnectionInfo, source_name: str, service_id: str | None = None) -> bytes:
    """Write a message."""
    return _wire_write("ep01", (timestamp_ns, getattr(status, "value", None), source_name, service_id))


def deserialise_ep01(buffer) -> EpicsPVConnection:
    """Read a message; a service that is not named is an empty text."""
    timestamp, status, source_name, service_id = _wire_read("ep01", buffer)
    return EpicsPVConnection(timestamp, ConnectionInfo[status], source_name, service_id or "")
