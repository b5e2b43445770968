"""One instrument on several hosts, joined by Apache Kafka: what one host receives, the others have, whoever is killed.

The hosts of a test are processes on this machine, each with a data folder of its own.
"""

import sys
import time

import numpy as np
import pytest
from conftest import until
from kafka_node import ROOT
from nexus_files import content
from stream_files import Stream

beamport = pytest.importorskip("beamport", reason="pip install .")
pytestmark = pytest.mark.services

sys.path.insert(0, str(ROOT / "docs/reference"))
from stream_reader import PlainReader, block  # noqa: E402

# Origins, numbers and times of entries are those of the near stream. Rows of origins may be others.
KEPT = ["source_time", "arrival_time", "origin_seq", "schema", "length", "flags"]


class Hosts:
    """An instrument on two hosts, `a` and `b`: the first one leads."""

    def __init__(self, lab, kafka, name: str, stages: str, hosts: str = "ab", keys: str = ""):
        self.lab = lab
        self.name = name
        sections = "".join(f'[host.{host}]\ndata = "{self.folder(host)}"\n' for host in hosts)
        lab.file.write_text(
            f'instrument = "{name}"\n[hosts]\ncarrier = "kafka"\nbrokers = "{kafka.address}"\n{keys}{sections}{stages}'
        )
        self.processes = {}

    def folder(self, host: str):
        """The data folder of a host."""
        return self.lab.folder / f"data-{host}"

    def up(self, host: str):
        """Starts a host."""
        self.processes[host] = self.lab.up("--host", host)
        return self.processes[host]

    def kill(self, host: str):
        """kill -9 of the mover of a host; its children end with it."""
        self.lab.kill(self.processes[host])

    def stream(self, host: str, name: str):
        """A stream of a host, as Python reads it."""
        return beamport.open(self.folder(host))[name]

    def count(self, host: str, name: str) -> int:
        """Messages of a stream; 0 where there is none yet."""
        try:
            return Stream(self.folder(host) / name).marks()[2]
        except FileNotFoundError:
            return 0

    def moves(self, host: str, name: str):
        """Waits until a stream grows."""
        before = self.count(host, name)

        def stands():
            return f"`{name}` of {host} stands at {before}: {self.lab.said(self.processes[host])[1][-2000:]}"

        until(lambda: self.count(host, name) > before, stands)

    def forget(self):
        """Removes the data folders."""
        for folder in self.lab.folder.glob("data-*"):
            self.lab.forget(folder)


@pytest.fixture
def hosts(lab, kafka):
    """Makes an instrument on hosts; nothing of it is left."""
    made = []

    def make(name: str, stages: str, through=kafka, **more) -> Hosts:
        made.append(Hosts(lab, through, name, stages, **more))
        return made[-1]

    yield make
    lab.clear()
    for one in made:
        one.forget()


def template(lab):
    """The template of the file beside the instrument file."""
    (lab.folder / "amor.nexus.json").write_text((ROOT / "examples/amor.nexus.json").read_text())


def rows(hosts: Hosts, host: str, name: str) -> list[tuple]:
    """What is known of each message: identity of its maker, times, flags and bytes."""
    stream = hosts.stream(host, name)
    return [
        (m.origin, m.origin_seq, m.source_time, m.arrival_time, m.schema, m.flags, bytes(m.payload))
        for m in stream.read()
    ]


# A reflectometer on `a`, with a camera whose stream is in memory; its file is written on `b`.
STAGES = """
[source.detector]
kind = "sim"
model = "amor"
rate = 20000
live = "16 MiB"
host = "a"

[source.monitor]
kind = "sim"
model = "amor-monitor"
live = "4 MiB"
host = "a"

[source.devices]
kind = "sim"
model = "amor-devices"
live = "4 MiB"
host = "a"

[source.camera]
kind = "sim"
model = "camera"
shape = [32, 32]
fps = 50
level = "memory"
live = "64 MiB"
host = "a"

[merge.all]
kind = "time"
inputs = ["detector", "camera"]
host = "b"

[sink.file]
kind = "nexus"
template = "amor.nexus.json"
inputs = ["detector", "monitor", "devices"]
file = "run.nxs"
host = "b"

[run.first]
settle = "500 ms"
"""
STREAMS = ["detector", "monitor", "devices", "camera"]


def equal(hosts: Hosts, name: str) -> int:
    """The mirror holds what the near stream holds, entry by entry; how many messages that is."""
    near, far = rows(hosts, "a", name), rows(hosts, "b", name)
    assert [row[:6] for row in far] == [row[:6] for row in near[: len(far)]]
    assert far == near[: len(far)]
    entries = [Stream(hosts.folder(host) / name) for host in "ab"]
    there = [stream.entries(0, len(far)) for stream in entries]
    for field in KEPT:
        assert np.array_equal(there[0][field], there[1][field]), field
    assert np.array_equal(there[1]["parent_sequence"], np.arange(len(far)))
    return len(far)


def one_file(hosts: Hosts, name: str = "run.nxs"):
    """The file of the run on `b` is the one that `a` makes of its own streams."""
    lab = hosts.lab
    (file,) = hosts.folder("b").rglob(name)
    one = lab.folder / "one.nxs"
    lab.run(
        "write", "first", "--output", one, "--template", lab.folder / "amor.nexus.json", "--data", hosts.folder("a")
    )
    there, here = content(file), content(one)

    # The hosts wrote them at other times, of accounts of their own.
    def measured(found):
        return {path: value for path, value in found.items() if "/entry/beamport" not in path}

    assert measured(there).keys() == measured(here).keys()
    assert [path for path, value in measured(there).items() if measured(here)[path] != value] == []


def carried(hosts: Hosts, kafka, name: str):
    """The topic of a stream, read in plain Python, has the messages of the stream."""
    near = PlainReader(hosts.folder("a") / name)
    origins, found = near.rows("origins"), []
    for _, payload in kafka.read(f"{hosts.name}.{name}"):
        uuid, epoch, previous, _, messages = block(payload)
        if messages:
            assert (uuid, epoch, previous) == (near.uuid, near.epochs[-1][0], len(found))
        found += [message[1:] for message in messages]
    there = [near.message(sequence) for sequence in range(len(found))]
    assert found == [(*message[:3], origins[message[3]], *message[4:]) for message in there]
    assert len(found) > 2
    mirror = PlainReader(hosts.folder("b") / name)
    assert mirror.near == [["0", near.uuid.hex(), str(near.epochs[-1][0])]]


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_a_run_of_two_hosts_is_that_of_one(lab, hosts, kafka, nexus, order):
    template(lab)
    hosts = hosts(f"two-{order}", STAGES + 'duration = "3 s"\n')
    for host in order:
        hosts.up(host)
    reports = {host: lab.report(hosts.processes[host]) for host in "ab"}
    carried(hosts, kafka, "monitor")
    assert all(equal(hosts, name) > 2 for name in STREAMS)
    assert [report["run"] for report in reports.values()] == ["first", "first"]
    one_file(hosts)


@pytest.mark.long
def test_movers_and_broker_are_killed_and_nothing_is_lost_or_twice(lab, hosts, kafka, nexus, times, dice):
    template(lab)
    hosts = hosts("killed", STAGES)
    hosts.up("a")
    hosts.up("b")
    hosts.moves("b", "detector")
    # A broker takes most of the time of a kill: one of three is enough where all tests run.
    kills, of_broker = times(10, 200), times(3, 200)
    victims = ["a", "b"] * kills + ["broker"] * of_broker
    for victim in dice.sample(victims, len(victims)):
        time.sleep(dice.uniform(0.05, 0.5))
        if victim == "broker":
            kafka.kill()
            kafka.start()
        else:
            hosts.kill(victim)
            hosts.up(victim)
        hosts.moves("b", "detector")
    lab.interrupt(hosts.processes["a"])
    lab.end(hosts.processes["a"])
    lab.end(hosts.processes["b"])
    sent = {name: equal(hosts, name) for name in STREAMS}
    for host in "ab":
        ledger = beamport.open(hosts.folder(host)).run("first").ledger()
        assert ledger["closed"] and ledger["lost"] == 0, ledger
    assert {row["stream"] for row in ledger["mirrors"]} == set(STREAMS)
    one_file(hosts)
    print(f"injected {len(victims)} kills of hosts and broker: {sent} messages, 0 lost, 0 twice")
