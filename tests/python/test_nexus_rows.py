"""Rows of a NeXus file by their times: `beamport cat FILE` and `beamport.files.rows_between` show the same, and the page."""

from __future__ import annotations

import datetime
import json
import os
import re
import shutil
import subprocess
import time

import h5py
import numpy as np
import pytest
from beamport import Error
from beamport.files import rows_between
from test_nexus_file import HANG_S, INSTRUMENT, ROOT, measure, programs  # noqa: F401

EVENTS = "entry/instrument/detector/data"
S = 1_000_000_000


def cat(programs, *words, status=0):  # noqa: F811
    """What `beamport cat` says, an object a row."""
    answer = subprocess.run(
        [programs / "beamport", "cat", *map(str, words), "--json"],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
        env={"PATH": os.environ["PATH"]},
    )
    assert answer.returncode == status, answer.stderr
    return [json.loads(line) for line in answer.stdout.splitlines()] if status == 0 else answer.stderr


def iso(ns: int) -> str:
    whole = datetime.datetime.fromtimestamp(ns // S, datetime.UTC)
    return f"{whole:%Y-%m-%dT%H:%M:%S}.{ns % S:09d}Z"


@pytest.fixture(scope="module")
def measured(programs, tmp_path_factory):  # noqa: F811
    """A file of three seconds, its events packed."""
    pytest.importorskip("hdf5plugin")
    template = (ROOT / "examples" / "amor.nexus.json").read_text()
    packed = template.replace('"stream": "detector"', '"stream": "detector", "compression": "bitshuffle-lz4"')
    assert packed != template
    return measure(programs, tmp_path_factory.mktemp("rows"), packed)[1]


def test_both_show_the_rows_of_an_interval(programs, measured):  # noqa: F811
    with h5py.File(measured) as file:
        events, log = file[EVENTS], file["entry/sample/temperature"]
        zero, index = events["event_time_zero"][()].astype("i8"), events["event_index"][()].astype("i8")
        ids, times = events["event_id"][()], log["time"][()]
        for from_s, to_s in ((0, 9), (0.5, 1.5), (1, 1), (2.2, 2.3), (-5, 0), (50, 60)):
            start, stop = int(zero[0] + from_s * S), int(zero[0] + to_s * S)
            (pulses,) = np.nonzero((zero >= start) & (zero < stop))
            first = index[pulses[0]] if len(pulses) else 0
            ends = np.append(index, len(ids))
            given = rows_between(events, start, stop)
            assert (given["event_time_zero"] == zero[pulses]).all()
            assert (given["event_index"] == index[pulses] - first).all()
            assert (given["event_id"] == ids[first : ends[pulses[-1] + 1] if len(pulses) else 0]).all()
            assert given["event_id"].dtype == "u4" and len(given["event_time_offset"]) == len(given["event_id"])
            said = cat(programs, measured, "--from", iso(start), "--to", iso(stop), "--path", EVENTS)
            assert [(row["row"], row["source_time"], row["content"]["events"]) for row in said] == [
                (pulse, zero[pulse], ends[pulse + 1] - ends[pulse]) for pulse in pulses
            ]
            kept = (times >= start) & (times < stop)
            assert (rows_between(log, iso(start), iso(stop))["value"] == log["value"][()][kept]).all()
            said = cat(
                programs, measured, "--from", iso(start), "--to", iso(stop), "--path", "/entry/sample/temperature"
            )
            assert [row["content"]["value"] for row in said] == log["value"][()][kept].tolist()
        assert len(rows_between(events)["event_id"]) == len(ids)


def test_only_the_chunks_around_the_interval_are_read(programs, tmp_path):  # noqa: F811
    path = tmp_path / "long.h5"
    pulses, each = 1000, 100
    with h5py.File(path, "w") as file:
        group = file.create_group("entry/events")
        zero = group.create_dataset("event_time_zero", data=np.arange(pulses, dtype="u8") * S)
        zero.attrs.update(units="ns", offset="1970-01-01T00:00:00Z")
        group["event_index"] = np.arange(pulses, dtype="u8") * each
        for name in ("event_id", "event_time_offset"):
            data = np.arange(pulses * each, dtype="i4")
            group.create_dataset(name, data=data, chunks=(1000,), compression="gzip", maxshape=(None,))
        group["cue_index"] = np.arange(0, pulses, 10, dtype="u8") * each
        cues = group.create_dataset("cue_timestamp_zero", data=np.arange(0, pulses, 10, dtype="u8") * S)
        cues.attrs.update(units="ns", offset="1970-01-01T00:00:00Z")
        ids = group["event_id"].id
        places = [ids.get_chunk_info(at).byte_offset for at in range(ids.get_num_chunks()) if not 45 <= at <= 55]
    with path.open("r+b") as file:
        for place in places:
            file.seek(place)
            file.write(b"damaged")
    words = (path, "--events", "--path", "entry/events")
    said = cat(programs, *words, "--from", iso(500 * S), "--to", iso(502 * S))
    assert [row["content"]["event_id"] for row in said] == list(range(50_000, 50_200))
    assert "cause:" in cat(programs, *words, "--from", iso(300 * S), "--to", iso(301 * S), status=2)
    with h5py.File(path) as file:
        given = rows_between(file["entry/events"], 500 * S, 502 * S)
        assert given["event_id"].tolist() == list(range(50_000, 50_200)) and given["event_index"].tolist() == [0, 100]
        with pytest.raises(Error, match="cannot read"):
            rows_between(file["entry/events"], 300 * S, 301 * S)


def test_files_of_others_are_understood(programs, tmp_path):  # noqa: F811
    path = tmp_path / "other.h5"
    with h5py.File(path, "w") as file:
        log = file.create_group("raw_data_1/runlog/temp")
        log.create_dataset("time", data=np.arange(0, 10, 0.5, dtype="f4")).attrs.update(
            units="second", start="2026-03-01T13:00:00+01:00"
        )
        log["value"] = np.arange(20, dtype=">f4") / 8
        log["names"] = np.array([b"a", b"b"] * 10)
        log["status"] = np.arange(7)
        log["image"] = np.zeros((20, 4, 5), "u2")
        log["elsewhere"] = h5py.ExternalLink("/etc/passwd", "/")
        log["there"] = h5py.SoftLink("/raw_data_1/secret")
        file["raw_data_1/secret"] = np.arange(20)
        file.create_dataset("raw_data_1/runlog/temp/stolen", (20,), "u1", external=[("/etc/passwd", 0, 20)])
    said = cat(programs, path, "--from", "2026-03-01T12:00:01Z", "--to", "2026-03-01T12:00:02Z")
    assert [row["row"] for row in said] == [2, 3]
    assert said[1] == {
        "path": "/raw_data_1/runlog/temp",
        "row": 3,
        "source_time": 1772366401500000000,
        "time": "2026-03-01T12:00:01.500000000Z",
        "content": {"value": 0.375, "names": "b", "image": {"dtype": "uint16", "shape": [4, 5], "first": [0] * 5}},
    }
    with h5py.File(path) as file:
        rows = rows_between(file["raw_data_1/runlog/temp"], "2026-03-01T12:00:01Z", "2026-03-01T12:00:02Z")
        assert rows["value"].tolist() == [0.25, 0.375] and rows["image"].shape == (2, 4, 5)
        assert not {"elsewhere", "there", "status", "stolen"} & set(rows)
        with pytest.raises(Error, match="no rows by time"):
            rows_between(file["raw_data_1"])


def rows_now(path) -> dict:
    """Rows of a file that grows: who is told so opens it again."""
    for _ in range(20):
        with h5py.File(path) as file:
            try:
                return rows_between(file[EVENTS])
            except Error as refused:
                assert "open the file again" in str(refused)
    pytest.fail("it cannot be read while it grows")


def test_a_file_that_grows_is_looked_at_without_flags(programs, tmp_path, memory):  # noqa: F811
    shutil.copy2(ROOT / "examples" / "amor.nexus.json", tmp_path)
    (tmp_path / "amor.toml").write_text(INSTRUMENT.format(data=memory).replace('"3 s"', '"8 s"'))
    path, looks = memory / "files" / "first.nxs", 0
    with subprocess.Popen([programs / "beamport", "up", "amor.toml"], cwd=tmp_path, stderr=subprocess.PIPE) as up:
        try:
            seen = -1
            while up.poll() is None:
                time.sleep(0.1)
                if not path.exists() or path.stat().st_size == 0:
                    continue
                said = cat(programs, path, "--path", EVENTS)
                given = rows_now(path)
                assert seen <= len(said) <= len(given["event_index"])
                assert all(row["content"]["events"] > 0 for row in said), "a pulse without its events"
                assert (given["event_id"] > 0).all() and len(given["event_id"]) == len(given["event_time_offset"])
                seen, looks = len(said), looks + 1
        finally:
            if up.poll() is None:
                up.kill()
        assert up.wait() == 0, up.stderr.read()
    whole = len(cat(programs, path, "--path", EVENTS))
    assert looks > 1 and 0 < seen <= whole and 8 * 14 - 1 <= whole <= 8 * 14 + 1


def test_hostile_files_give_an_error_and_end(programs, measured, tmp_path):  # noqa: F811
    with h5py.File(measured) as file:
        (start,) = file[EVENTS]["event_time_zero"][:1]
    original = measured.read_bytes()
    rng = np.random.default_rng(20261123)
    counts = {0: 0, 2: 0, "ended": 0}
    for turn in range(60 if os.environ.get("BEAMPORT_SOAK") != "1" else 2000):
        damaged = bytearray(original)
        # Where headers and indexes are, more often than where values are.
        reach = len(damaged) if turn % 3 == 0 else 100_000
        for at in rng.integers(0, reach, 1 + rng.integers(8)):
            damaged[at] = rng.integers(256)
        path = tmp_path / "damaged.h5"
        path.write_bytes(damaged[: rng.integers(len(damaged)) if rng.random() < 0.2 else len(damaged)])
        words = ["--events", "--from", iso(int(start)), "--to", iso(int(start) + S // 10)]
        answer = subprocess.run(
            [programs / "beamport", "cat", path, *words], capture_output=True, timeout=HANG_S, check=False
        )
        assert answer.returncode in (0, 2)
        assert answer.returncode != 2 or b"cause:" in answer.stderr, answer.stderr
        ended = b"HDF5 crashed" in answer.stderr or b"HDF5 finds no end" in answer.stderr
        counts["ended" if ended else answer.returncode] += 1
    print(f"injected damage into {sum(counts.values())} files that `cat` reads: {counts}")
    assert counts["ended"] == 0
    fifo = tmp_path / "fifo.nxs"
    os.mkfifo(fifo)
    assert "not a plain file" in cat(programs, fifo, status=2)


def test_a_dataset_of_endless_rows_is_refused(programs, tmp_path):  # noqa: F811
    path = tmp_path / "endless.h5"
    with h5py.File(path, "w") as file:
        group = file.create_group("entry")
        for name in ("time", "value"):
            group.create_dataset(name, (2**60,), "i8", maxshape=(None,), chunks=(1024,))
    assert "it is damaged or empty" in cat(programs, path, status=2)


def test_the_page_does_what_it_says(programs, measured, tmp_path):  # noqa: F811
    page = (ROOT / "docs/how-to/look-at-data.md").read_text().partition("## A file")[2].partition("\n## ")[0]
    blocks = re.findall(r"^```(sh|python)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert {language for language, _ in blocks} == {"sh", "python"}
    shutil.copy2(measured, tmp_path / "nickel.nxs")
    with h5py.File(measured) as file:
        began = int(file[EVENTS]["event_time_zero"][0])
    for language, text in blocks:
        # The times of the page are of another day.
        text = text.replace("2026-03-01T12:00:00Z", iso(began)).replace("2026-03-01T12:00:02Z", iso(began + 2 * S))
        command = ["sh", "-ec", text] if language == "sh" else [shutil.which("python"), "-c", text]
        path = f"{programs}:{os.environ['PATH']}"
        answer = subprocess.run(
            command, cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=HANG_S, check=False
        )  # fmt: skip
        assert answer.returncode == 0 and answer.stdout.strip(), answer.stderr
        print(answer.stdout)


def refused(path, fill):
    """The error of a group that `fill` makes; it is beamport's, with all its parts."""
    with h5py.File(path, "w") as file:
        fill(file.create_group("entry"))
    with h5py.File(path) as file, pytest.raises(Error) as caught:
        rows_between(file["entry"])
    assert caught.value.what and caught.value.cause and caught.value.hint
    assert not isinstance(caught.value.__cause__, (TypeError, IndexError)), "it was not looked at before"
    return str(caught.value)


def test_what_is_no_column_of_times_ended_in_errors_of_others(tmp_path):
    path = tmp_path / "odd.h5"

    def with_time(time, **units):
        def fill(group):
            group["time"], group["value"] = time, np.arange(4)
            group["time"].attrs.update(units)

        return fill

    assert "it has the shape ()" in refused(path, with_time(5))
    assert "and not numbers" in refused(path, with_time(np.array([b"a"] * 4)))
    assert "it is not a dataset" in refused(path, lambda group: group.create_group("time"))
    assert "their unit is" in refused(path, with_time(np.arange(4), units=["s", "ms"]))
    assert "8 TiB" not in refused(
        path, lambda group: group.create_dataset("time", (2**40,), "i8", maxshape=(None,), chunks=(1024,))
    )

    def cued(group):
        with_time(np.arange(4))(group)
        group["cue_index"], group["cue_timestamp_zero"] = np.array([0.5]), np.array([0])

    said = refused(path, cued)
    assert "cue_index" in said and "and not whole numbers" in said
    with h5py.File(path, "w") as file:
        with_time(np.arange(4), units=np.array(["ns"], object))(file.create_group("entry"))
    with h5py.File(path) as file:
        assert rows_between(file["entry"])["value"].tolist() == [0, 1, 2, 3]
        # A dataset has `in`, which goes through its values, for ever where there are many.
        for thing in (file["entry/time"], None, {"time": [1]}):
            with pytest.raises(Error, match="not a group of an open"):
                rows_between(thing)


@pytest.mark.parametrize("index", [[0, 3, 1, 4], [-3, 0, 2, 4], [0, 2**63, 3, 4]])
def test_pulses_out_of_order_were_left_out_or_numbered_beyond_all_events(tmp_path, index):
    def fill(group):
        group["event_time_zero"] = np.arange(4)
        group["event_index"] = np.array(index, "u8" if max(index) > 2**62 else "i8")
        group["event_id"] = group["event_time_offset"] = np.arange(6)

    assert "`event_index` is negative or falls" in refused(tmp_path / "falls.h5", fill)


def test_values_that_lie_elsewhere_are_not_read(tmp_path):
    (tmp_path / "secret").write_bytes(bytes(range(32)))
    path = tmp_path / "thief.h5"
    stolen = {"external": [(str(tmp_path / "secret"), 0, 32)]}
    said = refused(path, lambda group: group.create_dataset("time", (4,), "i8", **stolen))
    assert "its values lie elsewhere" in said

    def virtual(group):
        layout = h5py.VirtualLayout((4,), "i8")
        layout[:] = h5py.VirtualSource("other.h5", "x", (4,))
        group.create_virtual_dataset("time", layout)

    assert "its values lie elsewhere" in refused(path, virtual)
    # A link that would have to be opened to know what it is: a pipe waits for ever.
    os.mkfifo(tmp_path / "pipe")
    with h5py.File(path, "w") as file:
        group = file.create_group("entry")
        group["time"] = group["value"] = np.arange(4)
        group["cue_index"] = group["there"] = h5py.ExternalLink("pipe", "/")
        group.create_dataset("stolen", (4,), "i8", **stolen)
    with h5py.File(path) as file:
        assert set(rows_between(file["entry"])) == {"time", "value"}
