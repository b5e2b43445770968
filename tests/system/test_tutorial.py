"""The tutorial and the session of README.md are executed as they stand: their sh and python blocks, in one terminal."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = ROOT / "docs" / "tutorial" / "first-measurement.md"
# A guard against hanging only: it takes about 20 s.
HANG_S = 300


def blocks(text: str) -> list[tuple[str, str]]:
    """(language, content) of the fenced blocks that are executed."""
    return re.findall(r"^```(sh|python)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def script(text: str) -> str:
    """One terminal session: a Python block is a program that Python is given. Each block says where it begins."""
    lines = ["set -eu"]
    for number, (language, content) in enumerate(blocks(text), 1):
        lines.append(f"echo '--- block {number}'; echo '--- block {number}' >&2")
        lines.append(content if language == "sh" else f"python - <<'TUTORIAL'\n{content}TUTORIAL")
    return "\n".join(lines) + "\n"


@pytest.fixture
def terminal(tmp_path, programs):
    """Runs a script in an empty folder; ends what it left behind, by its process group, and takes memory back."""
    pytest.importorskip("beamport", reason="the package is not installed: `pip install .`")
    pytest.importorskip("h5py")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("BEAMPORT_")}
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), str(programs), os.environ["PATH"]])
    started = []

    def run(text: str) -> tuple[int, str, str]:
        with (tmp_path / "out").open("w") as out, (tmp_path / "err").open("w") as err:
            process = subprocess.Popen(
                ["bash", "-c", text], cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                start_new_session=True,
            )  # fmt: skip
            started.append(process)
            status = process.wait(HANG_S)
        return status, (tmp_path / "out").read_text(), (tmp_path / "err").read_text()

    yield run
    for process in started:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
    for header in tmp_path.glob("beamport-data/*/*/stream"):
        live = Path(re.search(r"^live (.*)$", header.read_text(), re.MULTILINE).group(1))
        if live.parent == Path(f"/dev/shm/beamport-{os.geteuid()}"):
            shutil.rmtree(live, ignore_errors=True)


def test_the_tutorial_does_what_it_says(terminal, tmp_path):
    import beamport

    text = TUTORIAL.read_text()
    assert len(blocks(text)) > 10
    began = time.monotonic()
    status, out, err = terminal(script(text))
    print(f"the tutorial took {time.monotonic() - began:.1f} s")
    print(out, err)
    assert status == 0, f"status {status}\n{err[-3000:]}"
    said = dict(re.findall(r"^--- block (\d+)\n(.*?)(?=^--- block|\Z)", out, re.MULTILINE | re.DOTALL))
    said = {int(number): text for number, text in said.items()}
    numbers = {}
    for number, (_, content) in enumerate(blocks(text), 1):
        numbers[content.strip().splitlines()[-1]] = number

    def answer(last_line: str) -> str:
        return said[next(n for line, n in numbers.items() if line.startswith(last_line))]

    assert "ledger (closed)" in answer("beamport demo")
    assert "demo" in said[2] and "AMOR:" in answer("beamport cat devices")
    assert "the first in pixel" in answer('print(f"temperature')
    assert " K" in answer('print(f"temperature')
    # The mistake is found, and named with its right word.
    assert "exit status 2" in answer("beamport check lab.toml ||")
    assert "`rate`" in err
    # kill -9 was a kill, and the run outlived it.
    after_kill = said[next(n for n, (_, c) in enumerate(blocks(text), 1) if c.startswith("kill -9"))]
    assert "exit status 137" in after_kill and re.search(r"morning +open", after_kill)
    assert re.search(
        r"morning +sealed", said[next(n for n, (_, c) in enumerate(blocks(text), 1) if c.startswith("kill -INT $!"))]
    )
    # What was watched after the kill is in the run.
    watched = {int(n) for n in re.findall(r"^ +(\d+)  .* ev44 ", answer("beamport end morning"), re.MULTILINE)}
    run = beamport.open(tmp_path / "beamport-data" / "lab").run("morning")
    assert len(watched) == 14 and watched <= {m.sequence for m in run["detector"].read()}
    closed = next(text for n, text in said.items() if "lost: " in text and "read " in text)
    assert "sealed closed lost: 0" in closed
    # Written again, the file holds the same.
    same = re.findall(r"^(\w+) \((\d+),.*\) (True|False)$", out, re.MULTILINE)
    assert len(same) == 4 and all(answer == "True" and int(rows) > 0 for _, rows, answer in same)


def test_a_block_that_fails_fails_the_tutorial(terminal):
    status, out, _ = terminal(script("```python\nraise SystemExit(3)\n```\n\n```sh\necho not reached\n```\n"))
    assert status == 3 and "not reached" not in out


def test_the_session_of_the_readme_does_what_it_says(terminal, tmp_path):
    import beamport

    status, out, err = terminal(script((ROOT / "README.md").read_text()))
    print(out, err)
    assert status == 0, err[-3000:]
    assert out.count("ledger (closed)") == 2 and "AMOR:SE:TEMP01  f144  value=" in out
    assert re.search(r"^closed +yes$", out, re.MULTILINE) and (tmp_path / "again.nxs").is_file()
    # Three arrays of pixels.
    assert len(re.findall(r"^\[ *\d+ .*\d\]$", out, re.MULTILINE)) == 3
    data = beamport.open(tmp_path / "beamport-data" / "mine")
    pairs = list(zip(data["camera"].read(), data["brightest"].read(), strict=False))
    print("a value for each of", len(pairs), "frames")
    assert len(pairs) >= 150 and list((tmp_path / "beamport-data" / "mine").rglob("*.h5"))
    for frame, m in pairs:
        assert m["value"] == frame.array.max() and m.origin_seq == frame.origin_seq
    # "A few MB": of streams, files and copies.
    written = sum(file.stat().st_blocks * 512 for file in tmp_path.rglob("*") if file.is_file())
    print(f"the session of the README wrote {written / 1e6:.1f} MB")
    assert written < 10e6
