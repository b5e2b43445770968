"""Topics of Apache Kafka become streams: every offset once and in order, whoever is killed meanwhile."""

import json
import threading
import time

import h5py
import numpy as np
import pytest
from conftest import HANG_S, lost_of, until
from kafka_node import Cluster, compacted
from streaming_data_types import serialise_ev44, serialise_f144

beamport = pytest.importorskip("beamport", reason="pip install .")
pytestmark = pytest.mark.services

COUNT = 1000
PARTITIONS = 2
TEMPLATE = {
    "children": [
        {
            "type": "group",
            "name": "entry",
            "attributes": {"NX_class": "NXentry"},
            "children": [
                {
                    "type": "group",
                    "name": name,
                    "attributes": {"NX_class": class_},
                    "children": [{"module": module, "config": {"stream": "topics", "source": name}}],
                }
                for name, class_, module in (("bank", "NXevent_data", "ev44"), ("temperature", "NXlog", "f144"))
            ],
        }
    ]
}
SINK = """
[sink.file]
kind = "nexus"
template = "t.json"
file = "{run}.nxs"
"""
RUN = """
[run.first]
settle = "200 ms"
"""


def source(kafka: Cluster, topics: list[str], start: str = '"end"') -> str:
    """A source of topics, for an instrument file."""
    return f"""
[source.topics]
kind = "kafka"
brokers = "{kafka.address}"
topics = {json.dumps(topics)}
start = {start}
level = "disk"
live = "16 MiB"
"""


def value(number: int, time_ns: int | None = None) -> bytes:
    """A number as a message."""
    return serialise_f144("temperature", number + 0.5, time.time_ns() if time_ns is None else time_ns)


def entries(report: dict) -> dict[str, dict]:
    """The accounts at the entry, by origin."""
    return {row["origin"]: row for row in report["ledger"] if row["account"] == "entry"}


def held(lab) -> dict[str, list[tuple[int, bytes]]]:
    """Numbers and payloads of each origin, in the order in which they stand in the stream."""
    rows = {}
    for m in beamport.open(lab.data)["topics"].read():
        rows.setdefault(m.origin, []).append((m.origin_seq, bytes(m.payload)))
    return rows


def count(lab) -> int:
    """Messages of the stream that are on disk."""
    stream = lab.stream("topics")
    return stream.marks()[1] if (stream.folder / "stream").is_file() else 0


def compare(lab, kafka: Cluster, topics: list[str]) -> int:
    """What the topics hold is what the stream holds, offset by offset; the number of messages."""
    there = {f"{topic}/{p}": kafka.read(topic, p) for topic in topics for p in range(PARTITIONS)}
    here = held(lab)
    assert sorted(here) == sorted(origin for origin, rows in there.items() if rows)
    assert [origin for origin, rows in here.items() if rows != there[origin]] == []
    return sum(map(len, there.values()))


class Sender(threading.Thread):
    """Sends numbered values to a topic, to each partition in turn, until it is told to stop."""

    def __init__(self, kafka: Cluster, topic: str, pause_s: float = 0.002):
        super().__init__(daemon=True)
        self.producer = kafka.producer()
        self.topic = topic
        self.pause_s = pause_s
        self.sent = 0
        self.offsets: list[list[int]] = [[] for _ in range(PARTITIONS)]
        self.failed = []
        self.stopped = threading.Event()

    def note(self, error, message):
        if error is None:
            # A broker that was killed may acknowledge a message again without its offset.
            offset = message.offset()
            self.offsets[message.partition()].append(-1 if offset is None else offset)
        else:
            self.failed.append(str(error))

    def run(self):
        while not self.stopped.wait(self.pause_s):
            for _ in range(2 * PARTITIONS):
                self.producer.produce(
                    self.topic, value(self.sent), partition=self.sent % PARTITIONS, on_delivery=self.note
                )
                self.sent += 1
            self.producer.poll(0)

    def finish(self) -> int:
        """All is acknowledged, each message once and in order; how many there were."""
        self.stopped.set()
        self.join(HANG_S)
        assert self.producer.flush(HANG_S) == 0 and self.failed == []
        for offsets in self.offsets:
            known = [(at, offset) for at, offset in enumerate(offsets) if offset >= 0]
            assert [pair for pair in known if pair[0] != pair[1]] == []
        assert sum(map(len, self.offsets)) == self.sent
        return self.sent


def whole(lab, process, topic: str, sent: int) -> dict:
    """The report of the run, once all that was sent is there: each offset once, nothing lost."""
    until(lambda: count(lab) >= sent, lambda: f"{count(lab)} of {sent} came: {lab.said(process)[1][-2000:]}")
    report = lab.whole(process)
    rows = entries(report)
    for partition in range(PARTITIONS):
        row = rows[f"{topic}/{partition}"]
        assert (row["sent"], row["appended"], row["duplicate"]) == (sent // PARTITIONS, sent // PARTITIONS, 0)
    assert report["gaps"] == []
    return report


def whole_with_holes(lab, process) -> dict:
    """Ctrl-C, and the report: closed and nothing lost, though numbers are missing."""
    lab.interrupt(process)
    report = lab.report(process)
    assert report["closed"] and lost_of(report) == 0
    return report


def troubles(lab) -> list[str]:
    """What the running instrument says is wrong."""
    return json.loads(lab.ask(b'{"command": "status"}\n'))["ok"]["troubles"]


def state_of_run(lab) -> str:
    (run,) = json.loads(lab.run("ls", "--json", "--data", lab.data).stdout)["runs"]
    return run["state"]


def test_events_and_values_of_topics_stand_in_the_file(lab, nexus, kafka):
    topics = [kafka.topic(name, PARTITIONS) for name in ("run_events", "run_values")]
    # What lies there before the start is not read.
    kafka.send([(topic, p, value(-1)) for topic in topics for p in range(PARTITIONS)])
    (lab.folder / "t.json").write_text(json.dumps(TEMPLATE))
    lab.write(source(kafka, topics) + SINK + RUN)
    process, _ = lab.up_ready()
    times = time.time_ns() + np.arange(COUNT)
    offsets = [np.arange(n % 30, dtype="i4") * 1000 + n for n in range(COUNT)]
    pixels = [np.arange(n % 30, dtype="i4") * 7919 % 32768 + 1 for n in range(COUNT)]
    producer = kafka.producer()
    for n in range(COUNT):
        event = serialise_ev44("bank", n, [times[n]], [0], offsets[n], pixels[n])
        for topic, payload in zip(topics, (event, value(n, int(times[n]))), strict=True):
            producer.produce(topic, payload, partition=n % PARTITIONS)
    assert producer.flush(HANG_S) == 0
    until(lambda: count(lab) == 2 * COUNT, lambda: f"{count(lab)} came: {lab.said(process)[1][-2000:]}")
    lab.interrupt(process)
    report = lab.report(process)
    assert report["closed"] and lost_of(report) == 0 and report["gaps"] == []
    rows = entries(report)
    assert sorted(rows) == sorted(f"{topic}/{p}" for topic in topics for p in range(PARTITIONS))
    assert all(row["sent"] == row["appended"] == COUNT // PARTITIONS for row in rows.values())
    for origin, numbers in lab.stream("topics").numbers().items():
        assert numbers.tolist() == list(range(1, 1 + COUNT // PARTITIONS)), origin
    with h5py.File(report["file"]) as file:
        bank, log = file["entry/bank"], file["entry/temperature"]
        assert bank["event_time_zero"][:].tolist() == times.tolist()
        assert bank["event_index"][:].tolist() == np.cumsum([0, *map(len, pixels[:-1])]).tolist()
        assert bank["event_id"][:].tolist() == np.concatenate(pixels).tolist()
        assert bank["event_time_offset"][:].tolist() == np.concatenate(offsets).tolist()
        assert log["time"][:].tolist() == times.tolist()
        assert log["value"][:].tolist() == [n + 0.5 for n in range(COUNT)]
        assert file["entry/beamport/closed"][()] == 1 and file["entry/beamport/lost"][()] == 0


def test_each_offset_is_there_once_after_kill_9_of_the_mover(lab, kafka, times, dice):
    topic = kafka.topic("killed_mover", PARTITIONS)
    lab.write(source(kafka, [topic]) + RUN)
    process, _ = lab.up_ready()
    sender = Sender(kafka, topic)
    sender.start()
    kills = times(5, 100)
    for _ in range(kills):
        before = count(lab)
        until(lambda before=before: count(lab) > before, lambda p=process: f"nothing comes: {lab.said(p)[1][-2000:]}")
        time.sleep(dice.uniform(0, 0.3))
        lab.kill(process)
        process, _ = lab.up_ready()
    sent = sender.finish()
    whole(lab, process, topic, sent)
    assert compare(lab, kafka, [topic]) == sent
    print(f"mover of a Kafka source: {kills} kills injected, 0 lost and 0 twice of {sent} offsets")


def test_each_offset_is_there_once_after_kill_9_of_the_broker(lab, kafka, times, dice):
    topic = kafka.topic("killed_broker", PARTITIONS)
    lab.write(source(kafka, [topic]) + RUN)
    process, _ = lab.up_ready()
    sender = Sender(kafka, topic)
    sender.start()
    kills = times(3, 50)
    for _ in range(kills):
        before = count(lab)
        until(lambda before=before: count(lab) > before, lambda: f"nothing comes: {lab.said(process)[1][-2000:]}")
        time.sleep(dice.uniform(0, 0.5))
        kafka.restart()
    before = count(lab)
    until(lambda: count(lab) > before, lambda: f"nothing comes: {lab.said(process)[1][-2000:]}")
    sent = sender.finish()
    whole(lab, process, topic, sent)
    assert compare(lab, kafka, [topic]) == sent
    print(f"Kafka killed and restarted while it was read: {kills} injected, 0 lost and 0 twice of {sent} offsets")


def test_offsets_that_retention_took_meanwhile_are_counted_as_lost(lab, kafka):
    topic = kafka.topic("retention", PARTITIONS)
    lab.write(source(kafka, [topic]) + RUN)
    process, _ = lab.up_ready()
    kafka.send([(topic, n % PARTITIONS, value(n)) for n in range(200)])
    until(lambda: count(lab) == 200, lambda: f"{count(lab)} came: {lab.said(process)[1][-2000:]}")
    lab.kill(process)
    kafka.send([(topic, n % PARTITIONS, value(n)) for n in range(200, 600)])
    kafka.delete_before(topic, 0, 250)
    process, _ = lab.up_ready()
    # 50 of the one, 200 of the other.
    until(lambda: count(lab) == 450, lambda: f"{count(lab)} came: {lab.said(process)[1][-2000:]}")
    lab.interrupt(process)
    report = lab.report(process, status=1)
    rows = entries(report)
    assert report["closed"] and lost_of(report) == 150
    assert (rows[f"{topic}/0"]["sent"], rows[f"{topic}/0"]["appended"]) == (300, 150)
    assert rows[f"{topic}/0"]["lost"] == {"retention": 150}
    assert (rows[f"{topic}/1"]["sent"], rows[f"{topic}/1"]["appended"], rows[f"{topic}/1"]["lost"]) == (300, 300, {})
    (gap,) = report["gaps"]
    assert (gap["origin"], gap["first"], gap["last"], gap["reason"]) == (f"{topic}/0", 100, 249, "lost.retention")
    numbers = lab.stream("topics").numbers()
    assert numbers[f"{topic}/0"].tolist() == [*range(100), *range(250, 300)]
    print("1 retention while nobody read injected: 150 offsets gone, 150 counted as lost")


def test_marks_of_transactions_and_what_was_aborted_are_skipped(lab, kafka):
    topic = kafka.topic("transactions", PARTITIONS)
    lab.write(source(kafka, [topic]) + RUN)
    process, _ = lab.up_ready()
    producer = kafka.producer(transactional_id="test")
    producer.init_transactions(HANG_S)
    for turn in range(10):
        producer.begin_transaction()
        for n in range(10):
            producer.produce(topic, value(10 * turn + n), partition=0)
        producer.flush(HANG_S)
        (producer.abort_transaction if turn == 4 else producer.commit_transaction)(HANG_S)
    kafka.send([(topic, 0, value(1000))])
    # Nine that were committed, and the last one. Each transaction has ten messages and a mark.
    until(lambda: count(lab) == 91, lambda: f"{count(lab)} came: {lab.said(process)[1][-2000:]}")
    report = whole_with_holes(lab, process)
    row = entries(report)[f"{topic}/0"]
    assert (row["sent"], row["appended"], row["lost"], row["skipped"]) == (111, 91, {}, {"kafka": 20})
    assert held(lab) == {f"{topic}/0": kafka.read(topic, 0)}


def test_offsets_that_compaction_took_are_skipped(lab, kafka):
    topic = kafka.topic(
        "compacted",
        PARTITIONS,
        cleanup_policy="compact",
        min_cleanable_dirty_ratio=0.01,
        segment_ms=100,
        max_compaction_lag_ms=100,
    )
    producer = kafka.producer()
    for n in range(300):
        producer.produce(topic, value(n), partition=0, key=b"%d" % (n % 10))
    producer.flush(HANG_S)

    def compacted() -> bool:
        # Only segments that are full are compacted: time passes, and a message comes.
        kafka.send([(topic, 0, value(1000))], key=b"last")
        return len(kafka.read(topic, 0)) < 100

    until(compacted, "nothing is compacted")
    an_hour_ago = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 3600))
    lab.write(source(kafka, [topic], start='"begin"') + RUN + f"start = {an_hour_ago}\n")
    process, _ = lab.up_ready()
    rows = kafka.read(topic, 0)
    until(lambda: count(lab) >= len(rows), lambda: f"{count(lab)} came: {lab.said(process)[1][-2000:]}")
    report = whole_with_holes(lab, process)
    rows = held(lab)[f"{topic}/0"]
    account = entries(report)[f"{topic}/0"]
    assert account["lost"] == {} and account["appended"] == len(rows)
    assert account["skipped"] == {"kafka": rows[-1][0] + 1 - len(rows)}
    assert account["skipped"]["kafka"] > 200


def test_a_compacted_topic_in_which_the_search_by_time_finds_nothing_is_read_from_its_first_message(lab, kafka):
    topic, start, times = compacted(kafka, "compacted_search")
    begin = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(start // 1000 + 5))
    lab.write(source(kafka, [topic], start=f'"{begin}"') + RUN + f"start = {begin}\n")
    process, _ = lab.up_ready()
    newest = kafka.read(topic, 0)[-1][0]
    until(lambda: count(lab) and held(lab)[f"{topic}/0"][-1][0] == newest, lambda: lab.said(process)[1][-2000:])
    whole_with_holes(lab, process)
    # Compaction goes on: what is left now was there.
    left = {number for number, _ in kafka.read(topic, 0)}
    assert len(left) >= len(times) + 1 and left <= {number for number, _ in held(lab)[f"{topic}/0"]}


def test_no_run_is_sealed_while_the_broker_is_away(lab, kafka):
    topic = kafka.topic("away", PARTITIONS)
    lab.write(source(kafka, [topic]) + RUN)
    process, _ = lab.up_ready()
    kafka.send([(topic, n % PARTITIONS, value(n)) for n in range(100)])
    until(lambda: count(lab) == 100, lambda: f"{count(lab)} came: {lab.said(process)[1][-2000:]}")
    assert troubles(lab) == []
    kafka.kill()
    lab.run("end", "first", "--data", lab.data)
    (trouble,) = until(lambda: troubles(lab), "nobody says that the broker is away")
    assert "`topics`" in trouble
    assert state_of_run(lab) == "settling"
    kafka.start()
    # It was the only run: `up` ends with it.
    report = lab.report(process)
    assert report["closed"] and lost_of(report) == 0
    assert sum(row["appended"] for row in entries(report).values()) == 100


def test_a_topic_that_was_made_again_is_another_origin(lab, kafka):
    topic = kafka.topic("made_again", PARTITIONS)
    lab.write(source(kafka, [topic]) + RUN)
    process, _ = lab.up_ready()
    kafka.send([(topic, n % PARTITIONS, value(n)) for n in range(100)])
    until(lambda: count(lab) == 100, lambda: f"{count(lab)} came: {lab.said(process)[1][-2000:]}")
    kafka.make_again(topic, PARTITIONS)
    kafka.send([(topic, n % PARTITIONS, value(n)) for n in range(20)])
    until(lambda: count(lab) == 120, lambda: f"{count(lab)} came: {lab.said(process)[1][-2000:]}")
    report = whole_with_holes(lab, process)
    names = {f"{topic}/{p}{life}": n for p in range(PARTITIONS) for life, n in (("", 50), ("#2", 10))}
    assert {origin: row["appended"] for origin, row in entries(report).items()} == names
    assert {o: n.tolist() for o, n in lab.stream("topics").numbers().items()} == {
        origin: list(range(n)) for origin, n in names.items()
    }


def test_a_partition_that_comes_later_is_read_from_its_first_message(lab, kafka):
    topic = kafka.topic("more_partitions", 1)
    lab.write(source(kafka, [topic]) + RUN)
    process, _ = lab.up_ready()
    kafka.send([(topic, 0, value(n)) for n in range(10)])
    kafka.add_partitions(topic, PARTITIONS)
    kafka.send([(topic, 1, value(n)) for n in range(10)])
    until(lambda: count(lab) == 20, lambda: f"{count(lab)} came: {lab.said(process)[1][-2000:]}")
    whole_with_holes(lab, process)
    assert compare(lab, kafka, [topic]) == 20


def test_a_partition_of_start_that_came_later_was_read_from_its_first_message(lab, kafka):
    topic = kafka.topic("named_partitions", 1)
    lab.write(source(kafka, [topic], f'{{ "{topic}/0" = 0, "{topic}/1" = 4 }}') + RUN)
    process, _ = lab.up_ready()
    kafka.add_partitions(topic, 2)
    kafka.send([(topic, 1, value(n)) for n in range(10)])
    kafka.send([(topic, 0, value(n)) for n in range(3)])
    until(lambda: count(lab) == 9, lambda: f"{count(lab)} came: {lab.said(process)[1][-2000:]}")
    whole_with_holes(lab, process)
    assert {o: n.tolist() for o, n in lab.stream("topics").numbers().items()} == {
        f"{topic}/0": [0, 1, 2],
        f"{topic}/1": list(range(4, 10)),
    }
