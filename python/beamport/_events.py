"""Events of many messages as columns: one row an event."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._core import Message
from ._errors import Error

# Schemas of events, with the names of pulse times, their first events, and pixels.
EVENTS = {
    "ev44": ("reference_time", "reference_time_index", "pixel_id"),
    "ev43": ("pulse_time", "pulse_index", "detector_id"),
    "ev42": ("pulse_time", None, "detector_id"),
}


class Events:
    """Events of messages, copied."""

    def __init__(self) -> None:
        """Without any."""
        self.count = 0
        # Names, by the numbers in the column `origin`.
        self.origins: list[str] = []
        self._parts: list[tuple[np.ndarray, np.ndarray, np.ndarray, int]] = []

    def add(self, message: Message) -> None:
        """Add the events of a message."""
        fields = message.fields()
        times_of, firsts_of, pixels_of = EVENTS[message.schema]
        offsets = np.array(fields["time_of_flight"])
        pixels = fields[pixels_of]
        # A monitor has no pixels.
        pixels = np.full(len(offsets), -1, np.int32) if pixels is None or not len(pixels) else np.array(pixels)
        times = np.atleast_1d(np.asarray(fields[times_of])).astype(np.int64)
        firsts = np.zeros(1, np.int64) if firsts_of is None else np.asarray(fields[firsts_of]).astype(np.int64)
        if message.origin not in self.origins:
            self.origins.append(message.origin)
        if len(pixels) != len(offsets):
            self._refuse(message, f"it has {len(offsets)} times and {len(pixels)} pixels")
        pulses = self._pulses(message, times, firsts, len(offsets))
        self._parts.append((pulses, offsets, pixels, self.origins.index(message.origin)))
        self.count += len(offsets)

    def pulse_times(self) -> np.ndarray:
        """The time of the pulse of each event, as datetime64[ns]."""
        return _joined([part[0] for part in self._parts], np.int64).astype("datetime64[ns]")

    def columns(self) -> dict[str, Any]:
        """Origin (a number), time of flight and pixel of each event; no pixels where no message has any."""
        numbers = [np.full(len(part[0]), part[3], np.int32) for part in self._parts]
        pixels = _joined([part[2] for part in self._parts], np.int32)
        columns = {
            "origin": _joined(numbers, np.int32),
            "time_of_flight": _joined([part[1] for part in self._parts], np.int32),
        }
        return columns if pixels.size and pixels.max() < 0 else columns | {"pixel_id": pixels}

    def _pulses(self, message: Message, times: np.ndarray, firsts: np.ndarray, count: int) -> np.ndarray:
        """The pulse time of each of `count` events; `firsts` is the first event of each pulse."""
        if not count:
            return np.array([], np.int64)
        if len(times) == 0:
            return np.full(count, message.source_time)
        if len(times) == 1:
            return np.full(count, times[0])
        # The last pulse of one message may have its events in the next.
        firsts = np.minimum(firsts, count)
        if len(firsts) != len(times) or np.any(np.diff(firsts) < 0) or firsts[0] < 0:
            self._refuse(message, f"it has {len(times)} pulses that begin at the events {firsts[:5].tolist()}")
        firsts[0] = 0
        return np.repeat(times, np.diff(firsts, append=count))

    @staticmethod
    def _refuse(message: Message, cause: str) -> None:
        raise Error(f"the events of message {message.sequence} are not one table", cause, "look at it: `m.fields()`")


def _joined(parts: list[np.ndarray], dtype: Any) -> np.ndarray:
    return np.concatenate(parts) if parts else np.array([], dtype)
