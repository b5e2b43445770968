"""Results of user code: values, the message each belongs to, unit, axes and attributes.

A slot encodes plain numbers, arrays and messages itself. All else comes here: `said` describes it, or refuses it with
what to write instead.
"""

from __future__ import annotations

import datetime
import inspect
import json
import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from ._core import Message

# Name, unit, label, names of the dimensions, and text or an array.
_Variable = tuple[str, str | None, str | None, list[str], Any]
# Message that it is of, whether the code named that, kind, name, content, attributes.
_Said = tuple[Message | None, bool, str, str | None, Any, list[tuple[str, Any]]]
# The same from the kind on.
_Content = tuple[str, str | None, Any, list[tuple[str, Any]]]

SIGNAL = "signal"
ERRORS = "errors"
_RETURNS = (
    "code returns or yields nothing, numbers, text, arrays of numbers, dicts of these, messages, or "
    "`beamport.result(...)`"
)


class Metadata(dict[str, Any]):
    """The attributes of a message: a dict that cannot be changed, since a change would be in no stream."""

    def _refuse(self, *_arguments: Any, **_words: Any) -> NoReturn:
        raise TypeError(
            'a message cannot be changed, nor its metadata: return `message, {"name": value}` for a message that has more, '
            "or change a copy, `dict(message.metadata)`"
        )

    __setitem__ = __delitem__ = clear = pop = popitem = setdefault = update = __ior__ = _refuse  # type: ignore[assignment]


class Result:
    """A value that user code returns, with what belongs to it: made by `beamport.result`."""

    __slots__ = ("attributes", "axes", "name", "of", "origin_seq", "time", "unit", "value")

    value: Any
    of: Message | None
    name: str | None
    unit: str | Mapping[str, str] | None
    axes: dict[str, tuple[np.ndarray | None, str | None]] | None
    attributes: dict[str, Any]
    time: Any
    origin_seq: int | None

    def __init__(
        self,
        value: Any,
        of: Message | None,
        name: str | None,
        unit: str | Mapping[str, str] | None,
        axes: dict[str, tuple[np.ndarray | None, str | None]] | None,
        attributes: dict[str, Any],
        time: Any = None,
        origin_seq: int | None = None,
    ) -> None:
        """`axes` are coordinates and units by the names of the dimensions, `attributes` plain values."""
        self.value, self.of, self.name, self.unit, self.axes, self.attributes = value, of, name, unit, axes, attributes
        self.time, self.origin_seq = time, origin_seq

    def words(self) -> tuple[Any, ...]:
        """All behind value and message, as the constructor takes them."""
        return self.name, self.unit, self.axes, self.attributes, self.time, self.origin_seq

    def __repr__(self) -> str:
        """Say what it has."""
        words = ("of", "name", "unit", "axes", "attributes", "time", "origin_seq")
        more = "".join(f", {word}={getattr(self, word)!r}" for word in words if getattr(self, word) not in (None, {}))
        return f"beamport.result({self.value!r}{more})"


def result(
    value: Any,
    of: Message | None = None,
    name: str | None = None,
    unit: str | Mapping[str, str] | None = None,
    axes: Mapping[str, Any] | Sequence[str] | None = None,
    attributes: Mapping[str, Any] | None = None,
    time: Any = None,
    origin_seq: int | None = None,
) -> Result:
    """A value with its message, name, unit, axes and attributes: user code returns or yields it, alone or in a list.

    value: a number, an array, text, a message, or a `dict` of these by name, such as `signal` and its `errors`. A dict
        or list with more in it becomes JSON.
    of: the message that it is made of, one of those that the code was just called with. The result has the time, origin
        and number of that message. Default: the message of the call, of a batch the last.
    name: name of the value, in place of that of the worker.
    unit: unit of the values, such as `"counts"`; for a dict also units by name.
    axes: the dimensions, slowest first: their names, or with coordinates `{"Q": q}`, with a unit
        `{"Q": (q, "1/angstrom")}`. Coordinates are as many as values, or edges, one more.
    attributes: numbers, texts and arrays of one dimension that belong to it: `m.metadata` of the message.
    time: of a source: source time, as `since` of `Stream.read` takes it. Default: when it was yielded.
    origin_seq: of a source: the number that its device gave it; a hole in the numbers is loss. Default: the next one.

    An array becomes a frame (`ad00`), a number a value (`f144`), text an `f142`. With a unit or axes, and a number with
    attributes, it becomes a data array (`da00`). Raises `TypeError` or `ValueError` for what no message can hold.

    Example:
        >>> import beamport, numpy as np
        >>> q = np.linspace(0.01, 0.1, 3)
        >>> beamport.result(q**-4, name="I", unit="1/cm", axes={"Q": (q, "1/angstrom")}).name
        'I'
    """
    if of is not None and not isinstance(of, Message):
        raise TypeError(f"`of` is a {_kind(of)}: give the message that the result is made of, `of=message`")
    if name is not None and (not isinstance(name, str) or not name):
        raise TypeError(f'`name` is {name!r}: give a text such as "iq"')
    if isinstance(value, Result):
        raise TypeError("the value is a result already: give all that belongs to it in one `beamport.result(...)`")
    made = Result(
        value, of, name, _unit(unit, value), _axes(axes), _attributes(attributes or {}), time, _number(origin_seq)
    )
    # Refuses here, where the code stands, and not after the call.
    _describe(made)
    return made


def _number(origin_seq: Any) -> int | None:
    if origin_seq is None:
        return None
    try:
        number = operator.index(origin_seq)
    except TypeError:
        number = -1
    if isinstance(origin_seq, bool) or not 0 <= number < 1 << 64:
        raise ValueError(f"`origin_seq` is {origin_seq!r}: give a whole number from 0 on")
    return number


def said(value: Any) -> _Said | None:
    """Describe what user code returned as one message; `None` for several, which are to be looked at one by one."""
    if isinstance(value, Result):
        return _describe(value)
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], dict) and _has_attributes(value[0]):
        return _describe(Result(value[0], None, None, None, None, _attributes(value[1])))
    if isinstance(value, dict | str) or _is_numbers(value):
        return _describe(Result(value, None, None, None, None, {}))
    if isinstance(value, bytes | bytearray | memoryview | set | frozenset) or not isinstance(value, Iterable):
        raise _refused(value)
    return None


def plain(value: Any) -> np.ndarray:
    """An array of numbers in C order and the byte order of the machine, of a type that messages have."""
    array = np.asarray(value)
    if array.dtype == bool:
        array = array.view(np.uint8)
    elif array.dtype == np.float16:
        array = array.astype(np.float32)
    elif array.dtype.kind not in "iuf" or array.dtype.itemsize > 8:
        raise _refused(value)
    # Not `ascontiguousarray`, which makes a number an array of one.
    return np.require(array.astype(array.dtype.newbyteorder("="), copy=False), requirements="C").reshape(array.shape)


def _describe(made: Result) -> _Said:
    """Say which message a result becomes, and whose it is: one made of a message is of that unless the code says else."""
    of = made.of if made.of is not None else made.value if isinstance(made.value, Message) else None
    return of, made.of is not None, *_content(made)


def _content(made: Result) -> _Content:
    value, attributes = made.value, list(made.attributes.items())
    is_labelled = made.unit is not None or made.axes is not None
    if isinstance(value, Message):
        return _of_message(made, value, is_labelled)
    if isinstance(value, dict):
        variables = _variables(made)
        return ("json", made.name, _json(made), []) if variables is None else ("variables", made.name, variables, [])
    if isinstance(value, str) or _is_texts(value):
        _only_value(made, "text")
        return ("text", made.name, [value], []) if isinstance(value, str) else ("texts", made.name, list(value), [])
    if value is None or (isinstance(value, list | tuple) and not _is_numeric(value)):
        return "json", made.name, _json(made), []
    array = plain(value)
    if is_labelled or (array.ndim == 0 and attributes):
        return "variables", made.name, _variables(made), []
    return "numbers", made.name, array, attributes


def _of_message(made: Result, message: Message, is_labelled: bool) -> _Content:
    """Say what becomes of a message that has more to say."""
    if message.schema != "ad00":
        raise TypeError(
            f"a message of schema {message.schema} is passed on as it is, and has no room for attributes, name, unit or "
            'axes: return `message` alone, or a value of it: `beamport.result(message["..."], of=message, ...)`'
        )
    if not is_labelled:
        return "frame", made.name, message, list(made.attributes.items())
    attributes = {**_attributes(message.metadata), **made.attributes}
    return (
        "variables",
        made.name,
        _variables(Result(message.array, None, made.name, made.unit, made.axes, attributes)),
        [],
    )


def _variables(made: Result) -> list[_Variable] | None:
    """The variables of a data array; `None` where a dict holds more than numbers and texts."""
    is_dict = isinstance(made.value, dict)
    values: dict[str, Any] = made.value if is_dict else {SIGNAL: made.value}
    for name in values:
        if not isinstance(name, str):
            raise TypeError(f'the code made a dict with the key {name!r}: keys are names, texts like "x"')
    if is_dict and any(_is_json(value) for value in values.values()):
        return None
    arrays = {name: value if isinstance(value, str) else _named(name, value) for name, value in values.items()}
    axes = made.axes or {}
    main = SIGNAL if SIGNAL in arrays else next((n for n, a in arrays.items() if n not in axes and _rank(a)), None)
    shape = arrays[main].shape if main and not isinstance(arrays[main], str) else ()
    if made.axes is not None and len(axes) != len(shape):
        raise ValueError(f"{len(axes)} axes are given for {len(shape)} dimensions: name each, slowest first")
    variables: list[_Variable] = []
    for name, array in arrays.items():
        # Errors have the unit of their values.
        said = name if isinstance(made.unit, Mapping) and name in made.unit else main
        unit = made.unit.get(said or "") if isinstance(made.unit, Mapping) else made.unit
        if name not in (said, ERRORS):
            unit = None
        if name in axes:
            unit, dims = unit or axes[name][1], [name]
        elif not isinstance(array, str) and array.shape == shape and axes:
            dims = list(axes)
        else:
            dims = [f"dim_{at}" for at in range(_rank(array))]
        variables.append((name, unit, made.name if name == main else None, dims, array))
    for at, (name, (coordinates, unit)) in enumerate(axes.items()):
        if coordinates is None:
            if unit is not None and name not in arrays:
                raise ValueError(f'axis `{name}` has a unit and no coordinates: give `{{"{name}": (values, unit)}}`')
            continue
        if name in arrays:
            raise ValueError(f"axis `{name}` is also a value of the dict: leave its coordinates out of one of them")
        if coordinates.shape not in ((shape[at],), (shape[at] + 1,)):
            raise ValueError(
                f"axis `{name}` has coordinates of shape {coordinates.shape} for {shape[at]} values: give as many, or "
                "edges, one more"
            )
        variables.append((name, unit, None, [name], coordinates))
    names = {variable[0] for variable in variables}
    for name, value in made.attributes.items():
        if name in names:
            raise ValueError(f"attribute `{name}` has the name of a value or an axis: give it another")
        variables.append((name, None, None, [f"{name}_0"] if _rank(value) else [], value))
    return variables


def _unit(unit: Any, value: Any) -> str | Mapping[str, str] | None:
    if unit is None or isinstance(unit, str):
        return unit
    is_mapping = isinstance(unit, Mapping) and all(isinstance(one, str) for one in (*unit, *unit.values()))
    if not is_mapping:
        raise TypeError(f'`unit` is {unit!r}: give a text such as "counts"')
    if not isinstance(value, dict) or not set(unit) <= set(value):
        raise ValueError(
            "`unit` is a dict: its keys are names of the values, in a dict as well; for others give a text"
        )
    return unit


def _axes(axes: Any) -> dict[str, tuple[np.ndarray | None, str | None]] | None:
    """Coordinates and units by name."""
    if axes is None:
        return None
    how = 'give names, `["y", "x"]`, or coordinates, `{"Q": q}` or `{"Q": (q, "1/angstrom")}`'
    if isinstance(axes, str) or not isinstance(axes, Mapping | list | tuple):
        raise TypeError(f"`axes` is {axes!r}: {how}")
    given = axes if isinstance(axes, Mapping) else dict.fromkeys(axes)
    if len(given) != len(axes):
        raise ValueError(f"`axes` has a name twice: {list(axes)}")
    read: dict[str, tuple[np.ndarray | None, str | None]] = {}
    for name, one in given.items():
        if not isinstance(name, str) or not name or name in (SIGNAL, ERRORS):
            raise ValueError(f"an axis cannot be called {name!r}: {how}")
        has_unit = isinstance(one, tuple) and len(one) == 2 and (one[1] is None or isinstance(one[1], str))
        values, unit = one if has_unit else (one, None)
        array = None if values is None else _named(name, values)
        if array is not None and array.ndim != 1:
            raise ValueError(f"axis `{name}` has coordinates of {array.ndim} dimensions: {how}")
        read[name] = (array, unit)
    return read


def _attributes(attributes: Any) -> dict[str, Any]:
    """Texts, and arrays of none or one dimension, by name."""
    if not isinstance(attributes, Mapping):
        raise TypeError(f'`attributes` is a {_kind(attributes)}: give a dict, `{{"beam": 1.0}}`')
    read: dict[str, Any] = {}
    for name, value in attributes.items():
        if not isinstance(name, str) or not name:
            raise TypeError(f'an attribute has the key {name!r}: keys are names, texts like "beam"')
        if isinstance(value, str):
            read[name] = value
            continue
        if value is None or _is_json(value):
            raise TypeError(
                f"attribute `{name}` is a {_kind(value)}: attributes are numbers, texts and arrays of one dimension; "
                "for more return a list of two messages: `return [message, {...}]`"
            )
        array = _named(name, value)
        if array.ndim > 1:
            raise ValueError(
                f"attribute `{name}` has {array.ndim} dimensions: attributes are numbers, texts and arrays of one; for "
                "two messages return a list: `return [message, {...}]`"
            )
        read[name] = array
    return read


def _json(made: Result) -> str:
    _only_value(made, "JSON")
    try:
        return json.dumps(made.value, default=_json_number, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as wrong:
        raise TypeError(
            f"the code made a {_kind(made.value)} that is neither an array of numbers nor JSON ({wrong}): give arrays "
            "alone in a dict, or lists in place of arrays (`a.tolist()`) and `None` in place of NaN"
        ) from None


def _json_number(value: Any) -> Any:
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        return value.item()
    raise TypeError(f"it has a {_kind(value)} in it")


def _only_value(made: Result, what: str) -> None:
    """Refuse what text and JSON have no room for."""
    for word in ("unit", "axes", "attributes"):
        if getattr(made, word):
            raise TypeError(f'{what} has no `{word}`: leave it out, or give a dict: `{{"value": ..., "{word}": ...}}`')


def _named(name: str, value: Any) -> np.ndarray:
    try:
        return plain(value)
    except (TypeError, ValueError) as wrong:
        raise TypeError(f"`{name}`: {wrong}") from None


def _rank(value: Any) -> int:
    return 0 if isinstance(value, str) else value.ndim


def _has_attributes(value: Any) -> bool:
    """Whether a dict behind this in a tuple holds its attributes."""
    return isinstance(value, Message) or _is_numbers(value)


def _is_numbers(value: Any) -> bool:
    """Whether it is one number, or an array of another library; lists are several results."""
    return not isinstance(value, str | bytes) and (hasattr(value, "__array__") or hasattr(value, "__float__"))


def _is_numeric(value: Any) -> bool:
    """Whether a list is an array of numbers."""
    try:
        return np.asarray(value).dtype.kind in "biuf"
    except (TypeError, ValueError):
        return False


def _is_texts(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) > 0 and all(isinstance(one, str) for one in value)


def _is_json(value: Any) -> bool:
    """Whether a value of a dict is for JSON alone."""
    return value is None or isinstance(value, dict) or (isinstance(value, list | tuple) and not _is_numeric(value))


def _kind(value: Any) -> str:
    dtype = f" of dtype {value.dtype}" if hasattr(value, "dtype") else ""
    return f"`{type(value).__name__}`{dtype}"


_INSTEAD = {
    "c": 'give two arrays: `{"real": a.real, "imag": a.imag}`',
    "M": 'give ns since 1970: `a.astype("datetime64[ns]").astype("int64")`',
    "m": 'give ns: `a.astype("timedelta64[ns]").astype("int64")`',
    "f": 'give doubles: `a.astype("float64")`',
    "U": "give texts as a list: `a.tolist()`",
    "S": "give texts as a list: `a.astype(str).tolist()`",
    "V": "give its columns as a dict: `{name: a[name] for name in a.dtype.names}`",
    "O": "its elements are not all numbers, or its rows differ in length: give one array for each",
}

# Answers for objects of libraries, by the name of their package.
_LIBRARIES = {
    "cupy": "it is in memory of the GPU: give `cupy.asnumpy(value)`",
    "jax": "give `numpy.asarray(value)`",
    "jaxlib": "give `numpy.asarray(value)`",
    "pandas": "give its columns as a dict: `{name: table[name].to_numpy() for name in table}`",
    "polars": "give its columns as a dict: `{name: table[name].to_numpy() for name in table.columns}`",
    "scipp": "give `beamport.result(value.values, unit=str(value.unit), axes=list(value.dims))`",
    "torch": "give `value.detach().cpu().numpy()`",
    "xarray": "give `beamport.result(value.values, axes=list(value.dims))`",
}


def _refused(value: Any) -> TypeError:
    """The exception of a value that no message holds, with what to write instead."""
    if isinstance(value, bytes | bytearray | memoryview):
        instead = "for an array of bytes give `np.frombuffer(value, np.uint8)`, for text `value.decode()`"
    elif isinstance(value, set | frozenset):
        instead = "a set has no order: give a list, `sorted(value)`"
    elif inspect.iscoroutine(value) or inspect.isasyncgen(value):
        instead = "a worker is called without an event loop: write `def` in place of `async def`"
    elif type(value).__module__.partition(".")[0] in _LIBRARIES:
        instead = _LIBRARIES[type(value).__module__.partition(".")[0]]
    elif isinstance(value, datetime.date):
        instead = "give a text, `value.isoformat()`, or seconds, `value.timestamp()`"
    elif isinstance(value, os.PathLike):
        instead = "give a text, `str(value)`"
    elif isinstance(value, BaseException):
        instead = "an exception is raised, not returned: `raise ValueError(...)`"
    elif isinstance(value, int):
        instead = "it has more than 64 bits: give `float(value)` or `str(value)`"
    elif callable(value):
        instead = "it was not called: write `()` behind it"
    else:
        try:
            kind = np.asarray(value).dtype.kind
        except (TypeError, ValueError) as wrong:
            return TypeError(f"the code made a {_kind(value)}: {wrong}")
        instead = _INSTEAD.get(kind, "") if hasattr(value, "__array__") or kind != "O" else ""
    return TypeError(f"the code made a {_kind(value)}: {instead or _RETURNS}")
