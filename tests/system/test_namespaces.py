"""Containers on one data folder: with pid namespaces of their own, and with a shared memory of their own."""

import subprocess
import sys
from pathlib import Path

import beamport
import pytest
from conftest import HANG_S, until

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
# Holds views of all that a reader comes across while the writer goes round the ring; compares them at the end.
COLD = """
import sys, beamport
stream, held = beamport.open(sys.argv[1])["cam"], []
print("held", flush=True)
for line in sys.stdin:
    try:
        for message in stream.read():
            held.append((message.payload, bytes(message.payload)))
            # A reader may keep 32 segments, and a message fills one.
            if len(held) > 20:
                del held[:10]
    except beamport.Error as error:
        assert "no longer in the stream" in str(error), error
    print(message.sequence, flush=True)
print(sum(bytes(view) != before for view, before in held), flush=True)
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


OWN_MEMORY = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none /dev/shm && exec "$@"', "sh"]


INSTRUMENT = """
[source.cam]
kind = "sim"
model = "amor"
rate = 1e6
live = "4 MiB"
retain = "4 MiB"
"""


def test_views_of_a_container_with_its_own_shared_memory_stay_as_they_are(lab):
    lab.write(INSTRUMENT)
    process, _ = lab.up_ready()
    pipe, seen = subprocess.PIPE, 0
    cold = [*OWN_MEMORY, sys.executable, "-c", COLD, lab.data]
    reader = subprocess.Popen(cold, stdin=pipe, stdout=pipe, text=True)
    try:
        assert reader.stdout.readline() == "held\n"
        stream = lab.stream("cam")
        for _ in range(40):
            first = stream.marks()[0]
            until(lambda first=first: stream.marks()[0] > first, "retention deletes nothing")
            reader.stdin.write("\n")
            reader.stdin.flush()
            seen = int(reader.stdout.readline())
        out, _ = reader.communicate(timeout=HANG_S)
    finally:
        reader.kill()
        reader.wait()
    assert seen > 40 and out == "0\n", (seen, out)
    lab.interrupt(process)
    lab.end(process)


def test_a_memory_stream_of_another_container_is_named_and_not_empty(tmp_path, programs):
    with beamport.open(tmp_path).create("cam", level="memory", live=1 << 20) as stream:
        stream.append(b"\0\0\0\0test", origin="o", origin_seq=1)
        program = programs / "beamport"
        look = [*OWN_MEMORY, program, "cat", "cam", "--data", tmp_path]
        said = subprocess.run(look, capture_output=True, text=True, timeout=HANG_S)
        assert said.returncode == 2 and "of another /dev/shm" in said.stderr and "hint:" in said.stderr, said
        look[len(OWN_MEMORY) + 1 : len(OWN_MEMORY) + 3] = ["ls"]
        said = subprocess.run(look, capture_output=True, text=True, timeout=HANG_S)
        assert "elsewhere" in said.stdout, said
        look = [*OWN_MEMORY, sys.executable, "-c", FOLLOW, tmp_path]
        said = subprocess.run(look, capture_output=True, text=True, timeout=HANG_S)
        assert "of another /dev/shm" in said.stdout, said
