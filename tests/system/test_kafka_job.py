"""A job of a file writer on Kafka, as an instrument file: one run that began in the past, with pinned offsets, in a ring
of memory that holds a part of the history."""

import json
import time
from dataclasses import dataclass, field

import h5py
import numpy as np
import pytest
from conftest import kill, line_of, lost_of, until
from kafka_node import Node
from streaming_data_types import serialise_ev44, serialise_f144

pytest.importorskip("beamport", reason="pip install .")
pytestmark = pytest.mark.services

PARTITIONS = 3
MS = 1_000_000
SECOND = 1000 * MS
# Of a message of the detector: its topic does not fit into the memory of its stream.
EVENTS = 1200
RUN = "01968f3c-63fe-7a3a-8a30-0a8c2d2f9a11"
SINK = """
[sink.file]
kind = "nexus"
layout = "ess"
template = "t.json"
folder = "sub"
file = "p123.hdf"
topics = { t1 = "%s", t2 = "%s" }
hold = "1 s"
flush = "100 ms"
whole = true
"""


@dataclass
class Topic:
    """What was sent to a topic: source times in ns by partition, in the order of the offsets."""

    name: str
    stream: str
    times: list[list[int]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])

    def pins(self, start: int) -> dict[str, int]:
        """What a search by time finds: of each partition the first offset at or behind a time."""
        return {f"{self.name}/{p}": sum(t < start for t in times) for p, times in enumerate(self.times)}

    def within(self, start: int, stop: int) -> list[int]:
        """Times of a run whose stop is inclusive."""
        return sorted(t for times in self.times for t in times if start <= t <= stop)


class History:
    """Two topics with messages at these milliseconds since 1970."""

    def __init__(self, kafka: Node, name: str):
        self.kafka = kafka
        self.events = Topic(kafka.topic(f"{name}.events", PARTITIONS), "t1")
        self.values = Topic(kafka.topic(f"{name}.values", PARTITIONS), "t2")

    def send(self, times_ms):
        """One message to each topic at each of these times, whose partition is the next."""
        producer, failed = self.kafka.producer(), []
        pixels = np.arange(EVENTS, dtype="i4")
        for n, ms in enumerate(times_ms):
            event = serialise_ev44("bank", n, [ms * MS], [0], pixels, pixels)
            # All values of a source are in one partition.
            partition = n % PARTITIONS
            value = serialise_f144(f"t{partition}", n + 0.5, ms * MS)
            for topic, payload in ((self.events, event), (self.values, value)):
                topic.times[partition].append(ms * MS)
                producer.produce(
                    topic.name,
                    payload,
                    partition=partition,
                    timestamp=ms,
                    on_delivery=lambda error, _: error and failed.append(error),
                )
            producer.poll(0)
            if n % 500 == 0:
                producer.flush()
        assert producer.flush(120) == 0 and failed == []

    def instrument(self, start: int, stop: int | None = None) -> str:
        """The job from a time on, to a stop that is known; values from 30 s before it are read too."""
        sources = ""
        for topic in (self.events, self.values):
            pins = ", ".join(f'"{origin}" = {offset}' for origin, offset in topic.pins(start - 30 * SECOND).items())
            sources += f"""
[source.{topic.stream}]
kind = "kafka"
brokers = "{self.kafka.address}"
topics = ["{topic.name}"]
start = {{ {pins} }}
level = "memory"
when_full = "wait"
live = "16 MiB"
"""
        sink = SINK % (self.events.name, self.values.name)
        known = f"stop = {iso(stop)}\ninclusive = true\n" if stop else ""
        return sources + sink + f'\n[run.{RUN}]\nstart = {iso(start)}\nsettle = "5 s"\n{known}'

    def template(self) -> dict:
        """As NICOS sends it."""
        groups = [
            {
                "type": "group",
                "name": name,
                "attributes": [{"name": "NX_class", "dtype": "string", "values": class_}],
                "children": [{"module": module, "config": {"topic": topic.name, "source": source}}],
            }
            for name, class_, module, source, topic in (
                ("bank", "NXevent_data", "ev44", "bank", self.events),
                *((f"t{p}", "NXlog", "f144", f"t{p}", self.values) for p in range(PARTITIONS)),
            )
        ]
        entry = {"type": "group", "name": "entry", "children": groups}
        entry["attributes"] = [{"name": "NX_class", "dtype": "string", "values": "NXentry"}]
        return {"children": [entry]}


def iso(time_ns: int) -> str:
    """A time of whole milliseconds."""
    seconds, rest = divmod(time_ns, SECOND)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{rest // MS:03}Z"


def end(lab, stop: int) -> dict:
    """`beamport end`, whose stop is inclusive."""
    return json.loads(lab.run("end", RUN, "--stop", iso(stop), "--inclusive", "--json", "--data", lab.data).stdout)


def check_file(path, history: History, start: int, stop: int):
    """The messages of the interval and no others, and the last values from before it."""
    with h5py.File(path) as file:
        bank = file["entry/bank"]
        assert bank.attrs["topic"] == history.events.name
        events = history.events.within(start, stop)
        assert sorted(bank["event_time_zero"][:].tolist()) == events
        assert len(bank["event_id"]) == EVENTS * len(events)
        for p, times in enumerate(history.values.times):
            before = max(t for t in times if t < start)
            within = [t for t in times if start <= t <= stop]
            assert file[f"entry/t{p}/time"][:].tolist() == [before, *within]


@pytest.fixture
def past(lab, nexus, kafka, request) -> History:
    """Ten minutes that ended a while ago: 60 MB, of which the stream of the detector holds 16 MiB."""
    history = History(kafka, request.node.name[:40])
    (lab.folder / "t.json").write_text(json.dumps(history.template()))
    now_ms = time.time_ns() // MS
    history.send(range(now_ms - 600_000, now_ms, 100))
    return history


def test_a_job_of_the_past_has_exactly_its_interval(lab, past):
    now = past.events.times[-1][-1]
    start = now - 480 * SECOND
    stop = min(past.values.within(now - 240 * SECOND, now))
    lab.write(past.instrument(start, stop))
    began = time.monotonic()
    report = lab.report(lab.up())
    print(f"file {time.monotonic() - began:.2f} s after the start")
    assert report["closed"] and lost_of(report) == 0 and report["gaps"] == []
    assert report["file"] == str(lab.folder / "sub/p123.hdf")
    check_file(report["file"], past, start, stop)
    streams = {row["name"]: row for row in report["streams"]}
    for topic in (past.events, past.values):
        assert streams[topic.stream]["messages"] == len(topic.within(start, stop))
    # Its stream has released most of them.
    assert streams["t1"]["bytes"] > 2 * 4 * EVENTS * streams["t1"]["messages"]


def test_another_run_is_refused_where_the_file_has_one_name(lab, past):
    now = past.events.times[-1][-1]
    lab.write(past.instrument(now - 60 * SECOND))
    process, _ = lab.up_ready()
    said = lab.run("begin", "other", "--data", lab.data, status=2).stderr.decode()
    assert "writes one file, `p123.hdf`" in said and "{run}" in said
    # A live end: what comes behind the stop is not in the file, whenever it came.
    start = now - 60 * SECOND
    ms = time.time_ns() // MS
    past.send(range(ms, ms + 900, 30))
    stop = ms * MS + 450 * MS
    end(lab, stop)
    report = lab.report(process)
    assert report["closed"] and lost_of(report) == 0
    check_file(report["file"], past, start, stop)


def datasets(path) -> dict[str, np.ndarray]:
    """All numbers of a file."""
    found = {}

    def see(name, node):
        # Cues say when rows came, and the ledger what came: partitions are read in any order.
        is_data = isinstance(node, h5py.Dataset) and node.dtype.kind in "iuf"
        if is_data and "/cue_" not in name and "/entries/" not in name:
            found[name] = node[()]

    with h5py.File(path) as file:
        file.visititems(see)
    return found


def writers(lab, process) -> list[int]:
    """The processes that write files."""
    return [pid for pid in lab.children(process) if b"beamport-nexus" in line_of(pid)]


def count(lab, stream: str) -> int:
    """Messages that a stream had so far."""
    return lab.stream(stream).marks()[2] if (lab.data / stream / "stream").is_file() else 0


def test_a_job_that_was_killed_resumes_to_the_same_file(lab, past, dice, times):
    """kill -9 of mover and writer in turn, while the history is read and while the run is live."""
    start = past.events.times[-1][-1] - 540 * SECOND
    lab.write(past.instrument(start))
    kills, process = times(3, 30), lab.up()
    for n in range(kills):
        # The first ones fall into the history: it is read in less than a second.
        wanted = dice.randrange(1, 5400 // (kills - n))
        until(lambda wanted=wanted: count(lab, "t1") >= wanted, "nothing came")
        if n % 2 == 1:
            until(lambda process=process: writers(lab, process), "no writer")
            kill(writers(lab, process)[0])
        else:
            lab.kill(process)
            process = lab.up()
        ms = time.time_ns() // MS
        past.send(range(ms - 20, ms))
    until(lambda: lab.ready(process), "the instrument is not ready")
    # A start may take longer than `hold`: the file has all that came.
    stop = max(partition[-1] for partition in past.events.times)
    end(lab, stop)
    report = lab.report(process)
    assert report["closed"] and lost_of(report) == 0 and report["failed"] == []
    check_file(report["file"], past, start, stop)
    # The same without a kill.
    ours = datasets(report["file"])
    lab.forget(lab.data)
    (lab.folder / "sub/p123.hdf").unlink()
    lab.write(past.instrument(start, stop))
    theirs = datasets(lab.report(lab.up())["file"])
    assert sorted(ours) == sorted(theirs)
    assert [name for name, values in ours.items() if not np.array_equal(values, theirs[name])] == []
    print(f"injected: {kills} kills of mover and writer of a job, 0 messages lost, 0 twice")


def test_a_job_whose_stream_has_released_what_its_file_needs_begins_again(lab, past):
    now = past.events.times[-1][-1]
    start, stop = now - 540 * SECOND, now - 300 * SECOND
    lab.write(past.instrument(start))
    process, _ = lab.up_ready()
    until(lambda: lab.stream("t1").marks()[0] > 3000, "the stream keeps all")
    # The file has messages from behind the stop, and can only be made again.
    end(lab, stop)
    report = lab.report(process, status=2)
    (failed,) = report["failed"]
    assert failed["incomplete"] and "its stop is before messages that the file has" in failed["cause"]
    lab.forget(lab.data)
    # No part of it is left.
    assert list((lab.folder / "sub").iterdir()) == []
    lab.write(past.instrument(start, stop))
    report = lab.report(lab.up())
    assert report["closed"] and lost_of(report) == 0 and report["failed"] == []
    check_file(report["file"], past, start, stop)
