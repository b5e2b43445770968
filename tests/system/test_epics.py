"""EPICS sources: real IOCs on ports of their own."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
from conftest import HANG_S, lost_of, until
from epics_servers import ioc, structures

pytest.importorskip("beamport", reason="pip install .")

from epics_lab import counters, judge_counters, shown, values  # noqa: E402

RECORDS = 20


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
    servers.append(ioc(counters(lab, RECORDS), network))
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


def test_pvs_come_and_go_and_the_list_survives_a_kill(lab, network, servers):
    servers.append(ioc(counters(lab, RECORDS), network))
    lab.write('[source.pvs]\nkind = "pva"\npvs = ["fake:A", "T:0"]\n')
    process, _ = lab.up_ready()
    said = lab.run("configure", "pvs", "--data", lab.data, "--add", "T:1", "ca:T:2", '{"pv": "T:3", "topic": "lab"}')
    assert said.stdout.decode() == "source `pvs` has 5 PVs: 3 added, 0 removed\n"
    until(lambda: {"A", "T:0", "T:1", "T:2", "lab/T:3"} <= set(values(lab)), lambda: set(values(lab)))
    said = lab.run("configure", "pvs", "--data", lab.data, "--remove", "T:0", "ca:*", "--json")
    assert json.loads(said.stdout) == {"added": 0, "removed": 2, "pvs": 3}
    lab.kill(process)
    process, _ = lab.up_ready()
    until(lambda: shown(lab).get("connected") == 3, lambda: shown(lab))
    rows = shown(lab)["streams"]
    assert {(row["protocol"], row["pv"], row["topic"]) for row in rows} == {
        ("fake", "A", None),
        ("pva", "T:1", None),
        ("pva", "T:3", "lab"),
    }
    assert "pvs=3" in lab.run("top", "--data", lab.data).stdout.decode()
    said = lab.run("configure", "pvs", "--data", lab.data, "--add", "a b", status=2)
    assert "contains a space" in said.stderr.decode()
    lab.interrupt(process)
    lab.end(process)
    for name, found in lab.stream("pvs").numbers().items():
        assert len(np.unique(found)) == len(found), name
    # Numbers go on behind those of before the kill, and no value is stored again.
    for name in ("T:1", "lab/T:3"):
        counted = [message["value"] for message in values(lab)[name]]
        assert counted == sorted(set(counted)), (name, counted)


TYPES = """
record(ai, "X:AI") { field(VAL, "1.5") field(PINI, "YES") field(EGU, "K") field(HIGH, "1") field(HSV, "MINOR") }
record(longin, "X:LONG") { field(VAL, "-7") field(PINI, "YES") }
record(bi, "X:BI") { field(VAL, "1") field(ZNAM, "off") field(ONAM, "on") field(PINI, "YES") }
record(stringin, "X:TEXT") { field(VAL, "word") field(PINI, "YES") }
record(waveform, "X:WAVE") { field(FTVL, "SHORT") field(NELM, "4") field(INP, [1, 2, 3]) field(PINI, "YES") }
"""


@pytest.mark.parametrize("protocol", ["pva", "ca"])
def test_types_alarms_and_units_come_by_both_protocols(lab, network, servers, protocol):
    database = lab.folder / "types.db"
    database.write_text(TYPES)
    servers.append(ioc(database, network))
    names = ["X:AI", "X:LONG", "X:BI", "X:TEXT", "X:WAVE"]
    lab.write(f'[source.pvs]\nkind = "{protocol}"\npvs = {json.dumps(names)}\n')
    process, _ = lab.up_ready()
    until(lambda: len(values(lab)) == 4 and "X:TEXT" in values(lab, "f142"), lambda: shown(lab))
    lab.interrupt(process)
    lab.end(process)
    found = {name: messages[-1]["value"] for name, messages in values(lab).items()}
    assert (found["X:AI"], found["X:LONG"], found["X:BI"]) == (1.5, -7, 1)
    assert found["X:WAVE"].tolist() == [1, 2, 3] and found["X:WAVE"].dtype == np.int16
    assert values(lab, "f142")["X:TEXT"][-1]["value"] == "word"
    alarm = values(lab, "al00")["X:AI"][-1]
    assert (alarm["severity"], alarm["message"]) == ("MINOR", "HIGH")
    assert values(lab, "un00")["X:AI"][-1]["units"] == "K"
    assert all(messages[-1]["status"] == "CONNECTED" for messages in values(lab, "ep01").values())


@pytest.mark.parametrize(("server", "protocol"), [("softioc", "pva"), ("softioc", "ca"), ("caproto", "ca")])
def test_servers_of_others_are_read(lab, network, servers, server, protocol):
    servers.append(structures(server, network))
    names = ["P:COUNT", "P:TEXT", "P:WAVE", "P:CHOICE"]
    lab.write(f'[source.pvs]\nkind = "{protocol}"\npvs = {json.dumps(names)}\n')
    process, _ = lab.up_ready()
    until(lambda: len(values(lab).get("P:COUNT", [])) > 20, lambda: shown(lab))
    lab.interrupt(process)
    lab.end(process)
    assert judge_counters(lab, ["P:COUNT"]) == {"P:COUNT": []}
    found = {name: messages[-1]["value"] for name, messages in values(lab).items()}
    assert found["P:WAVE"].tolist() == [1.5, 2.5] and found["P:CHOICE"] == 1
    assert values(lab, "f142")["P:TEXT"][-1]["value"] == "word"
    assert values(lab, "un00")["P:COUNT"][-1]["units"] == "mm"


def test_frames_have_the_numbers_of_the_camera(lab, network, servers):
    lab.write('[source.pvs]\nkind = "pva"\npvs = ["cam:Image"]\nqueue = 4\n[run.first]\n')
    process, _ = lab.up_ready()
    camera = ["pvapy-ad-sim-server", "-cn", "cam:Image", "-nx", "64", "-ny", "48", "-dt", "uint16", "-fps", "100"]
    command = [Path(sys.executable).with_name(camera[0]), *camera[1:], "-rt", "8", "-nf", "10", "-dc"]
    log = (lab.folder / "camera").open("wb")
    simulator = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=os.environ | network)
    servers.append(simulator)
    until(lambda: len(lab.stream("pvs").all()) > 100, lambda: (lab.folder / "camera").read_text())
    process.send_signal(signal.SIGSTOP)
    time.sleep(1)
    process.send_signal(signal.SIGCONT)
    simulator.wait(HANG_S)
    until(lambda: shown(lab)["connected"] == 0, lambda: shown(lab))
    status = shown(lab)
    lab.interrupt(process)
    report = lab.report(process, status=None)
    assert report["closed"]
    (row,) = (row for row in report["ledger"] if row["account"] == "entry" and row["origin"] == "cam:Image")
    frames = values(lab, "ad00")["cam:Image"]
    ids = [frame.id for frame in frames]
    assert ids == [frame.origin_seq for frame in frames] and len(set(ids)) == len(ids) == row["appended"]
    # What is missing between them is counted, as overwritten here or somewhere else.
    assert sum(row["lost"].values()) == max(ids) - min(ids) + 1 - len(ids)
    assert row["lost"].get("squashed", 0) == status["squashed"]
    assert (frames[0].array.shape, frames[0].array.dtype) == ((48, 64), np.uint16)
    assert [message["status"] for message in values(lab, "ep01")["cam:Image/state"]][-2:] == [
        "CONNECTED",
        "DISCONNECTED",
    ]
    print(f"epics: 1 source stopped for 1 s under 100 frames/s injected, {sum(row['lost'].values())} lost, all counted")
