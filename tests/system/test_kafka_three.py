"""A cluster of three nodes whose leaders are killed under load: each message is there once on both sides, files are whole."""

import shutil
import time

import pytest
from conftest import until
from ess_facility import Facility, now_ms
from kafka_node import Three
from test_hosts import STAGES, STREAMS, equal, hosts, one_file, template  # noqa: F401
from test_hosts_faults import ended
from test_kafka import PARTITIONS, RUN, Sender, compare, source, whole
from test_kafka_sink import compare as compare_sent
from test_kafka_sink import moves, read, sink

pytest.importorskip("beamport", reason="pip install .")
# Three JVMs, and seconds without a leader after each kill.
pytestmark = [pytest.mark.services, pytest.mark.soak]


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """Three nodes; a topic has three replicas, and two have what is acknowledged."""
    folder = tmp_path_factory.mktemp("three")
    three = Three(folder)
    three.start()
    yield three
    three.kill()
    shutil.rmtree(folder, ignore_errors=True)


def kill_leader(three: Three, topic: str, partition: int, goes_on) -> float:
    """Kills the leader of a partition, waits until another one leads it and `goes_on()` returns, and starts the node
    again; seconds without a leader."""
    node = three.leader(topic, partition)
    began = time.monotonic()
    node.kill()
    until(lambda: three.leader(topic, partition) not in (None, node), f"{topic}/{partition} has no leader")
    away = time.monotonic() - began
    goes_on()
    node.start()
    return away


def test_each_message_is_there_once_though_leaders_are_killed(lab, three, times, dice):
    taken, sent = (three.topic(name, PARTITIONS) for name in ("three_taken", "three_sent"))
    lab.write(source(three, [taken]) + sink(three, sent, inputs='"topics"') + RUN)
    process, _ = lab.up_ready()
    sender = Sender(three, taken, pause_s=0.01)
    sender.start()
    kills, away = times(2, 30), []

    def goes_on():
        moves(lab, process, "topics")

    for n in range(kills):
        goes_on()
        time.sleep(dice.uniform(0, 0.5))
        away.append(kill_leader(three, (taken, sent)[n % 2], dice.randrange(PARTITIONS), goes_on))
    goes_on()
    count = sender.finish()
    whole(lab, process, taken, count)
    assert compare(lab, three, [taken]) == count
    assert compare_sent(lab, read(three, sent), "topics") == count
    print(
        f"leader of three killed under load, source and sink: {kills} kills injected, no leader for at most"
        f" {max(away):.1f} s, 0 lost and 0 twice of {count} messages on each side"
    )


def test_a_job_is_whole_though_leaders_are_killed(lab, nexus, three, times, dice):
    facility = Facility(lab, three, "three_job")
    try:
        facility.writer()
        start = now_ms()
        job = facility.start("three.nxs", start)
        facility.accepted(job)
        sent, kills = [], times(2, 30)

        def goes_on():
            sent.extend(facility.send(20, max(now_ms(), start + len(sent))))

        for n in range(kills):
            goes_on()
            kill_leader(three, (facility.topic, facility.control, facility.pool)[n % 3], 0, goes_on)
        goes_on()
        until(lambda: now_ms() > sent[-1] // 1_000_000, "time stands still")
        assert facility.answer(facility.stop(job)).status_code == 201
        _, message = facility.finished(job)
        assert message["lost"] == []
        facility.whole("three.nxs", sent)
        # The pool is still read.
        after = facility.start("after.nxs")
        facility.accepted(after)
        facility.stop(after)
        facility.finished(after)
    finally:
        facility.close()
    print(
        f"leader of three killed under load, topics of a job: {kills} kills injected, 0 lost and 0 twice of"
        f" {len(sent)} events and values"
    )


def test_hosts_lose_nothing_though_leaders_are_killed(lab, hosts, three, nexus, times, dice):  # noqa: F811
    template(lab)
    hosts = hosts("three", STAGES, through=three, keys="replication = 3\n")  # noqa: F811
    for host in "ab":
        hosts.up(host)
    hosts.moves("b", "detector")
    kills, away = times(2, 30), []
    for _ in range(kills):
        time.sleep(dice.uniform(0, 0.5))
        topic = dice.choice(["three.detector", "three.camera", "three.runs", "three.hosts"])
        away.append(kill_leader(three, topic, 0, lambda: hosts.moves("b", "detector")))
    hosts.moves("b", "camera")
    ended(hosts)
    sent = {name: equal(hosts, name) for name in STREAMS}
    one_file(hosts)
    print(f"injected {kills} kills of leaders, {max(away):.1f} s without one: {sent} messages, 0 lost, 0 twice")
