"""User code that follows runs and saves its state: exact members of each run, and each message once through any kill."""

import json
import os
import signal
import sys
import time
from datetime import UTC, datetime, timedelta

import h5py
import numpy as np
import pytest
from conftest import camera, until, worker

beamport = pytest.importorskip("beamport", reason="pip install .")

CODE = """
import os
import beamport
import numpy as np

@beamport.worker(per="run")
class Total:
    # The sum of a run: an instance for each.
    def __init__(self):
        self.ids = []

    def begin(self, run):
        self.run = run

    def __call__(self, frame):
        assert beamport.slot.run.name == self.run.name
        self.ids.append(frame.id)
        return len(self.ids)

    def end(self, run):
        return {"end": {"run": run.name, "ids": self.ids, "title": run.metadata.get("title", ""), "missed": beamport.slot.missed}}

class Saved(Total):
    def save(self):
        return {"ids": np.array(self.ids, np.int64), "run": self.run.name}

    def restore(self, state):
        self.ids = state["ids"].tolist()
        self.run = beamport.slot.run

    def __call__(self, frame):
        self.ids.append(frame.id)
        return len(self.ids)

Saved = beamport.worker(per="run")(Saved)

@beamport.worker(per="run")
class Length:
    def __init__(self):
        self.count = 0

    def __call__(self, frame):
        self.count += 1

    def end(self, run):
        return beamport.result(float(self.count), name=f"length of {run.name}")

@beamport.worker
class Hooks:
    def __init__(self):
        self.said = []

    def begin(self, run):
        self.said.append(("begin", run.name))

    def __call__(self, frame):
        self.said.append(frame.id)

    def end(self, run):
        said, self.said = self.said, []
        return {"end": {"run": run.name, "said": said}}

@beamport.worker
class Sum:
    # All messages since the stream began, whatever is killed.
    def __init__(self):
        self.sum, self.count = 0, 0

    def __call__(self, frame):
        self.sum, self.count = self.sum + frame.id, self.count + 1
        return {"sum": self.sum, "count": self.count}

    def save(self):
        return [self.sum, self.count]

    def restore(self, state):
        self.sum, self.count = state

@beamport.worker
class Anew:
    def __init__(self):
        self.count = 0

    def __call__(self, frame):
        self.count += 1
        return {"missed": beamport.slot.missed, "count": self.count}
"""


def ends(stream) -> dict[str, dict]:
    """What `end` said of each run, by its name."""
    found = {}
    for m in stream.read():
        if m.schema == "json":
            said = json.loads(m["json"])["end"]
            assert said["run"] not in found, "a run ended twice"
            found[said["run"]] = said
    return found


def sums(stream) -> list[tuple[int, int]]:
    """Sum and count of each message of `Sum`."""
    return [tuple(int(np.ravel(v["data"])[0]) for v in m["data"]) for m in stream.read()]


def run_once(lab, data, name: str, seconds: float = 0.4, **metadata: str) -> None:
    """Begin a run now, and end it some time later."""
    lab.run("begin", name, "--metadata", json.dumps(metadata), "--data", lab.data)
    time.sleep(seconds)
    lab.run("end", name, "--data", lab.data)
    until(lambda: data.run(name).state == "sealed", f"{name} is not sealed")


@pytest.mark.parametrize("call", ["Total", "Saved"])
def test_an_instance_for_each_run_is_given_the_members_that_its_file_has(lab, call):
    (lab.folder / "mine.py").write_text(CODE)
    lab.write(camera(500, "disk") + worker("total", f"mine.py:{call}", 'level = "disk"\n'))
    process, _ = lab.up_ready()
    data = beamport.open(lab.data)
    run_once(lab, data, "first", title="nickel")
    run_once(lab, data, "second")
    lab.interrupt(process)
    lab.end(process)
    found = ends(data["total"])
    assert list(found) == ["first", "second"]
    assert found["first"]["title"] == "nickel"
    for run in data.runs:
        members = [m.id for m in run["camera"].read()]
        assert len(members) > 50 and found[run.name]["ids"] == members and found[run.name]["missed"] == 0
        # The result of a run is a member of it: its file has it.
        (of_run,) = [m for m in data["total"].read() if m.schema == "json" and run.name in m["json"]]
        assert run.start <= of_run.source_time < run.stop and of_run.origin == "total"
    report = beamport.open(lab.data).run("second").ledger()
    assert report["closed"] and report["lost"] == 0


def test_messages_of_no_run_are_filtered_where_each_run_has_an_instance(lab):
    (lab.folder / "mine.py").write_text(CODE)
    lab.write(camera(100) + worker("total", "mine.py:Total"))
    process, _ = lab.up_ready()
    data = beamport.open(lab.data)
    until(lambda: data["camera"].count > 20, "no frames")
    time.sleep(0.3)
    lab.interrupt(process)
    said, _ = lab.said(process)
    assert data["total"].count == 0, said


@pytest.mark.parametrize("call", ["Total", "Saved"])
def test_the_sum_of_a_run_is_exact_through_kills(lab, call, times):
    (lab.folder / "mine.py").write_text(CODE)
    lab.write(camera(300, "disk") + worker("total", f"mine.py:{call}", 'level = "disk"\n'))
    process, _ = lab.up_ready()
    data = beamport.open(lab.data)
    for number in range(times(2, 20)):
        name = f"run{number}"
        lab.run("begin", name, "--data", lab.data)
        for _ in range(3):
            time.sleep(0.15)
            [os.kill(pid, signal.SIGKILL) for pid in lab.slots(process, "total")]
            until(lambda: lab.slots(process, "total"), "no slot")
        count = data["total"].count
        until(lambda count=count: data["total"].count > count + 4, "it does not go on")
        lab.run("end", name, "--data", lab.data)
        # Between the last member and the end of the run, too.
        [os.kill(pid, signal.SIGKILL) for pid in lab.slots(process, "total")]
        until(lambda name=name: data.run(name).state == "sealed", "it is not sealed")
    lab.interrupt(process)
    lab.end(process)
    found = ends(data["total"])
    for run in data.runs:
        assert found[run.name]["ids"] == [m.id for m in run["camera"].read()]
        assert found[run.name]["missed"] == 0


def test_the_sum_of_a_run_is_exact_where_the_mover_is_killed(lab, times):
    (lab.folder / "mine.py").write_text(CODE)
    lab.write(camera(300, "disk") + worker("total", "mine.py:Saved", 'level = "disk"\n'))
    process, _ = lab.up_ready()
    data = beamport.open(lab.data)
    lab.run("begin", "long", "--data", lab.data)
    for _ in range(times(3, 30)):
        count = data["total"].count
        until(lambda count=count: data["total"].count > count + 10, "it does not go on")
        lab.kill(process)
        process, _ = lab.up_ready()
    lab.run("end", "long", "--data", lab.data)
    until(lambda: data.run("long").state == "sealed", "it is not sealed")
    until(lambda: "long" in ends(data["total"]), "the run has no end")
    lab.interrupt(process)
    lab.end(process)
    assert ends(data["total"])["long"]["ids"] == [m.id for m in data.run("long")["camera"].read()]


def test_the_result_of_a_run_is_in_its_file_where_the_source_ends(lab, nexus):
    (lab.folder / "mine.py").write_text(CODE)
    log = {"name": "total", "type": "group", "attributes": [{"name": "NX_class", "values": "NXlog"}], "children": [
        {"module": "f144", "config": {"topic": "length", "source": "length of all", "dtype": "double"}}]}  # fmt: skip
    entry = {"name": "entry", "type": "group", "attributes": [{"name": "NX_class", "values": "NXentry"}]}
    (lab.folder / "t.json").write_text(json.dumps({"children": [entry | {"children": [log]}]}))
    sink = '\n[sink.file]\nkind = "nexus"\ntemplate = "t.json"\ninputs = ["length"]\n[run.all]\nstart = "now"\n'
    lab.write(
        camera(200, "disk") + 'duration = "1 s"\n' + worker("length", "mine.py:Length", 'level = "disk"\n') + sink
    )
    report = lab.report(lab.up())
    members = sum(1 for _ in beamport.open(lab.data).run("all")["camera"].read())
    assert report["closed"] and members > 10
    with h5py.File(report["file"]) as file:
        assert list(file["entry/total/value"]) == [members]


def test_hooks_of_one_instance_are_called_before_the_first_and_behind_the_last_member(lab):
    (lab.folder / "mine.py").write_text(CODE)
    lab.write(camera(200, "disk") + worker("hooks", "mine.py:Hooks", 'level = "disk"\n'))
    process, _ = lab.up_ready()
    data = beamport.open(lab.data)
    # Ahead: the instrument knows it before its first frame comes.
    start = (datetime.now(UTC) + timedelta(seconds=3)).isoformat()
    lab.run("begin", "first", "--start", start, "--duration", "400 ms", "--data", lab.data)
    until(lambda: data.run("first").state == "sealed", "it is not sealed")
    lab.interrupt(process)
    lab.end(process)
    said = ends(data["hooks"])["first"]["said"]
    members = [m.id for m in data.run("first")["camera"].read()]
    given = said[said.index(["begin", "first"]) + 1 :]
    assert given[: len(members)] == members
    # Frames behind the run may have come before it was complete.
    assert given == list(range(given[0], given[0] + len(given)))


def test_saved_state_has_each_message_once_through_kills(lab, times):
    (lab.folder / "mine.py").write_text(CODE)
    lab.write(camera(300, "disk") + worker("sum", "mine.py:Sum", 'level = "disk"\n'))
    process, _ = lab.up_ready()
    data = beamport.open(lab.data)
    for turn in range(times(6, 100)):
        count = data["sum"].count
        until(lambda count=count: data["sum"].count > count + 5, "it does not go on")
        if turn % 3 == 2:
            lab.kill(process)
            process, _ = lab.up_ready()
        else:
            [os.kill(pid, signal.SIGKILL) for pid in lab.slots(process, "sum")]
    count = data["sum"].count
    until(lambda: data["sum"].count > count + 5, "it does not go on")
    lab.interrupt(process)
    lab.end(process)
    expected, total = [], 0
    # A message at which two processes were killed is set aside, and in no state.
    aside = {m["sequence"] for m in data["sum.aside"].read()} if "sum.aside" in data else set()
    for m in data["camera"].read():
        if m.sequence not in aside:
            total += m.id
            expected.append((total, len(expected) + 1))
    found = sums(data["sum"])
    assert found == expected[: len(found)] and len(found) > 30


def test_states_between_results_of_a_block_are_not_shown(lab):
    (lab.folder / "mine.py").write_text(CODE)
    # Many small segments: a block of the backlog lies in several, and the state is saved behind each.
    lab.write(camera(2000, "disk", "1 MiB") + worker("sum", "mine.py:Sum", 'level = "disk"\n'))
    process, _ = lab.up_ready()
    data = beamport.open(lab.data)
    until(lambda: data["sum"].count > 3000, "no results")
    lab.interrupt(process)
    lab.end(process)
    assert [m.schema for m in data["sum"].read()] == ["da00"] * data["sum"].count
    assert [count for _, count in sums(data["sum"])] == list(range(1, data["sum"].count + 1))


def test_new_parameters_keep_the_state_of_code_without_configure(lab):
    code = CODE.replace(
        "    def __init__(self):\n        self.sum, self.count = 0, 0",
        "    def __init__(self, unused=0):\n        self.sum, self.count = 0, 0",
    )
    (lab.folder / "mine.py").write_text(code)
    lab.write(camera(200, "disk") + worker("sum", "mine.py:Sum", 'level = "disk"\n'))
    process, _ = lab.up_ready()
    data = beamport.open(lab.data)
    until(lambda: data["sum"].count > 20, "no results")
    lab.run("configure", "sum", "unused=3", "--data", lab.data)
    count = data["sum"].count
    until(lambda: data["sum"].count > count + 20, "it does not go on")
    lab.interrupt(process)
    lab.end(process)
    assert [count for _, count in sums(data["sum"])] == list(range(1, data["sum"].count + 1))


def test_code_without_state_is_told_what_it_missed(lab):
    (lab.folder / "mine.py").write_text(CODE)
    lab.write(camera(100, "disk") + worker("anew", "mine.py:Anew", 'level = "disk"\n'))
    process, _ = lab.up_ready()
    data = beamport.open(lab.data)
    until(lambda: data["anew"].count > 20, "no results")
    [os.kill(pid, signal.SIGKILL) for pid in lab.slots(process, "anew")]
    count = data["anew"].count
    until(lambda: data["anew"].count > count + 20, "it does not go on")
    lab.interrupt(process)
    lab.end(process)
    found = sums(data["anew"])
    assert found[0] == (0, 1)
    missed = {m for m, _ in found}
    assert len(missed) == 2 and max(missed) > 15
    # Each result says what it is made of: with what it missed, that is all before.
    assert all(m + n == at + 1 for at, (m, n) in enumerate(found))


def test_code_that_keeps_something_needs_one_slot_and_one_input(lab):
    (lab.folder / "mine.py").write_text(CODE)
    lab.write(camera(100) + worker("sum", "mine.py:Sum", "slots = 2\n"))
    checked = lab.run("check", lab.file, status=2)
    assert "needs one slot" in checked.stderr.decode() and b"`slots = 1`" in checked.stderr
    lab.write(camera(100) + worker("sum", "mine.py:Sum"))
    process, _ = lab.up_ready()
    until(lambda: beamport.open(lab.data)["sum"].count > 5, "no results")
    refused = lab.run("configure", "sum", "--slots", "2", "--data", lab.data, status=2)
    assert "it saves its state" in refused.stderr.decode() and b"keep one slot" in refused.stderr
    lab.interrupt(process)
    lab.end(process)
    two = camera(100) + camera(100).replace("camera]", "second]") + worker("sum", "mine.py:Sum")
    lab.write(two.replace('["camera"]', '["camera", "second"]'))
    checked = lab.run("check", lab.file, status=2)
    assert "[merge.NAME]" in checked.stderr.decode()


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("    def save(self): ...", "no `restore`"),
        ("    def save(self, path): ...\n    def restore(self, state): ...", "save(self)"),
        ("    def begin(self): ...", "begin(self, run)"),
    ],
)
def test_hooks_that_cannot_be_called_are_refused_with_what_to_write(lab, code, words):
    (lab.folder / "mine.py").write_text(f"class Mine:\n    def __call__(self, frame): ...\n{code}\n")
    lab.write(camera(100) + worker("mine", "mine.py:Mine"))
    assert words in lab.run("check", lab.file, status=2).stderr.decode()


def test_a_class_may_have_several_inputs_and_slots(lab):
    (lab.folder / "mine.py").write_text(CODE)
    two = camera(100) + camera(1000).replace("camera]", "second]") + worker("anew", "mine.py:Anew", "slots = 2\n")
    lab.write(two.replace('["camera"]', '["camera", "second"]'))
    process, _ = lab.up_ready()
    data = beamport.open(lab.data)
    until(lambda: data["anew"].count > 500, "no results")
    lab.interrupt(process)
    lab.end(process)
    assert {m for m, _ in sums(data["anew"])} == {0} and "anew.aside" not in data


def test_begin_alone_is_called_in_each_of_several_slots(lab):
    code = "class Named:\n    name = ''\n    def begin(self, run):\n        self.name = run.name\n"
    (lab.folder / "mine.py").write_text(code + "    def __call__(self, frame):\n        return self.name or None\n")
    lab.write(camera(200) + worker("named", "mine.py:Named", 'slots = 2\nshare = "round-robin"\n'))
    process, _ = lab.up_ready()
    data = beamport.open(lab.data)
    for name in ("first", "second"):
        start = (datetime.now(UTC) + timedelta(seconds=2)).isoformat()
        lab.run("begin", name, "--start", start, "--duration", "300 ms", "--data", lab.data)
        until(lambda name=name: data.run(name).state == "sealed", "it is not sealed")
    until(lambda: data["named"][-1].value == "second", "it does not go on")
    lab.interrupt(process)
    lab.end(process)
    said = {m.origin_seq: m.value for m in data["named"].read()}
    for run in data.runs:
        assert {said[m.id] for m in run["camera"].read()} == {run.name}


CONTEXT = """
import beamport

@beamport.worker
def tell(frame):
    slot = beamport.slot
    run = slot.run
    if run is not None:
        (slot.folder / f"slot{slot.number}.txt").write_text(f"{slot.worker} {run.name} {run.metadata['title']}")
        slot.log.info("frame %d", frame.id)
        print("printed", frame.id)
    return None
"""


def test_code_knows_run_slot_folder_and_log(lab):
    (lab.folder / "mine.py").write_text(CONTEXT)
    lab.write(camera(100) + worker("tell", "mine.py:tell", "slots = 1\n"))
    process, _ = lab.up_ready()
    data = beamport.open(lab.data)
    written = lab.data / ".files" / "tell" / "slot0.txt"
    lab.run("begin", "first", "--metadata", json.dumps({"title": "nickel"}), "--data", lab.data)
    until(lambda: written.exists() and written.read_text(), "the code is not called")
    lab.run("end", "first", "--data", lab.data)
    lab.interrupt(process)
    said = lab.said(process)[1]
    assert written.read_text() == "tell first nickel"
    assert "worker `tell` slot 0: INFO frame" in said and "worker `tell` slot 0: printed" in said
    assert list(data) == [name for name in data if not name.startswith(".")]


def test_outside_of_a_slot_there_is_no_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert beamport.slot.run is None and beamport.slot.number == 0 and beamport.slot.folder.resolve() == tmp_path
    assert sys.modules["beamport"].slot is beamport.slot


def test_a_state_is_numbers_texts_arrays_and_what_holds_them():
    from beamport._state import pack, unpack

    state = {
        "n": 3, "x": 0.1, "nan": float("inf"), "text": "a\0b", "none": None, "yes": True, "bytes": b"\0\1",
        "tuple": (1, [2, "three"]), 5: "key", "array": np.arange(6, dtype=">i2").reshape(2, 3), "single": np.float32(2.5),
        "rows": np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]), "empty": np.zeros((0, 3)),
    }  # fmt: skip
    again = unpack(pack(state))
    for key, value in state.items():
        if isinstance(value, np.ndarray):
            assert again[key].dtype == value.dtype and np.array_equal(again[key], value) and again[key].flags.writeable
        else:
            assert again[key] == value and type(again[key]) is type(value)
    for wrong, words in (({"a": [1, object()]}, "state['a'][1]"), (np.array([object()]), "Python objects")):
        with pytest.raises(TypeError, match="`save` may return") as raised:
            pack(wrong)
        assert words in str(raised.value)


def test_a_replay_through_code_that_follows_runs_gives_what_the_run_gave(lab):
    (lab.folder / "mine.py").write_text(CODE)
    lab.write(camera(200, "disk") + worker("total", "mine.py:Total", 'level = "disk"\n'))
    process, _ = lab.up_ready()
    data = beamport.open(lab.data)
    run_once(lab, data, "first", title="nickel")
    lab.interrupt(process)
    lab.end(process)
    lab.run("replay", "first", "--through", "mine.py:Total", "--into", lab.folder / "again", "--data", lab.data)
    again = beamport.open(lab.folder / "again")
    assert ends(again["total"]) == ends(data["total"])
