"""The ESS chain on this machine: an IOC and a detector, Kafka, the forwarder, the writer, and a NeXus file.

    python examples/ess-chain/chain.py

starts them all, sends the forwarder its PVs (`fc00`) and the writer a job (`pl72`), counts the messages of the job at
each hop, and compares the file with what was sent. README.md beside this file says what it needs. Exit status: 0 if
every hop has the same messages, 1 if not.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

import beamport
import h5py
import numpy as np
from p4p.client.thread import Context
from streaming_data_types import (
    deserialise_al00,
    deserialise_ep01,
    deserialise_ev44,
    deserialise_f144,
    deserialise_wrdn,
    deserialise_x5f2,
    serialise_fc00,
    serialise_pl72,
)
from streaming_data_types.fbschemas.forwarder_config_update_fc00.Protocol import Protocol
from streaming_data_types.fbschemas.forwarder_config_update_fc00.UpdateType import UpdateType
from streaming_data_types.forwarder_config_update_fc00 import StreamInfo

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# The servers that the tests start too.
sys.path.insert(0, str(ROOT / "tests"))
from epics_servers import environment, ioc  # noqa: E402
from kafka_node import Cluster, Node, jars  # noqa: E402

PVS = {f"CHAIN:MOT:{n}": Protocol.PVA for n in (1, 2, 3)} | {f"CHAIN:TEMP:{n}": Protocol.CA for n in (1, 2)}
PATIENCE_S = 120.0


def wait(what, text: str):
    """Returns the first true answer of `what()`; ends the program if there is none."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if answer := what():
            return answer
        time.sleep(0.05)
    sys.exit(f"error: {text}: not within {PATIENCE_S:.0f} s")


class Chain:
    """The processes of the chain, and what they sent. Everything is in one new folder."""

    def __init__(self, folder: Path, kafka: Cluster, settings: dict[str, str]):
        """Makes the topics, whose names begin with that of the folder."""
        self.folder = folder
        self.kafka = kafka
        self.settings = settings
        names = ["detector", "motion", "forwarder_commands", "forwarder_status", "forwarder_storage"]
        names += ["filewriter_pool", "filewriter_status"]
        self.topics = {name: kafka.topic(f"{folder.name}_{name}") for name in names}
        self.heard = []

    def text(self, name: str) -> str:
        """A file beside this one, with the broker and topics of this chain."""
        text = (HERE / name).read_text().replace("localhost:9092", self.kafka.address)
        return text.replace("chain_", f"{self.folder.name}_")

    def beamport(self, stack: contextlib.ExitStack, name: str, *words):
        """Starts the program `beamport` until the end; what it prints is in `NAME.log`."""
        with (self.folder / f"{name}.log").open("wb") as log:
            command = ["beamport", *map(str, words)]
            settings = os.environ | self.settings
            process = subprocess.Popen(command, cwd=self.folder, env=settings, stdout=log, stderr=log)
        print(f"{name:10}  {' '.join(command)}", flush=True)

        def end():
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE_S)

        stack.callback(end)

    def start(self, stack: contextlib.ExitStack):
        """Starts detector, forwarder and writer, and waits until both services report their status."""
        address, topics = self.kafka.address, self.topics
        (self.folder / "detector.toml").write_text(self.text("detector.toml"))
        self.beamport(stack, "detector", "up", "detector.toml")
        places = [("config", "commands"), ("status", "status"), ("storage", "storage")]
        flags = [f"--{flag}-topic={address}/{topics[f'forwarder_{name}']}" for flag, name in places]
        self.beamport(stack, "forwarder", "ess", "forwarder", *flags, "--output-broker", address, "--data", "forwarder")
        flags = ["--brokers", address, "--job-pool-topic", topics["filewriter_pool"], "--data", "writer"]
        flags += ["--command-status-topic", topics["filewriter_status"], "--hdf-output-prefix", self.folder]
        self.beamport(stack, "writer", "ess", "writer", *flags)
        for service in ("forwarder", "filewriter"):
            topic = topics[f"{service}_status"]
            wait(lambda topic=topic: self.read(topic, b"x5f2"), f"no status of the {service}, see its log")

    def listen(self, stack: contextlib.ExitStack):
        """Records what the IOC serves, by a client of its own."""
        context = stack.enter_context(Context("pva", conf=self.settings, useenv=False, nt=False))

        def hear(name):
            return lambda update: self.heard.append((name, update))

        for name in PVS:
            stack.enter_context(contextlib.closing(context.monitor(name, hear(name))))

    def configure(self):
        """Sends the PVs to the forwarder, and waits until each is connected."""
        streams = [StreamInfo(pv, "f144", self.topics["motion"], protocol, 0) for pv, protocol in PVS.items()]
        command = serialise_fc00(UpdateType.ADD, streams)
        self.kafka.send([(self.topics["forwarder_commands"], 0, command)])

        def connected() -> bool:
            newest = self.read(self.topics["forwarder_status"], b"x5f2")[-1]
            rows = json.loads(deserialise_x5f2(newest).status_json)["beamport"]["streams"]
            return len(rows) == len(PVS) and all(row["connected"] for row in rows)

        wait(connected, "not all PVs are connected, see forwarder.log")
        wait(lambda: {pv for pv, *_ in self.values()} == set(PVS), "not all PVs are in the topic, see forwarder.log")

    def write(self, seconds: float) -> tuple[int, int, dict]:
        """Has a file written; start and stop in ns, and what `wrdn` says."""
        start = time.time_ns() // 1_000_000
        stop = start + int(seconds * 1000)
        job = serialise_pl72(
            job_id=str(uuid.uuid4()),
            filename="chain.nxs",
            start_time=start,
            stop_time=stop,
            nexus_structure=self.text("structure.json"),
            control_topic=self.topics["filewriter_status"],
        )
        self.kafka.send([(self.topics["filewriter_pool"], 0, job)])
        found = wait(lambda: self.read(self.topics["filewriter_status"], b"wrdn"), "no `wrdn`, see writer.log")
        outcome = deserialise_wrdn(found[0])
        if outcome.error_encountered:
            sys.exit(f"error: the writer reports {outcome.message}")
        return start * 1_000_000, stop * 1_000_000, json.loads(outcome.message)

    def read(self, topic: str, schema: bytes) -> list[bytes]:
        """The messages of a schema in a topic."""
        return [payload for _, payload in self.kafka.read(topic) if payload[4:8] == schema]

    def values(self) -> list[tuple]:
        """(PV, time, value) of the topic of the forwarder."""
        found = map(deserialise_f144, self.read(self.topics["motion"], b"f144"))
        return [(m.source_name, m.timestamp_unix_ns, float(m.value)) for m in found]

    def hops(self) -> dict[str, dict[str, list]]:
        """What each hop has: values (PV, time, value), alarms (PV, time, severity), connections (PV, time), and events by
        pulse (detector, time, offsets, pixels). Times are ns since 1970.
        """
        values, alarms, before = [], [], {}
        for pv, update in list(self.heard):
            stamp = update.timeStamp
            at = stamp.secondsPastEpoch * 1_000_000_000 + stamp.nanoseconds
            values.append((pv, at, float(update.value)))
            if before.get(pv, update.alarm.severity) != update.alarm.severity:
                alarms.append((pv, at, update.alarm.severity))
            before[pv] = update.alarm.severity
        hops = {"IOC, detector": {"values": values, "alarms": alarms}}
        stream = beamport.open(self.folder / "detector")["detector"].read()
        hops["IOC, detector"]["events"] = [
            pulse(m["reference_time"], m["time_of_flight"], m["pixel_id"]) for m in stream
        ]
        stream = list(beamport.open(self.folder / "forwarder" / "streams")["pvs"].read())
        hops["forwarder's stream"] = {
            "values": [(m["source_name"], m.source_time, m["value"]) for m in stream if m.schema == "f144"],
            "alarms": [
                (m["source_name"], m.source_time, severity(m["severity"])) for m in stream if m.schema == "al00"
            ],
        }
        hops["Kafka"] = {
            "values": self.values(),
            "alarms": [
                (m.source, m.timestamp_ns, m.severity.value)
                for m in map(deserialise_al00, self.read(self.topics["motion"], b"al00"))
            ],
            "events": [
                pulse(m.reference_time, m.time_of_flight, m.pixel_id)
                for m in map(deserialise_ev44, self.read(self.topics["detector"], b"ev44"))
            ],
            "connections": [
                (m.source_name, m.timestamp) for m in map(deserialise_ep01, self.read(self.topics["motion"], b"ep01"))
            ],
        }
        hops["NeXus file"] = rows(self.folder / "chain.nxs")
        return hops


def severity(word: str) -> int:
    """The number of a severity."""
    return ["OK", "MINOR", "MAJOR", "INVALID"].index(word)


def pulse(time_ns, offsets, pixels) -> tuple:
    """One pulse."""
    return "detector", int(time_ns[0]), np.asarray(offsets).tolist(), np.asarray(pixels).tolist()


def rows(path: Path) -> dict[str, list]:
    """What a file has."""
    with h5py.File(path) as file:
        entry = file["entry"]
        values, alarms = [], []
        for pv in PVS:
            log = entry[pv]
            values += [(pv, int(at), value) for at, value in zip(log["time"], log["value"], strict=True)]
            pairs = zip(log["alarm_time"], log["alarm_severity"], strict=True)
            alarms += [(pv, int(at), int(severity)) for at, severity in pairs]
        bank = entry["detector"]
        first = bank["event_index"][:]
        offsets, pixels = np.split(bank["event_time_offset"][:], first[1:]), np.split(bank["event_id"][:], first[1:])
        times = bank["event_time_zero"][:].reshape(-1, 1)
        return {"values": values, "alarms": alarms, "events": list(map(pulse, times, offsets, pixels))}


def compare(hops: dict[str, dict[str, list]], start: int, stop: int, outcome: dict) -> bool:
    """Prints what each hop has of the interval of the job, `start` to `stop`; whether all have the same, and `outcome`, the
    account of the writer, counts it.
    """

    def of_job(rows: list) -> list:
        return sorted(row for row in rows if start <= row[1] <= stop)

    kinds = ["values", "alarms", "events"]
    print(f"\n{'':20}{''.join(f'{kind:>10}' for kind in kinds)}")
    sent, is_same = {}, True
    for hop, found in hops.items():
        line = f"{hop:20}"
        for kind in kinds:
            if kind not in found:
                line += f"{'-':>10}"
                continue
            those = of_job(found[kind])
            count = sum(len(row[2]) for row in those) if kind == "events" else len(those)
            differs = sent.setdefault(kind, those) != those or not those
            is_same &= not differs
            line += f"{count:>9,}{'!' if differs else ' '}"
        print(line)
    in_topics = sum(len(of_job(rows)) for rows in hops["Kafka"].values())
    written = sum(topic["messages"] for topic in outcome["topics"].values())
    is_same &= written == in_topics and not outcome["lost"] and not outcome["aside"]
    print(f"\nThe topics have {in_topics:,} messages of the job, `wrdn` counts {written:,}.")
    return is_same


def main() -> int:
    """Runs the chain once."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=10.0, help="length of the job (default: 10)")
    parser.add_argument(
        "--brokers", help="HOST:PORT of a Kafka that runs already (default: start one, which needs mvn and java)"
    )
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="ess-chain-", dir=".")).resolve()
    print(f"folder      {folder}")
    with contextlib.ExitStack() as stack:
        if arguments.brokers:
            kafka = Cluster(arguments.brokers, 1)
        else:
            (folder / "kafka").mkdir()
            if not jars().is_dir():
                print("fetching Apache Kafka", flush=True)
                subprocess.run(["cargo", "xtask", "kafka"], cwd=ROOT, check=True)
            kafka = Node(folder / "kafka")
            kafka.format()
            kafka.start()
            stack.callback(kafka.kill)
        print(f"Kafka       {kafka.address}")
        settings = environment()
        stack.enter_context(ioc(HERE / "records.db", settings))
        print(f"IOC         python -m pvxslibs.ioc -d {HERE / 'records.db'}")
        chain = Chain(folder, kafka, settings)
        chain.listen(stack)
        chain.start(stack)
        chain.configure()
        start, stop, outcome = chain.write(arguments.seconds)
        hops = chain.hops()
    print(f"wrdn        {json.dumps(outcome)}")
    is_same = compare(hops, start, stop, outcome)
    print("The file has what was sent." if is_same else "The file does not have what was sent: a hop with ! differs.")
    return 0 if is_same else 1


if __name__ == "__main__":
    sys.exit(main())
