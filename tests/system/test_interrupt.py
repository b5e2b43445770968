"""Ctrl-C once seals and finishes; twice stops at once, and the next start goes on."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import beamport
import pytest
from conftest import gapless, lost_of, until
from test_life_of_runs import TEMPLATE

INSTRUMENT = """
[source.detector]
kind = "sim"
model = "amor"
rate = 1e5
live = "4 MiB"

[source.devices]
kind = "sim"
model = "amor-devices"
live = "1 MiB"

[run.first]
settle = "{settle}"
"""
SINK = """
[sink.file]
kind = "nexus"
template = "t.json"
file = "{run}.nxs"
flush = "50 ms"
"""
LEAVES = """
import subprocess
import beamport

@beamport.worker
def leaves(message):
    subprocess.run(["sh", "-c", "sleep 0.01 &"], check=True)
    return message
"""


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(") ")[-1].split()[0]


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_once_seals_and_finishes(lab, which):
    lab.write(INSTRUMENT.format(settle="300 ms"))
    process, _ = lab.up_ready("--end-runs")
    until(lambda: lab.stream("detector").marks()[2] > 5, "no messages")
    process.send_signal(which)
    report = lab.report(process)
    assert report["run"] == "first" and report["closed"] and lost_of(report) == 0
    assert report["streams"][0]["messages"] > 0
    # The run is sealed for ever: started again, there is nothing to do.
    printed = json.loads(lab.end(lab.up()))
    empty = dict.fromkeys(("written", "streams", "gaps", "dead_time", "failed", "silent", "absent"), [])
    ledger = printed.pop("ledger")
    assert printed == {"run": None, "closed": True, "statistics": {}, **empty}
    # What the sources had is over all starts.
    assert ledger and all((row["account"], row["scope"]) == ("entry", "all") for row in ledger), ledger
    assert not (lab.data / "control.sock").exists()
    for stream in lab.streams():
        gapless(stream)
        # A stream that is closed in order has taken its live place with it.
        assert stream.head() is None, "a stream was not closed"
    print(f"interrupt: 1 {which.name} injected, the run sealed, 0 lost")


def test_sigterm_leaves_the_run_open_and_the_next_start_goes_on(lab, times, nexus):
    """A service is restarted during a run; in turn it is killed."""
    (lab.folder / "t.json").write_text(TEMPLATE)
    lab.write(INSTRUMENT.format(settle="300 ms") + SINK)
    turns, left = times(8, 300), 0
    for turn in range(turns):
        process, _ = lab.up_ready()
        began = lab.stream("detector").marks()[2]
        until(lambda began=began: lab.stream("detector").marks()[2] > began + 3, "no messages")
        if turn % 2:
            lab.kill(process)
            continue
        process.terminate()
        assert lab.end(process) == ""
        left += 1
        assert "run `first` stays open: the next `beamport up` resumes it" in lab.said(process)[1]
        for stream in lab.streams():
            assert stream.head() is None, "a stream was not closed"
    process, _ = lab.up_ready()
    began = lab.stream("detector").marks()[2]
    until(lambda: lab.stream("detector").marks()[2] > began + 3, "no messages")
    report = lab.whole(process)
    assert report["run"] == "first"
    detector = max(report["streams"], key=lambda line: line["bytes"])
    assert detector["messages"] > 3 * turns
    print(f"{left} SIGTERM and {turns - left} SIGKILL in one run: 0 lost of {detector['messages']} messages")


@pytest.mark.parametrize("killed", [False, True])
def test_a_folder_that_was_moved_during_a_run_goes_on(lab, nexus, killed):
    """The data folder and what is beside it, to another disk: the instrument file names none of its paths."""
    here, there = lab.folder / "here", lab.folder / "there"
    here.mkdir()
    (here / "t.json").write_text(TEMPLATE)
    text = 'instrument = "lab"\n' + INSTRUMENT.format(settle="300 ms") + SINK
    (here / "lab.toml").write_text(text)
    data = Path("beamport-data/lab")
    (lab.file, lab.data) = (here / "lab.toml", here / data)
    process, _ = lab.up_ready()
    until(lambda: lab.stream("detector").marks()[2] > 5, "no messages")
    if killed:
        lab.kill(process)
    else:
        process.terminate()
        lab.end(process)
    here.rename(there)
    (lab.file, lab.data) = (there / "lab.toml", there / data)
    process, _ = lab.up_ready()
    began = lab.stream("detector").marks()[2]
    until(lambda: lab.stream("detector").marks()[2] > began + 3, "no messages")
    lab.whole(process)
    # And once more, when all is done.
    there.rename(here)
    (lab.file, lab.data) = (here / "lab.toml", here / data)
    (file,) = [path for path in here.rglob("*.nxs") if not path.name.startswith(".")]
    verified = lab.run("verify", file).stdout.decode()
    assert "ok" in verified, verified
    lab.run("write", "first", "--output", here / "again.nxs", "--data", lab.data)


def test_sigterm_twice_stops_at_once(lab):
    lab.write(INSTRUMENT.format(settle="1 h"))
    process, _ = lab.up_ready()
    lab.interrupt(process)
    process.terminate()
    lab.end(process, status=2)
    assert json.loads(lab.said(process)[0])["fault"]["what"] == "stopped at once"


@pytest.mark.root
def test_as_the_first_process_of_a_container_it_ends_by_signals_and_reaps(lab):
    """User code leaves processes behind, whose parent is the first process then."""
    (lab.folder / "code.py").write_text(LEAVES)
    worker = f"""
[worker.copy]
call = "code.py:leaves"
inputs = ["detector"]
python = "{sys.executable}"
"""
    lab.write(INSTRUMENT.format(settle="300 ms") + worker)
    first = lab.folder / "first.sh"
    first.write_text(f'#!/bin/sh\nexec unshare --pid --fork --mount-proc --kill-child {lab.beamport} "$@"\n')
    first.chmod(0o755)
    lab.beamport = first
    # In its namespace it has another number than here.
    process = lab.up()
    until(
        lambda: lab.data.is_dir() and "copy" in beamport.open(lab.data) and lab.stream("copy").marks()[2] > 20,
        "no messages",
    )
    (init,) = children_of(process.pid)
    dead = [pid for pid in children_of(init) if state_of(pid) == "Z"]
    assert len(dead) < 3, f"{len(dead)} processes are not reaped"
    os.kill(init, signal.SIGTERM)
    lab.end(process)
    assert "stays open" in lab.said(process)[1]


def test_interrupt_twice_stops_at_once_and_a_restart_goes_on(lab, times):
    # Nobody waits an hour for what is under way.
    lab.write(INSTRUMENT.format(settle="1 h"))
    twice = times(3, 50)
    for _ in range(twice):
        process, _ = lab.up_ready()
        began = lab.stream("detector").marks()[2]
        until(lambda began=began: lab.stream("detector").marks()[2] > began + 3, "no messages")
        lab.interrupt(process)
        time.sleep(0.1)
        assert process.poll() is None, "it ended although the run is settling"
        lab.interrupt(process)
        lab.end(process, status=2)
        said = json.loads(lab.said(process)[0])
        assert said["fault"]["what"] == "stopped at once" and not said["is_full"]
    marked = lab.stream("detector").marks()[1]
    process, _ = lab.up_ready()
    until(lambda: lab.stream("detector").marks()[2] > marked + 3, "a restart does not go on")
    lab.kill(process)
    for stream in lab.streams():
        gapless(stream)
    print(f"interrupt: {twice} x 2 injected, gone on each time, 0 lost of {marked} marked messages")


def test_runs_are_begun_and_ended_from_another_terminal(lab):
    lab.write(INSTRUMENT.format(settle="200 ms").split("[run.")[0])
    process, _ = lab.up_ready()
    begun = json.loads(lab.run("begin", "night", "--data", lab.data, "--json").stdout)
    assert begun["name"] == "night"
    until(lambda: lab.stream("detector").marks()[2] > 5, "no messages")
    lab.run("end", "night", "--data", lab.data)
    lab.interrupt(process)
    report = lab.report(process)
    assert report["run"] == "night" and report["closed"] and report["streams"][0]["messages"] > 0
