"""Usual mistakes of a beginner: each is answered with what to write instead."""

from __future__ import annotations

import datetime
import pathlib
import types

import beamport
import numpy as np
import pytest
from beamport import testing

FRAMES = [np.full((4, 4), n, "u2") for n in range(4)]
T0 = 1_772_366_400_000_000_000


def of_library(package, name):
    """An object of a library that is not installed here."""
    return types.new_class(name, exec_body=lambda space: space.update(__module__=f"{package}.core"))()


RETURNED = {
    "a set": (lambda _: {1, 2}, "`sorted(value)`"),
    "objects": (lambda _: np.array([1, "a", None], object), "give one array for each"),
    "texts": (lambda _: np.array(["a", "b"]), "`a.tolist()`"),
    "complex": (lambda _: np.ones(3, complex), '`{"real": a.real, "imag": a.imag}`'),
    "dates": (lambda _: np.array(["2026-03-01"], "M8[s]"), '`a.astype("datetime64[ns]").astype("int64")`'),
    "records": (lambda _: np.zeros(3, [("x", "f4")]), "`{name: a[name] for name in a.dtype.names}`"),
    "long double": (lambda _: np.zeros(2, "g"), '`a.astype("float64")`'),
    "bytes": (lambda _: b"abc", "`np.frombuffer(value, np.uint8)`"),
    "a function": (lambda _: print, "write `()` behind it"),
    "a pandas table": (
        lambda _: of_library("pandas", "DataFrame"),
        "`{name: table[name].to_numpy() for name in table}`",
    ),
    "a torch tensor": (lambda _: of_library("torch", "Tensor"), "`value.detach().cpu().numpy()`"),
    "a cupy array": (lambda _: of_library("cupy", "ndarray"), "`cupy.asnumpy(value)`"),
    "an xarray": (
        lambda _: of_library("xarray", "DataArray"),
        "`beamport.result(value.values, axes=list(value.dims))`",
    ),
    "a scipp array": (lambda _: of_library("scipp", "DataArray"), "unit=str(value.unit)"),
    "a datetime": (lambda _: datetime.datetime.now(datetime.UTC), "`value.isoformat()`"),
    "a path": (lambda _: pathlib.Path("a"), "`str(value)`"),
    "an exception": (lambda _: ValueError("dark"), "`raise ValueError(...)`"),
    "a large integer": (lambda _: 1 << 80, "`float(value)`"),
    "a result of no message": (lambda _: beamport.result(1.0, of=3), "`of=message`"),
    "a result of a list": (lambda m: beamport.result(1.0, of=[m]), "`of=message`"),
    "a result of a result": (lambda m: beamport.result(beamport.result(1.0, of=m)), "in one `beamport.result(...)`"),
    "axes as a text": (lambda _: beamport.result(np.ones(3), axes="x"), '`["y", "x"]`'),
    "too many axes": (lambda _: beamport.result(np.ones(3), axes=["y", "x"]), "name each, slowest first"),
    "a unit of a number": (lambda _: beamport.result(1.0, unit=3), 'give a text such as "counts"'),
    "attributes as a list": (lambda _: beamport.result(1.0, attributes=["a"]), '`{"beam": 1.0}`'),
    "metadata that changes": (lambda m: m.metadata.update(x=1), '`message, {"name": value}`'),
    "an array that changes": (lambda m: np.add(m.array, 1, out=m.array), "`message.array.copy()`"),
    "an array that is set": (lambda m: setattr(m, "array", 3), "a message cannot be changed"),
    "a message as an array": (lambda m: m.mean(), "`message.values.mean`"),
    "a field as an attribute": (lambda m: m.timestamp, '`message["name"]`'),
    "a field of PvaPy": (lambda m: m["uniqueId"], "there are `attributes`, `data`, `dimensions`, `id`"),
}


@pytest.mark.parametrize("mistake", RETURNED)
def test_of_a_worker_for_a_message(mistake):
    code, instead = RETURNED[mistake]
    out = testing.run(lambda message: code(message), FRAMES)
    assert list(out) == [] and len(out.aside) == 4
    assert instead in out.aside[0].text


def batched(code, **words):
    return beamport.worker(lambda batch: code(batch), batch=2, **words)


def test_code_for_a_message_given_a_batch():
    out = testing.run(batched(lambda batch: batch.array.mean()), FRAMES)
    assert list(out) == [] and "`[m.array for m in batch]`" in out.aside[0].text


def test_a_field_that_is_set():
    def code(message):
        message["data"] = 3

    assert '`message, {"name": value}`' in testing.run(code, FRAMES).aside[0].text


def test_frames_of_several_shapes_are_gathered_one_by_one():
    # A batch that raises is tried again in messages.
    shapes = []
    out = testing.run(batched(lambda a: shapes.append(a.shape) or 1.0, gather=True), [np.ones((2, 2)), np.ones((3, 3))])
    assert shapes == [(1, 2, 2), (1, 3, 3)] and len(out) == 2 and out.aside == []


async def coroutine(message):
    return 1.0


async def asynchronous(message):
    yield 1.0


class NotCallable:
    pass


class Coroutine:
    async def __call__(self, message):
        return 1.0


class Saves:
    def __call__(self, message):
        return 1.0

    def save(self):
        return {}


class Begins:
    def __call__(self, message):
        return 1.0

    def begin(self):
        pass


def scaled(message, scale: float = 1.0):
    return scale


MADE = {
    "async def": (coroutine, {}, "write `def` in place of `async def`"),
    "async def with yield": (asynchronous, {}, "write `def` in place of `async def`"),
    "async def __call__": (Coroutine, {}, "write `def` in place of `async def`"),
    "no __call__": (NotCallable, {}, "write `def __call__(self, message):`"),
    "a name in place of code": ("mine.py:mean", {}, "a worker is a function or a class"),
    "no argument": (lambda: 1.0, {}, "`def mean(message):`"),
    "an argument too many": (lambda message, other: 1.0, {}, "missing a required argument: 'other'"),
    "save without restore": (Saves, {}, "no `restore`: add that"),
    "begin without the run": (Begins, {}, "`begin(self, run)`"),
    "per run of a function": (beamport.worker(lambda m: 1.0, per="run"), {}, "it is for classes"),
    "pad without count": (batched(np.mean, gather=True, pad=True), {}, "`def mean(frames, count):`"),
    "a parameter of another type": (scaled, {"scale": "abc"}, "`scale` is annotated as `float`"),
    "a parameter misspelled": (scaled, {"scael": 1}, "unexpected keyword argument 'scael'"),
}


@pytest.mark.parametrize("mistake", MADE)
def test_of_the_code_of_a_worker(mistake):
    code, parameters, instead = MADE[mistake]
    with pytest.raises(TypeError) as refused:
        testing.run(code, FRAMES, parameters)
    assert instead in str(refused.value)


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        ({"batch": "8"}, "`batch=8`"),
        ({"batch": 2.5}, "`batch=8`"),
        ({"batch": 0}, "at least one message"),
        ({"gather": True}, "give `batch=8` as well"),
        ({"batch": 2, "gather": "yes"}, "give `gather=True`"),
        ({"batch": 2, "pad": True}, "give `gather=True` as well"),
        ({"per": "frame"}, '`per` is "run"'),
        ({"of": "group"}, '`of` is "all"'),
    ],
)
def test_of_the_words_of_worker(words, instead):
    with pytest.raises((TypeError, ValueError)) as refused:
        beamport.worker(scaled, **words)
    assert instead in str(refused.value)


@pytest.mark.parametrize(
    ("given", "instead"),
    [(np.ones(3), "`[message]`"), (3, "`[frame]`"), (["a"], "`beamport.message(...)`")],
)
def test_of_what_is_given_to_a_test(given, instead):
    with pytest.raises(beamport.Error) as refused:
        testing.run(scaled, given)
    assert instead in refused.value.hint


def test_results_of_another_call_and_of_none():
    kept = []

    def code(message):
        kept.append(message)
        return beamport.result(float(message.id), of=kept[0])

    out = testing.run(code, FRAMES)
    assert [m.value for m in out] == [0.0] and [aside.index for aside in out.aside] == [1, 2, 3]
    assert "return it in the call that has its message" in out.aside[0].text

    foreign = beamport.message("f144", {"source_name": "a", "value": 1.0}, time=T0)
    out = testing.run(lambda _: beamport.result(1.0, of=foreign), FRAMES)
    assert list(out) == [] and "or make a message of your own with `beamport.message(...)`" in out.aside[0].text


def test_results_out_of_order_and_twice_are_exact():
    @beamport.worker(batch=4)
    def code(batch):
        return [beamport.result(float(m.id), of=m) for m in (batch[3], batch[0], batch[0], batch[1])]

    out = testing.run(code, FRAMES)
    assert [m.value for m in out] == [0.0, 0.0, 1.0, 3.0] and out.aside == []


@pytest.fixture(name="stream")
def stream_of_frames(tmp_path):
    data = beamport.open(tmp_path)
    with data.create("camera") as writer:
        for n, frame in enumerate(FRAMES):
            writer.append("ad00", {"source_name": "c", "id": n, "timestamp": T0 + n, "data": frame})
    return data["camera"]


READ = {
    "a time without a zone": ({"since": datetime.datetime(2026, 3, 1)}, "`.replace(tzinfo=datetime.UTC)`"),  # noqa: DTZ001
    "a text without a zone": ({"since": "2026-03-01T12:00:00"}, 'write "2026-03-01T12:00:00Z" for UTC'),
    "a time of day": ({"since": "14:03"}, '"2026-03-01T12:00:00Z"'),
    "a day": ({"since": "yesterday"}, '"-10 s"'),
    "seconds as a float": ({"since": 1.7e9}, "ns since 1970 as int"),
    "a number without a unit": ({"since": "-10"}, 'write "-10 s"'),
    "a timedelta": ({"since": datetime.timedelta(seconds=10)}, '"-10 s"'),
    "a schema of three letters": ({"schema": "ad0"}, 'like `schema="ev44"`'),
    "an origin that is not there": ({"origin": "d"}, 'like "c"'),
}


@pytest.mark.parametrize("mistake", READ)
def test_of_reading(stream, mistake):
    words, instead = READ[mistake]
    with pytest.raises(beamport.Error) as refused:
        list(stream.read(**words))
    assert instead in str(refused.value)


def test_of_slices_names_and_pickles(stream):
    with pytest.raises(beamport.Error, match=r"stream\[-10:\]\[::2\]"):
        stream[::2]
    with pytest.raises(IndexError, match="has messages 0 to 3, and no message 99"):
        stream[99]
    with pytest.raises(beamport.Error, match='write "data"'):
        stream[0]["dat"]


def test_of_writing(tmp_path):
    data = beamport.open(tmp_path)
    with data.create("camera") as writer:
        for content, fields, instead in (
            ("ad00", {"source_name": "c"}, "`id` is not given"),
            ("f144", {"source_name": "c", "valeu": 1.0}, "the fields are source_name, timestamp, value"),
            ("ad99", {"value": 1.0}, "`append(payload)`"),
            ("f144", None, '`append("f144", {"source_name": ...})`'),
        ):
            with pytest.raises(beamport.Error) as refused:
                writer.append(content, fields)
            assert instead in str(refused.value)
        for value, kind, instead in (
            (None, TypeError, "append a value"),
            ([np.ones(2), np.ones(3)], TypeError, "2 messages: append each of them"),
            ({1, 2}, TypeError, "`sorted(value)`"),
            (np.array(["a"]), TypeError, "`a.tolist()`"),
            (np.ones(20, "u1"), beamport.Error, "`append(beamport.result(value))`"),
            (b"abc", beamport.Error, "`append(payload)`"),
            ("dark", beamport.Error, "`append(beamport.result(value))`"),
        ):
            with pytest.raises(kind) as refused:
                writer.append(value)
            assert instead in str(refused.value)
        assert writer.count == 0
        with pytest.raises(beamport.Error, match="append to another stream"):
            data.create("camera")
    with pytest.raises(beamport.Error, match="choose a name of letters"):
        data.create("a b/c")


def test_of_opening(tmp_path):
    (tmp_path / "lab.toml").write_text("")
    for path, instead in (("lab.toml", "name its data folder, `data` in that file"), ("none", "`beamport demo`")):
        with pytest.raises(beamport.Error) as refused:
            beamport.open(tmp_path / path)
        assert instead in refused.value.hint
    with pytest.raises(beamport.Error, match=r'write `beamport.open\("."\)`'):
        beamport.open("")
    with pytest.raises(beamport.Error, match="start it with `beamport up FILE`"):
        beamport.open(tmp_path).begin("nickel-2")
    with pytest.raises(beamport.Error, match="return it, or run `beamport up`"):
        beamport.slot.send(1.0)
