"""`ad00`: a frame of a camera."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from beamport._core import _wire_read, _wire_write

FILE_IDENTIFIER = b"ad00"


class Attribute:
    """Something known of a frame: an array, a number or text, with a name."""

    def __init__(self, name: str, description: str, source: str, data: np.ndarray | str | int | float) -> None:
        """Name, what it is, where it comes from, and the value."""
        self.name = name
        self.description = description
        self.source = source
        self.data = data

    def __eq__(self, other: object) -> bool:
        """Whether all is equal, types too."""
        if not isinstance(other, Attribute) or type(self.data) is not type(other.data):
            return False
        mine, theirs = (self.name, self.description, self.source), (other.name, other.description, other.source)
        return mine == theirs and bool(np.array_equal(self.data, other.data))

    __hash__ = None


class ADArray(NamedTuple):
    """A frame; `data` is an array with its dimensions, or text."""

    source_name: str
    unique_id: int
    timestamp_ns: int
    dimensions: tuple
    data: np.ndarray | str
    attributes: list[Attribute]


def serialise_ad00(
    source_name: str,
    unique_id: int,
    timestamp_ns: int,
    data: np.ndarray | str,
    attributes: list[Attribute] = (),
) -> bytes:
    """Write a message."""
    return write("ad00", source_name, unique_id, timestamp_ns, data, attributes)


def deserialise_ad00(buffer) -> ADArray:
    """Read a message; its arrays are read-only views of the buffer, arrays of one number are numbers."""
    return ADArray._make(read("ad00", buffer))


def write(schema, source_name, unique_id, timestamp_ns, data, attributes) -> bytes:
    """Write a message of `ad00` or of `ADAr`."""
    shape = (len(data.encode()),) if isinstance(data, str) else data.shape
    known = [(one.name, one.description, one.source, _numbers(one.data)) for one in attributes]
    values = (source_name, unique_id, timestamp_ns, np.array(shape, np.int64), _numbers(data), known or None)
    return _wire_write(schema, values)


def read(schema, buffer) -> tuple:
    """Read a message of `ad00` or of `ADAr`."""
    source_name, unique_id, timestamp, dimensions, data, attributes = _wire_read(schema, buffer)
    known = [Attribute(name, what or "", source or "", _plain(data)) for name, what, source, data in attributes]
    return source_name, unique_id, timestamp, tuple(dimensions), data, known


def _numbers(data: np.ndarray | str | float) -> np.ndarray | str:
    """In C order; a Python number in 64 bits."""
    return data if isinstance(data, str) else np.ascontiguousarray(data)


def _plain(data: np.ndarray | str) -> np.ndarray | str | int | float:
    return data.item() if isinstance(data, np.ndarray) and data.size == 1 else data
