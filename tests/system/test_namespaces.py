"""Two containers on one data folder: pid namespaces of their own, one view of the streams."""

import subprocess
import sys
from pathlib import Path

import beamport
import pytest
from conftest import HANG_S

pytestmark = pytest.mark.root

# Holds a view under a name, says so, and compares it at the end of its input.
HOLD = """
import sys, beamport
reader = beamport.open(sys.argv[1])["cam"].read(name="me")
first = next(iter(reader))
view, before = first.payload, bytes(first.payload)
print("held", flush=True)
sys.stdin.read()
print("same" if bytes(view) == before else "changed", flush=True)
"""
FOLLOW = """
import sys, beamport
try:
    for message in beamport.open(sys.argv[1])["cam"].read(name="me"):
        pass
    print("read under the name")
except beamport.Error as error:
    print(error)
"""
ALONE = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]


def append(folder: Path, numbers: range):
    with beamport.open(folder).create("cam", level="disk", live=1 << 20) as stream:
        for number in numbers:
            stream.append(b"\0\0\0\0test" + bytes([number]) * 65_536, origin="o", origin_seq=number)


@pytest.mark.parametrize("where", [ALONE, []], ids=["in another namespace", "here"])
def test_a_reader_in_another_pid_namespace_keeps_its_name_and_its_views(tmp_path, where):
    tmp_path.joinpath("data").mkdir()
    data = tmp_path / "data"
    append(data, range(4))
    pipe = subprocess.PIPE
    holder = subprocess.Popen([*ALONE, sys.executable, "-c", HOLD, data], stdin=pipe, stdout=pipe, text=True)
    try:
        assert holder.stdout.readline() == "held\n"
        follow = [*where, sys.executable, "-c", FOLLOW, data]
        said = subprocess.run(follow, capture_output=True, text=True, timeout=HANG_S)
        assert "reads as `me`" in said.stdout, said
        # The writer goes round the ring.
        append(data, range(4, 200))
        out, _ = holder.communicate(timeout=HANG_S)
    finally:
        holder.kill()
        holder.wait()
    assert out == "same\n"
    said = subprocess.run([*where, sys.executable, "-c", FOLLOW, data], capture_output=True, text=True, timeout=HANG_S)
    assert said.stdout == "read under the name\n", said
