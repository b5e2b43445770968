"""Sources whose clock goes backward, repeats itself, or lies in the far future."""

import time

import pytest
from conftest import gapless, lost_of
from stream_files import AHEAD

EVERY = 5

INSTRUMENT = """
[source.bank]
kind = "sim"
model = "amor"
rate = 1e4
live = "1 MiB"
clock_fault = "{fault}"
clock_fault_every = {every}

[source.devices]
kind = "sim"
model = "amor-devices"
live = "1 MiB"
clock_fault = "{fault}"
clock_fault_every = {every}

[source.sane]
kind = "sim"
model = "field"
live = "1 MiB"

[run.first]
duration = "2 s"
settle = "300 ms"
"""


@pytest.mark.parametrize("fault", ["backward", "repeat", "future"])
def test_run_with_a_broken_clock_seals_and_its_ledger_closes(lab, fault):
    lab.write(INSTRUMENT.format(fault=fault, every=EVERY))
    report = lab.report(lab.up())
    assert report["closed"] and lost_of(report) == 0
    injected, members = 0, {}
    for stream in lab.streams():
        gapless(stream)
        entries = stream.all()
        times = entries["source_time"]
        ahead = entries["flags"] & AHEAD != 0
        steps = times[1:] - times[:-1]
        if stream.name == "sane":
            assert (steps > 0).all() and not ahead.any()
        elif fault == "future":
            # Flagged at the entry, and only these.
            assert (ahead == (times > time.time_ns() + 600_000_000_000)).all() and ahead.any()
            injected += int(ahead.sum())
        else:
            found = steps < 0 if fault == "backward" else steps == 0
            # Devices of one pulse have one time each: only the detector shows repeated times by itself.
            assert found.any() and not ahead.any()
            injected += int(found.sum()) if stream.name == "bank" or fault == "backward" else 0
        members[stream.name] = entries
    for line in report["streams"]:
        entries = members[line["name"]]
        inside = entries["flags"] & AHEAD == 0
        # The reports' members are among the unflagged: a time of the year 2116 is of no run that ended today.
        assert 0 < line["messages"] <= int(inside.sum())
    print(
        f"clock fault `{fault}`: {injected} injected, the run sealed, 0 lost of {sum(map(len, members.values()))} messages"
    )
