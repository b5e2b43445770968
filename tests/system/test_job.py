"""A sink whose template knows streams as topics, and one that holds what came a moment ago."""

import json
import time

import h5py
import numpy as np
import pytest
from conftest import lost_of, until

SOURCE = """
[source.t1]
kind = "sim"
model = "amor-devices"
level = "memory"
live = "16 MiB"
"""
SINK = """
[sink.file]
kind = "nexus"
template = "t.json"
layout = "ess"
topics = { t1 = "loki.motion" }
"""


def template(topic: str) -> dict:
    """A log of all that a topic has."""
    log = {"module": "f144", "config": {"topic": topic, "dtype": "double"}}
    group = {"type": "group", "name": "log", "attributes": {"NX_class": "NXlog"}, "children": [log]}
    entry = {"type": "group", "name": "entry", "attributes": {"NX_class": "NXentry"}, "children": [group]}
    return {"children": [entry]}


@pytest.fixture
def job(lab, nexus):
    """A laboratory with a template."""
    (lab.folder / "t.json").write_text(json.dumps(template("loki.motion")))
    return lab


def stands_on_its_own(file, report):
    """Times go up; each message of the stream that the sink took is a row, beside those from before the run."""
    times = file["entry/log/time"][:]
    assert len(times) > 0 and np.all(np.diff(times.astype("i8")) >= 0)
    (reader,) = [row for row in report["ledger"] if row["account"] == "reader"]
    assert 0 < reader["done"] <= len(times)


def test_a_template_knows_a_stream_by_the_name_of_its_topic(job):
    job.write(SOURCE + SINK + '\n[run.a]\nduration = "500 ms"\nsettle = "100 ms"\n')
    shown = job.run("check", job.file, "--show").stdout.decode()
    assert 'topics = { t1 = "loki.motion" }' in shown
    report = job.report(job.up())
    assert report["closed"] and lost_of(report) == 0
    with h5py.File(report["file"]) as file:
        # In the file is the real topic, in the reports the stream.
        assert file["entry/log"].attrs["topic"] == "loki.motion"
        stands_on_its_own(file, report)
    # The run says it, so the file can be written again without the instrument file.
    job.run("write", "a", "--data", job.data, "--output", job.folder / "again.nxs")
    with h5py.File(job.folder / "again.nxs") as again, h5py.File(report["file"]) as file:
        assert again["entry/log"].attrs["topic"] == "loki.motion"
        assert np.array_equal(again["entry/log/time"][:], file["entry/log/time"][:])


def test_a_topic_that_the_template_misspells_is_refused(job):
    (job.folder / "t.json").write_text(json.dumps(template("loki.moton")))
    job.write(SOURCE + SINK)
    said = job.run("check", job.file, status=2).stderr.decode()
    assert "no source fills stream `loki.moton`" in said and "did you mean `loki.motion`?" in said


@pytest.mark.parametrize("hold", ["0 s", "2 s"])
def test_a_stop_of_a_moment_ago_writes_the_file_again_only_without_hold(job, hold):
    job.write(SOURCE + SINK + f'hold = "{hold}"\nflush = "50 ms"\n' + '\n[run.a]\nsettle = "100 ms"\n')
    process, _ = job.up_ready()
    path = job.data / "files" / "lab_a.nxs"

    def rows() -> list[int]:
        try:
            with h5py.File(path, locking=False) as file:
                return file["entry/log/time"][:].tolist()
        except (OSError, KeyError):
            return []

    until(lambda: len(rows()) > 20, "no rows came")
    before = path.stat().st_ino
    # Without `hold` the file has rows behind the stop; with it, none of the last two seconds.
    stop = rows()[-10] if hold == "0 s" else time.time_ns() - 500_000_000
    job.ask(json.dumps({"command": "end", "run": "a", "stop": stop}).encode() + b"\n")
    report = job.report(process)
    assert report["closed"] and lost_of(report) == 0
    with h5py.File(report["file"]) as file:
        assert file["entry/log/time"][-1] < stop
        stands_on_its_own(file, report)
    # A file that is written again is another one.
    assert (path.stat().st_ino == before) == (hold != "0 s")


def test_a_moved_instrument_writes_and_verifies_its_files(job):
    home = job.folder / "home"
    home.mkdir()
    (home / "t.json").write_text(json.dumps(template("loki.motion")))
    source = SOURCE.replace('"memory"', '"disk"')
    text = source + SINK + '\n[run.a]\nduration = "500 ms"\nsettle = "100 ms"\n'
    (home / "one.toml").write_text(f'instrument = "one"\n{text}')
    report = job.report(job.popen("up", home / "one.toml", "--json"))
    assert report["closed"]
    moved = home.rename(job.folder / "moved")
    file = moved / "beamport-data/one/files/one_a.nxs"
    # Without `--data`: it lies in its data folder.
    assert json.loads(job.run("verify", file, "--json").stdout)["ok"]
    again = job.run("write", "a", "--data", moved / "beamport-data/one", "--output", moved / "again.nxs", "--json")
    assert json.loads(again.stdout)["content"] == report["content"]
