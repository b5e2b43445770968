"""Jobs of the past in `beamport ess writer`: what they write does not depend on how far a reader happened to be.

Producers send messages some time after the moment that these are of, each partition with its own lag; retention takes
messages between a job's acceptance and its reading.
"""

import contextlib
import json
import os
import signal

import h5py
import pytest
from conftest import HANG_S, until
from ess_facility import now_ms
from streaming_data_types import serialise_ev44, serialise_f144

pytestmark = pytest.mark.services

NS = 1_000_000
"""ns of one ms."""


def send(facility, start: int, count: int, pause: int, lags: list[int]) -> list[int]:
    """Sends one value each `pause` ms from `start` on, and an event in one of the partitions; each message reaches
    Kafka the lag of its partition later, all in ms. The times of the messages, in ns."""
    producer = facility.kafka.producer()
    messages = []
    for n in range(count):
        time = start + n * pause
        partition = n % len(lags)
        event = serialise_ev44("bank", n, [time * NS], [0], [n, n + 1], [n % 100, n % 100])
        messages.append((time + lags[partition], partition, event))
        messages.append((time + lags[0], 0, serialise_f144("temperature", float(n), time * NS)))
    for arrival, partition, payload in sorted(messages, key=lambda message: message[0]):
        producer.produce(facility.topic, payload, partition=partition, timestamp=arrival)
        producer.poll(0)
    assert producer.flush(HANG_S) == 0
    return [(start + n * pause) * NS for n in range(count)]


def written(facility, name: str) -> tuple[list[int], list[int]]:
    """Times of the events and of the values in a file."""
    with h5py.File(facility.files / name) as file:
        return sorted(file["entry/bank/event_time_zero"][:].tolist()), file["entry/temperature/time"][:].tolist()


def rows(facility, name: str) -> dict[str, list]:
    """The datasets of a file in the order of its times, without the account and the name of the run."""
    with h5py.File(facility.files / name) as file:
        bank, log = file["entry/bank"], file["entry/temperature"]
        times, index = bank["event_time_zero"][:], list(bank["event_index"][:]) + [len(bank["event_id"])]
        pulses = zip(times.tolist(), index, index[1:], strict=False)
        events = sorted((time, bank["event_id"][low:high].tolist()) for time, low, high in pulses)
        return {"events": events, "values": log["value"][:].tolist(), "times": log["time"][:].tolist()}


LAGS = [[0], [0, 0], [1000, 1000], [9000, 2000], [30_000, 0], [60_000, 41_000], [0, 700, 7000, 30_000, 60_000]]


@pytest.mark.parametrize("lags", LAGS, ids=str)
def test_a_past_interval_gives_one_file(facility, lags):
    facility.topic = facility.kafka.topic(f"past_{len(lags)}_{lags[0]}", len(lags))
    start = now_ms() - 200_000
    sent = send(facility, start, 12_000, 10, lags)
    facility.writer(after_stop="10s")
    stop = start + 40_000
    hashes = []
    for name in ("one.nxs", "two.nxs"):
        job = facility.start(name, start + 20_000, stop)
        facility.accepted(job)
        _, message = facility.finished(job)
        assert message["lost"] == [] and "late" not in message
        hashes.append(message["content"])
        with h5py.File(facility.files / name) as file:
            assert file["entry/beamport/content"][()].decode() == message["content"]
        events, values = written(facility, name)
        inside = [time for time in sent if (start + 20_000) * NS <= time <= stop * NS]
        assert events == inside
        assert values[-len(inside) :] == inside
    assert hashes[0] == hashes[1]
    assert rows(facility, "one.nxs") == rows(facility, "two.nxs")
    print(f"lags {lags} ms: {len(inside)} of {len(inside)} twice, with equal hashes")


def test_past_jobs_with_random_lags_and_kills_are_whole(facility, dice, times):
    facility.writer(after_stop="10s")
    start = now_ms() - 400_000
    lags = [dice.randrange(0, 60_000) for _ in range(dice.randrange(1, 6))]
    facility.topic = facility.kafka.topic("past_random", len(lags))
    sent = send(facility, start, 20_000, 10, lags)
    kills = 0
    hashes: list[str] = []
    for number in range(times(20, 300)):
        name = f"{number}.nxs"
        # Each interval twice.
        if number % 2 == 0:
            begin = start + dice.randrange(0, 100_000)
            stop = begin + dice.randrange(1, 80_000)
        job = facility.start(name, begin, stop)
        facility.accepted(job)
        if dice.random() < 0.7:
            for pid in facility.processes("up")[:1]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    kills += 1
        _, message = facility.finished(job)
        hashes.append(message["content"])
        assert number % 2 == 0 or hashes[-1] == hashes[-2], f"{number}: lags {lags}, {kills} kills"
        inside = [time for time in sent if begin * NS <= time <= stop * NS]
        events, values = written(facility, name)
        assert events == inside, f"{number}: {len(events)} of {len(inside)}, lags {lags}"
        assert [time for time in values if time >= begin * NS] == inside
    print(f"injected: {number + 1} jobs of the past, lags {lags} ms, {kills} movers killed, 0 of their messages lost")


def offsets_gone(facility, name: str, deleted: int) -> int:
    """A job of the past whose service is killed as soon as it has accepted it, and whose first `deleted` offsets
    retention takes before it is started again: how many of them were not read before. All that the file lacks is in
    `wrdn`."""
    start = now_ms() - 300_000
    sent = send(facility, start, 12_000, 10, [0])
    writer = facility.writer(after_stop="10s")
    begin, stop = start + 1000, start + 60_000
    # Its time before the start reaches offset 0.
    job = facility.start(f"{name}.nxs", begin, stop)
    facility.accepted(job)
    writer.kill()
    writer.wait(HANG_S)
    facility.kafka.delete_before(facility.topic, 0, deleted)
    writer = facility.writer(after_stop="10s")
    wrdn = until(
        lambda: next((w for w in facility.all(b"wrdn", facility.control) if w.job_id == job), None), facility.said
    )
    lost = json.loads(wrdn.message)["lost"]
    gone = sum(gap["last"] - gap["first"] + 1 for gap in lost)
    assert wrdn.error_encountered == (gone > 0)
    assert all((gap["topic"], gap["reason"]) == (facility.topic, "lost.retention") for gap in lost), lost
    with h5py.File(wrdn.file_name) as file:
        assert file["entry/beamport/lost"][()] == gone
        found = set(file["entry/bank/event_time_zero"][:].tolist())
    # Events have the even offsets.
    for n, time in enumerate(sent):
        if begin * NS <= time <= stop * NS:
            is_lost = any(gap["first"] <= 2 * n <= gap["last"] for gap in lost)
            assert is_lost != (time in found), (n, lost)
    facility.idle()
    facility.end(writer)
    return gone


@pytest.mark.parametrize("deleted", [6000, 24_000], ids=["some", "all"])
def test_retention_is_in_wrdn_account_and_file(facility, deleted):
    for attempt in range(20):
        facility.topic = facility.kafka.topic(f"past_{deleted}_{attempt}", 2)
        if gone := offsets_gone(facility, f"{attempt}", deleted):
            print(f"injected: retention took {gone} messages of an accepted job, in round {attempt}: all in `wrdn`")
            return
    raise AssertionError("each time the job was read before retention took something")


def test_what_comes_late_is_counted(facility):
    facility.writer(after_stop="500ms")
    began = now_ms()
    job = facility.start("late.nxs", began)
    facility.accepted(job)
    sent = facility.send(20, now_ms() - 100)
    stop = now_ms()
    assert facility.answer(facility.stop(job, stop)).status_code == 201
    # After the end of the job, and before its outcome where the machine is slow.
    until(lambda: now_ms() > stop + 400, "time stands still")
    late = facility.send(20, stop - 50)
    _, message = facility.finished(job)
    events, _ = written(facility, "late.nxs")
    count = message.get("late", {}).get(facility.topic, 0)
    assert set(sent) <= set(events) <= set(sent + late)
    print(f"{len(events) - len(sent)} of 20 came before the seal, {count} messages are late in `wrdn`")


def test_a_job_ends_before_its_patience_once_each_partition_shows_a_later_message(facility):
    facility.writer(after_stop="1h")
    job = facility.start("soon.nxs", now_ms())
    facility.accepted(job)
    sent = facility.send(40, now_ms() - 100)
    stop = now_ms()
    assert facility.answer(facility.stop(job, stop)).status_code == 201
    until(lambda: now_ms() > stop + 20, "time stands still")
    # Two in each partition: one alone could have a wrong clock.
    until(lambda: facility.send(4, now_ms()) and facility.all(b"wrdn", facility.control), facility.said)
    facility.finished(job)
    events, _ = written(facility, "soon.nxs")
    assert events == sent
