"""EPICS sources: real IOCs on ports of their own."""

import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
from conftest import HANG_S, ROOT, lost_of, until
from epics_cameras import KINDS, camera, ramp
from epics_servers import Server, environment, ioc, structures
from ports import free_port
from signals import stop

beamport = pytest.importorskip("beamport", reason="pip install .")

from beamport import epics  # noqa: E402
from epics_lab import brief, counters, judge_counters, shown, values  # noqa: E402

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
            times = file["entry"][name.replace(":", "_")]["time"][:]
            # A record that was not processed yet is 0, and has no time but that of its arrival, which on a slow machine
            # is behind that of the first value.
            values, times = values[values > 0], times[values > 0]
            # Each value is one more than the last: none is missing, and none is there twice.
            assert len(values) > 10 and np.all(np.diff(values) == 1), (name, values)
            assert np.all(np.diff(times.astype("i8")) > 0)


def test_pvs_come_and_go_and_the_list_survives_a_kill(lab, network, servers):
    servers.append(ioc(counters(lab, RECORDS), network))
    lab.write('[source.pvs]\nkind = "pva"\npvs = ["fake:A", "T:0"]\n')
    process, _ = lab.up_ready()
    added = 'add=["ca:T:2", {"pv": "T:3", "topic": "lab"}]'
    said = lab.run("configure", "pvs", added, "--data", lab.data)
    assert said.stdout.decode() == "source `pvs`: added 2, pvs 4, removed 0\n"
    said = lab.run("configure", "pvs", "add=T:1", "--data", lab.data)
    assert said.stdout.decode() == "source `pvs`: added 1, pvs 5, removed 0\n"
    until(lambda: {"A", "T:0", "T:1", "T:2", "lab/T:3"} <= set(values(lab)), lambda: set(values(lab)))
    said = lab.run("configure", "pvs", "remove=T:0", "--data", lab.data)
    assert said.stdout.decode() == "source `pvs`: added 0, pvs 4, removed 1\n"
    said = lab.run("configure", "pvs", "remove=ca:*", "--data", lab.data, "--json")
    assert json.loads(said.stdout) == {"added": 0, "removed": 1, "pvs": 3}
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
    for words, why in [
        (["add=a b"], "contains a space"),
        (["added=A"], "unknown key `added`"),
        (["add=A", "add=B"], "`add` is given twice"),
        (["add=A", "--slots", "2"], "a source has no slots"),
    ]:
        said = lab.run("configure", "pvs", *words, "--data", lab.data, status=2)
        assert why in said.stderr.decode()
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
    lab.write('[source.pvs]\nkind = "pva"\npvs = ["cam:Image"]\nqueue = 4\nconnections = true\n[run.first]\n')
    process, _ = lab.up_ready()
    camera = ["pvapy-ad-sim-server", "-cn", "cam:Image", "-nx", "64", "-ny", "48", "-dt", "uint16", "-fps", "100"]
    command = [Path(sys.executable).with_name(camera[0]), *camera[1:], "-rt", "8", "-nf", "10", "-dc"]
    log = (lab.folder / "camera").open("wb")
    simulator = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=os.environ | network)
    servers.append(simulator)
    until(lambda: len(lab.stream("pvs").all()) > 100, lambda: (lab.folder / "camera").read_text())
    stop(process.pid)
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
    # The server reports what it overwrote itself.
    assert row["lost"].get("squashed", 0) >= status["squashed"]
    assert (frames[0].array.shape, frames[0].array.dtype) == ((48, 64), np.uint16)
    assert [message["status"] for message in values(lab, "ep01")["cam:Image/state"]] == [
        "CONNECTED",
        "DISCONNECTED",
    ]
    print(f"epics: 1 source stopped for 1 s under 100 frames/s injected, {sum(row['lost'].values())} lost, all counted")


@pytest.mark.parametrize("kind", KINDS)
def test_the_queue_that_is_asked_for_holds_a_burst_of_frames(lab, network, servers, kind):
    servers.append(camera(kind, "cam:Image", network))
    lab.write('[source.pvs]\nkind = "pva"\npvs = ["cam:Image"]\nqueue = 1000\n[run.first]\n')
    process, _ = lab.up_ready()
    until(lambda: len(values(lab, "ad00").get("cam:Image", [])) == 1, lambda: shown(lab))
    for burst in range(3):
        servers[-1].tell(f"{1 + 500 * burst}-{500 + 500 * burst} now")
        until(lambda n=500 * (burst + 1): len(values(lab, "ad00")["cam:Image"]) > n, lambda: shown(lab))
    lab.interrupt(process)
    report = lab.report(process)
    assert report["closed"] and lost_of(report) == 0
    frames = values(lab, "ad00")["cam:Image"]
    assert [frame.id for frame in frames] == list(range(1501))
    assert all((frame.array == frame.id % 256).all() for frame in frames)
    print(f"epics: 1,500 frames of {kind} in bursts of 500 injected, 0 lost")


def test_a_mirror_of_a_camera_loses_nothing(lab, network, servers):
    """PvaPy's mirror server: pvDatabase behind a client of its own."""
    servers.append(camera("p4p", "cam:Image", network))
    settings = {"EPICS_PVAS_SERVER_PORT": str(free_port()), "EPICS_PVAS_BROADCAST_PORT": str(free_port())}
    command = [Path(sys.executable).with_name("pvapy-mirror-server"), "-cm", "(mirror:Image,cam:Image,pva,1000)"]
    log = (lab.folder / "mirror").open("wb")
    environ = os.environ | network | settings
    servers.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environ))
    lab.write(
        f"""
[source.pvs]
kind = "pva"
pvs = ["mirror:Image"]
queue = 1000
addresses = "127.0.0.1:{settings["EPICS_PVAS_BROADCAST_PORT"]}"
[run.first]
"""
    )
    process, _ = lab.up_ready()
    until(lambda: values(lab, "ad00").get("mirror:Image"), lambda: (lab.folder / "mirror").read_text())
    servers[0].tell("1-500 now")
    until(lambda: len(values(lab, "ad00")["mirror:Image"]) >= 500, lambda: shown(lab))
    lab.interrupt(process)
    report = lab.report(process)
    assert report["closed"] and lost_of(report) == 0
    assert [frame.id for frame in values(lab, "ad00")["mirror:Image"]][-500:] == list(range(1, 501))


@pytest.mark.parametrize("kind", KINDS)
def test_frames_of_a_clock_that_is_wrong_are_kept_with_their_arrival_and_a_flag(lab, network, servers, kind):
    hour = 3600
    now = time.time()
    # Never set; the epoch of EPICS; ten hours ahead; ten years behind. Those that are late may be true.
    wrong = [0, 631_152_000, now + 10 * hour, now - 87_600 * hour]
    late = [now - hour, now - 24 * hour]
    # A record that was not processed yet has the epoch of EPICS: no time at all.
    stamps = [0, 0, *wrong[2:]] * 2
    servers.append(camera(kind, "cam:Image", network))
    lab.write('[source.pvs]\nkind = "pva"\npvs = ["cam:Image"]\nqueue = 1000\n[run.first]\n')
    process, _ = lab.up_ready()
    until(lambda: len(values(lab, "ad00").get("cam:Image", [])) == 1, lambda: shown(lab))
    for at, seconds in enumerate(["now", *wrong, *late, "now", *wrong]):
        servers[-1].tell(f"{1 + 5 * at}-{5 + 5 * at} {seconds}")
    until(lambda: len(values(lab, "ad00")["cam:Image"]) == 61, lambda: shown(lab))
    until(lambda: "cam:Image" in (until(lambda: troubles(lab), lambda: shown(lab))[0]), lambda: shown(lab))
    until(lambda: shown(lab)["wrong_times"] == 40, lambda: shown(lab))
    lab.interrupt(process)
    report = lab.report(process)
    assert report["closed"] and lost_of(report) == 0
    (row,) = (row for row in report["ledger"] if row["account"] == "entry" and row["origin"] == "cam:Image")
    assert (row["appended"], row["skipped"], row["duplicate"]) == (61 - 11, {}, 0), row
    frames = values(lab, "ad00")["cam:Image"]
    assert [frame.id for frame in frames] == list(range(61))
    for frame in frames:
        block = (frame.id - 1) // 5
        places = [1, 2, 3, 4, 8, 9, 10, 11]
        is_wrong = frame.id > 0 and block in places
        assert (frame.flags == ["suspect"]) is is_wrong, (frame.id, frame.flags)
        stamp = frame.metadata.get("timeStamp")
        if is_wrong:
            assert 0 <= frame.source_time / 1e9 - now < HANG_S
            assert abs(float(np.asarray(stamp).ravel()[0]) / 1e9 - stamps[places.index(block)]) < 1
        else:
            assert stamp is None
    print(f"epics: 40 frames of {kind} with 4 clocks that are wrong injected, 0 lost, all flagged")


@pytest.mark.parametrize("kind", KINDS)
def test_frames_in_another_order_are_neither_lost_nor_new_lives(lab, network, servers, kind, dice):
    servers.append(camera(kind, "cam:Image", network))
    lab.write('[source.pvs]\nkind = "pva"\npvs = ["cam:Image"]\nqueue = 2000\nreorder = "30 s"\n[run.first]\n')
    process, _ = lab.up_ready()
    until(lambda: len(values(lab, "ad00").get("cam:Image", [])) == 1, lambda: shown(lab))
    sent, first = [], 1
    for window in (2, 10, 100, 1000):
        ids = list(range(first, first + window))
        dice.shuffle(ids)
        servers[-1].tell(f"{','.join(map(str, ids))} now")
        sent, first = [*sent, *ids], first + window
        until(lambda n=first: len(values(lab, "ad00")["cam:Image"]) == n, lambda: shown(lab))
    # A frame that never came, one that comes twice, and a camera that counts from 0 again.
    stamp = time.time()
    servers[-1].tell(f"{first + 1}-{first + 3} {stamp}")
    servers[-1].tell(f"{first + 3} {stamp}")
    servers[-1].tell("1-4 now")
    until(lambda: len(values(lab, "ad00").get("cam:Image#2", [])) == 4, lambda: shown(lab))
    lab.interrupt(process)
    report = lab.report(process, status=None)
    assert report["closed"]
    rows = {row["origin"]: row for row in report["ledger"] if row["account"] == "entry" and row["appended"]}
    one, two = rows["cam:Image"], rows["cam:Image#2"]
    assert set(rows) == {"cam:Image", "cam:Image#2"}
    assert (one["lost"], one["refused"], one["duplicate"]) == ({"unsent": 1}, {"duplicate": 1}, 0), one
    assert (two["appended"], two["lost"]) == (4, {}), two
    (gap,) = (gap for gap in report["gaps"] if gap["origin"] == "cam:Image")
    assert (gap["first"], gap["last"], gap["reason"]) == (first, first, "lost.unsent")
    assert 0 < gap["to"] - gap["from"] < HANG_S * 10**9
    found = values(lab, "ad00")
    assert [frame.id for frame in found["cam:Image"]][1:] == [*sent, *range(first + 1, first + 4)]
    assert [frame.id for frame in found["cam:Image#2"]] == [1, 2, 3, 4]
    assert all((frame.array == frame.id % 256).all() for frames in found.values() for frame in frames)
    print(f"epics: {len(sent)} frames of {kind} in shuffled windows of 2 to 1,000 injected, 0 lost, 0 new lives")


@pytest.mark.parametrize("level", ["memory", "disk"])
def test_frames_in_another_order_are_counted_where_the_stream_is_shorter_than_the_run(
    lab, network, servers, level, dice, tmp_path_factory
):
    """Retention deletes what came before; in another working folder, with few descriptors, and a second run."""
    servers.append(camera("p4p", "cam:Image", network))
    source = f"""
[source.pvs]
kind = "pva"
pvs = ["cam:Image"]
queue = 2000
reorder = "10 s"
level = "{level}"
live = "1 MiB"
{'retain = "2 MiB"' if level == "disk" else ""}
"""
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    few = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))}
    first, windows = 1, 12
    for run in ("first", "second"):
        lab.write(f"{source}[run.{run}]\n")
        process, _ = lab.up_ready(cwd=elsewhere, **few)
        until(lambda: shown(lab).get("connected") == 1, lambda: brief(lab))
        known = until(lambda: lab.stream("pvs").marks()[2], lambda: brief(lab))
        for window in range(1, windows + 1):
            ids = list(range(first, first + 500))
            dice.shuffle(ids)
            # One of each window never comes.
            ids.remove(first + 250)
            servers[-1].tell(f"{','.join(map(str, ids))} now")
            first += 500
            there = known + 499 * window
            until(lambda n=there: lab.stream("pvs").marks()[2] >= n, lambda: brief(lab))
        lab.interrupt(process)
        report = lab.report(process, status=1)
        assert report["closed"], report["ledger"]
        rows = {row["origin"]: row for row in report["ledger"] if row["account"] == "entry"}
        kept, deleted = rows["cam:Image"], rows[""]
        counted = deleted["appended"] + kept["appended"]
        assert kept["appended"] < 1000 and counted >= 499 * windows, report["ledger"]
        # Those of its last windows were not numbered again, and what was deleted is not lost.
        assert sum(kept["lost"].values()) == windows and set(kept["lost"]) <= {"unsent", "absent"}, kept


@pytest.mark.parametrize("kind", KINDS)
def test_attributes_of_all_kinds_come_with_the_frames_and_the_state_of_a_camera_beside_them(
    lab, network, servers, kind
):
    servers.append(camera(kind, "cam:Image", network))
    lab.write(
        """
[source.pvs]
kind = "pva"
pvs = ["cam:Image"]
queue = 1000
[source.state]
kind = "pva"
pvs = [{ pv = "cam:Image", schema = "none" }]
[sink.images]
kind = "files"
inputs = ["pvs"]
[run.first]
"""
    )
    process, _ = lab.up_ready()
    until(lambda: len(values(lab, "ad00").get("cam:Image", [])) == 1, lambda: shown(lab))
    servers[-1].tell("1-100 now")
    until(lambda: len(values(lab, "ad00")["cam:Image"]) == 101, lambda: shown(lab))
    until(lambda: shown(lab)["dropped_attributes"] == 101, lambda: shown(lab))
    servers[-1].kill()
    found = []

    def is_lost() -> bool:
        found.extend(beamport.open(lab.data)["state"].read())
        return any(one.schema == "ep01" and one["status"] == "DISCONNECTED" for one in found)

    until(is_lost, lambda: shown(lab))
    lab.interrupt(process)
    report = lab.report(process)
    assert report["closed"] and lost_of(report) == 0
    messages = list(beamport.open(lab.data)["pvs"].read())
    # A worker or a file of frames finds nothing else.
    assert {one.schema for one in messages} == {"ad00"} and len(messages) == 101
    for frame in messages[1:]:
        metadata = frame.metadata
        assert (metadata["gain"], metadata["motor"], metadata["motor.units"]) == (frame.id, frame.id / 2, "mm")
        assert np.asarray(metadata["axis"]).tolist() == [frame.id + 0.5, 1.5] and "names" not in metadata
    # Without their pixels.
    assert {one.schema for one in found} <= {"ep01", "al00", "un00"}
    assert [one["status"] for one in values(lab, "ep01", "state")["cam:Image"]] == ["CONNECTED", "DISCONNECTED"]
    row = next(row for row in report["ledger"] if row["account"] == "reader" and row["stage"] == "images")
    assert row["aside"] == {}, row


@pytest.mark.parametrize("kind", KINDS)
def test_compressed_frames_are_decoded_and_become_one_file(lab, network, servers, kind):
    pytest.importorskip("hdf5plugin")
    codecs = ["lz4", "bslz4", "blosc-blosclz", "blosc-lz4", "blosc-zlib", "blosc-zstd"]
    servers.append(camera(kind, "cam:Image", network))
    lab.write(
        """
[source.pvs]
kind = "pva"
pvs = ["cam:Image"]
queue = 1000
[source.packed]
kind = "pva"
pvs = ["cam:Image"]
queue = 1000
decode = false
[sink.images]
kind = "files"
inputs = ["pvs"]
folder = "files"
[run.first]
"""
    )
    process, _ = lab.up_ready()
    until(lambda: len(values(lab, "ad00").get("cam:Image", [])) == 1, lambda: shown(lab))
    for at, codec in enumerate([*codecs, "jpeg"]):
        servers[-1].tell(f"{10 * at + 1}-{10 * at + 10} now {codec}")
    until(lambda: len(values(lab, "ad00")["cam:Image"]) == 71, lambda: shown(lab))
    until(lambda: len(values(lab, "ad00", "packed")["cam:Image"]) == 71, lambda: shown(lab))
    assert shown(lab)["undecoded"] == 0
    # A codec that nobody knows is kept as it came, and named.
    servers[-1].tell("71-71 now unknown")
    until(lambda: shown(lab)["undecoded"] == 1, lambda: shown(lab))
    until(lambda: "codec `unknown`" in "".join(troubles(lab)), lambda: troubles(lab))
    lab.interrupt(process)
    report = lab.report(process)
    assert report["closed"] and lost_of(report) == 0
    frames = values(lab, "ad00")["cam:Image"][1:71]
    for frame, codec in zip(frames, (codec for codec in [*codecs, "jpeg"] for _ in range(10)), strict=True):
        expected = ramp(frame.id, codec)
        assert (frame.array.shape, frame.array.dtype) == (expected.shape, expected.dtype), codec
        atol = 3 if codec == "jpeg" else 0
        assert np.allclose(frame.array.astype(int), expected.astype(int), rtol=0, atol=atol), (codec, frame.id)
        assert "codec" not in frame.metadata
    # A file for each type and size, and one for the frame that is not decoded.
    assert len(list(lab.folder.rglob("*.h5"))) == 3
    kept = values(lab, "ad00", "packed")["cam:Image"][1:71]
    assert [frame.metadata["codec"] for frame in kept[:60:10]] == ["lz4", "bslz4", *["blosc"] * 4]
    assert all(frame.array.ndim == 1 and frame.array.nbytes < 6144 for frame in kept)


def test_what_has_not_come_is_told_where_people_look(lab, network, servers):
    servers.append(ioc(counters(lab, 1), network))
    section = """
[source.pvs]
kind = "pva"
pvs = [{}"T:0", {{ pv = "MAYBE", optional = true }}]
[run.{}]
"""
    lab.write(section.format('"NOBODY:HAS:IT", "ca:NOBODY:EITHER", ', "first"))
    process, _ = lab.up_ready()
    until(lambda: values(lab).get("T:0"), lambda: shown(lab))
    what = "no value of 2 of 4 PVs"
    told = until(lambda: [text for text in troubles(lab) if what in text], lambda: troubles(lab))
    assert "no server has `pva:NOBODY:HAS:IT`, `ca:NOBODY:EITHER`" in told[0] and "MAYBE" not in told[0]
    until(lambda: what in lab.said(process)[1], lambda: lab.said(process)[1])
    assert shown(lab)["absent"] == 2
    lab.interrupt(process)
    report = lab.report(process, status=1)
    assert not report["closed"] and lost_of(report) == 0
    (absent,) = report["absent"]
    assert what in absent["what"] and "optional = true" in absent["hint"]
    # A second run in the same folder, with all of them.
    lab.write(section.format("", "second"))
    process, _ = lab.up_ready()
    before = len(values(lab)["T:0"])
    until(lambda: len(values(lab)["T:0"]) > before, lambda: shown(lab))
    lab.interrupt(process)
    report = lab.report(process)
    assert report["closed"] and report["absent"] == []


def test_a_pv_that_two_servers_have_is_named_in_the_log(lab, network, servers):
    servers += [structures("all", network), structures("all", environment())]
    addresses = " ".join(f"127.0.0.1:{server.settings['EPICS_PVAS_BROADCAST_PORT']}" for server in servers)
    lab.write(f'[source.pvs]\nkind = "pva"\npvs = ["T:RAMP"]\naddresses = "{addresses}"\n')
    process, _ = lab.up_ready()
    until(lambda: "Duplicate PV name T:RAMP" in lab.said(process)[1], lambda: lab.said(process)[1])
    # The answers of the search come before the connection; without a value the source would have failed.
    until(lambda: values(lab).get("T:RAMP"), lambda: shown(lab))
    lab.interrupt(process)
    lab.end(process)


def test_the_first_value_of_a_connection_is_kept_however_old(lab, network, servers):
    servers.append(structures("all", network))
    old = time.time_ns() - 100_000_000 * 10**9
    servers[-1].tell(f"stamp 7 {old}")
    lab.write('[source.pvs]\nkind = "pva"\npvs = ["T:RAMP"]\n[run.first]\n')
    process, _ = lab.up_ready()
    (first,) = until(lambda: values(lab).get("T:RAMP"), lambda: shown(lab))
    assert (first["value"], first.source_time, first.flags) == (7, old, [])
    # Later ones that are as old are counted, and shown while it runs.
    servers[-1].tell(f"stamp 8 {old + 1}")
    until(lambda: shown(lab)["skipped"] == 1, lambda: shown(lab))
    lab.interrupt(process)
    assert lab.report(process)["closed"] and len(values(lab)["T:RAMP"]) == 1


def troubles(lab) -> list[str]:
    """What the instrument says is wrong."""
    return json.loads(lab.ask(b'{"command": "status"}\n'))["ok"]["troubles"]


WRITTEN = """
record(ao, "W:AO") { field(VAL, "1") field(PINI, "YES") field(DRVH, "1000") field(DRVL, "-1000") }
record(longout, "W:LONG") { field(VAL, "1") field(PINI, "YES") }
record(mbbo, "W:MODE") { field(ZRST, "off") field(ONST, "slow") field(TWST, "fast") field(PINI, "YES") }
record(stringout, "W:TEXT") { field(VAL, "word") field(PINI, "YES") }
record(waveform, "W:WAVE") { field(FTVL, "DOUBLE") field(NELM, "4") field(INP, [1]) field(PINI, "YES") }
record(ao, "W:LOCKED") { field(VAL, "7") field(PINI, "YES") field(DISP, "1") }
"""


def records(lab, text: str, network, name: str = "written") -> Server:
    """An IOC with these records."""
    path = lab.folder / f"{name}.db"
    path.write_text(text)
    return ioc(path, network)


def puts(lab) -> list[tuple[dict, str]]:
    """The puts in the stream `control`, each with its answer."""
    commands = beamport.open(lab.data)["control"].read()
    return [(json.loads(one["arguments"]), one["answer"]) for one in commands if one["command"] == "put"]


@pytest.mark.parametrize("protocol", ["pva", "ca"])
def test_a_put_is_answered_and_recorded(lab, network, servers, protocol):
    servers.append(records(lab, WRITTEN, network))
    names = ["W:AO", "W:LONG", "W:MODE", "W:TEXT", "W:WAVE", "W:LOCKED"]
    lab.write(f'[source.pvs]\nkind = "{protocol}"\npvs = {json.dumps(names)}\n')
    process, _ = lab.up_ready()
    lab.interrupt(process)
    lab.end(process, status=None)
    nobody = lab.run("put", "W:AO", "2", "--data", lab.data, status=2)
    assert b"no instrument is running in" in nobody.stderr
    process, _ = lab.up_ready()
    until(lambda: shown(lab).get("connected") == len(names), lambda: shown(lab))
    texts = {"W:AO": "-2.5", "W:LONG": "42", "W:MODE": "fast", "W:TEXT": "12", "W:WAVE": "[1.5, 2, 3]"}
    for name, text in texts.items():
        # Without a prefix it is that of the source that lists it.
        said = lab.run("put", name, text, "--data", lab.data).stdout.decode()
        assert said.startswith(f"{protocol}:{name} has taken the value; it answered after "), said
    answer = json.loads(lab.run("put", f"{protocol}:W:MODE", "1", "--data", lab.data, "--json").stdout)
    assert answer["pv"] == f"{protocol}:W:MODE" and 0 < answer["seconds"] < HANG_S

    def newest() -> dict:
        found = values(lab) | values(lab, "f142")
        return {name: np.asarray(messages[-1]["value"]).tolist() for name, messages in found.items()}

    wanted = {"W:AO": -2.5, "W:LONG": 42, "W:MODE": 1, "W:TEXT": "12", "W:WAVE": [1.5, 2, 3], "W:LOCKED": 7}
    until(lambda: newest() == wanted, newest)
    for name, text, why in [
        ("W:MODE", "medium", "no choice" if protocol == "pva" else "write request failed"),
        ("W:AO", "hot", "the PV takes a number, not"),
        ("W:LONG", "1.5", "the PV takes a whole number, not"),
        ("W:LONG", "3000000000", "out of the range"),
        ("W:LONG", "[1, 2]", "one value, not an array"),
        ("W:LOCKED", "1", "isabled" if protocol == "pva" else "write request failed"),
        (f"{protocol}:NOBODY:HAS:IT", "1", "no server has this PV"),
        ("fake:A", "1", "a simulated PV"),
        ("a b", "1", "contains a space"),
    ]:
        said = lab.run("put", name, text, "--data", lab.data, "--timeout", "2 s", status=2).stderr.decode()
        assert why in said and "cannot write `" in said and "hint:" in said, (name, text, said)
    assert newest() == wanted
    until(lambda: len(puts(lab)) == len(texts) + 10, lambda: puts(lab))
    made = puts(lab)
    assert [request["pv"] for request, _ in made][: len(texts)] == list(texts)
    assert sum(answer.startswith('{"pv":') for _, answer in made) == len(texts) + 1
    assert sum("cannot write" in answer for _, answer in made) == 9
    # A put that waits keeps nothing from its end.
    waits = lab.popen("put", "NOBODY:HAS:IT", "1", "--data", lab.data, "--timeout", "1 h")
    until(lambda: lab.ask(b'{"command": "status"}\n'), "no answer while a put waits")
    lab.interrupt(process)
    lab.end(process)
    assert waits.wait(HANG_S) == 2


# A record that takes a while, as a motor does, and one that fails.
SLOW = """
record(calcout, "M:GO") { field(CALC, "A") field(ODLY, "1.5") field(OUT, "M:RBV PP") field(OOPT, "Every Time") }
record(ao, "M:RBV") { field(VAL, "0") field(PINI, "YES") }
record(stringout, "M:TEXT") { field(VAL, "word") field(PINI, "YES") }
record(waveform, "M:PATH") { field(FTVL, "CHAR") field(NELM, "64") field(PINI, "YES") }
record(waveform, "M:FIVE") { field(FTVL, "DOUBLE") field(NELM, "5") field(PINI, "YES") }
record(waveform, "M:ONE") { field(FTVL, "DOUBLE") field(NELM, "1") field(PINI, "YES") }
record(int64out, "M:WIDE") { field(VAL, "0") field(PINI, "YES") }
record(longout, "M:LONG") { field(VAL, "3") field(PINI, "YES") field(EGU, "mm") field(HIGH, "2") field(HSV, "MINOR") }
record(mbbo, "M:MODE") { field(ZRST, "off") field(ONST, "slow") field(PINI, "YES") }
record(ao, "M:DOUBLE") { field(VAL, "1") field(PINI, "YES") }
"""


@pytest.mark.parametrize("protocol", ["pva", "ca"])
def test_a_put_is_the_same_by_both_protocols(lab, network, servers, protocol):
    servers.append(records(lab, SLOW, network))

    def put(name: str, value: str, *more: str, status: int = 0) -> str:
        # No instrument runs: the command itself is the client.
        said = lab.run("put", f"{protocol}:{name}", value, *more, status=status)
        return (said.stderr if status else said.stdout).decode()

    def get(name: str) -> dict:
        return json.loads(lab.run("get", f"{protocol}:{name}", "--json").stdout)

    # It waits until the record has processed.
    begin = time.monotonic()
    put("M:GO.A", "7")
    assert time.monotonic() - begin >= 1.5 and get("M:RBV")["value"] == 7
    put("M:GO.ODLY", "4")
    assert "nothing records it" in put("M:GO.A", "8", "--no-wait") and get("M:RBV")["value"] == 7
    until(lambda: get("M:RBV")["value"] == 8, lambda: get("M:RBV"))
    assert "no answer in time" in put("M:GO.A", "9", "--timeout", "300 ms", status=2)
    until(lambda: get("M:RBV")["value"] == 9, lambda: get("M:RBV"))
    # What does not fit exactly is refused, and named.
    is_pva = protocol == "pva"
    for name, value, why in [
        ("M:LONG", "7.5", "whole number"),
        ("M:LONG", "99999999999", "out of the range"),
        ("M:DOUBLE", str(2**53 + 1), "exactly"),
        ("M:MODE", "99999999999999999999", "no choice" if is_pva else "cannot write"),
        ("M:FIVE", "[1, 2, 3, 4, 5, 6]", "5 of 6" if is_pva else "fewer elements"),
        ("M:TEXT", "x" * 60, "39 of 60" if is_pva else "39 bytes"),
        ("M:PATH", "x" * 70, "64 of 71" if is_pva else "too long"),
    ]:
        assert why in put(name, value, status=2), (name, value)
    if is_pva:
        put("M:WIDE", str(2**53 + 1))
        assert get("M:WIDE")["value"] == 2**53 + 1
    else:
        # Channel Access has no such numbers.
        assert "exactly" in put("M:WIDE", str(2**53 + 1), status=2)
    # Text goes into an array of characters, and a number into an array.
    put("M:PATH", "/data/first")
    assert bytes(get("M:PATH")["value"]).rstrip(b"\0") == b"/data/first"
    put("M:FIVE", "2.5")
    assert get("M:FIVE")["value"] == [2.5]
    # An IOC serves an array of one element by pvAccess as a number.
    assert get("M:ONE")["value"] == (0 if is_pva else [])
    said = put("M:LONG", "5", "--read")
    assert said.splitlines()[1] == "5 mm   MINOR HIGH", said
    found = get("M:LONG")
    assert (found["units"], found["severity"], found["alarm"]) == ("mm", 1, "HIGH")
    assert abs(found["time"] - time.time_ns()) < HANG_S * 10**9
    put("M:MODE", "slow")
    assert (get("M:MODE")["value"], get("M:MODE")["text"]) == (1, "slow")
    said = lab.run("get", f"{protocol}:NOBODY:HAS:IT", "--timeout", "500 ms", status=2).stderr.decode()
    assert "no server has this PV" in said


def test_a_put_from_python(tmp_path, network, servers):
    database = tmp_path / "written.db"
    database.write_text(WRITTEN)
    servers.append(ioc(database, network))
    settings = {
        "instrument": "lab",
        "data": str(tmp_path / "data"),
        "source": {"pvs": {"kind": "pva", "pvs": ["W:AO"]}},
    }
    with beamport.run(settings) as instrument:
        for name, value, wanted in [
            ("W:AO", 4.5, 4.5),
            ("ca:W:AO", np.float32(5.5), 5.5),
            ("W:LONG", np.int16(-3), -3),
            ("W:MODE", "slow", 1),
            ("W:WAVE", np.array([1.0, 2.5]), [1.0, 2.5]),
            ("W:WAVE", [4, 5], [4.0, 5.0]),
        ]:
            assert 0 < epics.put(instrument, name, value) < HANG_S
            epics.configure(instrument, "pvs", add=[{"pv": name, "topic": "seen"}])
            origin = "seen/" + name.removeprefix("ca:")

            def newest(origin=origin) -> object:
                found = [one for one in instrument["pvs"].read() if one.origin == origin and one.schema == "f144"]
                return np.asarray(found[-1]["value"]).tolist() if found else None

            until(lambda newest=newest, wanted=wanted: newest() == wanted, newest)
        with pytest.raises(beamport.Error, match="no choice") as refused:
            epics.put(instrument, "W:MODE", "medium")
        assert "W:MODE" in str(refused.value) and refused.value.hint
        with pytest.raises(beamport.Error, match="no server has this PV"):
            epics.put(instrument, "NOBODY:HAS:IT", 1, timeout=0.5)
        with pytest.raises(beamport.Error, match="it is a dict"):
            epics.put(instrument, "W:AO", {})
        # No number is cut off to fit.
        for name, value, why in [("W:LONG", 7.5, "whole numbers"), ("W:MODE", 1.7, "whole numbers")]:
            with pytest.raises(beamport.Error, match=why):
                epics.put(instrument, name, value)
        epics.put(instrument, "W:LONG", 8.0)
        assert epics.get(instrument, "W:LONG") == 8 and epics.get(instrument, "ca:W:TEXT") == "word"
        assert epics.get(instrument, "W:MODE", details=True)["text"] == "slow"
        # The instrument itself is a mapping of streams.
        assert instrument.get("pvs") is instrument["pvs"] and instrument.get("nothing", None) is None
        with pytest.raises(beamport.Error, match="no server has this PV"):
            epics.get(instrument, "NOBODY:HAS:IT", timeout=0.5)


def test_updates_of_a_pv_in_python(tmp_path, network, servers):
    servers.append(structures("all", network))
    settings = {
        "instrument": "lab",
        "data": str(tmp_path / "data"),
        "source": {"pvs": {"kind": "pva", "pvs": []}},
    }
    with beamport.run(settings) as instrument:
        answer = epics.configure(instrument, "pvs", add={"pv": "T:RAMP", "topic": "seen"})
        assert answer == {"added": 1, "removed": 0, "pvs": 1}
        until(lambda: any(one.schema == "f144" for one in instrument["pvs"].read()), "no value")
        with pytest.raises(beamport.Error, match="no source lists") as missing:
            epics.updates(instrument, "NOBODY:HAS:IT")
        assert "epics.configure" in missing.value.hint
        values = range(100, 150)

        def send() -> None:
            for value in values:
                servers[-1].tell(f"stamp {value} {time.time_ns()}")

        # A callback, in a thread of its own.
        called = []
        subscription = epics.updates(instrument, "T:RAMP", called.append)
        # asyncio.
        awaited = []

        async def follow() -> None:
            async for message in epics.updates(instrument, "T:RAMP"):
                awaited.append(message["value"])
                if awaited[-1] == values[-1]:
                    return

        loop = threading.Thread(target=asyncio.run, args=[follow()])
        loop.start()
        with epics.updates(instrument, "T:RAMP") as messages:
            newest = next(messages)["value"]
            send()
            found = [next(messages)["value"] for _ in values]
        assert found == list(values)
        loop.join(HANG_S)
        assert awaited[-50:] == list(values)
        until(lambda: [one["value"] for one in called][-50:] == list(values), lambda: called)
        assert called[0]["value"] == newest
        subscription.close()
        servers[-1].tell(f"stamp 7 {time.time_ns()}")
        time.sleep(0.3)
        assert called[-1]["value"] == values[-1]


def feedback(lab, counting, every: str = "50 ms") -> None:
    """An instrument whose sink writes what an IOC of its own counts, and whose source `back` reads that again."""
    lab.write(
        f"""
[source.pvs]
kind = "pva"
pvs = ["T:0", "T:1"]
name_servers = "127.0.0.1:{counting.settings["EPICS_PVA_SERVER_PORT"]}"
[source.back]
kind = "ca"
pvs = ["W:AO"]
[sink.feedback]
kind = "pva-put"
inputs = ["pvs"]
pvs = {{ "T:0" = "W:AO", "T:1" = "ca:W:LONG" }}
every = "{every}"
"""
    )


def sink_account(lab) -> dict:
    """The account of the sink; empty before its first commit."""
    rows = beamport.open(lab.data).stages()
    return next((row for row in rows if (row["stage"], row["stream"]) == ("feedback", "pvs")), {})


def written_back(lab) -> list[float]:
    """The values of `W:AO`, as they came back."""
    messages = beamport.open(lab.data)["back"].read()
    return [one["value"] for one in messages if one.schema == "f144"]


def test_feedback_writes_the_newest_value_and_counts_the_others(lab, network, servers, times):
    counting = ioc(counters(lab, 2), environment())
    servers.append(counting)
    servers.append(records(lab, WRITTEN, network))
    feedback(lab, counting, "300 ms")
    process, _ = lab.up_ready()
    until(lambda: len(written_back(lab)) > 10, lambda: lab.said(process)[1])
    lab.interrupt(process)
    lab.end(process, status=None)
    row, stream = sink_account(lab), lab.stream("pvs").all()
    assert set(row["skipped"]) == {"schema", "newer"} and row["skipped"]["newer"] > 10 and not row["aside"], row
    assert row["done"] + sum(row["skipped"].values()) == len(stream), (row, len(stream))
    back = written_back(lab)[1:]
    # About every third value; each is newer than the one before.
    assert all(after > before for before, after in zip(back, back[1:], strict=False)), back
    assert back[-1] - back[0] >= 2 * (len(back) - 1), back
    newest = {name: messages[-1]["value"] for name, messages in values(lab).items()}
    # The last values are written at the end.
    commit = newest_commit(lab)
    state = commit["pvs"]
    assert (state["T:0"]["value"], state["T:1"]["value"]) == (newest["T:0"], newest["T:1"]), (state, newest)
    assert state["T:0"]["pv"] == "pva:W:AO" and state["T:0"]["next"] is None and state["T:0"]["error"] is None
    # A value that waited for a second, as before a slow connection, is done when a newer one replaces it.
    written = sum(one["puts"] for one in state.values())
    assert row["done"] + row["skipped"]["newer"] == written + commit["replaced"], (row, commit)


def newest_commit(lab) -> dict:
    """The state in the newest commit of the sink; empty before the first."""
    try:
        commits = beamport.open(lab.data)["feedback.commits"]
    except beamport.Error:
        return {}
    states = [commit["state"] for commit in commits.read() if commit["state"]]
    return json.loads(states[-1]) if states else {}


def newest_state(lab) -> dict:
    """What it says of the PVs, by their origins."""
    return newest_commit(lab).get("pvs", {})


def test_feedback_goes_on_after_kills_of_the_ioc_and_of_the_instrument(lab, network, servers, times):
    counting = ioc(counters(lab, 2), environment())
    servers.append(counting)
    servers.append(records(lab, WRITTEN, network))
    feedback(lab, counting)
    process, _ = lab.up_ready()
    rounds = times(2, 20)

    def said() -> str:
        return lab.said(lab.started[-1])[1]

    for _ in range(rounds):
        count = len(written_back(lab))
        until(lambda count=count: len(written_back(lab)) > count + 5, said)
        servers.pop().kill()

        def troubles() -> list[str]:
            return json.loads(lab.ask(b'{"command": "status"}\n'))["ok"]["troubles"]

        until(lambda: any("sink `feedback` cannot write" in one for one in troubles()), troubles)
        top = lab.run("top", "--data", lab.data).stdout.decode()
        assert "sink `feedback` cannot write" in top and "puts=" in top, top
        before = max(written_back(lab))
        # Values that came meanwhile are not written one after the other.
        until(lambda before=before: values(lab)["T:0"][-1]["value"] > before + 15, "the source stopped")
        servers.append(records(lab, WRITTEN, network))
        until(lambda before=before: max(written_back(lab)) > before, said)
        behind = [value for value in written_back(lab) if value > before]
        assert behind[0] > before + 10, (before, behind)
        until(lambda: not troubles(), troubles)
        state = newest_state(lab)
        lab.kill(process)
        process, _ = lab.up_ready()
        until(lambda state=state: newest_state(lab)["T:0"]["puts"] > state["T:0"]["puts"], said)
    lab.interrupt(process)
    lab.end(process, status=None)
    back = [value for value in written_back(lab) if value != 1]
    assert back == sorted(back), back
    print(f"epics: {rounds} kills of the IOC of a sink and {rounds} of its instrument injected, no old value written")


def test_a_refused_value_of_feedback_is_set_aside(lab, network, servers):
    counting = ioc(counters(lab, 1), environment())
    servers.append(counting)
    servers.append(records(lab, WRITTEN, network))
    feedback(lab, counting)
    lab.file.write_text(lab.file.read_text().replace('"T:0" = "W:AO"', '"T:0" = "W:LOCKED"'))
    process, _ = lab.up_ready()
    until(lambda: sink_account(lab).get("aside", {}).get("refused", 0) > 3, lambda: lab.said(process)[1])

    def status() -> dict:
        return json.loads(lab.ask(b'{"command": "status"}\n'))["ok"]

    troubles = status()["troubles"]
    assert any("cannot write `pva:W:LOCKED`" in one for one in troubles), troubles
    until(lambda: status()["running"]["feedback"]["status"]["refused"] > 3, status)
    lab.interrupt(process)
    lab.end(process, status=None)
    aside = list(beamport.open(lab.data)["feedback.aside"].read())
    assert {one["reason"] for one in aside} == {"refused"} and len(aside) == sink_account(lab)["aside"]["refused"]


def test_the_example_of_feedback(lab, network, servers):
    servers.append(records(lab, 'record(ao, "LAB:FB:CENTRE_X") { field(PINI, "YES") }', network))
    text = (ROOT / "examples/feedback.toml").read_text().partition('instrument = "feedback"')[2]
    (lab.folder / "feedback.py").write_text((ROOT / "examples/feedback.py").read_text())
    lab.write(text.replace("[worker.centre]\n", f'[worker.centre]\npython = "{sys.executable}"\n'))
    process, _ = lab.up_ready()

    until(lambda: newest_state(lab).get("camera", {}).get("puts", 0) > 5, lambda: lab.said(process)[1])
    state = newest_state(lab)["camera"]
    assert 0 < state["value"] < 127 and state["error"] is None
    lab.interrupt(process)
    lab.end(process, status=None)


def test_thousands_of_pvs_come_in_one_request(lab, network):
    lab.write('[source.pvs]\nkind = "pva"\npvs = []\n')
    process, _ = lab.up_ready()
    names = [f"LAB:VERY:LONG:NAME:OF:A:PROCESS:VARIABLE:{number}" for number in range(12_000)]
    request = {"command": "configure", "source": "pvs", "add": [f"fake:{name}" for name in names]}
    answer = json.loads(lab.ask(json.dumps(request).encode() + b"\n"))
    assert answer["ok"]["answer"] == {"added": 12_000, "removed": 0, "pvs": 12_000}
    until(lambda: shown(lab)["connected"] == 12_000, lambda: shown(lab)["connected"])
    rows = shown(lab)["streams"]
    assert [row["pv"] for row in rows] == names and all(row["connected"] for row in rows)
    command = next(one for one in beamport.open(lab.data)["control"].read() if one["command"] == "configure")
    recorded = json.loads(command["arguments"])
    assert recorded["bytes"] > 600_000 and "LAB:VERY:LONG" in recorded["begin"]
    lab.interrupt(process)
    lab.end(process)


@pytest.mark.parametrize("level", ["memory", "disk"])
def test_frames_larger_than_the_live_memory_are_stored(lab, network, servers, level):
    size, live = 5_000_000, "1 MiB"
    servers.append(structures("all", network))
    lab.write(f'[source.pvs]\nkind = "pva"\npvs = ["T:IMAGE"]\nlevel = "{level}"\nlive = "{live}"\n[run.first]\n')
    process, _ = lab.up_ready()
    until(lambda: shown(lab).get("connected") == 1, lambda: shown(lab))
    count = 8

    def newest_id() -> int:
        frames = values(lab, "ad00").get("T:IMAGE")
        return frames[-1].id if frames else 0

    for number in range(1, count + 1):
        servers[0].tell(f"pixel {number} {size}")
        # Of a stream in memory the newest alone may be left.
        until(lambda number=number: newest_id() == number, lambda: shown(lab))
    newest = values(lab, "ad00")["T:IMAGE"][-1].array
    assert newest.shape == (size,) and np.all(newest == count)
    lab.interrupt(process)
    report = lab.report(process, status=None)
    (row,) = (row for row in report["ledger"] if row["account"] == "entry" and row["origin"] == "T:IMAGE")
    assert row["lost"] == {}, row
    if level == "disk":
        assert (row["sent"], row["appended"]) == (count, count), row
        assert [one.id for one in values(lab, "ad00")["T:IMAGE"]] == list(range(1, count + 1))
