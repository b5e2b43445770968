"""`pu00`: a pulse at ISIS."""

from __future__ import annotations

from collections import namedtuple

from beamport._core import _wire_read, _wire_write

FILE_IDENTIFIER = b"pu00"

PulseMetadata = namedtuple(
    "PulseMetadata", ("source_name", "message_id", "timestamp_ns", "vetos", "period_number", "proton_charge")
)


def deserialise_pu00(buffer) -> PulseMetadata:
    """Read a message."""
    return PulseMetadata._make(_wire_read("pu00", buffer))


def serialise_pu00(
    source_name: str,
    message_id: int,
    timestamp_ns: int,
    vetos: int | None,
    period_number: int | None,
    proton_charge: float | None,
) -> bytes:
    """Write a message; what is `None` is left out."""
    return _wire_write("pu00", (source_name, message_id, timestamp_ns, vetos, period_number, proton_charge))
