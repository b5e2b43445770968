"""Streams that a Python program makes and writes: `data.create`, `append`, and who is refused."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import beamport
import numpy as np
import pytest
from beamport import wire

T0 = 1_772_366_400_000_000_000


@pytest.fixture(params=["memory", "disk"])
def data(request):
    """A data folder in memory, and one on disk."""
    return beamport.open(request.getfixturevalue(request.param))


def ev44(number, events, **changed):
    times = np.arange(events, dtype=np.int32)
    fields = {
        "source_name": "bank", "message_id": number, "reference_time": np.array([T0 + number]),
        "reference_time_index": np.array([0]), "time_of_flight": times, "pixel_id": times[::-1],
    }  # fmt: skip
    return {**fields, **changed}


def test_what_is_appended_is_read(data):
    assert list(data) == []
    with data.create("bank") as stream:
        assert (stream.name, stream.count) == ("bank", 0)
        # The small one goes by way of a buffer, the large one does not; the pixels are not in C order.
        assert [stream.append("ev44", ev44(n, events)) for n, events in enumerate((3, 100_000))] == [0, 1]
        # What is serialised already, with another origin and number, and a time as people write it.
        payload = wire.serialise_f144("T", 1.5, T0 + 5)
        assert stream.append(payload) == 2
        assert stream.append(memoryview(payload), time="2026-03-01T12:00:01Z", origin="other", origin_seq=40) == 3
        assert stream.append(payload, origin="other") == 4
        assert stream.wait() and stream.mark == 5
    assert data["bank"].level == ("memory" if data.folder.parts[1] == "dev" else "disk")
    messages = list(data["bank"].read())
    assert [(m.origin, m.origin_seq, m.source_time) for m in messages] == [
        ("bank", 0, T0), ("bank", 1, T0 + 1), ("T", 0, T0 + 5), ("other", 40, T0 + 10**9), ("other", 41, T0 + 5),
    ]  # fmt: skip
    for m, events in zip(messages, (3, 100_000), strict=False):
        np.testing.assert_array_equal(m["time_of_flight"], np.arange(events))
        np.testing.assert_array_equal(m["pixel_id"], np.arange(events)[::-1])
        assert m["pixel_id"].dtype == np.int32
        # Byte for byte what the serialiser makes.
        assert bytes(m.payload) == wire.serialise_ev44(*ev44(m["message_id"], events).values())
    assert bytes(messages[2].payload) == payload


def test_numbers_go_on_where_the_stream_ended(data):
    for first in (0, 2):
        with data.create("log") as stream:
            for n in range(first, first + 2):
                assert stream.append("f144", {"source_name": "T", "timestamp": n, "value": float(n)}) == n
    assert [m.origin_seq for m in data["log"].read()] == [0, 1, 2, 3]
    again = beamport.open(data.folder)
    assert [m["value"] for m in again["log"].read()] == [0, 1, 2, 3]


def test_a_value_is_appended_as_the_message_that_it_is_where_a_source_yields_it(data):
    q = np.arange(3.0)
    with data.create("values") as writer, data.create("copies") as copies:
        writer.append(np.ones((3, 4), "u2"))
        writer.append(1.5, origin="T", time=T0)
        writer.append({"note": ["hello", {"deep": 1}]})
        writer.append(beamport.result(q, name="I", unit="1/cm", axes={"Q": (q, "1/angstrom")}, time=T0, origin_seq=7))
        writer.append(beamport.result("dark"))
        writer.append((np.zeros(2), {"beam": 1.0}))
        writer.wait()
        for m in data["values"]:
            copies.append(m)
        copies.append(data["values"][3], origin="other")
    frame, value, json, curve, text, attributed = data["values"]
    assert frame.array.shape == (3, 4) and frame.origin == "values" and (frame.origin_seq, frame["id"]) == (0, 0)
    assert (value.value, value.origin, value.source_time, value.origin_seq) == (1.5, "T", T0, 0)
    assert json.value == {"note": ["hello", {"deep": 1}]} and json.origin_seq == 1
    assert (curve.schema, curve.origin, curve.source_time, curve.origin_seq) == ("da00", "I", T0, 7)
    assert text.value == "dark" and attributed.metadata == {"beam": 1.0} and attributed["id"] == 3
    *same, renamed = data["copies"]

    def key(m):
        return m.schema, m.origin, m.origin_seq, m.source_time, bytes(m.payload)

    assert [key(m) for m in same] == [key(m) for m in data["values"]]
    assert (renamed.origin, renamed.source_time, renamed.origin_seq) == ("other", T0, 7)


def test_every_schema_that_can_be_serialised_can_be_appended_by_its_fields(data):
    frame = np.arange(24, dtype=np.uint16).reshape(2, 3, 4)
    attributes = [{"name": "gain", "data": 2.5}, {"name": "mode", "description": "d", "source": "PV", "data": "fast"}]
    signal = np.arange(2000, dtype=np.float32).reshape(2, 1000)
    given = [
        ("ad00", {"source_name": "cam", "id": 7, "timestamp": T0, "data": frame, "attributes": attributes}),
        ("ad00", {"source_name": "cam", "id": 8, "timestamp": T0, "data": frame[:, ::-1]}),
        ("da00", {"source_name": "m", "timestamp": T0, "data": [{"name": "signal", "axes": ["a", "b"], "data": signal}]}),
        ("f144", {"source_name": "x", "timestamp": T0, "value": np.int16(3)}),
        ("f144", {"source_name": "x", "timestamp": T0, "value": [1.5, 2.5]}),
        ("f142", {"source_name": "x", "timestamp": T0, "value": ["a", "b"], "status": "HIGH", "severity": "MINOR"}),
        ("al00", {"source_name": "x", "timestamp": T0, "severity": "MAJOR", "message": "hot"}),
        ("tdct", {"name": "chopper", "timestamps": [T0, T0 + 1], "sequence_counter": 3}),
        ("se00", {"name": "s", "channel": 1, "packet_timestamp": T0, "time_delta": 0.5, "timestamp_location": "Start",
                  "values": np.arange(5, dtype=np.int8), "message_counter": 1}),
    ]  # fmt: skip
    with data.create("all") as stream:
        for schema, fields in given:
            stream.append(schema, fields)
        stream.append("mine", b"\x01\x02\x03")
    messages = list(data["all"].read())
    np.testing.assert_array_equal(messages[0].array, frame)
    assert messages[0].metadata == {"gain": 2.5, "mode": "fast"}
    np.testing.assert_array_equal(messages[1].array, frame[:, ::-1])
    read = wire.deserialise_da00(bytes(messages[2].payload))
    np.testing.assert_array_equal(read.data[0].data, signal)
    assert read.data[0].axes == ["a", "b"] and read.data[0].data.dtype == np.float32
    # A plain number of numpy keeps its type.
    assert bytes(messages[3].payload) == wire.serialise_f144("x", np.int16(3), T0)
    assert messages[4]["value"].tolist() == [1.5, 2.5]
    assert (messages[5]["value"], messages[5]["status"]) == (["a", "b"], "HIGH")
    assert (messages[6]["severity"], messages[7]["timestamps"].tolist()) == ("MAJOR", [T0, T0 + 1])
    assert messages[8]["values"].dtype == np.int8
    assert (messages[9].schema, bytes(messages[9].payload)) == ("mine", b"\x01\x02\x03")
    # Their makers are found under the name that each schema has for it.
    assert [m.origin for m in messages] == ["cam", "cam", "m", "x", "x", "x", "x", "chopper", "s", ""]


@pytest.mark.parametrize(
    ("schema", "fields", "why"),
    [
        ("ev44", ev44(0, 2, pixel_ids=[1]), "there is no field `pixel_ids`"),
        ("ev44", ev44(0, 2, pixel_id=[1 << 40, 1]), "`pixel_id` holds numbers that do not fit type int32"),
        ("ev44", ev44(0, 2, pixel_id=[1.5, 1]), "`pixel_id` holds numbers that do not fit type int32"),
        ("ev44", ev44(0, 2, pixel_id=[[1, 2]]), "`pixel_id` is not an array of one dimension"),
        ("ev44", ev44(0, 2, pixel_id=["a"]), "`pixel_id` is not numbers of type int32"),
        ("ev44", ev44(0, 2, message_id=None), "`message_id` cannot hold the value given"),
        ("ev44", ev44(0, 2, source_name=3), "`source_name` cannot hold the value given"),
        ("ad00", {"source_name": "c", "id": 1, "timestamp": 1, "data": np.array([1j])}, "`data` is not numbers"),
        ("ad00", {"source_name": "c", "id": 1, "timestamp": 1, "data": [1], "attributes": [3]}, "list of dictionaries"),
        ("da00", {"source_name": "c", "timestamp": 1, "data": [{"nme": "x"}]}, "no field `data[0].nme`"),
        ("f144", {"source_name": "x", "timestamp": 1, "value": "text"}, "`value` cannot hold the value given"),
        ("f144", {"source_name": "x"}, "`value` is not given"),
        ("f144", {"value": 1.5}, "`source_name` is not given"),
        ("f144", {"source_name": "x", "value": np.array([1j])}, "`value` is not numbers"),
        ("f144", {"source_name": "x", "value": np.array(["a"])}, "`value` is not numbers"),
        ("ev99", {}, "schema `ev99` is not one that is made of fields"),
        ("bprn", {}, "schema `bprn` is not one that is made of fields"),
        ("f144", None, "is given without `fields`"),
        ("mine!", b"x", "not a schema id of four letters"),
        (b"1", None, "its 1 bytes do not begin as a message does"),
        (b"12345678", {}, "without a schema"),
    ],
)
def test_what_cannot_be_a_message_is_refused_and_leaves_the_stream_as_it_was(memory, schema, fields, why):
    data = beamport.open(memory)
    with data.create("s") as stream:
        with pytest.raises(beamport.Error) as caught:
            stream.append(schema, fields)
        assert why in str(caught.value)
        assert stream.append("f144", {"source_name": "T", "timestamp": 1, "value": 1}) == 0


def test_a_stream_that_another_process_writes_is_refused_with_the_process(data):
    code = "import beamport, sys; s = beamport.open(sys.argv[1]).create('held'); print('ready', flush=True); input()"
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(data.folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdout.readline() == "ready\n"
        with pytest.raises(beamport.Error) as caught:
            data.create("held")
        assert caught.value.what == "cannot append to stream `held`"
        assert caught.value.cause == f"process {other.pid} writes it in {data.folder}"
        assert "[source.NAME]" in caught.value.hint
    finally:
        other.communicate("\n")
    data.create("held").close()


def test_names_and_states_that_are_wrong_are_refused(memory):
    data = beamport.open(memory)
    for name in ("runs", "x.commits", "../x", ""):
        with pytest.raises(beamport.Error, match="cannot append to"):
            data.create(name)
    with pytest.raises(beamport.Error, match="is not a level"):
        data.create("s", level="tape")
    stream = data.create("s", level="memory", live=1 << 20)
    assert "<beamport.Writer 's' of '" in repr(stream)
    stream.close()
    stream.close()
    with pytest.raises(beamport.Error, match="the writer is closed"):
        stream.append(wire.serialise_f144("T", 1.5, 1))
    assert "closed" in repr(stream)


def test_a_stream_in_memory_waits_for_a_named_reader(memory):
    data = beamport.open(memory)
    frame = {"source_name": "cam", "id": 1, "timestamp": T0, "data": np.zeros(200_000, np.uint8)}
    with data.create("frames", level="memory", live=1 << 20) as stream:
        stream.append("ad00", frame)
        code = (
            "import beamport, sys\n"
            "with beamport.open(sys.argv[1])['frames'].read(name='slow', follow=True) as messages:\n"
            "    print('ready', flush=True)\n"
            "    for n, m in enumerate(messages):\n"
            "        assert m['data'].sum() == 0\n"
            "        del m\n"
            "        messages.commit()\n"
            "        if n == 29: break\n"
        )
        reader = subprocess.Popen([sys.executable, "-c", code, str(memory)], stdout=subprocess.PIPE, text=True)
        assert reader.stdout.readline() == "ready\n"
        for _ in range(29):
            stream.append("ad00", frame)
        assert reader.wait(60) == 0 and stream.count == 30


def test_a_forked_process_does_not_write(memory):
    stream = beamport.open(memory).create("s")
    pid = os.fork()
    if pid == 0:
        try:
            stream.append(wire.serialise_f144("T", 1.5, 1))
        except beamport.Error as error:
            os._exit(7 if "fork" in str(error) else 1)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert stream.append(wire.serialise_f144("T", 1.5, 1)) == 0
    stream.close()


def test_what_is_left_out_is_what_stands_beside_the_message(memory):
    """Without a time it is now, or the one that is given; the same for the name."""
    data, before = beamport.open(memory), time.time_ns()
    with data.create("s") as stream:
        stream.append("f144", {"source_name": "T", "value": 1.5})
        stream.append("f144", {"source_name": "T", "value": 2.5}, time=T0)
        stream.append("f144", {"value": 3.5}, origin="P", time="-10 s")
        stream.append("ev42", ev42 := {"source_name": "b", "message_id": 1, "detector_id": [1], "time_of_flight": [2]})
        stream.append("tdct", {"timestamps": [T0], "sequence_counter": 1}, origin="chopper")
    assert set(ev42) == {"source_name", "message_id", "detector_id", "time_of_flight"}
    now, said, ago, events, chopper = data["s"].read()
    assert before <= now["timestamp"] == now.source_time <= time.time_ns()
    assert said["timestamp"] == said.source_time == T0
    assert (ago["source_name"], ago.origin) == ("P", "P") and ago["timestamp"] == ago.source_time < time.time_ns()
    assert events["pulse_time"] == events.source_time >= before
    assert (chopper["name"], chopper.source_time) == ("chopper", T0)
    assert beamport.message("f144", {"value": 1.5}, origin="T", time=7)["timestamp"] == 7


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (np.arange(6, dtype=">u2"), "uint16"),
        (np.arange(6, dtype=">f8")[::2], "float64"),
        (np.arange(6) > 2, "uint8"),
        (np.arange(6, dtype="f2"), "float32"),
        (True, "uint8"),
        (np.bool_(True), "uint8"),
        (np.arange(3, dtype=">i4")[1], "int32"),
    ],
)
def test_numbers_of_other_types_are_converted_as_those_of_workers_are(memory, value, dtype):
    data = beamport.open(memory)
    with data.create("s") as stream:
        stream.append("f144", {"source_name": "x", "value": value})
        stream.append("ad00", {"source_name": "x", "id": 1, "data": value})
        stream.append("da00", {"source_name": "x", "data": [{"name": "signal", "data": value}]})
    of_value, frame, array = data["s"].read()
    for read in (of_value.values, frame.array, array["data"][0]["data"]):
        np.testing.assert_array_equal(np.ravel(read), np.ravel(value))
    assert frame.array.dtype == array["data"][0]["data"].dtype == dtype
    assert of_value.values.dtype == dtype or of_value.values.ndim == 0
