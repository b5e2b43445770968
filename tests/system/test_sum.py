"""`sum`: arrays are added once each, whatever is killed, and the result is that of an undisturbed sum."""

import os
import signal
import sys

import numpy as np
import pytest
from conftest import until

beamport = pytest.importorskip("beamport", reason="pip install .")

CODE = """
import time
import beamport
import numpy as np

Q = np.linspace(0.01, 0.1, 6)

class Curves:
    def __init__(self):
        self.next = 0

    def __iter__(self):
        while True:
            values = np.sqrt(np.arange(5) + self.next)
            edges = Q if self.next % 50 != 7 else Q * 2
            axes = [
                {"name": "signal", "axes": ["Q"], "data": values, "unit": "counts"},
                {"name": "errors", "axes": ["Q"], "data": np.sqrt(values), "unit": "counts"},
                {"name": "Q", "axes": ["Q"], "data": edges, "unit": "1/angstrom"},
            ]
            self.next += 1
            fields = {"source_name": "curve", "timestamp": time.time_ns(), "data": axes}
            yield beamport.message("da00", fields, origin_seq=self.next - 1)
            time.sleep(0.002)

    def save(self):
        return self.next

    def restore(self, state):
        self.next = state
"""

TEXT = f"""
[source.curves]
kind = "python"
call = "mine.py:Curves"
python = "{sys.executable}"
level = "disk"
live = "16 MiB"

[worker.total]
call = "sum"
inputs = ["curves"]
level = "disk"
live = "8 MiB"
slot_live = "2 MiB"
"""


def parts(message) -> dict[str, np.ndarray]:
    return {part["name"]: part["data"] for part in message["data"]}


def test_a_sum_is_that_of_an_undisturbed_one_whatever_is_killed(lab, times):
    (lab.folder / "mine.py").write_text(CODE)
    lab.write(TEXT)
    process, _ = lab.up_ready()
    data = beamport.open(lab.data)
    for turn in range(times(6, 100)):
        before = data["total"].count
        until(lambda before=before: data["total"].count > before + 5, "nothing is added")
        if turn % 3 == 2:
            lab.kill(process)
            process, _ = lab.up_ready()
        else:
            [os.kill(pid, signal.SIGKILL) for pid in lab.slots(process, "total")]
    before = data["total"].count
    until(lambda: data["total"].count > before + 5, "nothing is added")
    lab.interrupt(process)
    lab.end(process)
    assert [row["lost"] for row in data.stages() if row["stage"] == "total"] == [{}]
    last = data["total"][-1]
    signal_sum, squares, added = np.zeros(5), np.zeros(5), []
    for curve in data["curves"].read():
        found = parts(curve)
        if curve.origin_seq <= last.origin_seq and found["Q"][-1] < 0.15:
            signal_sum, squares = signal_sum + found["signal"], np.sqrt(squares * squares + found["errors"] ** 2)
            added.append(curve.origin_seq)
    total = parts(last)
    assert total["signal"].tolist() == signal_sum.tolist()
    assert total["errors"].tolist() == squares.tolist()
    assert total["Q"][-1] == 0.1 and last["source_name"] == "total"
    # Those with other edges are set aside, each once.
    strange = [aside["sequence"] for aside in data["total.aside"].read()]
    assert len(strange) == len(set(strange)) and {aside["reason"] for aside in data["total.aside"].read()} == {"axes"}
