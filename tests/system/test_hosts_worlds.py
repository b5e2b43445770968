"""Hosts in other conditions: a wrong clock, many streams and few open files, rings shorter than a run, a link that is
down for longer than streams have room."""

import os
import time

import pytest
from conftest import preloaded, until
from nexus_files import different
from proxy import Proxy
from stream_files import AHEAD, Stream
from test_hosts import STAGES, STREAMS, equal, hosts, one_file, template  # noqa: F401
from test_hosts_account import listed, say

beamport = pytest.importorskip("beamport", reason="pip install .")
pytestmark = pytest.mark.services

HOUR_NS = 3_600_000_000_000
MANY = 40
# A camera on `a` in memory, and a worker on `b`.
CAMERA = """
[source.camera]
kind = "sim"
model = "camera"
shape = [64, 64]
fps = {fps}
level = "memory"
live = "{live}"
when_full = "drop-oldest"
host = "a"

[mirror.camera]
live = "{mirror}"

[worker.copy]
call = "copy.py:copy"
inputs = ["camera"]
host = "b"

[run.first]
"""
COPY = """
import beamport

@beamport.worker
def copy(frame):
    return float(frame.array.mean())
"""


class Link:
    """A link to Kafka that can be down: nobody answers at its address then."""

    def __init__(self, kafka):
        self.kafka = kafka
        self.address = f"127.0.0.1:{kafka.proxy}"
        self.proxy = None
        self.up()

    def up(self):
        """Answers again."""
        self.proxy = Proxy(self.kafka.proxy, self.kafka.behind)

    def down(self):
        """Ends all connections, and refuses others."""
        if self.proxy:
            self.proxy.close()
            self.proxy = None


@pytest.fixture
def link(kafka):
    """A link between the hosts and Kafka."""
    link = Link(kafka)
    yield link
    link.down()


def ledger(hosts, host: str, run: str = "first") -> dict:  # noqa: F811
    """The account of a run, as a host has it."""
    return beamport.open(hosts.folder(host)).run(run).ledger()


@pytest.mark.parametrize("wrong, by_h", [("a", 1), ("b", 1)])
def test_a_host_with_a_wrong_clock_loses_nothing(lab, hosts, kafka, nexus, wrong, by_h):  # noqa: F811
    template(lab)
    hosts = hosts(f"clock-{wrong}{by_h}", STAGES.replace("run.nxs", "{run}.nxs"))  # noqa: F811
    shift = lab.folder / "shift"
    shift.write_text(str(by_h * HOUR_NS))
    env = os.environ | {"LD_PRELOAD": preloaded(lab.folder, "shift_clock"), "SHIFT_CLOCK": str(shift)}
    for host in "ab":
        hosts.processes[host] = lab.up("--host", host, **({"env": env} if host == wrong else {}))
    hosts.moves("b", "detector")
    hosts.moves("b", "camera")
    ahead = {host: row["clock_ns"] for host, row in listed(hosts, 0).items()}
    assert abs(ahead.pop(wrong) - by_h * HOUR_NS) < HOUR_NS / 60 and all(
        abs(ns) < HOUR_NS / 60 for ns in ahead.values()
    )
    # Times of commands are those of the clock of the host that leads.
    say(hosts, "b", "begin", "second", "--start", "-1 s")
    time.sleep(2)
    say(hosts, "b", "end", "second")
    lab.interrupt(hosts.processes["a"])
    for host in "ab":
        lab.end(hosts.processes[host])
        assert f"the clock of host `{wrong}` is wrong" in lab.said(hosts.processes[host])[1]
        run = beamport.open(hosts.folder(host)).run("second")
        assert 2e9 < run.stop - run.start < 30e9 and run.ledger()["closed"], run.ledger()
    assert {row["stream"]: row["sent"] > 50 for row in run.ledger()["mirrors"]}["camera"]
    sent = {name: equal(hosts, name) for name in STREAMS}
    for host in "ab":
        account = ledger(hosts, host)
        assert account["closed"] and account["lost"] == 0, account
    one_file(hosts, "first.nxs")
    assert all(sent.values())


def test_topics_of_an_instrument_whose_folders_were_removed_have_no_runs(lab, hosts, kafka, nexus):  # noqa: F811
    template(lab)
    hosts = hosts("again", STAGES + 'duration = "2 s"\n')  # noqa: F811
    starts = []
    for _ in range(2):
        hosts.up("b")
        if starts:
            # It has read all that the topics have of the first time, and the host that leads is away.
            time.sleep(8)
        hosts.up("a")
        for host in "ab":
            lab.end(hosts.processes[host])
        runs = [beamport.open(hosts.folder(host)).runs for host in "ab"]
        assert [len(some) for some in runs] == [1, 1] and runs[0][0].start == runs[1][0].start not in starts
        starts.append(runs[0][0].start)
        assert len(list(hosts.folder("b").rglob("run.nxs"))) == 1
        hosts.forget()


def test_a_run_is_written_again_on_the_host_of_its_file(lab, hosts, kafka, nexus):  # noqa: F811
    template(lab)
    hosts = hosts("rewritten", STAGES)  # noqa: F811
    for host in "ab":
        hosts.up(host)
    hosts.moves("b", "detector")
    refused = say(hosts, "b", "begin", "second", status=2).stderr.decode()
    assert "sink `file` writes one file, `run.nxs`, of the declared run" in refused
    lab.interrupt(hosts.processes["a"])
    for host in "ab":
        lab.end(hosts.processes[host])
    (file,) = hosts.folder("b").rglob("run.nxs")
    lab.run("write", "first", "--output", lab.folder / "again.nxs", "--data", hosts.folder("b"))
    assert different(lab.folder / "again.nxs", file) == []


def test_a_source_that_moves_to_the_host_of_its_mirror_is_refused(lab, hosts, kafka):  # noqa: F811
    (lab.folder / "copy.py").write_text(COPY)
    stages = CAMERA.format(fps=100, live="64 MiB", mirror="64 MiB")
    hosts = hosts("moved", stages)  # noqa: F811
    for host in "ab":
        hosts.up(host)
    hosts.moves("b", "camera")
    lab.interrupt(hosts.processes["a"])
    for host in "ab":
        lab.end(hosts.processes[host])
    text = lab.file.read_text()
    swapped = (
        text.replace('host = "a"', 'host = "x"').replace('host = "b"', 'host = "a"').replace('host = "x"', 'host = "b"')
    )
    lab.file.write_text(swapped)
    process = hosts.up("b")
    lab.end(process, 2)
    said = lab.said(process)[1]
    assert "stream `camera` cannot be sent to other hosts" in said and "give its stage another name" in said, said


def test_ctrl_c_on_a_host_that_does_not_lead_leaves_the_run_open(lab, hosts, kafka):  # noqa: F811
    (lab.folder / "copy.py").write_text(COPY)
    hosts = hosts("left", CAMERA.format(fps=100, live="64 MiB", mirror="64 MiB"))  # noqa: F811
    for host in "ab":
        hosts.up(host)
    hosts.moves("b", "camera")
    time.sleep(6)
    lab.interrupt(hosts.processes["b"])
    lab.end(hosts.processes["b"])
    said = lab.said(hosts.processes["b"])[1]
    assert "run `first` stays open" in said and "runs have ended" not in said, said
    assert listed(hosts, 1)["b"]["state"] == "ended"
    hosts.up("b")
    hosts.moves("b", "camera")
    lab.interrupt(hosts.processes["a"])
    for host in "ab":
        lab.end(hosts.processes[host])


def test_data_later_than_the_clock_are_the_same_on_both_hosts(lab, hosts, kafka):  # noqa: F811
    faulty = 'clock_fault = "future"\nclock_fault_every = 5\n'
    stages = STAGES[: STAGES.index("[sink.file]")].replace('live = "16 MiB"\n', f'live = "16 MiB"\n{faulty}')
    hosts = hosts("future", stages + '[run.first]\nduration = "3 s"\n')  # noqa: F811
    for host in "ab":
        hosts.up(host)
    for host in "ab":
        lab.end(hosts.processes[host])
        account = ledger(hosts, host)
        assert account["closed"] and account["lost"] == 0, account
    assert equal(hosts, "detector") > 10
    flags = Stream(hosts.folder("b") / "detector").all()["flags"]
    assert (flags & AHEAD != 0).any()


def test_many_streams_are_mirrored_with_the_open_files_of_a_shell(lab, hosts, kafka):  # noqa: F811
    sources = "".join(
        f'[source.f{n}]\nkind = "sim"\nmodel = "field"\nrate = 10\nlive = "1 MiB"\nhost = "a"\n' for n in range(MANY)
    )
    names = [f"f{n}" for n in range(MANY)]
    merge = f'[merge.all]\nkind = "time"\ninputs = {names!r}\nhost = "b"\n'.replace("'", '"')
    hosts = hosts("many", sources + merge + '[run.first]\nduration = "5 s"\n')  # noqa: F811
    for host in "ab":
        hosts.up(host)
    for host in "ab":
        lab.end(hosts.processes[host])
        account = ledger(hosts, host)
        assert account["closed"] and account["lost"] == 0, account
    assert all(equal(hosts, name) > 5 for name in names)


def test_a_run_that_began_while_a_host_was_away_is_longer_than_the_ring_of_its_mirror(lab, hosts, kafka):  # noqa: F811
    (lab.folder / "copy.py").write_text(COPY)
    hosts = hosts("ring", CAMERA.format(fps=1000, live="64 MiB", mirror="2 MiB") + 'duration = "4 s"\n')  # noqa: F811
    hosts.up("a")
    until(lambda: hosts.count("a", "camera") > 2000, "the camera stands")
    hosts.up("b")
    for host in "ab":
        lab.end(hosts.processes[host])
        account = ledger(hosts, host)
        assert account["closed"] and account["lost"] == 0, account
    (mirror,) = [row for row in account["mirrors"] if row["stream"] == "camera"]
    assert mirror["missing"] == 0 and mirror["sent"] == mirror["received"] == 4000
    assert sum(1 for _ in hosts.stream("b", "camera").read()) < 1000


def test_what_a_ring_drops_while_the_link_is_down_is_an_exact_loss(lab, hosts, kafka, link, times):  # noqa: F811
    (lab.folder / "copy.py").write_text(COPY)
    stages = CAMERA.format(fps=2000, live="4 MiB", mirror="1 GiB")
    hosts = hosts("down", stages, through=link)  # noqa: F811
    for host in "ab":
        hosts.up(host)
    hosts.moves("b", "camera")
    for _ in range(times(1, 10)):
        before = hosts.count("a", "camera")
        link.down()
        # More than the ring and the queue of the client hold.
        until(lambda before=before: hosts.count("a", "camera") > before + 12_000, "the camera stands")
        link.up()
        hosts.moves("b", "camera")
    lab.interrupt(hosts.processes["a"])
    for host in "ab":
        lab.end(hosts.processes[host], None)
    run = beamport.open(hosts.folder("b")).run("first")
    there = [m.origin_seq for m in hosts.stream("b", "camera").read() if run.start <= m.source_time < run.stop]
    assert there == sorted(set(there))
    for host in "ab":
        account = ledger(hosts, host)
        (sent,) = {row["sent"] for row in account.get("mirrors") or account["hosts"][0]["account"]["mirrors"]}
        missing = sent - len(there)
        assert missing > 0 and account["closed"] and account["lost"] == missing, (host, missing, account)
    print(f"injected {times(1, 10)} links that were down for longer than a ring: {missing} messages lost, all counted")
