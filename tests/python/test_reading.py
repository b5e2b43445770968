"""Messages and their views: what is read, from where to where, and that it stays."""

from __future__ import annotations

import datetime
import gc
import os
import threading
import time

import beamport
import numpy as np
import pytest
from beamport._core import _Writer
from payloads import SECOND, T0, ev44, f144, pixels_of, segment_of, write_events
from streaming_data_types import serialise_al00, serialise_da00
from streaming_data_types.alarm_al00 import Severity
from streaming_data_types.dataarray_da00 import Variable


def sequences(messages) -> list[int]:
    return [m.sequence for m in messages]


def test_two_lines_to_data(memory):
    write_events(memory / "detector", range(3))
    data = beamport.open(memory)
    for n, m in enumerate(data["detector"].read()):
        assert (m.sequence, m.source_time, m.origin, m.origin_seq) == (n, T0 + n * SECOND, "bank0", n)
        assert (m.schema, m.flags) == ("ev44", [])
        assert np.array_equal(m["pixel_id"], pixels_of(n))
        assert m["pixel_id"].dtype == np.int32
        assert m["reference_time"].tolist() == [T0 + n * SECOND]
        assert (m["source_name"], m["message_id"]) == ("bank0", n)
        assert bytes(m.payload) == ev44(n, T0 + n * SECOND, pixels_of(n))
        assert m.arrival_time <= time.time_ns()
    assert n == 2


def test_a_message_is_a_mapping(memory):
    write_events(memory / "detector", range(1))
    (m,) = beamport.open(memory)["detector"].read()
    names = ["source_name", "message_id", "reference_time", "reference_time_index", "time_of_flight", "pixel_id"]
    assert m.keys() == list(m) == list(m.fields()) == names
    assert len(m) == 6 and bool(m)
    assert "pixel_id" in m and "pixel" not in m
    assert dict(m).keys() == m.fields().keys()


def test_fields_of_other_schemas(memory):
    with _Writer(memory / "devices") as writer:
        writer.append(f144(1.5, T0), T0)
        writer.append(f144(np.array([1, 2, 3], dtype="i2"), T0), T0)
        writer.append(serialise_al00("temperature", T0, Severity.MAJOR, "too hot"), T0)
        counts = np.arange(6, dtype="f8").reshape(2, 3)
        signal = Variable(name="signal", data=counts, axes=["y", "x"], unit="counts")
        writer.append(serialise_da00("monitor", T0, [signal, Variable(name="note", data="dark")]), T0)
    scalar, array, alarm, histogram = beamport.open(memory)["devices"].read()
    assert scalar["value"] == 1.5 and isinstance(scalar["value"], float)
    assert array["value"].dtype == np.int16 and array["value"].tolist() == [1, 2, 3]
    assert alarm.fields() == {"source_name": "temperature", "timestamp": T0, "severity": "MAJOR", "message": "too hot"}
    signal, note = histogram["data"]
    assert np.array_equal(signal["data"], counts) and signal["data"].shape == (2, 3)
    assert not signal["data"].flags.writeable
    assert (signal["unit"], signal["axes"], signal["label"]) == ("counts", ["y", "x"], None)
    assert note["data"] == "dark"


def test_an_empty_array_is_an_array(memory):
    write_events(memory / "detector", range(1), count=0)
    (m,) = beamport.open(memory)["detector"].read()
    assert m["pixel_id"].shape == (0,) and m["pixel_id"].dtype == np.int32


@pytest.mark.parametrize("level", ["memory", "disk"])
def test_messages_without_bytes_are_messages(memory, disk, level):
    folder = memory if level == "memory" else disk
    with _Writer(folder / "s", level=level) as writer:
        for n in range(3):
            writer.append(b"", T0 + n, schema="tick", origin="clock")
        writer.flush()
    stream = beamport.open(folder)["s"]
    assert [(m.source_time - T0, m.schema, m.payload.shape) for m in stream.read()] == [
        (n, "tick", (0,)) for n in range(3)
    ]
    assert next(stream.batches()).times.tolist() == [T0, T0 + 1, T0 + 2]


def test_flags_have_names(memory):
    with _Writer(memory / "s") as writer:
        writer.append(f144(1, T0), T0, flags=3)
    (m,) = beamport.open(memory)["s"].read()
    assert m.flags == ["ahead", "suspect"]


def test_views_are_read_only(memory):
    write_events(memory / "detector", range(1))
    (m,) = beamport.open(memory)["detector"].read()
    for view in (m["pixel_id"], m.payload):
        with pytest.raises(ValueError, match="read-only"):
            view[0] = 1
        with pytest.raises(ValueError):
            view.flags.writeable = True
        with pytest.raises((BufferError, TypeError, ValueError)):
            memoryview(view).cast("B")[0] = 1


@pytest.mark.parametrize("level", ["memory", "disk"])
def test_views_lie_in_the_segment_and_copy_nothing(memory, disk, level):
    folder = memory if level == "memory" else disk
    writer = write_events(folder / "detector", range(4), close=False, level=level)
    assert writer.flush()
    a, b = list(beamport.open(folder)["detector"].read())[:2]
    assert np.shares_memory(a["pixel_id"], a["pixel_id"])
    assert np.shares_memory(a["pixel_id"], a.payload)
    assert not np.shares_memory(a["pixel_id"], b["pixel_id"])
    segment = segment_of(a["pixel_id"])
    assert os.path.basename(segment) == "p-00000000"
    assert segment == segment_of(b["pixel_id"]) == segment_of(a["time_of_flight"]) == segment_of(a.payload)
    writer.close()


def test_views_stay_when_the_ring_turns(memory):
    # One segment of eight: two would be a reader's quota, and what is read in between needs some.
    writer = write_events(memory / "detector", range(8), count=1000, close=False, when_full="drop-oldest")
    stream = beamport.open(memory)["detector"]
    iteration = stream.read()
    held = [m["pixel_id"] for m in iteration]
    message = next(stream.read(start=7))
    del iteration
    turns = 0
    for n in range(8, 8000):
        writer.append(ev44(n, T0 + n, pixels_of(n, 1000)), T0 + n, origin="bank0", origin_seq=n)
        if n % 500 == 0:
            # A reader in between, so that segments are mapped, let go and written again.
            assert sum(1 for _ in stream.read()) > 0
            gc.collect()
            turns += 1
    assert stream.first > 1000 and turns > 10
    for n, view in enumerate(held):
        assert np.array_equal(view, pixels_of(n, 1000)), f"message {n} changed under its view"
    assert np.array_equal(message["pixel_id"], pixels_of(7, 1000))
    writer.close()


def test_views_that_were_let_go_hold_no_memory(memory):
    writer = write_events(memory / "detector", range(1), close=False, when_full="drop-oldest")
    stream = beamport.open(memory)["detector"]

    def turn(first):
        for n in range(first, first + 1000):
            writer.append(ev44(n, T0 + n, pixels_of(n, 1000)), T0 + n)

    def gone_but_mapped():
        with open("/proc/self/maps") as maps:
            return sum(str(memory) in line and "(deleted)" in line for line in maps)

    held = []
    for round_ in range(2):
        held += [m["pixel_id"] for m in stream.read(start=-1)]
        turn(1 + round_ * 1000)
    assert gone_but_mapped() >= 2
    held.clear()
    turn(10_000)
    assert sum(1 for _ in stream.read()) > 0
    assert gone_but_mapped() <= 1
    writer.close()


def test_many_iterations_take_one_place(memory):
    """A stream has places for 255 readers; iterations that were ended or held as views must not use them up."""
    write_events(memory / "detector", range(3))
    stream = beamport.open(memory)["detector"]
    held = [next(stream.read(start=n % 3))["pixel_id"] for n in range(600)]
    assert all(np.array_equal(view, pixels_of(n % 3)) for n, view in enumerate(held))


def test_since_and_until(memory):
    write_events(memory / "detector", range(10))
    read = beamport.open(memory)["detector"].read
    at = T0 + 4 * SECOND
    assert sequences(read(since=at)) == [4, 5, 6, 7, 8, 9]
    assert sequences(read(until=at)) == [0, 1, 2, 3]
    assert sequences(read(since=at - 1, until=at + 1)) == [4]
    assert sequences(read(since="2026-03-01T12:00:04Z", until="2026-03-01 14:00:06+02:00")) == [4, 5]
    zone = datetime.timezone(datetime.timedelta(hours=-5))
    assert sequences(read(since=datetime.datetime(2026, 3, 1, 7, 0, 8, tzinfo=zone))) == [8, 9]
    assert sequences(read(since=np.datetime64("2026-03-01T12:00:08"))) == [8, 9]
    assert sequences(read(since=np.int64(at), until=np.datetime64(at + 1, "ns"))) == [4]
    assert sequences(read(since=at, until=at)) == []
    assert sequences(read(since=T0 + 20 * SECOND)) == []


def test_since_ago(memory):
    now = time.time_ns()
    with _Writer(memory / "s") as writer:
        for age_min in (30, 20, 10, 0):
            writer.append(f144(1, now), now - age_min * 60 * SECOND)
    read = beamport.open(memory)["s"].read
    assert sequences(read(since="-15 min")) == [2, 3]
    assert sequences(read(since="-0.5 h", until="-15min")) in ([1], [0, 1])
    assert sequences(read(until="now", since="-1 d")) == [0, 1, 2, 3]


def test_absurd_source_times_are_read(memory):
    """A source may say what it likes; only `since` and `until` look at it."""
    times = [2**63 - 1, -(2**63), 0, -1, 2**63 - 2]
    with _Writer(memory / "s") as writer:
        for t in times:
            writer.append(f144(1, T0), t, origin="wild")
    read = beamport.open(memory)["s"].read
    assert [m.source_time for m in read()] == times
    assert [m.source_time for m in read(origin="wild")] == times
    assert [m.source_time for m in read(since=-1, until=1)] == [0, -1]
    assert next(beamport.open(memory)["s"].batches()).times.tolist() == times


def test_source_times_need_not_rise(memory):
    times = [5, 1, 9, 3, 7, 1, 8, 2] * 200
    with _Writer(memory / "s", live=1 << 24) as writer:
        for t in times:
            writer.append(f144(t, T0), T0 + t)
    got = sequences(beamport.open(memory)["s"].read(since=T0 + 2, until=T0 + 4))
    assert got == [n for n, t in enumerate(times) if t in (2, 3)]


def test_where_the_clock_is_not_the_epoch_arrival_counts(memory):
    with _Writer(memory / "s", clock="ticks") as writer:
        for n in range(5):
            writer.append(f144(n, 0), n)
    stream = beamport.open(memory)["s"]
    assert stream.clock == "ticks"
    arrivals = [m.arrival_time for m in stream.read()]
    assert sequences(stream.read(since="-1 h")) == [0, 1, 2, 3, 4]
    assert sequences(stream.read(until="-1 h")) == []
    assert sequences(stream.read(since=arrivals[2], until=arrivals[4])) == [
        n for n, a in enumerate(arrivals) if arrivals[2] <= a < arrivals[4]
    ]


def test_start_and_stop_are_as_in_a_slice(memory):
    write_events(memory / "detector", range(10))
    read = beamport.open(memory)["detector"].read
    everything = list(range(10))
    for start, stop in [
        (None, None),
        (3, None),
        (None, 3),
        (2, 5),
        (-3, None),
        (-30, None),
        (None, -2),
        (-4, -1),
        (5, 2),
    ]:
        assert sequences(read(start=start, stop=stop)) == everything[start:stop], (start, stop)
    assert sequences(read(start=5, since=T0 + 7 * SECOND)) == [7, 8, 9]
    assert sequences(read(start=20)) == []


def test_filters(memory):
    with _Writer(memory / "devices") as writer:
        for n in range(12):
            origin = ("temperature", "slit", "field")[n % 3]
            payload = ev44(n, T0, [n]) if n % 2 else f144(n, T0)
            writer.append(payload, T0 + n, origin=origin)
    stream = beamport.open(memory)["devices"]
    assert stream.origins == ["temperature", "slit", "field"]
    assert {m.origin for m in stream.read()} == set(stream.origins)
    assert sequences(stream.read(origin="slit")) == [1, 4, 7, 10]
    assert sequences(stream.read(schema="f144")) == [0, 2, 4, 6, 8, 10]
    assert sequences(stream.read(schema="f144", origin="slit", since=T0 + 5)) == [10]
    assert sequences(stream.read(schema="al00")) == []


def test_follow_ends_after_its_timeout(memory):
    write_events(memory / "detector", range(2))
    read = beamport.open(memory)["detector"].read
    assert sequences(read(follow=True, timeout=0.2)) == [0, 1]
    assert sequences(read(follow=True, timeout=0, start=1)) == [1]
    # Its `until` is past: all that can come has come.
    assert sequences(read(follow=True, until="2026-03-01T12:00:01Z")) == [0]
    # So has its `stop`.
    assert sequences(read(follow=True, stop=2)) == [0, 1]


def test_follow_sees_what_another_thread_appends(memory):
    """The thread can only append while waiting lets go of the interpreter."""
    writer = write_events(memory / "detector", range(1), close=False)
    messages = beamport.open(memory)["detector"].read(follow=True, timeout=60)
    assert next(messages).sequence == 0
    appender = threading.Timer(0.3, lambda: writer.append(ev44(1, T0, [7]), T0))
    appender.start()
    assert next(messages)["pixel_id"].tolist() == [7]
    appender.join()
    writer.close()


def test_without_follow_the_end_is_where_it_was(memory):
    writer = write_events(memory / "detector", range(2), close=False)
    messages = beamport.open(memory)["detector"].read()
    writer.append(ev44(2, T0, [1]), T0)
    assert sequences(messages) == [0, 1]
    writer.close()


@pytest.mark.parametrize("level", ["memory", "disk"])
def test_reading_goes_on_over_a_new_writer(memory, disk, level):
    folder = memory if level == "memory" else disk
    write_events(folder / "detector", range(2), level=level)
    stream = beamport.open(folder)["detector"]
    identity = (stream.uuid, stream.epoch)
    assert not stream.written
    messages = stream.read(follow=True, timeout=60)
    assert [next(messages).sequence, next(messages).sequence] == [0, 1]
    writer = write_events(folder / "detector", [2], close=False, level=level)
    assert writer.flush()
    assert stream.written
    m = next(messages)
    assert m.sequence == 2 and np.array_equal(m["pixel_id"], pixels_of(2))
    assert (stream.uuid, stream.epoch, stream.count) == (*identity, 3)
    writer.close()


def test_a_disk_stream_without_its_shared_memory(disk):
    """As after a restart of the machine: the folder alone. A writer that ends in order leaves it so."""
    write_events(disk / "detector", range(50), level="disk")
    live = next(line for line in (disk / "detector" / "stream").read_text().splitlines() if line.startswith("live "))
    assert not os.path.exists(live.removeprefix("live "))
    stream = beamport.open(disk)["detector"]
    assert (stream.level, stream.first, stream.count, stream.disk) == ("disk", 0, 50, 50)
    assert [m["pixel_id"].tolist() for m in stream.read()] == [pixels_of(n).tolist() for n in range(50)]


def test_count_is_what_can_be_read(disk):
    """Of a disk stream that is being written: what is not safe yet is neither counted nor read."""
    writer = write_events(disk / "detector", range(3), level="disk", close=False)
    assert writer.flush()
    stream = beamport.open(disk)["detector"]
    readable = set()
    for n in range(3, 400):
        writer.append(ev44(n, T0 + n, pixels_of(n)), T0 + n, origin="bank0", origin_seq=n)
        count = stream.count
        assert sequences(stream.read(start=count - 1))[0] == stream[count - 1].sequence == count - 1
        assert sequences(stream.read(stop=count)) == list(range(count))
        assert len(stream) >= count and stream[-1].sequence >= count - 1 and stream.disk >= count
        assert count <= int(repr(stream).removesuffix(">").rpartition(" ")[2]) <= stream.count
        readable.add(n + 1 - count)
    assert max(readable) > 0, "the disk was always as fast as the test"
    assert writer.flush()
    assert stream.count == 400
    writer.close()


def test_early_reads_past_the_disk_mark(disk):
    writer = write_events(disk / "detector", range(3), level="disk", close=False)
    stream = beamport.open(disk)["detector"]
    assert sequences(stream.read(early=True)) == [0, 1, 2]
    assert writer.flush()
    assert stream.disk == 3
    assert sequences(stream.read()) == [0, 1, 2]
    writer.close()


def test_a_stream_that_was_made_anew_is_read_anew(memory):
    """Readers are kept for the next iteration; they must not show the stream of before."""
    write_events(memory / "detector", range(5))
    stream = beamport.open(memory)["detector"]
    before = stream.uuid
    assert len(list(stream.read())) == 5
    for file in list((memory / "detector").rglob("*")):
        if file.is_file():
            file.unlink()
    write_events(memory / "detector", range(2))
    assert stream.uuid != before
    assert (stream.count, sequences(stream.read())) == (2, [0, 1])


def test_closing_an_iteration_ends_it(memory):
    write_events(memory / "detector", range(5))
    messages = beamport.open(memory)["detector"].read()
    first = next(messages)
    messages.close()
    assert list(messages) == []
    assert np.array_equal(first["pixel_id"], pixels_of(0))


def test_a_data_folder_is_a_mapping(memory):
    data = beamport.open(str(memory))
    assert len(data) == 0 and data.streams == [] and data.runs == []
    write_events(memory / "detector", range(1))
    write_events(memory / "monitor", range(1))
    for ours in ("file.commits", "runs", "control", "status"):
        write_events(memory / ours, range(1))
    (memory / "files").mkdir()
    assert list(data) == ["detector", "monitor"] and "monitor" in data and "files" not in data
    assert [stream.name for stream in data.streams] == ["detector", "monitor"]
    assert data["file.commits"].count == 1
    assert data["detector"].folder == memory / "detector"
    assert data.get("nope") is None
    assert data.folder == memory and "detector, monitor" in repr(data)
