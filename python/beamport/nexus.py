"""Modules of NeXus files in Python: what a schema of your own becomes in a file.

A module is a class that `modules` of a sink names, and that a template calls by its word. It runs in a process beside the
one that writes the file: what happens to it does not happen to the file.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from ._core import Message, _message

__all__ = ["Dataset", "Module", "UnfitError", "message"]

_NUMBERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64")
_EPOCH = "1970-01-01T00:00:00Z"


class UnfitError(Exception):
    """A value that a dataset cannot hold. Raised by `take`, it sets the message aside as `unfit`."""


class Dataset:
    """A dataset that grows by rows.

    `dtype` is a numpy type of numbers, or `str` for texts of `size` bytes at most; `shape` is that of one row. `units`
    and all further keywords are its attributes.

    Example:
        >>> from beamport.nexus import Dataset
        >>> Dataset("float64", units="K").rows([280.1, 280.2]).tolist()
        [280.1, 280.2]
    """

    def __init__(
        self,
        dtype: Any,
        shape: int | tuple[int, ...] = (),
        *,
        size: int = 256,
        units: str | None = None,
        **attributes: Any,
    ) -> None:
        """Describe it."""
        self.text = dtype is str or dtype == "str"
        self.dtype = np.dtype(f"S{size}") if self.text else np.dtype(dtype)
        if not self.text and self.dtype.name not in _NUMBERS:
            raise TypeError(
                f"a dataset has numbers or `str`, not `{self.dtype.name}`; numbers are {', '.join(_NUMBERS)}"
            )
        self.shape = tuple(int(length) for length in np.atleast_1d(np.asarray(shape, dtype=int)))
        self.attributes = attributes if units is None else {"units": units, **attributes}

    @classmethod
    def times(cls) -> Dataset:
        """Times in ns since 1970 UTC, with the attributes by which scippnexus and Mantid know them."""
        return cls("int64", units="ns", start=_EPOCH)

    def rows(self, value: Any) -> np.ndarray:
        """Some rows, or one, as the dataset has them.

        Raises `UnfitError` for another shape, and for numbers that its type cannot hold: a fraction in a whole type, a number out
        of its bounds. Real types round.
        """
        array = self._texts(value) if self.text else np.asarray(value)
        if array.shape == self.shape:
            array = array[np.newaxis]
        if array.shape[1:] != self.shape or array.ndim == 0:
            raise UnfitError(f"rows of shape {array.shape[1:]}; those of the dataset have {self.shape}")
        return np.ascontiguousarray(array if self.text else self._numbers(array))

    def _texts(self, value: Any) -> np.ndarray:
        def cell(text: Any) -> bytes:
            if not isinstance(text, str):
                raise UnfitError(f"`{type(text).__name__}` is not a text")
            whole = text.partition("\0")[0].encode(errors="replace")[: self.dtype.itemsize]
            return whole.decode(errors="ignore").encode()

        if isinstance(value, str):
            return np.array(cell(value), dtype=self.dtype)
        flat = np.asarray(value, dtype=object)
        return np.array([cell(text) for text in flat.flat], dtype=self.dtype).reshape(flat.shape)

    def _numbers(self, array: np.ndarray) -> np.ndarray:
        if array.dtype.kind not in "biuf":
            raise UnfitError(f"`{array.dtype.name}` is not a number")
        if array.dtype == self.dtype:
            return array.astype(self.dtype.newbyteorder("<"), copy=False)
        with np.errstate(all="ignore"):
            cast = array.astype(self.dtype)
        if self.dtype.kind == "f":
            holds = not (np.isinf(cast) & np.isfinite(array)).any()
        else:
            # A number that turns its sign may look the same.
            holds = bool((cast == array).all() and ((cast < 0) == (array < 0)).all())
        if not holds:
            raise UnfitError(f"numbers that `{self.dtype.name}` cannot hold")
        return cast

    def _said(self, name: str) -> dict[str, Any]:
        return {
            "name": name,
            "dtype": "text" if self.text else self.dtype.name,
            "bytes": self.dtype.itemsize,
            "row": self.shape,
            "attributes": self.attributes,
        }


class Module:
    """What fills a group of a NeXus file: subclass it, and name it in `modules` of a sink.

    `word` is its name in templates, `schemas` what it takes (one id of four letters, or several), `nx_class` the class of
    its group, and `datasets` what is in it, `{name: Dataset}`. The keyword arguments of `__init__` are the settings that
    `config` of a template may have. Each group that names it has an instance.

    It stays an ordinary class: `Counters().take(message)` works in a test.

    Example:
        >>> from beamport.nexus import Dataset, Module, message
        >>> class Counters(Module):
        ...     word = "counters"
        ...     schemas = "cnt0"
        ...     datasets = {"time": Dataset.times(), "counts": Dataset("uint32", 4)}
        ...     def take(self, message):
        ...         return {"time": message.source_time, "counts": message.payload[8:].view("<u4")}
        >>> Counters().take(message(bytes(4) + b"cnt0" + bytes(16), source_time=7))["time"]
        7
    """

    word: ClassVar[str] = ""
    schemas: ClassVar[str | tuple[str, ...]] = ()
    nx_class: ClassVar[str] = "NXcollection"
    datasets: Mapping[str, Dataset] = {}

    def take(self, message: Message) -> Mapping[str, Any] | None:
        """Make rows of a message: `{name of a dataset: rows}`, one row or several; nothing where there are none.

        Raise `UnfitError` where it cannot be in the file: it is set aside as `unfit`. Any other exception sets it aside
        as `error`, with its traceback in the log.
        """
        raise NotImplementedError

    def state(self) -> Any:
        """Say what it remembers between messages, as what JSON has; at most 1 MiB. It is asked after each piece of messages."""
        return None

    def resume(self, state: Any) -> None:
        """Go on, as a new instance, where `state` was said."""


def message(
    payload: Any,
    *,
    source_time: int = 0,
    arrival_time: int = 0,
    origin: str = "",
    origin_seq: int = 0,
    sequence: int = 0,
    schema: str | None = None,
) -> Message:
    """Make a message of its bytes, for a test; the schema is that of the bytes unless given."""
    data = bytes(payload)
    return _message(
        data, sequence, source_time, arrival_time, origin, origin_seq, (schema or "").encode() or data[4:8], 0
    )


def described(cls: Any) -> dict[str, Any]:
    """Say what a class is; raises `TypeError` where it is no module."""
    if not (inspect.isclass(cls) and issubclass(cls, Module)):
        raise TypeError("it is not a subclass of `beamport.nexus.Module`")
    schemas = (cls.schemas,) if isinstance(cls.schemas, str) else tuple(cls.schemas)
    if not isinstance(cls.word, str) or not cls.word:
        raise TypeError('it has no `word`: the name by which templates call it, like word = "counters"')
    if not schemas or not all(isinstance(one, str) and len(one) == 4 and one.isascii() for one in schemas):
        raise TypeError('`schemas` are ids of four letters, like schemas = "f144"')
    if not isinstance(cls.nx_class, str):
        raise TypeError('`nx_class` is a text, like "NXcollection"')
    if cls.take is Module.take:
        raise TypeError("it has no `take`")
    parameters = inspect.signature(cls).parameters.values() if cls.__init__ is not object.__init__ else ()
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    keys = [one.name for one in parameters if one.kind in named]
    return {"word": cls.word, "schemas": schemas, "nx_class": cls.nx_class, "keys": keys}


def datasets_of(module: Module) -> list[dict[str, Any]]:
    """Say what it makes; raises `TypeError` where that cannot be."""
    out = []
    for name, dataset in module.datasets.items():
        if not isinstance(dataset, Dataset):
            raise TypeError(f"the dataset `{name}` is not a `beamport.nexus.Dataset`")
        json.dumps(dataset.attributes, allow_nan=False)
        out.append(dataset._said(name))
    return out


def rows_of(module: Module, given: Any) -> list[tuple[int, np.ndarray]]:
    """Make what `take` gave rows of its datasets, by place; raises `UnfitError`."""
    if given is None:
        return []
    if not isinstance(given, Mapping):
        raise UnfitError(f"`take` gave a `{type(given).__name__}`; it gives a dict of rows by dataset, or nothing")
    places = {name: place for place, name in enumerate(module.datasets)}
    out = []
    for name, value in given.items():
        if name not in places:
            raise UnfitError(f"no dataset `{name}`; datasets: {', '.join(places)}")
        try:
            out.append((places[name], module.datasets[name].rows(value)))
        except (UnfitError, ValueError, TypeError, OverflowError) as why:
            raise UnfitError(f"dataset `{name}`: {why}") from why
    return out
