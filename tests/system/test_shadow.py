"""A shadow beside a worker: what both make is compared, nothing waits for it, and its code takes over at an exact message."""

import json
import os
import re
import signal
import sys
import time

import numpy as np
import pytest
from conftest import ROOT, camera, kill, lost_of, until, worker

beamport = pytest.importorskip("beamport", reason="pip install .")

CODE = """
import time
import beamport

@beamport.worker
def old(frame):
    if frame.id % 50 == 7:
        return None
    return {"mean": float(frame.array.mean()), "by": 0 if frame.id % 50 == 13 else 1}

@beamport.worker
def new(frame, by=1):
    if frame.id % 50 == 21:
        return None
    return {"mean": float(frame.array.mean()), "by": by}

@beamport.worker
def sleeps(frame):
    time.sleep(0.3)
    return 1
"""


def made(lab, name):
    """Of each message of a stream: the number of its frame, and what the code says of itself."""
    values = []
    for m in beamport.open(lab.data)[name].read():
        said = {v["name"]: v["data"] for v in m["data"]}
        values.append((m.origin_seq, int(np.ravel(said["by"])[0])))
    return values


def comes(lab, by, why):
    """Waits until the worker makes messages of this kind anew."""
    data = beamport.open(lab.data)
    count = data["mean"].count
    until(lambda: data["mean"].count > count + 10 and made(lab, "mean")[-1][1] == by, why)


def compare(lab, *names, status=None):
    done = lab.run("compare", *(names or ("mean", "trial")), "--json", "--data", lab.data, status=status)
    return json.loads(done.stdout)


def test_what_a_shadow_makes_is_compared_and_its_code_takes_over_at_the_message_that_is_said(lab, times, dice):
    (lab.folder / "mine.py").write_text(CODE)
    lab.write(
        camera(200, "disk", "2 MiB")
        + worker("mean", "mine.py:old", "slots = 2\n")
        + worker("trial", "mine.py:new", 'shadow = "mean"\n')
    )
    process, _ = lab.up_ready()
    # What both have come to is known when their commits are on the disk.
    until(lambda: compare(lab)["same"] > 250, "the shadow makes nothing")
    told = compare(lab, status=1)
    frames = [n for n, _ in made(lab, "mean")]
    assert frames[0] == 0
    # Of the frames that both have come to exactly these differ.
    by_kind = {"values": 13, "old": 21, "new": 7}
    assert told["skipped"] == 0 and told["difference_max"] == 1
    for difference in told["first"]:
        kind = "values" if difference["what"] == "values" else "old" if difference["old"] is not None else "new"
        assert difference["origin"] == "camera" and difference["number"] % 50 == by_kind[kind], difference
    # One of each in fifty.
    for count in (told["different"], told["only_old"], told["only_new"]):
        assert abs(count - told["same"] / 47) < 2, told
    text = lab.run("compare", "mean", "trial", "--data", lab.data, status=1).stdout.decode()
    assert "camera 13: values differ by 1 at most" in text and "camera 7: only in `trial`" in text
    # Its parameters of now are taken too.
    lab.run("configure", "trial", "by=2", "--data", lab.data)
    said, boundaries = [], []
    for turn in range(times(3, 60)):
        if slots := lab.slots(process):
            kill(dice.choice(slots))
        time.sleep(dice.uniform(0, 0.3))
        if turn:
            lab.run("configure", "trial", f"by={turn + 2}", "--data", lab.data)
        answer = json.loads(lab.run("cutover", "trial", "--json", "--data", lab.data).stdout)
        assert answer["worker"] == "mean" and answer["code"]["call"] == "mine.py:new", answer
        assert answer["parameters"] == {"by": turn + 2} and answer["slots"] == 2
        assert answer["compared"]["same"] > 0
        (start,) = answer["from"]
        assert start["stream"] == "camera"
        boundaries.append((start["sequence"], turn + 2, answer["output"]))
        said.append(answer)
        if dice.random() < 0.5:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            process, _ = lab.up_ready()
        until(lambda b=boundaries[-1]: made(lab, "mean")[-1][0] >= b[0] + 20, "nothing comes behind it")
    top = lab.popen("top", "--json", "--data", lab.data)
    line = until(lambda: "\n" in lab.said(top)[0] and lab.said(top)[0].split("\n")[0], "top says nothing")
    top.terminate()
    workers = {w["name"]: w for w in json.loads(line)["workers"]}
    assert workers["mean"]["since"] == said[-1]["from"] and workers["mean"]["call"] == "mine.py:new"
    assert workers["trial"]["shadow"] == "mean" and workers["mean"]["shadow"] is None
    lab.interrupt(process)
    lab.end(process)
    data = beamport.open(lab.data)
    sequences = {m.origin_seq: m.sequence for m in data["camera"].read()}
    shown = made(lab, "mean")
    end = sequences[shown[-1][0]]
    wanted = []
    for number, sequence in sequences.items():
        by = next((b for start, b, _ in reversed(boundaries) if start <= sequence), 0)
        is_made = number % 50 != (21 if by else 7)
        if sequence <= end and is_made:
            wanted.append((number, by or (0 if number % 50 == 13 else 1)))
    assert shown == wanted
    for start, by, output in boundaries:
        at = next(m.sequence for m, v in zip(data["mean"].read(), shown, strict=True) if v[1] == by)
        assert at == output >= 0 and start > 0
    commands = [m for m in data["control"].read() if m["command"] == "cutover"]
    assert [json.loads(m["answer"])["from"] for m in commands] == [answer["from"] for answer in said]
    print(
        f"cut-overs: {len(said)} injected with kills around each, {len(shown)} frames shown, 0 lost, 0 by the wrong code"
    )


def test_code_that_cannot_be_loaded_is_refused_and_the_old_goes_on(lab):
    (lab.folder / "mine.py").write_text(CODE)
    (lab.folder / "bad.py").write_text("def new(frame:\n")
    lab.write(
        camera(100, live="2 MiB")
        + worker("mean", "mine.py:old")
        + worker("broken", "bad.py:new", 'shadow = "mean"\n')
        + worker("trial", "mine.py:new", 'shadow = "mean"\n')
    )
    process, _ = lab.up_ready()
    until(lambda: len(made(lab, "mean")) > 20, "it makes nothing")

    def refused(name):
        return lab.run("cutover", name, "--data", lab.data, status=2).stderr.decode()

    assert "cannot load `bad.py:new`" in refused("broken")
    assert "this worker is not a shadow" in refused("mean") and "did you mean `trial`" in refused("trail")
    strange = lab.run("configure", "trial", "yb=3", "--data", lab.data, status=2).stderr
    assert b"unexpected keyword argument 'yb'" in strange
    count = len(made(lab, "mean"))
    until(lambda: len(made(lab, "mean")) > count + 20, "the old code does not go on")
    assert set(by for _, by in made(lab, "mean")) == {0, 1}
    lab.run("configure", "trial", "by=5", "--data", lab.data)
    answer = beamport.Instrument.cutover(beamport.open(lab.data), "trial")
    assert answer["parameters"] == {"by": 5} and answer["from"][0]["stream"] == "camera"
    comes(lab, 5, "the new code does not work")
    # Until its section says something else.
    lab.kill(process)
    lab.file.write_text(lab.file.read_text().replace("[worker.mean]", "[worker.mean]\nparameters = {}", 1))
    process, _ = lab.up_ready()
    comes(lab, 5, "a restart forgets it")
    lab.kill(process)
    lab.file.write_text(lab.file.read_text().replace("mine.py:old", "mine.py:new", 1))
    process, _ = lab.up_ready()
    comes(lab, 1, "what the file says does not count")
    until(lambda: "ended with status" in lab.said(process)[1], "the slot of `broken` does not end")
    lab.interrupt(process)
    # The code of `broken` never started.
    lab.end(process, 2)


def test_old_code_whose_slots_die_at_their_start_gives_way_at_the_message_at_which_it_stands(lab):
    # It loads where it is asked what it declares, and nowhere else once a library is gone.
    gone = lab.folder / "gone"
    breaks = f"import os, sys\nif os.path.exists({str(gone)!r}) and 'stage' in sys.argv[-1]:\n    os._exit(3)\n"
    (lab.folder / "mine.py").write_text(breaks + CODE)
    (lab.folder / "good.py").write_text(CODE)
    lab.write(
        camera(100, "disk", "2 MiB")
        + worker("mean", "mine.py:old", "slots = 2\n")
        + worker("trial", "good.py:new", 'shadow = "mean"\n')
    )
    process, _ = lab.up_ready()
    until(lambda: len(made(lab, "mean")) > 20, "it makes nothing")
    gone.touch()
    for slot in lab.slots(process):
        kill(slot)
    data = beamport.open(lab.data)
    until(lambda: data["camera"].count > data["mean"].count + 50, "it goes on")
    answer = json.loads(lab.run("cutover", "trial", "--json", "--data", lab.data).stdout)
    (start,), end = answer["from"], answer["output"]
    comes(lab, 1, "the new code does not work")
    lab.interrupt(process)
    lab.end(process)
    sequences = {m.origin_seq: m.sequence for m in data["camera"].read()}
    shown = [number for number, _ in made(lab, "mean")]
    # Each frame by one of the two; they leave out others.
    wanted = [n for n, s in sequences.items() if n % 50 != (7 if s < start["sequence"] else 21) and n <= shown[-1]]
    assert shown == wanted and sequences[shown[end]] >= start["sequence"] > sequences[shown[end - 1]]


def test_a_shadow_that_sleeps_slows_nobody_and_is_no_loss(lab):
    (lab.folder / "mine.py").write_text(CODE)
    lab.write(
        camera(500, live="2 MiB")
        + 'when_full = "wait"\n'
        + worker("mean", "mine.py:old")
        + worker("trial", "mine.py:sleeps", 'shadow = "mean"\n')
        + "[run.first]\nduration = '6 s'\n"
    )
    report = lab.report(lab.up())
    assert lost_of(report) == 0, report["ledger"]
    rows = {row["stage"]: row for row in report["ledger"] if row["account"] == "stage"}
    assert rows["mean"]["skipped"].keys() <= {"filtered"}
    trial = rows["trial"]
    assert trial["skipped"]["slow"] > 100 and trial["closed"] and trial["lost"] == {}
    listed = json.loads(lab.run("ls", "--json", "--data", lab.data).stdout)
    assert all(stream["lost"] == 0 for stream in listed["streams"])
    assert next(stream["count"] for stream in listed["streams"] if stream["name"] == "camera") > 2000
    print(
        f"a slow shadow: {trial['skipped']['slow']} frames injected that it skipped, 0 lost, the camera was not slowed"
    )


def test_ready_made_workers_are_compared_and_cut_over_too(lab):
    beside = 'shadow = "some"\nparameters = {{ keep = "{}"{} }}\n'
    devices = '[source.devices]\nkind = "sim"\nmodel = "camera-metadata"\nfps = 10\nvalues = 1\n'
    lab.write(
        camera(200, "disk", "2 MiB")
        + devices
        + worker("some", "filter", 'parameters = { keep = "id >= 0" }\nslots = 2\n')
        + worker("none", "filter", beside.format("id < 20", ""))
        + worker("other", "filter", beside.format("x > 1", ', values = { x = "devices" }'))
    )
    process, _ = lab.up_ready()
    data = beamport.open(lab.data)
    until(lambda: compare(lab, "some", "none")["only_old"] > 50, "nothing is kept")
    told = lab.run("cutover", "other", "--data", lab.data, status=2).stderr.decode()
    assert "it does not read stream `devices` yet" in told, told
    answer = json.loads(lab.run("cutover", "none", "--json", "--data", lab.data).stdout)
    assert answer["compared"]["only_old"] > 0 and answer["compared"]["different"] == 0
    assert answer["compared"]["only_new"] == 0 and answer["compared"]["same"] <= 20
    end = answer["from"][0]["sequence"]
    until(lambda: data["camera"].count > end + 100, "the camera stands")
    lab.interrupt(process)
    lab.end(process)
    assert [m.id for m in data["some"].read()] == list(range(end)) and answer["output"] == end


def test_the_page_on_changing_code_runs(lab):
    page = (ROOT / "docs/how-to/change-code.md").read_text()
    codes = re.findall(r"`(\w+\.py)`[^`]*```python\n(.*?)```", page, re.S)
    assert len(codes) == 2
    for name, code in codes:
        (lab.folder / name).write_text(code)
    (text,) = re.findall(r"```toml\n(.*?)```", page, re.S)
    text = re.sub(r"instrument = .*\n|data = .*\n", "", text)
    lab.write(text.replace("\n[worker.trial]", f'\npython = "{sys.executable}"\n\n[worker.trial]'))
    process, _ = lab.up_ready()
    until(lambda: compare(lab)["different"] > 20, "the page makes nothing")
    commands = [line[2:].split() for line in page.splitlines() if line.startswith("$ beamport ")]
    assert [line[1] for line in commands] == ["compare", "cutover"]
    env = {**os.environ, "BEAMPORT_DATA": str(lab.data)}
    told = [lab.run(*line[1:], env=env, status=None).stdout.decode() for line in commands]
    assert "different" in told[0] and "from message" in told[1] and "now runs better.py:mean" in told[1]
    lab.interrupt(process)
    lab.end(process)
