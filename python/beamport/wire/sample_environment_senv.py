"""`senv`: samples of a device; integers only."""

from __future__ import annotations

import datetime
from typing import NamedTuple

import numpy as np

from beamport._core import _wire_read, _wire_write
from beamport.wire._arrays import column, moment, samples
from beamport.wire.fbschemas.sample_environment_senv.Location import Location

FILE_IDENTIFIER = b"senv"

Response = NamedTuple(
    "SampleEnvironmentData",
    (
        ("name", str),
        ("channel", int),
        ("timestamp", datetime.datetime),
        ("sample_ts_delta", int),
        ("ts_location", Location),
        ("message_counter", int),
        ("values", np.ndarray),
        ("value_ts", np.ndarray | None),
    ),
)


def serialise_senv(
    name: str,
    channel: int,
    timestamp: datetime.datetime,
    sample_ts_delta: int,
    message_counter: int,
    values: np.ndarray | list,
    ts_location: int = Location.Middle,
    value_timestamps: np.ndarray | list | None = None,
) -> bytes:
    """Write a message; `ts_location` is a number of `Location`."""
    values = samples(values)
    times = None if value_timestamps is None else column(np.atleast_1d(value_timestamps), "uint64")
    timestamp = int(timestamp.timestamp() * 1e9)
    return _wire_write("senv", (name, channel, timestamp, sample_ts_delta, ts_location, values, times, message_counter))


def deserialise_senv(buffer) -> Response:
    """Read a message; the arrays are read-only views of the buffer."""
    name, channel, timestamp, delta, location, values, times, counter = _wire_read("senv", buffer)
    location = getattr(Location, location)
    return Response(name, channel, moment(timestamp / 1e9), delta, location, counter, values, times)
