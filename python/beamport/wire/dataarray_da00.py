"""`da00`: a labelled array with its axes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from beamport._core import _wire_read, _wire_write

FILE_IDENTIFIER = b"da00"


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
            self.shape = _shape(self.data)

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
        values = one.data if isinstance(one.data, str) else np.ascontiguousarray(one.data)
        shape = np.array(_shape(one.data), np.int64)
        variables.append((one.name, one.unit, one.label, one.source, list(one.axes), shape, values))
    return _wire_write("da00", (source_name, timestamp_ns, variables))


def deserialise_da00(buffer) -> da00_DataArray_t:
    """Read a message; its arrays are read-only views of the buffer."""
    source_name, timestamp, variables = _wire_read("da00", buffer)
    data = []
    for name, unit, label, source, axes, shape, values in variables:
        if not axes and isinstance(values, np.ndarray) and values.size == 1:
            values = values.item()
        data.append(Variable(name, values, axes, tuple(shape), unit, label, source))
    return da00_DataArray_t(source_name, timestamp, data)


def _shape(data: np.ndarray | str | float) -> tuple[int, ...]:
    if isinstance(data, np.ndarray):
        return data.shape
    if isinstance(data, str):
        return (len(data.encode()),)
    if isinstance(data, int | float):
        return (8,)
    raise RuntimeError(f"Unsupported data type {type(data)}")
