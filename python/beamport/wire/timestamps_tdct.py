"""`tdct`: times of a chopper."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from beamport._core import _wire_read, _wire_write
from beamport.wire._arrays import column

FILE_IDENTIFIER = b"tdct"


class Timestamps(NamedTuple):
    """Times in ns since 1970 UTC."""

    name: str
    timestamps: np.ndarray
    sequence_counter: int


def serialise_tdct(name: str, timestamps: np.ndarray | list, sequence_counter: int | None = None) -> bytes:
    """Write a message."""
    counted = () if sequence_counter is None else (sequence_counter,)
    return _wire_write("tdct", (name, column(np.atleast_1d(timestamps), "uint64"), *counted))


def deserialise_tdct(buffer) -> Timestamps:
    """Read a message; the array is a read-only view of the buffer."""
    return Timestamps._make(_wire_read("tdct", buffer))
