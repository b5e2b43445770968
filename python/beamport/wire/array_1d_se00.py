"""`se00`: samples of a device."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from beamport._core import _wire_read, _wire_write
from beamport.wire._arrays import column, samples
from beamport.wire.fbschemas.array_1d_se00.Location import Location

FILE_IDENTIFIER = b"se00"

Response = NamedTuple(
    "SampleEnvironmentData",
    (
        ("name", str),
        ("channel", int),
        ("timestamp_unix_ns", int),
        ("sample_ts_delta", int),
        ("ts_location", Location),
        ("message_counter", int),
        ("values", np.ndarray),
        ("value_ts", np.ndarray | None),
    ),
)


def serialise_se00(
    name: str,
    channel: int,
    timestamp_unix_ns: int,
    sample_ts_delta: int,
    message_counter: int,
    values: np.ndarray | list,
    ts_location: int = Location.Middle,
    value_timestamps: np.ndarray | list | None = None,
) -> bytes:
    """Write a message; `ts_location` is a number of `Location`."""
    values = samples(values)
    times = None if value_timestamps is None else column(np.atleast_1d(value_timestamps), "int64")
    head = (name, channel, timestamp_unix_ns, sample_ts_delta, ts_location)
    return _wire_write("se00", (*head, values, times, message_counter))


def deserialise_se00(buffer) -> Response:
    """Read a message; the arrays are read-only views of the buffer."""
    name, channel, timestamp, delta, location, values, times, counter = _wire_read("se00", buffer)
    location = getattr(Location, location)
    return Response(name, channel, timestamp, delta, location, counter, values, times)
