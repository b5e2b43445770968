"""TLS and SCRAM with a real broker: messages go both ways, mistakes name their key, and no password is written down."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from conftest import until
from ess_facility import Facility, now_ms
from kafka_node import HANG_S, Node
from test_hosts import STAGES, STREAMS, equal, hosts, one_file, template  # noqa: F401
from test_kafka import PARTITIONS, RUN, compare, count, source, troubles, value, whole
from test_kafka_sink import compare as compare_sent
from test_kafka_sink import done, read, sink

pytest.importorskip("beamport", reason="pip install .")
pytestmark = pytest.mark.services

USER, PASSWORD = "loki", "a-password-of-tests"


@pytest.fixture
def secure(kafka):
    """The secure address of Kafka, and a user who may do nothing yet."""
    kafka.user(USER, PASSWORD)
    return SimpleNamespace(address=f"127.0.0.1:{kafka.secure}")


def allow(kafka: Node, kind: ResourceType, name: str, *operations: str, pattern=ResourcePatternType.LITERAL):
    """Gives the user rights."""
    bindings = [
        AclBinding(
            kind,
            name,
            pattern,
            f"User:{USER}",
            "*",
            AclOperation[operation.upper()],
            AclPermissionType.ALLOW,
        )
        for operation in operations
    ]
    for made in kafka.admin.create_acls(bindings).values():
        made.result(HANG_S)


def properties(kafka: Node, password: str) -> dict[str, str]:
    """Those of a client."""
    return {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(kafka.certificate),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": USER,
        "sasl.password": password,
    }


def table(properties: dict[str, str]) -> str:
    """The same in an instrument file."""
    return "properties = { " + ", ".join(f'"{name}" = "{text}"' for name, text in properties.items()) + " }\n"


def holders(folder: Path, secret: str) -> list[str]:
    """Files below a folder that contain a text."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [str(path) for path in files if secret.encode() in path.read_bytes()]


def test_messages_go_through_tls_and_scram_both_ways(lab, kafka, secure):
    taken, sent = kafka.topic("secure_taken", PARTITIONS), kafka.topic("secure_sent", PARTITIONS)
    # As docs/how-to/secure-kafka.md lists them.
    allow(kafka, ResourceType.TOPIC, taken, "describe", "read")
    allow(kafka, ResourceType.TOPIC, sent, "describe", "read", "write")
    kept = lab.folder / "password"
    lab.write(
        source(secure, [taken])
        + table(properties(kafka, "env:KAFKA_PASSWORD"))
        + sink(secure, sent, table(properties(kafka, f"file:{kept}")), '"topics"')
        + RUN
    )
    kept.write_text(PASSWORD + "\n")
    process, _ = lab.up_ready(env={**os.environ, "KAFKA_PASSWORD": PASSWORD})
    kafka.send([(taken, n % PARTITIONS, value(n)) for n in range(1000)])
    until(lambda: done(lab, "topics") == 1000, lambda: f"{done(lab, 'topics')}: {lab.said(process)[1][-2000:]}")
    shown = lab.ask(b'{"command": "status"}\n').decode() + lab.run("check", lab.file, "--show").stdout.decode()
    # It stays readable after a restart.
    lab.kill(process)
    process, _ = lab.up_ready(env={**os.environ, "KAFKA_PASSWORD": PASSWORD})
    kafka.send([(taken, n % PARTITIONS, value(n)) for n in range(1000, 2000)])
    until(lambda: done(lab, "topics") == 2000, lambda: f"{done(lab, 'topics')}: {lab.said(process)[1][-2000:]}")
    whole(lab, process, taken, 2000)
    assert compare(lab, kafka, [taken]) == compare_sent(lab, read(kafka, sent), "topics") == 2000
    kept.unlink()
    live = [stream.live for stream in lab.streams(True)]
    assert (
        PASSWORD not in shown and [path for folder in [lab.folder, *live] for path in holders(folder, PASSWORD)] == []
    )


@pytest.mark.soak
def test_a_wrong_password_certificate_or_right_names_its_key_until_it_is_corrected(lab, kafka, secure):
    topic = kafka.topic("secure_wrong", PARTITIONS)
    kept = lab.folder / "password"
    kept.write_text("a-wrong-password")
    correct = properties(kafka, f"file:{kept}")

    def trouble(of: dict[str, str]) -> str:
        process = lab.write(source(secure, [topic]) + table(of) + RUN).up()
        (text,) = until(lambda: lab.ready(process) and troubles(lab), lambda: lab.said(process)[1][-2000:])
        lab.kill(process)
        return text

    text = trouble({name: value for name, value in correct.items() if name != "ssl.ca.location"})
    line = next(n for n, words in enumerate(lab.file.read_text().splitlines(), 1) if words.startswith("properties"))
    assert f"`security.protocol` (line {line})" in text and "certificate" in text
    text = trouble(correct)
    assert f"`sasl.username` (line {line})" in text and f"`sasl.password` (line {line})" in text
    assert "a-wrong-password" not in text
    process, _ = lab.up_ready()
    kept.write_text(PASSWORD)
    (text,) = until(lambda: [t for t in troubles(lab) if "allow this user" in t], lambda: str(troubles(lab)))
    assert topic in text and "`topics`" in text
    allow(kafka, ResourceType.TOPIC, topic, "describe", "read")
    until(lambda: troubles(lab) == [], lambda: str(troubles(lab)))
    kafka.send([(topic, n % PARTITIONS, value(n)) for n in range(100)])
    until(lambda: count(lab) == 100, lambda: f"{count(lab)} came: {lab.said(process)[1][-2000:]}")
    whole(lab, process, topic, 100)


def test_a_job_is_written_through_tls_and_scram(lab, nexus, kafka, secure, monkeypatch):
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORD)
    facility = Facility(lab, kafka, "secure_job")
    allow(kafka, ResourceType.GROUP, "kafka-to-nexus-worker-pool", "read")
    allow(kafka, ResourceType.TOPIC, facility.pool, "describe", "read")
    allow(kafka, ResourceType.TOPIC, facility.status, "describe", "write")
    allow(kafka, ResourceType.TOPIC, facility.control, "describe", "read", "write")
    allow(kafka, ResourceType.TOPIC, facility.topic, "describe", "read")
    words = [word for pair in properties(kafka, "env:KAFKA_PASSWORD").items() for word in pair]
    try:
        writer = facility.writer("-X", *words, brokers=secure.address)
        start = now_ms()
        job = facility.start("secure.nxs", start)
        facility.accepted(job)
        sent = facility.send(20, start)
        # Its processes get the password again.
        lab.kill(writer)
        facility.writer("-X", *words, brokers=secure.address)
        sent += facility.send(20, max(now_ms(), start + 20))
        until(lambda: now_ms() > sent[-1] // 1_000_000, "time stands still")
        assert holders(facility.data, PASSWORD) == []
        facility.stop(job)
        facility.finished(job)
        facility.whole("secure.nxs", sent)
    finally:
        facility.close()


def test_hosts_are_joined_through_tls_and_scram(lab, hosts, kafka, secure, nexus):  # noqa: F811
    # As docs/how-to/use-several-machines.md lists them.
    prefixed = {"pattern": ResourcePatternType.PREFIXED}
    allow(kafka, ResourceType.TOPIC, "secured.", "create", "describe", "read", "write", **prefixed)
    allow(kafka, ResourceType.TRANSACTIONAL_ID, "beamport.secured.", "write", **prefixed)
    template(lab)
    keys = table(properties(kafka, "env:KAFKA_PASSWORD"))
    hosts = hosts("secured", STAGES, through=secure, keys=keys)  # noqa: F811
    env = {**os.environ, "KAFKA_PASSWORD": PASSWORD}
    for host in "ab":
        hosts.processes[host] = lab.up("--host", host, env=env)
    hosts.moves("b", "detector")
    # Both are up until the run ends.
    listed = lab.run("hosts", lab.file, "--json", env=env).stdout.decode()
    lab.interrupt(hosts.processes["a"])
    reports = {host: lab.report(hosts.processes[host]) for host in "ab"}
    assert all(equal(hosts, name) > 2 for name in STREAMS)
    one_file(hosts)
    said = [listed, *map(str, reports.values()), *(lab.said(process)[1] for process in hosts.processes.values())]
    assert not any(PASSWORD in text for text in said)
    assert [path for folder in [lab.folder, *map(hosts.folder, "ab")] for path in holders(folder, PASSWORD)] == []
