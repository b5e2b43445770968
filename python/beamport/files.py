"""Rows of a NeXus file by their times, found through its cues: the rules of `beamport cat FILE`.

The file is opened by h5py, which this package does not need for anything else.
"""

from __future__ import annotations

import time as _time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ._errors import Error
from ._when import nanoseconds

if TYPE_CHECKING:
    from collections.abc import Mapping

# Time between two cues, and by how much a row may be older than the cue before it, ns.
_AROUND = 10_000_000_000
_GROWS = "open the file again, if it is being written"
_UNITS = {"": 1, "ns": 1, "us": 1e3, "µs": 1e3, "μs": 1e3, "ms": 1e6, "s": 1e9}
_UNITS |= {"nanoseconds": 1, "microseconds": 1e3, "milliseconds": 1e6, "second": 1e9, "seconds": 1e9}
_FIRST, _LAST = -(2**63), 2**63 - 1


def rows_between(group: Mapping[str, Any], start: object = None, stop: object = None) -> dict[str, np.ndarray]:
    """Rows of a group of a NeXus file whose times lie in [start, stop), as arrays by the names of their datasets.

    `group` is a group of an open `h5py.File`: an NXlog, an NXdata, an NXevent_data. Only the chunks around the interval are
    read, where the file has cues; without them the times are. Of an NXevent_data the pulses of the interval come with their
    events: `event_index` then counts from the first event that is given. Times are what the file has. The file may be one
    that is being written.

    Example:
        from beamport.files import rows_between
        with h5py.File("first.nxs") as file:
            rows = rows_between(file["entry/sample/temperature"], "2026-03-01T12:00:00Z", "2026-03-01T12:00:10Z")
            rows["time"], rows["value"]
    """
    now = _time.time_ns()
    begin = _FIRST if start is None else nanoseconds(start, "start", now)
    end = _LAST if stop is None else nanoseconds(stop, "stop", now)
    try:
        if "event_time_zero" in group and "event_index" in group:
            return _events(group, begin, end)
        if "time" not in group:
            cause = "it has neither `time` nor `event_time_zero` with `event_index`"
            raise Error(
                f"{_name(group)} has no rows by time", cause, "`beamport cat FILE` shows the groups that have some"
            )
        times = group["time"]
        names = [name for name in group if _is_column(group, name, times)]
        length = min([len(times), *(len(group[name]) for name in names)])
        kept = list(_kept(times, _spans(group, length, begin, end), begin, end))
        answer = {"time": _joined(times, kept)}
        return answer | {name: _joined(group[name], kept) for name in names}
    except OSError as error:
        hint = "`pip install hdf5plugin`, and `import hdf5plugin` before reading" if "filter" in str(error) else _GROWS
        raise Error(f"{_name(group)} cannot be read", str(error), hint) from error


def _events(group: Mapping[str, Any], begin: int, end: int) -> dict[str, np.ndarray]:
    zero, index = group["event_time_zero"], group["event_index"]
    names = [name for name in ("event_id", "event_time_offset") if name in group]
    events = min((len(group[name]) for name in names), default=0)
    pulses = min(len(zero), len(index))
    spans = []
    # A cue says an event: the first pulse that can have it is looked for.
    for low, high in _spans(group, events, begin, end):
        pulse = _first(index, pulses, low)
        spans.append(
            (max(pulse, spans[-1][1] if spans else 0), pulses if high >= events else _first(index, pulses, high + 1))
        )
    given: dict[str, list[np.ndarray]] = {name: [] for name in (*names, "event_time_zero", "event_index")}
    count = 0
    for rows in _kept(zero, spans, begin, end):
        # Of pulses that lie side by side the events do too.
        for part in np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1):
            low, high = int(part[0]), int(part[-1]) + 1
            firsts = np.append(index[low : min(high + 1, pulses)], events)[: len(part) + 1].astype(np.int64)
            first, last = min(int(firsts[0]), events), min(int(firsts[-1]), events)
            for name in names:
                given[name].append(group[name][first : max(first, last)])
            given["event_time_zero"].append(zero[low:high])
            given["event_index"].append((firsts[:-1] - first + count).astype(index.dtype))
            count += max(0, last - first)
    return {name: np.concatenate(parts) if parts else np.empty(0, group[name].dtype) for name, parts in given.items()}


def _is_column(group: Mapping[str, Any], name: str, times: Any) -> bool:
    """Whether a dataset has a row for each time; one that grows with them may be a flush ahead."""
    if name == "time" or name.startswith(("cue_", "alarm_", "connection_status")) or f"{name}_index" in group:
        return False
    # Where another thing, or another file, is meant: not followed.
    if type(group.get(name, getlink=True)).__name__ != "HardLink":
        return False
    column = group[name]
    if not getattr(column, "shape", None):
        return False
    grow = times.maxshape[0] is None and column.maxshape[0] is None
    return len(column) == len(times) or (grow and len(column) > 0 and abs(len(column) - len(times)) < 1 << 14)


def _clock(dataset: Any) -> tuple[float, int]:
    """What a time in a dataset is: ns of one, and ns since 1970 of zero."""
    unit, zero = (_text(dataset.attrs.get(word)) for word in ("units", "offset"))
    zero = zero or _text(dataset.attrs.get("start"))
    if unit not in _UNITS:
        raise Error(f"the times of {_name(dataset)} are not understood", f"their unit is `{unit}`")
    # NeXus files of before 2010 mean UTC where no zone is said.
    if zero and not zero.endswith(("Z", "z")) and zero[-6:-5] not in ("+", "-"):
        zero += "Z"
    return _UNITS[unit], nanoseconds(zero, "start", 0) if zero else 0


def _nanoseconds(dataset: Any, low: int, high: int) -> np.ndarray:
    scale, zero = _clock(dataset)
    values = dataset[low:high]
    # Whole ns stay exact.
    return (values.astype(np.int64) if scale == 1 else (values * scale).astype(np.int64)) + zero


def _spans(group: Mapping[str, Any], rows: int, begin: int, end: int) -> list[tuple[int, int]]:
    """Pieces of rows (of events) that the interval can be in, in order."""
    if "cue_index" not in group or "cue_timestamp_zero" not in group:
        return [(0, rows)]
    cues = min(len(group["cue_index"]), len(group["cue_timestamp_zero"]))
    zero = _nanoseconds(group["cue_timestamp_zero"], 0, cues)
    first = np.concatenate([[0], group["cue_index"][:cues].astype(np.int64), [rows]])
    # As floats: nothing turns around at the ends of time, and 10 s are much more than what they round.
    early = np.concatenate([[-np.inf], zero.astype(float)])
    late = np.concatenate([np.maximum(early[1:], early[:-1]), [np.inf]])
    wanted = (early - _AROUND < end) & (late + _AROUND >= begin) & (first[:-1] < first[1:])
    spans: list[tuple[int, int]] = []
    for at in np.flatnonzero(wanted):
        low, high = int(first[at]), int(min(first[at + 1], rows))
        if spans and spans[-1][1] >= low:
            spans[-1] = (spans[-1][0], max(spans[-1][1], high))
        elif low < high:
            spans.append((low, high))
    return spans


def _kept(times: Any, spans: list[tuple[int, int]], begin: int, end: int) -> Iterator[np.ndarray]:
    """The numbers of the rows in the interval, piece by piece."""
    for low, high in spans:
        values = _nanoseconds(times, low, high)
        rows = low + np.flatnonzero((values >= begin) & ((values < end) | (end == _LAST)))
        if len(rows):
            yield rows


def _joined(dataset: Any, kept: list[np.ndarray]) -> np.ndarray:
    parts = [dataset[rows[0] : rows[-1] + 1][rows - rows[0]] for rows in kept]
    return np.concatenate(parts) if parts else np.empty((0, *dataset.shape[1:]), dataset.dtype)


def _first(index: Any, pulses: int, event: int) -> int:
    """The first pulse whose first event is `event` or a later one."""
    low, high = 0, pulses
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if int(index[middle]) < event else (low, middle)
    return low


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")


def _name(thing: Any) -> str:
    return str(getattr(thing, "name", "the group"))
