"""Faults between hosts: connections reset, a host that stands still or lost its folder, topics that were cut or deleted."""

import signal
import time

import pytest
from conftest import HANG_S, until
from kafka_node import Node
from signals import stop
from test_full_disk import disk  # noqa: F401
from test_hosts import STAGES, STREAMS, equal, hosts, one_file, template  # noqa: F401
from test_hosts_account import away, status

beamport = pytest.importorskip("beamport", reason="pip install .")
pytestmark = pytest.mark.services


def ended(hosts) -> dict[str, dict]:  # noqa: F811
    """Ctrl-C on the lead; the account of the run on both hosts, and nothing is lost."""
    hosts.lab.interrupt(hosts.processes["a"])
    for host in "ab":
        hosts.lab.end(hosts.processes[host])
    ledgers = {host: beamport.open(hosts.folder(host)).run("first").ledger() for host in "ab"}
    for ledger in ledgers.values():
        assert ledger["closed"] and ledger["lost"] == 0, ledger
    return ledgers


def started(lab, make, name: str, **more):
    """Two hosts between which data flow."""
    template(lab)
    hosts = make(name, STAGES, **more)  # noqa: F811
    hosts.up("a")
    hosts.up("b")
    hosts.moves("b", "detector")
    return hosts


def test_connections_that_are_reset_cost_nothing(lab, hosts, proxy, nexus, times, dice):  # noqa: F811
    hosts = started(lab, hosts, "reset", through=proxy)  # noqa: F811
    resets = times(20, 500)
    for number in range(resets):
        time.sleep(dice.uniform(0.02, 0.3))
        proxy.cut()
        if number % 5 == 4:
            hosts.moves("b", "detector")
    hosts.moves("b", "camera")
    ended(hosts)
    sent = {name: equal(hosts, name) for name in STREAMS}
    one_file(hosts)
    print(f"injected {resets} resets of all connections of two hosts: {sent} messages, 0 lost, 0 twice")


def test_a_host_that_lost_its_folder_has_all_again(lab, hosts, kafka, nexus, times, dice):  # noqa: F811
    hosts = started(lab, hosts, "empty")  # noqa: F811
    losses = times(5, 50)
    for _ in range(losses):
        time.sleep(dice.uniform(0.1, 0.5))
        hosts.kill("b")
        lab.forget(hosts.folder("b"))
        hosts.up("b")
        hosts.moves("b", "detector")
    ended(hosts)
    sent = {name: equal(hosts, name) for name in STREAMS}
    one_file(hosts)
    print(f"injected {losses} losses of the folder of a host: {sent} messages, 0 lost, 0 twice")


@pytest.mark.parametrize("still", ["a", "b"])
def test_a_host_that_stands_still_is_named_and_loses_nothing(lab, hosts, kafka, nexus, times, still):  # noqa: F811
    hosts = started(lab, hosts, f"still-{still}")  # noqa: F811
    (other,) = {"a", "b"} - {still}
    stops = times(1, 10)
    for _ in range(stops):
        process = hosts.processes[still]
        stop(process.pid)
        try:
            until(lambda: still in away(hosts, other), lambda: status(hosts, other))
            # Longer than the brokers wait for the beat of a transaction.
            time.sleep(times(12, 30))
        finally:
            process.send_signal(signal.SIGCONT)
        until(lambda: still not in away(hosts, other), lambda: status(hosts, other))
        hosts.moves("b", "detector")
    ended(hosts)
    sent = {name: equal(hosts, name) for name in STREAMS}
    one_file(hosts)
    print(f"injected {stops} stops of host {still}: {sent} messages, 0 lost, 0 twice")


def test_a_topic_that_was_cut_while_a_host_is_away_is_an_exact_loss(lab, hosts, kafka, nexus):  # noqa: F811
    hosts = started(lab, hosts, "cut")  # noqa: F811
    hosts.kill("b")
    topic = "cut.camera"
    before = hosts.count("b", "camera")
    end = kafka.end(topic)
    until(lambda: kafka.end(topic) > end + 100, "the topic does not grow")
    # As if `keep` were over.
    kafka.delete_before(topic, 0, kafka.end(topic) - 20)
    hosts.up("b")
    hosts.moves("b", "camera")
    lab.interrupt(hosts.processes["a"])
    lab.end(hosts.processes["a"], 1)
    lab.end(hosts.processes["b"], 1)
    # Of the run alone: on a slow machine the camera is up before the run begins, and its account is of the run.
    near, far = (beamport.open(hosts.folder(host)).run("first")["camera"] for host in "ab")
    there = {m.origin_seq for m in far.read()}
    missing = sorted({m.origin_seq for m in near.read()} - there)
    assert missing == list(range(missing[0], missing[-1] + 1)) and missing[0] >= before
    for host in "ab":
        ledger = beamport.open(hosts.folder(host)).run("first").ledger()
        assert ledger["closed"] and ledger["lost"] == len(missing), (host, len(missing), ledger["lost"])
    (mirror,) = [row for row in ledger["mirrors"] if row["stream"] == "camera"]
    assert mirror["missing"] == len(missing) and mirror["sent"] == mirror["received"] + len(missing), mirror
    print(f"injected a topic cut while its host was away: {len(missing)} messages lost, all of them counted")


def test_a_topic_that_is_deleted_is_made_again_and_what_is_lost_is_counted(lab, hosts, kafka, nexus, times, dice):  # noqa: F811
    hosts = started(lab, hosts, "deleted")  # noqa: F811
    deletions = times(2, 10)
    for _ in range(deletions):
        time.sleep(dice.uniform(0.2, 1))
        kafka.delete("deleted.camera")
        hosts.moves("b", "camera")
    lab.interrupt(hosts.processes["a"])
    for host in "ab":
        lab.end(hosts.processes[host], None)
    near, far = (list(beamport.open(hosts.folder(host)).run("first")["camera"].read()) for host in "ab")
    there = [m.origin_seq for m in far]
    assert there == sorted(set(there)), "twice, or out of order"
    missing = len({m.origin_seq for m in near} - set(there))
    for host in "ab":
        ledger = beamport.open(hosts.folder(host)).run("first").ledger()
        assert ledger["closed"] and ledger["lost"] == missing, (host, missing, ledger["lost"])
    assert all(equal(hosts, name) for name in STREAMS if name != "camera")
    print(f"injected {deletions} deletions of a topic: {len(there)} messages, {missing} lost, all of them counted")


def test_records_of_others_in_the_topics_of_an_instrument_harm_nothing(lab, hosts, kafka, nexus, times, dice):  # noqa: F811
    hosts = started(lab, hosts, "hostile")  # noqa: F811
    (_, whole), *_ = kafka.read("hostile.camera")
    records = times(30, 1000)
    for _ in range(records):
        stream = dice.choice(["camera", "runs", "hosts"])
        key = dice.choice([b"", b"beat/b", b"account/first/b", b"ask/a/1", b"beat/" + bytes(300), dice.randbytes(20)])
        changed = bytearray(whole[: dice.randrange(1, len(whole))])
        changed[dice.randrange(len(changed))] ^= 1 << dice.randrange(8)
        payload = dice.choice([b"", b"{}", b"[1e999]", b'{"host": 1}', bytes(changed), dice.randbytes(500)])
        kafka.send([(f"hostile.{stream}", 0, payload)], key if stream == "hosts" else None)
    hosts.moves("b", "camera")
    # The near side looks at the newest record, which is none of its own.
    kafka.send([("hostile.camera", 0, b"no block")])
    hosts.kill("a")
    hosts.up("a")
    hosts.moves("b", "camera")
    # What was set aside is in the account of the mirror, and in no other.
    lab.interrupt(hosts.processes["a"])
    for host in "ab":
        lab.end(hosts.processes[host], None)
        assert "panicked" not in lab.said(hosts.processes[host])[1]
    assert all(equal(hosts, name) for name in STREAMS)
    ledgers = [beamport.open(hosts.folder(host)).run("first").ledger() for host in "ab"]
    assert all(ledger["closed"] and ledger["lost"] == 0 for ledger in ledgers), ledgers
    print(f"injected {records} records of others into the topics of an instrument: nothing lost, nothing twice")


@pytest.mark.root
def test_a_broker_whose_disk_is_full_delays_the_others_and_nothing_is_lost(lab, hosts, disk, nexus, times):  # noqa: F811
    small = disk("broker", 128, "tmpfs")
    node = Node(small.folder)
    try:
        node.format()
        node.start()
        hosts = started(lab, hosts, "full", through=node)  # noqa: F811
        fillings = times(1, 10)
        for _ in range(fillings):
            small.fill()
            # It ends when it cannot write to its only disk.
            assert node.process.wait(HANG_S) != 0
            before = hosts.count("a", "camera")
            until(lambda before=before: hosts.count("a", "camera") > before + 100, "the camera stands")
            small.free()
            node.start()
            hosts.moves("b", "camera")
            hosts.moves("b", "detector")
        ended(hosts)
        sent = {name: equal(hosts, name) for name in STREAMS}
        one_file(hosts)
    finally:
        node.kill()
    print(f"injected {fillings} full disks of the broker: {sent} messages, 0 lost, 0 twice")
