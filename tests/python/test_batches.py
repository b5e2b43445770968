"""Batches: columns over the index, and putting fields together."""

from __future__ import annotations

import beamport
import numpy as np
import pytest
from beamport._core import _Writer
from payloads import SECOND, T0, ev44, f144, pixels_of, write_events


def test_columns_are_views(memory):
    write_events(memory / "detector", range(100))
    (batch,) = beamport.open(memory)["detector"].batches()
    assert len(batch) == 100
    assert np.array_equal(batch.times, T0 + np.arange(100) * SECOND)
    assert np.array_equal(batch.sequences, np.arange(100, dtype="u8"))
    assert batch.times.dtype == np.int64 and batch.times.strides == (64,)
    assert np.shares_memory(batch.times, batch.entries)
    assert not batch.times.flags.writeable and not batch.entries.flags.writeable
    entries = batch.entries
    assert np.array_equal(entries["origin_seq"], np.arange(100)) and set(entries["schema"]) == {b"ev44"}
    assert np.array_equal(entries["length"], [m.payload.size for m in batch])
    assert np.array_equal(entries["arrival_time"], [m.arrival_time for m in batch])


def test_columns_outlive_the_batch(memory):
    write_events(memory / "detector", range(100))
    times = next(beamport.open(memory)["detector"].batches()).times
    assert np.array_equal(times, T0 + np.arange(100) * SECOND)


def test_a_batch_is_a_sequence(memory):
    write_events(memory / "detector", range(10))
    (batch,) = beamport.open(memory)["detector"].batches()
    assert [m.sequence for m in batch] == list(range(10))
    assert (batch[0].sequence, batch[-1].sequence, batch[-10].sequence) == (0, 9, 0)
    for at in (10, -11):
        with pytest.raises(IndexError, match="10 messages"):
            batch[at]


def test_concat_copies(memory):
    write_events(memory / "detector", range(40), count=25)
    (batch,) = beamport.open(memory)["detector"].batches()
    pixels = batch.concat("pixel_id")
    assert np.array_equal(pixels, np.concatenate([pixels_of(n, 25) for n in range(40)]))
    assert pixels.dtype == np.int32 and pixels.flags.writeable
    assert not np.shares_memory(pixels, batch[0]["pixel_id"])
    pixels[:] = 0
    assert np.array_equal(batch[3]["pixel_id"], pixels_of(3, 25))
    assert np.array_equal(batch.concat("message_id"), np.arange(40))
    assert np.array_equal(batch.concat("reference_time"), batch.times)


def test_concat_over_all_batches_is_everything(memory):
    count = 5000
    write_events(memory / "detector", range(200), count=count, live=64 << 20)
    batches = list(beamport.open(memory)["detector"].batches())
    assert len(batches) > 1 and sum(map(len, batches)) == 200
    everything = np.concatenate([batch.concat("pixel_id") for batch in batches])
    assert np.array_equal(everything, np.concatenate([pixels_of(n, count) for n in range(200)]))


def test_concat_of_single_numbers(memory):
    with _Writer(memory / "temperature") as writer:
        for n in range(5):
            writer.append(f144(n / 4, T0), T0 + n)
    (batch,) = beamport.open(memory)["temperature"].batches()
    assert batch.concat("value").tolist() == [0, 0.25, 0.5, 0.75, 1.0]
    assert batch.concat("value").dtype == np.float64


def test_filters_leave_the_wanted_rows(memory):
    write_events(memory / "detector", range(100))
    (batch,) = beamport.open(memory)["detector"].batches(since=T0 + 10 * SECOND, until=T0 + 20 * SECOND)
    assert batch.sequences.tolist() == list(range(10, 20))
    assert np.array_equal(batch.concat("message_id"), np.arange(10, 20))


def test_what_does_not_fit_together_is_refused(memory):
    with _Writer(memory / "devices") as writer:
        writer.append(f144(1.5, T0), T0, origin="a")
        writer.append(f144(np.arange(3.0), T0), T0, origin="b")
        writer.append(f144(2, T0), T0, origin="c")
        writer.append(ev44(1, T0, [1]), T0, origin="d")
    stream = beamport.open(memory)["devices"]
    (batch,) = stream.batches()
    with pytest.raises(beamport.Error) as caught:
        batch.concat("value")
    assert caught.value.cause == "message 1 (f144) has an array of float64 there, the messages before have one float64"
    assert "origin" in caught.value.hint
    with pytest.raises(beamport.Error, match="no numbers"):
        next(stream.batches(origin="a")).concat("source_name")
    with pytest.raises(beamport.Error, match="ev44 has no field"):
        next(stream.batches(origin="d")).concat("value")
    assert next(stream.batches(origin="c")).concat("value").dtype == np.int64
