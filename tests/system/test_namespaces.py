"""Containers on one data folder: with pid namespaces of their own, and with a shared memory of their own."""

import shlex
import subprocess
import sys
import time
from pathlib import Path

import beamport
import pytest
from conftest import HANG_S, lost_of, until

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
# Opens, holds views and leaves again, until the end of its input; how many views there were, and how many changed.
CHURN = """
import os, random, select, sys, beamport
views = changed = 0
print("held", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    name = random.choice([None, None, "one", "two"])
    try:
        reader = beamport.open(sys.argv[1])["cam"].read(name=name)
        held = [(message.payload, bytes(message.payload)) for message, _ in zip(reader, range(5))]
        select.select([sys.stdin], [], [], random.random() / 20)
        changed += sum(bytes(view) != before for view, before in held)
        views += len(held)
        del held
        reader.close()
    except beamport.Error as error:
        assert "reads as" in str(error) or "no longer in the stream" in str(error) or "are gone" in str(error), error
print(views, changed, flush=True)
"""
ALONE = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]


def append(folder: Path, numbers: range):
    with beamport.open(folder).create("cam", level="disk", live=1 << 20) as stream:
        for number in numbers:
            stream.append(b"\0\0\0\0test" + bytes([number % 256]) * 65_536, origin="o", origin_seq=number)


@pytest.mark.parametrize("where", [ALONE, []], ids=["in another namespace", "here"])
def test_a_reader_in_another_pid_namespace_keeps_its_name_and_its_views(tmp_path, where, times):
    data, pipe, count = tmp_path / "data", subprocess.PIPE, 4
    data.mkdir()
    append(data, range(count))
    follow = [*where, sys.executable, "-c", FOLLOW, data]
    rounds = times(5, 200)
    for _ in range(rounds):
        holder = subprocess.Popen([*ALONE, sys.executable, "-c", HOLD, data], stdin=pipe, stdout=pipe, text=True)
        try:
            assert holder.stdout.readline() == "held\n"
            said = subprocess.run(follow, capture_output=True, text=True, timeout=HANG_S)
            assert "reads as `me`" in said.stdout, said
            # The writer goes round the ring.
            append(data, range(count, count + 100))
            count += 100
            out, _ = holder.communicate(timeout=HANG_S)
        finally:
            holder.kill()
            holder.wait()
        assert out == "same\n"
        said = subprocess.run(follow, capture_output=True, text=True, timeout=HANG_S)
        assert said.stdout == "read under the name\n", said
    print(f"namespaces: {rounds} readers attacked by one of the same name, 0 views changed")


def test_views_are_kept_while_places_change_hands(tmp_path, times, dice):
    """Readers in pid namespaces of their own, of few names and of none, that come, hold, leave and are killed."""
    data, pipe = tmp_path / "data", subprocess.PIPE
    data.mkdir()
    append(data, range(10))

    def start() -> subprocess.Popen:
        command = [*dice.choice([ALONE, []]), sys.executable, "-c", CHURN, data]
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)

    readers, count, kills = [start() for _ in range(6)], 10, times(5, 200)
    try:
        for reader in readers:
            assert reader.stdout.readline() == "held\n"
        for _ in range(kills):
            append(data, range(count, count + 60))
            count += 60
            at = dice.randrange(len(readers))
            readers[at].kill()
            readers[at].wait()
            readers[at] = start()
            assert readers[at].stdout.readline() == "held\n"
        append(data, range(count, count + 60))
        said = [reader.communicate(timeout=HANG_S)[0] for reader in readers]
    finally:
        for reader in readers:
            reader.kill()
            reader.wait()
    held = [line.split() for line in said]
    assert all(changed == "0" for _, changed in held), said
    print(
        f"namespaces: {kills} kills of readers that come and go, {sum(int(n) for n, _ in held)} views held, 0 changed"
    )


OWN_MEMORY = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none /dev/shm && exec "$@"', "sh"]


INSTRUMENT = """
[source.cam]
kind = "sim"
model = "amor"
rate = 1e6
live = "4 MiB"
retain = "4 MiB"
"""


def test_views_of_a_container_with_its_own_shared_memory_stay_as_they_are(lab, times):
    lab.write(INSTRUMENT)
    process, _ = lab.up_ready()
    stream, pipe = lab.stream("cam"), subprocess.PIPE
    cold = [*OWN_MEMORY, sys.executable, "-c", COLD, lab.data]
    rounds = times(5, 200)
    for _ in range(rounds):
        reader = subprocess.Popen(cold, stdin=pipe, stdout=pipe, text=True)
        try:
            assert reader.stdout.readline() == "held\n"
            begin = seen = stream.marks()[0]
            for _ in range(10):
                first = stream.marks()[0]
                until(lambda first=first: stream.marks()[0] > first, "retention deletes nothing")
                reader.stdin.write("\n")
                reader.stdin.flush()
                seen = int(reader.stdout.readline())
            out, _ = reader.communicate(timeout=HANG_S)
        finally:
            reader.kill()
            reader.wait()
        assert seen > begin + 10 and out == "0\n", (begin, seen, out)
    lab.interrupt(process)
    lab.end(process)
    print(f"containers: {rounds} readers with another /dev/shm under retention, 0 views changed")


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


MERGE = """
[source.a]
kind = "sim"
model = "amor-devices"
live = "1 MiB"

[source.b]
kind = "sim"
model = "amor-monitor"
live = "1 MiB"

[merge.both]
kind = "time"
inputs = ["a", "b"]

[run.first]
settle = "300 ms"
"""


def test_unclean_starts_of_a_container_lose_nothing_and_each_goes_on(lab, times, dice):
    """kill -9 takes the container with its shared memory: each start recovers from the disk, in a new epoch."""
    lab.write(MERGE)
    plain, contained = lab.beamport, lab.folder / "contained"
    command = shlex.join([*OWN_MEMORY, str(plain)])
    contained.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    contained.chmod(0o755)
    kills = times(5, 500)
    for _ in range(kills):
        lab.beamport = contained
        process, _ = lab.up_ready()
        time.sleep(dice.uniform(0, 0.5))
        lab.kill(process)
        assert "runs are lost" not in lab.said(process)[1], lab.said(process)[1]
    process, _ = lab.up_ready()
    lab.beamport = plain
    time.sleep(1)
    lab.interrupt(process)
    report = lab.report(process, status=None)
    assert report["run"] == "first" and report["closed"] and lost_of(report) == 0, report
    merged = {row["stream"]: row for row in report["ledger"] if row.get("stage") == "both"}
    assert set(merged) == {"a", "b"} and all(row["closed"] for row in merged.values()), merged
    print(f"containers: {kills} kill -9 with the shared memory, one run: closed, 0 lost")
