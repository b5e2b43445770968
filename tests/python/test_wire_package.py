"""`beamport.wire` in the place of `streaming_data_types`: the same names, arguments and results, both ways.

Messages are made from seeds. Each is written by both and read by both, and all four readings must be the same.
"""

from __future__ import annotations

import datetime
import importlib
import inspect
import pkgutil
import random
import subprocess
from pathlib import Path

import beamport
import numpy as np
import pytest

streaming_data_types = pytest.importorskip("streaming_data_types", reason="pip install ess-streaming-data-types")
# It asks numpy for names of its first version when it writes and reads f142.
np.unicode_, np.string_ = np.str_, np.bytes_

import beamport.wire  # noqa: E402
from beamport._core import _Writer  # noqa: E402
from beamport.wire.exceptions import (  # noqa: E402
    BrokenBufferException,
    ShortBufferException,
    StreamingDataTypesException,
    WrongSchemaException,
)
from payloads import T0  # noqa: E402

SEEDS = range(30)
WHOLE = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
NUMBERS = [*WHOLE, "float32", "float64"]
MODULES = sorted(module.name for module in pkgutil.iter_modules(streaming_data_types.__path__))


class Dice(random.Random):
    """Arguments of each kind, with the extremes among them."""

    def text(self) -> str:
        return self.choice(["", "AMOR:SE:TEMP01", "grüezi °∞", "x" * self.randrange(300), '{"a": [1]}'])

    def whole(self, dtype: str) -> int:
        limits = np.iinfo(dtype)
        return self.choice([0, 1, int(limits.min), int(limits.max), self.randint(int(limits.min), int(limits.max))])

    def real(self) -> float:
        return self.choice([0.0, -1.5, 1e300, float("nan"), float("inf"), self.random()])

    def array(self, dtype: str, length: int | None = None) -> np.ndarray:
        length = self.randrange(20) if length is None else length
        numbers = np.random.default_rng(self.randrange(1 << 30))
        if dtype.startswith("float"):
            return numbers.normal(size=length).astype(dtype)
        limits = np.iinfo(dtype)
        return numbers.integers(limits.min, limits.max, size=length, dtype=dtype, endpoint=True)

    def vector(self, dtype: str, length: int | None = None):
        """As people give arrays: of the right type, of another one, as a list, not in a row."""
        array = self.array(dtype, length)
        small = self.array("int8", length) if dtype.startswith("int") else self.array("uint8", length)
        strided = np.repeat(array, 2)[::2]
        return self.choice([array, small, array.tolist(), strided])

    def moment(self) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(self.randrange(1, 1 << 33), self.choice([None, datetime.UTC]))


def events(dice, *columns):
    return (dice.text(), dice.whole("int64"), *(dice.vector(dtype) for dtype in columns))


def ev42(dice, package):
    isis = {"period_number": dice.whole("uint32"), "run_state": dice.randrange(2), "proton_charge": 0.25}
    columns = (dice.vector("uint32"), dice.vector("uint32"))
    return dice.text(), dice.whole("uint64"), dice.whole("uint64"), *columns, dice.choice([None, isis])


def value(dice):
    dtype = dice.choice(NUMBERS)
    array = dice.array(dtype)
    plain = [dice.whole("int64"), dice.real(), np.dtype(dtype).type(1), np.array(3, dtype)]
    return dice.choice([*plain, array, np.repeat(array, 3)[::3], [1, 2, 3], [0.5], []])


def f142(dice, package):
    given = dice.choice([value(dice), dice.text(), [dice.text(), dice.text()]])
    alarm = dice.choice([(), (dice.randrange(23),), (dice.randrange(23), dice.randrange(5))])
    return given, dice.text(), dice.whole("uint64"), *alarm


def module_of(package, name):
    return importlib.import_module(f"{package.__name__}.{name}")


def al00(dice, package):
    severity = dice.choice(list(module_of(package, "alarm_al00").Severity))
    return dice.text(), dice.whole("int64"), severity, dice.text()


def ep01(dice, package):
    status = dice.choice(list(module_of(package, "epics_connection_ep01").ConnectionInfo))
    return dice.whole("int64"), status, dice.text(), dice.choice([None, dice.text()])


def samples(dice, dtypes, moment):
    length = dice.randrange(1, 9)
    times = dice.choice([None, dice.vector("uint32", length)])
    head = (dice.text(), dice.whole("int32"), moment, dice.randrange(1 << 40), dice.randrange(1 << 62))
    return *head, dice.array(dice.choice(dtypes), length), dice.randrange(4), times


def histogram(dice, whole):
    shape = [dice.randrange(1, 5) for _ in range(dice.randrange(1, 4))]
    arrays = [f"{whole}32", f"{whole}64", "float32", "float64"]
    filled = lambda: dice.array(dice.choice(arrays), int(np.prod(shape))).reshape(shape)  # noqa: E731
    dims = [
        {"length": n, "bin_boundaries": dice.choice([dice.array(dice.choice(arrays), n + 1), list(range(n + 1))])}
        | dice.choice([{}, {"unit": dice.text(), "label": dice.text()}])
        for n in shape
    ]
    more = {"source": dice.text(), "info": dice.text(), "errors": filled(), "last_metadata_timestamp": 5}
    chosen = {name: more[name] for name in more if dice.random() < 0.5}
    time = dice.whole(f"{whole}64")
    return (chosen | {"timestamp": time, "current_shape": shape, "dim_metadata": dims, "data": filled()},)


def ad00(dice, package, name="area_detector_ad00", when=None):
    attribute = module_of(package, name).Attribute
    shape = [dice.randrange(1, 5) for _ in range(dice.randrange(1, 4))]
    array = dice.array(dice.choice(NUMBERS), int(np.prod(shape))).reshape(shape)
    data = dice.choice([array, np.asfortranarray(array), array[::-1], dice.text()])
    known = [dice.whole("int64"), dice.real(), dice.text(), dice.array(dice.choice(NUMBERS), dice.randrange(1, 4))]
    attributes = [attribute(dice.text(), dice.text(), dice.text(), one) for one in known]
    return dice.text(), dice.whole("int32"), when or dice.whole("int64"), data, attributes[: dice.randrange(5)]


def ndar(dice, package):
    dtype = dice.randrange(10)
    rows, columns = dice.randrange(1, 4), dice.randrange(1, 4)
    size = rows * columns * np.dtype(NUMBERS[dtype]).itemsize
    return dice.whole("int32"), [rows, columns], dtype, dice.array("uint8", size).tolist()


def da00(dice, package):
    variable = module_of(package, "dataarray_da00").Variable
    made = []
    for _ in range(dice.randrange(1, 4)):
        shape = [dice.randrange(0, 4) for _ in range(dice.randrange(1, 4))]
        array = dice.array(dice.choice(NUMBERS), int(np.prod(shape))).reshape(shape)
        words = {word: dice.text() for word in ("unit", "label", "source") if dice.random() < 0.5}
        if dice.random() < 0.6:
            data, words["axes"] = dice.choice([array, np.asfortranarray(array)]), ["x", "y", "z"][: array.ndim]
        else:
            data = dice.choice([dice.whole("int64"), dice.real(), "grüezi", array.reshape(-1)])
        made.append(variable(name=dice.text(), data=data, **words))
    return dice.text(), dice.whole("int64"), made


def answ(dice, package):
    words = (dice.text(), dice.text(), dice.text(), dice.randrange(2), dice.randrange(2))
    return *words, dice.text(), dice.whole("int32"), dice.moment()


def forwarder(dice, package, schema):
    module = module_of(package, f"forwarder_config_update_{schema}")
    update, protocol = module.UpdateType.UpdateType, module.Protocol.Protocol
    more = (dice.randrange(2),) if schema == "fc00" else ()
    protocols = [protocol.PVA, protocol.CA, protocol.FAKE]
    stream = lambda: module.StreamInfo(dice.text(), "f144", dice.text(), dice.choice(protocols), *more)  # noqa: E731
    streams = [stream() for _ in range(dice.randrange(4))]
    return dice.choice([update.ADD, update.REMOVE, update.REMOVEALL]), streams


def pl72(dice, package):
    spectra = module_of(package, "run_start_pl72").DetectorSpectrumMap
    times = [dice.choice([dice.whole("uint64"), dice.moment()]) for _ in range(2)]
    texts = [dice.text() for _ in range(6)]
    count = dice.randrange(9)
    mapped = dice.choice([None, spectra(dice.vector("int32", count), dice.vector("int32", count), count)])
    return dice.text(), dice.text(), *times, *texts, mapped, dice.text()


def run_stop(dice, package):
    when = dice.choice([None, dice.whole("uint64"), dice.moment()])
    return dice.text(), dice.text(), dice.choice([None, dice.text()]), dice.text(), when


# The arguments of each serialiser, from dice and for one of the two packages.
ARGUMENTS = {
    "6s4t": run_stop,
    "ADAr": lambda dice, package: ad00(dice, package, "area_detector_ADAr", dice.moment()),
    "NDAr": ndar,
    "ad00": ad00,
    "al00": al00,
    "an44": lambda dice, _: events(dice, "int64", "int32", "int32", "int32", "int16"),
    "answ": answ,
    "da00": da00,
    "ep00": lambda dice, _: (dice.whole("uint64"), dice.randrange(5), dice.text(), dice.choice([None, dice.text()])),
    "ep01": ep01,
    "ev42": ev42,
    "ev43": lambda dice, _: (dice.text(), dice.whole("uint64"), *(dice.vector("uint32") for _ in range(4))),
    "ev44": lambda dice, _: events(dice, "int64", "int32", "int32", "int32"),
    "f142": f142,
    "f144": lambda dice, _: (dice.text(), value(dice), dice.whole("int64")),
    "fc00": lambda dice, package: forwarder(dice, package, "fc00"),
    "hs00": lambda dice, _: histogram(dice, "uint"),
    "hs01": lambda dice, _: histogram(dice, "int"),
    "json": lambda dice, _: (dice.text(),),
    "ns10": lambda dice, _: (f" {dice.text()}", dice.text(), dice.real(), dice.real(), dice.random() < 0.5),
    "pl72": pl72,
    "rf5k": lambda dice, package: forwarder(dice, package, "rf5k"),
    "se00": lambda dice, _: samples(dice, NUMBERS, dice.whole("int64")),
    "senv": lambda dice, _: samples(dice, WHOLE, dice.moment()),
    "tdct": lambda dice, _: (dice.text(), dice.vector("uint64"), dice.choice([None, dice.whole("uint64")])),
    "wrdn": lambda dice, _: (dice.text(), dice.text(), dice.random() < 0.5, dice.text(), None, dice.text()),
    "x5f2": lambda dice, _: (*(dice.text() for _ in range(4)), *(dice.whole("uint32") for _ in range(2)), dice.text()),
}


# Those that the released package of the ESS lacks: three are in that of ISIS (`test_wire_isis.py`), one in the ESS'
# repository. Theirs are the vectors.
ELSEWHERE = {
    "un00": lambda dice: (dice.text(), dice.whole("int64"), dice.choice([None, dice.text()])),
    "pu00": lambda dice: (
        dice.text(),
        dice.whole("int64"),
        dice.whole("int64"),
        *dice.choice([(None, None, None), (dice.whole("uint32"), 0, 0.25)]),
    ),
    "vc00": lambda dice: (dice.whole("int64"), dice.whole("uint32"), [dice.text().encode() for _ in range(32)]),
    "ar51": lambda dice: (dice.text(), dice.whole("int64"), dice.array("uint8")),
}


def assert_same(found, wanted, place=""):
    """The same names, values and types, whichever package's classes they are of."""
    if hasattr(wanted, "_fields"):
        assert found._fields == wanted._fields, place
        for name in wanted._fields:
            assert_same(getattr(found, name), getattr(wanted, name), f"{place}.{name}")
    elif isinstance(wanted, dict):
        assert list(found) == list(wanted), place
        for name in wanted:
            assert_same(found[name], wanted[name], f"{place}.{name}")
    elif isinstance(wanted, list | tuple):
        assert type(found) is type(wanted) and len(found) == len(wanted), place
        for at, (one, other) in enumerate(zip(found, wanted, strict=True)):
            assert_same(one, other, f"{place}[{at}]")
    elif isinstance(wanted, np.ndarray):
        assert isinstance(found, np.ndarray) and found.dtype == wanted.dtype and found.shape == wanted.shape, place
        assert np.array_equal(found, wanted, equal_nan=wanted.dtype.kind == "f"), place
    elif type(wanted).__name__ in ("Attribute", "Variable"):
        assert_same(vars(found), vars(wanted), place)
    elif hasattr(wanted, "name") and hasattr(wanted, "value"):
        assert (type(found).__name__, found.name, found.value) == (type(wanted).__name__, wanted.name, wanted.value)
    else:
        assert type(found) is type(wanted), f"{place}: {found!r} {wanted!r}"
        assert found == wanted or (found != found and wanted != wanted), place


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """NDAr and pl72 say when they were made."""
    monkeypatch.setattr("time.time", lambda: 1_700_000_000.123)


@pytest.mark.parametrize("schema", sorted(ARGUMENTS))
def test_both_read_what_both_write(schema):
    for seed in SEEDS:
        messages, readers = [], []
        for package in (streaming_data_types, beamport.wire):
            arguments = ARGUMENTS[schema](Dice(seed), package)
            messages.append(package.SERIALISERS[schema](*arguments))
            readers.append(package.DESERIALISERS[schema])
        theirs, ours = messages
        assert type(ours) is bytes and ours[4:8] == theirs[4:8]
        wanted = readers[0](theirs)
        for message, reader in ((ours, readers[0]), (theirs, readers[1]), (ours, readers[1])):
            assert_same(reader(message), wanted, f"{schema}, seed {seed}: ")


@pytest.mark.parametrize("schema", sorted(ELSEWHERE))
def test_what_is_elsewhere_comes_back(schema):
    for seed in SEEDS:
        given = ELSEWHERE[schema](Dice(seed))
        message = beamport.wire.SERIALISERS[schema](*given)
        assert_same(tuple(beamport.wire.DESERIALISERS[schema](message)), given)
        vectors = Path(__file__).resolve().parents[1] / "vectors" / "wire"
        theirs = (vectors / f"{schema}.bin").read_bytes()
        assert (
            beamport.wire.SERIALISERS[schema](*beamport.wire.DESERIALISERS[schema](theirs))
            == (vectors / "ours" / f"{schema}.bin").read_bytes()
        )


def test_every_schema_of_the_package_is_there():
    assert set(streaming_data_types.SERIALISERS) == set(ARGUMENTS)
    ours = (beamport.wire.SERIALISERS, beamport.wire.DESERIALISERS)
    for found, wanted in zip(ours, (streaming_data_types.SERIALISERS, streaming_data_types.DESERIALISERS), strict=True):
        assert list(found) == [*wanted, *ELSEWHERE]
        assert all(getattr(beamport.wire, function.__name__) is function for function in found.values())


def parameters(function) -> list[tuple]:
    """Names and defaults; a default list is given as an empty tuple by us."""
    found = inspect.signature(function).parameters.values()
    return [(one.name, one.default if one.default != [] else ()) for one in found]


@pytest.mark.parametrize("name", [name for name in MODULES if name not in ("fbschemas", "_version")])
def test_a_submodule_has_the_same_names(name):
    theirs, ours = module_of(streaming_data_types, name), module_of(beamport.wire, name)
    assert getattr(ours, "FILE_IDENTIFIER", None) == getattr(theirs, "FILE_IDENTIFIER", None)
    for word, thing in vars(theirs).items():
        if word.startswith("_") or getattr(thing, "__module__", None) != theirs.__name__:
            continue
        if inspect.isfunction(thing) and word.startswith(("serialise_", "deserialise_", "get_schema", "check_")):
            if word != "serialise_stream":
                assert parameters(getattr(ours, word)) == parameters(thing), word
        elif word == "SerialiserFunctions":
            continue  # how it is made
        elif inspect.isclass(thing) and hasattr(thing, "_fields"):
            assert getattr(ours, word)._fields == thing._fields, word
            assert getattr(ours, word).__name__ == thing.__name__, word
        elif inspect.isclass(thing):
            assert hasattr(ours, word), word


def test_enums_are_where_they_were():
    seen = 0
    theirs = streaming_data_types.fbschemas
    for _, name, _ in pkgutil.walk_packages(theirs.__path__, ""):
        package = importlib.import_module(f"{theirs.__name__}.{name}")
        ours = f"beamport.wire.fbschemas.{name}"
        for module in pkgutil.iter_modules(package.__path__):
            enum = getattr(importlib.import_module(f"{package.__name__}.{module.name}"), module.name, None)
            numbers = {word: number for word, number in vars(enum or object).items() if isinstance(number, int)}
            # Tags of unions are for tables, which are not here; nor are schemas that nobody uses.
            if not numbers or "NONE" in numbers or name == "nmx_mo01":
                continue
            mine = getattr(importlib.import_module(f"{ours}.{module.name}"), module.name)
            assert {word: getattr(mine, word) for word in numbers} == numbers, f"{name}.{module.name}"
            seen += 1
    assert seen >= 14


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_arrays_are_read_only_views_of_the_buffer(kind):
    pixels = np.arange(1000, dtype="int32")
    message = beamport.wire.serialise_ev44("bank", 1, [5], [0], pixels, pixels)
    buffer = kind(message)
    whole = np.frombuffer(buffer, np.uint8)
    events = beamport.wire.deserialise_ev44(buffer)
    for array in (events.pixel_id, events.time_of_flight, events.reference_time):
        assert np.shares_memory(array, whole) and not array.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    del buffer, whole
    assert np.array_equal(events.pixel_id, pixels), "a view keeps its buffer"


def test_views_of_odd_places():
    pixels = np.arange(10, dtype="int32")
    message = beamport.wire.serialise_ev44("bank", 1, [5], [0], pixels, pixels)
    for shift in (1, 2, 3):
        moved = memoryview(b"x" * shift + message)[shift:]
        events = beamport.wire.deserialise_ev44(moved)
        assert np.array_equal(events.pixel_id, pixels) and np.array_equal(events.reference_time, [5])


def test_wrong_and_broken_buffers_have_their_exceptions():
    message = beamport.wire.serialise_ev44("bank", 1, [5], [0], [1], [2])
    for schema, read in beamport.wire.DESERIALISERS.items():
        with pytest.raises(ShortBufferException):
            read(b"1234567")
        if schema != "ev44":
            with pytest.raises(WrongSchemaException, match=f"expected {schema} but got ev44"):
                read(message)
    for end in range(8, len(message) - 8):
        with pytest.raises(BrokenBufferException, match="not a message of schema ev44"):
            beamport.wire.deserialise_ev44(message[:end])
    assert issubclass(BrokenBufferException, StreamingDataTypesException)
    assert beamport.wire.utils.get_schema(message) == "ev44"
    with pytest.raises(TypeError):
        beamport.wire.deserialise_ev44("text")


@pytest.mark.parametrize("schema", sorted(ARGUMENTS))
def test_mutated_buffers_are_messages_or_exceptions(schema):
    dice = Dice(7)
    for _ in range(100):
        message = bytearray(beamport.wire.SERIALISERS[schema](*ARGUMENTS[schema](dice, beamport.wire)))
        for _ in range(dice.randrange(1, 6)):
            message[dice.choice([*range(4), *range(8, len(message))])] = dice.randrange(256)
        try:
            beamport.wire.DESERIALISERS[schema](message)
        # A shape that does not fit is numpy's to refuse; an hour past the year 9999 is that of `datetime`.
        except (StreamingDataTypesException, ValueError, OverflowError):
            pass


def test_what_a_schema_cannot_hold_is_refused():
    wire = beamport.wire
    for given in (True, "text", 1j, None, object(), [[1]], np.zeros((2, 2)), 2**64, np.array([1], ">i4"), ["a"]):
        with pytest.raises(NotImplementedError):
            wire.serialise_f144("source", given)
    for source, number, pixels in ((1, 1, []), ("x", 1.5, []), ("x", 2**63, []), ("x", 1, [[1]]), ("x", 1, "text")):
        with pytest.raises((TypeError, OverflowError, ValueError)):
            wire.serialise_ev44(source, number, [1], [0], pixels, [])
    with pytest.raises(TypeError, match="senv"):
        wire.serialise_senv("x", 0, datetime.datetime.now(), 1, 1, [1.5])
    with pytest.raises(TypeError, match="process_id"):
        wire.serialise_x5f2("", "", "", "", -1, 0, "")
    with pytest.raises(TypeError, match="wrdn"):
        wire.serialise_wrdn("", "", False, None)
    with pytest.raises(TypeError, match="action"):
        wire.serialise_answ("", "", "", 9, 0, "", 0, datetime.datetime.now())
    with pytest.raises(RuntimeError):
        wire.serialise_da00("x", 1, [])
    with pytest.raises(NotImplementedError):
        wire.serialise_f142(np.zeros((2, 2)), "x")


def test_messages_of_every_schema_go_through_a_stream(memory):
    given = {schema: make(Dice(5), beamport.wire) for schema, make in ARGUMENTS.items()}
    given |= {schema: make(Dice(5)) for schema, make in ELSEWHERE.items()}
    with _Writer(memory / "all") as writer:
        for number, schema in enumerate(given):
            writer.append(beamport.wire.SERIALISERS[schema](*given[schema]), T0 + number)
        writer.flush()
    seen = []
    for m in beamport.open(memory)["all"].read():
        assert all(m[name] is not NotImplemented for name in m)
        seen.append(m.schema)
    assert seen == list(given)
    words = ["beamport", "cat", "all", "--data", memory, "--json"]
    lines = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(lines) == len(given)


def test_plain_numbers_of_numpy_are_numbers():
    for package in (streaming_data_types, beamport.wire):
        message = package.serialise_ns10("key", "value", np.float32(1.5), np.int64(3))
        assert beamport.wire.deserialise_ns10(message)[1:3] == (1.5, 3.0)
        message = package.serialise_ep01(
            np.int64(7), module_of(package, "epics_connection_ep01").ConnectionInfo(2), "x"
        )
        assert beamport.wire.deserialise_ep01(message).timestamp == 7
        message = package.serialise_f144("x", np.float32(1.5), np.int64(7))
        assert beamport.wire.deserialise_f144(message) == ("x", 1.5, 7)
        message = package.serialise_ev44("x", np.uint8(3), np.int64(5), 0, [], [])
        assert beamport.wire.deserialise_ev44(message).reference_time.tolist() == [5]


def test_histograms_of_other_integers_keep_their_values():
    given = {"timestamp": 1, "current_shape": [3], "dim_metadata": [{"length": 3, "bin_boundaries": [0, 1, 2, 3]}]}
    for schema, dtype in (("hs00", "int32"), ("hs01", "uint16")):
        message = beamport.wire.SERIALISERS[schema](given | {"data": np.array([1, 2, 3], dtype)})
        found = beamport.wire.DESERIALISERS[schema](message)
        assert found["data"].tolist() == [1, 2, 3] and found["errors"] == []
        assert_same(found, streaming_data_types.DESERIALISERS[schema](message))


def test_a_message_as_large_as_a_frame():
    frame = np.arange(3_000_000, dtype="uint16").reshape(1000, 3000)
    # More than what is kept between calls, and less again.
    for pixels in (np.tile(frame, (4, 1)), frame[:2]):
        found = beamport.wire.deserialise_ad00(beamport.wire.serialise_ad00("camera", 1, 2, pixels))
        assert np.array_equal(found.data, pixels)


VECTORS = sorted((Path(__file__).parents[1] / "vectors" / "wire").glob("*.bin"))


def test_damaged_messages_raised_whatever_numpy_says():
    dice, tried = Dice("damaged"), set()
    for path in VECTORS:
        whole = path.read_bytes()
        schema = whole[4:8].decode("latin-1")
        read = beamport.wire.DESERIALISERS.get(schema)
        if read is None:
            continue
        tried.add(schema)
        for turn in range(100):
            damaged = bytearray(whole)
            for _ in range(min(turn, dice.choice([1, 1, 2, 4]))):
                at = dice.randrange(8, len(damaged))
                damaged[at] = dice.choice([0, 1, 0x7F, 0x80, 0xFF, damaged[at] ^ 1 << dice.randrange(8)])
            try:
                read(bytes(damaged))
            except BrokenBufferException:
                assert turn, f"{path.name} is whole"
            except Exception as error:
                pytest.fail(f"{path.name}: {damaged.hex()}: {error!r}")
    assert tried == set(beamport.wire.DESERIALISERS)


@pytest.mark.parametrize("schema", ["hs00", "hs01"])
@pytest.mark.parametrize("shape", [[2, 4], [], [-1, 3], [-2, -3], [2**31 - 1, 2**31 - 1]])
def test_a_histogram_of_another_shape_raised_a_value_error(schema, shape):
    write, read = beamport.wire.SERIALISERS[schema], beamport.wire.DESERIALISERS[schema]
    if schema == "hs00":
        shape = [length % 2**32 for length in shape]
    metadata = [{"length": 2, "bin_boundaries": np.arange(3.0)}, {"length": 3, "bin_boundaries": np.arange(4.0)}]
    buffer = write({"timestamp": 1, "current_shape": shape, "dim_metadata": metadata, "data": np.zeros((2, 3))})
    with pytest.raises(BrokenBufferException, match=f"not a message of schema {schema}"):
        read(buffer)
