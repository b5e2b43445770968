"""The reader of a stream is stopped until the stream is full, under each `when_full`."""

import json
import os
import signal
import struct
import time

import pytest
from conftest import until
from signals import stop
from test_kill_writer import writer_of

INSTRUMENT = """
[source.detector]
kind = "sim"
model = "amor"
rate = 3e5
level = "{level}"
when_full = "{when_full}"
live = "1 MiB"
retain = "1 MiB"

[sink.file]
kind = "nexus"
template = "t.json"
file = "{{run}}.nxs"
flush = "50 ms"

[run.first]
settle = "200 ms"
"""
TEMPLATE = """{"children": [{"type": "group", "name": "entry", "attributes": {"NX_class": "NXentry"}, "children": [
  {"type": "group", "name": "events", "attributes": {"NX_class": "NXevent_data"}, "children": [
    {"module": "ev44", "config": {"stream": "detector", "source": "amor_detector"}}]}]}]}"""


def dropped(stream) -> int:
    """Messages that `drop-newest` refused, as the control page counts them."""
    return struct.unpack_from("<Q", (stream.live / "head").read_bytes(), 280)[0]


def still(stream) -> bool:
    """No message came for a second; at 14 pulses a second one is due each 71 ms."""
    count = stream.marks()[2]
    time.sleep(1.0)
    return stream.marks()[2] == count


@pytest.mark.parametrize("level", ["memory", "disk"])
@pytest.mark.parametrize("when_full", ["wait", "drop-oldest", "drop-newest"])
def test_stopped_reader_blocks_or_losses_are_counted(lab, nexus, when_full, level):
    (lab.folder / "t.json").write_text(TEMPLATE)
    lab.write(INSTRUMENT.format(when_full=when_full, level=level))
    process, _ = lab.up_ready()
    stream = lab.stream("detector")
    writer = until(lambda: writer_of(lab, process), "no writer is started")
    until(lambda: (lab.data / "files" / "first.nxs").exists() and stream.marks()[2] > 5, "the writer does not begin")
    stop(writer)
    try:
        if when_full == "wait":
            until(lambda: still(stream), "the source is not blocked")
        elif when_full == "drop-oldest":
            first = stream.marks()[2]
            until(lambda: stream.marks()[0] > first, "the oldest do not go")
        else:
            until(lambda: dropped(stream) > 5, "nothing is refused")
        blocked_at = stream.marks()[2]
    finally:
        os.kill(writer, signal.SIGCONT)
    until(lambda: stream.marks()[2] > blocked_at + 5, "it does not go on")
    lab.interrupt(process)
    report = lab.report(process, status=0 if when_full == "wait" else 1)
    assert report["closed"]
    # Messages that retention has taken have a row without the name of their origin.
    entries = [row for row in report["ledger"] if row["account"] == "entry"]
    reader = next(row for row in report["ledger"] if row["account"] == "reader")
    at_entry, at_reader = sum(row["lost"].get("full", 0) for row in entries), reader["lost"].get("full", 0)
    # No other reason, and the sums hold by themselves, not only by the word of the report.
    assert all(set(row["lost"]) <= {"full"} for row in [*entries, reader])
    assert all(row["sent"] + row["duplicate"] == row["appended"] + row["lost"].get("full", 0) for row in entries)
    assert reader["read"] == reader["done"] + at_reader
    assert not reader["aside"] and reader["held"] == 0
    assert report["streams"][0]["lost"] == at_entry + at_reader
    assert sum(gap["last"] - gap["first"] + 1 for gap in report["gaps"]) == at_entry + at_reader
    if when_full == "wait":
        assert at_entry == at_reader == 0
    elif when_full == "drop-oldest":
        # Of a stream on disk the oldest cannot go before they are there: a slow disk costs the newest.
        assert at_reader > 0 and (at_entry == 0 or level == "disk")
        numbers = stream.numbers()["amor_detector"]
        assert at_entry or (numbers[1:] == numbers[:-1] + 1).all(), "what is still there has no holes"
    else:
        assert at_entry > 0 and at_reader == 0
        # A slow machine goes on for a while after the stop of the run.
        end = json.loads(lab.run("ls", "--json", "--data", lab.data).stdout)["runs"][0]["stop"]
        rows = stream.all()
        numbers = rows["origin_seq"][rows["source_time"] < end]
        assert (numbers[1:] > numbers[:-1]).all()
        holes = [(int(a) + 1, int(b) - 1) for a, b in zip(numbers, numbers[1:], strict=False) if b != a + 1]
        told = [(gap["first"], gap["last"]) for gap in report["gaps"]]
        # A hole may lie before what retention kept, or be told in two pieces; no hole is untold.
        untold = [h for h in holes if not any(f <= h[0] <= la for f, la in told)]
        assert untold == []
    what = {"wait": "the source was blocked", "drop-oldest": "the reader lost", "drop-newest": "the entry lost"}[
        when_full
    ]
    print(
        f"reader stopped, {when_full}, {level}: 1 injected, {what}; {at_entry + at_reader} lost, "
        f"{at_entry + at_reader} in the ledger, closed"
    )


def test_stopped_reader_that_nobody_counts_blocks_nobody(lab):
    """A person who looks on and falls asleep must not stop an experiment."""
    lab.write(
        INSTRUMENT.format(when_full="wait", level="memory").split("[sink")[0] + '[run.first]\nsettle = "200 ms"\n'
    )
    process, _ = lab.up_ready()
    reader = lab.popen("cat", "detector", "--follow", "--json", "--data", lab.data)
    until(lambda: lab.said(reader)[0], "the reader says nothing")
    stop(reader.pid)
    stream = lab.stream("detector")
    first = stream.marks()[2]
    until(lambda: stream.marks()[0] > first, "the source waits for a reader that is not counted")
    reader.send_signal(signal.SIGCONT)
    lab.kill(reader)
    lab.interrupt(process)
    report = lab.report(process)
    assert report["closed"]
    gapless_from = stream.numbers()["amor_detector"]
    assert (gapless_from[1:] == gapless_from[:-1] + 1).all()
    print("reader stopped, not counted: 1 injected, the source went on, 0 lost")
