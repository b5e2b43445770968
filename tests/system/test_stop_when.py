"""`stop_when` of a run: a value of this run ends it, and the reason is in its account and its file."""

import json
import sys
import time

import h5py
import pytest
from conftest import kill, lost_of, until

beamport = pytest.importorskip("beamport", reason="pip install .")

CODE = """
import time
import beamport

def errors(count=100000, pause=0.005):
    for number in range(count):
        yield beamport.result(1 / (number + 1), name="error")
        yield beamport.result(float(number), name="counts")
        time.sleep(pause)
"""

SOURCE = f"""
[source.fit]
kind = "python"
call = "mine.py:errors"
python = "{sys.executable}"
level = "memory"
live = "4 MiB"
"""

SINK = """
[sink.file]
kind = "nexus"
inputs = ["fit"]
template = "file.json"
"""

TEMPLATE = {
    "children": [
        {
            "type": "group",
            "name": "entry",
            "attributes": [{"name": "NX_class", "values": "NXentry"}],
            "children": [
                {
                    "type": "group",
                    "name": "error",
                    "attributes": [{"name": "NX_class", "values": "NXlog"}],
                    "children": [{"module": "f144", "config": {"source": "error", "topic": "fit", "dtype": "double"}}],
                }
            ],
        }
    ]
}


def run(name: str, condition: str) -> str:
    return f'\n[run.{name}]\nstop_when = "{condition}"\n'


def errors(lab, first: int = 0) -> list[float]:
    """The errors of a run, from a message on."""
    return [m.value for m in beamport.open(lab.data)["fit"].read(start=first) if m.origin == "error"]


def test_a_run_ends_with_its_value_and_says_so_in_account_and_file(lab):
    (lab.folder / "mine.py").write_text(CODE)
    (lab.folder / "file.json").write_text(json.dumps(TEMPLATE))
    lab.write(SOURCE + SINK + run("fine", "error < 0.03 and counts >= 40"))
    elsewhere = lab.folder / "elsewhere"
    elsewhere.mkdir()
    assert b"good" in lab.run("check", lab.file).stdout
    report = lab.report(lab.up(cwd=elsewhere))
    assert report["closed"] and lost_of(report) == 0
    reason = report["reason"]
    assert reason.startswith("error < 0.03 and counts >= 40: error = 0.02") and reason.endswith("counts = 40")
    assert min(errors(lab)) < 1 / 40
    listed = json.loads(lab.run("ls", "--json", "--data", lab.data).stdout)
    assert [one["reason"] for one in listed["runs"]] == [reason]
    with h5py.File(next(lab.folder.rglob("*.nxs"))) as file:
        assert file["entry/beamport/reason"][()].decode() == reason


def test_a_value_of_the_run_before_ends_nothing(lab):
    """The second run in a folder begins where the first one was precise enough."""
    (lab.folder / "mine.py").write_text(CODE)
    lab.write(SOURCE + run("one", "error < 0.05"))
    report = lab.report(lab.up())
    assert report["reason"].startswith("error < 0.05: error = 0.04")
    first = beamport.open(lab.data)["fit"].count
    lab.write(SOURCE + run("one", "error < 0.05") + run("two", "error <= 0.03"))
    report = lab.report(lab.up())
    assert report["run"] == "two" and report["reason"].startswith("error <= 0.03: error = 0.02")
    assert errors(lab, first)[0] == 1.0 and min(errors(lab, first)) <= 0.03


def test_a_condition_lives_through_a_kill_and_short_memory(lab, dice):
    (lab.folder / "mine.py").write_text(CODE)
    lab.write(SOURCE.replace("4 MiB", "1 MiB") + run("fine", "counts > 300"))
    process, _ = lab.up_ready()
    for _ in range(3):
        time.sleep(dice.uniform(0.1, 0.4))
        lab.kill(process)
        process, _ = lab.up_ready()
    report = lab.report(process)
    assert report["closed"] and report["reason"] == "counts > 300: counts = 301"


def test_a_value_that_comes_between_two_looks_ends_the_run(lab):
    code = CODE.replace("1 / (number + 1)", "0.0 if number == 30 else float('nan')")
    (lab.folder / "mine.py").write_text(code)
    lab.write(SOURCE + run("dip", "error < 0.03"))
    assert lab.report(lab.up())["reason"] == "error < 0.03: error = 0"


def test_a_command_ends_a_run_whose_value_never_comes(lab):
    (lab.folder / "mine.py").write_text(CODE)
    lab.write(SOURCE + run("never", "nobody < 0.03") + 'duration = "1 h"\n')
    process, _ = lab.up_ready()
    until(lambda: beamport.open(lab.data)["fit"].count > 10, "nothing comes")
    lab.run("end", "never", "--data", lab.data)
    assert lab.report(process)["reason"] == "asked"
    kill(process.pid) if process.poll() is None else None


@pytest.mark.parametrize(
    "condition", ["error", "error < ", "error = 3", "error < 1 h", "a b < 1", "error < 1 or x < 2"]
)
def test_check_says_how_a_condition_is_written(lab, condition):
    (lab.folder / "mine.py").write_text(CODE)
    lab.write(SOURCE + run("fine", condition))
    assert '"error < 0.03"' in lab.run("check", lab.file, status=2).stderr.decode()
