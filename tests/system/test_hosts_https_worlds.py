"""Hosts without a broker in other conditions: a wrong clock, rings shorter than a run, a host that is away for longer
than a stream has room."""

import os
import time

import pytest
from conftest import preloaded, until
from stream_files import Stream
from test_hosts import STAGES, STREAMS, equal, one_file
from test_hosts_account import listed, say
from test_hosts_https import authority, pair  # noqa: F401
from test_hosts_worlds import CAMERA, COPY, HOUR_NS, ledger
from test_when_full import dropped, still

beamport = pytest.importorskip("beamport", reason="pip install .")


def is_calm(stream) -> bool:
    """No message was refused for half a second."""
    count = dropped(stream)
    time.sleep(0.5)
    return dropped(stream) == count


@pytest.mark.parametrize("wrong", ["a", "b"])
def test_a_host_with_a_wrong_clock_loses_nothing_and_both_clocks_are_named(lab, pair, nexus, wrong):  # noqa: F811
    pair = pair(f"clock-{wrong}", STAGES.replace("run.nxs", "{run}.nxs"))  # noqa: F811
    shift = lab.folder / "shift"
    shift.write_text(str(HOUR_NS))
    env = os.environ | {"LD_PRELOAD": preloaded(lab.folder, "shift_clock"), "SHIFT_CLOCK": str(shift)}
    for host in "ab":
        pair.processes[host] = lab.up("--host", host, **({"env": env} if host == wrong else {}))
    for name in ("detector", "camera"):
        pair.moves("b", name)
    # The bulletin has the clock of the host that leads.
    ahead = {host: row["clock_ns"] for host, row in listed(pair, 0).items()}
    by = {"a": -HOUR_NS, "b": HOUR_NS}[wrong]
    assert abs(ahead["a"]) < HOUR_NS / 60 and abs(ahead["b"] - by) < HOUR_NS / 60, ahead
    for host in "ab":
        until(lambda host=host: "the clocks of hosts `b` and `a` differ" in lab.said(pair.processes[host])[1], host)
    assert f"3600.0 s {'behind' if wrong == 'a' else 'ahead of'} that of `a`" in lab.said(pair.processes["b"])[1]
    say(pair, "b", "begin", "second", "--start", "-1 s")
    time.sleep(2)
    say(pair, "b", "end", "second")
    lab.interrupt(pair.processes["a"])
    for host in "ab":
        lab.end(pair.processes[host])
        assert "broker" not in lab.said(pair.processes[host])[1]
        run = beamport.open(pair.folder(host)).run("second")
        assert 2e9 < run.stop - run.start < 30e9
        for account in (ledger(pair, host), run.ledger()):
            assert account["closed"] and account["lost"] == 0, account
    assert all(equal(pair, name) for name in STREAMS)
    one_file(pair, "first.nxs")


@pytest.mark.parametrize("short", ["mirror", "stream"])
def test_a_run_is_longer_than_a_ring(lab, pair, short):  # noqa: F811
    (lab.folder / "copy.py").write_text(COPY)
    stages = CAMERA.replace("drop-oldest", "wait") + 'duration = "4 s"\n'
    sizes = {"live": "64 MiB", "mirror": "2 MiB"} if short == "mirror" else {"live": "2 MiB", "mirror": "64 MiB"}
    pair = pair(f"ring-{short}", stages.format(fps=1000, **sizes))  # noqa: F811
    pair.up("a")
    if short == "mirror":
        until(lambda: pair.count("a", "camera") > 2000, "the camera stands")
    pair.up("b")
    for host in "ab":
        lab.end(pair.processes[host])
        account = ledger(pair, host)
        assert account["closed"] and account["lost"] == 0, account
    (mirror,) = [row for row in account["mirrors"] if row["stream"] == "camera"]
    assert mirror["missing"] == 0 and mirror["sent"] == mirror["received"] > 2000, mirror
    assert sum(1 for _ in pair.stream("b" if short == "mirror" else "a", "camera").read()) < 1000


@pytest.mark.parametrize("when_full", ["wait", "drop-oldest", "drop-newest"])
def test_a_stream_whose_far_host_is_away_waits_or_counts_what_it_drops(lab, pair, when_full):  # noqa: F811
    (lab.folder / "copy.py").write_text(COPY)
    stages = CAMERA.replace("drop-oldest", when_full).format(fps=2000, live="4 MiB", mirror="1 GiB")
    pair = pair(f"full-{when_full}", stages)  # noqa: F811
    for host in "ab":
        pair.up(host)
    pair.moves("b", "camera")
    pair.kill("b")
    stream = Stream(pair.folder("a") / "camera")
    match when_full:
        case "wait":
            until(lambda: still(stream), "the source is not blocked")
        case "drop-oldest":
            count = stream.marks()[2]
            until(lambda: stream.marks()[0] > count, "the oldest do not go")
        case "drop-newest":
            until(lambda: dropped(stream) > 100, "nothing is refused")
    pair.up("b")
    pair.moves("b", "camera")
    # Messages that are refused between the end of the run and that of the source are of no run.
    until(lambda: is_calm(stream), "messages are still refused")
    lab.interrupt(pair.processes["a"])
    for host in "ab":
        lab.end(pair.processes[host], None if when_full != "wait" else 0)
    run = beamport.open(pair.folder("b")).run("first")
    there = [m.origin_seq for m in pair.stream("b", "camera").read() if run.start <= m.source_time < run.stop]
    assert there == sorted(set(there))
    refused = dropped(stream)
    for host in "ab":
        account = ledger(pair, host)
        (mirror,) = account.get("mirrors") or account["hosts"][0]["account"]["mirrors"]
        missing = mirror["sent"] - len(there)
        assert account["closed"] and mirror["missing"] == missing and account["lost"] == missing + refused, account
    assert (missing > 0, refused > 0) == (when_full == "drop-oldest", when_full == "drop-newest")
    print(f"injected a far host that was away, {when_full}: {missing + refused} messages lost, all counted")
