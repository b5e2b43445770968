"""`ev42`: neutron events of one pulse."""

from collections import namedtuple

from beamport._core import _wire_read, _wire_write
from beamport.wire._arrays import column

FILE_IDENTIFIER = b"ev42"

EventData = namedtuple(
    "EventData",
    ("source_name", "message_id", "pulse_time", "time_of_flight", "detector_id", "specific_data"),
)
_RUN_STATES = ("SETUP", "RUNNING")


def deserialise_ev42(buffer) -> EventData:
    """Read a message; the arrays are read-only views of the buffer."""
    *values, specific = _wire_read("ev42", buffer)
    if specific is not None and len(specific) == 3:
        period, state, charge = specific
        specific = {"period_number": period, "run_state": _RUN_STATES.index(state), "proton_charge": charge}
    else:
        specific = None  # what digitisers add is not shown
    return EventData(*values, specific)


def serialise_ev42(source_name, message_id, pulse_time, time_of_flight, detector_id, isis_specific=None) -> bytes:
    """Write a message; `isis_specific` is a dict of `period_number`, `run_state` and `proton_charge`."""
    specific = None
    if isis_specific:
        specific = tuple(isis_specific[name] for name in ("period_number", "run_state", "proton_charge"))
    tof, pixels = column(time_of_flight, "uint32"), column(detector_id, "uint32")
    return _wire_write("ev42", (source_name, message_id, pulse_time, tof, pixels, specific))
