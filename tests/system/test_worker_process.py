"""What a worker's processes are given: files as parameters, variables of the environment, GPUs, a first batch to compile."""

import hashlib
import json
import os
import signal

import pytest
from conftest import camera, until, worker

beamport = pytest.importorskip("beamport", reason="pip install .")

CODE = """
import os
import time
from pathlib import Path
import beamport

NAMES = ["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "XLA_PYTHON_CLIENT_MEM_FRACTION", "MINE"]

@beamport.worker
def surroundings(frame):
    return {"said": {"slot": beamport.slot.number, **{name: os.environ.get(name) for name in NAMES}}}

@beamport.worker
def from_file(frame, table: Path, factor: float = 1.0):
    return float(table.read_text()) * factor

@beamport.worker(batch=4, gather=True)
class Compiled:
    def __init__(self, pause=0.0):
        self.shape = None
        self.pause = pause

    def warm_up(self, images):
        assert self.shape is None, "it is warm"
        time.sleep(self.pause)
        self.shape = images.shape
        return 1

    def __call__(self, images):
        assert images.shape == self.shape
        return len(images)
"""


def started(lab, text):
    (lab.folder / "mine.py").write_text(CODE)
    lab.write(text)
    process, _ = lab.up_ready()
    return process, beamport.open(lab.data)


def end(lab, process):
    lab.interrupt(process)
    lab.end(process)


def test_slots_have_their_gpu_and_the_variables_of_the_file(lab):
    more = 'slots = 3\nshare = "round-robin"\ngpus = [5, 7]\nenvironment = { MINE = "a b", HIP_VISIBLE_DEVICES = "none" }\n'
    process, data = started(lab, camera(100) + worker("around", "mine.py:surroundings", more))
    until(lambda: data["around"].count > 30, "no results")
    end(lab, process)
    said = {m["slot"]: m for m in (json.loads(m["json"])["said"] for m in data["around"].read())}
    assert [said[slot]["CUDA_VISIBLE_DEVICES"] for slot in range(3)] == ["5", "7", "5"]
    assert [said[slot]["XLA_PYTHON_CLIENT_MEM_FRACTION"] for slot in range(3)] == ["0.450", None, "0.450"]
    assert all(said[slot]["MINE"] == "a b" and said[slot]["HIP_VISIBLE_DEVICES"] == "none" for slot in range(3))


@pytest.mark.parametrize(
    ("value", "words"),
    [("3", "expected a table"), ("{ A = 1 }", "`A`"), ('{ "A=B" = "1" }', "name of a variable")],
)
def test_an_environment_of_other_values_is_refused(lab, value, words):
    (lab.folder / "mine.py").write_text(CODE)
    lab.write(camera(100) + worker("around", "mine.py:surroundings", f"environment = {value}\n"))
    assert words in lab.run("check", lab.file, status=2).stderr.decode()


def test_a_parameter_may_be_a_file_beside_the_instrument_file(lab, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (lab.folder / "tables").mkdir()
    table = lab.folder / "tables" / "one.txt"
    table.write_text("2.5")
    parameters = 'level = "disk"\nparameters = { table = { file = "tables/one.txt" }, factor = 2.0 }\n'
    (lab.folder / "mine.py").write_text(CODE)
    lab.write(camera(100, "disk") + worker("scaled", "mine.py:from_file", parameters))
    process, _ = lab.up_ready(cwd=elsewhere)
    data = beamport.open(lab.data)
    lab.run("begin", "first", "--data", lab.data)
    until(lambda: data["scaled"].count > 10, "no results")
    lab.run("end", "first", "--data", lab.data)
    until(lambda: data.run("first").state == "sealed", "it is not sealed")
    assert {m["value"] for m in data["scaled"].read()} == {5.0}
    known = data.run("first").metadata["workers"]["scaled"]["files"]["table"]
    assert known == {"file": str(table), "sha256": hashlib.sha256(b"2.5").hexdigest()}
    # Another file is not used by accident: the slots that start now say so, and nothing is lost.
    table.write_text("3.5")
    [os.kill(pid, signal.SIGKILL) for pid in lab.slots(process, "scaled")]
    said = lab.folder / "err-0"
    until(lambda: "has changed" in said.read_text(), lambda: said.read_text())
    count = data["scaled"].count
    table.write_text("2.5")
    until(lambda: data["scaled"].count > count, "it does not go on")
    end(lab, process)
    # Another start uses it.
    table.write_text("3.5")
    process, _ = lab.up_ready()
    until(lambda: data["scaled"][-1]["value"] == 7.0, "the old file is used")
    end(lab, process)


def test_a_parameter_that_names_no_file_is_refused(lab):
    (lab.folder / "mine.py").write_text(CODE)
    lab.write(camera(100) + worker("scaled", "mine.py:from_file", 'parameters = { table = { file = "none.txt" } }\n'))
    said = lab.run("check", lab.file, status=2).stderr.decode()
    assert "`table` has no file" in said and "relative to the instrument file" in said


def test_code_compiles_with_its_first_batch_once_in_each_process(lab):
    more = 'time_max = "1 s"\nfirst_time_max = "60 s"\nparameters = { pause = 2.0 }\n'
    process, data = started(lab, camera(50, "disk") + worker("compiled", "mine.py:Compiled", more + 'level = "disk"\n'))
    until(lambda: data["compiled"].count > 5, "no results")
    [os.kill(pid, signal.SIGKILL) for pid in lab.slots(process, "compiled")]
    count = data["compiled"].count
    until(lambda: data["compiled"].count > count + 5, "it does not go on")
    end(lab, process)
    assert {int(m["value"]) for m in data["compiled"].read()} == {4}
    assert "compiled.aside" not in data
