"""`beamport check` and Python code: what is wrong with it is found before anything is measured."""

import json
import subprocess

import pytest
from conftest import HANG_S

CAMERA = '[source.camera]\nkind = "sim"\nmodel = "camera"\nfps = 10\nshape = [8, 8]\n'
CODE = "def good(frame, scale: float, label: str = ''):\n    return frame.array.mean() * scale\n"


def check(lab, call: str, more: str = "", code: str = CODE) -> tuple[int, dict]:
    """What `check` answers of a file with one worker."""
    (lab.folder / "mine.py").write_text(code)
    lab.write(f'{CAMERA}[worker.w]\ncall = "{call}"\ninputs = ["camera"]\n{more}')
    command = [lab.beamport, "check", lab.file, "--json"]
    done = subprocess.run(command, cwd=lab.folder, capture_output=True, text=True, timeout=HANG_S)
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize(
    ("call", "more", "code", "cause"),
    [
        ("mine.py:good", "parameters = { scale = 1 }", "def good(:\n", "SyntaxError"),
        ("mine.py:godo", "parameters = { scale = 1 }", CODE, "it has `good`"),
        ("mine.py:good", "parameters = { scale = 1 }", "import nothing_of_this_name\n" + CODE, "nothing_of_this_name"),
        ("mine.py:good", "", CODE, "missing a required argument: 'scale'"),
        ("mine.py:good", "parameters = { scale = 1, sclae = 2 }", CODE, "unexpected keyword argument 'sclae'"),
        ("mine.py:good", 'parameters = { scale = "abc" }', CODE, "`scale` is annotated as `float`"),
        ("mine.py:good", "parameters = { scale = 1 }", "import sys\nsys.exit(0)\n", "SystemExit"),
    ],
)
def test_code_that_cannot_run_is_a_mistake(lab, call, more, code, cause):
    status, answer = check(lab, call, more, code)
    assert status == 2 and not answer["good"], answer
    (mistake,) = answer["mistakes"]
    assert cause in mistake["cause"], mistake
    # The line of `call`; each cause of the code names its own place.
    assert mistake["line"] == lab.file.read_text().splitlines().index(f'call = "{call}"') + 1
    assert mistake["hint"]


def test_code_that_can_run_is_good_whatever_it_prints(lab):
    status, answer = check(lab, "mine.py:good", "parameters = { scale = 2 }", "print('hello')\n" + CODE)
    assert status == 0 and answer["good"] and not answer["mistakes"], answer


def test_a_finder_of_groups_is_checked_too(lab):
    code = "def pairs(times, members, numbers, within=100):\n    return [], 0\n"
    more = 'parameters = { find = "mine.py:pairs", arguments = { within = 5 } }'
    status, answer = check(lab, "groups", more, code)
    assert status == 0, answer
    status, answer = check(lab, "groups", more.replace("within =", "witihn ="), code)
    assert status == 2 and "witihn" in answer["mistakes"][0]["cause"], answer
