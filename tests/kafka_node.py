"""Apache Kafka for tests: one node, or a cluster of three, each broker and controller in one small JVM, on free ports of
the loopback.

`cargo xtask check` puts its jars into `target`, with an archive of their loaded classes. A node dies with the test run,
however that ends.
"""

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from ports import free_port
from streaming_data_types import serialise_f144

ROOT = Path(__file__).resolve().parents[1]
POM = ROOT / "tests/services/kafka/pom.xml"
HANG_S = 300.0
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)

# Small buffers: the cleaner alone would take half of the heap. Users of `SECURE` have no rights but those that they were
# given, everybody else has all. A node that is killed and started again waits until its session before has ended.
PROPERTIES = """
process.roles=broker,controller
node.id={number}
controller.quorum.voters={voters}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{broker},BEHIND://127.0.0.1:{behind},SECURE://127.0.0.1:{secure},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{broker},BEHIND://127.0.0.1:{proxy},SECURE://127.0.0.1:{secure}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,BEHIND:PLAINTEXT,SECURE:SASL_SSL,CONTROLLER:PLAINTEXT
listener.name.secure.sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.secure.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
ssl.keystore.location={folder}/keys.p12
ssl.keystore.password={keys}
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
inter.broker.listener.name=PLAINTEXT
log.dirs={folder}/log
auto.create.topics.enable=false
offsets.topic.replication.factor={replication}
offsets.topic.num.partitions=1
transaction.state.log.replication.factor={replication}
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=4000
log.cleaner.dedupe.buffer.size=4194304
log.cleaner.backoff.ms=100
log.initial.task.delay.ms=100
log.retention.check.interval.ms=500
"""
KEYS = "of-tests"
JAVA = ["java", "-Xms256m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
JAVA += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]


def jars() -> Path:
    """The folder with the jars of the version that stands in the pom."""
    version = re.search(r"<kafka.version>(.+)</kafka.version>", POM.read_text())[1]
    return ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / f"kafka-{version}"


def classpath() -> str:
    """The jars, as Java takes them."""
    if not jars().is_dir():
        pytest.fail(f"Apache Kafka is not in {jars()}; `cargo xtask kafka` fetches it")
    return f"{jars()}/*"


def archive() -> Path:
    """The classes of a node as the JVM has loaded them once: with it a start takes half of the processor time. A JVM
    that is not the one that wrote it starts without."""
    return jars() / "classes.jsa"


def make_archive():
    """Writes the archive: a node starts and ends."""
    with tempfile.TemporaryDirectory() as folder:
        node = Node(Path(folder))
        node.format()
        partial = archive().with_suffix(".partial")
        node.process = node.java("kafka.Kafka", node.properties, options=[f"-XX:ArchiveClassesAtExit={partial}"])
        node.ready()
        node.process.terminate()
        node.process.wait(HANG_S)
        # A node that was killed meanwhile has written none.
        partial.rename(archive())


def die_with(parent: int):
    """What a child runs before its program: it is killed when `parent` ends."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


class Cluster:
    """What tests ask of a cluster. Topics live until the end of the test run."""

    def __init__(self, address: str, replication: int):
        self.address = address
        self.replication = replication
        # A request fails when the client ends before the answer.
        self.admin = AdminClient({"bootstrap.servers": address, "log_level": 0, "reconnect.backoff.max.ms": 100})

    def topic(self, name: str, partitions: int = 1, **config) -> str:
        """Makes a topic; `config` with `_` for the dots. Its name."""
        config = {key.replace("_", "."): str(value) for key, value in config.items()}
        self.admin.create_topics([NewTopic(name, partitions, self.replication, config=config)])[name].result(HANG_S)
        return name

    def delete(self, topic: str):
        """Deletes a topic."""
        for future in self.admin.delete_topics([topic]).values():
            future.result(HANG_S)

    def make_again(self, topic: str, partitions: int):
        """Deletes a topic, and makes one of the same name."""
        self.admin.delete_topics([topic])[topic].result(HANG_S)
        end = time.monotonic() + HANG_S
        while True:
            try:
                self.topic(topic, partitions)
                return
            except KafkaException as error:
                # It is marked for deletion.
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS or time.monotonic() > end:
                    raise
                time.sleep(0.1)

    def add_partitions(self, topic: str, partitions: int):
        """A topic has so many partitions from now on."""
        self.admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(HANG_S)

    def producer(self, **more) -> Producer:
        """A producer that waits for the broker as long as it takes: each message once, in order."""
        properties = {"bootstrap.servers": self.address, "enable.idempotence": True, "acks": "all", "linger.ms": 5}
        properties |= {"message.timeout.ms": 0, "reconnect.backoff.max.ms": 500, "log_level": 0}
        return Producer(properties | {key.replace("_", "."): value for key, value in more.items()})

    def send(self, messages, key: bytes | None = None):
        """Sends each `(topic, partition, payload)`; all are acknowledged then."""
        producer, failed = self.producer(), []
        for topic, partition, payload in messages:
            producer.produce(
                topic, payload, key, partition, on_delivery=lambda error, _: error and failed.append(error)
            )
            producer.poll(0)
        assert producer.flush(HANG_S) == 0 and failed == []

    def delete_before(self, topic: str, partition: int, offset: int):
        """What retention does: a partition begins at `offset` from now on."""
        asked = TopicPartition(topic, partition, offset)
        (done,) = self.admin.delete_records([asked]).values()
        assert done.result(HANG_S).low_watermark == offset

    def end(self, topic: str, partition: int = 0) -> int:
        """The offset behind the newest message of a partition."""
        (found,) = self.admin.list_offsets({TopicPartition(topic, partition): OffsetSpec.latest()}).values()
        return found.result(HANG_S).offset

    def read(self, topic: str, partition: int = 0) -> list[tuple[int, bytes]]:
        """Offsets and payloads of all that a partition holds."""
        properties = {"bootstrap.servers": self.address, "group.id": "nobody", "enable.auto.commit": False}
        consumer = Consumer(properties | {"log_level": 0})
        try:
            first, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=HANG_S)
            consumer.assign([TopicPartition(topic, partition, first)])
            rows, patience = [], time.monotonic() + HANG_S
            # What ends in the mark of a transaction has no message at its last offset.
            while consumer.position([TopicPartition(topic, partition)])[0].offset < end and first < end:
                assert time.monotonic() < patience, f"{topic}/{partition}: {len(rows)} messages, not all up to {end}"
                message = consumer.poll(0.1)
                if message is not None:
                    assert message.error() is None, message.error()
                    rows.append((message.offset(), message.value()))
            return rows
        finally:
            consumer.close()

    def user(self, name: str, password: str):
        """A user who may log in with SCRAM."""
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        asked = UserScramCredentialUpsertion(name, info, password.encode())
        self.admin.alter_user_scram_credentials([asked])[name].result(HANG_S)


class Node(Cluster):
    """One node."""

    def __init__(self, folder: Path, number: int = 1, replication: int = 1):
        self.folder = folder
        self.number = number
        self.broker = free_port()
        self.controller = free_port()
        super().__init__(f"127.0.0.1:{self.broker}", replication)
        # A client of `proxy` learns of no other address: a test puts a proxy there, in front of `behind`.
        self.behind = free_port()
        self.proxy = free_port()
        # TLS and SCRAM; `certificate` is that of the node.
        self.secure = free_port()
        self.certificate = folder / "certificate.pem"
        self.process: subprocess.Popen | None = None
        self.said = folder / "said"
        self.properties = folder / "server.properties"
        self.configure([self])

    def configure(self, nodes: list["Node"]):
        """Writes its properties; `nodes` are all of its cluster."""
        text = PROPERTIES.format(
            voters=",".join(f"{node.number}@127.0.0.1:{node.controller}" for node in nodes), keys=KEYS, **vars(self)
        )
        self.properties.write_text(text)

    def format(self):
        """Makes its folder, and the key of its TLS."""
        process = self.java("kafka.tools.StorageTool", "format", "-t", "4L6g3nShT-eMCtK--X86sw", "-c", self.properties)
        if process.wait(HANG_S) != 0:
            pytest.fail(f"Apache Kafka did not format its folder\n{self.tail()}")
        # Java brings openssl with it, which is done before a second JVM has begun.
        key, name = self.folder / "key.pem", ["-subj", "/CN=node", "-addext", "subjectAltName=IP:127.0.0.1"]
        make = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3", "-keyout", key, "-out", self.certificate]
        pack = ["pkcs12", "-export", "-inkey", key, "-in", self.certificate, "-out", self.folder / "keys.p12"]
        for words in ([*make, *name], [*pack, "-passout", f"pass:{KEYS}"]):
            done = subprocess.run(["openssl", *words], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr

    def java(self, *words, options=()) -> subprocess.Popen:
        """A process of Java on Kafka's jars."""
        me = os.getpid()
        options = options or [f"-XX:SharedArchiveFile={archive()}"]
        with self.said.open("ab") as said:
            return subprocess.Popen(
                [*JAVA, *options, "-cp", classpath(), *map(str, words)],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                cwd=self.folder,
                preexec_fn=lambda: die_with(me),
            )

    def start(self):
        """Starts it, and waits until it answers with its metadata."""
        self.launch()
        self.ready()

    def launch(self):
        """Starts it."""
        # The kernel looks at the thread: one that ends would take the node with it.
        assert threading.current_thread() is threading.main_thread()
        self.process = self.java("kafka.Kafka", self.properties)

    def ready(self):
        """Waits until it answers, and leads or follows all that it has."""
        end = time.monotonic() + HANG_S
        while True:
            if self.process.poll() is not None:
                pytest.fail(f"Apache Kafka ended with status {self.process.returncode}\n{self.tail()}")
            wrong = self.wrong()
            if not wrong:
                return
            if time.monotonic() > end:
                self.kill()
                pytest.fail(f"Apache Kafka was not ready for {HANG_S:.0f} s: {wrong}\n{self.tail()}")

    def wrong(self) -> str:
        """Why it is not ready: it does not answer, or a partition has no leader or lacks a replica. Empty where it is."""
        try:
            topics = self.admin.list_topics(timeout=5.0).topics
        except KafkaException as error:
            return str(error)
        return ", ".join(
            f"{name}/{p.id}: leader {p.leader}, replicas {p.replicas}, in sync {p.isrs}"
            for name, topic in topics.items()
            for p in topic.partitions.values()
            if p.leader < 0 or len(p.isrs) < len(p.replicas)
        )

    def kill(self):
        """kill -9, and the end awaited."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(HANG_S)
            self.process = None

    def restart(self):
        """kill -9 and a new start on the same folder and ports."""
        self.kill()
        self.start()

    def tail(self) -> str:
        """The end of what it said."""
        return self.said.read_text(errors="replace")[-4000:]


class Three(Cluster):
    """Three nodes: a topic has a replica on each, and two must have what is acknowledged."""

    def __init__(self, folder: Path):
        folders = [folder / str(number) for number in (1, 2, 3)]
        for one in folders:
            one.mkdir()
        self.nodes = [Node(one, number, 3) for number, one in enumerate(folders, 1)]
        super().__init__(",".join(node.address for node in self.nodes), 3)
        for node in self.nodes:
            node.configure(self.nodes)
            node.format()

    def start(self):
        """Starts all, and waits until they answer."""
        for node in self.nodes:
            node.launch()
        for node in self.nodes:
            node.ready()

    def topic(self, name: str, partitions: int = 1, **config) -> str:
        """Makes a topic. Its name."""
        return super().topic(name, partitions, **({"min_insync_replicas": 2} | config))

    def leader(self, topic: str, partition: int) -> Node | None:
        """The node that leads a partition."""
        number = self.admin.list_topics(topic, HANG_S).topics[topic].partitions[partition].leader
        return self.nodes[number - 1] if number > 0 else None

    def kill(self):
        """kill -9 of all."""
        for node in self.nodes:
            node.kill()


def compacted(kafka: Cluster, name: str) -> tuple[str, int, list[int]]:
    """A topic in which compaction has left an empty segment: the search for a time ends there, although messages come
    behind it. Its name; a time, ms, 5 s behind which the search finds nothing; the times of its last values but one, ms.
    """
    rules = {
        "cleanup_policy": "compact",
        "segment_bytes": 1 << 20,
        "segment_ms": 1000,
        "min_cleanable_dirty_ratio": 0.01,
    }
    topic = kafka.topic(name, **rules)
    start = time.time_ns() // 1_000_000 - 100_000
    # Of every producer an empty batch with its time stays: a segment of such is where the search ends. Each sends one
    # batch, and a segment has room for one.
    for n in range(4):
        producer = kafka.producer(linger_ms=60_000)
        times = [start + 10_000 * n + 5 * key for key in range(955)]
        for key, at in enumerate(times):
            payload = serialise_f144("temperature", float(key), at * 1_000_000)
            producer.produce(topic, payload, key=str(key), timestamp=at, headers={"full": b"-" * 850})
        assert producer.flush(HANG_S) == 0
        time.sleep(1.1)
    producer.produce(topic, b"not compacted", key="last", timestamp=start + 60_000)
    assert producer.flush(HANG_S) == 0
    with contextlib.closing(Consumer({"bootstrap.servers": kafka.address, "group.id": "search"})) as consumer:
        end = time.monotonic() + HANG_S
        while True:
            (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, start + 5000)], HANG_S)
            if found.offset == OFFSET_END:
                return topic, start, times
            assert time.monotonic() < end, f"the brokers find offset {found.offset}"
            time.sleep(0.1)


if __name__ == "__main__":
    make_archive()
