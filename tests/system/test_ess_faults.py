"""Jobs of `beamport ess writer` whose topics or disk fail under them, and messages larger than the memory of a job."""

import json
import os
import signal
import threading
import time
import uuid

import h5py
import numpy as np
import pytest
from conftest import HANG_S, until
from ess_facility import Facility, now_ms
from signals import stop
from streaming_data_types import serialise_ev44, serialise_f144, serialise_pl72
from test_full_disk import Disk

pytestmark = pytest.mark.services

# Limits of a client that takes the largest message that librdkafka sends.
LARGE = ("-X", "receive.message.max.bytes", "2147483647")
MB = 1_000_000


def read_all(facility: Facility, count: int):
    """Waits until a job has told that so many messages of its topic are read or lost."""

    def is_read() -> bool:
        topics = [status["topics"].get(facility.topic) for status in facility.told()[-1:]]
        return any(topic and topic["messages"] + topic["lost"] >= count for topic in topics)

    until(is_read, lambda: f"{facility.told()[-1:]} {facility.said()}")


def test_a_job_whose_topic_is_deleted_ends_with_an_error_after_its_stop(facility, times):
    facility.writer()
    deleted, topic = times(1, 10), facility.topic
    for n in range(deleted):
        facility.topic = facility.kafka.topic(f"{topic}_{n}", 2)
        start = now_ms()
        job = facility.start(f"gone-{n}.nxs", start)
        facility.accepted(job)
        facility.send(5, start)
        read_all(facility, 10)
        facility.kafka.admin.delete_topics([facility.topic])[facility.topic].result(HANG_S)
        assert facility.answer(facility.stop(job)).status_code == 201
        outcome, _ = facility.finished(job, is_error=True)
        assert f"topic `{facility.topic}` no longer exists" in outcome.message
        facility.idle()
    print(f"topic deleted during a job: {deleted} injected, each told in the outcome, the next job is written")


def test_a_job_goes_on_with_a_topic_that_was_made_again(facility, times):
    facility.writer()
    start = now_ms()
    job = facility.start("again.nxs", start)
    facility.accepted(job)
    sent, made = facility.send(10, start), times(2, 10)
    # Messages of a deleted topic that nobody has read are lost to everybody.
    read_all(facility, 2 * len(sent))
    for _ in range(made):
        # A source asks for the identity of its topics, and keeps it, once a second.
        time.sleep(2)
        facility.kafka.make_again(facility.topic, 2)
        sent += facility.send(10, max(now_ms(), start + len(sent)))
        read_all(facility, 2 * len(sent))
    until(lambda: now_ms() > sent[-1] // 1_000_000, "time stands still")
    facility.stop(job)
    _, message = facility.finished(job)
    assert message["lost"] == []
    facility.whole("again.nxs", sent)
    print(
        f"topic deleted and made again during a job: {made} injected, 0 lost and 0 twice of {len(sent)} events and values"
    )


def test_a_topic_that_was_made_again_just_before_the_stop_of_a_job_is_read(facility):
    facility.writer()
    start = now_ms()
    job = facility.start("just.nxs", start)
    facility.accepted(job)
    sent = facility.send(30, start)
    read_all(facility, 2 * len(sent))
    # The source has asked for the identity of its topics, and kept it.
    time.sleep(2)
    facility.kafka.make_again(facility.topic, 2)
    sent += facility.send(5, now_ms())
    until(lambda: now_ms() > sent[-1] // 1_000_000, "time stands still")
    facility.stop(job)
    _, message = facility.finished(job)
    assert message["lost"] == []
    facility.whole("just.nxs", sent)


def test_offsets_that_retention_took_before_a_slow_job_read_them_are_lost_exactly(facility, times):
    facility.writer()
    sent, last, strikes = 0, now_ms(), times(2, 10)
    job = facility.start("slow.nxs", last)
    facility.accepted(job)

    def send(count: int):
        """Events of now whose pixel is their offset."""
        nonlocal sent, last
        first = max(now_ms(), last + 1)
        numbers = range(sent, sent + count)
        events = [serialise_ev44("bank", n, [(first + n - sent) * 1_000_000], [0], [n], [n]) for n in numbers]
        facility.kafka.send([(facility.topic, 0, event) for event in events])
        sent, last = sent + count, first + count - 1

    for _ in range(strikes):
        send(100)
        read_all(facility, sent)
        (mover,) = facility.processes("up")
        stop(mover)
        send(300)
        facility.kafka.delete_before(facility.topic, 0, sent - 50)
        os.kill(mover, signal.SIGCONT)
        send(50)
    until(lambda: now_ms() > last, "time stands still")
    facility.stop(job, last)
    wrdn, message = facility.finished(job, is_error=True)
    assert {(row["topic"], row["partition"], row["reason"]) for row in message["lost"]} == {
        (facility.topic, 0, "lost.retention")
    }
    lost = [n for row in message["lost"] for n in range(row["first"], row["last"] + 1)]
    with h5py.File(wrdn.file_name) as file:
        held = file["entry/bank/event_id"][:].tolist()
    assert sorted(held + lost) == list(range(sent))
    assert len(message["lost"]) == strikes and message["error"] == f"{len(lost)} messages are lost"
    print(
        f"retention overtook a slow job: {strikes} injected, {len(lost)} of {sent} messages gone and each of them told"
        " in the outcome, 0 twice"
    )


@pytest.mark.root
def test_a_job_on_a_full_disk_waits_and_says_so(facility, tmp_path, times):
    small = Disk(tmp_path / "small", 2048, "tmpfs")
    facility.files = small.folder
    count, events, full = 150, 12_400, times(2, 20)
    some = np.random.default_rng(1).integers(0, 1 << 30, events)
    all_times = []
    try:
        facility.writer()
        start = now_ms()
        job = facility.start("full.nxs", start)
        facility.accepted(job)
        until(lambda: (facility.files / "full.nxs").exists(), facility.said)
        for _ in range(full):
            small.fill()
            before = len(facility.told())

            def trouble(before=before) -> str:
                return next((s["trouble"] for s in facility.told(before)[-1:] if s["trouble"]), "").lower()

            def is_full(trouble=trouble) -> bool:
                # The file may have room that it has not used yet.
                first = max(now_ms(), all_times[-1] // 1_000_000 + 1 if all_times else start)
                more = [(first + n) * 1_000_000 for n in range(count)]
                all_times.extend(more)
                messages = [serialise_ev44("bank", 0, [at], [0], some, some) for at in more]
                facility.kafka.send([(facility.topic, 0, message) for message in messages])
                time.sleep(3)
                return "no space" in trouble()

            until(is_full, lambda: f"{facility.told()[-1:]} {facility.said()}")
            small.free()
            before = len(facility.told())
            until(
                lambda before=before, trouble=trouble: facility.told(before) and not trouble(),
                lambda: f"{facility.told()[-1:]} {facility.said()}",
            )
        until(lambda: now_ms() > all_times[-1] // 1_000_000, "time stands still")
        facility.stop(job)
        wrdn, message = facility.finished(job)
        assert message["lost"] == []
        with h5py.File(wrdn.file_name) as file:
            assert file["entry/bank/event_time_zero"][:].tolist() == all_times
            pixels = file["entry/bank/event_id"][:].reshape(len(all_times), events)
            assert (pixels == some).all()
        facility.idle()
    finally:
        small.close()
    print(
        f"disk full under the file of a job: {full} injected, each told, 0 lost and 0 twice of {len(all_times)} messages"
    )


class Peak(threading.Thread):
    """The most memory that writers and their jobs hold."""

    def __init__(self, facility: Facility):
        super().__init__(daemon=True)
        self.facility = facility
        self.first = self.most = facility.memory()
        self.stopped = threading.Event()

    def run(self):
        while not self.stopped.wait(0.05):
            self.most = max(self.most, self.facility.memory())

    def grown(self) -> int:
        """Bytes."""
        self.stopped.set()
        self.join(HANG_S)
        return self.most - self.first


def send_large(facility: Facility, topic: str, payload: bytes):
    """Sends a message that is small until it is unpacked: it passes the limits of the broker."""
    producer = facility.kafka.producer(
        compression_type="zstd", message_max_bytes=1000 * MB, queue_buffering_max_kbytes=2_000_000
    )
    producer.produce(topic, payload, partition=0)
    assert producer.flush(HANG_S) == 0


@pytest.mark.soak
@pytest.mark.parametrize("size", [100 * MB, 995 * MB])
def test_a_message_larger_than_the_memory_of_a_job_is_written(facility, size):
    facility.writer(*LARGE)
    start = now_ms()
    job = facility.start("large.nxs", start)
    facility.accepted(job)
    sent = facility.send(10, start)
    read_all(facility, 20)
    peak = Peak(facility)
    peak.start()
    events = np.zeros(size // 8, dtype="i4")
    large = (start + 10) * 1_000_000
    send_large(facility, facility.topic, serialise_ev44("bank", 10, [large], [0], events, events))
    sent += [large, *facility.send(10, start + 11)]
    until(lambda: now_ms() > sent[-1] // 1_000_000, "time stands still")
    facility.stop(job)
    wrdn, message = facility.finished(job)
    grown = peak.grown()
    assert message["lost"] == [] and message["aside"] == {}
    with h5py.File(wrdn.file_name) as file:
        assert sorted(file["entry/bank/event_time_zero"][:].tolist()) == sent
        assert len(file["entry/bank/event_id"]) == len(events) + 2 * (len(sent) - 1)
    # The client has it once and the stream once; beside it are the memory of the job and what the client has fetched.
    assert grown < 2 * size + 128 * MB
    print(f"1 message of {size // MB} MB injected into a job with 64 MiB of memory, which grew by {grown // MB} MB")


@pytest.mark.soak
@pytest.mark.parametrize("size", [100 * MB, 995 * MB])
def test_a_large_command_is_answered_or_counted(facility, size):
    facility.writer()
    peak = Peak(facility)
    peak.start()
    fields = {"start_time": now_ms(), "stop_time": now_ms() + 1, "control_topic": facility.control}
    job = str(uuid.uuid4())
    send_large(
        facility, facility.pool, serialise_pl72(**fields, job_id=job, filename="large.nxs", nexus_structure=" " * size)
    )
    assert facility.answer(job).status_code == 400
    send_large(facility, facility.pool, bytes(size))
    send_large(facility, facility.pool, serialise_f144("large", np.zeros(size // 8), 1))
    job = facility.start("after.nxs")
    facility.accepted(job)
    send_large(facility, facility.control, bytes(size))
    facility.stop(job)
    facility.finished(job)
    grown = peak.grown()

    def dismissed() -> tuple[int, int]:
        # No status comes between the answer of a stop and the outcome: the next is that of the idle writer.
        told = json.loads(facility.all(b"x5f2")[-1].status_json)
        return told["refused"], told["ignored"]

    until(lambda: dismissed() == (1, 3), lambda: f"{dismissed()}: {facility.said()}")
    print(f"4 commands of {size // MB} MB injected: each answered or counted, the writer grew by {grown // MB} MB")
    assert grown < 3 * size + 128 * MB
