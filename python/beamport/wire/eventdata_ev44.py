"""`ev44`: neutron events."""

from collections import namedtuple

from beamport._core import _wire_read, serialise_ev44

__all__ = ["FILE_IDENTIFIER", "EventData", "deserialise_ev44", "serialise_ev44"]

FILE_IDENTIFIER = b"ev44"

EventData = namedtuple(
    "EventData",
    ("source_name", "message_id", "reference_time", "reference_time_index", "time_of_flight", "pixel_id"),
)


def deserialise_ev44(buffer) -> EventData:
    """Read a message; the arrays are read-only views of the buffer."""
    return EventData._make(_wire_read("ev44", buffer))
