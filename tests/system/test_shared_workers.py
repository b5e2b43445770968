"""A worker on several hosts, joined by Apache Kafka: its output is that of one host, whichever of them die."""

import os
import signal
import time

import pytest
from conftest import preloaded, until
from signals import stop
from test_hosts import beamport, hosts  # noqa: F401
from test_hosts_account import status
from test_kafka import source, value

pytestmark = pytest.mark.services

# It leaves out, refuses, passes on, and makes two of one.
CODE = """
import time
import beamport
import numpy as np

@beamport.worker
def points(message):
    number = message.origin_seq
    if number % 7 == 3:
        return None
    if number % 50 == 5:
        raise ValueError(f"message {number}")
    if number % 5 == 1:
        return message
    value = np.float32(message.array.mean())
    return [value, float(number)] if number % 5 == 2 else value

@beamport.worker
def slow(message, pause=0.002):
    time.sleep(pause)
    return float(message.origin_seq)
"""

# The factor of a result is its remainder by 1,000.
CODE += """
@beamport.worker
def scaled(message, factor: int = 1):
    if factor > 100:
        raise ValueError("too much")
    return float(message.origin_seq * 1000 + factor)
"""

WORKERS = ["n1", "n2", "n3"]


def stages(call: str, more: str = "") -> str:
    """Two cameras on hosts of their own, and a worker on three more."""
    cameras = "".join(
        f'[source.{name}]\nkind = "sim"\nmodel = "camera"\nshape = [16, 16]\norigin = "{name}"\nfps = {fps}\nlevel = "disk"\nhost = "{host}"\n'
        for name, fps, host in [("left", 200, "a"), ("right", 120, "b")]
    )
    return (
        cameras
        + f'[worker.points]\ncall = "mine.py:{call}"\ninputs = ["left", "right"]\n'
        + "hosts = { n1 = 2, n2 = 1, n3 = 2 }\n"
        + more
        + '[run.first]\nsettle = "500 ms"\n'
    )


def members(hosts, host: str, name: str, run: str) -> list[tuple[str, int]]:  # noqa: F811
    """Origins and numbers of the messages of a run on a host, in order."""
    run = beamport.open(hosts.folder(host)).run(run)
    return [(m.origin, m.origin_seq) for m in run[name].read()]


def ended(hosts, keeps) -> int:  # noqa: F811
    """Ends the run; how many messages it took in. Its output has exactly their results, in the order of each input."""
    hosts.lab.interrupt(hosts.processes["a"])
    for host in "ab":
        hosts.lab.end(hosts.processes[host])
    return compared(hosts, keeps)


def compared(hosts, keeps, run: str = "first") -> int:  # noqa: F811
    """The same for a run that has ended."""
    made, count = members(hosts, "a", "points", run), 0
    for host, name in [("a", "left"), ("b", "right")]:
        near = members(hosts, host, name, run)
        assert [key for key in made if key[0] == name] == [key for key in near for _ in range(keeps(key[1]))]
        assert len(near) > 100
        count += len(near)
    for host in "ab":
        ledger = beamport.open(hosts.folder(host)).run(run).ledger()
        assert ledger["closed"] and ledger["lost"] == 0, ledger
    return count


def results(number: int) -> int:
    """How many results CODE makes of a message."""
    if number % 7 == 3 or number % 50 == 5:
        return 0
    return 2 if number % 5 == 2 else 1


@pytest.fixture
def shared(lab, hosts):  # noqa: F811
    """Makes an instrument whose worker is shared by three hosts."""
    (lab.folder / "mine.py").write_text(CODE)

    def make(name: str, call: str, more: str = ""):
        made = hosts(name, stages(call, more), hosts=["a", "b", *WORKERS])
        for host in ["a", "b", *WORKERS]:
            made.up(host)
        return made

    return make


def test_output_of_several_hosts_is_that_of_one(shared):
    instrument = shared("union", "points")
    lines = instrument.lab.run("check", instrument.lab.file).stdout.decode().splitlines()
    assert lines[-2].endswith("blocks of `left`, `right` go to `n{1..3}`, and `points` from there to `a`"), lines
    assert "5 topics with 13 partitions; " in lines[-1] and "held for 6 h; unknown rate of `points`" in lines[-1], lines
    instrument.moves("a", "points")
    time.sleep(3)
    print(f"{ended(instrument, results)} messages over three hosts: 0 missing, 0 twice, in order")
    refused = sum(
        number % 7 != 3 and number % 50 == 5
        for host, name in [("a", "left"), ("b", "right")]
        for _, number in members(instrument, host, name, "first")
    )
    aside = [message["text"] for message in instrument.stream("a", "points.aside").read()]
    assert len(aside) >= refused > 5 and all("ValueError: message" in text for text in aside), (len(aside), refused)
    # The declared runs are done: nobody stops these.
    for host in WORKERS:
        instrument.lab.end(instrument.processes[host])


def test_others_take_the_blocks_of_a_host_that_is_killed_for_good(lab, shared):
    instrument = shared("gone", "points")
    instrument.moves("a", "points")
    time.sleep(2)
    instrument.kill("n2")
    killed, before = time.monotonic(), instrument.count("a", "points")
    said = lambda: lab.said(instrument.processes["a"])[1][-2000:]  # noqa: E731
    until(lambda: instrument.count("a", "points") > before + 3000, said)
    print(f"{time.monotonic() - killed:.1f} s after the kill the output has 3,000 more messages")
    print(f"{ended(instrument, results)} messages, a host killed for good: 0 missing, 0 twice, in order")


def test_hosts_leave_join_and_stand_still_while_data_flow(lab, shared, times):
    instrument = shared("joined", "points")
    instrument.moves("a", "points")
    for _ in range(times(1, 10)):
        # In order: nobody waits for the end of its session.
        lab.interrupt(instrument.processes["n1"])
        lab.end(instrument.processes["n1"])
        instrument.moves("a", "points")
        # Longer than its session: others have had its blocks when it goes on.
        stop(instrument.processes["n3"].pid)
        time.sleep(times(8, 30))
        instrument.moves("a", "points")
        instrument.up("n1")
        os.kill(instrument.processes["n3"].pid, signal.SIGCONT)
        instrument.moves("n1", "points")
    print(f"{ended(instrument, results)} messages, hosts left, joined and stood still: 0 missing, 0 twice")


def test_hosts_with_wrong_clocks_and_other_working_folders_work_for_two_runs(lab, hosts, kafka):  # noqa: F811
    (lab.folder / "mine.py").write_text(CODE)
    names = ["a", "b", *WORKERS]
    instrument = hosts("worlds", stages("points") + 'duration = "3 s"\n', hosts=names)
    more = {"n2": {"cwd": "/"}}
    for host, hours in (("n1", 1), ("n3", -1)):
        shift = lab.folder / f"shift-{host}"
        shift.write_text(str(hours * 3_600_000_000_000))
        library = preloaded(lab.folder, "shift_clock")
        more[host] = {"env": os.environ | {"LD_PRELOAD": library, "SHIFT_CLOCK": str(shift)}}
    counts = []
    for run in ("first", "second"):
        lab.file.write_text(lab.file.read_text().replace("[run.first]", f"[run.{run}]"))
        for host in names:
            instrument.processes[host] = lab.up("--host", host, **more.get(host, {}))
        for host in names:
            lab.end(instrument.processes[host])
        counts.append(compared(instrument, results, run))
        shares = {host: instrument.count(host, "points.in") for host in WORKERS}
        assert all(shares.values()), shares
    print(f"{counts} messages in two runs, two hosts with a wrong clock: 0 missing, 0 twice")


def states(instrument, *names: str) -> list[str]:
    """How the host that leads sees others."""
    seen = status(instrument, "a")["hosts"]
    return [seen[name]["state"] for name in names]


def factors(instrument, origin: str) -> dict[int, int]:
    """The factor of each message of an input."""
    found = {}
    for message in instrument.stream("a", "points").read():
        if message.origin == origin:
            number, factor = divmod(int(message["value"]), 1000)
            assert number == message.origin_seq
            found[number] = factor
    return found


def test_a_change_is_followed_by_all_hosts_and_by_those_that_start_later(lab, shared):
    instrument = shared("changed", "scaled")
    instrument.moves("a", "points")

    def ask(host: str, *words: str, status: int = 0):
        done = lab.run("configure", "points", *words, "--data", instrument.folder(host), status=status)
        return (done.stderr if status else done.stdout).decode()

    lab.kill(instrument.processes["n3"])
    until(lambda: states(instrument, *WORKERS) == ["up", "up", "away"], lambda: states(instrument, *WORKERS))
    # On a host that neither leads nor has the worker.
    said = ask("b", "factor=2")
    assert said.splitlines() == [
        "host `n1`: worker `points` has 2 slots: factor=2",
        "host `n2`: worker `points` has 1 slot: factor=2",
        "host `n3` is away, and follows when it starts",
    ]
    # What the code does not know is refused, and nothing changes.
    assert "host `n" in ask("a", "unknown=1", status=2)
    changed = instrument.count("a", "left")
    instrument.kill("n2")
    for host in ("n2", "n3"):
        instrument.up(host)
    until(lambda: states(instrument, *WORKERS) == ["up"] * 3, lambda: states(instrument, *WORKERS))
    assert ask("n1", "--slots", "1").count("has 1 slot: factor=2") == 3
    numbers = lambda: [  # noqa: E731
        status(instrument, "a")["hosts"][host]["workers"]["points"]["numbers"] for host in WORKERS
    ]
    until(lambda: all(of["slots"] == 1 and of["messages"] > 0 for of in numbers()), numbers)
    until(lambda: max(factors(instrument, "left"), default=0) > changed + 500, "nothing comes")
    found = factors(instrument, "left")
    # A block that was dealt before the change may be answered after it.
    assert {factor for number, factor in found.items() if number > changed + 200} == {2}
    print(f"{ended(instrument, lambda _: 1)} messages, {sum(f == 2 for f in found.values())} with the change")


@pytest.mark.long
def test_blocks_that_are_deleted_before_a_host_had_them_are_lost_and_the_run_is_sealed(lab, hosts, kafka):  # noqa: F811
    (lab.folder / "mine.py").write_text(CODE)
    values, blocks = kafka.topic("doomed_values"), "doomed.points.in"
    section = source(kafka, [values], '"begin"') + 'host = "a"\n'
    worker = '[worker.points]\ncall = "mine.py:scaled"\ninputs = ["topics"]\nhosts = { n1 = 2 }\n'
    instrument = hosts("doomed", section + worker + '[run.first]\nsettle = "500 ms"\n', hosts=["a", "n1"])
    for host in ("a", "n1"):
        instrument.up(host)
    until(lambda: "is ready" in lab.said(instrument.processes["a"])[1], "the instrument is not ready")
    kafka.send([(values, 0, value(n)) for n in range(100)])
    until(lambda: instrument.count("a", "points") == 100, lambda: lab.said(instrument.processes["a"])[1][-2000:])
    instrument.kill("n1")
    ends = lambda: [kafka.end(blocks, partition) for partition in (0, 1)]  # noqa: E731
    before = ends()
    kafka.send([(values, 0, value(n)) for n in range(100, 300)])
    until(lambda: instrument.count("a", "topics") == 300 and ends() != before, "nothing is dealt")
    time.sleep(1)
    # As if `keep` were over. Nothing comes behind these blocks that would show it.
    for partition, end in enumerate(ends()):
        kafka.delete_before(blocks, partition, end)
    lab.interrupt(instrument.processes["a"])
    report = lab.report(instrument.processes["a"], 1)
    (row,) = [row for row in report["ledger"] if row["account"] == "stage" and row["stage"] == "points"]
    assert report["closed"] and (row["read"], row["done"], row["lost"]) == (300, 100, {"retention": 200}), row
    print(f"injected the deletion of all blocks that no host has had: {row['lost']} messages lost, all counted")


@pytest.mark.long
def test_hosts_of_all_kinds_and_the_broker_are_killed(lab, shared, kafka, times, dice):
    instrument = shared("killed", "points")
    instrument.moves("a", "points")
    kills = times(2, 200)
    for victim in dice.sample(["a", "b", "broker", *WORKERS] * kills, 6 * kills):
        time.sleep(dice.uniform(0.05, 0.5))
        if victim == "broker":
            kafka.kill()
            kafka.start()
        else:
            instrument.kill(victim)
            instrument.up(victim)
        instrument.moves("a", "points")
    print(f"injected {6 * kills} kills of hosts and broker: {ended(instrument, results)} messages, 0 missing, 0 twice")
