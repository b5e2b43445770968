"""The process that writes the NeXus file is killed with -9 at random moments; sometimes the mover with it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
from conftest import ROOT, lost_of, until
from nexus_files import different

INSTRUMENT = """
[source.detector]
kind = "sim"
model = "amor"
rate = 2e5
live = "4 MiB"

[source.monitor]
kind = "sim"
model = "amor-monitor"
live = "1 MiB"

[source.devices]
kind = "sim"
model = "amor-devices"
live = "1 MiB"

[sink.file]
kind = "nexus"
template = "amor.nexus.json"
file = "{run}.nxs"
flush = "50 ms"

[run.first]
settle = "200 ms"
"""
EVENTS = "entry/instrument/detector/data"


def writers_of(lab, process) -> list[int]:
    """The children that write, as far as they live and are that program: others only say their version."""
    found = []
    for pid in lab.children(process):
        try:
            program, *words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if Path(program).name == "beamport-nexus" and words[0] == "write" and not gone(pid):
            found.append(pid)
    return found


def writer_of(lab, process) -> int | None:
    """One of them."""
    return next(iter(writers_of(lab, process)), None)


class TornError(Exception):
    """Datasets that belong together have different lengths, or rows of one are still empty. Nobody may see that in the file
    of a killed writer; who reads dataset by dataset while the next one writes may.
    """


def look(lab, path: Path) -> int | None:
    """Pulses that the file shows now, all of them proven against the stream; None if it is not there or has no rows yet.

    Raises OSError where h5py cannot open it, TornError where it shows a flush that is not finished. What no stream holds
    fails at once, whatever happened before.
    """
    if not path.exists():
        return None
    stream = lab.stream("detector")
    with h5py.File(path, "r") as file:
        if EVENTS not in file:
            return None
        data = file[EVENTS]
        zero, index = data["event_time_zero"][:], data["event_index"][:]
        ids, offsets = data["event_id"][:], data["event_time_offset"][:]
    _, disk, _ = stream.marks()
    times = stream.entries(0, disk)["source_time"]
    filled = zero[zero > 0].astype(np.int64)
    assert np.isin(filled, times).all(), "pulses that no stream holds"
    assert (np.diff(filled) > 0).all(), "pulses twice or out of order"
    # Rows that nobody wrote are zeroes: the simulation numbers pixels from 1, and no neutron arrives at once.
    empty = (zero == 0).any() or (ids == 0).any() or (offsets == 0).any()
    torn = (np.diff(index.astype(np.int64)) < 0).any()
    if empty or torn or len(zero) != len(index) or len(ids) != len(offsets) or (len(index) and index[-1] > len(ids)):
        raise TornError
    return len(zero)


@pytest.fixture
def instrument(lab, nexus):
    shutil.copy2(ROOT / "examples/amor.nexus.json", lab.folder)
    return lab.write(INSTRUMENT)


def test_file_of_a_killed_writer_opens_and_becomes_the_undisturbed_file(instrument, times, dice):
    lab = instrument
    path = lab.data / "files" / "first.nxs"
    kills = times(20, 500)
    # Each look reads the whole file: where there are many, it grows more slowly.
    lab.file.write_text(lab.file.read_text().replace("rate = 2e5", f"rate = {times(2e5, 2e4)}"))
    opened, whole, movers, pulses = [], 0, 0, 0
    process, _ = lab.up_ready()
    for kill in range(kills):
        writer = until(lambda process=process: writer_of(lab, process), "no writer is started")
        time.sleep(dice.uniform(0, 0.6))
        if kill % 5 == 4:
            movers += 1
            lab.kill(process)
            until(lambda writer=writer: gone(writer), "the writer outlives the mover")
            process, _ = lab.up_ready()
        else:
            os.kill(writer, signal.SIGKILL)
            until(lambda writer=writer: gone(writer), "the writer does not die")
        try:
            look(lab, path)
            whole += 1
        except (OSError, TornError):
            assert writer_of(lab, process), "a killed writer left a torn file"
        began = time.monotonic()
        pulses = max(pulses, until(lambda: readable(lab, path), "the file does not open, or stays torn") or 0)
        opened.append(time.monotonic() - began)
    until(lambda: lab.stream("monitor").marks()[1] >= 2, "no messages")
    report = lab.whole(process)
    members = next(line["messages"] for line in report["streams"] if line["name"] == "detector")
    assert look(lab, path) == members
    again = lab.folder / "again.nxs"
    template = lab.folder / "amor.nexus.json"
    written = lab.run("write", "first", "-o", again, "--json", "--data", lab.data, "--template", template)
    assert different(path, again) == []
    assert json.loads(written.stdout)["content"] == report["content"]
    opened.sort()
    print(
        f"file writer killed: {kills} injected ({movers} with the mover), plain h5py read the file whole at once {whole} times "
        f"(else the next one was at work), at latest after {opened[-1] * 1000:.0f} ms; 0 lost of {members} messages, equal to the undisturbed file"
    )


# What is open is of its moment; who wants to know more opens it again.
READER = """
import h5py, itertools, sys
for line in itertools.chain(["open"], sys.stdin):
    if line != "open":
        file.close()
    file = h5py.File(sys.argv[1])
    ids = file["entry/instrument/detector/data/event_id"][:]
    print(len(ids), (ids > 0).all(), flush=True)
"""


def test_readers_that_hold_the_file_open_block_no_writer(instrument, times):
    lab = instrument
    path = lab.data / "files" / "first.nxs"
    process, _ = lab.up_ready()
    until(lambda: readable(lab, path), "no file")
    readers, shown, kills = [], [], times(3, 20)
    try:
        for _ in range(kills):
            pulses = readable(lab, path)
            # As anybody opens it: without flags, with the locks of HDF5.
            reader = subprocess.Popen(
                [sys.executable, "-c", READER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            readers.append(reader)
            shown.append(int(reader.stdout.readline().split()[0]))
            until(lambda pulses=pulses: readable(lab, path) > pulses + 14, "a reader stops the file")
            os.kill(until(lambda: writer_of(lab, process), "there is no writer"), signal.SIGKILL)
            pulses = until(lambda: readable(lab, path), "the file does not open")
            until(lambda pulses=pulses: readable(lab, path) > pulses + 14, "a reader stops the next writer")
        for reader, before in zip(readers, shown, strict=True):
            reader.stdin.write("again\n")
            reader.stdin.flush()
            count, whole = reader.stdout.readline().split()
            assert int(count) > before and whole == "True"
    finally:
        for reader in readers:
            reader.kill()
            reader.wait()
            reader.stdin.close()
            reader.stdout.close()
    lab.interrupt(process)
    report = lab.report(process)
    assert report["closed"] and lost_of(report) == 0
    again = lab.folder / "again.nxs"
    lab.run("write", "first", "-o", again, "--data", lab.data, "--template", lab.folder / "amor.nexus.json")
    assert different(path, again) == []
    print(
        f"file held open by {kills} readers: {kills} kills of the writer injected, it goes on; equal to the undisturbed file"
    )


# Opens the file and reads all of it, again and again; between, the last rows that it knew when it opened it.
LOOKS = """
import h5py, sys, time
read = refused = 0
while read < int(sys.argv[2]):
    with h5py.File(sys.argv[1]) as file:
        try:
            ids = file["entry/instrument/detector/data/event_id"]
            before = ids[-1000:]
            file.visititems(lambda name, thing: thing[()] if isinstance(thing, h5py.Dataset) else None)
        except OSError as error:
            # A busy machine stopped this process between the open and the read: the file has grown beyond the end
            # that libhdf5 read.
            assert "addr overflow" in str(error) and refused < int(sys.argv[2]), error
            refused += 1
            continue
        read += 1
        first = len(ids) - len(before)
        time.sleep(0.2)
        try:
            assert (ids[first:first + len(before)] == before).all(), "other rows than before"
        except OSError:
            # It has grown beyond the end that libhdf5 read.
            refused += 1
print(len(before), refused)
"""


@pytest.mark.parametrize("compression", [None, "deflate"])
def test_a_reader_of_a_file_that_grows_gets_all_and_later_no_other_rows(instrument, compression, times):
    lab = instrument
    path = lab.data / "files" / "first.nxs"
    template = lab.folder / "amor.nexus.json"
    structure = json.loads(template.read_text())
    modules(structure)["ev44"]["config"] |= {"compression": compression} if compression else {}
    template.write_text(json.dumps(structure))
    process, _ = lab.up_ready()
    until(lambda: readable(lab, path), "no file")
    looks = subprocess.run([sys.executable, "-c", LOOKS, path, str(times(20, 500))], capture_output=True, text=True)
    assert looks.returncode == 0, looks.stderr
    print(
        f"a file that grows, {compression}: opened and read {times(20, 500)} times, {looks.stdout.split()[1]} refused later"
    )
    lab.whole(process)


def modules(node: dict) -> dict[str, dict]:
    """Modules of a template by their names."""
    found = {node["module"]: node} if "module" in node else {}
    for child in node.get("children", []):
        found |= modules(child)
    return found


def gone(pid: int) -> bool:
    """A process that has ended, its entry perhaps not taken yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def readable(lab, path):
    """The number of pulses plus one, so that an empty file counts too; False where it does not open."""
    try:
        found = look(lab, path)
        return False if found is None else found + 1
    except (OSError, TornError):
        return False
