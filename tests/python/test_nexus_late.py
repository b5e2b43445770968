"""Rows whose messages came late stand in the order of their times when the file is whole, packed or not."""

from __future__ import annotations

import os
import random
import subprocess
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
import streaming_data_types as sdt
from payloads import SECOND, T0
from streaming_data_types.alarm_al00 import Severity
from test_nexus_file import HANG_S, programs, writer_job  # noqa: F401
from test_nexus_modules import module, written

COUNT = 1000
KILLS = 100 if os.environ.get("BEAMPORT_SOAK") == "1" else 10
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


def modules(compression: str | None) -> dict:
    settings = {} if compression is None else {"compression": compression}
    return {
        "events": module("ev44", "bank0", **settings),
        "log": module("f144", "a", enable_alarm_info=True, **settings),
        "chopper": module("tdct", "chopper", **settings),
    }


def arrivals() -> list[int]:
    """One in five comes up to 30 s late, and one at the end that belongs to the beginning."""
    dice = random.Random(5)
    late = {n: n + (dice.randrange(400) if dice.random() < 0.2 else 0) for n in range(COUNT)}
    late[100] = COUNT
    order = sorted(range(COUNT), key=late.__getitem__)
    assert order != sorted(order)
    return order


def check(path: Path, compression: str | None):
    """The file is that of messages that came in order."""
    assert [one.name for one in path.parent.iterdir() if one.name.startswith(".")] == []
    times = T0 + np.arange(COUNT) * STEP
    with h5py.File(path) as file:
        events, log = file["entry/events"], file["entry/log"]
        assert (events["event_time_zero"][()].astype("i8") == times).all()
        counts = np.arange(COUNT) % 40
        index = events["event_index"][()]
        assert (index == np.append(0, np.cumsum(counts)[:-1])).all()
        assert (events["event_id"][()] == np.repeat(np.arange(COUNT), counts)).all()
        offsets = np.arange(counts.sum()) - np.repeat(index, counts).astype("i8")
        assert (events["event_time_offset"][()] == offsets + np.repeat(np.arange(COUNT), counts)).all()
        assert (log["time"][()] == times).all()
        assert (log["value"][()] == 0.5 * np.arange(COUNT)).all()
        assert (log["alarm_time"][()] == times).all()
        assert [text.decode() for text in log["alarm_message"][[0, 100, 999]]] == ["warm 0", "warm 100", "warm 999"]
        ticks = file["entry/chopper/time"][()]
        assert (ticks == np.sort(np.append(times, times + STEP // 2))).all()
        for group, name, first in ((events, "event_time_zero", index), (log, "time", np.arange(COUNT))):
            zero, cues = group[name][()].astype("i8"), group["cue_timestamp_zero"][()].astype("i8")
            rows = np.searchsorted(zero, cues)
            assert (zero[rows] == cues).all()
            assert (group["cue_index"][()] == first[rows]).all()
            assert (np.diff(cues) >= 0).all()
            assert len(cues) > 6
        packed = events["event_id"].id.get_create_plist().get_nfilters() > 0
        assert packed == (compression is not None)


@pytest.mark.parametrize("compression", [None, "deflate", "bitshuffle-lz4"])
def test_times_of_a_whole_file_never_go_backwards(programs, memory, tmp_path, compression):  # noqa: F811
    if compression == "bitshuffle-lz4":
        pytest.importorskip("hdf5plugin")
    sent = [(T0 + n * STEP, payload) for n in arrivals() for payload in message(n)]
    out = tmp_path / "late.nxs"
    account = written(programs, memory, out, modules(compression), sent)
    assert account["closed"]
    assert account["rows"][0]["done"] == len(sent)
    check(out, compression)


@pytest.mark.parametrize("compression", [None, "deflate"])
def test_a_writer_killed_while_it_sorts_loses_no_row(programs, memory, tmp_path, compression):  # noqa: F811
    sent = [(T0 + n * STEP, payload) for n in arrivals() for payload in message(n)]
    written(programs, memory, tmp_path / "undisturbed.nxs", modules(compression), sent)
    out = tmp_path / "killed" / "late.nxs"
    out.parent.mkdir()
    # On a busy machine it would be done before this test gets a processor to look.
    command = ["nice", "-n", "19", programs / "beamport-nexus", "write"]
    job = tmp_path / "job.json"
    job.write_text(writer_job(memory, tmp_path / "undisturbed.json", out))
    dice = random.Random(6)
    kills, seen = 0, {"sorting": 0, "sorted": 0}
    for attempt in range(20 * KILLS):
        with (
            job.open() as asked,
            subprocess.Popen(command, stdin=asked, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as writer,
        ):
            began, wait = time.monotonic(), dice.uniform(0, 0.004)
            # Every other one is killed as soon as it sorts, or a little later; those between, at their very start or never.
            endings = [] if kills >= KILLS else ["sorting", "sorted"] if attempt % 2 == 0 else ["sorted"]
            while writer.poll() is None and time.monotonic() - began < HANG_S:
                if any((out.parent / f".late.nxs.{ending}").exists() for ending in endings):
                    time.sleep(wait)
                    writer.kill()
                    break
            writer.wait(HANG_S)
        for ending in seen:
            seen[ending] += writer.returncode != 0 and (out.parent / f".late.nxs.{ending}").exists()
        if writer.returncode == 0:
            if kills > 0:
                break
            # It was done before this test saw that it sorts.
            out.unlink()
            continue
        assert writer.returncode == -9, writer.stderr
        kills += 1
        with h5py.File(out) as file:
            assert len(file["entry/events/event_id"][()]) == (np.arange(COUNT) % 40).sum()
    assert writer.returncode == 0
    print(f"injected {kills} kills of a writer that sorts ({seen} stood there): 0 rows lost")
    assert kills > 0
    check(out, compression)
