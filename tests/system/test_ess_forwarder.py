"""`beamport ess forwarder` in the place of the ESS forwarder: commands of NICOS in, messages of PVs out."""

import json
import os
import shutil
import signal
import subprocess
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from beamport.wire import deserialise_un00
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import ResourceType
from conftest import HANG_S, Lab, kill, until
from epics_servers import ioc
from kafka_node import Node
from stream_files import streams
from streaming_data_types import (
    DESERIALISERS,
    deserialise_al00,
    deserialise_ep01,
    deserialise_f144,
    deserialise_fc00,
    deserialise_x5f2,
    serialise_fc00,
    serialise_rf5k,
)
from streaming_data_types.epics_connection_ep01 import ConnectionInfo
from streaming_data_types.fbschemas.forwarder_config_update_fc00.Protocol import Protocol
from streaming_data_types.fbschemas.forwarder_config_update_fc00.UpdateType import UpdateType
from streaming_data_types.fbschemas.forwarder_config_update_rf5k.UpdateType import UpdateType as OldUpdateType
from streaming_data_types.forwarder_config_update_fc00 import StreamInfo
from streaming_data_types.forwarder_config_update_rf5k import StreamInfo as OldStreamInfo
from test_kafka_secure import PASSWORD, USER, allow, holders, secure  # noqa: F401

pytestmark = pytest.mark.services

FAKE = Protocol.FAKE
DATABASE = """
record(calc, "T:{0}") {{ field(CALC, "VAL+1") field(SCAN, ".1 second") field(EGU, "mm") field(TSE, "0") }}
"""
STATIC = """
record(longout, "T:STATIC") { field(VAL, "42") field(PINI, "YES") field(HIHI, "40") field(HHSV, "MAJOR") }
record(mbbo, "T:ENUM") { field(ZRST, "closed") field(ONST, "open") field(VAL, "1") field(PINI, "YES") }
record(waveform, "T:WAVE") { field(FTVL, "DOUBLE") field(NELM, "3") field(INP, [1.5, 2.5, 3.5]) field(PINI, "YES") }
"""


class Beamline:
    """Topics of one test, a forwarder that serves them, and all that was heard."""

    def __init__(self, lab: Lab, kafka: Node, name: str):
        self.lab = lab
        self.kafka = kafka
        self.commands = kafka.topic(f"{name}_commands")
        self.status_topic = kafka.topic(f"{name}_status")
        self.storage = kafka.topic(f"{name}_storage")
        self.topics = [kafka.topic(f"{name}_motion", 2), kafka.topic(f"{name}_choppers")]
        self.data = lab.folder / "forwarder"
        self.process: subprocess.Popen | None = None
        self.heard: dict[str, list] = {}
        properties = {"bootstrap.servers": kafka.address, "group.id": "nicos", "enable.auto.commit": False}
        self.consumer = Consumer(properties | {"log_level": 0})
        single = [TopicPartition(topic, 0, 0) for topic in (self.status_topic, self.storage, self.topics[1])]
        self.consumer.assign([*single, *(TopicPartition(self.topics[0], number, 0) for number in (0, 1))])

    def start(self, *more, ready: bool = True, broker: str | None = None) -> subprocess.Popen:
        """Starts the forwarder; its first status has come."""
        address = broker or self.kafka.address
        before = len(self.all(self.status_topic))
        self.process = self.lab.popen(
            "ess",
            "forwarder",
            *("--config-topic", f"{address}/{self.commands}"),
            *("--status-topic", f"{address}/{self.status_topic}"),
            *("--storage-topic", f"{address}/{self.storage}"),
            *("--output-broker", address),
            *("--data", self.data),
            *more,
        )
        if ready:
            until(lambda: self.lives() and len(self.all(self.status_topic)) > before, self.said)
        return self.process

    def lives(self) -> bool:
        """True; fails where the forwarder has ended."""
        assert self.process.poll() is None, self.said()
        return True

    def said(self) -> str:
        """What there is to look at where something is missing."""
        newest = [message.value() for message in self.heard.get(self.status_topic, [])[-1:]]
        return f"{self.process.poll()} {self.lab.said(self.process)[1][-4000:]} {newest}"

    def all(self, topic: str) -> list:
        """Messages of a topic that were heard."""
        while messages := self.consumer.consume(1000, 0.02):
            for message in messages:
                if message.error() is None:
                    self.heard.setdefault(message.topic(), []).append(message)
        return self.heard.get(topic, [])

    def status(self) -> dict | None:
        """The newest status, as JSON; where there is none, None."""
        messages = self.all(self.status_topic)
        return json.loads(deserialise_x5f2(messages[-1].value()).status_json) if messages else None

    def streams(self) -> list[tuple]:
        """The streams of the newest status."""
        status = self.status() or {"streams": []}
        keys = ("channel_name", "schema", "output_topic", "protocol")
        return sorted(tuple(stream[key] for key in keys) for stream in status["streams"])

    def figures(self) -> list[dict]:
        """How each stream of the newest status is, in its order."""
        return self.status()["beamport"]["streams"]

    def trouble(self) -> str | None:
        """What is wrong, in the newest status."""
        return self.status()["beamport"]["trouble"]

    def send(self, change: int, *streams: tuple):
        """Sends a command: streams are (channel, schema, topic, protocol, periodic)."""
        self.kafka.send([(self.commands, 0, serialise_fc00(change, [StreamInfo(*stream) for stream in streams]))])

    def stored(self) -> list[tuple]:
        """The streams of the newest message of the storage topic."""
        messages = self.all(self.storage)
        update = deserialise_fc00(messages[-1].value()) if messages else None
        return sorted(tuple(stream)[:3] for stream in update.streams or []) if update else []

    def values(self, topic: str, pv: str, which: bytes = b"f144") -> list:
        """Messages of a PV in a topic, of one schema, in the order in which they stand there."""
        found = [m for m in self.all(topic) if m.key() == pv.encode() and m.value()[4:8] == which]
        return sorted(found, key=lambda message: (message.partition(), message.offset()))

    def once(self, topic: str) -> int:
        """Every message of a topic is there once and in the order of its PV; how many there are."""
        known, last = set(), {}
        for message in sorted(self.all(topic), key=lambda m: (m.partition(), m.offset())):
            header = dict(message.headers())["beamport"]
            assert header not in known, f"{header} twice"
            known.add(header)
            # Stream and epoch, then the number.
            place = (header[16:20][::-1], int.from_bytes(header[24:], "little"))
            assert place > last.get(message.key(), (b"", -1)), f"{message.key()} {place}"
            last[message.key()] = place
        return len(known)

    def mover(self) -> int | None:
        """The process of `beamport up`."""
        children = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        with open(children) as file:
            pids = file.read().split()
        return int(pids[0]) if pids else None

    def kill(self):
        """kill -9 of the service."""
        self.lab.kill(self.process)

    def end(self):
        """SIGTERM; it ends by itself, and takes its mover with it."""
        mover = self.mover()
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(HANG_S) == 0, self.said()
        assert mover is None or not os.path.exists(f"/proc/{mover}/fd/0")

    def close(self):
        """Ends what is left."""
        self.consumer.close()
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait(HANG_S)
        # What it left in shared memory.
        for stream in streams(self.data / "streams", True):
            shutil.rmtree(stream.live, ignore_errors=True)


@pytest.fixture
def beamline(lab, programs, kafka, request):
    """A beamline with topics of its own."""
    library = programs.parent / "lib" / "beamport" / "libbeamport_epics.so"
    if not Path(os.environ.get("BEAMPORT_EPICS", library)).is_file():
        pytest.skip("libbeamport_epics.so is not built: `pip install .`")
    beamline = Beamline(lab, kafka, request.node.name.removeprefix("test_")[:60])
    yield beamline
    beamline.close()


def test_streams_are_added_and_removed_and_their_messages_are_those_of_ess(beamline):
    motion, choppers = beamline.topics
    beamline.start()
    began = time.time_ns()
    beamline.send(UpdateType.ADD, ("SIM:M1", "f144", motion, FAKE, 0), ("SIM:M2", "f144", motion, FAKE, 0))
    beamline.send(UpdateType.ADD, ("SIM:M1", "f144", motion, FAKE, 0), ("", "f144", motion, FAKE, 0))
    beamline.send(UpdateType.ADD, ("SIM:C1", "f145", choppers, FAKE, 0), ("SIM:C1", "f142", choppers, FAKE, 0))
    wanted = [("SIM:C1", "f142", choppers, "FAKE")] + [(f"SIM:M{n}", "f144", motion, "FAKE") for n in (1, 2)]
    until(lambda: beamline.streams() == wanted, beamline.said)
    until(lambda: all(stream["connected"] for stream in beamline.figures()), beamline.said)
    assert {stream["lost"] for stream in beamline.figures()} == {0}
    assert beamline.stored() == [stream[:3] for stream in wanted]
    until(lambda: len(beamline.values(motion, "SIM:M1")) >= 3, beamline.said)
    for message in beamline.values(motion, "SIM:M1"):
        value = deserialise_f144(message.value())
        assert value.source_name == "SIM:M1" and 0 <= value.value <= 100
        assert value.timestamp_unix_ns // 1_000_000 == message.timestamp()[1]
        assert began - 2_000_000_000 < value.timestamp_unix_ns < time.time_ns()
    (connected,) = [deserialise_ep01(m.value()) for m in beamline.values(motion, "SIM:M2", b"ep01")]
    assert (connected.status, connected.source_name) == (ConnectionInfo.CONNECTED, "SIM:M2")
    assert [deserialise_al00(m.value()).source for m in beamline.values(motion, "SIM:M1", b"al00")] == ["SIM:M1"]
    # Its alarm is in the value.
    until(lambda: beamline.values(choppers, "SIM:C1", b"f142"), beamline.said)
    assert beamline.values(choppers, "SIM:C1", b"al00") == []
    # The two that cannot be are named.
    said = beamline.lab.said(beamline.process)[1]
    assert "channel: it is empty" in said and "schema: `SIM:C1`: unknown word `f145`" in said
    beamline.send(UpdateType.REMOVE, ("SIM:M?", "", "", FAKE, 0))
    until(lambda: beamline.streams() == wanted[:1], beamline.said)
    until(lambda: len(beamline.values(motion, "SIM:M1", b"ep01")) == 2, beamline.said)
    cancelled = deserialise_ep01(beamline.values(motion, "SIM:M1", b"ep01")[-1].value())
    assert cancelled.status == ConnectionInfo.CANCELLED
    beamline.send(UpdateType.REPLACE, ("SIM:M3", "al00", motion, FAKE, 0))
    until(lambda: beamline.streams() == [("SIM:M3", "al00", motion, "FAKE")], beamline.said)
    old = serialise_rf5k(OldUpdateType.ADD, [OldStreamInfo("SIM:M4", "f144", motion, FAKE)])
    beamline.kafka.send([(beamline.commands, 0, old)])
    until(lambda: beamline.values(motion, "SIM:M4"), beamline.said)
    beamline.send(UpdateType.REMOVEALL)
    until(lambda: beamline.streams() == [], beamline.said)
    until(lambda: beamline.stored() == [], beamline.said)
    assert deserialise_fc00(beamline.all(beamline.storage)[-1].value()).config_change == UpdateType.REMOVEALL
    beamline.end()
    beamline.once(motion)


def test_what_was_stored_is_forwarded_again_unless_retrieval_is_skipped(beamline):
    motion, choppers = beamline.topics
    wanted = [("SIM:M1", "f144", motion, "FAKE"), ("SIM:M2", "tdct", choppers, "FAKE")]
    # As another forwarder has left it, with something that is no configuration behind it.
    update = serialise_fc00(UpdateType.ADD, [StreamInfo(*stream[:3], FAKE, 0) for stream in wanted])
    beamline.kafka.send([(beamline.storage, 0, update)] + [(beamline.storage, 0, b"nonsense")] * 20)
    beamline.start()
    until(lambda: beamline.streams() == wanted, beamline.said)
    until(lambda: beamline.values(motion, "SIM:M1"), beamline.said)
    beamline.end()
    # Commands that were sent meanwhile are carried out.
    beamline.send(UpdateType.REMOVE, ("SIM:M1", "", "", FAKE, 0))
    beamline.start()
    until(lambda: beamline.streams() == wanted[1:], beamline.said)
    # Until it is stored the newest message is no configuration.
    until(lambda: len(beamline.all(beamline.storage)) == 22, beamline.said)
    until(lambda: beamline.stored() == [wanted[1][:3]], beamline.said)
    beamline.end()
    before = len(beamline.all(beamline.storage))
    beamline.start("-s")
    assert beamline.streams() == []
    beamline.send(UpdateType.ADD, ("SIM:M3", "f144", motion, FAKE, 0))
    until(lambda: beamline.streams() == [("SIM:M3", "f144", motion, "FAKE")], beamline.said)
    until(lambda: len(beamline.all(beamline.storage)) == before + 1, beamline.said)
    beamline.end()


def test_the_storage_topic_changes_by_commands_alone(beamline):
    """A first start without a data folder, while output topics are missing, and with streams of another forwarder."""
    motion, _ = beamline.topics
    later = [f"{motion}_later_1", f"{motion}_later_2"]
    stored = [
        ("SIM:M1", "f144", later[0]),
        ("SIM:M2", "f144", later[1]),
        ("SIM:with space", "f144", motion),
        ("SIM:M3", "f999", motion),
    ]
    update = serialise_fc00(UpdateType.ADD, [StreamInfo(*stream, FAKE, 0) for stream in stored])
    beamline.kafka.send([(beamline.storage, 0, update)])
    beamline.start("--fake-pv-period", "100")
    until(lambda: f"there is no topic `{later[0]}`" in (beamline.trouble() or ""), beamline.said)
    assert beamline.streams() == [] and len(beamline.all(beamline.storage)) == 1
    # Topics that are made later are used, without a command.
    beamline.consumer.incremental_assign([TopicPartition(beamline.kafka.topic(name), 0, 0) for name in later])
    until(lambda: len(beamline.streams()) == 2, beamline.said)
    for name, pv in zip(later, ("SIM:M1", "SIM:M2"), strict=True):
        until(lambda name=name, pv=pv: beamline.values(name, pv), beamline.said)
    until(lambda: beamline.trouble() is None, beamline.said)
    assert len(beamline.all(beamline.storage)) == 1
    # A command changes what it names.
    beamline.send(UpdateType.ADD, ("SIM:M4", "f144", motion, FAKE, 0))
    until(lambda: sorted(beamline.stored()) == sorted([*stored, ("SIM:M4", "f144", motion)]), beamline.said)
    beamline.send(UpdateType.REMOVE, ("SIM:with*", "", "", FAKE, 0), ("", "f999", "", FAKE, 0))
    until(lambda: sorted(s[0] for s in beamline.stored()) == ["SIM:M1", "SIM:M2", "SIM:M4"], beamline.said)
    # A stream that is removed while it waits for its topic is no trouble any more.
    beamline.send(UpdateType.ADD, ("SIM:M5", "f144", f"{motion}_never", FAKE, 0))
    until(lambda: f"{motion}_never" in (beamline.trouble() or ""), beamline.said)
    beamline.send(UpdateType.REMOVE, ("SIM:M5", "", "", FAKE, 0))
    until(lambda: beamline.trouble() is None, beamline.said)
    # Clients of the forwarder before compare the rows as they are.
    assert all(
        set(row) == {"channel_name", "protocol", "output_topic", "schema"} for row in beamline.status()["streams"]
    )
    beamline.end()


def test_thousands_of_streams_are_subscribed_once_while_others_flow(beamline, lab, network, times):
    motion, choppers = beamline.topics
    count = times(2_000, 10_000)
    database = lab.folder / "records.db"
    still = 'record(longin, "S:{}") {{ field(VAL, "{}") field(PINI, "YES") }}\n'
    flowing = [f"T:{n}" for n in range(20)]
    database.write_text(
        "".join(DATABASE.format(n) for n in range(20)) + "".join(still.format(n, n) for n in range(count))
    )
    with ioc(database, network):
        beamline.start()
        beamline.send(UpdateType.ADD, *((name, "f144", motion, Protocol.PVA, 0) for name in flowing))
        until(lambda: all(len(beamline.values(motion, name)) > 5 for name in flowing), beamline.said)

        def add(names: list[int]) -> None:
            beamline.send(UpdateType.ADD, *((f"S:{n}", "f144", choppers, Protocol.PVA, 0) for n in names))

        # The same command once more, and one that changes what is there already.
        add(range(count))
        add(range(count))
        add(range(count // 2))
        until(lambda: len(beamline.streams()) == 20 + count, beamline.said)
        until(lambda: all(row["connected"] for row in beamline.figures()), beamline.said)
        once = [("S:" + str(n), n) for n in range(count)]

        def sent() -> list[tuple]:
            found = [m for m in beamline.all(choppers) if m.value()[4:8] == b"f144"]
            return sorted((deserialise_f144(m.value()) for m in found), key=lambda one: one.value)

        until(lambda: len(sent()) >= count, lambda: f"{len(sent())} {beamline.said()}")
        assert [(one.source_name, int(one.value)) for one in sent()] == once
        # Half of them are replaced, in one command.
        kept = [(name, "f144", motion, Protocol.PVA, 0) for name in flowing]
        kept += [(f"S:{n}", "f144", choppers, Protocol.PVA, 0) for n in range(0, count, 2)]
        beamline.send(UpdateType.REPLACE, *kept)
        until(lambda: len(beamline.streams()) == 20 + count // 2, beamline.said)

        def links(status: ConnectionInfo) -> list[str]:
            found = [deserialise_ep01(m.value()) for m in beamline.all(choppers) if m.value()[4:8] == b"ep01"]
            return sorted(one.source_name for one in found if one.status == status)

        def cancelled() -> list[str]:
            return links(ConnectionInfo.CANCELLED)

        until(lambda: len(cancelled()) >= count // 2, lambda: f"{len(cancelled())} {beamline.said()}")
        assert cancelled() == sorted(f"S:{n}" for n in range(1, count, 2))
        assert links(ConnectionInfo.CONNECTED) == sorted(f"S:{n}" for n in range(count))
        # The others were not disturbed.
        assert [is_rising(beamline, motion, name) for name in flowing] == [0] * 20
        assert {row["lost"] for row in beamline.figures()} == {0}
        beamline.end()
    beamline.once(choppers)
    print(
        f"forwarder: {count} streams added three times and half of them replaced injected, each subscribed once, 0 lost"
    )


def test_a_topic_that_is_deleted_holds_up_its_own_streams_only(beamline, times):
    motion, choppers = beamline.topics
    deletions = times(1, 20)
    beamline.start("--fake-pv-period", "100")
    beamline.send(UpdateType.ADD, ("SIM:M1", "f144", motion, FAKE, 0), ("SIM:C1", "f144", choppers, FAKE, 0))
    until(lambda: len(beamline.values(motion, "SIM:M1")) > 5, beamline.said)
    for number in range(deletions):
        gone = beamline.kafka.topic(f"{motion}_gone_{number}")
        beamline.consumer.incremental_assign([TopicPartition(gone, 0, 0)])
        beamline.send(UpdateType.ADD, (f"SIM:G{number}", "f144", gone, FAKE, 0))
        until(lambda gone=gone, n=number: len(beamline.values(gone, f"SIM:G{n}")) > 5, beamline.said)
        beamline.consumer.incremental_unassign([TopicPartition(gone, 0)])
        beamline.kafka.delete(gone)
        until(lambda gone=gone: gone in (beamline.trouble() or ""), beamline.said, 120)
        # The others go on, for as long as the topic is away.
        before = time.time_ns()
        for topic, name in ((motion, "SIM:M1"), (choppers, "SIM:C1")):
            until(
                lambda topic=topic, name=name, before=before: (
                    sum(m.timestamp()[1] * 10**6 > before for m in beamline.values(topic, name)) > 20
                ),
                beamline.said,
            )
        # What waited for it goes with its stream.
        beamline.send(UpdateType.REMOVE, (f"SIM:G{number}", "", "", FAKE, 0))
    beamline.end()
    for topic in beamline.topics:
        beamline.once(topic)
    print(f"forwarder: {deletions} topics deleted under their streams injected, the others went on, 0 lost, 0 twice")


def test_a_stream_without_its_topic_waits_and_the_others_go_on(beamline):
    motion, choppers = beamline.topics
    wanted = [("SIM:M1", "f144", motion, "FAKE"), ("SIM:M2", "f144", motion, "FAKE")]
    # As another forwarder has left it: one topic was deleted since.
    stored = [("SIM:M1", motion), ("SIM:GONE", "deleted_topic")]
    update = serialise_fc00(UpdateType.ADD, [StreamInfo(pv, "f144", topic, FAKE, 0) for pv, topic in stored])
    beamline.kafka.send([(beamline.storage, 0, update)])
    beamline.start("--fake-pv-period", "100")
    until(lambda: beamline.streams() == wanted[:1], beamline.said)
    beamline.send(
        UpdateType.ADD,
        *(("SIM:M2", "f144", motion, FAKE, 0), ("SIM:M3", "f144", "no_such_topic", FAKE, 0)),
    )
    until(lambda: beamline.streams() == wanted, beamline.said)
    waiting = [("SIM:GONE", "f144", "deleted_topic"), ("SIM:M3", "f144", "no_such_topic")]
    until(lambda: sorted(beamline.stored()) == sorted([*waiting, *(one[:3] for one in wanted)]), beamline.said)
    for pv, _, topic in waiting:
        text = f"`{pv}`: there is no topic `{topic}`"
        until(lambda text=text: text in beamline.lab.said(beamline.process)[1], beamline.said)
    until(lambda: len(beamline.values(motion, "SIM:M2")) > 20, beamline.said)
    # A simulated PV has a value each 100 ms; those for which there was no time are left out.
    stamps = [deserialise_f144(m.value()).timestamp_unix_ns for m in beamline.values(motion, "SIM:M2")]
    assert min(later - earlier for earlier, later in pairwise(stamps)) < 500_000_000, stamps
    # What was found is kept: it goes on while no broker answers.
    beamline.kafka.kill()
    beamline.kill()
    beamline.start(ready=False)
    time.sleep(3)
    beamline.kafka.start()
    began = time.time_ns()
    until(lambda: any(m.timestamp()[1] * 10**6 > began for m in beamline.values(motion, "SIM:M1")), beamline.said)
    # A topic that was made meanwhile is found.
    late = beamline.kafka.topic("made_later")
    beamline.send(UpdateType.ADD, ("SIM:M4", "f144", late, FAKE, 0))
    until(lambda: len(beamline.streams()) == 3, beamline.said)
    beamline.end()
    beamline.once(motion)


def test_service_and_mover_are_killed_and_each_message_is_there_once(beamline, times, dice):
    motion, choppers = beamline.topics
    kills = times(10, 100)
    beamline.start()
    names = [f"SIM:M{n}" for n in range(20)]
    beamline.send(UpdateType.ADD, *((name, "f144", motion, FAKE, 0) for name in names))
    until(lambda: len(beamline.streams()) == 20, beamline.said)
    for n in range(kills):
        until(lambda n=n: all(len(beamline.values(motion, name)) > n for name in names), beamline.said)
        time.sleep(dice.random() / 5)
        # A command is on its way.
        beamline.send(UpdateType.ADD, (f"SIM:C{n}", "f144", choppers, FAKE, 0))
        if n % 2:
            kill(until(beamline.mover, beamline.said))
        else:
            beamline.kill()
            beamline.start()
        until(lambda n=n: len(beamline.streams()) == 21 + n, beamline.said)
        until(lambda n=n: beamline.values(choppers, f"SIM:C{n}"), beamline.said)
    beamline.end()
    sent = beamline.once(motion) + beamline.once(choppers)
    print(f"service and mover of the forwarder killed: {kills} injected, {sent} messages once, 0 commands lost")


def seconds(beamline, topic: str, name: str, interval: range) -> int:
    """In how many seconds of an interval a PV has a value."""
    values = [deserialise_f144(message.value()) for message in beamline.values(topic, name)]
    return len({v.timestamp_unix_ns // 10**9 for v in values} & set(interval))


def test_a_cluster_that_was_away_gets_everything(beamline, times):
    motion, _ = beamline.topics
    cuts = times(1, 10)
    beamline.start()
    beamline.send(UpdateType.ADD, *((f"SIM:M{n}", "f144", motion, FAKE, 0) for n in range(5)))
    until(lambda: beamline.values(motion, "SIM:M4"), beamline.said)
    for _ in range(cuts):
        beamline.kafka.kill()
        # The service begins while nobody answers, with what it had.
        beamline.kill()
        beamline.start(ready=False)
        began = int(time.time())
        time.sleep(times(8, 60))
        beamline.kafka.start()
        away = range(began, int(time.time()))
        # A value each second, once the source runs.
        until(lambda away=away: seconds(beamline, motion, "SIM:M2", away) > len(away) // 2, beamline.said)
    beamline.end()
    print(f"cluster away: {cuts} injected, {beamline.once(motion)} messages once")


def is_rising(beamline, topic: str, name: str, first: int = 0) -> int:
    """The values of a counter rise from the first one on, each there once; how many are missing between them."""
    values = [deserialise_f144(m.value()) for m in beamline.values(topic, name)[first:]]
    steps = [int(b.value - a.value) for a, b in zip(values, values[1:], strict=False)]
    assert all(step > 0 for step in steps), (name, [v.value for v in values])
    times = [v.timestamp_unix_ns for v in values]
    assert times == sorted(set(times)), name
    return sum(steps) - len(steps)


def test_pvs_of_an_ioc_arrive_by_both_protocols_each_value_once(beamline, network, lab, times, dice):
    motion, choppers = beamline.topics
    database = lab.folder / "records.db"
    database.write_text("".join(DATABASE.format(n) for n in range(20)) + STATIC)
    names = {n: Protocol.PVA if n < 10 else Protocol.CA for n in range(20)}
    with ioc(database, network):
        beamline.start("--pv-update-period", "1000")
        beamline.send(UpdateType.ADD, *((f"T:{n}", "f144", motion, protocol, 0) for n, protocol in names.items()))
        static = [("T:STATIC", Protocol.PVA, 1), ("T:ENUM", Protocol.CA, 0), ("T:WAVE", Protocol.PVA, 0)]
        beamline.send(UpdateType.ADD, *((name, "f144", choppers, protocol, again) for name, protocol, again in static))
        until(lambda: all(len(beamline.values(motion, f"T:{n}")) > 20 for n in names), beamline.said)
        # Without a fault nothing is missing.
        assert [is_rising(beamline, motion, f"T:{n}") for n in names] == [0] * 20
        assert {stream["lost"] for stream in beamline.figures()} == {0}
        values = {name: deserialise_f144(beamline.values(choppers, name)[0].value()) for name, *_ in static}
        assert (values["T:STATIC"].value, values["T:ENUM"].value) == (42, 1)
        assert values["T:WAVE"].value.tolist() == [1.5, 2.5, 3.5]
        alarm = deserialise_al00(beamline.values(choppers, "T:STATIC", b"al00")[0].value())
        assert (alarm.source, alarm.severity.name) == ("T:STATIC", "MAJOR")
        # A value that is sent again has its own time, and that of now in Kafka.
        until(lambda: len(beamline.values(choppers, "T:STATIC")) > 3, beamline.said)
        again = beamline.values(choppers, "T:STATIC")
        assert len({message.value() for message in again}) == 1
        stamps = [message.timestamp()[1] for message in again]
        assert stamps == sorted(set(stamps)) and stamps[-1] - stamps[0] > 1000
        assert len(beamline.values(choppers, "T:ENUM")) == 1
    until(lambda: not any(stream["connected"] for stream in beamline.figures()), beamline.said)
    restarted = {n: len(beamline.values(motion, f"T:{n}")) for n in names}
    with ioc(database, network):
        until(lambda: all(stream["connected"] for stream in beamline.figures()), beamline.said)
        for name in ("T:3", "T:13"):
            said = [deserialise_ep01(m.value()).status for m in beamline.values(motion, name, b"ep01")]
            wanted = [ConnectionInfo.CONNECTED, ConnectionInfo.DISCONNECTED, ConnectionInfo.CONNECTED]
            assert said == wanted, (name, said)
        kills = times(3, 30)
        before = {n: len(beamline.values(motion, f"T:{n}")) for n in names}
        for n in range(kills):
            time.sleep(dice.random())
            kill(until(beamline.mover, beamline.said))
            wanted = {k: before[k] + 10 * n for k in names}
            until(
                lambda wanted=wanted: all(len(beamline.values(motion, f"T:{k}")) > wanted[k] for k in names),
                beamline.said,
            )
        beamline.end()
    # The counters began again with the IOC; those that came while no mover ran are missing.
    for n in names:
        is_rising(beamline, motion, f"T:{n}", restarted[n])
    sent = beamline.once(motion) + beamline.once(choppers)
    print(f"mover of the forwarder killed beside an IOC: {kills} injected, {sent} messages once")


@pytest.mark.soak
def test_every_schema_goes_through_tls_and_scram(beamline, network, secure, monkeypatch):  # noqa: F811
    from epics_servers import image
    from epics_updates import structures
    from p4p.nt import NTScalar
    from p4p.server import Server
    from p4p.server.thread import SharedPV

    motion, choppers = beamline.topics
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORD)
    # As docs/how-to/replace-the-forwarder.md lists them.
    allow(beamline.kafka, ResourceType.TOPIC, beamline.commands, "describe", "read")
    allow(beamline.kafka, ResourceType.TOPIC, beamline.status_topic, "describe", "write")
    for topic in (beamline.storage, *beamline.topics):
        allow(beamline.kafka, ResourceType.TOPIC, topic, "describe", "read", "write")
    at = time.time_ns() - 60 * 10**9
    served = {name: value for name, (value, _) in structures(at).items()}
    served["UNITS"] = NTScalar("d", display=True).wrap({"value": 1.5, "display": {"units": "K"}}, timestamp=at / 1e9)
    served["IMAGE"] = image(np.arange(6, dtype="u2"), [3, 2], "", 77, at // 10**9)
    wanted = {"S:d": "f144", "ENUM": "f142", "A:i": "tdct", "TABLE:i": "nttable_se00", "TABLE:d": "nttable_senv"}
    wanted |= {"IMAGE": "ad00", "ALARM:HIGH": "al00", "S:h": "ep01", "S:b": "no_op", "UNITS": "un00"}
    flags = ["--ssl-ca-cert-file", beamline.kafka.certificate]
    for flag in ("config-topic", "status-topic", "storage-topic", "output-broker"):
        flags += [f"--{flag}-sasl-password", "env:KAFKA_PASSWORD"]
    pvs = {name: SharedPV(initial=served[name]) for name in wanted}
    with Server(providers=[pvs], conf=network, useenv=False):
        beamline.start(*flags, broker=f"SASL_SSL+SCRAM-SHA-512\\{USER}@{secure.address}")
        beamline.send(UpdateType.ADD, *((pv, schema, motion, Protocol.PVA, 0) for pv, schema in wanted.items()))

        def sent() -> dict[tuple[str, str], bytes]:
            return {(m.key().decode(), m.value()[4:8].decode()): m.value() for m in beamline.all(motion)}

        ids = {(pv, schema.removeprefix("nttable_")) for pv, schema in wanted.items() if schema != "no_op"}
        beside = {(f"{pv}/state" if pv == "IMAGE" else pv, "ep01") for pv in wanted}
        beside |= {
            (f"{pv}/state" if pv == "IMAGE" else pv, "al00") for pv, schema in wanted.items() if schema != "f142"
        }
        # Structures of frames and tables have an alarm too.
        until(lambda: sent().keys() >= ids | beside, lambda: f"{ids | beside - sent().keys()} {beamline.said()}")
        found = sent()
        beamline.end()
    assert found.keys() == ids | beside
    read = {key: DESERIALISERS[key[1]](payload) for key, payload in found.items() if key[1] != "un00"}
    assert read["S:d", "f144"].value == 1e-300 and read["S:d", "f144"].timestamp_unix_ns == at
    assert read["ENUM", "f142"].value == 1
    assert read["A:i", "tdct"].timestamps.tolist() == [at - 70000] * 2
    assert read["TABLE:i", "se00"].values.tolist() == [1, -2, 3] and read["TABLE:i", "se00"].timestamp_unix_ns == at
    assert read["TABLE:d", "senv"].values.tolist() == [2, -2, 0]
    assert read["IMAGE", "ad00"].data.tolist() == [[0, 1, 2], [3, 4, 5]] and read["IMAGE", "ad00"].unique_id == 77
    assert read["ALARM:HIGH", "al00"].message == "HIGH"
    assert deserialise_un00(found["UNITS", "un00"]).units == "K"
    assert holders(beamline.data, PASSWORD) == [] and PASSWORD not in beamline.lab.said(beamline.process)[1]
