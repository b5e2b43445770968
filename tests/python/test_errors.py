"""Errors: each has a cause, and a hint that can be typed."""

from __future__ import annotations

import copy
import datetime
import pickle

import beamport
import numpy as np
import pytest
from beamport._core import _Writer
from beamport._when import nanoseconds
from payloads import T0, ev44, f144, pixels_of, remove, write_events


def refusal(call, *args, **kwargs) -> beamport.Error:
    with pytest.raises(beamport.Error) as caught:
        call(*args, **kwargs)
    error = caught.value
    assert error.what and error.cause, repr(error)
    assert str(error).startswith(error.what) and f"cause: {error.cause}" in str(error)
    return error


def test_a_folder_that_is_not_there(memory):
    error = refusal(beamport.open, memory / "nope")
    assert error.cause == "no such folder" and "beamport demo" in error.hint
    (memory / "file").write_text("")
    assert refusal(beamport.open, memory / "file").cause == "it is a file"


def test_a_stream_opened_as_a_folder(memory):
    write_events(memory / "detector", range(1))
    error = refusal(beamport.open, memory / "detector")
    assert error.hint.endswith(f'beamport.open("{memory}")["detector"]`')


def test_a_stream_that_is_not_there_names_those_that_are(memory):
    for name in ("detector", "monitor"):
        write_events(memory / name, range(1))
    data = beamport.open(memory)
    error = refusal(data.__getitem__, "detektor")
    assert isinstance(error, KeyError)
    assert error.cause == "there are `detector`, `monitor`" and error.hint == 'write "detector"'
    for name in ("../detector", "", ".", "..", "detector/../monitor", "/etc"):
        refusal(data.__getitem__, name)


def test_a_wrong_field_names_the_right_ones(memory):
    write_events(memory / "detector", range(1))
    (m,) = beamport.open(memory)["detector"].read()
    error = refusal(m.__getitem__, "pixel_ids")
    assert isinstance(error, KeyError) and error.what == "a message of schema ev44 has no field `pixel_ids`"
    assert "`time_of_flight`" in error.cause and error.hint == 'write "pixel_id"'


def test_an_unknown_origin_names_the_known_ones(memory):
    write_events(memory / "detector", range(1))
    stream = beamport.open(memory)["detector"]
    assert refusal(stream.read, origin="bank1").hint == 'write "bank0"'
    # While following it may still come.
    assert list(stream.read(origin="bank1", follow=True, timeout=0)) == []


@pytest.mark.parametrize("payload", [b"", b"\x10\0\0\0ev44", b"\xff" * 40, b"\0\0\0\0zz99" + b"\0" * 40])
def test_bytes_that_are_no_message_have_no_fields_but_a_payload(memory, payload):
    with _Writer(memory / "s") as writer:
        writer.append(payload, T0, schema="ev44")
    (m,) = beamport.open(memory)["s"].read()
    assert "m.payload" in refusal(m.__getitem__, "pixel_id").hint
    assert bytes(m.payload) == payload
    (batch,) = beamport.open(memory)["s"].batches()
    refusal(batch.concat, "pixel_id")


def test_messages_that_are_no_longer_there(memory):
    writer = write_events(memory / "detector", range(3000), count=1000, when_full="drop-oldest", close=False)
    stream = beamport.open(memory)["detector"]
    assert stream.first > 0
    error = refusal(list, stream.read(start=0))
    assert f"oldest message is {stream.first}" in error.cause and f"start={stream.first}" in error.hint
    assert [m.sequence for m in stream.read()] == list(range(stream.first, 3000))
    writer.close()


def test_a_reader_that_is_overtaken_is_told(memory):
    writer = write_events(memory / "detector", range(300), count=1000, when_full="drop-oldest", close=False)
    messages = beamport.open(memory)["detector"].read()
    seen = [next(messages)]
    for n in range(300, 4000):
        writer.append(ev44(n, T0, pixels_of(n, 1000)), T0)
    with pytest.raises(beamport.Error, match="no longer in the stream"):
        for m in messages:
            seen.append(m)
    for m in seen:
        assert np.array_equal(m["pixel_id"], pixels_of(m.sequence, 1000))
    writer.close()


def test_a_stream_that_is_made_anew_ends_who_follows_it(memory):
    write_events(memory / "detector", range(5))
    messages = beamport.open(memory)["detector"].read(follow=True, timeout=60)
    assert [next(messages).sequence for _ in range(5)] == [0, 1, 2, 3, 4]
    remove(memory / "detector")
    write_events(memory / "detector", range(3))
    assert "recreated" in refusal(next, messages).cause


def test_a_stream_that_is_removed_ends_who_follows_it(memory):
    write_events(memory / "detector", range(1))
    messages = beamport.open(memory)["detector"].read(follow=True, timeout=60)
    next(messages)
    remove(memory / "detector")
    assert "no stream" in refusal(next, messages).cause


def test_a_wrong_byte_is_named(disk):
    write_events(disk / "detector", range(5), level="disk")
    segment = disk / "detector" / "p-00000000"
    damaged = bytearray(segment.read_bytes())
    at = damaged.index(pixels_of(2).tobytes())
    damaged[at] ^= 1
    segment.write_bytes(damaged)
    messages = beamport.open(disk)["detector"].read()
    error = refusal(list, messages)
    assert "the payload of message 2 has a wrong checksum" in error.cause
    assert error.hint.endswith(f"`beamport verify detector --data {disk}`")


def test_a_header_of_another_version(memory):
    write_events(memory / "detector", range(1))
    (memory / "detector" / "stream").write_text("beamport-stream 9\n")
    error = refusal(beamport.open(memory).__getitem__, "detector")
    assert "not readable" in error.cause and error.hint


def test_a_second_writer_is_refused(memory):
    writer = write_events(memory / "detector", range(1), close=False)
    assert "another process writes" in refusal(_Writer, memory / "detector").cause
    writer.close()


def test_arguments_that_mean_nothing(memory):
    write_events(memory / "detector", range(1))
    read = beamport.open(memory)["detector"].read
    assert refusal(read, schema="ev4").hint.endswith('`schema="ev44"`')
    assert refusal(read, timeout=1.0).hint == "add `follow=True`"
    for timeout in (-1.0, float("nan"), float("inf")):
        refusal(read, follow=True, timeout=timeout)


@pytest.mark.parametrize(
    "wrong",
    [
        "", "10 s", "-10", "-10 parsecs", "- s", "-1.5 ns", "-1e3 s", "yesterday", "2026-03-01", "2026-03-01T12:00:00",
        "2026-02-29T00:00:00Z", "2026-03-01T24:00:01Z", "2026-03-01T12:00:00.Z", "٢٠٢٦-03-01T12:00:00Z",
        datetime.datetime(2026, 3, 1), datetime.date(2026, 3, 1), np.datetime64("NaT"), np.datetime64("9000-01-01"),
        1.5, True, np.float64(3), 2**63, -(2**63) - 1, [1], b"now", "-99999999999999 d",
    ],
)  # fmt: skip
def test_times_that_mean_nothing(wrong):
    error = refusal(nanoseconds, wrong, "since", T0)
    assert error.what == "invalid `since`" and error.hint


def test_times_are_exact():
    for text, ns in [
        ("-2 s", 2 * 10**9),
        ("-500ms", 5 * 10**8),
        ("-1 h", 3600 * 10**9),
        ("-0.000000001 s", 1),
        ("-1_000 us", 10**6),
    ]:
        assert nanoseconds(text, "since", T0) == T0 - ns
    assert nanoseconds("2026-03-01T12:00:00.123456789Z", "since", 0) == T0 + 123456789
    assert nanoseconds("1969-12-31T23:59:59Z", "since", 0) == -(10**9)
    assert nanoseconds(np.datetime64(T0 + 1, "ns"), "since", 0) == T0 + 1
    assert nanoseconds(datetime.datetime(2026, 3, 1, 12, 0, 0, 1, datetime.UTC), "since", 0) == T0 + 1000


def test_nothing_is_pickled_or_copied_behind_the_back(memory):
    write_events(memory / "detector", range(1))
    data = beamport.open(memory)
    stream = data["detector"]
    (batch,) = stream.batches()
    view = batch[0]["pixel_id"].base
    while not type(view).__name__ == "_View":
        view = view.obj if isinstance(view, memoryview) else view.base
    for thing in (data, stream, batch, batch[0], stream.read(), stream.batches(), view):
        for how in (pickle.dumps, copy.copy, copy.deepcopy):
            assert "beamport.open" in refusal(how, thing).hint
    # An array is the user's; pickled, it is a copy.
    assert np.array_equal(pickle.loads(pickle.dumps(batch[0]["pixel_id"])), pixels_of(0))


def test_errors_print_in_three_lines():
    error = beamport.Error("what", "why", "do this")
    assert str(error) == "what\ncause: why\nhint:  do this"
    assert str(beamport.Error("what")) == "what"
    assert pickle.loads(pickle.dumps(error)).hint == "do this"


def test_a_whole_number_stays_one(memory):
    with _Writer(memory / "s") as writer:
        writer.append(f144(3, T0), T0)
    (m,) = beamport.open(memory)["s"].read()
    assert m["value"] == 3 and isinstance(m["value"], int)
