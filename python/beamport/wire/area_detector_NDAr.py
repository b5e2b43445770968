"""`NDAr`: a frame as areaDetector has it, before `ADAr`."""  # noqa: N999  (the name is not ours)

from __future__ import annotations

import time
from collections import namedtuple

import numpy as np

from beamport._core import _wire_read, _wire_write

FILE_IDENTIFIER = b"NDAr"

nd_Array = namedtuple("NDArray", ("id", "timestamp", "data"))  # noqa: N816  (the name is not ours)


def serialise_ndar(id: str, dims: list, data_type: int, data: list) -> bytes:
    """Write a message of now: the dimensions, the type as a number of `DType`, and the pixels as bytes."""
    now = int(time.time() * 1000)
    return _wire_write("NDAr", (id, float(now), None, np.array(dims, np.uint64), data_type, np.array(data, np.uint8)))


def deserialise_ndar(buffer) -> nd_Array:
    """Read a message; the pixels are a read-only view of the buffer."""
    number, timestamp, _, dims, data_type, data, _ = _wire_read("NDAr", buffer)
    return nd_Array(number, timestamp, data.view(data_type.lower()).reshape(dims))
