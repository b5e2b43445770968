"""One run written by several processes: its file leads to those of the others, whoever is killed."""

import json
import os
import shutil
import signal
import time
from pathlib import Path

import h5py
import pytest
from conftest import ROOT, until
from nexus_files import content
from test_kill_writer import INSTRUMENT, gone, writers_of

OTHERS = ("first.2.nxs", "first.3.nxs")


@pytest.fixture
def instrument(lab, nexus):
    shutil.copy2(ROOT / "examples/amor.nexus.json", lab.folder)
    return lab.write(INSTRUMENT.replace('flush = "50 ms"', 'flush = "50 ms"\nwriters = 4'))


def test_a_run_by_several_writers_is_the_run_by_one(instrument, dice):
    lab = instrument
    files = lab.data / "files"
    process, _ = lab.up_ready()
    for _ in range(3):
        # As many as there are streams that can be shared out, and the one with the logs.
        until(lambda: len(writers_of(lab, process)) == 3, "three writers do not come")
        time.sleep(dice.uniform(0, 0.4))
        victim = dice.choice(writers_of(lab, process))
        os.kill(victim, signal.SIGKILL)
        until(lambda victim=victim: gone(victim), "it does not die")
    until(lambda: lab.stream("monitor").marks()[1] >= 2, "no messages")
    report = lab.whole(process)
    assert sorted(path.name for path in files.iterdir() if path.suffix == ".nxs") == sorted(("first.nxs", *OTHERS))
    again = lab.folder / "again.nxs"
    written = json.loads(lab.run("write", "first", "-o", again, "--data", lab.data, "--json").stdout)
    assert written["content"] == report["content"]

    def measured(whole):
        # Each file has the account of its own writer, and says how it was shared out.
        own = ("/entry/beamport", "@beamport_template")
        return {path: value for path, value in whole.items() if not path.startswith(own)}

    one, several = measured(content(again)), measured(content(files / "first.nxs", OTHERS))
    assert several == one and len(one) > 100
    # The files of the others stand alone, each with what is its own.
    with h5py.File(files / OTHERS[0]) as second, h5py.File(files / OTHERS[1]) as third:
        alone = [set(file["entry/instrument"]) for file in (second, third)]
        assert sorted(map(sorted, alone)) == [["detector"], ["monitor"]]
    assert b"3 of 3 files are ok" in lab.run("verify", files / "first.nxs", "--data", lab.data).stdout
    for other in OTHERS:
        lab.run("verify", files / other, "--data", lab.data)
    the_rows_of_all_files_are_shown(lab, files / "first.nxs")
    a_linked_file_that_is_held_open_is_read_as_the_page_says(files / "first.nxs")
    # Moved, they are known by their bytes, and the others are looked for beside the run's file.
    moved = shutil.copytree(files, lab.folder / "moved")
    damaged_parts_of_a_run_are_named(lab, moved)


def the_rows_of_all_files_are_shown(lab, file):
    def shown(*words):
        lines = lab.run("cat", file, "--json", *words).stdout.splitlines()
        return [row["path"] for row in map(json.loads, lines)]

    detector = "/entry/instrument/detector/data"
    with h5py.File(file) as whole:
        pulses = len(whole[detector]["event_time_zero"])
    assert shown("--path", detector) == [detector] * pulses
    assert {detector, "/entry/sample/temperature"} <= set(shown())
    # One that is a link in the folder is not followed, and that is said.
    second = file.with_name(OTHERS[0])
    second.rename(file.with_name("kept"))
    second.symlink_to("kept")
    said = lab.run("cat", file).stderr + lab.run("cat", file, "--path", detector, status=None).stderr
    assert b"leads to `first.2.nxs`, which is not followed" in said or b"leads to `first.3.nxs`" in said
    second.unlink()
    file.with_name("kept").rename(second)


def a_linked_file_that_is_held_open_is_read_as_the_page_says(file):
    """The work-around of docs/how-to/read-the-file.md, and why it is there."""

    def as_essreduce():
        try:
            return h5py.File(file, swmr=True)
        except OSError:
            return h5py.File(file)

    detector = "/entry/instrument/detector/data"
    with h5py.File(file) as whole:
        held = whole[detector]
    assert Path(held.file.filename).name in OTHERS
    with as_essreduce() as whole, pytest.raises(KeyError, match="SWMR read access flag not the same"):
        whole[detector]
    with h5py.File(file), as_essreduce() as whole:
        assert whole[detector] == held


def damaged_parts_of_a_run_are_named(lab, files):
    def verified():
        answer = json.loads(lab.run("verify", files / "first.nxs", "--data", lab.data, "--json", status=None).stdout)
        return answer["ok"], {Path(one["file"]).name: one["wrong"] for one in answer["files"]}

    assert verified() == (True, dict.fromkeys(("first.nxs", *OTHERS)))
    second = bytearray((files / OTHERS[0]).read_bytes())
    second[len(second) // 2] ^= 1
    (files / OTHERS[0]).write_bytes(second)
    (files / OTHERS[1]).unlink()
    ok, wrong = verified()
    assert not ok and wrong["first.nxs"] is None
    assert "it is not that file" in wrong[OTHERS[0]] and wrong[OTHERS[1]] == "it is not there"
    # What cannot be read hides nothing of the others.
    os.mkfifo(files / OTHERS[1])
    ok, wrong = verified()
    assert not ok and "it is not that file" in wrong[OTHERS[0]] and wrong[OTHERS[1]] == "it is not a plain file"
    (files / OTHERS[1]).unlink()
    (files / OTHERS[1]).symlink_to(OTHERS[1])
    assert "it is not that file" in verified()[1][OTHERS[0]]


def test_a_sink_shared_out_is_checked_as_a_whole(instrument):
    lab = instrument
    assert b"1 sink" in lab.run("check", lab.file).stdout
    text = lab.file.read_text()
    lab.file.write_text(text.replace("writers = 4", "writers = 17"))
    assert b"write 1 to 16" in lab.run("check", lab.file, status=2).stderr
    lab.file.write_text(
        text + text[text.index("[sink.file]") : text.index("[run.first]")].replace("sink.file", "sink.file-2")
    )
    refusal = lab.run("check", lab.file, status=2).stderr
    assert b"a writer of this sink needs the name `file-2`" in refusal
