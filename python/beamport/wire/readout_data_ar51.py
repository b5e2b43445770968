"""`ar51`: raw readout of a detector, as it came over the wire."""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from beamport._core import _wire_read, _wire_write
from beamport.wire._arrays import column

FILE_IDENTIFIER = b"ar51"

RawReadoutData = namedtuple("RawReadoutData", ("source_name", "message_id", "raw_data"))


def deserialise_ar51(buffer) -> RawReadoutData:
    """Read a message; the bytes are a read-only view of the buffer."""
    return RawReadoutData._make(_wire_read("ar51", buffer))


def serialise_ar51(source_name: str, message_id: int, raw_data) -> bytes:
    """Write a message; the data are `bytes`, or numbers that become bytes."""
    if isinstance(raw_data, bytes | bytearray | memoryview):
        raw_data = np.frombuffer(raw_data, np.uint8)
    return _wire_write("ar51", (source_name, message_id, column(raw_data, "uint8")))
