"""`ev43`: neutron events of several pulses, between `ev42` and `ev44`."""

from collections import namedtuple

from beamport._core import _wire_read, _wire_write
from beamport.wire._arrays import column

FILE_IDENTIFIER = b"ev43"

EventData = namedtuple(
    "EventData", ("source_name", "message_id", "pulse_time", "pulse_index", "time_of_flight", "detector_id")
)


def deserialise_ev43(buffer) -> EventData:
    """Read a message; the arrays are read-only views of the buffer."""
    return EventData._make(_wire_read("ev43", buffer))


def serialise_ev43(source_name, message_id, pulse_time, pulse_index, time_of_flight, detector_id) -> bytes:
    """Write a message."""
    return _wire_write(
        "ev43",
        (
            source_name,
            message_id,
            column(pulse_time, "uint64"),
            column(pulse_index, "uint32"),
            column(time_of_flight, "uint32"),
            column(detector_id, "uint32"),
        ),
    )
