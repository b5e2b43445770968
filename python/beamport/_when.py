"""Times as people write them, to nanoseconds since 1970 UTC: the same words as on the command line."""

from __future__ import annotations

import datetime
import operator
import re

import numpy as np

from ._errors import Error

_UNITS = {
    "ns": 1,
    "us": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "min": 60_000_000_000,
    "h": 3_600_000_000_000,
    "d": 86_400_000_000_000,
}
_AGO = re.compile(r"-\s*([0-9][0-9_]*)(?:\.([0-9]{1,18}))?\s*([A-Za-zµμ]*)", re.ASCII)
_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?([Zz]|[+-]\d\d:\d\d)?",
    re.ASCII,
)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_HINT = 'write "-10 s", "now", a time like "2026-03-01T12:00:00Z", a datetime with a time zone, or ns since 1970 as int'
# The store keeps times in signed 64 bits.
_MAX = 2**63 - 1


def nanoseconds(value: object, word: str, now: int) -> int:
    """Read a time: text, datetime, numpy.datetime64 or int; `now` in ns since 1970 UTC, `word` names it in errors.

    >>> nanoseconds("-1.5 s", "since", 2_000_000_000)
    500000000
    >>> nanoseconds("2026-03-01T13:00:00.5+01:00", "since", 0)
    1772366400500000000
    """
    ns = _read(value, word, now)
    if not -_MAX <= ns <= _MAX:
        raise _refused(word, f"{value!r} is further from 1970 than 292 years", _HINT)
    return ns


def _read(value: object, word: str, now: int) -> int:
    if isinstance(value, str):
        return _of_text(value.strip(), word, now)
    if isinstance(value, datetime.datetime):
        return _of_datetime(value, word)
    if isinstance(value, np.datetime64):
        if np.isnat(value):
            raise _refused(word, "it is not a time (NaT)", _HINT)
        # By way of microseconds or finer; numpy refuses what does not fit by turning it around, so compare.
        ns = value.astype("datetime64[ns]")
        if ns.astype(value.dtype) != value:
            raise _refused(word, f"{value!r} is further from 1970 than 292 years", _HINT)
        return int(ns.astype(np.int64))
    if isinstance(value, bool | float | np.floating):
        raise _refused(word, f"{value!r} has no unit", _HINT)
    try:
        return int(operator.index(value))  # type: ignore[arg-type]
    except TypeError:
        raise _refused(word, f"a {type(value).__name__} is not a time", _HINT) from None


def _of_text(text: str, word: str, now: int) -> int:
    if text == "now":
        return now
    if ago := _AGO.fullmatch(text):
        whole, fraction, unit = ago.groups()
        if unit not in _UNITS:
            cause = f"`{text}` has no unit" if not unit else f"unknown unit `{unit}`"
            raise _refused(word, cause, f'write "-{whole} s"; units are {", ".join(_UNITS)}')
        fraction = fraction or ""
        part, rest = divmod(int(fraction or "0") * _UNITS[unit], 10 ** len(fraction))
        if rest:
            raise _refused(word, f"`{text}` is not a whole number of nanoseconds", 'write less digits, like "-0.5 s"')
        return now - int(whole) * _UNITS[unit] - int(part)
    if time := _TIME.fullmatch(text):
        date, clock, fraction, zone = time.groups()
        if zone is None:
            raise _refused(word, f"`{text}` has no time zone", f'write "{text}Z" for UTC')
        zone = "+00:00" if zone in "Zz" else zone
        try:
            seconds = datetime.datetime.fromisoformat(f"{date}T{clock}{zone}")
        except ValueError as error:
            raise _refused(word, f"`{text}` is not a time that exists ({error})", _HINT) from None
        return _of_datetime(seconds, word) + int((fraction or "0").ljust(9, "0"))
    raise _refused(word, f"`{text}` is not a time", _HINT)


def _of_datetime(value: datetime.datetime, word: str) -> int:
    if value.utcoffset() is None:
        cause = f"`{value}` has no time zone"
        raise _refused(word, cause, "give it one: `.replace(tzinfo=datetime.UTC)` or `.astimezone()` for local time")
    passed = value - _EPOCH
    return (passed.days * 86_400 + passed.seconds) * 1_000_000_000 + passed.microseconds * 1_000


def _refused(word: str, cause: str, hint: str) -> Error:
    return Error(f"invalid `{word}`", cause, hint)
