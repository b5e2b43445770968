"""A recorded run through code: the same bytes each time, however many slots there are and whoever is killed."""

import json
import os
import re
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, camera, kill, until

beamport = pytest.importorskip("beamport", reason="pip install .")

CODE = """
import os, time
import beamport

@beamport.worker(pure=True)
def mean(frame, scale=1.0, pause=0.0):
    time.sleep(pause)
    return float(frame.array.mean()) * scale

@beamport.worker(batch=8, pure=True)
def total(frames, pause=0.0):
    time.sleep(pause)
    return {"ids": [m.id for m in frames]}

@beamport.worker
def some(frame, bad):
    if frame.id == bad:
        raise ValueError(f"frame {bad}")
    return frame if frame.id % 2 else None

print("printed by the code")

class Fails:
    def __init__(self):
        raise RuntimeError("no such device")
    def __call__(self, frame):
        return frame
"""

CAMERA = (
    camera(200)
    + """
[source.detector]
kind = "sim"
model = "amor"
rate = 1e4

[run.first]
duration = "2 s"
"""
)

# `python3` is the interpreter of these tests.
PATH = {"env": {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}}


def record(lab):
    """A sealed run, and code beside."""
    (lab.folder / "mine.py").write_text(CODE)
    lab.write(CAMERA)
    lab.report(lab.up())


def through(lab, call, *words, status=0):
    """What `beamport replay first --through CALL --json` says."""
    words = ("replay", "first", "--through", call, *words, "--data", lab.data, "--json")
    done = lab.run(*words, status=status, **PATH)
    assert done.stdout, done.stderr.decode()
    return json.loads(done.stdout)


def refused(lab, call, *words):
    """What is said where it cannot be done."""
    words = ("replay", "first", "--through", call, *words, "--data", lab.data)
    return lab.run(*words, status=2, **PATH).stderr.decode()


def frames_of(lab):
    data = beamport.open(lab.data)
    return list(data.run("first")["camera"].read())


def test_pure_code_gives_the_same_hash_however_it_is_run(lab, dice, times):
    record(lab)
    count = len(frames_of(lab))
    hashes = {"mean": set(), "total": set()}
    for call in hashes:
        for slots, speed in ((1, "max"), (3, "max"), (2, "10x")):
            told = through(lab, f"mine.py:{call}", "--input", "camera", "--slots", slots, "--speed", speed)
            assert told["messages"] == told["done"] == count and told["aside"] == told["lost"] == {}
            assert told["pure"] and told["slots"] == slots
            hashes[call].add((told["sha256"], told["made"]))
        assert len(hashes[call]) == 1, hashes
    # One message is one of the output, and eight are one.
    ((_, made),) = hashes["mean"]
    assert made == count
    killed = blamed = 0
    for call, pause in (("mean", 0.02), ("total", 0.1)):
        for _ in range(times(1, 20)):
            process = lab.popen(
                *("replay", "first", "--through", f"mine.py:{call}", "--input", "camera", "--slots", "3"),
                *("--speed", "max", f"pause={pause}", "--data", lab.data, "--json"),
                **PATH,
            )
            until(lambda process=process: lab.slots(process), "no slot starts")
            # Not so often that they never come to work: that would be given up.
            for _ in range(4):
                time.sleep(dice.uniform(0.3, 0.9))
                slots = lab.slots(process)
                if slots:
                    kill(dice.choice(slots))
                    killed += 1
            printed = lab.end(process, None)
            assert printed, lab.said(process)[1]
            told = json.loads(printed)
            if told["aside"]:
                # A message that two kills hit is taken for one that kills.
                assert set(told["aside"]) == {"killed"} and process.returncode == 1
                blamed += 1
                continue
            assert process.returncode == 0
            assert {(told["sha256"], told["made"])} == hashes[call], (told, killed)
    assert blamed <= times(1, 8)
    assert killed >= 2
    other = through(lab, "mine.py:mean", "--input", "camera", "--speed", "max", "scale=2")
    assert other["sha256"] not in {sha for sha, _ in hashes["mean"]}
    print(f"replay through code: {killed} deaths of slots injected, {count} messages each time, the same hash")


def test_what_stays_is_what_the_code_makes(lab):
    record(lab)
    into = lab.folder / "again"
    try:
        through(lab, "mine.py:mean", "--input", "camera", "--speed", "max", "--into", into, "scale=3")
        frames = {m.origin_seq: m.array.mean() for m in frames_of(lab)}
        data = beamport.open(into)
        means = list(data["mean"].read())
        assert [m.origin_seq for m in means] == sorted(frames)
        for m in means:
            assert m["value"] == pytest.approx(3 * frames[m.origin_seq])
        assert "camera" not in data
        lab.run("verify", "--data", into)
        assert "stream `mean" in refused(lab, "mine.py:mean", "--input", "camera", "--into", into)
        # What goes on as it is stays too.
        through(lab, "filter", "--input", "camera", "--speed", "max", "--into", into, "keep=id % 3 == 0")
        kept = list(beamport.open(into)["filter"].read())
        assert [m.id for m in kept] == [m.id for m in frames_of(lab) if m.id % 3 == 0]
        by_number = {m.id: m.array for m in frames_of(lab)}
        for m in kept[::10]:
            np.testing.assert_array_equal(m.array, by_number[m.id])
    finally:
        lab.forget(into)


def test_a_killed_replay_left_its_folder_to_nobody(lab):
    record(lab)
    temporary = lab.folder / "temporary"
    temporary.mkdir()
    path = {"env": {**PATH["env"], "TMPDIR": str(temporary)}}
    words = ("replay", "first", "--through", "mine.py:mean", "--input", "camera", "--data", lab.data, "--json")
    begun = [lab.popen(*words, "pause=0.1", **path) for _ in range(2)]
    left = {process: temporary / f"beamport-replay-{process.pid}" for process in begun}
    until(lambda: all((folder / "mean").exists() for folder in left.values()), "the output of both")
    lab.kill(begun[0])
    assert left[begun[0]].exists()
    # Neither what is at work nor what is somebody else's.
    (temporary / "beamport-replay-other").mkdir()
    lab.run(*words, "--speed", "max", **path)
    assert {folder.name for folder in temporary.iterdir()} == {left[begun[1]].name, "beamport-replay-other"}
    lab.kill(begun[1])
    lab.run(*words, "--speed", "max", **path)
    assert {folder.name for folder in temporary.iterdir()} == {"beamport-replay-other"}


def test_what_goes_aside_is_an_answer_of_no_and_is_named(lab):
    record(lab)
    count, bad = len(frames_of(lab)), f"bad={frames_of(lab)[10].id}"
    told = through(lab, "mine.py:some", "--input", "camera", "--speed", "max", bad, status=1)
    assert told["aside"] == {"error": 1} and told["done"] == count - 1 and not told["pure"]
    words = ("replay", "first", "--through", "mine.py:some", "--input", "camera", bad, "--data", lab.data)
    done = lab.run(*words, status=1, **PATH)
    assert f"ValueError: frame {bad[4:]}" in done.stderr.decode() and "not declared pure" in done.stdout.decode()
    # Of the instrument file, with its parameters; those that are typed come before.
    worker = '[worker.scaled]\ncall = "mine.py:mean"\ninputs = ["camera"]\nslots = 2\nparameters = { scale = 2.0 }\n'
    lab.write(CAMERA + worker)
    plain = through(lab, "mine.py:mean", "--input", "camera", "--speed", "max")
    filed = through(lab, "scaled", "--file", lab.file, "--speed", "max")
    again = through(lab, "scaled", "--file", lab.file, "--speed", "max", "--slots", "1", "scale=null")
    assert (filed["slots"], again["slots"]) == (2, 1)
    # A value has the name of its worker in it.
    assert plain["sha256"] != filed["sha256"] != again["sha256"]
    assert not list(Path("/tmp").glob(f"beamport-replay-{os.getpid()}*"))


def test_mistakes_are_told_at_once(lab):
    record(lab)
    for call, words, said in (
        ("mine.py:mean", [], "it has several streams: camera, detector"),
        ("mine.py:mean", ["--input", "camra"], "did you mean `camera`?"),
        ("mein.py:mean", ["--input", "camera"], "no file"),
        ("mine.py:meen", ["--input", "camera"], "`mine.py` has no `meen`; it has `mean`"),
        ("mine.py:mean", ["--input", "camera", "sclae=2"], "unexpected keyword argument 'sclae'"),
        ("mine.py:mean", ["--input", "camera", "--slots", "33"], "write 1 to 32"),
        ("filtre", ["--input", "camera"], "did you mean `filter`?"),
        ("filter", ["--input", "camera"], "`keep`"),
        ("filter", ["--input", "camera", "keep=v > 1", 'values={"v": "detector"}'], "reads `detector`"),
        ("mean", ["--file", "gone.toml"], "cannot read the instrument file"),
        ("maen", ["--file", lab.file], "no worker `maen`"),
        ("mine.py:Fails", ["--input", "camera", "--speed", "max"], "no such device"),
    ):
        err = refused(lab, call, *words)
        assert said in err, (call, words, err)
    words = ("replay", "first", "--input", "camera", "--into", "x", "--data", lab.data)
    assert b"--through" in lab.run(*words, status=2).stderr


def test_the_page_on_reprocessing_runs(lab):
    page = (ROOT / "docs/how-to/reprocess.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.S)
    (lab.folder / "new.py").write_text(code)
    lab.write(CAMERA.replace("run.first", "run.yesterday"))
    lab.report(lab.up())
    commands = [line[2:] for block in re.findall(r"```console\n(.*?)```", page, re.S) for line in block.splitlines()]
    commands = [line.split() for line in commands if line.startswith("beamport ")]
    assert len(commands) >= 3
    env = {**PATH["env"], "BEAMPORT_DATA": str(lab.data)}
    try:
        told = [lab.run(*line[1:], env=env).stdout.decode() for line in commands]
    finally:
        lab.forget(lab.folder / "again")
    hashes = [re.findall(r"\b[0-9a-f]{16}\b", text) for text in told if "went through" in text]
    assert len(hashes) >= 2 and len({tuple(h) for h in hashes}) == 1, told
