"""A mover that merges is killed with -9, its memory now and then taken too: what the merge shows stays, once, in order."""

import shutil
import time

from conftest import until

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
