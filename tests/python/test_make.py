"""`beamport make`: what the ESS file writer's tests expect of a file, from structures and messages of our own."""

from __future__ import annotations

import json
import os
import subprocess

import h5py
import numpy as np
import pytest
import sums
from test_nexus_file import HANG_S, programs  # noqa: F401

S = 1_000_000_000
MS = 1_000_000
# The run goes from here to here, s since 1970.
START, STOP = 100, 105


def group(name, nx_class, *children):
    return {"type": "group", "name": name, "attributes": {"NX_class": nx_class}, "children": list(children)}


def dataset(name, values, dtype="string", **attributes):
    listed = [{"name": key, "dtype": "string", "values": value} for key, value in attributes.items()]
    return {"module": "dataset", "config": {"name": name, "values": values, "dtype": dtype}, "attributes": listed}


def stream(module, topic, source, **config):
    return {"module": module, "config": {"topic": topic, "source": source, **config}}


SIGNAL = {"name": "signal", "data_type": "int32", "axes": ["frame_time"], "shape": [3], "unit": "counts"}
STRUCTURE = {
    "children": [
        group(
            "entry",
            "NXentry",
            dataset("title", "An experiment"),
            {"module": "mdat", "config": {"items": ["start_time", "end_time"]}},
            group(
                "instrument",
                "NXinstrument",
                group(
                    "chopper",
                    "NXdisk_chopper",
                    dataset("radius", 0.35, "double", units="m"),
                    dataset("slit_edges", [10.5, 42.25], "double", units="deg"),
                    dataset("slits", 1, "int64"),
                    group("speed", "NXlog", stream("f144", "choppers", "CHOP:SPEED", dtype="double", value_units="Hz")),
                    group("phase", "NXlog", stream("f144", "choppers", "CHOP:PHASE", dtype="double", value_units="deg")),
                    group("quiet", "NXlog", stream("f144", "choppers", "CHOP:QUIET", dtype="double", value_units="s")),
                ),
                group(
                    "bank",
                    "NXdetector",
                    dataset("detector_number", [[1, 2], [3, 4]], "int32"),
                    group("events", "NXevent_data", stream("ev44", "detector", "bank0")),
                ),
                group(
                    "camera",
                    "NXdetector",
                    group("images", "NXlog", stream("ad00", "camera", "cam", array_size=[2, 3], dtype="uint16")),
                ),
                group(
                    "monitor",
                    "NXmonitor",
                    group("histogram", "NXdata", stream("da00", "monitor", "mon", variables=[SIGNAL])),
                ),
            ),
            group("links", "NXcollection", {"module": "link", "config": {"name": "r", "source": "../instrument/chopper/radius"}}),
        )
    ]
}  # fmt: skip


def ms(seconds):
    return round(seconds * 1000) * MS


def f144(source, seconds, value):
    return {"stream": "choppers", "schema": "f144", "source_name": source, "timestamp": ms(seconds), "value": value}


def alarm(seconds, severity, text):
    content = {"source_name": "CHOP:SPEED", "timestamp": ms(seconds), "severity": severity, "message": text}
    return {"stream": "choppers", "schema": "al00", **content}


def connection(seconds, status):
    content = {"source_name": "CHOP:SPEED", "timestamp": ms(seconds), "status": status, "service_id": None}
    return {"stream": "choppers", "schema": "ep01", **content}


def ev44(seconds, number, offsets, pixels):
    return {
        "stream": "detector", "schema": "ev44", "source_name": "bank0", "message_id": number, "pixel_id": pixels,
        "reference_time": [ms(seconds)], "reference_time_index": [0], "time_of_flight": offsets,
    }  # fmt: skip


def frame(seconds, number, pixels):
    return {
        "stream": "camera", "schema": "ad00", "source_name": "cam", "id": number, "timestamp": ms(seconds),
        "data": pixels, "data_type": "uint16", "attributes": [],
    }  # fmt: skip


def counts(seconds, values):
    signal = {"name": "signal", "unit": "counts", "axes": ["frame_time"], "data": values, "data_type": "int32"}
    return {"stream": "monitor", "schema": "da00", "source_name": "mon", "timestamp": ms(seconds), "data": [signal]}


MESSAGES = [
    # Before the run, in it, and behind it.
    f144("CHOP:SPEED", 50, 1), f144("CHOP:SPEED", 99.999, 7.5), f144("CHOP:SPEED", 101, 14), f144("CHOP:SPEED", 103, 28),
    f144("CHOP:SPEED", 106, 99),
    # Nothing in the run.
    f144("CHOP:QUIET", 60, 3), f144("CHOP:QUIET", 98, 4),
    # One value several times, as a forwarder sends it.
    f144("CHOP:PHASE", 101, 10), *[f144("CHOP:PHASE", 102, 20) for _ in range(3)], f144("CHOP:PHASE", 103, 20),
    alarm(101, "MINOR", "too slow"), alarm(102, "OK", ""), connection(101, "CONNECTED"), connection(102, "CONNECTED"),
    ev44(99.9, 1, [1, 2], [1, 1]), ev44(100.5, 2, [10, 20, 30], [1, 2, 3]), ev44(101, 3, [40], [4]),
    ev44(105.1, 4, [5], [5]),
    frame(101, 1, [[1, 2, 3], [4, 5, 6]]), frame(102, 2, [[6, 5, 4], [3, 2, 1]]),
    counts(101, [1, 2, 3]), counts(102, [4, 5, 6]),
]  # fmt: skip


def run(programs, folder, *words, stdin=None, status=0):  # noqa: F811
    """What a verb says on stdout, or on stderr where it refuses."""
    answer = subprocess.run(
        [programs / "beamport", *map(str, words)],
        cwd=folder,
        input=stdin,
        stdin=None if stdin is not None else subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
        env={"PATH": os.environ["PATH"], "TMPDIR": str(folder)},
    )
    assert answer.returncode == status, answer.stdout + answer.stderr
    return answer.stderr if status == 2 else answer.stdout


def at(seconds):
    return f"1970-01-01T00:{seconds // 60:02}:{seconds % 60:02}Z"


@pytest.fixture(scope="module")
def made(programs, tmp_path_factory):  # noqa: F811
    """The file of the run in the names of the ESS writer, and what the verb said."""
    folder = tmp_path_factory.mktemp("make")
    (folder / "structure.json").write_text(json.dumps(STRUCTURE))
    (folder / "messages.json").write_text(json.dumps(MESSAGES))
    words = ("make", "structure.json", "messages.json", "--output", "made.nxs", "--layout", "ess", "--json")
    told = json.loads(run(programs, folder, *words, "--start", at(START), "--stop", at(STOP)))
    # No data folder is left, nor anything else.
    assert sorted(path.name for path in folder.iterdir()) == ["made.nxs", "messages.json", "structure.json"]
    with h5py.File(folder / "made.nxs") as file:
        yield file["entry"], told


CHOPPER = "instrument/chopper"


def test_the_last_value_before_the_start_is_written_and_earlier_ones_are_not(made):
    log = made[0][f"{CHOPPER}/speed"]
    np.testing.assert_array_equal(log["value"], [7.5, 14, 28])
    np.testing.assert_array_equal(log["time"], [99_999 * MS, 101 * S, 103 * S])
    assert (log["minimum_value"][()], log["maximum_value"][()]) == (7.5, 28)
    assert log["average_value"][()] == pytest.approx((7.5 + 14 + 28) / 3)


def test_a_log_without_values_in_the_run_has_the_last_one_before_it(made):
    log = made[0][f"{CHOPPER}/quiet"]
    np.testing.assert_array_equal(log["value"], [4])
    np.testing.assert_array_equal(log["time"], [98 * S])


def test_a_value_that_is_sent_again_is_written_once(made):
    log = made[0][f"{CHOPPER}/phase"]
    np.testing.assert_array_equal(log["time"], [101 * S, 102 * S, 103 * S])
    np.testing.assert_array_equal(log["value"], [10, 20, 20])


def test_units_of_the_structure_are_those_of_the_values(made):
    log = made[0][f"{CHOPPER}/speed"]
    names = ("value", "minimum_value", "maximum_value", "average_value")
    assert {log[name].attrs["units"] for name in names} == {"Hz"}
    assert log["time"].attrs["units"] == "ns"


def test_alarms_and_connections_stand_beside_the_log(made):
    log = made[0][f"{CHOPPER}/speed"]
    assert [text.decode() for text in log["alarm_message"][:]] == ["too slow", "NO ALARM MESSAGE"]
    np.testing.assert_array_equal(log["alarm_severity"], [1, 0])
    np.testing.assert_array_equal(log["alarm_time"], [101 * S, 102 * S])
    np.testing.assert_array_equal(log["connection_status"], [2, 2])
    np.testing.assert_array_equal(log["connection_status_time"], [101 * S, 102 * S])


def test_events_before_the_start_and_after_the_stop_are_left_out(made):
    events = made[0]["instrument/bank/events"]
    np.testing.assert_array_equal(events["event_time_offset"], [10, 20, 30, 40])
    np.testing.assert_array_equal(events["event_id"], [1, 2, 3, 4])
    np.testing.assert_array_equal(events["event_time_zero"], [ms(100.5), 101 * S])
    np.testing.assert_array_equal(events["event_index"], [0, 3])


def test_frames_are_values_of_a_log(made):
    images = made[0]["instrument/camera/images"]
    np.testing.assert_array_equal(images["value"], [[[1, 2, 3], [4, 5, 6]], [[6, 5, 4], [3, 2, 1]]])
    assert images["value"].dtype == np.uint16
    np.testing.assert_array_equal(images["time"], [101 * S, 102 * S])


def test_variables_of_an_array_have_a_row_a_message(made):
    data = made[0]["instrument/monitor/histogram"]
    np.testing.assert_array_equal(data["signal"], [[1, 2, 3], [4, 5, 6]])
    np.testing.assert_array_equal(data["time"], [101 * S, 102 * S])


def test_what_the_structure_says_itself_is_in_the_file(made):
    entry = made[0]
    chopper = entry[CHOPPER]
    assert entry["title"][()] == b"An experiment" and entry["start_time"][()].startswith(b"1970-01-01T00:01:40")
    assert (chopper["radius"][()], chopper["radius"].attrs["units"]) == (0.35, "m")
    np.testing.assert_array_equal(chopper["slit_edges"], [10.5, 42.25])
    np.testing.assert_array_equal(entry["instrument/bank/detector_number"], [[1, 2], [3, 4]])
    assert entry["links/r"] == chopper["radius"]


def test_every_message_of_the_run_is_accounted_for(made):
    account = made[1]["account"]
    sums.adds_up(account)
    assert account["closed"] and account["lost"] == 0
    done = {row["stream"]: (row["read"], row["done"]) for row in account["rows"]}
    # Two of the phase say the same again.
    assert done == {"camera": (2, 2), "choppers": (11, 9), "detector": (2, 2), "monitor": (2, 2)}
    assert next(row["aside"] for row in account["rows"] if row["stream"] == "choppers") == {"repeated": 2}


def test_without_times_all_messages_are_the_run_and_their_stream_follows_from_the_template(programs, tmp_path):  # noqa: F811
    log = group("entry", "NXentry", group("t", "NXlog", stream("f144", "devices", "T")))
    (tmp_path / "t.json").write_text(json.dumps({"children": [log]}))
    values = [{"schema": "f144", "source_name": "T", "timestamp": n, "value": n} for n in (5, 7, 6)]
    text = "\n".join(map(json.dumps, values))
    words = ("make", "t.json", "-", "--output", "t.nxs")
    told = run(programs, tmp_path, *words, stdin=text)
    assert "messages  3\nlost      0\nclosed    yes\n" in told
    with h5py.File(tmp_path / "t.nxs") as file:
        np.testing.assert_array_equal(file["entry/t/time"], [5, 6, 7])
    assert "a file of that name exists" in run(programs, tmp_path, *words, stdin=text, status=2)


def test_a_message_at_the_very_stop_is_in_the_file_of_an_inclusive_run(programs, tmp_path):  # noqa: F811
    log = group("entry", "NXentry", group("t", "NXlog", stream("f144", "choppers", "T")))
    (tmp_path / "t.json").write_text(json.dumps({"children": [log]}))
    text = json.dumps([f144("T", STOP - 1, 1), f144("T", STOP, 2)])
    for inclusive, values in ([], [1]), (["--inclusive"], [1, 2]):
        words = ("make", "t.json", "-", "--output", f"{len(values)}.nxs", "--layout", "ess")
        run(programs, tmp_path, *words, "--start", at(START), "--stop", at(STOP), *inclusive, stdin=text)
        with h5py.File(tmp_path / f"{len(values)}.nxs") as file:
            np.testing.assert_array_equal(file["entry/t/value"], values)


def test_a_message_for_which_the_template_has_no_place_makes_the_status_1(programs, tmp_path):  # noqa: F811
    log = group("entry", "NXentry", group("t", "NXlog", stream("f144", "devices", "T")))
    (tmp_path / "t.json").write_text(json.dumps({"children": [log]}))
    (tmp_path / "m.json").write_text(json.dumps([f144("X", 1, 1), {**f144("T", 1, 1), "stream": "devices"}]))
    told = run(programs, tmp_path, "make", "t.json", "m.json", "--output", "t.nxs", status=1)
    assert "aside     1 of choppers (unmatched)\n" in told


def test_what_cannot_be_made_is_refused_with_its_cause(programs, tmp_path):  # noqa: F811
    (tmp_path / "structure.json").write_text(json.dumps(STRUCTURE))
    (tmp_path / "broken.json").write_text('{"children": [}')
    message = json.dumps(f144("CHOP:SPEED", 101, 1))
    nameless = json.dumps({"schema": "f144", "source_name": "x", "timestamp": 1, "value": 1})

    def refused(stdin, *words, template="structure.json"):
        err = run(programs, tmp_path, "make", template, "-", "--output", "x.nxs", *words, stdin=stdin, status=2)
        assert not (tmp_path / "x.nxs").exists()
        return err

    assert "line 1 of stdin\ncause: it has no `stream`, and the template reads camera, choppers, det" in refused(
        nameless
    )
    assert "the stop is not after the start" in refused(message, "--stop", at(50))
    told = refused(message, template="broken.json")
    assert "broken.json:1: the template has a mistake\ncause: it is not valid JSON: " in told
    assert "cannot read template `gone.json`" in refused(message, template="gone.json")
    assert "write nexus or ess" in refused(message, "--layout", "isis")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken.json", "structure.json"]
