"""`beamport.testing`: a worker in the process of its test, by the rules of slots."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import beamport
import beamport.testing
import numpy as np
import pytest
from beamport._core import _Writer
from beamport.testing import run
from payloads import SECOND, T0, bprn, pixels_of, write_events

FRAMES = [np.full((4, 4), n, "u2") for n in range(20)]


def mean(frame, scale=1.0):
    return float(frame.array.mean()) * scale


def test_results_are_of_their_messages():
    out = run(mean, FRAMES, {"scale": 2})
    assert [m.value for m in out] == [2.0 * n for n in range(20)] and out.aside == []
    assert [(m.sequence, m.origin_seq) for m in out] == [(n, n) for n in range(20)]
    assert {m.schema for m in out} == {"f144"} and out[0]["source_name"] == "mean"
    times = [m.source_time for m in out]
    assert times == sorted(times) and len(set(times)) == 20
    assert run(mean, [])[:] == []


def test_nothing_is_left_behind(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    shared = Path(f"/dev/shm/beamport-{os.geteuid()}")
    before = set(shared.iterdir()) if shared.is_dir() else set()
    out = run(mean, FRAMES)
    with pytest.raises(TypeError):
        run(mean, FRAMES, {"scael": 2})
    assert list(tmp_path.iterdir()) == []
    assert not [place for place in set(shared.iterdir()) - before if "mean" in place.name or "input" in place.name]
    # They are copies.
    assert out[3].value == 3.0


def test_what_is_raised_and_refused_is_aside_with_its_text():
    def moody(frame):
        if frame.id == 3:
            raise ValueError("too dark")
        return {1, 2} if frame.id == 5 else frame

    out = run(moody, FRAMES)
    assert [m.id for m in out] == [n for n in range(20) if n not in (3, 5)]
    dark, odd = out.aside
    assert (dark.index, dark.reason) == (3, "error") and dark.text.rstrip().endswith("ValueError: too dark")
    assert "in moody" in dark.text
    assert odd.index == 5 and "a set has no order" in odd.text


def test_a_worker_that_always_fails():
    out = run(lambda frame: 1 / 0, FRAMES * 3)
    assert out == [] and len(out.aside) == 60 and "ZeroDivisionError" in out.aside[-1].text


@pytest.mark.parametrize("count", [1, 7, 8, 9, 24, 33])
def test_batches_are_exact_and_the_last_is_the_rest(count):
    sizes = []

    @beamport.worker(batch=8)
    def sum_of(frames):
        sizes.append(len(frames))
        return [beamport.result(float(m.array.sum()), of=m) for m in reversed(list(frames))]

    out = run(sum_of, [np.full((2, 2), n) for n in range(count)])
    assert sizes == [8] * (count // 8) + ([count % 8] if count % 8 else [])
    assert [m.value for m in out] == [4.0 * n for n in range(count)]
    assert [m.origin_seq for m in out] == list(range(count))


def test_gather_and_pad():
    @beamport.worker(batch=4, gather=True, pad=True)
    def infer(images, count):
        assert images.shape == (4, 4, 4) and not images[count:].any()
        return list(images.mean(axis=(1, 2)))

    assert [m.value for m in run(infer, FRAMES[:6])] == [0, 1, 2, 3, 4, 5]
    # Frames of two shapes are no array: halves are tried, and this code wants frames of 4 x 4.
    mixed = run(infer, [np.ones((4, 4)), np.ones((2, 2))])
    assert [m.value for m in mixed] == [1] and [(a.index, a.reason) for a in mixed.aside] == [(1, "error")]


class Life:
    """A class with all that one may have; it notes what was called."""

    calls: list[str] = []

    def __init__(self, scale: float = 1.0) -> None:
        self.calls.append("init")
        self.scale = scale

    def setup(self) -> None:
        self.calls.append("setup")

    def __call__(self, frame):
        return float(frame.array.mean()) * self.scale

    def configure(self, scale: float) -> None:
        self.calls.append(f"configure {scale}")
        self.scale = scale

    def teardown(self) -> None:
        self.calls.append("teardown")


def test_the_life_of_a_class_and_changes_on_the_way():
    Life.calls.clear()
    out = run(Life, FRAMES, {"scale": 2}, changes={5: {"scale": 10}, 10: {"scale": 0}})
    assert [m.value for m in out] == [2.0 * n if n < 5 else 10.0 * n if n < 10 else 0.0 for n in range(20)]
    assert Life.calls == ["init", "setup", "configure 10", "configure 0", "teardown"]
    # A function is given them with each call.
    assert [m.value for m in run(mean, FRAMES[:4], changes={2: {"scale": 3}})] == [0, 1, 6, 9]
    with pytest.raises(TypeError):
        run(Life, FRAMES, changes={5: {"scael": 1}})
    assert Life.calls[-1] == "teardown"

    @beamport.worker(batch=4)
    def four(frames):
        return len(frames)

    with pytest.raises(beamport.Error, match="within a batch"):
        run(four, FRAMES, changes={6: {}})


def test_recorded_streams_and_runs(memory):
    write_events(memory / "detector", range(10))
    identity = beamport.open(memory)["detector"].uuid
    with _Writer(memory / "runs") as writer:
        end = T0 + 6 * SECOND
        writer.append(bprn("r", "sealed", T0 + 2 * SECOND, end, [("detector", identity, 1, 0, 10)]), end)
    data = beamport.open(memory)

    def count(events):
        return int(events["pixel_id"].sum())

    for given, wanted in (
        (data["detector"], range(10)),
        (data["detector"][-3:], range(7, 10)),
        (data.run("r"), range(2, 6)),
        (data.run("r")["detector"], range(2, 6)),
        (data["detector"].read(stop=2), range(2)),
    ):
        out = run(count, given)
        assert [m.value for m in out] == [int(pixels_of(n).sum()) for n in wanted]
        assert [m.source_time for m in out] == [T0 + n * SECOND for n in wanted]
        assert [m.origin for m in out] == ["bank0"] * len(wanted)


def test_messages_of_any_kind():
    given = [beamport.message("f144", {"source_name": "T", "value": 1.5}, time=7), 2.5, np.arange(3)]
    out = run(lambda m: {"double": 2 * np.asarray(m)}, given)
    assert [m.schema for m in out] == ["da00"] * 3 and out[0].source_time == 7
    passed = run(lambda m: m, given, name="pass-on")
    assert [m.schema for m in passed] == ["f144", "f144", "ad00"] and passed[0].value == 1.5
    for wrong, hint in ((["text"], "beamport.message"), (np.ones((2, 2)), "in a list")):
        with pytest.raises(beamport.Error, match=hint):
            run(mean, wrong)


def test_more_results_than_memory_has():
    out = run(lambda frame: [frame.array] * 10, [np.zeros((1024, 1024), "u1")] * 20)
    assert len(out) == 200 and not out.aside


def test_what_cannot_be_tested_is_refused():
    with pytest.raises(beamport.Error, match="a finder"):
        run(beamport.finder(lambda times, members, numbers: ([], 0)), FRAMES)
    with pytest.raises(beamport.Error, match="no parameters"):
        run(mean, FRAMES, {"scale": np.ones(3)})
    with pytest.raises(RuntimeError, match="no model"):

        class Broken:
            def setup(self):
                raise RuntimeError("no model")

            def __call__(self, frame):
                return None

        run(Broken, FRAMES)


def test_the_how_to_page_as_it_stands(tmp_path):
    """Its files, and a recorded stream where it expects one."""
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "test-my-worker.md").read_text()
    files = re.findall(r"`(\w+\.py)`[^\n]*:\n\n```python\n(.*?)```", page, re.S)
    assert [name for name, _ in files] == ["mine.py", "test_mine.py", "test_recorded.py"]
    assert page.count("```python") == len(files)
    for name, text in files:
        (tmp_path / name).write_text(text)
    (tmp_path / "beamport-data" / "mine").mkdir(parents=True)
    with beamport.open(tmp_path / "beamport-data" / "mine").create("camera") as stream:
        for n in range(120):
            stream.append("ad00", {"source_name": "camera", "id": n, "data": np.full((4, 4), n + 1)})
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "5 passed" in done.stdout, done.stdout + done.stderr


def test_code_that_follows_runs_has_one_with_all_messages():
    class Total:
        def __init__(self):
            self.sum = 0

        def begin(self, run):
            self.title = run.metadata["title"]

        def __call__(self, frame):
            assert beamport.slot.run.name == "test" and beamport.slot.worker == "Total"
            self.sum += int(frame.array.sum())

        def end(self, run):
            return {"about": {"title": self.title, "sum": self.sum, "run": run.name}}

        def save(self):
            return self.sum

        def restore(self, state):
            self.sum = state

    for code in (Total, beamport.worker(per="run")(Total)):
        out = run(code, [np.full((2, 2), n) for n in range(10)], metadata={"title": "nickel"})
        assert [json.loads(m["json"])["about"] for m in out] == [{"title": "nickel", "sum": 180, "run": "test"}]
        assert not out.aside and beamport.slot.run is None and beamport.slot.worker == ""


class Sends:
    """Results from threads, after the call."""

    def __init__(self):
        self.pool = ThreadPoolExecutor(2)

    def __call__(self, frame):
        self.pool.submit(beamport.slot.send, beamport.result(float(frame.id), name="late"))
        return frame.id

    def teardown(self):
        self.pool.shutdown()


def test_results_outside_of_calls_are_loose():
    out = run(Sends, FRAMES[:5])
    assert sorted(m.value for m in out.loose) == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert {m["source_name"] for m in out.loose} == {"late"} and len(out) == 5
    assert run(mean, FRAMES).loose == []
    with pytest.raises(beamport.Error, match="no slot"):
        beamport.slot.send(1.0)
