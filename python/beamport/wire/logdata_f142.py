"""`f142`: one value of a process variable with its alarm."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np

from beamport._core import _wire_read, _wire_write
from beamport.wire.fbschemas.logdata_f142.AlarmSeverity import AlarmSeverity
from beamport.wire.fbschemas.logdata_f142.AlarmStatus import AlarmStatus

FILE_IDENTIFIER = b"f142"

LogDataInfo = namedtuple("LogDataInfo", ("value", "source_name", "timestamp_unix_ns", "alarm_status", "alarm_severity"))


def serialise_f142(
    value: Any,
    source_name: str,
    timestamp_unix_ns: int = 0,
    alarm_status: int | None = None,
    alarm_severity: int | None = None,
) -> bytes:
    """Write a message: a number, a text, or an array or list of these; a severity counts only with a status."""
    value = np.asarray(value)
    if value.ndim > 1:
        raise NotImplementedError("f142 only supports scalars or 1D array values")
    if value.dtype.kind in "US":
        texts = [text.decode() if isinstance(text, bytes) else text for text in np.atleast_1d(value).tolist()]
        given = texts if value.ndim else texts[0]
    elif value.dtype.kind in "iuf" and value.dtype.itemsize <= 8 and value.dtype != np.float16 and value.dtype.isnative:
        # One number with its type is a table of it, as it is in the message.
        given = np.ascontiguousarray(value) if value.ndim else (value.reshape(1),)
    else:
        raise NotImplementedError(f"Cannot serialise data of type {value.dtype}")
    if alarm_status is None:
        alarm_severity = None
    return _wire_write("f142", (source_name, given, timestamp_unix_ns, alarm_status, alarm_severity))


def deserialise_f142(buffer) -> LogDataInfo:
    """Read a message; an array is a read-only view of the buffer, a plain number an array without dimensions."""
    source_name, value, timestamp, status, severity = _wire_read("f142", buffer)
    if not isinstance(value, str):
        value = np.asarray(value)
    return LogDataInfo(value, source_name, timestamp, getattr(AlarmStatus, status), getattr(AlarmSeverity, severity))
