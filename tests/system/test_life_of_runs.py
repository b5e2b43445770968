"""Runs as a whole: runs that overlap, a mover that was not there, things that vanish, files that cannot be written."""

import json
import os
import re
import shutil
import signal
import time

import pytest
from conftest import HANG_S, lost_of, until
from nexus_files import different
from signals import stop
from test_kill_writer import writer_of

SOURCE = """
[source.detector]
kind = "sim"
model = "amor"
rate = 1e4
level = "{level}"
live = "1 MiB"
retain = "1 MiB"
"""
SINK = """
[sink.file]
kind = "nexus"
template = "t.json"
file = "{run}.nxs"
flush = "50 ms"
"""
TEMPLATE = """{"children": [{"type": "group", "name": "entry", "attributes": {"NX_class": "NXentry"}, "children": [
  {"type": "group", "name": "events", "attributes": {"NX_class": "NXevent_data"}, "children": [
    {"module": "ev44", "config": {"stream": "detector", "source": "amor_detector"}}]}]}]}"""


def ls(lab) -> dict:
    """What `ls` says of the runs, by name."""
    told = lab.run("ls", "--data", lab.data, "--json", status=None).stdout
    return {run["name"]: run for run in json.loads(told)["runs"]}


def test_runs_that_overlap_are_written_side_by_side_and_none_stops_the_source(lab, nexus):
    (lab.folder / "t.json").write_text(TEMPLATE)
    # A stream of 1 MiB that waits for its readers holds about 5 s. A stop that reaches a writer late causes its file to be
    # written again, without what the stream no longer holds; `hold` avoids that.
    lab.write(SOURCE.format(level="memory").replace("1e4", "1e5") + 'when_full = "wait"\n' + SINK + 'hold = "500 ms"\n')
    process, _ = lab.up_ready()
    for name in ("long", "second", "third"):
        lab.run("begin", name, "--data", lab.data)
    stream = lab.stream("detector")
    for name in ("long", "second", "third"):
        until(lambda name=name: (lab.data / "files" / f"{name}.nxs").exists(), f"{name} is not written")
    # More than twice what the stream can hold: every run reads.
    until(lambda: stream.marks()[0] > 2 * 70, "the source stands still")
    for name in ("second", "long", "third"):
        lab.run("end", name, "--data", lab.data)
    lab.interrupt(process)
    reports = lab.reports(process)
    assert [r["run"] for r in reports] == ["long", "second", "third"]
    assert all(r["closed"] and lost_of(r) == 0 and r["failed"] == [] for r in reports)
    # What is finished leaves one message in one book.
    assert [p.name for p in lab.data.glob("file*.commits")] == ["file.commits"]
    assert all(run["closed"] for run in ls(lab).values())


def test_a_mover_that_was_not_there_is_told_in_the_account(lab):
    lab.write(SOURCE.format(level="disk") + '[run.first]\nsettle = "200 ms"\n')
    process, _ = lab.up_ready()
    stream = lab.stream("detector")
    until(lambda: stream.marks()[2] > 5, "no messages")
    lab.kill(process)
    count = stream.marks()[2]
    time.sleep(0.3)
    process, _ = lab.up_ready()
    until(lambda: stream.marks()[2] > count + 5, "no new messages")
    lab.interrupt(process)
    report = lab.report(process)
    (gap,) = report["gaps"]
    assert (gap["stream"], gap["reason"]) == ("detector", "absent") and gap["first"] == gap["last"] + 1
    assert count <= gap["first"] <= count + 1 and gap["to"] - gap["from"] > 2e8
    # It is no loss that anybody knows of.
    assert report["closed"] and lost_of(report) == 0
    assert ls(lab)["first"]["absent"] == [gap]
    assert "the source of `detector` was absent from" in lab.run("ls", "--data", lab.data).stdout.decode()
    print(f"mover killed: 1 injected, absent for {(gap['to'] - gap['from']) / 1e6:.0f} ms, 0 lost of {count} messages")


@pytest.mark.parametrize("part", ["runs", "file.commits", "detector", "live", "all"])
def test_a_part_of_the_data_folder_that_vanishes_ends_the_instrument_by_name(lab, nexus, part):
    (lab.folder / "t.json").write_text(TEMPLATE)
    lab.write(SOURCE.format(level="disk") + SINK)
    process, _ = lab.up_ready()
    lab.run("begin", "one", "--data", lab.data)
    lab.run("end", "one", "--data", lab.data)
    until(lambda: (lab.data / "file.commits" / "stream").exists(), "run one is not filed")
    lab.run("begin", "two", "--data", lab.data)
    until(lambda: (lab.data / "files" / "two.nxs").exists(), "run two is not written")
    time.sleep(2)  # The mover has looked round.
    # That of a source is made anew with it; the runs have no other keeper.
    gone = {"live": lab.stream("runs").live, "all": lab.data}.get(part, lab.data / part)
    # Another name at once: what is removed piece by piece may be made anew in between.
    taken = gone.rename(gone.with_name(f"taken-{os.getpid()}"))
    assert process.wait(HANG_S) == 2
    shutil.rmtree(taken)
    said = lab.said(process)[1]
    assert "was removed while the instrument runs" in said and "hint:" in said, said
    named = next(line for line in said.splitlines() if "was removed while" in line)
    print(f"part of the data folder removed: 1 injected ({part}), named: {named}")


def test_a_file_that_cannot_be_written_is_given_up_and_can_be_written_later(lab, nexus):
    template = lab.folder / "t.json"
    template.write_text(TEMPLATE)
    lab.write(SOURCE.format(level="disk").replace('retain = "1 MiB"', "") + 'when_full = "wait"\n' + SINK)
    process, _ = lab.up_ready()
    template.write_text("{")
    lab.run("begin", "one", "--data", lab.data)
    until(lambda: "cannot write run `one`" in lab.said(process)[1], "the file is not given up")
    stream = lab.stream("detector")
    count = stream.marks()[2]
    until(lambda: stream.marks()[2] > count + 20, "nobody waits for a file that was given up")
    process.send_signal(signal.SIGINT)
    assert process.wait(HANG_S) == 2
    report = json.loads(lab.said(process)[0])
    (failed,) = report["failed"]
    assert failed["sink"] == "file" and "beamport write one" in failed["hint"] and failed["cause"]
    assert not report["closed"] and report["file"] is None
    assert ls(lab)["one"]["closed"] is False
    template.write_text(TEMPLATE)
    lab.run("write", "one", "--data", lab.data, "--template", template, "--output", lab.folder / "one.nxs")
    assert (lab.folder / "one.nxs").stat().st_size > 0


def one_run(lab, name: str, status: int = 0) -> list[dict]:
    """Starts the instrument, takes a run and ends it all: the reports."""
    process, _ = lab.up_ready()
    count = lab.stream("detector").marks()[2]
    lab.run("begin", name, "--data", lab.data)
    until(lambda: lab.stream("detector").marks()[2] > count + 5, "no messages")
    lab.interrupt(process)
    return lab.reports(process, status)


def test_up_reports_the_runs_of_this_start_and_not_those_that_were_finished_before(lab):
    lab.write(SOURCE.format(level="disk").replace('retain = "1 MiB"', ""))
    for name in ("one", "two"):
        (report,) = one_run(lab, name)
        assert report["run"] == name and report["closed"]
    # What becomes of an old run is no matter of this start.
    payloads = sorted((lab.data / "detector").glob("p-*"))
    for payload in payloads:
        payload.unlink()
    (report,) = one_run(lab, "three")
    assert report["run"] == "three" and report["closed"]
    process, _ = lab.up_ready()
    lab.interrupt(process)
    assert lab.reports(process) == []
    said = lab.said(process)[1]
    assert f"no run was open: `beamport begin NAME --data {lab.data}` begins one" in said
    print(f"payload of old runs removed: {len(payloads)} files injected, the run of this start told, 0 lost of it")


def test_a_run_whose_payloads_are_gone_is_named_and_all_are_reported(lab):
    lab.write(SOURCE.format(level="disk").replace("1e4", "1e5").replace('retain = "1 MiB"', ""))
    process, _ = lab.up_ready()
    stream, newest = lab.stream("detector"), []
    for name in ("one", "two"):
        count = stream.marks()[2]
        lab.run("begin", name, "--data", lab.data)
        until(lambda count=count: stream.marks()[1] > count + 100, "no messages")
        newest.append(max(stream.folder.glob("p-*")))
        # More than the live place holds: the next run begins in other files.
        until(lambda count=count: stream.marks()[2] > count + 200, "no messages")
        lab.run("end", name, "--data", lab.data)
    until(lambda: ls(lab)["two"]["state"] == "sealed", "the runs are not sealed")
    newest[0].unlink()
    lab.interrupt(process)
    lab.end(process)
    one = lab.run("ls", "one", "--json", "--data", lab.data, status=2)
    assert json.loads(one.stdout)["run"] == "one" and lab.report_of("two")["closed"]
    said = one.stderr.decode()
    assert (
        "cannot read messages" in said
        and "of `detector`" in said
        and "the report of run `one`" in said
        and "hint:" in said
    ), said
    assert newest[0].name.encode() in lab.run("verify", "detector", "--data", lab.data, status=1).stdout
    print("payload of a run removed before its report: 1 injected, named, 0 lost of the other run")


def test_a_stop_reports_the_runs_that_it_ends(lab, times):
    """Those of before have a report of their own, and their losses count."""
    lab.write(SOURCE.format(level="memory"))
    process, _ = lab.up_ready()
    runs = times(60, 10_000)
    for number in range(runs):
        lab.ask(json.dumps({"command": "begin", "run": f"r{number}", "settle": 0}).encode() + b"\n")
        lab.ask(json.dumps({"command": "end", "run": f"r{number}"}).encode() + b"\n")
    until(lambda: all(run["state"] == "sealed" for run in ls(lab).values()), "the runs are not sealed")
    lab.run("begin", "last", "--data", lab.data)
    began = time.monotonic()
    lab.interrupt(process)
    report = lab.report(process)
    print(f"{runs} runs behind it: stopped in {time.monotonic() - began:.2f} s, one of them the run that it ended")
    assert report["run"] == "last" and report["closed"]
    said = lab.said(process)[1]
    assert f"{runs:,} runs were done before this stop: `beamport ls r0 --data {lab.data}` reports one" in said, said
    assert lab.report_of("r0")["closed"]
    # The newest 50 are listed, and how many more there are.
    listed = [f"r{number}" for number in range(runs - 49, runs)] + ["last"]
    assert list(ls(lab)) == listed
    began = time.monotonic()
    shown = lab.run("ls", "--data", lab.data).stdout.decode()
    print(f"{runs} runs: the newest 50 listed in {time.monotonic() - began:.2f} s")
    assert f"and {runs - 49:,} older runs, all done: `beamport ls --all`" in shown, shown
    whole = json.loads(lab.run("ls", "--all", "--json", "--data", lab.data).stdout)
    assert len(whole["runs"]) == runs + 1 and whole["older_runs"] == 0
    assert all(run["closed"] and run["lost"] == 0 for run in whole["runs"])
    refused = lab.run("ls", "none", "--data", lab.data, status=2).stderr.decode()
    assert "no run `none`" in refused and "newest runs: " in refused and ", last, and " in refused, refused


def test_a_start_after_a_reboot_calls_no_run_lost(lab):
    """As in a container whose shared memory is new at each start: said without a cause, nobody believes it with one."""
    lab.write(SOURCE.format(level="disk"))
    process, _ = lab.up_ready()
    lab.run("begin", "one", "--data", lab.data)
    lab.kill(process)
    for header in lab.data.glob("*/stream"):
        (live,) = re.findall(r"^live (.*)$", header.read_text(), re.MULTILINE)
        shutil.rmtree(live, ignore_errors=True)
    process, _ = lab.up_ready()
    assert ls(lab)["one"]["state"] == "open"
    lab.interrupt(process)
    assert lab.report(process, status=None)["run"] == "one"
    assert "runs are lost" not in lab.said(process)[1]


def test_begin_is_refused_once_the_instrument_is_ending(lab):
    lab.write(SOURCE.format(level="disk") + '[run.first]\nsettle = "1 h"\n')
    process, _ = lab.up_ready()
    lab.interrupt(process)
    until(lambda: ls(lab)["first"]["state"] == "settling", "the open run does not end")
    said = lab.run("begin", "late", "--data", lab.data, status=2).stderr.decode()
    assert "the instrument is ending" in said and "hint:" in said, said
    assert "late" not in ls(lab)


def test_a_writer_killed_before_its_run_ends_takes_nothing_with_it(lab, nexus, times):
    (lab.folder / "t.json").write_text(TEMPLATE)
    lab.write(SOURCE.format(level="disk").replace('retain = "1 MiB"', "") + SINK)
    process, _ = lab.up_ready()
    kills = times(6, 60)
    for run in range(kills):
        name = f"r{run}"
        lab.run("begin", name, "--data", lab.data)
        book = lab.data / f"file.{name}.commits" / "stream"
        until(lambda book=book: book.exists(), "the writer does not work")
        # The mover has looked at the book.
        time.sleep(1.2)
        writer = writer_of(lab, process)
        os.kill(writer, signal.SIGKILL)
        lab.run("end", name, "--data", lab.data)
        file = lab.data / "files" / f"{name}.nxs"
        until(lambda name=name: ls(lab)[name]["closed"], f"{name} is not finished")
        assert file.stat().st_size > 0 and process.poll() is None, lab.said(process)[1]
    lab.interrupt(process)
    assert lab.reports(process) == [], "these runs were done before the stop"
    reports = [lab.report_of(f"r{run}") for run in range(kills)]
    assert all(r["closed"] and lost_of(r) == 0 for r in reports)
    print(f"file writer killed before its run ended: {kills} injected, all files finished, 0 lost")


def test_a_file_of_some_streams_was_made_again_of_all(lab, nexus):
    source = SOURCE.format(level="disk").replace('retain = "1 MiB"', 'retain = "64 MiB"')
    lab.write(
        source + source.replace("detector", "other") + SINK + 'inputs = ["detector"]\n[run.r]\nduration = "1 s"\n'
    )
    (lab.folder / "t.json").write_text(TEMPLATE)
    process, _ = lab.up_ready()
    report = lab.report(process)
    first = lab.data / "files" / "r.nxs"
    write = ("write", "r", "--data", lab.data, "--json")
    made = {
        name: json.loads(lab.run(*write, "-o", lab.folder / f"{name}.nxs", *more).stdout)
        for name, more in {
            "again": (),
            "by_file": ("--file", lab.file),
            "all": ("--template", lab.folder / "t.json"),
        }.items()
    }
    assert different(first, lab.folder / "again.nxs") == [] and different(first, lab.folder / "by_file.nxs") == []
    streams = {name: [row["stream"] for row in one["account"]["rows"]] for name, one in made.items()}
    assert streams["again"] == streams["by_file"] == ["detector"] and streams["all"] == ["detector", "other"]
    assert report["closed"]


def test_a_run_in_memory_that_was_let_go_of_before_the_seal_was_written_as_if_whole(lab, nexus):
    lab.write(
        SOURCE.format(level="memory").replace("1e4", "1e5").replace('retain = "1 MiB"\n', "")
        + 'when_full = "drop-oldest"\n[sink.file]\nkind = "nexus"\ntemplate = "t.json"\n[run.r]\nduration = "8 s"\n'
    )
    (lab.folder / "t.json").write_text(TEMPLATE)
    process, _ = lab.up_ready()
    report = lab.report(process)
    (line,) = (line for line in report["streams"] if line["name"] == "detector")
    assert line["messages"] > 100
    refusal = lab.run("write", "r", "-o", lab.folder / "again.nxs", "--data", lab.data, status=2).stderr
    # The run may have begun a message after the stream did.
    assert re.search(rb"retention took messages [01] to \d+ of `detector`", refusal), refusal


def test_a_begin_whose_client_gave_up_began_its_run_later(lab):
    lab.write(SOURCE.format(level="memory"))
    process, _ = lab.up_ready()
    stop(process.pid)
    try:
        with lab.dial() as client:
            client.sendall(b'{"command": "begin", "run": "given-up"}\n')
    finally:
        os.kill(process.pid, signal.SIGCONT)
    lab.run("begin", "wanted", "--data", lab.data)
    lab.run("end", "wanted", "--data", lab.data)
    lab.interrupt(process)
    assert [report["run"] for report in lab.reports(process)] == ["wanted"]


def test_a_run_of_a_source_that_cannot_keep_up_is_sealed(lab):
    """Asked for 20 GB/s, more than a machine copies: something always waits."""
    lab.write("""
[source.camera]
kind = "sim"
model = "camera"
fps = 5_000
shape = [1024, 2048]
dtype = "uint16"
frames = 2
pattern = "constant"
level = "memory"
live = "64 MiB"

[run.first]
start = "now"
duration = "100 ms"
settle = "0 s"
""")
    report = lab.report(lab.up())
    # The ring of 16 frames may have replaced messages of the run before it was sealed: their origin is unknown.
    assert {account["origin"] for account in report["ledger"]} <= {"camera", ""}
    assert lost_of(report) == 0 and sum(account["appended"] for account in report["ledger"]) >= 500
