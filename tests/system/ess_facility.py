"""The other side of `beamport ess writer`: what NICOS and the EFUs of a facility send, and what they hear.

Every command is built, and every answer is read, by ess-streaming-data-types.
"""

import json
import re
import shutil
import signal
import subprocess
import time
import uuid
from pathlib import Path

import h5py
from confluent_kafka import Consumer, TopicPartition
from conftest import HANG_S, Lab, until
from kafka_node import Cluster
from stream_files import streams
from streaming_data_types import (
    deserialise_answ,
    deserialise_wrdn,
    deserialise_x5f2,
    serialise_6s4t,
    serialise_ev44,
    serialise_f144,
    serialise_pl72,
)

READ = {
    b"answ": deserialise_answ,
    b"wrdn": deserialise_wrdn,
    b"x5f2": deserialise_x5f2,
}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def structure(topic: str) -> dict:
    """Events and a log of one topic, as the templates of ESS have them."""

    def group(name: str, class_: str, children: list) -> dict:
        attributes = [{"name": "NX_class", "dtype": "string", "values": class_}]
        return {"type": "group", "name": name, "children": children, "attributes": attributes}

    events = {"module": "ev44", "config": {"topic": topic, "source": "bank"}}
    log = {"module": "f144", "config": {"topic": topic, "source": "temperature", "dtype": "double"}}
    children = [group("bank", "NXevent_data", [events]), group("temperature", "NXlog", [log])]
    return {"children": [group("entry", "NXentry", children)]}


class Facility:
    """Topics of one test, writers that serve them, and all that was heard."""

    def __init__(self, lab: Lab, kafka: Cluster, name: str):
        self.lab = lab
        self.kafka = kafka
        self.pool = kafka.topic(f"{name}_pool")
        self.status = kafka.topic(f"{name}_status")
        self.control = kafka.topic(f"{name}_control")
        self.topic = kafka.topic(f"{name}_data", 2)
        self.files = lab.folder / "files"
        self.files.mkdir()
        self.data = lab.folder / "writer"
        properties = {"bootstrap.servers": kafka.address, "group.id": "nicos", "enable.auto.commit": False}
        properties |= {"receive.message.max.bytes": 2147483647}
        self.consumer = Consumer(properties | {"log_level": 0})
        self.consumer.assign([TopicPartition(topic, 0, 0) for topic in (self.status, self.control)])
        self.heard: list[tuple[str, bytes, object]] = []
        self.writers: list[subprocess.Popen] = []
        self.sent = 0

    def writer(
        self,
        *more,
        ready: bool = True,
        brokers: str | None = None,
        interval: str = "500ms",
        after_stop: str = "500ms",
    ) -> subprocess.Popen:
        """A started writer; it serves the pool once it has said that it is idle, or writes a job."""
        before = len(self.all(b"x5f2"))
        process = self.lab.popen(
            "ess",
            "writer",
            *("--brokers", brokers or self.kafka.address),
            *("--job-pool-topic", self.pool),
            *("--command-status-topic", self.status),
            *("--hdf-output-prefix", self.files),
            *("--hdf-template-prefix", self.files),
            *("--status-master-interval", interval),
            *("--time-after-stop", after_stop),
            *("--memory", "64 MiB"),
            # A member that was killed is missed sooner than by default.
            *("-X", "session.timeout.ms", "2000", "heartbeat.interval.ms", "500"),
            *("--data", self.data),
            *more,
        )
        self.writers.append(process)
        if ready:
            until(lambda: self.speaks(process, before), lambda: f"no status: {self.said(process)}")
        return process

    def speaks(self, process: subprocess.Popen, before: int) -> bool:
        """More status messages came than `before`; fails where the writer has ended."""
        assert process.poll() is None, self.said(process)
        return len(self.all(b"x5f2")) > before

    def said(self, process: subprocess.Popen | None = None) -> str:
        process = process or self.writers[-1]
        logs = [log.read_text(errors="replace")[-2000:] for log in self.data.glob("jobs/*/up.log")]
        heard = [(topic, id_, value) for topic, id_, value in self.heard if id_ != b"x5f2"]
        return "\n".join([f"status {process.poll()}", self.lab.said(process)[1][-3000:], *logs, str(heard)[-3000:]])

    def all(self, id_: bytes, topic: str | None = None) -> list:
        """Messages of a schema that were heard."""
        # Fewer than asked for: nothing waits. A writer that says something all the time has no end.
        messages = [None] * 100
        while len(messages) == 100:
            messages = self.consumer.consume(100, 0.05)
            for message in messages:
                if message.error() is None:
                    which = message.value()[4:8]
                    read = READ.get(which, bytes)
                    self.heard.append((message.topic(), which, read(message.value())))
        return [value for where, which, value in self.heard if which == id_ and topic in (None, where)]

    def start(self, name: str, start=None, stop=None, **more) -> str:
        """Sends a start; the id of the job."""
        job = str(uuid.uuid1())
        fields = {
            "job_id": job,
            "filename": name,
            "start_time": now_ms() if start is None else start,
            "stop_time": stop,
            "nexus_structure": json.dumps(structure(self.topic)),
            "control_topic": self.control,
            "metadata": json.dumps({"proposal": name, "text": 'ü"\\'}),
        }
        self.kafka.send([(self.pool, 0, serialise_pl72(**(fields | more)))])
        return job

    def stop(self, job: str, stop: int = 0, command: str | None = None) -> str:
        """Sends a stop; the id of the command."""
        command = command or str(uuid.uuid4())
        self.kafka.send([(self.control, 0, serialise_6s4t(job_id=job, stop_time=stop, command_id=command))])
        return command

    def answer(self, command: str):
        """The answer to a command; of a start, that of the job."""

        def find():
            return next((a for a in self.all(b"answ", self.control) if a.command_id == command), None)

        return until(find, lambda: f"no answer to {command}: {self.said()}")

    def accepted(self, job: str):
        """The job is accepted."""
        answer = self.answer(job)
        assert (answer.status_code, answer.outcome, answer.job_id) == (201, 0, job), answer.message
        return answer

    def finished(self, job: str, is_error: bool = False):
        """The outcome of a job; its message as JSON."""

        def find():
            return next((w for w in self.all(b"wrdn", self.control) if w.job_id == job), None)

        wrdn = until(find, lambda: f"no outcome of {job}: {self.said()}")
        assert wrdn.error_encountered == is_error, wrdn.message
        return wrdn, json.loads(wrdn.message)

    def send(self, count: int, start_ms: int) -> list[int]:
        """Sends numbered events and values, one each ms; the times, in ns."""
        times = [(start_ms + n) * 1_000_000 for n in range(count)]
        producer = self.kafka.producer()
        for n, time_ns in enumerate(times, self.sent):
            event = serialise_ev44("bank", n, [time_ns], [0], [n, n + 1], [n % 100, n % 100])
            # The values of a name are in one partition, as the forwarder sends them.
            for payload, partition in ((event, n % 2), (serialise_f144("temperature", float(n), time_ns), 0)):
                producer.produce(self.topic, payload, partition=partition, timestamp=time_ns // 1_000_000)
        assert producer.flush(HANG_S) == 0
        self.sent += count
        return times

    def whole(self, name: str, times: list[int], first: int = 0, before: list[int] | None = None):
        """The file has these events and values, each once, and the value from before the start."""
        with h5py.File(self.files / name) as file:
            bank, log = file["entry/bank"], file["entry/temperature"]
            events = sorted(zip(bank["event_time_zero"][:].tolist(), bank["event_index"][:].tolist(), strict=True))
            found = [time for time, _ in events]
            assert found == times, f"lost {sorted(set(times) - set(found))}, not sent {sorted(set(found) - set(times))}"
            assert sorted(bank["event_time_offset"][:].tolist()) == sorted(
                n + k for n in range(first, first + len(times)) for k in (0, 1)
            )
            values = sorted(zip(log["time"][:].tolist(), log["value"][:].tolist(), strict=True))
            older = before or []
            wanted = [(time, float(n)) for n, time in enumerate(older + times, first - len(older))]
            assert values == wanted, f"{values} instead of {wanted}"

    def idle(self):
        """Nothing of any job is left, once its folder is removed."""
        jobs = self.data / "jobs"
        until(lambda: list(jobs.iterdir()) == [], lambda: f"{list(jobs.iterdir())}: {self.said()}")

    def end(self, process: subprocess.Popen):
        """SIGTERM; the writer ends by itself."""
        process.send_signal(signal.SIGTERM)
        assert process.wait(HANG_S) == 0, self.said(process)

    def processes(self, verb: str | None = None) -> list[int]:
        """Processes of the writers, or those below them whose first word is `verb`: `up` is a mover, `write` writes a file."""
        above, verbs = {}, {}
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    pid = int(folder.name)
                    verbs[pid] = (folder / "cmdline").read_bytes().split(b"\0")[1:2]
                    above[pid] = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
                except (OSError, IndexError, ValueError):
                    continue
        mine = {process.pid for process in self.writers}

        def is_mine(pid: int) -> bool:
            while pid in above:
                if pid in mine:
                    return True
                pid = above[pid]
            return False

        return [pid for pid in above if (verb is None or verbs[pid] == [verb.encode()]) and is_mine(pid)]

    def memory(self) -> int:
        """Bytes of memory that the processes of the writers hold, and the streams of their jobs."""
        held = 0
        for pid in self.processes():
            try:
                (line,) = re.findall(r"^RssAnon:\s*(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.M)
                held += int(line) * 1024
            except (OSError, ValueError):
                # It has ended.
                continue
        for folder in self.data.glob("jobs/*/streams"):
            for stream in streams(folder, True):
                for file in stream.live.rglob("*"):
                    try:
                        held += file.stat().st_blocks * 512
                    except OSError:
                        continue
        return held

    def told(self, since: int = 0) -> list[dict]:
        """What the status on the control topic said, from the message `since` on."""
        return [json.loads(message.status_json) for message in self.all(b"x5f2", self.control)[since:]]

    def close(self):
        self.consumer.close()
        for process in self.writers:
            if process.poll() is None:
                process.kill()
                process.wait(HANG_S)
        # The streams of a job that was left lie in shared memory.
        for folder in self.data.glob("jobs/*/streams"):
            for stream in streams(folder, True):
                shutil.rmtree(stream.live, ignore_errors=True)
