"""The ESS chain of `examples/ess-chain`, as its page runs it."""

import importlib.util
import os
import subprocess
import sys

import pytest
from conftest import HANG_S, ROOT, take_back
from stream_files import streams

pytest.importorskip("beamport", reason="pip install .")
pytest.importorskip("pvxslibs", reason="EPICS has no wheels for this machine")
pytestmark = pytest.mark.services

CHAIN = ROOT / "examples" / "ess-chain" / "chain.py"


@pytest.fixture
def chain(programs, nexus, tmp_path):
    """Runs it with flags in an empty folder; status and output."""

    def run(*flags) -> tuple[int, str]:
        environment = os.environ | {"PATH": os.pathsep.join([str(programs), os.environ["PATH"]])}
        done = subprocess.run(
            [sys.executable, CHAIN, *flags],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=HANG_S,
        )
        return done.returncode, done.stdout + done.stderr

    yield run
    for data in [*tmp_path.glob("*/detector"), *tmp_path.glob("*/forwarder/streams")]:
        for stream in streams(data, True):
            take_back(stream.live)


def counts(said: str) -> list[list[str]]:
    """The counts of the four hops."""
    table = said.split("alarms    events\n")[1].splitlines()[:4]
    return [line.split()[-3:] for line in table]


def judge(status: int, said: str, seconds: int):
    """Every hop has the same, and it is what ten values a second of five PVs are."""
    print(said)
    assert status == 0 and "The file has what was sent." in said, said
    first, stream, topic, file = counts(said)
    assert first == topic == file and stream == [*first[:2], "-"]
    values, alarms, events = (int(count.replace(",", "")) for count in first)
    assert values > 30 * seconds and alarms >= 2 and events > 10_000 * seconds


def test_the_ess_chain_loses_nothing(chain, kafka):
    judge(*chain("--seconds", "3", "--brokers", kafka.address), 3)


@pytest.mark.soak
def test_the_ess_chain_starts_its_own_kafka(chain):
    judge(*chain(), 10)


def test_a_hop_that_differs_is_found(capsys):
    spec = importlib.util.spec_from_file_location("chain", CHAIN)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sent = {"values": [("A", 1, 0.0), ("A", 2, 1.0), ("A", 9, 2.0)], "alarms": [("A", 1, 0)]}
    sent["events"] = [("detector", 1, [5, 6], [7, 8])]
    outcome = {"topics": {"a": {"messages": 3}, "b": {"messages": 1}}, "lost": [], "aside": {}}

    def is_same(change: dict | None = None, **wrong) -> bool:
        hops = {"IOC": sent, "Kafka": sent, "NeXus file": sent | (change or {})}
        return module.compare(hops, 1, 2, outcome | wrong)

    assert is_same() and is_same({"values": sent["values"][:2]})
    for kind, rows in [("values", [("A", 1, 0.0)]), ("events", [("detector", 1, [5, 6], [7, 9])]), ("alarms", [])]:
        assert not is_same({kind: rows})
    assert not is_same(topics={"a": {"messages": 3}})
    assert not is_same(lost=[{}]) and not is_same(aside={"unfit": 1})
    assert "2!" in capsys.readouterr().out
