"""Ctrl-C once seals and finishes; twice stops at once, and the next start goes on."""

import json
import signal
import time

import pytest
from conftest import gapless, lost_of, until

INSTRUMENT = """
[source.detector]
kind = "sim"
model = "amor"
rate = 1e5
live = "4 MiB"

[source.devices]
kind = "sim"
model = "amor-devices"
live = "1 MiB"

[run.first]
settle = "{settle}"
"""


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_once_seals_and_finishes(lab, which):
    lab.write(INSTRUMENT.format(settle="300 ms"))
    process, _ = lab.up_ready()
    until(lambda: lab.stream("detector").marks()[2] > 5, "no messages")
    process.send_signal(which)
    report = lab.report(process)
    assert report["run"] == "first" and report["closed"] and lost_of(report) == 0
    assert report["streams"][0]["messages"] > 0
    # The run is sealed for ever: started again, there is nothing to do.
    printed = json.loads(lab.end(lab.up()))
    empty = dict.fromkeys(("written", "streams", "gaps", "dead_time", "failed", "silent", "absent"), [])
    ledger = printed.pop("ledger")
    assert printed == {"run": None, "closed": True, "statistics": {}, **empty}
    # What the sources had is over all starts.
    assert ledger and all((row["account"], row["scope"]) == ("entry", "all") for row in ledger), ledger
    assert not (lab.data / "control.sock").exists()
    for stream in lab.streams():
        gapless(stream)
        # A stream that is closed in order has taken its live place with it.
        assert stream.head() is None, "a stream was not closed"
    print(f"interrupt: 1 {which.name} injected, the run sealed, 0 lost")


def test_interrupt_twice_stops_at_once_and_a_restart_goes_on(lab, times):
    # Nobody waits an hour for what is under way.
    lab.write(INSTRUMENT.format(settle="1 h"))
    twice = times(3, 50)
    for _ in range(twice):
        process, _ = lab.up_ready()
        began = lab.stream("detector").marks()[2]
        until(lambda began=began: lab.stream("detector").marks()[2] > began + 3, "no messages")
        lab.interrupt(process)
        time.sleep(0.1)
        assert process.poll() is None, "it ended although the run is settling"
        lab.interrupt(process)
        lab.end(process, status=2)
        said = json.loads(lab.said(process)[0])
        assert said["fault"]["what"] == "stopped at once" and not said["is_full"]
    marked = lab.stream("detector").marks()[1]
    process, _ = lab.up_ready()
    until(lambda: lab.stream("detector").marks()[2] > marked + 3, "a restart does not go on")
    lab.kill(process)
    for stream in lab.streams():
        gapless(stream)
    print(f"interrupt: {twice} x 2 injected, gone on each time, 0 lost of {marked} marked messages")


def test_runs_are_begun_and_ended_from_another_terminal(lab):
    lab.write(INSTRUMENT.format(settle="200 ms").split("[run.")[0])
    process, _ = lab.up_ready()
    begun = json.loads(lab.run("begin", "night", "--data", lab.data, "--json").stdout)
    assert begun["name"] == "night"
    until(lambda: lab.stream("detector").marks()[2] > 5, "no messages")
    lab.run("end", "night", "--data", lab.data)
    lab.interrupt(process)
    report = lab.report(process)
    assert report["run"] == "night" and report["closed"] and report["streams"][0]["messages"] > 0
