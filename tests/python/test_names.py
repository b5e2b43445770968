"""Readers that keep their position: by name, and by identity."""

from __future__ import annotations

import datetime
import json
import os
import shutil
import signal
import subprocess
import sys

import beamport
import numpy as np
import pytest
from beamport._core import _Writer
from payloads import SECOND, T0, f144, pixels_of, write_events

# A guard against hanging, not a promise.
GUARD_S = 60


def sequences(messages) -> list[int]:
    return [m.sequence for m in messages]


@pytest.mark.parametrize("level", ["memory", "disk"])
def test_a_name_goes_on_where_it_committed(memory, disk, level):
    folder = memory if level == "memory" else disk
    write_events(folder / "detector", range(10), level=level)
    stream = beamport.open(folder)["detector"]
    with stream.read(name="analysis") as messages:
        assert (messages.committed, messages.lag) == (0, 10)
        assert [next(messages).sequence for _ in range(4)] == [0, 1, 2, 3]
        messages.commit()
        assert (messages.committed, messages.lag) == (4, 6)
        assert next(messages).sequence == 4
    # What was handed out and not committed comes again.
    with stream.read(name="analysis") as messages:
        assert sequences(messages) == [4, 5, 6, 7, 8, 9]
        messages.commit()
        assert messages.lag == 0
    assert sequences(stream.read(name="analysis")) == []
    assert sequences(stream.read(name="other", stop=2)) == [0, 1]


def test_batches_are_committed_too(memory):
    write_events(memory / "detector", range(10))
    stream = beamport.open(memory)["detector"]
    with stream.batches(name="analysis", stop=6) as batches:
        assert sum(len(batch) for batch in batches) == 6
        batches.commit()
    with stream.batches(name="analysis") as batches:
        assert np.concatenate([b.sequences for b in batches]).tolist() == [6, 7, 8, 9]


def test_each_form_of_start(memory):
    write_events(memory / "detector", range(10))
    stream = beamport.open(memory)["detector"]
    at = T0 + 6 * SECOND
    starts = {
        "beginning": 0,
        "end": 10,
        7: 7,
        -3: 7,
        "2026-03-01T12:00:06Z": 6,
        datetime.datetime.fromtimestamp(at / SECOND, tz=datetime.UTC): 6,
        np.datetime64(at - 1, "ns"): 6,
        (stream.uuid, stream.epoch, 5): 5,
    }
    for number, (start, want) in enumerate(starts.items()):
        assert sequences(stream.read(start=start)) == list(range(want, 10)), start
        with stream.read(name=f"r{number}", start=start) as messages:
            assert messages.committed == want, start
            assert sequences(messages) == list(range(want, 10)), start
    # A name that is known goes on; a position, which says exactly what is meant, counts.
    with stream.read(name="r0", start="end", stop=3) as messages:
        assert sequences(messages) == [0, 1, 2]
        messages.commit()
    with stream.read(name="r0", start=json.loads(json.dumps((stream.uuid, stream.epoch, 8)))) as messages:
        assert (messages.committed, sequences(messages)) == (8, [8, 9])


def test_what_is_not_wanted_is_committed_with_what_is(memory):
    with _Writer(memory / "s") as writer:
        for n in range(9):
            writer.append(f144(n, T0), T0 + n, origin=("a", "b", "c")[n % 3])
    stream = beamport.open(memory)["s"]
    messages = stream.read(name="analysis", origin="b")
    assert next(messages).sequence == 1
    assert messages.position[2] == 2
    assert sequences(messages) == [4, 7]
    assert messages.position[2] == 9
    messages.commit()
    assert messages.lag == 0


def test_only_one_reads_under_a_name(memory):
    write_events(memory / "detector", range(3))
    stream = beamport.open(memory)["detector"]
    messages = stream.read(name="analysis")
    view = next(messages)["pixel_id"]
    with pytest.raises(beamport.Error) as caught:
        stream.read(name="analysis")
    assert caught.value.cause == f"process {os.getpid()} reads as `analysis`"
    assert "close()" in caught.value.hint
    code = """if True:
        import sys, beamport
        stream = beamport.open(sys.argv[1])["detector"]
        for ask in (lambda: stream.read(name="analysis"), lambda: stream.forget("analysis")):
            try:
                ask()
            except beamport.Error as error:
                print(error.cause)
    """
    answer = subprocess.run([sys.executable, "-c", code, memory], capture_output=True, text=True, timeout=GUARD_S)
    assert (answer.stdout, answer.stderr) == (f"process {os.getpid()} reads as `analysis`\n" * 2, "")
    # A view that is kept does not keep the name.
    messages.close()
    with stream.read(name="analysis") as messages:
        assert sequences(messages) == [0, 1, 2]
    assert np.array_equal(view, pixels_of(0))
    assert stream.forget("analysis") and not stream.forget("analysis")


def test_wrong_names_and_positions_are_refused(memory):
    write_events(memory / "detector", range(3))
    write_events(memory / "other", range(3))
    data = beamport.open(memory)
    stream = data["detector"]
    with pytest.raises(beamport.Error, match="keeps no position"):
        stream.read().commit()
    with pytest.raises(beamport.Error, match="at most 64 bytes"):
        stream.read(name="n" * 65)
    with pytest.raises(beamport.Error, match="not empty"):
        stream.read(name="")
    with pytest.raises(beamport.Error, match="of another stream"):
        stream.read(name="analysis", start=(data["other"].uuid, 1, 1))
    with pytest.raises(beamport.Error, match="ends at 3"):
        stream.read(name="analysis", start=(stream.uuid, 1, 4))
    for start in [("x", 1, 1), (stream.uuid, 1), (stream.uuid, -1, 0)]:
        with pytest.raises(beamport.Error, match="invalid position"):
            stream.read(start=start)
    with stream.read(name="analysis") as messages:
        next(messages)
        with pytest.raises(beamport.Error, match="was not read yet"):
            messages.commit((stream.uuid, 1, 2))
        with pytest.raises(beamport.Error, match="of another stream"):
            messages.commit((data["other"].uuid, 1, 1))
        messages.commit((stream.uuid, 1, 1))
        assert messages.committed == 1


def test_what_is_no_longer_there_is_said_with_its_range(memory):
    options = {"when_full": "drop-oldest", "close": False}
    writer = write_events(memory / "detector", range(10), count=1000, **options)
    stream = beamport.open(memory)["detector"]
    with stream.read(name="analysis", stop=5) as messages:
        assert len(list(messages)) == 5
        messages.commit()
    for n in range(10, 2000):
        writer.append(f144(np.arange(2000.0), T0), T0 + n)
    first = stream.first
    assert first > 10
    with stream.read(name="analysis") as messages, pytest.raises(beamport.Error) as caught:
        next(messages)
    assert caught.value.cause == f"messages 5 to {first} (exclusive) are gone"
    assert caught.value.hint == f"to skip them: `start=(stream.uuid, 1, {first})`"
    with pytest.raises(beamport.Error, match=f"messages 5 to {first}"):
        stream.read(name="analysis", start=(stream.uuid, 1, 5))
    with stream.read(name="analysis", start=(stream.uuid, 1, first)) as messages:
        assert next(messages).sequence == first
    writer.close()


READER = """if True:
    import json, os, sys, time, beamport
    folder, out, how, most = sys.argv[1:]
    stream = beamport.open(folder)["detector"]
    lines = open(out).read().splitlines(keepends=True) if os.path.exists(out) else []
    # What was cut short was not done.
    done = [json.loads(line) for line in lines if line.endswith("\\n")]
    with open(out, "w") as file:
        file.writelines(json.dumps(line) + "\\n" for line in done)
        start = done[-1][1] if done and how == "position" else None
        for n, m in enumerate(reading := stream.read(name="analysis", start=start, follow=True, stop=4000)):
            file.write(json.dumps([m.sequence, reading.position]) + "\\n")
            file.flush()
            if n % 7 == 0:
                reading.commit()
            if len(done) + n + 1 == int(most):
                time.sleep(600)
        reading.commit()
    print("done")
"""


@pytest.mark.parametrize("how", ["position", "commit"])
def test_a_reader_that_is_killed_goes_on(memory, tmp_path, how):
    """By its own position nothing comes twice; by `commit` alone what it had not committed does. Nothing is missing."""
    write_events(memory / "detector", range(4000), live=1 << 24)
    out = tmp_path / "out"
    kills = 0
    for life in range(1, 20):
        # Killed somewhere in its work, further on in each life; it waits there for a killer that comes late.
        most = life * 300 + 200 if life < 5 else 0
        command = [sys.executable, "-c", READER, memory, out, how, str(most)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while most and process.poll() is None:
            if out.exists() and out.read_bytes().count(b"\n") > life * 300:
                process.kill()
                break
        _, err = process.communicate(timeout=GUARD_S)
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL, err
        kills += 1
    seen = [json.loads(line)[0] for line in out.read_text().splitlines()]
    assert kills == 4
    assert sorted(set(seen)) == list(range(4000))
    twice = len(seen) - 4000
    assert twice == 0 if how == "position" else 0 <= twice <= 7 * kills


WRITER = """if True:
    import sys
    sys.path.insert(0, sys.argv[2])
    from pathlib import Path
    from payloads import write_events
    writer = write_events(Path(sys.argv[1]), range(15), level="disk", close=False)
    writer.flush()
    print("written", flush=True)
    sys.stdin.readline()
    for n in range(15, 20):
        writer.append(b"x" * 100, n)
    print("more", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize("by", ["commit", "position"])
def test_a_position_that_a_recovery_cut_is_refused(disk, by):
    """As a power cut has it that takes what an early reader has seen: files as they were before, no shared memory."""
    folder = disk / "detector"
    words = [sys.executable, "-c", WRITER, folder, os.path.dirname(__file__)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stdin=subprocess.PIPE)
    assert process.stdout.readline() == b"written\n"
    before = {path: path.read_bytes() for path in folder.iterdir() if path.name not in ("pins", "lock")}
    process.stdin.write(b"\n")
    process.stdin.flush()
    assert process.stdout.readline() == b"more\n"
    stream = beamport.open(disk)["detector"]
    with stream.read(name="analysis", early=True) as messages:
        assert sequences(messages) == list(range(20))
        messages.commit()
        position = messages.position
    process.kill()
    process.communicate(timeout=GUARD_S)
    live = next(line for line in (folder / "stream").read_text().splitlines() if line.startswith("live "))
    shutil.rmtree(live.removeprefix("live "))
    for path in folder.iterdir():
        if path.name not in ("pins", "lock"):
            path.unlink()
    for path, content in before.items():
        path.write_bytes(content)
    writer = write_events(folder, [20, 21, 22], level="disk", close=False)
    assert writer.flush()
    assert (stream.epoch, stream.count) == (2, 18)
    with pytest.raises(beamport.Error) as caught:
        if by == "commit":
            stream.read(name="analysis")
        else:
            stream.read(start=position)
    assert caught.value.cause == "rewound: epoch 1 has only messages 0 to 15 (exclusive)"
    assert caught.value.hint.endswith("resume with `start=(stream.uuid, 1, 15)`")
    with stream.read(name="analysis", start=(stream.uuid, 1, 15)) as messages:
        assert sequences(messages) == [15, 16, 17]
        assert messages.position == (stream.uuid, 2, 18)
        messages.commit()
    with stream.read(name="analysis") as messages:
        assert messages.lag == 0
    writer.close()
