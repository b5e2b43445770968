"""Rows whose messages came late stand in the order of their times when the file is whole, packed or not."""

from __future__ import annotations

import random

import h5py
import numpy as np
import pytest
import streaming_data_types as sdt
from payloads import SECOND, T0
from streaming_data_types.alarm_al00 import Severity
from test_nexus_file import programs  # noqa: F401
from test_nexus_modules import module, written

COUNT = 1000
STEP = SECOND // 14


def message(n: int) -> list[bytes]:
    """Of each source one, at its time; events and pixels say which."""
    time = T0 + n * STEP
    pixels = np.full(n % 40, n, dtype="i4")
    offsets = np.arange(n % 40, dtype="i4") + n
    return [
        sdt.serialise_ev44("bank0", n, [time], [0], offsets, pixels),
        sdt.serialise_f144("a", 0.5 * n, time),
        sdt.serialise_al00("a", time, Severity.MINOR, f"warm {n}"),
        sdt.serialise_tdct("chopper", np.array([time, time + STEP // 2], dtype="u8")),
    ]


@pytest.mark.parametrize("compression", [None, "deflate", "bitshuffle-lz4"])
def test_times_of_a_whole_file_never_go_backwards(programs, memory, tmp_path, compression):  # noqa: F811
    if compression == "bitshuffle-lz4":
        pytest.importorskip("hdf5plugin")
    settings = {} if compression is None else {"compression": compression}
    modules = {
        "events": module("ev44", "bank0", **settings),
        "log": module("f144", "a", enable_alarm_info=True, **settings),
        "chopper": module("tdct", "chopper", **settings),
    }
    # One in five comes up to 30 s late, and one at the end that belongs to the first minute.
    dice = random.Random(5)
    late = {n: n + (dice.randrange(400) if dice.random() < 0.2 else 0) for n in range(COUNT)}
    late[100] = COUNT
    arrivals = sorted(range(COUNT), key=late.__getitem__)
    sent = [(T0 + n * STEP, payload) for n in arrivals for payload in message(n)]
    out = tmp_path / "late.nxs"
    account = written(programs, memory, out, modules, sent)
    assert account["closed"] and account["rows"][0]["done"] == len(sent)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    assert arrivals != sorted(arrivals)
    times = T0 + np.arange(COUNT) * STEP
    with h5py.File(out) as file:
        events, log = file["entry/events"], file["entry/log"]
        assert (events["event_time_zero"][()].astype("i8") == times).all()
        counts = np.arange(COUNT) % 40
        index = events["event_index"][()]
        assert (index == np.append(0, np.cumsum(counts)[:-1])).all()
        assert (events["event_id"][()] == np.repeat(np.arange(COUNT), counts)).all()
        offsets = np.arange(counts.sum()) - np.repeat(index, counts).astype("i8")
        assert (events["event_time_offset"][()] == offsets + np.repeat(np.arange(COUNT), counts)).all()
        assert (log["time"][()] == times).all() and (log["value"][()] == 0.5 * np.arange(COUNT)).all()
        assert (log["alarm_time"][()] == times).all()
        assert [text.decode() for text in log["alarm_message"][[0, 100, 999]]] == ["warm 0", "warm 100", "warm 999"]
        ticks = file["entry/chopper/time"][()]
        assert (ticks == np.sort(np.append(times, times + STEP // 2))).all()
        for group, first in ((events, index), (log, np.arange(COUNT))):
            zero = group["event_time_zero" if group is events else "time"][()].astype("i8")
            cues = group["cue_timestamp_zero"][()].astype("i8")
            rows = np.searchsorted(zero, cues)
            assert (zero[rows] == cues).all() and (group["cue_index"][()] == first[rows]).all()
            assert (np.diff(cues) >= 0).all() and len(cues) > 6
        filters = events["event_id"]
        assert (filters.id.get_create_plist().get_nfilters() > 0) == (compression is not None)
