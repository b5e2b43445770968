"""A stream that another process fills as an input of stages: it has an account, and outlives the process."""

import subprocess
import sys

import pytest
from conftest import kill, until

beamport = pytest.importorskip("beamport", reason="pip install .")

INSTRUMENT = """
[source.mine]
kind = "appended"
level = "LEVEL"
live = "1 MiB"

[source.other]
kind = "sim"
model = "detector"
detector = 1
detectors = 2
origin = "other"

[merge.all]
kind = "time"
inputs = ["mine", "other"]
wait = "200 ms"

[worker.same]
call = "copy"
inputs = ["mine"]

[run.first]
start = "now"
"""

# Appends a number each 2 ms, behind those that the one before has appended, and leaves out each hundredth.
PROGRAM = """
import sys, time, beamport
data = beamport.open(sys.argv[1])
with data.create("mine") as stream:
    first = max((m.origin_seq for m in data["mine"].read(early=True)), default=0) + 1
    for n in range(first, 10**9):
        if n % 100:
            fields = {"source_name": "T", "timestamp": time.time_ns(), "value": float(n)}
            stream.append("f144", fields, origin_seq=n)
        time.sleep(0.002)
"""


def fill(lab) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", PROGRAM, str(lab.data)], cwd=lab.folder)


@pytest.mark.parametrize("level", ["memory", "disk"])
def test_a_stream_that_another_process_fills_is_an_input_like_any_other(lab, level):
    lab.write(INSTRUMENT.replace("LEVEL", level))
    process, _ = lab.up_ready()
    data = beamport.open(lab.data)
    numbers = []
    for _ in range(3):
        # It is killed in the middle of its work, and another one goes on.
        filling = fill(lab)
        known = len(numbers)
        try:
            until(lambda known=known: data["mine"].count > known + 250, "nothing is appended")
        finally:
            kill(filling.pid)
            filling.wait()
        until(lambda: data["same"].count == data["mine"].count, "the worker does not follow")
        numbers = [m.origin_seq for m in data["same"].read()]
    lab.interrupt(process)
    report = lab.report(process, status=1)
    assert report["closed"], report["ledger"]
    (row,) = [row for row in report["ledger"] if row["account"] == "entry" and row["stream"] == "mine"]
    # What the last one had not marked yet when it was killed is recovered at the end.
    numbers = [m.origin_seq for m in data["same"].read()]
    missing = numbers[-1] - numbers[0] + 1 - len(numbers)
    assert missing == sum(n % 100 == 0 for n in range(numbers[0], numbers[-1])) > 3
    assert (row["appended"], row["sent"], row["lost"]) == (len(numbers), numbers[-1], {"unexplained": missing})
    merged = [m.origin_seq for m in data["all"].read() if m.origin == "T"]
    assert merged == numbers
    times = [m.source_time for m in data["all"].read()]
    assert times == sorted(times)


def test_a_stream_that_nobody_fills_is_absent(lab):
    lab.write('[source.mine]\nkind = "appended"\n[run.first]\n')
    process, _ = lab.up_ready()
    lab.interrupt(process)
    report = lab.report(process, status=1)
    (absent,) = report["absent"]
    assert "`mine` has no messages" in absent["what"] and "beamport append mine" in absent["hint"]
