"""What messages hold as one value, and what `beamport.result` accepts and refuses, without a slot."""

from __future__ import annotations

import json
import sys
import types

import beamport
import numpy as np
import pytest
from beamport._result import said
from beamport._worker import Code
from payloads import T0

IMAGE = np.arange(12, dtype="u2").reshape(3, 4)
Q = np.linspace(0.01, 0.1, 3)
AXES = [{"name": "signal", "axes": ["Q"], "data": Q, "unit": "1/cm"}, {"name": "Q", "axes": ["Q"], "data": Q}]


@pytest.fixture
def messages(memory) -> dict[str, beamport.Message]:
    """One message of each kind, by a name."""
    contents = {
        "number": ("f144", {"source_name": "T", "timestamp": T0, "value": 1.5}),
        "array": ("f144", {"source_name": "T", "timestamp": T0, "value": np.array([1, 2])}),
        "text": ("f142", {"source_name": "T", "timestamp": T0, "value": "word"}),
        "frame": ("ad00", {"source_name": "cam", "id": 7, "timestamp": T0, "data": IMAGE}),
        "curve": ("da00", {"source_name": "iq", "timestamp": T0, "data": AXES}),
        "json": ("json", {"json": json.dumps({"a": [1, None]})}),
        "events": ("ev44", {"source_name": "b", "message_id": 1, "reference_time": [T0], "reference_time_index": [0]}),
    }
    data = beamport.open(memory)
    with data.create("all", level="memory") as stream:
        for schema, fields in contents.values():
            stream.append(schema, fields, time=T0)
    return dict(zip(contents, data["all"].read(), strict=True))


def test_value_and_time_are_what_they_look_like(messages):
    value = {name: m.value for name, m in messages.items() if name != "events"}
    assert (value["number"], value["text"], value["json"]) == (1.5, "word", {"a": [1, None]})
    assert np.array_equal(value["array"], [1, 2]) and np.array_equal(value["frame"], IMAGE)
    assert np.array_equal(value["curve"], Q) and not value["curve"].flags.writeable
    number, frame = messages["number"], messages["frame"]
    assert float(np.asarray(number)) == 1.5 and number.values.shape == ()
    assert np.asarray(frame).dtype == np.uint16 and np.mean(frame) == IMAGE.mean()
    assert np.array(frame, dtype=float).dtype == np.float64
    assert frame.time == np.datetime64(T0, "ns")
    with pytest.raises(beamport.Error, match="ev44.*\n.*pixel_id"):
        _ = messages["events"].value


def test_a_message_of_ones_own_has_what_it_is_given():
    m = beamport.message("f144", {"source_name": "T", "timestamp": T0, "value": 2.5}, origin_seq=9)
    assert (m.value, m.origin, m.source_time, m.origin_seq, m.schema) == (2.5, "T", T0, 9, "f144")
    record = np.zeros(1, "u4,f8")
    other = beamport.message("mine", record, time="2026-03-01T12:00:00Z", origin="board")
    assert bytes(other.payload) == record.tobytes() and (other.schema, other.origin) == ("mine", "board")
    assert other.time == np.datetime64("2026-03-01T12:00:00", "ns")
    with pytest.raises(beamport.Error, match="four letters"):
        beamport.message("toolong", b"x")
    with pytest.raises(beamport.Error, match="no field `values`"):
        beamport.message("f144", {"values": 1})


def test_the_newest_messages_are_those_behind(memory):
    data = beamport.open(memory)
    with data.create("all", level="memory") as stream:
        for number in range(5000):
            fields = {"source_name": "slow" if number == 3 else f"T{number % 3}", "timestamp": T0 + number}
            stream.append("f144", {**fields, "value": float(number)})
        found = data["all"]
        assert (found[-1].sequence, found[7].sequence, len(found)) == (4999, 7, 5000)
        assert [m.sequence for m in found[-3:]] == [4997, 4998, 4999]
        assert [m.sequence for m in found[10:12]] == [10, 11] and found[5000:] == []
        assert {name: m.value for name, m in found.latest().items()} == {
            "T0": 4998.0,
            "T1": 4999.0,
            "T2": 4997.0,
            "slow": 3.0,
        }
        assert sum(1 for _ in found) == 5000 and bool(found)
        part = found._members(T0 + 2, T0 + 10)
        assert len(part) == 8 and part[-1].value == 9.0 and [m.value for m in part[-2:]] == [8.0, 9.0]
        assert part.latest()["slow"].value == 3.0 and "T1" in part.latest()
        for wrong in (5000, -5001):
            with pytest.raises(IndexError, match="has messages 0 to 4999"):
                _ = found[wrong]
        with pytest.raises(beamport.Error, match="no step"):
            _ = found[::2]


def test_metadata_cannot_be_changed(messages):
    metadata = messages["frame"].metadata
    changes = [
        lambda: metadata.__setitem__("x", 1),
        lambda: metadata.update(x=1),
        lambda: metadata.setdefault("x", 1),
        lambda: metadata.pop("x"),
        metadata.clear,
    ]
    for change in changes:
        with pytest.raises(TypeError, match="return `message, "):
            change()
    assert {**metadata, "x": 1} == {"x": 1}


REFUSED = [
    ({"value": 1 + 2j}, '"real": a.real'),
    ({"value": b"x"}, "np.frombuffer"),
    ({"value": {3, 1}}, "sorted"),
    ({"value": len}, r"write `\(\)`"),
    ({"value": object()}, "returns or yields nothing, numbers, text"),
    ({"value": np.array(["a"])}, "tolist"),
    ({"value": np.datetime64("2026-01-01")}, "ns since 1970"),
    ({"value": np.zeros(2, "i4,f4")}, "its columns as a dict"),
    ({"value": np.longdouble(1)}, "float64"),
    ({"value": {1: 2.0}}, "keys are names"),
    ({"value": {"a": Q, "b": None}}, "tolist"),
    ({"value": {"a": float("nan"), "b": None}}, "in place of NaN"),
    ({"value": "text", "unit": "mm"}, "text has no `unit`"),
    ({"value": Q, "axes": "Q"}, r'\["y", "x"\]'),
    ({"value": Q, "axes": ["y", "x"]}, "2 axes are given for 1 dimensions"),
    ({"value": Q, "axes": {"Q": Q[:1]}}, "edges, one more"),
    ({"value": Q, "axes": {"Q": IMAGE}}, "coordinates of 2 dimensions"),
    ({"value": Q, "axes": {"Q": (None, "mm")}}, "has a unit and no coordinates"),
    ({"value": Q, "axes": ["signal"]}, "cannot be called 'signal'"),
    ({"value": Q, "unit": 3}, "`unit` is 3"),
    ({"value": Q, "unit": {"I": "mm"}}, "names of the values"),
    ({"value": Q, "of": 3}, "of=message"),
    ({"value": Q, "name": ""}, "`name` is ''"),
    ({"value": Q, "attributes": [1]}, "give a dict"),
    ({"value": Q, "attributes": {"x": None}}, r"return \[message"),
    ({"value": Q, "attributes": {"x": {"y": 1}}}, r"return \[message"),
    ({"value": Q, "attributes": {"x": IMAGE}}, "has 2 dimensions"),
    ({"value": Q, "axes": {"Q": Q}, "attributes": {"Q": 1}}, "the name of a value or an axis"),
    ({"value": beamport.result(1)}, "a result already"),
]


@pytest.mark.parametrize(("given", "instead"), REFUSED, ids=lambda each: repr(each)[:30])
def test_what_no_message_can_hold_is_refused_with_what_to_write(given, instead):
    with pytest.raises((TypeError, ValueError), match=instead):
        beamport.result(**given)


def test_dimensions_units_and_edges_are_those_given():
    edges = np.linspace(0, 1, 5)
    image = beamport.result(IMAGE, unit="counts", axes={"y": None, "x": (edges, "mm")}, attributes={"n": 1, "s": "t"})
    kind, name, variables, _ = said(image)[2:]
    assert (kind, name) == ("variables", None)
    assert [(v[0], v[1], v[3]) for v in variables] == [
        ("signal", "counts", ["y", "x"]),
        ("x", "mm", ["x"]),
        ("n", None, []),
        ("s", None, []),
    ]
    units = {"signal": "1/cm", "Q": "1/angstrom"}
    curve = beamport.result({"signal": Q, "errors": Q, "Q": Q}, unit=units, axes=["Q"], name="I")
    assert [v[:4] for v in said(curve)[4]] == [
        ("signal", "1/cm", "I", ["Q"]),
        ("errors", "1/cm", None, ["Q"]),
        ("Q", "1/angstrom", None, ["Q"]),
    ]


def test_a_message_and_a_dict_are_one_and_a_list_is_several(messages):
    frame = messages["frame"]
    of, is_named, kind, _, content, attributes = said((frame, {"beam": 1.0}))
    assert (of, is_named, kind, content) == (frame, False, "frame", frame)
    assert [name for name, _ in attributes] == ["beam"]
    assert said([frame, {"beam": 1.0}]) is None
    with pytest.raises(TypeError, match="a message of schema f144 is passed on as it is"):
        said((messages["number"], {"beam": 1.0}))
    assert said(beamport.result(frame, unit="counts", axes=["y", "x"]))[2] == "variables"


def frames(memory, count: int):
    """A batch of frames, each of its own number."""
    data = beamport.open(memory)
    with data.create("camera", level="memory") as stream:
        for number in range(count):
            fields = {"source_name": "c", "id": number, "timestamp": T0 + number, "data": np.full((2, 3), number, "u1")}
            stream.append("ad00", fields)
    return next(data["camera"].batches())


def test_frames_of_a_batch_are_one_array_and_a_list_is_one_result_for_each(memory):
    batch = frames(memory, 3)
    seen = []

    @beamport.worker(batch=3, gather=True)
    def code(images):
        seen.append(images)
        return [images[0].sum(), beamport.result(images[1].sum(), name="n"), (images[2], {"x": 1})]

    one, two, three = Code(code, {}).call(batch)
    assert seen[0].shape == (3, 2, 3) and seen[0].flags.writeable and (seen[0][2] == 2).all()
    assert (one.of.id, two.of.id, two.name, three.of.id) == (0, 1, "n", 2) and set(three.attributes) == {"x"}


def test_a_short_batch_is_padded_and_says_how_many_are_real(memory):
    batch = frames(memory, 3)

    @beamport.worker(batch=8, gather=True, pad=True)
    def code(images, count):
        assert images.shape == (8, 2, 3) and (images[count:] == 0).all()
        return list(images.mean(axis=(1, 2)))

    assert [(one.value, one.of.id) for one in Code(code, {}).call(batch)] == [(0.0, 0), (1.0, 1), (2.0, 2)]
    with pytest.raises(ValueError, match="batch=8"):
        beamport.worker(gather=True)
    with pytest.raises(ValueError, match="gather=True"):
        beamport.worker(batch=8, pad=True)


class PinnedMemory:
    """In the place of PyTorch and CuPy, which need a GPU for page-locked memory."""

    uint8 = np.uint8

    def __init__(self):
        self.asked = []

    def empty(self, count, dtype, pin_memory):
        assert dtype is np.uint8 and pin_memory
        self.asked.append(count)
        return types.SimpleNamespace(numpy=lambda: np.full(count, 7, np.uint8))

    @staticmethod
    def fail(*_, **__):
        raise RuntimeError("no CUDA driver")

    def empty_pinned(self, shape, dtype):
        self.asked.append((shape, dtype))
        return np.full(shape, 7, dtype)


@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_frames_are_gathered_into_page_locked_memory_of_the_library_at_hand(memory, monkeypatch, library):
    batch = frames(memory, 3)
    memory_of = PinnedMemory()
    for name in ("torch", "cupy", "cupyx"):
        monkeypatch.setitem(sys.modules, name, memory_of if name.startswith(library) else None)

    @beamport.worker(batch=4, gather="pinned", pad=True)
    def code(images, count):
        assert (images[:count] == [[[0]], [[1]], [[2]]]).all() and (images[count:] == 0).all()
        return list(images.sum(axis=(1, 2)))

    dtype = batch[0].array.dtype
    assert [(one.value, one.of.id) for one in Code(code, {}).call(batch)] == [(0, 0), (6, 1), (12, 2)]
    assert memory_of.asked == ([24 * dtype.itemsize] if library == "torch" else [((4, 2, 3), dtype)])


def test_without_a_gpu_page_locked_memory_is_refused_with_what_to_write(memory, monkeypatch):
    batch = frames(memory, 2)
    code = Code(beamport.worker(batch=2, gather="pinned")(lambda images: 1.0), {})
    for name in ("torch", "cupy"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(beamport.Error, match="gather=True"):
        code.call(batch)
    torch = types.ModuleType("torch")
    torch.uint8, torch.empty = np.uint8, PinnedMemory.fail
    monkeypatch.setitem(sys.modules, "torch", torch)
    with pytest.raises(beamport.Error, match="no CUDA driver"):
        code.call(batch)
