"""`NDAr`: a frame as areaDetector has it, before `ADAr`."""  # noqa: N999  (the name is not ours)

from __future__ import annotations

import time
from collections import namedtuple

import numpy as np

from beamport._core import _wire_read, _wire_write
from beamport.wire._arrays import shaped
from beamport.wire.exceptions import BrokenBufferException, UnfitValueException

FILE_IDENTIFIER = b"NDAr"

nd_Array = namedtuple("NDArray", ("id", "timestamp", "data"))  # noqa: N816  (the name is not ours)


def serialise_ndar(id: str, dims: list, data_type: int, data: list) -> bytes:
    """Write a message of now: the dimensions, the type as a number of `DType`, and the pixels as bytes."""
    now = float(int(time.time() * 1000))
    return _wire_write("NDAr", (id, now, None, _whole(dims, np.uint64), data_type, _whole(data, np.uint8)))


def deserialise_ndar(buffer) -> nd_Array:
    """Read a message; the pixels are a read-only view of the buffer."""
    number, timestamp, _, dims, data_type, data, _ = _wire_read("NDAr", buffer)
    try:
        pixels = data.view(data_type.lower())
    except ValueError:
        raise BrokenBufferException("not a message of schema NDAr", f"{data.size} B of {data_type}") from None
    # Without dimensions there is a number, or nothing.
    dims = dims.tolist() or [1] * pixels.size
    return nd_Array(number, timestamp, shaped("NDAr", pixels, dims) if dims else pixels)


def _whole(values, dtype: type) -> np.ndarray:
    """Whole numbers in one dimension as this type, none of them changed."""
    found = np.frombuffer(values, np.uint8) if isinstance(values, bytes | bytearray) else np.asarray(values)
    fits = found.ndim == 1 and (found.size == 0 or found.dtype.kind in "biu")
    if not fits or (found.size and not 0 <= int(found.min()) <= int(found.max()) <= np.iinfo(dtype).max):
        raise UnfitValueException(f"expected whole numbers of the type {np.dtype(dtype)}", f"not {values!r:.100}")
    return np.ascontiguousarray(found.astype(dtype))
