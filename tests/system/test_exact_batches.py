"""Batches of user code: exactly as many messages as it asks for, live as in a replay; shorter only where a run ends."""

import os
import signal
import time
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from conftest import camera, until, worker

beamport = pytest.importorskip("beamport", reason="pip install .")

CODE = """
import os
import beamport
import numpy as np

@beamport.worker(batch=8, pure=True)
def sizes(frames):
    return {"first": frames[0].id, "count": len(frames)}

@beamport.worker(batch=5)
def large(frames):
    return len(frames)
"""


def batches(stream) -> list[tuple[int, int]]:
    """First frame and number of frames of each batch."""
    found = []
    for m in stream.read():
        values = {variable["name"]: int(np.ravel(variable["data"])[0]) for variable in m["data"]}
        found.append((values["first"], values["count"]))
    return found


def are_exact(found: list[tuple[int, int]], ends: set[int]) -> None:
    """The batches follow each other, and each has 8 frames but where the next frame is one of `ends`."""
    for (first, count), (following, _) in zip(found, found[1:], strict=False):
        assert first + count == following
        assert count == 8 or (count < 8 and following in ends), (first, count)


def edges(data) -> set[int]:
    """The first frame of each run, and the first one behind it."""
    members = [[m.id for m in run["camera"].read()] for run in data.runs]
    return {edge for ids in members for edge in (ids[0], ids[-1] + 1)}


@pytest.mark.parametrize("slots", [1, 3])
def test_batches_are_whole_and_runs_do_not_share_one(lab, slots):
    (lab.folder / "mine.py").write_text(CODE)
    lab.write(camera(200, "disk") + worker("sizes", "mine.py:sizes", f"slots = {slots}\n"))
    process, _ = lab.up_ready()
    data = beamport.open(lab.data)
    # Times ahead: the instrument knows them before the frames come.
    now = datetime.now(UTC)
    for run, ahead in (("first", 1.0), ("second", 2.0)):
        start = (now + timedelta(seconds=ahead)).isoformat()
        lab.run("begin", run, "--start", start, "--duration", "600 ms", "--data", lab.data)
    until(lambda: all(run.state == "sealed" for run in data.runs), "a run is not sealed")
    count = data["sizes"].count
    until(lambda: data["sizes"].count > count + 5, "it does not go on")
    lab.interrupt(process)
    lab.end(process)
    found = batches(data["sizes"])
    are_exact(found, edges(data))
    assert found[0][0] == 0 and len(found) > 20
    starts = {first for first, _ in found}
    assert edges(data) <= starts
    # The replay of a run has the batches that the run had.
    for run in data.runs:
        ids = [m.id for m in run["camera"].read()]
        lab.run("replay", run.name, "--through", "mine.py:sizes", "--into", lab.folder / run.name, "--data", lab.data)
        again = batches(beamport.open(lab.folder / run.name)["sizes"])
        assert again == [one for one in found if ids[0] <= one[0] <= ids[-1]] and again[-1][1] <= 8


def test_a_run_that_ends_with_a_short_batch_seals_without_another_frame(lab):
    (lab.folder / "mine.py").write_text(CODE)
    lab.write('[source.camera]\nkind = "appended"\nlevel = "disk"\nlive = "4 MiB"\n' + worker("sizes", "mine.py:sizes"))
    process, _ = lab.up_ready()
    data = beamport.open(lab.data)
    with data.create("camera") as stream:
        lab.run("begin", "first", "--data", lab.data)
        for number in range(21):
            fields = {"source_name": "cam", "id": number, "timestamp": time.time_ns(), "data": np.zeros((4, 4), "u1")}
            stream.append("ad00", fields)
    until(lambda: data["sizes"].count == 2, "no batches")
    lab.run("end", "first", "--data", lab.data)
    until(lambda: data.runs[-1].state == "sealed", "it is not sealed")
    lab.interrupt(process)
    lab.end(process)
    assert batches(data["sizes"]) == [(0, 8), (8, 8), (16, 5)]


def test_batches_are_exact_after_kills_of_slots_and_mover(lab, times):
    (lab.folder / "mine.py").write_text(CODE)
    lab.write(camera(200, "disk") + worker("sizes", "mine.py:sizes", "slots = 2\n"))
    process, _ = lab.up_ready()
    data = beamport.open(lab.data)
    for turn in range(times(4, 40)):
        count = data["sizes"].count
        until(lambda count=count: data["sizes"].count > count + 4, "it does not go on")
        if turn % 2:
            lab.kill(process)
            process, _ = lab.up_ready()
        else:
            [os.kill(pid, signal.SIGKILL) for pid in lab.slots(process, "sizes")]
    count = data["sizes"].count
    until(lambda: data["sizes"].count > count + 4, "it does not go on")
    lab.interrupt(process)
    lab.end(process)
    # A recovery begins an epoch of the camera's stream, and with it a batch.
    arrivals = [(m.id, m.arrival_time) for m in data["camera"].read()]
    pauses = {number for (_, before), (number, at) in zip(arrivals, arrivals[1:], strict=False) if at - before > 10**8}
    are_exact(batches(data["sizes"]), pauses)


def test_a_batch_that_does_not_fit_into_the_input_is_cut_and_stops_nothing(lab):
    (lab.folder / "mine.py").write_text(CODE)
    frames = camera(50).replace("[32, 48]", "[1024, 1024]").replace("16 MiB", "4 MiB")
    lab.write(frames + 'when_full = "wait"\n' + worker("large", "mine.py:large"))
    process, _ = lab.up_ready()
    data = beamport.open(lab.data)
    until(lambda: data["large"].count > 5, "it stands still")
    lab.interrupt(process)
    lab.end(process)
    counts = [int(m["value"]) for m in data["large"].read()]
    assert sum(counts) > 5 and max(counts) <= 5
