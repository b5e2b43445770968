"""What one stage, one slot or one file lacks is the trouble of that one: all else goes on, and it comes back by itself."""

import ctypes
import json
import os
import sys
import time

import pytest
from conftest import camera, kill, until, worker
from test_kill_writer import writer_of
from test_life_of_runs import SINK, SOURCE, TEMPLATE

CODE = """
import beamport

@beamport.worker
def mean(frame):
    return float(frame.array.mean())
"""


def troubles(lab) -> str:
    """What `status` says of the troubles of an instrument that runs."""
    answer = json.loads(lab.ask(b'{"command": "status"}\n'))
    return "\n".join(answer["ok"]["troubles"])


def wrapped(lab, program):
    """A program that starts another in its place; it can be taken away."""
    path = lab.folder / "program"
    path.write_text(f'#!/bin/sh\nexec {program} "$@"\n')
    path.chmod(0o755)
    return path


def grows(stream):
    """A stream goes on."""
    seen = stream.marks()[2]
    until(lambda: stream.marks()[2] > seen + 20, f"`{stream.name}` stands still")


def test_a_slot_that_could_not_be_started_ended_the_others_with_it(lab):
    (lab.folder / "mine.py").write_text(CODE)
    program = wrapped(lab, sys.executable)
    stage = worker("mean", "mine.py:mean", "slots = 2\n").replace(
        f'python = "{sys.executable}"', f'python = "{program}"'
    )
    lab.write(camera(100) + stage)
    process, _ = lab.up_ready()
    (first, second) = until(
        lambda: (slots := lab.slots(process)) and len(slots) == 2 and slots, "there are no two slots"
    )
    until(lambda: lab.stream("mean").marks()[2] > 20, "no output")
    program.rename(program.with_name("away"))
    kill(first)
    until(lambda: "slot" in troubles(lab) and "cannot start" in troubles(lab), lambda: lab.said(process)[1])
    grows(lab.stream("mean"))
    assert lab.slots(process) == [second], "the other slot goes on"
    program.with_name("away").rename(program)
    until(lambda: len(lab.slots(process)) == 2, "the slot does not come back")
    until(lambda: not troubles(lab), lambda: troubles(lab))
    assert second in lab.slots(process)
    lab.interrupt(process)
    lab.end(process)
    print("injected 1 program of a slot that is not there for a while: 0 other slots ended")


def test_a_writer_that_could_not_be_started_was_no_trouble(lab, nexus):
    (lab.folder / "t.json").write_text(TEMPLATE)
    program = wrapped(lab, nexus)
    source = SOURCE.format(level="disk").replace('retain = "1 MiB"', "")
    lab.write(source + SINK + f'program = "{program}"\n[run.one]\nsettle = "200 ms"\n')
    process, _ = lab.up_ready()

    writer = until(lambda: writer_of(lab, process), "there is no writer")
    until(lambda: (lab.data / "files" / "one.nxs").exists(), "no file")
    program.rename(program.with_name("away"))
    kill(writer)
    until(lambda: "cannot start the writer of sink `file`" in troubles(lab), lambda: troubles(lab))
    grows(lab.stream("detector"))
    program.with_name("away").rename(program)
    until(lambda: writer_of(lab, process), "the writer does not come back")
    until(lambda: not troubles(lab), lambda: troubles(lab))
    report = lab.whole(process)
    assert report["file"] and os.path.getsize(report["file"]) > 0
    print("injected 1 program of a writer that is not there for a while: the file is whole")


@pytest.mark.parametrize("part", ["mean.commits", "runs"])
def test_a_header_that_could_not_be_read_ended_the_instrument(lab, part):
    lab.write(camera(100, "disk") + worker("mean", "copy").split("python")[0] + 'live = "8 MiB"\nslot_live = "2 MiB"\n')
    process, _ = lab.up_ready()
    until(lambda: lab.stream("mean").marks()[2] > 20, "no output")
    source = lab.stream("camera")
    header = lab.data / part / "stream"
    aside = header.with_name("aside")
    # A moment without the file would be a stream that is gone: both change places at once.
    aside.mkdir()
    exchange(header, aside)
    until(lambda: f"`{part}`" in troubles(lab), lambda: f"{troubles(lab)}\n{lab.said(process)[1]}")
    time.sleep(1.5)  # The mover looks each second.
    grows(source)
    exchange(header, aside)
    aside.rmdir()
    until(lambda: not troubles(lab), lambda: troubles(lab))
    grows(lab.stream("mean"))
    lab.interrupt(process)
    lab.end(process)
    print(f"injected 1 header of `{part}` that cannot be read for a while: 0 stages ended")


def exchange(a, b):
    """Two names change places at once (renameat2 with RENAME_EXCHANGE)."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(-100, bytes(a), -100, bytes(b), 2) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(a))
