"""User code on every frame, as a user has it: what it makes is there once and in order, whatever dies."""

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from conftest import ROOT, camera, kill, until, worker

beamport = pytest.importorskip("beamport", reason="pip install .")

CODE = '''
import os, signal, time
import beamport
import numpy as np

@beamport.worker
def mean(frame, scale=1.0):
    return float(frame.array.mean()) * scale

@beamport.worker
def corner(frame):
    return frame.array[:2, :3]

@beamport.worker(batch=8)
def total(frames):
    return {"frames": np_int(len(frames)), "ids": [m.id for m in frames]}

def np_int(value):
    return value

@beamport.worker
class Twice:
    """Makes two of each; a state of its own, and hooks."""
    def __init__(self, start=0):
        self.seen = start
    def __call__(self, frame):
        self.seen += 1
        beamport.statistics["seen"] = self.seen
        beamport.statistics["half"] = np.float32(self.seen / 2)
        beamport.statistics["text"] = "passed over"
        yield frame
        yield 1

@beamport.worker
class Keeps:
    """Holds on to the frames of late: views of stream memory, not copies."""
    def __init__(self):
        self.kept = []
    def __call__(self, frame):
        self.kept = [*self.kept[-20:], frame.array]
        return frame.array[:2, :3]

def memory():
    import resource
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, resource.RLIM_INFINITY))
    return np.ones(1 << 33, np.uint8)

def loop():
    while True:
        pass

WAYS = {3: lambda: os._exit(3), 7: lambda: os.kill(os.getpid(), signal.SIGSEGV), 11: lambda: time.sleep(60),
        13: lambda: os.kill(os.getpid(), signal.SIGSTOP), 19: loop, 23: lambda: os.kill(os.getpid(), signal.SIGKILL),
        29: memory}

@beamport.worker
def dies(frame):
    what = frame.id % 40
    if what in WAYS:
        WAYS[what]()
    if what == 17:
        raise ValueError(f"frame {frame.id}")
    return frame
'''


def numbers(lab, name):
    """The numbers of a stream's messages, in its order."""
    batches = beamport.open(lab.data)[name].batches()
    return [number for batch in batches for number in batch.entries["origin_seq"].tolist()]


def count(lab, name):
    """How many messages a stream had, those let go too."""
    return beamport.open(lab.data)[name].count


def test_what_code_returns_is_a_message_of_its_kind(lab):
    (lab.folder / "mine.py").write_text(CODE)
    lab.write(
        camera(200, "disk")
        + worker("mean", "mine.py:mean", "slots = 2\nparameters = { scale = 2.0 }\n")
        + worker("corner", "mine.py:corner")
        + worker("total", "mine.py:total")
        + worker("twice", "mine.py:Twice", "parameters = { start = 5 }\n")
        + "[run.first]\nduration = '2 s'\n"
    )
    process, _ = lab.up_ready()
    data = beamport.open(lab.data)
    until(lambda: len(numbers(lab, "mean")) > 300 and len(numbers(lab, "twice")) > 600, "no output")
    lab.report(process)
    frames = {m.origin_seq: m.array.copy() for m in data["camera"].read()}
    means = list(data["mean"].read())
    assert [m.origin_seq for m in means] == sorted(frames)[: len(means)]
    assert {(m.schema, m.origin) for m in means} == {("f144", "camera")}
    for m in means[::20]:
        assert m["value"] == pytest.approx(2 * frames[m.origin_seq].mean())
    for m in list(data["corner"].read())[::20]:
        np.testing.assert_array_equal(m.array, frames[m.origin_seq][:2, :3])
        assert m.id == m.origin_seq and m.array.dtype == np.uint8
    totals = [{v["name"]: v["data"] for v in m["data"]} for m in data["total"].read()]
    together = [number for t in totals for number in np.ravel(t["ids"]).tolist()]
    assert together == sorted(frames)[: len(together)] and max(int(np.ravel(t["frames"])[0]) for t in totals) <= 8
    twice = list(data["twice"].read())
    assert [m.schema for m in twice[:4]] == ["ad00", "f144", "ad00", "f144"]
    assert [m.origin_seq for m in twice[::2]] == sorted(frames)[: len(twice) // 2]


@pytest.mark.parametrize("level", ["memory", "disk"])
def test_whatever_user_code_dies_of_the_others_are_done_once_and_in_order(lab, level, times):
    (lab.folder / "mine.py").write_text(CODE)
    lab.write(camera(100, level) + worker("dies", "mine.py:dies", "slots = 2\ntime_max = '600 ms'\n"))
    process, _ = lab.up_ready()
    bad = {3: "killed", 7: "killed", 11: "time", 13: "time", 17: "error", 19: "time", 23: "killed", 29: "error"}

    # A stream in memory lets go of what is older, but for who says how far it is.
    def more():
        reading = beamport.open(lab.data)["dies"].read(name="test")
        numbers = [m.origin_seq for m in reading]
        reading.commit()
        return numbers

    each, done, aside = times(5, 250), [-1], {}
    while done[-1] < 40 * each:
        done += until(more, "it does not get past")
        data = beamport.open(lab.data)
        apart = data["dies.aside"].read() if "dies.aside" in data else []
        aside |= {m["sequence"]: (m["reason"], m["text"]) for m in apart}
    done.remove(-1)
    last = done[-1]
    assert done == [n for n in range(last + 1) if n % 40 not in bad]
    assert {n: aside[n][0] for n in aside if n <= last} == {n: bad[n % 40] for n in range(last + 1) if n % 40 in bad}
    assert "signal 11" in aside[7][1] and "MemoryError" in aside[29][1]
    assert "ValueError: frame 17" in aside[17][1] and "Traceback" in aside[17][1]
    lab.interrupt(process)
    lab.end(process)
    print(
        f"user code ({level}): {len(bad)} kinds of death, {each} of each injected, {len(done)} frames done, 0 lost, "
        "0 twice, order kept"
    )


AVERAGE = """
from collections import deque
import beamport

window = deque(maxlen=5)
last = None

@beamport.worker
def average(frame):
    window.append(frame.array)
    return float(sum(int(array[0, 0]) for array in window)) / len(window)

@beamport.worker
def copies(frame):
    window.append(frame.array.copy())
    return float(len(window))

@beamport.worker
def one(frame):
    global last
    same = last is None or int(last[0, 0]) == int(frame.array[0, 0])
    last = frame.array
    return float(same)
"""


def test_code_that_kept_views_of_large_frames_was_restarted_without_a_reason(lab):
    (lab.folder / "mine.py").write_text(AVERAGE)
    frames = "level = 'memory'\nfps = 10\nframes = 2\npattern = 'constant'\nkind = 'sim'\nmodel = 'camera'\n"
    lab.write(
        f"[source.camera]\nshape = [2048, 2048]\ndtype = 'uint16'\n{frames}"
        + f"[source.large]\nshape = [4096, 4096]\n{frames}"
        + worker("average", "mine.py:average")
        + worker("copies", "mine.py:copies")
        + worker("one", "mine.py:one").replace('"camera"', '"large"')
    )
    process, _ = lab.up_ready()
    until(lambda: count(lab, "copies") > 6 and count(lab, "one") > 6, "large frames are not done")
    data = beamport.open(lab.data)

    def aside():
        try:
            messages = data["average.aside"].read() if "average.aside" in data else []
            return [(m["reason"], m["text"]) for m in messages]
        except beamport.Error:
            # Each has its frame in memory: the oldest may go while they are read.
            return []

    # Five views are kept: the sixth frame finds no room, and says why where the others of its kind are.
    found = until(aside, "nothing is said")
    assert {reason for reason, _ in found} == {"quota"}
    text = found[0][1]
    assert "keeps 5 segments, 41963520 B" in text and "its quota is 33570816 B" in text
    assert "cannot give a message of `camera` to the code of worker `average`" in text
    assert "m.array.copy()" in text and "`live` of `camera`" in text
    assert {m["value"] for m in data["one"].read()} == {1.0} and {"copies.aside", "one.aside"}.isdisjoint(data)
    lab.interrupt(process)
    lab.end(process)
    (account,) = [row for row in data.stages() if row["stage"] == "average"]
    assert account["done"] >= 5 and account["aside"].keys() == {"quota"}
    # A slot that sets many aside, while the other workers are slow, is started again with its reason.
    said = lab.said(process)[1]
    assert said.count("slot 0 of worker") <= said.count("messages in a row were set aside, the last as quota")


ODD = """
import os, sys, time
import beamport

pool = None

@beamport.worker
def odd(frame):
    global pool
    if pool is None:
        pool = os.fork()
        if pool == 0:
            # It outlives its slot.
            time.sleep(60)
            os._exit(0)
    what = frame.id % 20
    if what == 3 and os.fork() == 0:
        return 77.0
    if what == 5:
        sys.exit(0)
    if what == 7:
        raise KeyboardInterrupt
    if what in (8, 9):
        for descriptor in range(3):
            try:
                os.close(descriptor)
            except OSError:
                pass
    if what == 11:
        endless = []
        endless.append(endless)
        return endless
    return float(frame.id)
"""


def test_children_of_user_code_wrote_the_stream_and_an_orderly_exit_stopped_it(lab):
    (lab.folder / "mine.py").write_text(ODD)
    lab.write(camera(200, "disk") + worker("odd", "mine.py:odd", "time_max = '5 s'\n"))
    process, _ = lab.up_ready()
    until(lambda: len(numbers(lab, "odd")) > 100, "no output")
    before = len(numbers(lab, "odd"))
    kill(lab.slots(process)[0])
    until(lambda: len(numbers(lab, "odd")) > before + 200, "a child keeps the lock of a slot that died")
    lab.interrupt(process)
    lab.end(process)
    data = beamport.open(lab.data)
    made = list(data["odd"].read())
    last = made[-1].origin_seq
    aside = {m["sequence"]: m["reason"] for m in data["odd.aside"].read() if m["sequence"] <= last}
    assert set(aside.values()) == {"error"}
    assert sorted(aside) == [n for n in range(last + 1) if n % 20 in (5, 7, 11)]
    assert [m.origin_seq for m in made] == [n for n in range(last + 1) if n not in aside]
    assert [m["value"] for m in made] == [float(m.origin_seq) for m in made]
    lab.run("verify", "--data", lab.data)


def test_slots_and_mover_killed_at_random_moments_show_each_frame_once(lab, times, dice):
    (lab.folder / "mine.py").write_text(CODE)
    lab.write(camera(1000, "disk") + worker("copy", "mine.py:Keeps", "slots = 3\n"))
    kills, movers, seen = times(30, 700), 0, 0
    process, _ = lab.up_ready()
    for turn in range(kills):
        until(lambda known=seen: count(lab, "copy") > known, "no output after a kill")
        seen = count(lab, "copy")
        time.sleep(dice.uniform(0, 0.2))
        slots = lab.slots(process)
        if turn % 3 == 2 or not slots:
            lab.kill(process)
            process, _ = lab.up_ready()
            movers += 1
        else:
            kill(dice.choice(slots))
    until(lambda: count(lab, "copy") > seen, "no output at the end")
    lab.interrupt(process)
    lab.end(process)
    frames, shown = numbers(lab, "camera"), numbers(lab, "copy")
    data = beamport.open(lab.data)
    aside = [m["sequence"] for m in data["copy.aside"].read()] if (lab.data / "copy.aside").exists() else []
    # One that was killed twice at the same frame cannot know better.
    assert len(aside) <= kills // 3
    assert shown == [n for n in frames[: len(shown) + len(aside)] if n not in aside]
    lab.run("verify", "--data", lab.data)
    print(
        f"slots killed: {kills} injected ({movers} of them the mover), {len(shown)} frames shown, 0 lost, 0 twice, in "
        f"order; {len(aside)} aside that two kills hit"
    )


def test_the_page_on_running_python_runs(lab):
    page = (ROOT / "docs/how-to/run-my-python.md").read_text()
    code, instrument = (page.split(f"```{kind}\n")[1].split("```")[0] for kind in ("python", "toml"))
    (lab.folder / "mine.py").write_text(code)
    python = f'[worker.mean]\npython = "{sys.executable}"\n'
    lab.write(instrument.partition('beamport-data/mine"\n')[2].replace("[worker.mean]\n", python))
    process, _ = lab.up_ready()
    until(lambda: len(numbers(lab, "mean")) > 20, "the page makes nothing")
    lab.interrupt(process)
    lab.end(process)
    frames = {m.origin_seq: m.array.mean() for m in beamport.open(lab.data)["camera"].read()}
    for m in beamport.open(lab.data)["mean"].read():
        assert m["value"] == pytest.approx(2 * frames[m.origin_seq])


def test_a_worker_is_seen_and_changed_while_it_runs(lab):
    (lab.folder / "mine.py").write_text(CODE)
    lab.write(
        camera(100, "disk")
        + worker("mean", "mine.py:mean", "slots = 1\nparameters = { scale = 2.0 }\n")
        + worker("twice", "mine.py:Twice", "parameters = { start = 5 }\n")
    )
    process, _ = lab.up_ready()
    lines = lab.popen("top", "--json", "--data", lab.data)

    def seen(wanted, why):
        def look():
            whole = lab.said(lines)[0].split("\n")[:-1]
            workers = {w["name"]: w for w in json.loads(whole[-1])["workers"]} if whole else {}
            return workers if len(workers) == 2 and wanted(workers) else None

        return until(look, why)

    def works(twice):
        return twice["statistics"].get("0") and (twice["messages_per_s"] or 0) > 50 and twice["lag"] < 100

    twice = seen(lambda w: works(w["twice"]), "no rates")["twice"]
    assert (twice["slots"], twice["living"], twice["starting"], twice["away"], twice["restarts"]) == (1, 1, 0, 0, 0)
    assert twice["statistics"]["0"]["seen"] > 5 and set(twice["statistics"]["0"]) == {"seen", "half"}
    assert twice["statistics"]["0"]["half"] == twice["statistics"]["0"]["seen"] / 2

    def configure(*words, status=0):
        done = lab.run("configure", *words, "--data", lab.data, status=status)
        return (done.stderr if status else done.stdout).decode()

    until(lambda: beamport.open(lab.data)["mean"].count > 5, "no results with the first parameters")
    told = configure("mean")
    assert told == "worker `mean` has 1 slot: scale=2.0\n"
    told = json.loads(configure("mean", "scale=3", "--slots", "3", "--json"))
    assert told.pop("code")["call"] == "mine.py:mean"
    assert told == {"worker": "mean", "slots": 3, "parameters": {"scale": 3}}
    assert "did you mean `mean`" in configure("maen", "scale=3", status=2)
    assert "1 to 32" in configure("mean", "--slots", "33", status=2)
    assert len(lab.slots(process)) >= 2
    seen(lambda w: w["mean"]["living"] == 3, "three slots do not come")
    data = beamport.open(lab.data)
    commands = [json.loads(m["arguments"]) for m in data["control"].read() if m["command"] == "configure"]
    assert commands[1]["parameters"] == {"scale": 3} and commands[1]["slots"] == 3
    # With a run, and back to one.
    lab.run("begin", "first", "--slots", "mean=1", "--data", lab.data)
    seen(lambda w: w["mean"]["slots"] == w["mean"]["living"] == 1, "the slots do not go")
    until(lambda: len(lab.slots(process)) == 2, "the processes do not go")
    assert data.run("first").metadata["slots"] == {"mean": 1}
    # What the code does not take is refused, and what runs goes on.
    restarts = seen(lambda w: True, "no looks")["mean"]["restarts"]
    refused = configure("mean", "sclae=4", status=2)
    assert "got an unexpected keyword argument 'sclae'" in refused and "it takes `scale`" in refused
    assert "unexpected keyword argument 'begin'" in configure("twice", "begin=4", status=2)
    assert configure("mean") == "worker `mean` has 1 slot: scale=3\n"
    assert seen(lambda w: True, "no looks")["mean"]["restarts"] == restarts
    configure("mean", "scale=5")
    count = data["camera"].count
    until(lambda: data["mean"].count > count, "it does not go on")
    frames = {m.origin_seq: float(m.array.mean()) for m in data["camera"].read()}
    values = [(m.origin_seq, m["value"] / frames[m.origin_seq]) for m in data["mean"].read() if m.origin_seq in frames]
    scales = [round(scale, 6) for _, scale in values]
    assert sorted(set(scales)) == [2, 3, 5] and scales == sorted(scales)
    assert "mean.aside" not in data or not list(data["mean.aside"].read())
    lines.terminate()
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process, _ = lab.up_ready()
    until(lambda: configure("mean") == "worker `mean` has 1 slot: scale=5\n", "forgotten")
    lab.interrupt(process)
    lab.end(process)


def test_a_file_that_was_edited_was_taken_up_by_the_slots_that_started_later(lab):
    code = """
import os
import sys
import beamport
import helper

@beamport.worker
def version(frame):
    if frame.id == 20:
        raise ValueError("as it was")
    from late import LATE
    mine = 1
    return float(helper.ONE * 100 + LATE * 10 + mine)
"""
    for name, text in {"mine.py": code, "helper.py": "ONE = 1\n", "late.py": "LATE = 1\n", "other.py": "1 /"}.items():
        (lab.folder / name).write_text(text)
    lab.write(camera(200, "disk") + worker("version", "mine.py:version", "slots = 2\n"))
    process, _ = lab.up_ready()
    slots = until(lambda: len(lab.slots(process)) == 2 and lab.slots(process), "no slots")
    until(lambda: count(lab, "version") > 0, "nothing comes")
    for name in ("mine.py", "helper.py", "late.py"):
        edited = (lab.folder / name).read_text().replace(" 1\n", " 2\n").replace("as it was", "as it is")
        (lab.folder / name).write_text(f"# Another line.\n{edited}")
    # One that is killed and one that is added load what the first two loaded.
    kill(slots[0])
    lab.run("configure", "version", "--slots", "3", "--data", lab.data)
    until(lambda: len(set(lab.slots(process)) - set(slots)) == 2, "no other slots")
    known = count(lab, "version")
    until(lambda: count(lab, "version") > known + 200, "it does not go on")
    until(lambda: "has changed since worker `version` started" in lab.said(process)[1], "the edit is not seen")
    data = beamport.open(lab.data)
    assert {m["value"] for m in data["version"].read()} == {111.0}
    traceback = [m["text"] for m in data["version.aside"].read()][0]
    assert f'File "{lab.folder}/mine.py", line 10, in version' in traceback and '"as it was"' in traceback
    said = lab.said(process)[1]
    assert said.count("has changed since") == 1 and "`helper.py`, `late.py`, `mine.py`" in said
    # The hash is that of the files as they were, and in the copy they lie.
    lab.run("begin", "first", "--data", lab.data)
    hashed = data.run("first").metadata["workers"]["version"]
    copy = lab.data / ".code" / hashed["hash"]
    assert hashed["call"] == "mine.py:version"
    assert sorted(path.name for path in copy.iterdir()) == ["helper.py", "late.py", "mine.py"]
    assert (copy / "mine.py").read_text() == code
    sums = subprocess.run(["sha256sum", "helper.py", "late.py", "mine.py"], cwd=copy, capture_output=True, check=True)
    assert hashlib.sha256(sums.stdout).hexdigest() == hashed["hash"]
    top = lab.popen("top", "--json", "--data", lab.data)
    shown = json.loads(until(lambda: lab.said(top)[0].partition("\n")[0], "nothing is shown"))["workers"]
    assert [(worker["call"], worker["hash"]) for worker in shown] == [("mine.py:version", hashed["hash"])]
    top.terminate()
    lab.interrupt(process)
    lab.end(process)
    # The next `up` takes the edited files; what was changed while it ran stays.
    process, _ = lab.up_ready()
    until(lambda: list(data["version"].read(start=-1))[0]["value"] == 222.0, "the edited files are not used")
    assert "has 3 slots" in lab.run("configure", "version", "--data", lab.data).stdout.decode()
    values = [m["value"] for m in data["version"].read()]
    assert values == sorted(values)
    lab.interrupt(process)
    lab.end(process)


def test_what_a_worker_had_not_done_when_up_ended_was_said_nowhere(lab):
    (lab.folder / "mine.py").write_text(
        "import time\nimport beamport\n\n\n@beamport.worker\ndef slow(frame):\n    time.sleep(0.05)\n"
        "    return {1: 2.0} if frame.id % 2 == 0 else {'x': 1.0, 'y': 1j}\n"
    )
    lab.write(camera(200, "disk") + worker("slow", "mine.py:slow"))
    process, _ = lab.up_ready()

    def aside():
        data = beamport.open(lab.data)
        return [m["text"] for m in data["slow.aside"].read()] if "slow.aside" in data else []

    texts = until(lambda: len(aside()) > 1 and aside(), "nothing is done")
    assert "a dict with the key 1: keys are names" in texts[0] and "`y`: the code made a `complex`" in texts[1]
    lab.interrupt(process)
    lab.end(process)
    told = re.search(r"`slow` has ([\d,]+) unprocessed messages from `camera`; the next `up`", lab.said(process)[1])
    assert told and int(told[1].replace(",", "")) > 0


def test_a_worker_that_never_answered_was_said_nowhere(lab):
    (lab.folder / "mine.py").write_text("import beamport\n\n\n@beamport.worker\ndef one(frame):\n    return 1\n")
    lab.write(camera(100, "disk") + worker("one", "mine.py:two") + worker("good", "mine.py:one"))
    process, _ = lab.up_ready()
    until(lambda: count(lab, "camera") > 50 and count(lab, "good") > 10, "nothing comes")

    def status():
        return json.loads(lab.ask(b'{"command": "status"}\n'))["ok"]

    troubles = until(lambda: status()["troubles"], "nothing is said")
    assert "slot 0 of worker `one`" in troubles[0]
    assert status()["workers"]["good"]["numbers"]["slots"] == 1
    lab.interrupt(process)
    report = json.loads(lab.end(process, 2))
    assert not report["closed"] and "slot 0 of worker `one`" in report["silent"][0]["what"]
    # Its code is committed when it starts, so it has an account.
    assert re.search(r"`one` has \d+ unprocessed messages from `camera`; the next `up`", lab.said(process)[1])


HARM = ["os.closerange(0, 1024)", "resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))"]


@pytest.mark.parametrize("harm", [*HARM, f"{HARM[0]}; threading.Timer(0.1, os._exit, [1]).start()"])
def test_a_message_whose_code_stops_all_output_goes_aside(lab, harm):
    (lab.folder / "mine.py").write_text(
        "import os, resource, threading\n\nimport beamport\n\n\n@beamport.worker\ndef one(frame):\n"
        f"    if frame.sequence in (20, 60):\n        {harm}\n    return 1\n"
    )
    lab.write(camera(200, "disk") + worker("one", "mine.py:one", 'time_max = "500 ms"'))
    process, _ = lab.up_ready()
    until(lambda: count(lab, "one") > 300, "the worker does not go on")
    lab.interrupt(process)
    lab.end(process)
    aside = [m["sequence"] for m in beamport.open(lab.data)["one.aside"].read()]
    # Without descriptors an output may still reach the disk that needs none: then its message is done.
    assert aside == [20, 60] or "closerange" in harm and set(aside) <= {20, 60}
    made = numbers(lab, "one")
    assert made == [n for n in range(made[-1] + 1) if n not in aside]
    print(f"2 messages injected after which `{harm}` keeps all output from the disk: {aside} aside, all others done")


@pytest.mark.parametrize("harm", HARM)
def test_code_that_stopped_its_output_from_reaching_the_disk_stopped_the_worker_for_ever(lab, harm):
    mark = lab.folder / "harmed"
    (lab.folder / "mine.py").write_text(
        "import os, pathlib, resource\n\nimport beamport\n\n\n@beamport.worker\ndef one(frame):\n"
        f"    mark = pathlib.Path({str(mark)!r})\n"
        f"    if frame.sequence >= 20 and not mark.exists():\n        mark.touch()\n        {harm}\n    return 1\n"
    )
    lab.write(camera(100, "disk") + worker("one", "mine.py:one", 'time_max = "2 s"'))
    process, _ = lab.up_ready()
    until(mark.exists, "no harm is done")
    # A fresh slot does what the other had not brought to the disk, and all that follows.
    until(lambda: count(lab, "one") > 40, "the worker does not go on")
    lab.interrupt(process)
    lab.end(process)
    said = lab.said(process)[1]
    # Without its descriptors it may end by itself, before its output is overdue.
    has_ended = harm == HARM[0] and "slot 0 of worker `one`: it ended" in said
    assert has_ended or "its output did not reach the disk for 2 s; it was killed" in said, said


def test_code_that_broke_what_it_works_with_put_all_that_followed_aside(lab):
    mark = lab.folder / "broken"
    (lab.folder / "mine.py").write_text(
        "import pathlib\n\nimport beamport\n\nbroken = False\n\n\n@beamport.worker\ndef one(frame):\n    global broken\n"
        f"    mark = pathlib.Path({str(mark)!r})\n"
        "    if frame.sequence >= 50 and not mark.exists():\n        mark.touch()\n        broken = True\n"
        "    if broken:\n        raise RuntimeError('the device is used up')\n    return 1\n"
    )
    lab.write(camera(200, "disk") + worker("one", "mine.py:one"))
    process, _ = lab.up_ready()
    (first,) = until(lambda: lab.slots(process), "there is no slot")
    until(mark.exists, "nothing is broken")
    until(lambda: count(lab, "one") > 300, "the worker does not go on")
    assert first not in lab.slots(process), "a fresh slot works"
    lab.interrupt(process)
    lab.end(process)
    data = beamport.open(lab.data)
    # What the slot had not answered for when it ended, the fresh one does: all of it, if nobody looked in time.
    aside = [m["sequence"] for m in data["one.aside"].read()] if "one.aside" in data else []
    assert len(aside) <= 16 and aside == list(range(50, 50 + len(aside))), "in a row, and none behind them"
    made = numbers(lab, "one")
    assert made == [n for n in range(made[-1] + 1) if n not in aside]
    assert "16 messages in a row were set aside" in lab.said(process)[1]
    (row,) = beamport.open(lab.data).stages()
    assert row["closed"] and sum(row["aside"].values()) == len(aside) and not row["lost"]
    print(f"1 slot injected whose code is broken for all that follows: {len(aside)} aside, a fresh slot did the rest")


def test_a_long_first_call_is_no_hang_and_a_kill_for_time_says_so(lab):
    code = (
        "import time\nimport beamport\n\n\n@beamport.worker\nclass Compiles:\n    called = False\n"
        "    def __call__(self, frame):\n        if not self.called:\n            time.sleep(1.5)\n"
        "        self.called = True\n        return frame.id\n"
    )
    (lab.folder / "mine.py").write_text(code)
    times = "time_max = '300 ms'\n"
    lab.write(
        camera(50)
        + worker("patient", "mine.py:Compiles", times + "first_time_max = '60 s'\n")
        + worker("hasty", "mine.py:Compiles", times)
    )
    process, _ = lab.up_ready()
    until(lambda: count(lab, "patient") > 20, "its first call is ended")
    log = lab.folder / f"err-{process.number}"
    until(lambda: "raise `time_max`, or `first_time_max`" in log.read_text(), "the kill does not say why")
    lab.interrupt(process)
    # One worker has answered nothing.
    lab.end(process, status=2)
    assert "its first call took longer than 300 ms" in log.read_text()
    assert "slot 0 of worker `patient`" not in log.read_text()
    assert numbers(lab, "patient")[:20] == list(range(20)) and "patient.aside" not in beamport.open(lab.data)
