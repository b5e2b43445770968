"""The disk with the file is full: nothing crashes, the file stays readable, and when there is room it becomes whole."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import h5py
import pytest
import sums
from test_nexus_file import HANG_S, INSTRUMENT, ROOT, programs  # noqa: F401

pytestmark = pytest.mark.root

SIZES_MIB = [6 + 3 * part for part in range(20 if os.environ.get("BEAMPORT_SOAK") == "1" else 3)]


@pytest.mark.parametrize("mib", SIZES_MIB)
def test_a_full_disk_loses_nothing(programs, tmp_path, mib):  # noqa: F811
    data = Path(tempfile.mkdtemp(prefix="beamport-test-", dir="/dev/shm"))
    small = tmp_path / "small"
    small.mkdir()
    shutil.copy2(ROOT / "examples" / "amor.nexus.json", tmp_path)
    seconds = 4 + mib // 8
    text = INSTRUMENT.format(data=data).replace('"3 s"', f'"{seconds} s"').replace("rate = 2e5", "rate = 1e6")
    text = text.replace('kind = "nexus"', f'kind = "nexus"\nfolder = "{small}"')
    (tmp_path / "amor.toml").write_text(text)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", small], check=True)
    try:
        with subprocess.Popen(
            [programs / "beamport", "up", "amor.toml", "--json"],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as up:
            try:
                time.sleep(seconds + 4)
                path = small / "first.nxs"
                with h5py.File(path) as file:
                    shown = len(file["entry/instrument/detector/data/event_id"])
                    assert len(file["entry/instrument/detector/data/event_time_offset"]) == shown
                assert up.poll() is None, "it did not wait for room"
                subprocess.run(["mount", "-o", "remount,size=1g", small], check=True)
                out, err = up.communicate(timeout=HANG_S)
            finally:
                if up.poll() is None:
                    up.kill()
        assert up.returncode == 0, err
        assert err.count("no space for") == 1, err
        sums.printed(out)
        report = json.loads(out.splitlines()[-1])
        sent = next(s["events"] for s in report["streams"] if s["name"] == "detector")
        with h5py.File(path) as file:
            written = len(file["entry/instrument/detector/data/event_id"])
        print(f"injected a disk of {mib} MiB: shown {shown}, then lost {sent - written} of {sent} events")
        assert written == sent
        assert report["closed"] is True
    finally:
        subprocess.run(["umount", small], check=True)
        shutil.rmtree(data)
