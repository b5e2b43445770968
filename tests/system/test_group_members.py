"""Code behind `groups` that is given the messages of each group."""

import os
import signal

import pytest
from conftest import camera, until, worker
from test_groups import example

beamport = pytest.importorskip("beamport", reason="pip install .")

CODE = """
import time
import beamport
import numpy as np

@beamport.worker(of="all")
def energies(group, messages, pause=0.0):
    assert len(messages) == group["count"] and messages[0].sequence == group["first"]
    time.sleep(pause)
    return beamport.result({"sequences": np.array([m.sequence for m in messages], np.int64),
                            "events": np.array([len(m["time_of_flight"]) for m in messages], np.int64)})

@beamport.worker(of="all")
class Kept:
    # The messages of the last groups stay what they were while the code keeps them.
    def __init__(self):
        self.last = []

    def __call__(self, group, messages):
        self.last = [*self.last, (messages, messages[0]["time_of_flight"].tolist())][-5:]
        assert all(kept[0]["time_of_flight"].tolist() == was for kept, was in self.last)
        return len(messages)
"""


def with_code(lab, call: str, more: str = "", run: str = "3 s"):
    (lab.folder / "mine.py").write_text(CODE)
    example(lab, run)
    section = worker("mine", f"mine.py:{call}", more).replace('["camera"]', '["groups"]')
    lab.file.write_text(lab.file.read_text() + section)
    process, _ = lab.up_ready()
    return process, beamport.open(lab.data)


def numbers(m) -> dict:
    return {v["name"]: v["data"].tolist() for v in m["data"]}


def test_code_is_given_the_messages_of_each_group(lab):
    process, data = with_code(lab, "energies", "slots = 2\n")
    until(lambda: data["mine"].count > 50, "no results")
    lab.interrupt(process)
    lab.end(process)
    groups = {m.origin_seq: m for m in data["groups"].read()}
    messages = {m.sequence: m for m in data["all"].read()}
    found = list(data["mine"].read())
    for m in found:
        said, group = numbers(m), groups[m.origin_seq]
        members = group["members"].tolist() or list(range(group["first"], group["first"] + group["count"]))
        assert said["sequences"] == members and m.source_time == group.source_time
        shown = [sequence for sequence in members if sequence in messages]
        assert [len(messages[s]["time_of_flight"]) for s in shown] == said["events"][-len(shown) or len(members) :]
    assert len(found) > 50 and "mine.aside" not in data


def test_the_messages_are_held_until_slow_code_has_done_their_group(lab):
    # The merge keeps a few seconds; the code needs more than that, and dies now and then.
    process, data = with_code(lab, "energies", "parameters = { pause = 0.02 }\n", run="30 s")
    for _ in range(3):
        count = data["mine"].count
        until(lambda count=count: data["mine"].count > count + 30, "no results")
        [os.kill(pid, signal.SIGKILL) for pid in lab.slots(process, "mine")]
    count = data["mine"].count
    until(lambda: data["mine"].count > count + 30, "no results")
    lab.interrupt(process)
    lab.said(process)
    numbers_of = [m.origin_seq for m in data["mine"].read()]
    wanted = [m.origin_seq for m in data["groups"].read()]
    first = wanted.index(numbers_of[0])
    assert numbers_of == wanted[first : first + len(numbers_of)]
    assert "mine.aside" not in data


def test_messages_may_be_kept(lab):
    process, data = with_code(lab, "Kept")
    until(lambda: data["mine"].count > 50, "no results")
    lab.interrupt(process)
    lab.end(process)
    assert "mine.aside" not in data


def test_messages_that_are_no_groups_are_set_aside_with_the_reason(lab):
    (lab.folder / "mine.py").write_text(CODE)
    lab.write(camera(100) + worker("mine", "mine.py:energies"))
    process, _ = lab.up_ready()
    data = beamport.open(lab.data)
    until(lambda: "mine.aside" in data and data["mine.aside"].count > 3, "nothing is set aside")
    lab.interrupt(process)
    lab.said(process)
    assert "is for groups (bpgr), and message 0 is ad00" in next(iter(data["mine.aside"].read()))["text"]


@pytest.mark.parametrize(
    ("decorator", "words"),
    [('of="all", batch=4', "leave `batch` out"), ('of="all", per="run"', "do not go together")],
)
def test_what_does_not_go_together_is_refused(lab, decorator, words):
    code = (
        f"import beamport\n@beamport.worker({decorator})\nclass Mine:\n    def __call__(self, group, messages): ...\n"
    )
    (lab.folder / "mine.py").write_text(code)
    lab.write(camera(100) + worker("mine", "mine.py:Mine"))
    assert words in lab.run("check", lab.file, status=2).stderr.decode()
