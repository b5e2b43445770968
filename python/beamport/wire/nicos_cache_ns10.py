"""`ns10`: a value in the cache of NICOS."""

from collections import namedtuple

from beamport._core import _wire_read, _wire_write
from beamport.wire._arrays import flag

FILE_IDENTIFIER = b"ns10"

Entry = namedtuple("Entry", ("key", "time_stamp", "ttl", "expired", "value"))


def serialise_ns10(key: str, value: str, time_stamp: float = 0, ttl: float = 0, expired: bool = False) -> bytes:
    """Write a message; times in seconds."""
    return _wire_write("ns10", (key, time_stamp, ttl, flag(expired), value))


def deserialise_ns10(buffer) -> Entry:
    """Read a message; spaces around the key are left out."""
    key, time_stamp, ttl, expired, value = _wire_read("ns10", buffer)
    return Entry(key.strip(), time_stamp, ttl or 0, expired, value)
