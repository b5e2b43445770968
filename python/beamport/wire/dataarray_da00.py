"""`da00`: a labelled array with its axes."""

from __future__ import annotations

from dataclasses import dataclass
from struct import pack
from typing import NamedTuple

import numpy as np

from beamport._core import _wire_read, _wire_write

FILE_IDENTIFIER = b"da00"

_WORDS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64")
_DTYPES = {np.dtype(word): number for number, word in enumerate(_WORDS, start=1)}
_INT64, _FLOAT64, _TEXT = 7, 10, 11


@dataclass(eq=False)
class Variable:
    """One variable of a data array. `shape` of a number or text is its number of bytes."""

    name: str
    data: np.ndarray | str | int | float
    axes: list[str] | None = None
    shape: tuple[int, ...] | None = None
    unit: str | None = None
    label: str | None = None
    source: str | None = None

    def __post_init__(self) -> None:
        """Fill in what follows from the data."""
        if self.axes is None:
            self.axes = []
        if self.shape is None:
            self.shape = to_buffer(self.data).shape

    def __eq__(self, other: object) -> bool:
        """Whether all is equal, types too."""
        if not isinstance(other, Variable) or type(self.data) is not type(other.data):
            return False
        return self._words() == other._words() and bool(np.array_equal(self.data, other.data))

    __hash__ = None

    def _words(self) -> tuple:
        return self.name, self.unit, self.label, self.source, list(self.axes), self.shape


da00_DataArray_t = NamedTuple(  # noqa: N816  (the name is not ours)
    "da00_DataArray", (("source_name", str), ("timestamp_ns", int), ("data", list[Variable]))
)


def serialise_da00(source_name: str, timestamp_ns: int, data: list[Variable]) -> bytes:
    """Write a message with at least one variable."""
    if not data:
        raise RuntimeError("data must contain at least one Variable")
    variables = []
    for one in data:
        shape, values = np.array(to_buffer(one.data).shape, np.int64), one.data
        if isinstance(values, np.ndarray):
            values = np.ascontiguousarray(values)
        elif not isinstance(values, str):
            values = to_buffer(values).view(np.float64 if isinstance(values, float) else np.int64)
        variables.append((one.name, one.unit, one.label, one.source, list(one.axes), shape, values))
    return _wire_write("da00", (source_name, timestamp_ns, variables))


def deserialise_da00(buffer) -> da00_DataArray_t:
    """Read a message; its arrays are read-only views of the buffer."""
    source_name, timestamp, variables = _wire_read("da00", buffer)
    data = []
    for name, unit, label, source, axes, shape, values in variables:
        if not axes and isinstance(values, np.ndarray):
            # Without axes there is one dimension, or a number.
            values = values.item() if values.size == 1 else values.reshape(-1)
        data.append(Variable(name, values, axes, tuple(shape), unit, label, source))
    return da00_DataArray_t(source_name, timestamp, data)


def get_dtype(data: np.ndarray | str | float) -> int:
    """Return the number that a message says the type of the data with."""
    if isinstance(data, np.ndarray):
        return _DTYPES[data.dtype]
    if isinstance(data, str):
        return _TEXT
    if isinstance(data, float):
        return _FLOAT64
    if isinstance(data, int):
        return _INT64
    raise RuntimeError(f"Unsupported data type {type(data)} in get_dtype")


def to_buffer(data: np.ndarray | str | float) -> np.ndarray:
    """Return the array that stands in a message for the data; that of a number or a text is of bytes."""
    if isinstance(data, np.ndarray):
        return data
    if isinstance(data, str):
        return np.frombuffer(data.encode(), np.uint8)
    if isinstance(data, int | float):
        return np.frombuffer(pack("d" if isinstance(data, float) else "q", data), np.uint8)
    raise RuntimeError(f"Unsupported data type {type(data)} in to_buffer")
