"""`ADAr`: a frame of a camera, before `ad00`."""  # noqa: N999  (the name is not ours)

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

import numpy as np

from beamport.wire import area_detector_ad00
from beamport.wire._arrays import moment
from beamport.wire.area_detector_ad00 import Attribute

FILE_IDENTIFIER = b"ADAr"

ADArray_t = NamedTuple(
    "ADArray",
    (
        ("source_name", str),
        ("unique_id", int),
        ("timestamp", datetime),
        ("dimensions", tuple),
        ("data", np.ndarray | str),
        ("attributes", list[Attribute]),
    ),
)


def serialise_ADAr(  # noqa: N802  (the name is not ours)
    source_name: str,
    unique_id: int,
    timestamp: datetime,
    data: np.ndarray | str,
    attributes: list[Attribute] = (),
) -> bytes:
    """Write a message."""
    nanoseconds = int(timestamp.timestamp() * 1e9)
    return area_detector_ad00.write("ADAr", source_name, unique_id, nanoseconds, data, attributes)


def deserialise_ADAr(buffer) -> ADArray_t:  # noqa: N802
    """Read a message; its arrays are read-only views of the buffer, arrays of one number are numbers."""
    source_name, unique_id, timestamp, dimensions, *values = area_detector_ad00.read("ADAr", buffer)
    # Unsigned in this schema.
    time, dimensions = moment(timestamp % 2**64 / 1e9), tuple(np.array(dimensions, np.uint64))
    return ADArray_t(source_name, unique_id, time, dimensions, *values)
