"""`an44`: neutron events with weights."""

from collections import namedtuple

from beamport._core import _wire_read, _wire_write
from beamport.wire._arrays import column

FILE_IDENTIFIER = b"an44"

EventData = namedtuple(
    "EventData",
    ("source_name", "message_id", "reference_time", "reference_time_index", "time_of_flight", "pixel_id", "weight"),
)


def deserialise_an44(buffer) -> EventData:
    """Read a message; the arrays are read-only views of the buffer."""
    return EventData._make(_wire_read("an44", buffer))


def serialise_an44(
    source_name, message_id, reference_time, reference_time_index, time_of_flight, pixel_id, weight
) -> bytes:
    """Write a message."""
    return _wire_write(
        "an44",
        (
            source_name,
            message_id,
            column(reference_time, "int64"),
            column(reference_time_index, "int32"),
            column(time_of_flight, "int32"),
            column(pixel_id, "int32"),
            column(weight, "int16"),
        ),
    )
