"""`beamport worker` and `beamport retry`: what is done to the workers of an instrument that runs."""

import itertools
import json
import os
import signal

import pytest
from conftest import camera, until, worker

beamport = pytest.importorskip("beamport", reason="pip install .")

CODE = """
import beamport

@beamport.worker
def picky(frame, bad: int = 7):
    if bad and frame.id % bad == 0:
        raise ValueError("not this one")
    return float(frame.id)

@beamport.worker
class Counts:
    def __init__(self):
        self.seen = 0

    def __call__(self, frame):
        self.seen += 1
        beamport.statistics["seen"] = self.seen
        return float(frame.id)

    def reset(self):
        self.seen = 0

@beamport.worker
class Kept:
    def __init__(self):
        self.seen = 0

    def __call__(self, frame):
        self.seen += 1
        if self.seen == 5:
            raise ValueError("once")
        return float(self.seen)

    def save(self):
        return self.seen

    def restore(self, state):
        self.seen = state

@beamport.worker
def number(frame):
    return float(frame.id)
"""


def started(lab, text: str):
    (lab.folder / "mine.py").write_text(CODE)
    lab.write(text)
    process, _ = lab.up_ready()
    return process, beamport.open(lab.data)


# The values of a worker in a file.
TEMPLATE = {
    "children": [
        {
            "type": "group",
            "name": "entry",
            "children": [
                {
                    "type": "group",
                    "name": "log",
                    "children": [{"module": "f144", "config": {"stream": "mine", "source": "mine", "dtype": "double"}}],
                }
            ],
        }
    ]
}


def say(lab, *words, **more):
    return lab.run(*words, "--data", lab.data, **more)


def status(lab) -> dict:
    return json.loads(lab.ask(b'{"command": "status"}\n'))["ok"]


def stop(lab, process):
    lab.interrupt(process)
    lab.end(process)


def numbers(data, name: str) -> list[int]:
    return [m.origin_seq for m in data[name].read()]


def said(lab, name: str) -> dict:
    return status(lab)["workers"][name]["numbers"]


def is_done(data, name: str, more: int = 20):
    before = data[name].count
    until(lambda: data[name].count >= before + more, f"`{name}` makes nothing")


@pytest.mark.parametrize("level", ["memory", "disk"])
def test_a_paused_worker_begins_no_message_and_misses_none(lab, level):
    process, data = started(lab, camera(100, level) + worker("mine", "mine.py:number", f'level = "{level}"\n'))
    is_done(data, "mine")
    assert "is paused" in say(lab, "worker", "pause", "mine").stdout.decode()
    assert ", paused:" in say(lab, "configure", "mine").stdout.decode()
    assert status(lab)["running"]["mine"]["paused"]
    until(lambda: said(lab, "mine")["paused"] == 1, "its statistics do not say it")
    # What its slot had is done to its end.
    is_done(data, "camera", 10)
    rested = data["mine"].count
    # A slot that starts again finds it paused.
    [os.kill(pid, signal.SIGKILL) for pid in lab.slots(process, "mine")]
    is_done(data, "camera", 60)
    assert data["mine"].count == rested
    say(lab, "worker", "resume", "mine")
    is_done(data, "mine", 60)
    stop(lab, process)
    assert numbers(data, "mine") == list(range(data["mine"].count))
    assert data["mine"].count > rested + 60


def test_a_run_waits_for_a_paused_worker_and_says_so(lab):
    (lab.folder / "a.json").write_text(json.dumps(TEMPLATE))
    text = camera(100, "disk") + worker("mine", "mine.py:number", 'level = "disk"\n')
    text += '\n[sink.file]\nkind = "nexus"\ntemplate = "a.json"\nfile = "{run}.h5"\ninputs = ["mine"]\n'
    process, data = started(lab, text)
    is_done(data, "mine")
    say(lab, "worker", "pause", "mine")
    say(lab, "begin", "one")
    is_done(data, "camera", 30)
    say(lab, "end", "one")
    until(lambda: any("`mine` is paused" in trouble for trouble in status(lab)["troubles"]), "nobody says why")
    assert data.run("one").state != "sealed"
    say(lab, "worker", "resume", "mine")
    until(lambda: data.run("one").state == "sealed", "the run is not sealed")
    stop(lab, process)
    assert numbers(data, "mine") == list(range(data["mine"].count))


def test_an_instrument_that_ends_resumes_its_workers(lab):
    process, data = started(lab, camera(100, "disk") + worker("mine", "mine.py:number", 'level = "disk"\n'))
    is_done(data, "mine")
    say(lab, "begin", "one")
    say(lab, "worker", "pause", "mine")
    is_done(data, "camera", 30)
    stop(lab, process)
    assert data.run("one").state == "sealed"


def test_statistics_are_reset_and_the_account_is_not(lab):
    process, data = started(lab, camera(50) + worker("mine", "mine.py:Counts"))

    def counted() -> list[float]:
        return [m.value for m in data["mine.statistics"].read() if m["source_name"] == "seen"]

    until(lambda: "mine.statistics" in data and max(counted(), default=0) >= 60, "they are not counted")
    say(lab, "worker", "pause", "mine")
    say(lab, "worker", "reset", "mine")
    until(lambda: said(lab, "mine")["messages"] == 0, "they are not reset")
    say(lab, "worker", "resume", "mine")
    until(lambda: any(later < earlier for earlier, later in itertools.pairwise(counted())), "the code counts on")
    stop(lab, process)
    stages = json.loads(say(lab, "ls", "--json").stdout)["stages"]
    assert [row["done"] for row in stages if row["stage"] == "mine"][0] >= 60, stages


@pytest.mark.parametrize("level", ["memory", "disk"])
def test_messages_aside_are_retried_once_through_kills(lab, level, times):
    process, data = started(
        lab, camera(200, level, "64 MiB") + worker("mine", "mine.py:picky", f'level = "{level}"\nslots = 2\n', "32 MiB")
    )
    is_done(data, "mine", 60)
    assert say(lab, "retry", "mine", status=2).stderr.decode().count("mine.aside")
    for turn in range(times(3, 30)):
        say(lab, "configure", "mine", "bad=7")
        before = data["mine.aside"].count if "mine.aside" in data else 0
        wanted = before + 10
        until(lambda wanted=wanted: "mine.aside" in data and data["mine.aside"].count > wanted, "nothing is aside")
        say(lab, "configure", "mine", "bad=0")
        asked = json.loads(say(lab, "retry", "mine.aside", "--json").stdout)
        assert asked["retried"] > 0
        if turn % 2:
            [os.kill(pid, signal.SIGKILL) for pid in lab.slots(process, "mine")]
        else:
            lab.kill(process)
            process, _ = lab.up_ready()
        is_done(data, "mine", 60)
    until(lambda: json.loads(say(lab, "retry", "mine.aside", "--json").stdout)["retried"] == 0, "there is more")
    until(
        lambda: (
            sorted(numbers(data, "mine"))[: data["mine.aside"].count * 7] == list(range(data["mine.aside"].count * 7))
        ),
        "",
    )
    stop(lab, process)
    found = sorted(numbers(data, "mine"))
    assert found == list(range(len(found))), "each frame is there once"
    # As the frames were: origin, number, time.
    times_of = {m.origin_seq: m.source_time for m in data["camera"].read()}
    assert all(times_of.get(m.origin_seq, m.source_time) == m.source_time for m in data["mine"].read())
    assert {m.value - m.origin_seq for m in data["mine"].read()} == {0.0}


def test_what_fails_once_more_can_be_retried_later(lab):
    # Behind 16 failures in a row a fresh process goes on.
    process, data = started(lab, camera(50, "disk") + worker("mine", "mine.py:picky", 'level = "disk"\n'))
    until(lambda: "mine.aside" in data and data["mine.aside"].count >= 3, "nothing is aside")
    say(lab, "worker", "pause", "mine")
    is_done(data, "camera", 5)
    before = data["mine.aside"].count
    say(lab, "retry", "mine.aside")
    say(lab, "worker", "resume", "mine")
    # They fail as before, and frames of the camera fail meanwhile.
    until(lambda: data["mine.aside"].count >= 2 * before, "they are not retried")
    say(lab, "configure", "mine", "bad=0")
    say(lab, "retry", "mine.aside")
    until(lambda: {0, 7, 14} <= set(numbers(data, "mine")), "they are not done")
    stop(lab, process)
    found = numbers(data, "mine")
    assert sorted(found) == list(range(len(found)))


def test_code_with_state_retries_nothing_out_of_order(lab):
    process, data = started(lab, camera(50, "disk") + worker("mine", "mine.py:Kept", 'level = "disk"\n'))
    until(lambda: "mine.aside" in data and data["mine.aside"].count >= 1, "nothing is aside")
    fault = say(lab, "retry", "mine.aside", status=2).stderr.decode()
    assert "saves its state" in fault and "replay" in fault
    is_done(data, "mine")
    stop(lab, process)


def test_a_worker_is_added_and_removed_while_the_instrument_runs(lab, tmp_path):
    one = camera(100, "disk") + worker("mine", "mine.py:number", 'level = "disk"\n')
    process, data = started(lab, one)
    is_done(data, "mine")
    refused = say(lab, "worker", "add", "other", status=2).stderr.decode()
    assert "no section `[worker.other]`" in refused and "write the section" in refused
    # From another folder than that of the file.
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    lab.write(one + worker("other", "mine.py:nothing", 'level = "disk"\n'))
    refused = say(lab, "worker", "add", "other", status=2, cwd=elsewhere).stderr.decode()
    assert "cannot add worker `other`" in refused and "nothing" in refused
    lab.write(one + worker("other", "mine.py:number", 'level = "disk"\n'))
    assert "did you mean `other`" in say(lab, "worker", "add", "othr", status=2).stderr.decode()
    say(lab, "worker", "add", "other", cwd=elsewhere)
    is_done(data, "other")
    assert "runs already" in say(lab, "worker", "add", "other", status=2).stderr.decode()
    say(lab, "worker", "remove", "other")
    assert not lab.slots(process, "other")
    assert "other" not in status(lab)["running"]
    rested = data["other"].count
    is_done(data, "camera", 30)
    assert data["other"].count == rested
    held = say(lab, "ls", "--pins").stdout.decode().splitlines()
    assert not [line for line in held if line.startswith("camera ") and "other" in line], held
    # It resumes where it stopped.
    say(lab, "worker", "add", "other")
    is_done(data, "other", 40)
    stop(lab, process)
    assert numbers(data, "other") == list(range(data["other"].count))


def test_a_worker_that_others_need_is_not_removed(lab):
    process, _ = started(
        lab,
        camera(50)
        + worker("mine", "mine.py:number")
        + '\n[worker.half]\ncall = "filter"\ninputs = ["mine"]\n[worker.half.parameters]\nkeep = "value > 3"\n',
    )
    refused = say(lab, "worker", "remove", "mine", status=2).stderr.decode()
    assert "worker `half` needs its output" in refused and "worker pause mine" in refused
    assert "no such worker" in say(lab, "worker", "pause", "camera", status=2).stderr.decode()
    stop(lab, process)
