"""Results that code sends outside of its calls: from threads, and after the call of their message."""

import os
import signal

import pytest
from conftest import camera, until, worker

beamport = pytest.importorskip("beamport", reason="pip install .")

CODE = """
import threading
import time
from concurrent.futures import ThreadPoolExecutor
import beamport

class Later:
    # Some of its results come from threads, after the call.
    def __init__(self, threads=3):
        self.pool = ThreadPoolExecutor(threads)

    def __call__(self, frame):
        number = frame.id
        if number % 5 == 0:
            self.pool.submit(self.send, number)
        return float(number)

    def send(self, number):
        time.sleep(0.01)
        beamport.slot.send(beamport.result(float(number), name="late"))

    def teardown(self):
        self.pool.shutdown()

@beamport.worker
def wrong(frame):
    beamport.slot.send(object())

@beamport.worker
def own(frame):
    fields = {"source_name": "own", "timestamp": frame.source_time, "value": float(frame.id)}
    beamport.slot.send([beamport.message("f144", fields, time=frame.source_time, origin="own", origin_seq=frame.id), None])
"""


def started(lab, call: str, more: str = "", level: str = "disk"):
    (lab.folder / "mine.py").write_text(CODE)
    lab.write(camera(200, "disk") + worker("mine", f"mine.py:{call}", f'level = "{level}"\n{more}'))
    process, _ = lab.up_ready()
    return process, beamport.open(lab.data)


def is_further(data, more: int = 10):
    count = data["mine.loose"].count if "mine.loose" in data else 0
    until(lambda: "mine.loose" in data and data["mine.loose"].count > count + more, "no loose results")


@pytest.mark.parametrize("level", ["memory", "disk"])
def test_results_of_threads_are_in_a_stream_of_their_own(lab, level):
    process, data = started(lab, "Later", level=level)
    is_further(data, 20)
    until(lambda: "loose" in {m["source_name"] for m in data["mine.statistics"].read()}, "they are not counted")
    lab.interrupt(process)
    lab.end(process)
    found = [m.value for m in data["mine.loose"].read()]
    done = data["mine"].count
    # None is missing of the messages that were done: the slot waits for its threads.
    assert sorted(found) == [float(number) for number in range(0, done, 5)]
    assert {m["source_name"] for m in data["mine.loose"].read()} == {"late"}


def test_they_are_shown_once_through_kills_of_slots_and_mover(lab, times):
    process, data = started(lab, "Later", "slots = 2\n")
    for turn in range(times(4, 40)):
        is_further(data)
        if turn % 2:
            lab.kill(process)
            process, _ = lab.up_ready()
        else:
            [os.kill(pid, signal.SIGKILL) for pid in lab.slots(process, "mine")]
    is_further(data)
    lab.interrupt(process)
    lab.end(process)
    found = [m.value for m in data["mine.loose"].read()]
    # A message that is tried again may send again; the view shows nothing twice by itself.
    assert len(found) - len(set(found)) <= 2 * 4 * times(4, 40)
    assert set(found) <= {float(number) for number in range(0, data["camera"].count, 5)}
    assert lab.run("verify", "--data", lab.data).returncode == 0


def test_a_message_of_ones_own_keeps_its_identity(lab):
    process, data = started(lab, "own")
    is_further(data, 20)
    lab.interrupt(process)
    lab.end(process)
    frames = {m.id: m.source_time for m in data["camera"].read()}
    found = list(data["mine.loose"].read())
    assert [m.origin_seq for m in found] == list(range(len(found)))
    assert all(m.origin == "own" and m.source_time == frames[m.origin_seq] for m in found)


def test_a_result_that_no_message_holds_is_refused_where_it_is_sent(lab):
    process, data = started(lab, "wrong")
    until(lambda: "mine.aside" in data and data["mine.aside"].count > 3, "nothing is set aside")
    lab.interrupt(process)
    lab.said(process)
    assert "TypeError" in next(iter(data["mine.aside"].read()))["text"]


def test_outside_of_slots_nothing_can_be_sent():
    with pytest.raises(beamport.Error, match="no slot of a worker"):
        beamport.slot.send(1.0)
