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
# How much smaller than its rows a dataset can be, and the bytes of a chunk that is begun: the bounds of `cat`.
_PACKED_MAX, _CHUNK_BYTES = 2048, 4 << 10
# Rows of times that are looked at in one piece.
_PIECE_ROWS = 1 << 20
# Exceptions of libhdf5, h5py and numpy for an invalid file.
_OF_THE_FILE = (OSError, RuntimeError, KeyError, ValueError, TypeError, IndexError, OverflowError, MemoryError)
_SHOWN = "`beamport cat FILE` shows the groups that have some"
_DAMAGED = "the file is damaged, or not of this form: h5py itself reads its datasets one by one"


def rows_between(group: Mapping[str, Any], start: object = None, stop: object = None) -> dict[str, np.ndarray]:
    """Rows of a group of a NeXus file whose times lie in [start, stop), as arrays by the names of their datasets.

    `group` is a group of an open `h5py.File`: an NXlog, an NXdata, an NXevent_data. Only the chunks around the interval are
    read, where the file has cues; without them the times are. Of an NXevent_data the pulses of the interval come with their
    events: `event_index` then counts from the first event that is given. Times are what the file has. The file may be one
    that is being written. Data stored elsewhere (links, virtual datasets, external storage) is left out, as by
    `beamport cat`; a group of another file to which h5py followed a link is one like any other. An invalid file is a
    `beamport.Error`.

    Example:
        from beamport.files import rows_between
        with h5py.File("first.nxs") as file:
            rows = rows_between(file["entry/sample/temperature"], "2026-03-01T12:00:00Z", "2026-03-01T12:00:10Z")
            rows["time"], rows["value"]
    """
    now = _time.time_ns()
    begin = _FIRST if start is None else nanoseconds(start, "start", now)
    end = _LAST if stop is None else nanoseconds(stop, "stop", now)
    # A dataset too has a `len` and an `in`, which go through its values.
    if not hasattr(group, "id") or not hasattr(group, "keys"):
        cause = f"it is a {type(group).__name__}, and not a group of an open h5py.File"
        raise Error(f"{_name(group)} has no rows by time", cause, 'give a group, as `file["entry/sample/temperature"]`')
    try:
        return _rows(group, begin, end)
    except OSError as error:
        hint = "`pip install hdf5plugin`, and `import hdf5plugin` before reading" if "filter" in str(error) else _GROWS
        raise Error(f"cannot read {_name(group)}", str(error), hint) from error
    except MemoryError as error:
        raise Error(f"cannot read {_name(group)}", str(error), "ask for a shorter interval") from error
    except _OF_THE_FILE as error:
        raise Error(f"cannot read {_name(group)}", f"{type(error).__name__}: {error}", _DAMAGED) from error


def _rows(group: Any, begin: int, end: int) -> dict[str, np.ndarray]:
    if _has(group, "event_time_zero") and _has(group, "event_index"):
        return _events(group, begin, end)
    if not _has(group, "time"):
        cause = "it has neither `time` nor `event_time_zero` with `event_index`"
        raise Error(f"{_name(group)} has no rows by time", cause, _SHOWN)
    times = _numbers(group, "time", "iuf")
    columns = {name: group[name] for name in group if _is_column(group, name, times)}
    length = min([len(times), *map(len, columns.values())])
    kept = list(_kept(times, _spans(group, length, begin, end), begin, end))
    return {"time": _joined(times, kept)} | {name: _joined(column, kept) for name, column in columns.items()}


def _events(group: Any, begin: int, end: int) -> dict[str, np.ndarray]:
    zero, index = _numbers(group, "event_time_zero", "iuf"), _numbers(group, "event_index", "iu")
    names = [name for name in ("event_id", "event_time_offset") if _has(group, name)]
    columns = {name: _numbers(group, name, "iuf") for name in names}
    events = min(map(len, columns.values()), default=0)
    pulses = min(len(zero), len(index))
    spans = []
    # A cue says an event: the first pulse that can have it is looked for.
    for low, high in _spans(group, events, begin, end):
        pulse = _first(index, pulses, low) if low else 0
        spans.append(
            (max(pulse, spans[-1][1] if spans else 0), pulses if high >= events else _first(index, pulses, high + 1))
        )
    given: dict[str, list[np.ndarray]] = {name: [] for name in (*names, "event_time_zero", "event_index")}
    count = 0
    for rows in _kept(zero, spans, begin, end):
        # Of pulses that lie side by side the events do too.
        for part in np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1):
            low, high = int(part[0]), int(part[-1]) + 1
            firsts = index[low : min(high + 1, pulses)].astype(np.int64)
            if len(firsts) and (firsts[0] < 0 or (np.diff(firsts) < 0).any()):
                cause = (
                    f"`event_index` is negative or falls at pulses {low} to {high}: pulses have their events in order"
                )
                raise Error(f"the events of {_name(group)} are not understood", cause, _DAMAGED)
            firsts = np.append(firsts, max(events, firsts[-1]))[: len(part) + 1]
            first, last = min(int(firsts[0]), events), min(int(firsts[-1]), events)
            for name, column in columns.items():
                given[name].append(column[first:last])
            given["event_time_zero"].append(zero[low:high])
            given["event_index"].append((firsts[:-1] - first + count).astype(index.dtype))
            count += last - first
    of = columns | {"event_time_zero": zero, "event_index": index}
    return {name: np.concatenate(parts) if parts else np.empty(0, of[name].dtype) for name, parts in given.items()}


def _has(group: Any, name: str) -> bool:
    """Whether a group has a thing of this name itself: a link is not followed, and not even asked where it leads."""
    links = group.id.links
    # 0 is H5L_TYPE_HARD.
    return bool(links.exists(name.encode()) and links.get_info(name.encode()).type == 0)


def _numbers(group: Any, name: str, kinds: str) -> Any:
    """A dataset with a number a row; `kinds` are those of numpy."""
    dataset = group[name]

    def refused(cause: str, hint: str = _SHOWN) -> Error:
        return Error(f"{_name(dataset)} is not understood", cause, hint)

    if not hasattr(dataset, "maxshape"):
        raise refused("it is not a dataset")
    if _is_elsewhere(dataset):
        raise refused("its values lie elsewhere (a virtual dataset, or external storage)", "h5py itself reads them")
    if dataset.shape is None or len(dataset.shape) != 1:
        raise refused(f"it has the shape {dataset.shape}, and not a value a row")
    if dataset.dtype.kind not in kinds:
        wanted = "numbers" if "f" in kinds else "whole numbers"
        raise refused(f"it holds {dataset.dtype}, and not {wanted}")
    return _bounded(dataset)


def _is_elsewhere(dataset: Any) -> bool:
    return bool(dataset.is_virtual or dataset.external)


def _bounded(dataset: Any) -> Any:
    """The dataset, unless it says that it has more than its bytes can be."""
    stored = dataset.id.get_storage_size()
    if dataset.size * dataset.dtype.itemsize > (stored + _CHUNK_BYTES) * _PACKED_MAX:
        cause = f"it has {len(dataset)} rows in {stored} bytes"
        raise Error(f"cannot read {_name(dataset)}", cause, "write the file again: it is damaged or empty")
    return dataset


def _is_column(group: Any, name: str, times: Any) -> bool:
    """Whether a dataset has a row for each time; one that grows with them may be a flush ahead."""
    if name == "time" or name.startswith(("cue_", "alarm_", "connection_status")) or _has(group, f"{name}_index"):
        return False
    if not _has(group, name):
        return False
    column = group[name]
    if not getattr(column, "shape", None) or _is_elsewhere(column):
        return False
    grow = times.maxshape[0] is None and column.maxshape[0] is None
    is_beside = len(column) == len(times) or (grow and len(column) > 0 and abs(len(column) - len(times)) < 1 << 14)
    return is_beside and _bounded(column) is not None


def _clock(dataset: Any) -> tuple[float, int]:
    """What a time in a dataset is: ns of one, and ns since 1970 of zero."""
    unit, zero = (_text(dataset.attrs.get(word)) for word in ("units", "offset"))
    zero = zero or _text(dataset.attrs.get("start"))
    if unit not in _UNITS:
        hint = f"known are {', '.join(filter(None, _UNITS))}"
        raise Error(f"the times of {_name(dataset)} are not understood", f"their unit is `{unit}`", hint)
    # NeXus files from before 2010 mean UTC where they name no zone.
    if zero and not zero.endswith(("Z", "z")) and zero[-6:-5] not in ("+", "-"):
        zero += "Z"
    return _UNITS[unit], nanoseconds(zero, "start", 0) if zero else 0


def _nanoseconds(dataset: Any, low: int, high: int) -> np.ndarray:
    scale, zero = _clock(dataset)
    values = dataset[low:high]
    # Integer ns stay exact. A value that is not a finite number is a time of no interval.
    with np.errstate(invalid="ignore", over="ignore"):
        return (values.astype(np.int64) if scale == 1 else (values * scale).astype(np.int64)) + zero


def _spans(group: Any, rows: int, begin: int, end: int) -> list[tuple[int, int]]:
    """Pieces of rows (of events) that the interval can be in, in order."""
    if not _has(group, "cue_index") or not _has(group, "cue_timestamp_zero"):
        return [(0, rows)]
    index, times = _numbers(group, "cue_index", "iu"), _numbers(group, "cue_timestamp_zero", "iuf")
    cues = min(len(index), len(times))
    zero = _nanoseconds(times, 0, cues)
    first = np.concatenate([[0], index[:cues].astype(np.int64).clip(0), [rows]])
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
    for first, last in spans:
        for low in range(first, last, _PIECE_ROWS):
            values = _nanoseconds(times, low, min(low + _PIECE_ROWS, last))
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
    # Some writers give a list of one.
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.ravel()[0]
    if value is None:
        return ""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _name(thing: Any) -> str:
    return str(getattr(thing, "name", "the group"))
