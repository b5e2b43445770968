"""EPICS sources: real IOCs on ports of their own."""

import json
import os
from pathlib import Path

import h5py
import numpy as np
import pytest
from conftest import lost_of

pytest.importorskip("pvxslibs", reason="EPICS has no wheels for this machine")

from epics_servers import environment, ioc  # noqa: E402

RECORDS = 20


@pytest.fixture
def network(programs, monkeypatch):
    """Settings with which the servers and clients of a test meet each other and nobody else."""
    library = programs.parent / "lib" / "beamport" / "libbeamport_epics.so"
    if not Path(os.environ.get("BEAMPORT_EPICS", library)).is_file():
        pytest.skip("libbeamport_epics.so is not built: `pip install .`")
    settings = environment()
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    return settings


@pytest.fixture
def servers(network):
    """Servers that a test starts; they end with it."""
    started = []
    yield started
    for server in started:
        server.kill()


def counters(lab, count: int = RECORDS, scan: str = ".1 second"):
    """A database of records that count up."""
    path = lab.folder / "counters.db"
    record = 'record(calc, "T:{}") {{ field(CALC, "VAL+1") field(SCAN, "{}") field(EGU, "mm") field(TSE, "0") }}\n'
    path.write_text("".join(record.format(number, scan) for number in range(count)))
    return path


def template(lab, names: list[str]) -> None:
    """A template with a log for each PV."""
    logs = [
        {
            "type": "group",
            "name": name.replace(":", "_"),
            "children": [{"module": "f144", "config": {"stream": "pvs", "source": name}}],
        }
        for name in names
    ]
    entry = {
        "type": "group",
        "name": "entry",
        "children": logs,
        "attributes": [{"name": "NX_class", "values": "NXentry"}],
    }
    (lab.folder / "lab.nexus.json").write_text(json.dumps({"children": [entry]}))


def test_every_value_of_an_ioc_is_in_the_file_once(lab, nexus, network, servers):
    servers.append(ioc(counters(lab), network))
    names = [f"T:{number}" for number in range(RECORDS)]
    template(lab, names)
    lab.write(
        f"""
[source.pvs]
kind = "pva"
pvs = {json.dumps(names)}
[sink.file]
kind = "nexus"
inputs = ["pvs"]
template = "lab.nexus.json"
file = "{{run}}.nxs"
[run.first]
duration = "3 s"
"""
    )
    report = lab.report(lab.up())
    assert report["closed"] and lost_of(report) == 0
    entries = [row for row in report["ledger"] if row["account"] == "entry"]
    assert sorted(row["origin"] for row in entries) == sorted(names)
    for row in entries:
        # A record that was not processed yet has no time.
        assert row["duplicate"] == 0 and row["skipped"] in ({}, {"old": 1}), row
    with h5py.File(lab.data / "files" / "first.nxs") as file:
        for name in names:
            values = file["entry"][name.replace(":", "_")]["value"][:]
            # Each value is one more than the last: none is missing, and none is there twice.
            assert len(values) > 10 and np.all(np.diff(values) == 1), (name, values)
            times = file["entry"][name.replace(":", "_")]["time"][:]
            assert np.all(np.diff(times.astype("i8")) > 0)
