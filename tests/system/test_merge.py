"""A mover that merges is killed with -9, its memory now and then taken too: what the merge shows stays, once, in order."""

import shutil
import time
import zlib

import pytest
from conftest import until

beamport = pytest.importorskip("beamport", reason="pip install .")

INSTRUMENT = """
[source.one]
kind = "sim"
model = "amor"
rate = 5e4
live = "4 MiB"

[source.two]
kind = "sim"
model = "amor"
rate = 2e4
live = "4 MiB"

[merge.all]
kind = "time"
inputs = ["one", "two"]
wait = "50 ms"

[run.first]
settle = "200 ms"
"""


def shown(lab) -> list[tuple[int, int, int]]:
    """What the merge shows and is safe: time, row of the parent, sequence there."""
    stream = lab.stream("all")
    entries = stream.entries(0, stream.marks()[1])
    names = ("source_time", "parent", "parent_sequence")
    return list(zip(*(entries[name].tolist() for name in names), strict=True))


def goes_on(lab, known: int):
    """Waits until it shows more than that."""
    until(lambda: len(shown(lab)) > known, "the merge shows nothing new")


def test_a_merge_killed_at_random_moments_shows_each_message_once(lab, times, dice):
    lab.write(INSTRUMENT)
    kills, seen, cuts = times(6, 200), [], 0
    for kill in range(kills):
        process, _ = lab.up_ready()
        goes_on(lab, len(seen))
        time.sleep(dice.uniform(0, 0.3))
        now = shown(lab)
        assert now[: len(seen)] == seen, "what was shown is another"
        seen = now
        lab.kill(process)
        if kill % 3 == 2:
            cuts += 1
            for stream in lab.streams(books=True):
                shutil.rmtree(stream.live, ignore_errors=True)
    process, _ = lab.up_ready()
    goes_on(lab, len(seen))
    lab.interrupt(process)
    assert lab.report(process)["closed"]
    now = shown(lab)
    assert now[: len(seen)] == seen
    times_of = [time_ for time_, _, _ in now]
    assert times_of == sorted(times_of) and len(set(now)) == len(now)
    lab.run("verify", "--data", lab.data)
    print(f"merge killed: {kills} injected ({cuts} with its memory gone), {len(now)} messages shown once, in order")


def messages(lab, name) -> list[tuple[int, int, int]]:
    """The messages of a stream up to its mark: time, number, checksum of the payload."""
    data = beamport.open(lab.data)
    return [(m.source_time, m.origin_seq, zlib.crc32(m.payload)) for m in data[name].read()] if name in data else []


def test_a_copied_merge_that_is_killed_has_each_message_once_and_stands_alone(lab, times, dice):
    lab.write(INSTRUMENT.replace('wait = "50 ms"', 'wait = "50 ms"\noutput = "copy"\nlive = "8 MiB"'))
    kills, seen = times(4, 100), []
    for kill in range(kills):
        process, _ = lab.up_ready()
        until(lambda known=seen: len(messages(lab, "all")) > len(known), "nothing new is copied")
        time.sleep(dice.uniform(0, 0.3))
        seen = messages(lab, "all")
        lab.kill(process)
        if kill % 3 == 2:
            for stream in lab.streams(books=True):
                shutil.rmtree(stream.live, ignore_errors=True)
    process, _ = lab.up_ready()
    until(lambda: len(messages(lab, "all")) > len(seen), "nothing new is copied")
    lab.interrupt(process)
    told = lab.report(process)
    assert told["closed"]
    now = messages(lab, "all")
    assert now[: len(seen)] == seen and len(set(now)) == len(now)
    assert [m[0] for m in now] == sorted(m[0] for m in now)
    # Those that it was made of are gone; it is whole.
    for name in ("one", "two", "all.view"):
        shutil.rmtree(lab.data / name)
    assert messages(lab, "all") == now
    print(f"copied merge killed: {kills} injected, {len(now)} messages once, in order, and readable alone")
