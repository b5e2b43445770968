"""Arguments as what the compiled half takes: numpy arrays in C order of the type that the schema has."""

from __future__ import annotations

import datetime
import math

import numpy as np

from beamport._result import plain
from beamport.wire.exceptions import BrokenBufferException, UnfitValueException


def column(values, dtype: str) -> np.ndarray:
    """An array of one dimension; of numbers of another type, what numpy's `astype` makes of them."""
    values = np.asarray(values)
    if values.ndim > 1:
        raise TypeError("only arrays of one dimension can be serialised")
    return np.ascontiguousarray(values.astype(dtype, copy=False))


def shaped(schema: str, numbers: np.ndarray | None, shape: list[int]) -> np.ndarray:
    """An array that was read with the dimensions that its message says."""
    if numbers is None or math.prod(shape) != numbers.size:
        count = "no" if numbers is None else numbers.size
        raise BrokenBufferException(f"not a message of schema {schema}", f"{count} numbers for the shape {shape}")
    try:
        return numbers.reshape(shape)
    except ValueError as error:
        raise BrokenBufferException(f"not a message of schema {schema}", str(error)) from None


def exact(values, dtype: str, name: str) -> np.ndarray:
    """An array of one dimension in C order, itself where it has the type; refused where a whole number would change."""
    values = np.asarray(values)
    if values.ndim != 1:
        raise UnfitValueException(f"`{name}` is not an array of one dimension")
    try:
        made = values.astype(dtype, copy=False)
    except (TypeError, ValueError) as error:
        raise UnfitValueException(f"`{name}` is not numbers of type {dtype}", str(error)) from None
    if made is not values and made.dtype.kind in "iu" and not np.array_equal(made, values):
        raise UnfitValueException(f"`{name}` holds numbers that do not fit type {dtype}")
    return np.ascontiguousarray(made)


def numbers(values, name: str) -> np.ndarray:
    """An array in C order and the byte order of the machine, of a type that messages have; a number is an array of one."""
    try:
        return np.ascontiguousarray(plain(values))
    except (TypeError, ValueError):
        raise UnfitValueException(f"`{name}` is not numbers of a type that a message can hold") from None


def samples(values) -> np.ndarray:
    """An array of one dimension in C order, of the type that it has; a number is an array of one."""
    values = np.atleast_1d(values)
    if values.ndim > 1:
        raise UnfitValueException("only arrays of one dimension can be serialised")
    return np.ascontiguousarray(values)


def flag(value):
    """Yes or no of numpy as Python's own; all else as it is."""
    return bool(value) if isinstance(value, np.bool_) else value


def milliseconds(moment: datetime.datetime | int | None, otherwise: int) -> int:
    """Milliseconds since 1970 UTC."""
    if isinstance(moment, datetime.datetime):
        return int(moment.timestamp() * 1000)
    return otherwise if moment is None else moment


def moment(seconds: float) -> datetime.datetime:
    """Time with its zone from seconds since 1970 UTC; what lies past the year 3000 is 3001-01-01, local."""
    latest = datetime.datetime(3001, 1, 1).timestamp()
    return datetime.datetime.fromtimestamp(min(seconds, latest), tz=datetime.UTC)
