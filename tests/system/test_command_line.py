"""The command line against a whole machine: demonstrations side by side, and shared memory that is too small or fills up.

Small shared memory is a tmpfs of a mount namespace of its own, so that nobody else's is touched: that needs root.
"""

import json
import re
import subprocess

import pytest
from conftest import HANG_S

SMALL = """[source.detector]
kind = "sim"
model = "amor"
rate = 5e5
level = "memory"
live = "{live}"

[run.one]
duration = "{duration}"
settle = "10 ms"
"""


def small_memory(lab, size: str, script: str, **more) -> subprocess.Popen:
    """Runs a script of the shell where /dev/shm has `size`; `$B` is the program, `$F` the instrument file."""
    line = f"mount -t tmpfs -o size={size} tmpfs /dev/shm && {script}"
    return subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", line],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=lab.folder,
        env={"PATH": "/usr/bin:/bin", "B": str(lab.beamport), "F": str(lab.file), "D": str(lab.folder)},
        **more,
    )


def test_demonstrations_that_begin_at_once_do_not_clear_each_other(lab, nexus, times):
    count, races = 6, times(2, 20)
    for race in range(races):
        started = [lab.popen("demo", "--duration", "300 ms", "--json", "--data", lab.data) for _ in range(count)]
        ended = [process.wait(HANG_S) for process in started]
        said = [lab.said(process) for process in started]
        # One after the other may both succeed; what is never seen is one that broke another.
        assert 0 in ended and set(ended) <= {0, 2}, said
        for status, (out, err) in zip(ended, said, strict=True):
            assert json.loads(out)["closed"] if status == 0 else "is in use" in err, (race, out, err)
    print(f"demonstrations at once: {races} x {count} injected, lost 0, broken 0")


def test_demonstration_that_cannot_begin_leaves_nothing(lab, nexus):
    text = lab.folder / "text.h5"
    text.write_text("no HDF5")
    for flags in (["--from", text], ["--from", lab.folder / "absent"], ["--profile", "estia", "--scale", "100"]):
        done = lab.run("demo", *flags, "--duration", "1 s", "--data", lab.folder / "never", status=2)
        assert done.stderr.startswith(b"error:") and b"demo.toml" not in done.stderr, done.stderr
        assert not (lab.folder / "never").exists()
    print("demonstrations that cannot begin: 3 injected, nothing left behind")


@pytest.mark.root
def test_too_little_shared_memory_is_refused_with_one_sum(lab):
    lab.write(SMALL.format(live="64 MiB", duration="100 ms"))
    sums = set()
    for verb, status in (("check", 2), ("up", 2), ("doctor", 1)):
        process = small_memory(lab, "16m", f"exec $B {verb} $F")
        out, err = (stream.decode() for stream in process.communicate(timeout=HANG_S))
        assert process.returncode == status, (verb, out, err)
        told = out + err
        sums.add(re.search(r"need ([0-9.]+ [kMG]B)", told)[1])
        assert "lab.toml:8" in told and "lower `live` of `detector`, which is 64 MiB" in told, told
    assert len(sums) == 1, sums
    assert not lab.data.exists()
    # What fits goes.
    process = small_memory(lab, "100m", "exec $B up $F")
    assert process.communicate(timeout=HANG_S) and process.returncode == 0
    print(f"too little shared memory: 3 injected, refused with one sum, {sums.pop()}")


@pytest.mark.root
def test_shared_memory_that_fills_up_is_told_and_heals(lab):
    lab.write(SMALL.format(live="32 MiB", duration="3 s"))
    fill = "(sleep 1; head -c 100m /dev/zero > /dev/shm/filler; touch $D/filled; sleep 2; rm /dev/shm/filler) &"
    process = small_memory(lab, "48m", f"{fill} exec $B up $F --json")
    out, err = (stream.decode() for stream in process.communicate(timeout=HANG_S))
    assert process.returncode == 0, err
    assert "stream `detector` failed" in err and "No space left on device" in err and "hint:" in err, err
    report = json.loads(out)
    line = report["streams"][0]
    # 14 pulses a second, also those that had to wait.
    assert report["closed"] and line["lost"] == 0 and line["messages"] in (41, 42, 43), line
    print(f"full shared memory: 1 injected, lost 0 of {line['messages']}")
