"""The process that writes a file is killed: the file opens in plain h5py at once, and at the end it is whole."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import h5py
import pytest
import sums
from test_nexus_file import HANG_S, INSTRUMENT, ROOT, programs  # noqa: F401

KILLS = 100 if os.environ.get("BEAMPORT_SOAK") == "1" else 10


def writer_of(parent: int) -> int | None:
    """The `beamport-nexus` among the children of a process that writes: another one only says its version."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, rest = stat.read_text().rpartition(")")[::2]
            writes = "\0write\0" in (stat.parent / "cmdline").read_text()
        except OSError:
            continue
        state, above = rest.split()[:2]
        if name.partition("(")[2] == "beamport-nexus" and int(above) == parent and state != "Z" and writes:
            return int(stat.parent.name)
    return None


def look(path: Path) -> int:
    """Opens the file as a user would; returns its events after checking that nothing is torn."""
    with h5py.File(path, "r") as file:
        events = file["entry/instrument/detector/data"]
        index, zero = events["event_index"][()], events["event_time_zero"][()]
        count = len(events["event_id"])
        assert len(events["event_time_offset"]) == count
        assert len(index) == len(zero)
        assert (index[1:] >= index[:-1]).all() and (len(index) == 0 or index[-1] <= count)
        assert (zero[1:] > zero[:-1]).all(), "rows that were not written"
        assert count == 0 or (events["event_id"][()] > 0).all(), "rows that were not written"
        return count


@pytest.mark.parametrize("place", ["shm", "disk"])
def test_a_killed_writer_loses_nothing(programs, tmp_path, place):  # noqa: F811
    data = Path(tempfile.mkdtemp(prefix="beamport-test-", dir="/dev/shm" if place == "shm" else tmp_path))
    shutil.copy2(ROOT / "examples" / "amor.nexus.json", tmp_path)
    kills = max(1, KILLS // 2)
    # Each look reads the whole file, and who is killed often is started later: where there are many, the file grows more
    # slowly and the run is longer (a kill took 4 s).
    rate, seconds = ("1e6", 3 + kills) if kills <= 5 else ("1e5", 6 * kills)
    text = INSTRUMENT.format(data=data).replace('"3 s"', f'"{seconds} s"').replace("rate = 2e5", f"rate = {rate}")
    (tmp_path / "amor.toml").write_text(text)
    rng = random.Random(f"nexus {place}")
    shown, killed = [], 0
    with subprocess.Popen(
        [programs / "beamport", "up", "amor.toml", "--json"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as up:
        try:
            began = time.monotonic()
            while killed < kills and up.poll() is None and time.monotonic() - began < HANG_S + 10 * kills:
                time.sleep(rng.uniform(0.2, 1.5))
                pid = writer_of(up.pid)
                if pid is None:
                    continue
                os.kill(pid, signal.SIGKILL)
                killed += 1
                for path in data.rglob("*.nxs"):
                    shown.append(look(path))
            out, err = up.communicate(timeout=HANG_S + 10 * kills)
        finally:
            if up.poll() is None:
                up.kill()
    assert up.returncode == 0, err
    sums.printed(out)
    report = json.loads(out.splitlines()[-1])
    sent = next(s["events"] for s in report["streams"] if s["name"] == "detector")
    written = look(Path(report["file"]))
    shutil.rmtree(data)
    print(
        f"injected {killed} kills of the writer ({place}): shown then {shown}, lost {sent - written} of {sent} events"
    )
    assert killed == kills
    assert report["closed"] is True
    assert written == sent
