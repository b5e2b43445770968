"""Beamport reads the topics of another beamport without `[hosts]`: frames of cameras keep their numbers, what a sink sent
twice comes once, and a topic that is not there yet is waited for."""

import json
import struct
import time

import pytest
from confluent_kafka import Consumer, TopicPartition
from conftest import HANG_S, Lab, lost_of, until
from kafka_node import Cluster
from streaming_data_types import deserialise_ad00
from test_kafka import RUN, count, entries, held, source, troubles, value

beamport = pytest.importorskip("beamport", reason="pip install .")
pytestmark = pytest.mark.services


@pytest.fixture
def labs(lab):
    """Makes other laboratories; nothing of them is left."""
    made = []

    def make(name: str) -> Lab:
        folder = lab.folder / name
        folder.mkdir()
        made.append(Lab(folder, lab.beamport))
        return made[-1]

    yield make
    for one in made:
        one.clear()


def near(kafka: Cluster, topic: str, origin: str, fps: int = 50) -> str:
    """A camera that counts frames by their pulses, and the topic that they are sent to."""
    return f"""
[source.camera]
kind = "sim"
model = "camera"
origin = "{origin}"
fps = {fps}
shape = [16, 16]
numbers = "pulse"
level = "disk"
live = "16 MiB"

[sink.out]
kind = "kafka"
brokers = "{kafka.address}"
inputs = ["camera"]
topic = "{topic}"
create = {{ partitions = 1, replication = 1 }}
"""


def mirror(kafka: Cluster, name: str, topic: str) -> str:
    """A source that repeats what another beamport has sent, for an instrument file."""
    return source(kafka, [topic]).replace("[source.topics]", f"[source.{name}]") + "mirror = true\n"


def sent(lab: Lab) -> int:
    """Messages that the sink of a camera has committed as sent."""
    rows = beamport.open(lab.data).stages() if lab.data.is_dir() else []
    return sum(row["done"] for row in rows if row["stage"] == "out")


def frames(lab: Lab, stream: str) -> list[tuple[str, int, int]]:
    """Of each frame of a stream: the origin, its number, and the id in the payload."""
    opened = beamport.open(lab.data)
    if stream not in opened:
        return []
    return [(m.origin, m.origin_seq, deserialise_ad00(bytes(m.payload)).unique_id) for m in opened[stream].read()]


def pairs(lab: Lab) -> dict[int, set[str]]:
    """The origins of each id of the merge."""
    found = {}
    for origin, number, id_ in frames(lab, "pairs"):
        assert number & 0x7FFFFFFF == id_ and origin not in found.get(number, ()), f"{origin} {number}: {id_}"
        found.setdefault(number, set()).add(origin)
    return found


def complete(lab: Lab) -> int:
    """How many ids have a frame of each camera."""
    return sum(len(origins) == 2 for origins in pairs(lab).values())


def test_frames_of_two_instruments_are_paired_by_number_though_one_starts_later(lab, labs, kafka, times, dice):
    topics = {"left": "ours_left", "right": "ours_right"}
    merge = '[merge.pairs]\nkind = "number"\ninputs = ["left", "right"]\nparts = 2\nwait = "2 s"\nlevel = "disk"\n'
    # It starts before there is a topic.
    lab.write("".join(mirror(kafka, name, topic) for name, topic in topics.items()) + merge + RUN)
    process, _ = lab.up_ready()
    instruments = {}
    for name, topic in topics.items():
        instruments[name] = labs(name).write(near(kafka, topic, name))
        instruments[name].near, _ = instruments[name].up_ready()
        until(lambda one=instruments[name]: sent(one) > 50, lambda: "nothing is sent")
    until(lambda: complete(lab) > 20, lambda: f"no pairs: {lab.said(process)[1][-2000:]}")
    kills = times(3, 50)
    for _ in range(kills):
        time.sleep(dice.uniform(0, 0.5))
        lab.kill(process)
        process, _ = lab.up_ready()
        before = complete(lab)
        until(lambda known=before: complete(lab) > known + 20, lambda p=process: lab.said(p)[1][-2000:])
    lab.interrupt(process)
    report = lab.report(process)
    assert report["closed"] and lost_of(report) == 0
    found = pairs(lab)
    both = [number for number, origins in found.items() if len(origins) == 2]
    # From the first frame of the later one on, each has its partner; the newest were not there yet.
    assert both == list(range(both[0], both[-1] + 1))
    for name, one in instruments.items():
        there, here = ([number for _, number, _ in frames(*place)] for place in ((one, "camera"), (lab, name)))
        first = there.index(here[0])
        assert here == there[first : first + len(here)], name
    print(f"mover of two mirrors and a merge: {kills} kills injected, {len(both)} pairs of equal number, 0 twice")


class Twice:
    """Sends messages of a partition once more, as a late request of a killed process would."""

    def __init__(self, kafka: Cluster, topic: str):
        self.kafka = kafka
        self.topic = topic
        self.producer = kafka.producer()
        self.injected = 0

    def send(self, messages: int):
        """The newest ones of the partition."""
        consumer = Consumer({"bootstrap.servers": self.kafka.address, "group.id": "nobody", "log_level": 0})
        try:
            place = TopicPartition(self.topic, 0)
            _, end = consumer.get_watermark_offsets(place, timeout=HANG_S)
            consumer.assign([TopicPartition(self.topic, 0, end - messages)])
            rows, patience = [], time.monotonic() + HANG_S
            while len(rows) < messages:
                assert time.monotonic() < patience
                rows += [message for message in consumer.consume(messages - len(rows), 1.0) if not message.error()]
        finally:
            consumer.close()
        for row in rows:
            (header,) = [header for name, header in row.headers() if name == "beamport"]
            assert struct.unpack("<16sIIQ", header)[2] == 0
            self.producer.produce(self.topic, row.value(), row.key(), 0, headers=row.headers())
        assert self.producer.flush(HANG_S) == 0
        self.injected += messages


@pytest.mark.parametrize("is_mirror", [False, True], ids=["offsets", "mirror"])
def test_what_was_sent_twice_comes_once_and_is_counted_whichever_process_is_killed(lab, labs, kafka, is_mirror, times):
    topic = f"ours_twice_{is_mirror}".lower()
    one = labs("near").write(near(kafka, topic, "cam", 200))
    one.near, _ = one.up_ready()
    until(lambda: sent(one) > 0, "nothing is sent")
    an_hour_ago = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 3600))
    section = source(kafka, [topic], '"begin"') + f"mirror = {str(is_mirror).lower()}\n"
    lab.write(section + RUN + f"start = {an_hour_ago}\n")
    process, _ = lab.up_ready()
    twice = Twice(kafka, topic)
    kills = times(3, 50)
    for turn in range(kills):
        known = count(lab)
        until(lambda known=known: count(lab) > known + 20, lambda p=process: lab.said(p)[1][-2000:])
        # While it runs, and while it is dead.
        if turn % 2 == 0:
            twice.send(15)
        lab.kill(process)
        twice.send(20)
        process, _ = lab.up_ready()
    one.interrupt(one.near)
    one.end(one.near)
    all_ = [number for _, number, _ in frames(one, "camera")]
    until(lambda: count(lab) >= len(all_), lambda: f"{count(lab)} of {len(all_)}: {lab.said(process)[1][-2000:]}")
    lab.interrupt(process)
    report = lab.report(process)
    assert report["closed"] and lost_of(report) == 0
    rows = entries(report)
    assert [id_ for _, _, id_ in frames(lab, "topics")] == [number & 0x7FFFFFFF for number in all_]
    assert rows[f"{topic}/0"]["skipped"] == {"double": twice.injected}
    if is_mirror:
        assert held(lab).keys() == {"cam"} and [number for number, _ in held(lab)["cam"]] == all_
        assert rows["cam"]["sent"] == rows["cam"]["appended"] == len(all_)
        assert rows[f"{topic}/0"]["sent"] == twice.injected
    else:
        assert rows[f"{topic}/0"]["sent"] == rows[f"{topic}/0"]["appended"] + twice.injected
    print(f"{kills} kills and {twice.injected} messages twice injected: each of {len(all_)} is there once, 0 lost")


@pytest.mark.parametrize("is_killed", [False, True], ids=["runs", "killed"])
def test_up_before_its_topic_exists_waits_and_reads_all_of_it(lab, kafka, is_killed):
    topic = f"ours_late_{is_killed}".lower()
    lab.write(source(kafka, [topic]) + RUN)
    process, _ = lab.up_ready()
    (trouble,) = until(lambda: troubles(lab), "nobody says that the topic is missing")
    assert f"topic `{topic}` does not exist" in trouble
    top = json.loads(lab.run("top", "--once", "--json", "--data", lab.data).stdout)
    assert topic in json.dumps(top["running"]["topics"]["trouble"])
    if is_killed:
        lab.kill(process)
    kafka.topic(topic, 2)
    kafka.send([(topic, n % 2, value(n)) for n in range(100)])
    if is_killed:
        process, _ = lab.up_ready()
    until(lambda: count(lab) == 100, lambda: f"{count(lab)} came: {lab.said(process)[1][-2000:]}")
    until(lambda: troubles(lab) == [], "the trouble does not pass")
    lab.interrupt(process)
    report = lab.report(process)
    assert report["closed"] and lost_of(report) == 0 and report["gaps"] == []
    assert {origin: n.tolist() for origin, n in lab.stream("topics").numbers().items()} == {
        f"{topic}/{p}": list(range(50)) for p in (0, 1)
    }
