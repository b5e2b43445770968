"""Camera, four slots that answer as they are done, collector: every id once and in order, whoever is killed."""

import json
import time

import pytest
from conftest import camera, kill, until, worker

beamport = pytest.importorskip("beamport", reason="pip install .")

CODE = """
import time
import beamport

@beamport.worker
def corner(frame):
    time.sleep(0.002 * (frame.id % 7 == 0))
    return frame.array[:2, :3]
"""

INSTRUMENT = (
    camera(500)
    + worker("corners", "mine.py:corner", 'slots = 4\norder = "any"\n')
    + """
[merge.frames]
kind = "number"
inputs = ["corners"]
wait = "20 s"

[run.first]
settle = "200 ms"
"""
)


def numbers(lab, name):
    """The numbers of a stream's messages, in its order."""
    data = beamport.open(lab.data)
    return [m.origin_seq for m in data[name].read()] if name in data else []


def test_ids_stand_in_order_after_slots_and_mover_are_killed_at_random(lab, times, dice):
    (lab.folder / "mine.py").write_text(CODE)
    lab.write(INSTRUMENT)
    kills, movers, seen = times(8, 200), 0, []
    process, _ = lab.up_ready()
    for turn in range(kills):
        until(lambda known=seen: len(numbers(lab, "frames")) > len(known), "no output after a kill")
        now = numbers(lab, "frames")
        assert now[: len(seen)] == seen, "what was shown is another"
        seen = now
        time.sleep(dice.uniform(0, 0.3))
        slots = lab.slots(process)
        if turn % 4 == 3 or not slots:
            lab.kill(process)
            process, _ = lab.up_ready()
            movers += 1
        else:
            kill(dice.choice(slots))
    until(lambda: len(numbers(lab, "frames")) > len(seen), "no output at the end")
    # What is behind them may take its time; what the camera brought until now comes to the collector.
    known = len(numbers(lab, "camera"))
    until(lambda: len(numbers(lab, "frames")) >= known - kills, "it does not follow")
    row = next(row for row in beamport.open(lab.data).stages() if row["stage"] == "frames")
    lab.interrupt(process)
    report = lab.report(process)
    shown, done = numbers(lab, "frames"), set(numbers(lab, "corners"))
    assert shown == sorted(set(shown)) and set(shown) <= done, "an id is there twice, or not in its place"
    has_aside = (lab.data / "corners.aside").exists()
    aside = {m["sequence"] for m in beamport.open(lab.data)["corners.aside"].read()} if has_aside else set()
    missing = {n for gap in report["gaps"] if gap["stream"] == "frames" for n in range(gap["first"], gap["last"] + 1)}
    # Only what two kills hit is not there.
    assert set(range(shown[0], shown[-1] + 1)) - set(shown) == missing and len(missing) <= len(aside) <= kills // 4
    assert row["closed"] and not row["lost"] and sum(row["aside"].values()) == 0, json.dumps(row)
    lab.run("verify", "--data", lab.data)
    print(
        f"collector: {kills} kills injected ({movers} of them the mover), {len(shown)} ids in order, 0 twice, "
        f"{len(missing)} missing that two kills hit"
    )


EACH = """
import time
import beamport

@beamport.worker
def slow(frame):
    # One slot is at one frame for long, while the others do hundreds.
    time.sleep(4.0 if frame.id == 40 else 0.001)
    return frame.array[:2, :3]
"""


def test_the_collector_gave_up_ids_that_a_slow_slot_held(lab):
    (lab.folder / "mine.py").write_text(EACH)
    lab.write(
        camera(200, "disk")
        + worker("corners", "mine.py:slow", 'slots = 4\norder = "any"\nturn = 8\nlevel = "disk"\n')
        + '[merge.frames]\nkind = "number"\ninputs = ["corners"]\nwait = "200 ms"\ncache = 4096\nlevel = "disk"\n'
        + '[run.first]\nsettle = "200 ms"\n'
    )
    process, _ = lab.up_ready()
    until(lambda: len(numbers(lab, "frames")) > 800, "800 frames do not come out")
    lab.interrupt(process)
    report = lab.report(process)
    shown = numbers(lab, "frames")
    assert shown == list(range(len(shown))), "each id once and in order"
    rows = [row for row in report["ledger"] if row.get("stage") == "frames"]
    assert rows and all(row["closed"] and not row["aside"] and not row["lost"] for row in rows), json.dumps(rows)
    assert not [gap for gap in report["gaps"] if gap["stream"] == "frames"]
    print(f"1 frame injected that a slot held for 20 waits: {len(shown)} ids in order, 0 missing, 0 late")
