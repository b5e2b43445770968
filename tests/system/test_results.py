"""What user code says of its results: whose they are, their unit, axes and attributes; exact, or refused by name."""

import json
import os
import signal

import h5py
import numpy as np
import pytest
from conftest import ROOT, camera, until, worker
from test_page import Page

beamport = pytest.importorskip("beamport", reason="pip install .")

CODE = '''
import random
import beamport
import numpy as np

Q = np.linspace(0.01, 0.2, 20)

@beamport.worker(batch=8)
def each(frames):
    """Of a frame none, one or two results, in any order."""
    made = [beamport.result(float(m.id), of=m) for m in frames if m.id % 5]
    made += [beamport.result(m.array[:1, :2], of=m) for m in frames if m.id % 7 == 0]
    random.shuffle(made)
    return made

@beamport.worker(batch=8)
def some(frames):
    return [m for m in frames if m.id % 3 == 0]

@beamport.worker
def noted(frame):
    return frame, {"beam": frame.id / 2, "note": f"frame {frame.id}", "row": frame.array[0, :4]}

@beamport.worker
def smaller(frame):
    yield frame.array[::2], {"half": True}

@beamport.worker
def curve(frame):
    values = {"signal": Q**-4 * (1 + frame.id % 3), "errors": Q**-2}
    return beamport.result(values, name="I", unit="1/cm", axes={"Q": (Q, "1/angstrom")}, attributes={"frame": frame.id})

@beamport.worker
def kinds(frame):
    yield "text"
    yield beamport.result(["two", "texts"])
    yield {"peaks": [{"x": 1, "y": frame.id}], "none": None}
    yield np.float16(1.5)
    yield {"n": 3, "word": "w"}
    yield beamport.result(2.5, unit="mm", name="gap")
    yield 7, {"why": "because"}

@beamport.worker
def owned(frame):
    """A message with an identity of its own, for each third frame."""
    if frame.id % 3 == 0:
        fields = {"source_name": "peaks", "timestamp": frame.source_time + 5, "value": float(frame.id)}
        return beamport.message("f144", fields, origin="found", origin_seq=frame.id // 3)

class Late:
    """Says the result of a frame with the next one."""
    def __init__(self):
        self.before = None
    def __call__(self, frame):
        before, self.before = self.before, frame
        return beamport.result(1.0, of=before) if frame.id == 5 else frame

@beamport.worker
def wrong(frame):
    if frame.id % 5 == 0:
        frame.metadata["x"] = 1
        return frame
    return [1 + 2j, b"bytes", {1, 2}, len, frame][frame.id % 5]
'''

# The variables of a curve in a file.
TEMPLATE = {
    "children": [
        {
            "type": "group",
            "name": "entry",
            "attributes": [{"name": "NX_class", "values": "NXentry"}],
            "children": [
                {
                    "type": "group",
                    "name": "iq",
                    "attributes": [{"name": "NX_class", "values": "NXdata"}],
                    "children": [
                        {
                            "module": "da00",
                            "config": {
                                "stream": "curve",
                                "source": "I",
                                "variables": [{"name": "signal"}, {"name": "errors"}, {"name": "frame"}],
                                "constants": [{"name": "Q"}],
                            },
                        }
                    ],
                },
                {
                    "type": "group",
                    "name": "frames",
                    "attributes": [{"name": "NX_class", "values": "NXdata"}],
                    "children": [{"module": "ad00", "config": {"stream": "noted", "source": "camera"}}],
                },
            ],
        }
    ]
}


def run(lab, *names: str, fps: int = 100, more: str = "", slots: int = 1, level: str = "disk"):
    """The workers of some functions, on a camera, ready."""
    (lab.folder / "mine.py").write_text(CODE)
    workers = "".join(worker(name.lower(), f"mine.py:{name}", f"slots = {slots}\n") for name in names)
    lab.write(camera(fps, level) + workers + more)
    process, _ = lab.up_ready()
    return process, beamport.open(lab.data)


def end(lab, process):
    """Ctrl-C."""
    lab.interrupt(process)
    lab.end(process)


def made_of_each(frames) -> list[tuple]:
    """Number, time and kind of what `each` makes of frames, in order."""
    rows = []
    for m in frames:
        kinds = ["f144"] * bool(m.id % 5) + ["ad00"] * (m.id % 7 == 0)
        rows.append((m.id, m.source_time, m.origin, sorted(kinds)))
    return [row for row in rows if row[3]]


def is_each(data):
    """Each result of `each` has the identity of its own frame, in the order of the frames."""
    found = {}
    for m in data["each"].read():
        row = found.setdefault(m.origin_seq, (m.origin_seq, m.source_time, m.origin, []))
        assert (m.source_time, m.origin) == row[1:3]
        assert (m["value"] if m.schema == "f144" else m.id) == m.origin_seq
        row[3].append(m.schema)
    # The last frames may wait for the next `up`.
    wanted = made_of_each(data["camera"].read())[: len(found)]
    assert [(*row[:3], sorted(row[3])) for row in found.values()] == wanted
    return len(wanted)


def test_results_of_a_batch_are_each_of_their_own_frame(lab):
    process, data = run(lab, "each", "some", fps=400)
    until(lambda: data["each"].count > 1000 and data["some"].count > 300, "no results")
    end(lab, process)
    assert is_each(data) > 800
    some = [(m.id, m.origin, m.source_time) for m in data["some"].read()]
    wanted = [(m.id, m.origin, m.source_time) for m in data["camera"].read() if m.id % 3 == 0]
    assert some == wanted[: len(some)]


def test_results_of_batches_are_there_once_whatever_kills_the_slots(lab, dice, times):
    process, data = run(lab, "each", fps=400, slots=2)
    for _ in range(times(8, 200)):
        count = data["each"].count
        for pid in lab.slots(process, "each"):
            os.kill(pid, signal.SIGKILL)
        until(lambda count=count: data["each"].count > count + 20 * dice.random(), "it does not go on")
    count = data["each"].count
    until(lambda: data["each"].count > count + 100, "it does not go on")
    end(lab, process)
    assert "each.aside" not in data
    print(f"results of batches: {is_each(data)} frames, each with its results once")


def test_a_frame_and_its_attributes_are_one_message_live_and_in_the_file(lab, nexus):
    (lab.folder / "t.json").write_text(json.dumps(TEMPLATE))
    sink = '[sink.file]\nkind = "nexus"\ntemplate = "t.json"\ninputs = ["noted", "curve"]\n'
    process, data = run(
        lab, "noted", "smaller", "curve", more=sink + "[run.first]\nduration = '2 s'\n[web]\nlisten = '127.0.0.1:0'\n"
    )
    page = Page(lab, process)
    until(lambda: data["noted"].count > 50 and data["curve"].count > 50, "no results")
    status, answer = page.get("api/look", {"panels": [{"stream": "curve", "view": "curve"}]})
    report = lab.report(process)
    for m, was in zip(data["noted"].read(), data["camera"].read(), strict=False):
        assert (m.id, m.source_time, m.origin_seq) == (was.id, was.source_time, was.origin_seq)
        assert m.metadata["beam"] == m.id / 2 and m.metadata["note"] == f"frame {m.id}"
        assert np.array_equal(m.array, was.array) and np.array_equal(m.metadata["row"], was.array[0, :4])
    assert all(m.metadata["half"] == 1 and m.array.shape == (16, 48) for m in data["smaller"].read())
    curve = next(data["curve"].read())
    assert curve.metadata == {"frame": curve.origin_seq}
    with h5py.File(report["file"]) as file:
        iq, frames = file["entry/iq"], file["entry/frames"]
        assert iq["signal"].shape[1:] == (20,) and iq["signal"].attrs["units"] == "1/cm"
        assert iq["Q"].attrs["units"] == "1/angstrom" and iq["Q"].shape == (20,)
        assert list(iq.attrs["axes"]) == ["time", "Q"] and iq["errors"].shape == iq["signal"].shape
        about = file["entry/frames_metadata"]
        assert [note.decode() for note in about["note"]] == [f"frame {round(2 * beam)}" for beam in about["beam"]]
        assert len(frames["data"]) == len(about["beam"])
    assert status == 200 and b'"1/angstrom"' in answer and b'"1/cm"' in answer


def test_text_json_and_small_floats_are_results(lab):
    process, data = run(lab, "kinds", level="memory")
    until(lambda: data["kinds"].count > 70, "no results")
    end(lab, process)
    assert "kinds.aside" not in data
    texts, two, some, small, mixed, gap, seven = list(data["kinds"].read(stop=7))
    assert (texts.schema, texts["value"], two["value"]) == ("f142", "text", ["two", "texts"])
    assert (some.schema, json.loads(some["json"])) == ("json", {"peaks": [{"x": 1, "y": 0}], "none": None})
    assert (small.schema, small["value"]) == ("f144", 1.5)
    assert mixed.metadata == {"word": "w"} or {v["name"] for v in mixed["data"]} == {"n", "word"}
    (value,) = gap["data"]
    assert (gap["source_name"], value["unit"], float(value["data"])) == ("gap", "mm", 2.5)
    assert seven.metadata == {"why": "because"}
    assert {m.origin for m in data["kinds"].read()} == {"camera"}


def test_a_message_of_ones_own_keeps_its_identity(lab):
    process, data = run(lab, "owned", fps=200)
    until(lambda: data["owned"].count > 30, "no results")
    end(lab, process)
    times = {m.id: m.source_time for m in data["camera"].read()}
    for number, m in enumerate(data["owned"].read()):
        assert (m.origin, m.origin_seq, m.source_time) == ("found", number, times[3 * number] + 5)
        assert m.value == 3.0 * number and m["source_name"] == "peaks"


def test_what_no_message_can_hold_goes_aside_with_what_to_write(lab):
    process, data = run(lab, "wrong", "Late", level="memory", fps=50)
    until(lambda: "wrong.aside" in data and data["wrong.aside"].count > 8, "nothing is aside")
    until(lambda: "late.aside" in data and data["late.aside"].count, "nothing is aside")
    end(lab, process)
    texts = [m["text"] for m in data["wrong.aside"].read()]
    instead = ["`message, {", "np.frombuffer", "sorted(value)", "write `()`"]
    for words in instead:
        assert any(words in text for text in texts), (words, texts)
    (late,) = data["late.aside"].read()
    assert "is `of` message 4, and the code was called with 5 to 5" in late["text"]
    assert {m.id % 5 for m in data["wrong"].read()} == {4}


def test_the_page_says_results_as_they_are(lab):
    page = (ROOT / "docs/how-to/run-my-python.md").read_text()
    _, *blocks = (block.split("```")[0] for block in page.split("```python\n")[1:5])
    (lab.folder / "mine.py").write_text("model = lambda images: images.mean(axis=(1, 2))\n" + "".join(blocks))
    workers = [worker(name, f"mine.py:{name}") for name in ("reduce", "classify", "infer")]
    lab.write(camera(100).replace("[32, 48]", "[64, 128]") + "".join(workers))
    process, _ = lab.up_ready()
    data = beamport.open(lab.data)
    until(lambda: all(data[name].count > 20 for name in ("reduce", "classify", "infer")), "the page makes nothing")
    end(lab, process)
    means = {m.id: m.array.mean() for m in data["camera"].read()}
    for name in ("classify", "infer"):
        assert [m.origin_seq for m in data[name]] == list(range(len(data[name])))
        assert all(m["value"] == pytest.approx(means[m.origin_seq]) for m in data[name])
    m = next(data["reduce"].read())
    assert m.value.shape == (100,) and m["source_name"] == "I" and m.metadata == {"frame": m.origin_seq}


NAMED = """
import beamport

@beamport.worker
def reduce(frame):
    yield beamport.result(float(frame.id), name="beam")
    yield beamport.result({"signal": frame.array[0]}, name="iq", unit="1/cm")
    yield beamport.result(f"frame {frame.id}", name="note")
    yield {"nested": {"id": frame.id}}
"""


def test_each_named_result_may_be_a_stream(lab):
    (lab.folder / "mine.py").write_text(NAMED)
    names = ["beam", "iq", "note"]
    filters = [
        f'[worker.of_{name}]\ncall = "filter"\ninputs = ["reduce"]\nparameters = {{ keep = "source == \'{name}\'" }}\n'
        for name in names
    ]
    lab.write(camera(100) + worker("reduce", "mine.py:reduce") + "\n" + "".join(filters))
    process, _ = lab.up_ready()
    data = beamport.open(lab.data)
    until(lambda: all(data[f"of_{name}"].count > 20 for name in names), "no results")
    end(lab, process)
    schemas = {"beam": "f144", "iq": "da00", "note": "f142"}
    for name in names:
        found = [(m.origin_seq, m.schema) for m in data[f"of_{name}"].read()]
        assert found == [(number, schemas[name]) for number in range(len(found))]
        assert f"of_{name}.aside" not in data
