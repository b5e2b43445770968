"""Streams become topics of Apache Kafka: every message once, and in the order of its origin, whoever is killed."""

import re
import struct
import time

import pytest
from confluent_kafka import Consumer, TopicPartition
from conftest import HANG_S, lost_of, until
from kafka_node import ROOT, Cluster
from proxy import Proxy

beamport = pytest.importorskip("beamport", reason="pip install .")
pytestmark = pytest.mark.services

PARTITIONS = 3
RUN = """
[run.first]
settle = "200 ms"
"""
# Four process variables, 2,000 values a second.
VALUES = """
[source.values]
kind = "sim"
model = "camera-metadata"
fps = 500
values = 4
level = "disk"
live = "16 MiB"
"""


def sink(kafka: Cluster | Proxy, topic: str, more: str = "", inputs: str = '"values"') -> str:
    """A sink of streams, for an instrument file."""
    return f"""
[sink.out]
kind = "kafka"
brokers = "{kafka.address}"
inputs = [{inputs}]
topic = "{topic}"
{more}
"""


def read(kafka: Cluster, topic: str) -> list[list]:
    """All messages of each partition."""
    consumer = Consumer({"bootstrap.servers": kafka.address, "group.id": "nobody", "log_level": 0})
    try:
        all_of = []
        for partition in sorted(consumer.list_topics(topic, HANG_S).topics[topic].partitions):
            first, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=HANG_S)
            consumer.assign([TopicPartition(topic, partition, first)])
            rows, patience = [], time.monotonic() + HANG_S
            while first < end and (not rows or rows[-1].offset() + 1 < end):
                assert time.monotonic() < patience, f"{topic}/{partition}: {len(rows)} messages, not all up to {end}"
                for message in consumer.consume(1000, 0.1):
                    assert message.error() is None, message.error()
                    rows.append(message)
            all_of.append(rows)
        return all_of
    finally:
        consumer.close()


def compare(lab, partitions: list[list], stream: str = "values", left_out: int = 0) -> int:
    """What is in the topic is what is in the stream, each message once; how many there are."""
    opened = beamport.open(lab.data)[stream]
    held = {m.sequence: (m.origin, m.source_time // 1_000_000, bytes(m.payload)) for m in opened.read()}
    found, place, last = {}, {}, {}
    for number, rows in enumerate(partitions):
        for row in rows:
            (header,) = [value for name, value in row.headers() if name == "beamport"]
            uuid, _epoch, zero, sequence = struct.unpack("<16sIIQ", header)
            if uuid.hex() != opened.uuid:
                continue
            assert zero == 0 and sequence not in found, f"{sequence} twice"
            found[sequence] = (row.key().decode(), row.timestamp()[1], row.value())
            # One origin is in one partition, in order.
            assert place.setdefault(row.key(), number) == number and last.get(row.key(), -1) < sequence
            last[row.key()] = sequence
    assert [sequence for sequence, row in found.items() if held[sequence] != row] == []
    assert len(found) == len(held) - left_out, f"{len(found)} of {len(held)}: lost {sorted(set(held) - set(found))[:9]}"
    return len(found)


def account(lab, stream: str = "values") -> dict:
    """The account of the sink; empty before its first commit."""
    rows = beamport.open(lab.data).stages() if lab.data.is_dir() else []
    return next((row for row in rows if (row["stage"], row["stream"]) == ("out", stream)), {})


def done(lab, stream: str = "values") -> int:
    """Messages that the sink has committed as sent."""
    return account(lab, stream).get("done", 0)


def moves(lab, process, stream: str = "values"):
    """Waits until more is sent."""
    before = done(lab, stream)
    until(lambda: done(lab, stream) > before, lambda: f"nothing is sent: {lab.said(process)[1][-2000:]}")


def ended(lab, process) -> dict:
    """Ctrl-C, and the report: nothing lost."""
    lab.interrupt(process)
    report = lab.report(process)
    assert report["closed"] and lost_of(report) == 0
    return report


def test_a_topic_holds_what_the_stream_holds(lab, kafka):
    create = f"create = {{ partitions = {PARTITIONS}, replication = 1 }}\n"
    lab.write(VALUES + sink(kafka, "sent_{stream}", create + 'properties = { "compression.type" = "zstd" }') + RUN)
    process, _ = lab.up_ready()
    until(lambda: done(lab) > 2000, lambda: f"{done(lab)} are sent: {lab.said(process)[1][-2000:]}")
    ended(lab, process)
    partitions = read(kafka, "sent_values")
    assert len(partitions) == PARTITIONS
    sent = compare(lab, partitions)
    row = account(lab)
    assert (row["done"], row["read"], row["held"]) == (sent, sent, 0) and not row["aside"]


def sent_while_killed(lab, kafka, name: str, kills: int, harm) -> int:
    """Sends a stream to a topic while `harm(process)` kills something `kills` times; the messages, each there once."""
    topic = kafka.topic(name, PARTITIONS)
    lab.write(VALUES + sink(kafka, topic) + RUN)
    process, _ = lab.up_ready()
    for _ in range(kills):
        moves(lab, process)
        process = harm(process)
    moves(lab, process)
    ended(lab, process)
    return compare(lab, read(kafka, topic))


def test_each_message_is_there_once_after_kill_9_of_the_mover(lab, kafka, times, dice):
    def harm(process):
        time.sleep(dice.uniform(0, 0.3))
        lab.kill(process)
        return lab.up_ready()[0]

    kills = times(5, 100)
    sent = sent_while_killed(lab, kafka, "sent_killed_mover", kills, harm)
    print(f"mover of a Kafka sink: {kills} kills injected, 0 lost and 0 twice of {sent} messages")


def test_each_message_is_there_once_after_kill_9_of_the_broker(lab, kafka, times, dice):
    def harm(process):
        time.sleep(dice.uniform(0, 0.5))
        kafka.restart()
        return process

    kills = times(2, 50)
    sent = sent_while_killed(lab, kafka, "sent_killed_broker", kills, harm)
    print(f"Kafka killed and restarted while it was sent to: {kills} injected, 0 lost and 0 twice of {sent} messages")


def test_each_message_is_there_once_though_the_network_is_cut(lab, kafka, proxy, times, dice):
    topic = kafka.topic("sent_cut", PARTITIONS)
    lab.write(VALUES + sink(proxy, topic) + RUN)
    process, _ = lab.up_ready()
    cuts = times(10, 100)
    for _ in range(cuts):
        moves(lab, process)
        # Nothing; requests do not arrive; answers do not; the connection is half open.
        proxy.hold(*dice.choice([(), ("up",), ("down",), ("up", "down")]))
        time.sleep(dice.uniform(0, 0.5))
        proxy.cut()
    moves(lab, process)
    ended(lab, process)
    sent = compare(lab, read(kafka, topic))
    print(f"network of a Kafka sink: {cuts} cuts injected, 0 lost and 0 twice of {sent} messages")


def test_a_reader_of_the_header_drops_what_a_cut_and_a_kill_together_sent_twice(lab, kafka, proxy):
    topic = kafka.topic("sent_twice", PARTITIONS)
    lab.write(VALUES + sink(proxy, topic) + RUN)
    process, _ = lab.up_ready()
    moves(lab, process)
    # Requests are on their way when the mover is killed, and arrive when the next one has looked back.
    proxy.hold("up")
    time.sleep(0.5)
    lab.kill(process)
    process, _ = lab.up_ready()
    moves(lab, process)
    proxy.release()
    moves(lab, process)
    ended(lab, process)
    (code,) = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs/reference/kafka.md").read_text(), re.M | re.S)
    page = {}
    exec(code, page)
    partitions = read(kafka, topic)
    once = [[message for message in rows if page["is_new"](message)] for rows in partitions]
    twice = sum(map(len, partitions)) - sum(map(len, once))
    assert twice > 0, "the requests did not arrive: the test shows nothing"
    sent = compare(lab, once)
    print(f"1 cut and kill of a Kafka sink together injected: {twice} messages twice, 0 lost of {sent}")


def test_a_message_that_the_topic_does_not_take_is_aside(lab, kafka):
    topic = kafka.topic("sent_too_large", 1, max_message_bytes=20_000)
    camera = '[source.camera]\nkind = "sim"\nmodel = "camera"\nfps = 1\nshape = [200, 200]\nlevel = "disk"\nlive = "16 MiB"\n'
    lab.write(VALUES.replace("500", "10") + camera + sink(kafka, topic, inputs='"values", "camera"') + RUN)
    process, _ = lab.up_ready()
    until(lambda: done(lab) > 200 and account(lab, "camera").get("aside"), lambda: f"{lab.said(process)[1][-2000:]}")
    # At the end there is time for a few.
    until(lambda: lab.stream("values").marks()[2] - done(lab) < 50, lambda: f"{done(lab)} are sent")
    ended(lab, process)
    compare(lab, read(kafka, topic))
    row = account(lab, "camera")
    assert row["done"] == 0 and row["aside"] == {"size": row["read"]}
    assert lab.stream("out.aside").marks()[1] == row["read"]
