"""Messages as tables and arrays of other libraries: pandas, xarray and scipp, each only where it is installed.

Messages are copied one by one, so that no stream memory is held. What is made depends on the first message: events
(`ev44`, `ev42`, `ev43`) become rows, messages with arrays become one array over time, all others are values.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ._core import Message
from ._errors import Error
from ._events import EVENTS, Events
from ._result import ERRORS, SIGNAL

# What one table may copy where nobody says how much: a notebook that asks for a day by mistake stays alive.
_BYTES_MAX = 1 << 30
_TIMES = ("timestamp", "reference_time", "pulse_time", "packet_timestamp")
# Messages whose pixels or counts have dimensions.
_ARRAYS = ("ad00", "adar", "da00", "hs00", "hs01")


class MessageList(list[Message]):
    """Messages in a list, with the tables that a stream has."""

    def to_pandas(self) -> Any:
        """See `Stream.to_pandas`."""
        return to_pandas(self, "")

    def to_xarray(self) -> Any:
        """See `Stream.to_xarray`."""
        return to_xarray(self, "")

    def to_scipp(self) -> Any:
        """See `Stream.to_scipp`."""
        return to_scipp(self, "")


def of_stream(stream: Any, library: str, limit: int | None, words: dict[str, Any]) -> Any:
    """Read a part of a stream, and make what a library has for it."""
    make: Callable[[Iterable[Message], str], Any] = {"pandas": to_pandas, "xarray": to_xarray, "scipp": to_scipp}[
        library
    ]
    _library(library)
    if limit is not None and limit < 0:
        raise Error("cannot read this", f"`limit` is {limit}", "write the number of messages: `limit=1000`")
    return make(_limited(stream, limit, words), stream.name)


def _limited(stream: Any, limit: int | None, words: dict[str, Any]) -> Iterable[Message]:
    size = 0
    with stream.read(**words) as messages:
        for number, message in enumerate(messages):
            if number == limit:
                return
            size += message.payload.size
            if limit is None and size > _BYTES_MAX:
                raise Error(
                    f"stream `{stream.name}` is too large for one table",
                    f"the first {number + 1} messages have more than {_BYTES_MAX >> 30} GiB",
                    'read less, `since="-10 min"` or `start=-1000`, or say how many messages: `limit=100_000`',
                )
            yield message


def to_pandas(messages: Iterable[Message], name: str) -> Any:
    """Make a `DataFrame` with a row a message, or a row an event."""
    pandas = _library("pandas")
    times: list[int] = []
    rows: list[dict[str, Any]] = []
    events = Events()
    for message in messages:
        if (is_events := message.schema in EVENTS) and not rows:
            events.add(message)
            continue
        if is_events or events.origins:
            raise _mixed(message)
        times.append(message.source_time)
        rows.append({"origin": message.origin, "schema": message.schema, **_row(message)})
    if events.origins:
        columns = events.columns()
        columns["origin"] = pandas.Categorical.from_codes(columns["origin"], events.origins)
        return pandas.DataFrame(columns, index=_index(pandas, events.pulse_times()))
    table = pandas.DataFrame(rows, index=_index(pandas, times), columns=None if rows else ["origin", "value"])
    # One schema needs no column.
    if rows and len({row["schema"] for row in rows}) == 1:
        table = table.drop(columns="schema")
    return table


def to_xarray(messages: Iterable[Message], name: str) -> Any:
    """Make a `DataArray` of values over time."""
    xarray = _library("xarray")
    values = _Values.of(messages, "to_pandas() or to_scipp()")
    dims, coords = ["time", *values.dims], {"time": values.times}
    coords |= {name: ("time", column) for name, column in values.columns.items()}
    for axis, (axis_dims, array, unit) in values.axes.items():
        shape, wanted = array.shape, tuple(values.data.shape[dims.index(dim)] for dim in axis_dims)
        attributes = {} if unit is None else {"units": unit}
        if shape != wanted and len(shape) == 1:
            # Edges: an index of xarray has as many as there are values.
            attributes |= {"edges": array}
            array = (array[:-1] + array[1:]) / 2
        coords[axis] = (axis_dims, array, attributes)
    if values.errors is not None:
        coords[ERRORS] = (dims, values.errors, {} if values.unit is None else {"units": values.unit})
    attributes = {} if values.unit is None else {"units": values.unit}
    return xarray.DataArray(values.data, dims=dims, coords=coords, name=name or None, attrs=attributes)


def to_scipp(messages: Iterable[Message], name: str) -> Any:
    """Make a `DataArray` of values over time, or of events."""
    scipp = _library("scipp")
    messages = iter(messages)
    first = next(messages, None)
    if first is not None and first.schema in EVENTS:
        return _scipp_events(scipp, first, messages, name)
    values = _Values.of(([] if first is None else [first, *messages]), "to_pandas()")
    dims = ["time", *values.dims]

    def array(dims: list[str], data: np.ndarray, unit: str | None, variances: np.ndarray | None = None) -> Any:
        if data.dtype.kind in "OU":
            data = data.astype(str)
        if data.dtype.kind in "iu":
            # scipp has two types of whole numbers.
            is_large = data.dtype == np.uint64 and data.size and data.max() > np.iinfo(np.int64).max
            data = data.astype(
                np.float64 if is_large else np.int32 if data.dtype.itemsize < 4 else np.int64, copy=False
            )
        return scipp.array(dims=dims, values=data, variances=variances, unit=_unit(scipp, unit, data))

    coords = {"time": scipp.array(dims=["time"], values=values.times, unit="ns")}
    coords |= {name: array(["time"], column, None) for name, column in values.columns.items()}
    coords |= {axis: array(list(axis_dims), data, unit) for axis, (axis_dims, data, unit) in values.axes.items()}
    data, variances = values.data, None
    if values.errors is not None:
        data, variances = data.astype(np.float64), values.errors.astype(np.float64) ** 2
    return scipp.DataArray(array(dims, data, values.unit, variances), coords=coords, name=name)


def _scipp_events(scipp: Any, first: Message, others: Iterable[Message], name: str) -> Any:
    events = Events()
    for message in [first, *others]:
        if message.schema not in EVENTS:
            raise _mixed(message)
        events.add(message)
    columns = events.columns()
    coords = {
        "event_time_zero": scipp.array(dims=["event"], values=events.pulse_times(), unit="ns"),
        "event_time_offset": scipp.array(dims=["event"], values=columns["time_of_flight"], unit="ns"),
    }
    if "pixel_id" in columns:
        coords["event_id"] = scipp.array(dims=["event"], values=columns["pixel_id"], unit=None)
    ones = scipp.ones(dims=["event"], shape=[events.count], unit="counts", dtype="float32", with_variances=True)
    return scipp.DataArray(ones, coords=coords, name=name)


class _Values:
    """Values of one schema and shape over time."""

    def __init__(self, first: Message | None) -> None:
        self.first = first
        self.dims: list[str] = []
        self.unit: str | None = None
        # Names of the dimensions, coordinates and unit by name.
        self.axes: dict[str, tuple[list[str], np.ndarray, str | None]] = {}
        self.times = np.array([], "datetime64[ns]")
        self.data = np.array([], np.float64)
        self.errors: np.ndarray | None = None
        self.columns: dict[str, np.ndarray] = {}

    @classmethod
    def of(cls, messages: Iterable[Message], instead: str) -> _Values:
        messages = iter(messages)
        made = cls(next(messages, None))
        if made.first is None:
            made.columns["origin"] = np.array([], object)
            return made
        if made.first.schema in EVENTS:
            raise Error(
                "events are no array over time", f"message {made.first.sequence} is a list of events", f"use {instead}"
            )
        times, values, errors, rows = [], [], [], []
        made._describe(made.first)
        while (message := made.first if not times else next(messages, None)) is not None:
            value = made._checked(message, values[0] if values else None)
            if errors or not values:
                errors += made._errors(message)
            times.append(message.source_time)
            values.append(value)
            rows.append({"origin": message.origin, **(_attributes(message) if message.schema in _ARRAYS else {})})
        made.times, made.data = np.array(times, "datetime64[ns]"), _stacked(values)
        made.errors = np.stack(errors) if len(errors) == len(values) else None
        common = set(rows[0]).intersection(*rows) - {"time", ERRORS, *made.dims, *made.axes}
        made.columns = {name: _stacked([row[name] for row in rows]) for name in rows[0] if name in common}
        return made

    def _describe(self, message: Message) -> None:
        """The dimensions, by the first message."""
        value = np.asarray(message.value)
        self.dims = (
            ["y", "x"] if message.schema == "ad00" and value.ndim == 2 else [f"dim_{n}" for n in range(value.ndim)]
        )
        if message.schema != "da00":
            return
        variables = {variable["name"]: variable for variable in message["data"]}
        signal = variables[SIGNAL]
        self.unit = signal["unit"]
        if len(signal["axes"]) == value.ndim:
            self.dims = list(signal["axes"])
        if not len({*self.dims, "time"}) == len(self.dims) + 1:
            self.dims = [f"dim_{n}" for n in range(value.ndim)]
        for name, variable in variables.items():
            dims = variable["axes"]
            if name not in (SIGNAL, ERRORS, "time") and dims and set(dims) <= set(self.dims):
                self.axes[name] = (list(dims), np.array(variable["data"]), variable["unit"])

    def _checked(self, message: Message, first: Any) -> Any:
        """The value of a message, copied; refused where it does not fit beside the others."""
        assert self.first is not None
        what = f"messages {self.first.sequence} and {message.sequence} are no one array"
        if message.schema != self.first.schema:
            cause = f"they are of the schemas {self.first.schema} and {message.schema}"
            raise Error(what, cause, f'read one alone: `schema="{self.first.schema}"`')
        value = message.value
        if isinstance(value, np.ndarray):
            value = value.copy()
        if first is not None and np.shape(value) != np.shape(first):
            cause = f"they have the shapes {np.shape(first)} and {np.shape(value)}"
            raise Error(what, cause, f'read one origin alone: `origin="{self.first.origin}"`')
        if message.schema == "da00" and message is not self.first:
            there = {variable["name"]: variable["data"] for variable in message["data"]}
            for axis, (_, array, _) in self.axes.items():
                if not np.array_equal(array, there.get(axis)):
                    raise Error(what, f"axis `{axis}` has other values", f"read up to there: `stop={message.sequence}`")
        return value

    @staticmethod
    def _errors(message: Message) -> list[np.ndarray]:
        """The errors of a data array, in a list."""
        if message.schema != "da00":
            return []
        shape = np.shape(message.value)
        errors = (variable["data"] for variable in message["data"] if variable["name"] == ERRORS)
        return [np.array(one) for one in errors if np.shape(one) == shape and shape][:1]


def _stacked(values: list[Any]) -> np.ndarray:
    if any(isinstance(value, str) or value is None for value in values):
        return np.array(values, object)
    return np.array(values)


def _row(message: Message) -> dict[str, Any]:
    """The columns of a message."""
    if message.schema in ("ad00", "da00"):
        row = _attributes(message)
        if message.schema == "da00" and not np.shape(value := _value_or_none(message)):
            row["value"] = value
        return row
    try:
        fields = message.fields()
    except Error:
        # A schema that beamport does not know.
        return {"bytes": message.payload.size}
    if fields.get("source_name") == message.origin:
        del fields["source_name"]
    for name in _TIMES:
        if isinstance(fields.get(name), int) and fields[name] == message.source_time:
            del fields[name]
    return {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in fields.items()}


def _value_or_none(message: Message) -> Any:
    try:
        return message.value
    except Error:
        return None


def _attributes(message: Message) -> dict[str, Any]:
    """The attributes of a frame or data array that are one number or text, and the number of a frame."""
    if message.schema not in ("ad00", "da00"):
        return {}
    row: dict[str, Any] = {"id": message.id} if message.schema == "ad00" else {}
    return row | {name: value for name, value in message.metadata.items() if not isinstance(value, np.ndarray)}


def _index(pandas: Any, times: Any) -> Any:
    return pandas.DatetimeIndex(np.asarray(times, "datetime64[ns]"), name="time").tz_localize("UTC")


def _mixed(message: Message) -> Error:
    cause = f"message {message.sequence} is of schema {message.schema}: some are events, and others are not"
    return Error("cannot make one table", cause, 'read one schema alone: `schema="ev44"`')


def _unit(scipp: Any, unit: str | None, data: np.ndarray) -> Any:
    if data.dtype.kind not in "iuf":
        return None
    try:
        return scipp.Unit(unit or "one")
    except scipp.UnitError:
        warnings.warn(f"scipp does not know the unit `{unit}`: the values are without one", stacklevel=2)
        return scipp.Unit("one")


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Error(f"cannot make a table of {name}", str(error), f"install it: `pip install {name}`") from None
