"""The power goes: the image of a real file system is copied while everything stands still, and the copy is mounted.

Nothing is flushed for the copy, so it holds what a disk holds at that moment. The machine's memory is gone with the
power: the copy has another device number, so no live place belongs to its streams.
"""

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
from conftest import ROOT, kill, until
from nexus_files import different
from signals import stop
from test_kill_writer import TornError, look

INSTRUMENT = """
[source.detector]
kind = "sim"
model = "amor"
rate = 3e5
live = "4 MiB"

[source.devices]
kind = "sim"
model = "amor-devices"
live = "1 MiB"

[run.first]
settle = "200 ms"
"""
FILE = """
[source.monitor]
kind = "sim"
model = "amor-monitor"
live = "1 MiB"

[sink.file]
kind = "nexus"
template = "amor.nexus.json"
file = "{run}.nxs"
flush = "50 ms"
"""
MIB = 300


class Image:
    """An ext4 file system in a file in memory, mounted."""

    def __init__(self, folder: Path, image: Path):
        self.folder, self.image = folder, image
        folder.mkdir(exist_ok=True)
        subprocess.run(["mount", "-o", "loop", image, folder], check=True)

    @classmethod
    def make(cls, folder: Path, image: Path) -> "Image":
        with image.open("wb") as file:
            file.truncate(MIB << 20)
        subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
        return cls(folder, image)

    def cut(self, folder: Path) -> "Image":
        """What the disk holds now, mounted elsewhere."""
        return Image(folder, self.copy())

    def become(self, image: Path):
        """Nothing more comes to the disk, which then holds what it held when it was copied."""
        # A killed process lets go a moment later.
        until(lambda: subprocess.run(["umount", self.folder], check=False).returncode == 0, "the disk stays in use")
        image.rename(self.image)
        subprocess.run(["mount", "-o", "loop", self.image, self.folder], check=True)

    def copy(self) -> Path:
        """A file with what the disk holds now."""
        image = self.image.with_suffix(f".cut{time.monotonic_ns()}")
        # The kernel and children still write: a copy of a disk that moves is one that no power cut leaves.
        while True:
            subprocess.run(["cp", "--sparse=always", self.image, image], check=True)
            if subprocess.run(["cmp", "-s", self.image, image], check=False).returncode == 0:
                break
        return image

    def close(self):
        subprocess.run(["umount", self.folder], check=False)
        self.image.unlink(missing_ok=True)


@pytest.fixture
def image(tmp_path):
    # In memory: a copy takes no time, and a loop device reads what its file holds.
    folder = Path(f"/dev/shm/beamport-cut-{os.getpid()}")
    folder.mkdir()
    one = Image.make(tmp_path / "disk", folder / "image")
    yield one
    subprocess.run(["umount", "-l", one.folder], check=False)
    shutil.rmtree(folder)


@pytest.mark.root
def test_power_cuts_take_nothing_that_was_marked(lab, image, times, dice):
    lab.data = image.folder / "data"
    lab.write(INSTRUMENT)
    process, _ = lab.up_ready()
    until(lambda: lab.stream("detector").marks()[1] > 2, "nothing is marked")
    cuts, marked, recoveries = times(5, 50), 0, []
    for _ in range(cuts):
        time.sleep(dice.uniform(0, 0.2))
        stop(process.pid)
        try:
            before = {s.name: (s.uuid, s.marks()[1], s.entries(0, s.marks()[1])) for s in lab.streams(books=True)}
            after = image.cut(lab.folder / "after")
        finally:
            process.send_signal(signal.SIGCONT)
        try:
            data = after.folder / "data"
            # As it lies there: cold, up to the commit record.
            lab.run("verify", "--data", data)
            # Somebody writes again: what is past the record is cut or proven.
            second = lab.file.with_name("second.toml")
            second.write_text(lab.file.read_text().replace(str(lab.data), str(data)))
            other = type(lab)(lab.folder, lab.beamport)
            other.data, other.file, other.started = data, second, lab.started
            began = time.monotonic()
            up = other.up()
            until(lambda other=other, up=up: other.ready(up), "the copy does not start")
            recoveries.append(time.monotonic() - began)
            other.interrupt(up)
            other.end(up, status=None)
            for stream in other.streams(books=True):
                if stream.name not in before:
                    continue  # A book of the absence, made since.
                uuid, mark, entries = before[stream.name]
                count = stream.marks()[2]
                assert stream.uuid == uuid and count >= mark, f"{stream.name}: {mark} were marked, {count} are there"
                assert np.array_equal(stream.entries(0, mark), entries), f"{stream.name}: other bytes"
                marked += mark
            lab.run("verify", "--data", data)
            other.take_back(data)
        finally:
            after.close()
    lab.whole(process)
    recoveries.sort()
    print(
        f"power cut by a copy of the disk: {cuts} injected, {marked} messages marked, 0 lost, 0 wrong; "
        f"ready after {recoveries[len(recoveries) // 2] * 1000:.0f} ms (median), {recoveries[-1] * 1000:.0f} ms (longest)"
    )


@pytest.mark.root
def test_file_of_a_run_through_power_cuts_opens_and_becomes_the_undisturbed_file(lab, nexus, image, times, dice):
    """One run that goes on over all cuts: the machine comes back with what its disk held, and none of its processes."""
    lab.data = image.folder / "data"
    template = shutil.copy2(ROOT / "examples/amor.nexus.json", lab.folder)
    cuts, whole, opened, shown = times(5, 100), 0, [], 0
    lab.write(INSTRUMENT.replace("rate = 3e5", f"rate = {times(2e5, 5e4)}") + FILE)
    process, _ = lab.up_ready()
    file = lab.data / "files" / "first.nxs"
    until(lambda: seen(lab, file) > 14, "the file has no rows")
    for _ in range(cuts):
        time.sleep(dice.uniform(0, 0.6))
        machine = [process.pid, *lab.children(process)]
        for pid in machine:
            stop(pid)
        after = image.copy()
        for pid in machine:
            kill(pid)
        process.wait()
        lab.take_back(lab.data)
        image.become(after)
        try:
            with h5py.File(file):
                whole += 1
        except OSError:
            pass
        process = lab.up()
        began = time.monotonic()
        until(lambda process=process: lab.ready(process), "it does not come back")

        def state(process=process):
            status = lab.run("status", "--data", lab.data, "--json", status=None)
            return f"{refused.get(file)!r}, {status.stdout}, {lab.said(process)}"

        shown = until(lambda: seen(lab, file), lambda: f"the file does not open: {state()}")
        opened.append(time.monotonic() - began)
        until(lambda shown=shown: seen(lab, file) > shown + 7, lambda: f"the file does not go on: {state()}")
    lab.interrupt(process)
    # What lay in memory alone went with the power: where the account says so, the status does too.
    (report,) = [json.loads(line) for line in lab.end(process, status=None).splitlines()]
    assert report["closed"]
    again = lab.folder / "again.nxs"
    lab.run("write", "first", "-o", again, "--data", lab.data, "--template", template, status=None)
    assert different(file, again) == []
    members = next(line["messages"] for line in report["streams"] if line["name"] == "detector")
    assert seen(lab, file) == members + 1
    print(
        f"power cut during a run, file: {cuts} injected, plain h5py opened it {whole} times before `up` ran again and always "
        f"at latest {max(opened):.1f} s after, with pulses of the streams alone; {members} messages at the end, equal to the "
        "undisturbed file"
    )


# Why a file was not seen at last.
refused = {}


def seen(lab, path: Path) -> int:
    """Pulses that the file shows, plus one; 0 while it does not open, or while its streams are not there."""
    try:
        found = look(lab, path)
    except (OSError, TornError, KeyError, ValueError, IndexError) as cause:
        refused[path] = cause
        return 0
    return 0 if found is None else found + 1
