"""Event builders on several hosts, joined by Apache Kafka: together they have what one host has, whichever of them die."""

import os
import shutil
import time
from datetime import UTC, datetime

import h5py
import pytest
from conftest import ROOT, preloaded, until
from ports import free_ports
from stream_files import Stream
from test_hosts import beamport, hosts  # noqa: F401
from test_hosts_account import say
from test_hosts_worlds import HOUR_NS

pytestmark = pytest.mark.services

DETECTORS = 6
# Groups are as long as a slice is short, so that many lie across its end.
MERGE = '[merge.events]\nkind = "time"\ninputs = ["d{1..6}"]\nwait = "500 ms"\nslice = "4 ms"\n'
FINDS = (
    'parameters = { find = "gap", gap = "30 us", multiplicity = 2, members = ["detector{001..006}"], make = "MAKE" }\n'
)


# Values that code makes of messages, named after the worker.
NEAR = """
import beamport

@beamport.worker
def near(message):
    return float(message.origin_seq)
"""

STREAMS = ["events", "groups", "built", "near"]
SINK = (
    f'[sink.file]\nkind = "nexus"\ntemplate = "groups.nexus.json"\ninputs = {STREAMS}\n'.replace("'", '"')
    + 'file = "{instrument}_{run}.nxs"\n'
)


def detectors(numbers, host: str) -> str:
    """Detectors that fire by chance and together."""
    return "".join(
        f'[source.d{n}]\nkind = "sim"\nmodel = "detector"\ndetector = {n}\ndetectors = {DETECTORS}\ncoincidences = 1500\n'
        f'multiplicity = 3\njitter = "10 us"\nlevel = "disk"\nlive = "16 MiB"\nhost = "{host}"\n'
        for n in numbers
    )


def workers(keys: str) -> str:
    """Rows of groups, the messages of groups, and values of messages."""
    rows, messages = (FINDS.replace("MAKE", make) for make in ["rows", "messages"])
    return (
        f'[worker.groups]\ncall = "groups"\ninputs = ["events"]\n{keys}{rows}'
        f'[worker.built]\ncall = "groups"\ninputs = ["events"]\n{keys}{messages}'
        f'[worker.near]\ncall = "near.py:near"\ninputs = ["events"]\n{keys}'
    )


def on_hosts(builders: list[str]) -> str:
    """Detectors on two hosts, builders, and a file on the first host."""
    keys = f"hosts = {builders}\n".replace("'", '"')
    return (
        detectors([1, 2, 3], "a")
        + detectors([4, 5, 6], "b")
        + MERGE
        + keys
        + 'overlap = "600 us"\n'
        + workers(keys)
        + SINK
        + '[run.first]\nsettle = "500 ms"\n'
    )


def made(folder, name: str, run: str = "first") -> list[tuple]:
    """The messages of a run in a stream, with their makers: a group by its time and its rows."""
    messages = beamport.open(folder).run(run)[name].read()
    if name.startswith("groups"):
        return [(m.source_time, m.origin, m.fields()["count"], list(m.fields()["missing"])) for m in messages]
    return [(m.source_time, m.origin, m.origin_seq, m.schema, bytes(m.payload)) for m in messages]


def twice(hosts, host: str, part: str) -> int:  # noqa: F811
    """How many messages the mirror of a part has more than once."""
    there = [(m.origin, m.origin_seq) for m in beamport.open(hosts.folder(host))[part].read()]
    return len(there) - len(set(there))


def count(stream) -> int:
    """Messages of a stream; 0 where there is none yet."""
    try:
        return Stream(stream).marks()[2]
    except FileNotFoundError:
        return 0


def recorded(hosts, name: str, stages: str, keys: str = "") -> str:  # noqa: F811
    """Stages on the messages of a run of all detectors, as fast as they can be read. `keys`: of each detector."""
    run = beamport.open(hosts.folder("a")).run(name)

    def text(ns: int) -> str:
        whole, rest = divmod(ns, 1_000_000_000)
        return f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09}Z"

    sources = "".join(
        f'[source.d{n}]\nkind = "replay"\nrun = "{name}"\nfrom_data = "{hosts.folder("a" if n < 4 else "b")}"\n'
        f'speed = "max"\nlevel = "disk"\nlive = "16 MiB"\n{keys}'
        for n in range(1, DETECTORS + 1)
    )
    return f'{sources}{stages}{SINK}[run.{name}]\nstart = "{text(run.start)}"\nstop = "{text(run.stop)}"\n'


def one_host(hosts, folder, name: str) -> None:  # noqa: F811
    """Makes the same of the same messages on one host."""
    file = hosts.lab.folder / f"one-{name}.toml"
    stages = recorded(hosts, name, f"{MERGE}{workers('')}")
    file.write_text(f'instrument = "one"\ndata = "{folder}"\n{stages}')
    hosts.lab.run("up", file)


def same(folder, reference, run: str = "first") -> dict[str, int]:
    """How many messages of each kind two data folders have: the same, in one order."""
    counts = {}
    for name in STREAMS:
        here, there = made(folder, name, run), made(reference, name, run)
        if name != "events":
            # Groups come in the order in which they are closed.
            here, there = sorted(here), sorted(there)
        assert here == there, (name, len(here), len(there))
        counts[name] = len(here)
    return counts


def ended(hosts, *runs: str) -> dict[str, int]:  # noqa: F811
    """Ends the run: what the builders have made together is what one host makes. Returns the number of messages."""
    hosts.lab.interrupt(hosts.processes["a"])
    for host in hosts.processes:
        hosts.lab.end(hosts.processes[host])
    counts = dict.fromkeys(STREAMS, 0)
    for run in runs or ["first"]:
        for host in hosts.processes:
            ledger = beamport.open(hosts.folder(host)).run(run).ledger()
            assert ledger["closed"] and ledger["lost"] == 0, (host, ledger)
        reference = hosts.lab.folder / f"data-one-{run}"
        one_host(hosts, reference, run)
        for name, n in same(hosts.folder("a"), reference, run).items():
            counts[name] += n
    assert min(counts.values()) > 1000, counts
    return counts


@pytest.fixture
def built(lab, hosts):  # noqa: F811
    """Makes an instrument with builders."""
    (lab.folder / "groups.nexus.json").write_text((ROOT / "examples/coincidence.nexus.json").read_text())
    (lab.folder / "near.py").write_text(NEAR)

    def make(name: str, builders: list[str], names: str, starts: str | None = None):
        made = hosts(name, on_hosts(builders), hosts=names)
        for host in reversed(names if starts is None else starts):
            made.up(host)
        return made

    return make


def test_parts_of_two_builders_are_together_what_one_host_makes(lab, built, hosts):  # noqa: F811
    # `b` has detectors of its own.
    instrument = built("union", ["c", "b"], "abc")
    instrument.moves("a", "groups")
    time.sleep(4)
    print(ended(instrument))
    # The same from records, on other hosts: sources that end let the run end.
    keys = 'hosts = ["x", "y", "z"]\n'
    stages = recorded(instrument, "first", f'{MERGE}{keys}overlap = "600 us"\n{workers(keys)}', 'host = "x"\n')
    again = hosts("recorded", stages.replace("[sink.file]", '[sink.file]\nhost = "s"'), hosts="xyzs")
    for host in "xyzs":
        again.up(host)
    for host in "xyzs":
        lab.end(again.processes[host])
    print(same(again.folder("s"), lab.folder / "data-one-first"))


def test_a_run_is_sealed_without_a_builder_and_a_source_that_are_gone(lab, built):
    instrument = built("without", ["c", "d"], "abcd")
    instrument.moves("a", "groups")
    for host in "bc":
        instrument.kill(host)
    without = ["end", "first", "--without", "b", "--without", "c", "--data", instrument.folder("a")]
    until(lambda: lab.run(*without, status=None).returncode == 0, lambda: lab.run(*without, status=None).stderr)
    for host in "ad":
        folder = beamport.open(instrument.folder(host))
        until(lambda folder=folder: folder.run("first").ledger()["state"] == "sealed", f"{host} waits")
    assert not folder.run("first").ledger()["closed"]


def test_builders_with_wrong_clocks_build_two_runs(lab, built):
    shifts = {}
    for host, hours in [("c", -1), ("b", 1)]:
        (lab.folder / f"shift-{host}").write_text(str(hours * HOUR_NS))
        shifts[host] = {"SHIFT_CLOCK": str(lab.folder / f"shift-{host}")}
    env = os.environ | {"LD_PRELOAD": preloaded(lab.folder, "shift_clock")}
    instrument = built("clocks", ["c"], "abc", starts="")
    for host in "cba":
        more = {"env": env | shifts[host]} if host in shifts else {}
        instrument.processes[host] = lab.up("--host", host, cwd="/", **more)
    instrument.moves("a", "groups")
    say(instrument, "c", "end", "first")
    say(instrument, "a", "begin", "second")
    time.sleep(3)
    print(ended(instrument, "second"))


def test_a_builder_that_has_lost_its_folder_builds_again_and_nothing_is_there_twice(lab, built, times, dice):
    instrument = built("lost", ["c", "d"], "abcd")
    instrument.moves("a", "groups")
    losses = times(2, 20)
    for _ in range(losses):
        victim = dice.choice("cd")
        time.sleep(dice.uniform(0.5, 1.5))
        instrument.kill(victim)
        lab.forget(instrument.folder(victim))
        # For longer than messages are late.
        time.sleep(1)
        instrument.up(victim)
        instrument.moves("a", "groups")
    counts = ended(instrument)
    again = sum(twice(instrument, "a", f"events-{builder}") for builder in "cd")
    print(f"injected {losses} losses of the folder of a builder: {counts}, as on one host, of which {again} came again")
    assert again > 0


def test_slices_do_not_change_in_a_run_that_began_while_a_host_was_away(lab, built):
    instrument = built("away", ["c", "d"], "abcd", starts="")
    text = lab.file.read_text().replace('[run.first]\nsettle = "500 ms"\n', "")
    lab.file.write_text(text)
    for host in "dcba":
        instrument.up(host)
    instrument.moves("a", "groups")
    instrument.kill("b")
    say(instrument, "a", "begin", "first")
    assert 'slice = "4 ms"' in text
    lab.file.write_text(text.replace('slice = "4 ms"', 'slice = "8 ms"'))
    instrument.up("b")
    said = lambda: lab.said(instrument.processes["b"])[1]  # noqa: E731
    until(lambda: "cannot change its hosts, `slice` or `overlap`" in said(), said)
    assert "run `first` is not sealed" in said()


@pytest.mark.long
def test_a_builder_that_is_away_gets_its_slices_later_whatever_else_dies(lab, built, kafka, times, dice):
    instrument = built("killed", ["c", "b", "d"], "abcd")
    instrument.moves("a", "groups")
    instrument.kill("d")
    # For longer than the merge waits for a silent input.
    time.sleep(3)
    instrument.up("d")
    instrument.moves("a", "groups")
    kills = times(2, 200)
    for victim in dice.sample(["a", "b", "c", "d", "broker"] * kills, 5 * kills):
        time.sleep(dice.uniform(0.05, 0.5))
        if victim == "broker":
            kafka.kill()
            kafka.start()
        else:
            instrument.kill(victim)
            instrument.up(victim)
        instrument.moves("a", "groups")
    print(f"injected {5 * kills} kills of hosts and broker: {ended(instrument)}, as on one host")


def test_a_cluster_gets_a_host_and_loses_another_while_it_measures(lab, kafka, nexus):
    for name in ["points.py", "coincidence.nexus.json"]:
        shutil.copy2(ROOT / "examples" / name, lab.folder)
    text = (ROOT / "examples/greta-cluster.toml").read_text()
    text = text.replace("localhost:9092", kafka.address).replace('"greta-cluster"', '"cluster"')
    text = text.replace('duration = "20 s"', "")
    first = free_ports(40)[0]
    for at in range(4):
        ports = f"{{{9201 + 10 * at}..{9210 + 10 * at}}}"
        assert ports in text
        text = text.replace(ports, f"{{{first + 10 * at}..{first + 10 * at + 9}}}")
    lab.file.write_text(text)
    names = [*[f"fb{n}" for n in range(1, 5)], *[f"n{n}" for n in range(1, 5)], "b1", "b2", "store"]
    processes = {host: lab.up("--host", host) for host in names}
    folder = lab.folder / "beamport-data/greta"
    groups = lambda: count(folder / "store" / "groups")  # noqa: E731
    until(lambda: groups() > 50, lambda: [lab.said(process)[1][-500:] for process in processes.values()])
    processes["n5"] = lab.up("--host", "n5")
    until(lambda: "is ready" in lab.said(processes["n5"])[1], lambda: lab.said(processes["n5"]))
    lab.kill(processes.pop("n2"))
    killed = groups()
    until(lambda: groups() > killed + 50, lambda: [lab.said(process)[1][-500:] for process in processes.values()])
    said = lab.run("configure", "groups", "multiplicity=3", "--data", folder / "store").stdout.decode()
    begins, ends = zip(*(line.split(" slot: ") for line in said.splitlines()), strict=True)
    assert list(begins) == [f"host `{b}`: worker `groups-{b}` has 1" for b in ["b1", "b2"]]
    assert all(line.endswith(" multiplicity=3") for line in ends), said
    lab.interrupt(processes["fb1"])
    reports = {host: lab.report(process) for host, process in processes.items() if not host.startswith("n")}
    for host in (host for host in processes if host.startswith("n")):
        lab.end(processes[host])
    assert all(report["closed"] for report in reports.values()), reports
    made = beamport.open(folder / "store").run("first")["groups"].read()
    times = [m.source_time for m in made]
    assert len(times) > 100 and times == sorted(times)
    with h5py.File(reports["store"]["file"]) as file:
        assert len(file["entry/groups/count"]) == len(times)
    for host in names:
        lab.forget(folder / host)
    print(f"injected a kill of a host of workers: {len(times)} groups of two builders, in order")
