"""Other processes: signals, forks, and readers that were started anew."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import traceback

import beamport
import numpy as np
import pytest
from payloads import T0, ev44, pixels_of, write_events
from signals import stop

# A guard against hanging, not a promise.
GUARD_S = 60


def child(code: str, *arguments) -> subprocess.Popen:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)], **pipes, text=True)


@pytest.mark.parametrize("follow", ["read", "batches"])
def test_ctrl_c_ends_waiting(memory, follow):
    write_events(memory / "detector", range(2))
    code = """if True:
        import signal, sys, beamport
        # Who starts the tests may have them ignore it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        stream = beamport.open(sys.argv[1])["detector"]
        things = getattr(stream, sys.argv[2])(follow=True)
        next(things)
        print("waiting", flush=True)
        for thing in things:
            pass
        print("ended by itself", flush=True)
    """
    process = child(code, memory, follow)
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=GUARD_S)
    assert err.rstrip().endswith("KeyboardInterrupt") and out == ""
    assert process.returncode == -signal.SIGINT


def test_another_process_reads_the_same(memory):
    writer = write_events(memory / "detector", range(100), close=False)
    code = """if True:
        import sys, zlib, beamport
        for m in beamport.open(sys.argv[1])["detector"].read(follow=True, stop=101):
            print(zlib.crc32(m.payload), flush=True)
    """
    process = child(code, memory)
    import zlib

    for n in range(100):
        want = zlib.crc32(ev44(n, T0 + n * 10**9, pixels_of(n)))
        assert process.stdout.readline() == f"{want}\n"
    writer.append(b"at last" * 8, T0)
    out, err = process.communicate(timeout=GUARD_S)
    assert (out, err) == (f"{zlib.crc32(b'at last' * 8)}\n", "")
    writer.close()


def in_fork(work) -> None:
    """Run `work` in a forked child, and fail if it failed there."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_forked_child_opens_anew(memory):
    write_events(memory / "detector", range(5))
    data = beamport.open(memory)
    messages = data["detector"].read()
    m = next(messages)

    def work():
        for use in (lambda: next(data["detector"].read()), lambda: beamport.open(memory)["detector"].read(start=-1)):
            assert use() is not None
        assert [n.sequence for n in data["detector"].read()] == [0, 1, 2, 3, 4]
        (batch,) = data["detector"].batches()
        assert batch.concat("pixel_id").size == 15

    in_fork(work)

    def refused():
        for use in (lambda: m["pixel_id"], lambda: m.payload, lambda: list(messages) and list(messages)):
            try:
                use()
            except beamport.Error as error:
                assert "beamport.open" in error.hint
            else:
                raise AssertionError("used after a fork")

    messages.close()
    messages = data["detector"].read()
    in_fork(refused)
    assert np.array_equal(m["pixel_id"], pixels_of(0))


def test_a_forked_child_does_not_let_go_what_its_parent_holds(memory):
    writer = write_events(memory / "detector", range(20), count=1000, close=False, when_full="drop-oldest")
    stream = beamport.open(memory)["detector"]
    holder = {"held": [m["pixel_id"] for m in stream.read()], "messages": stream.read(), "stream": stream}
    next(holder["messages"])

    def work():
        holder.clear()
        gc.collect()

    in_fork(work)
    for n in range(20, 8000):
        writer.append(ev44(n, T0, pixels_of(n, 1000)), T0)
    assert stream.first > 1000
    for n, view in enumerate(holder["held"]):
        assert np.array_equal(view, pixels_of(n, 1000)), f"message {n} changed under its view"
    writer.close()


def test_the_end_of_a_writer_leaves_its_views(memory):
    """A writer that is killed takes nothing away from those who read."""
    code = """if True:
        import sys, time
        sys.path.insert(0, sys.argv[2])
        from pathlib import Path
        from payloads import write_events
        writer = write_events(Path(sys.argv[1]) / "detector", range(50), close=False)
        print("written", flush=True)
        time.sleep(600)
    """
    process = child(code, memory, os.path.dirname(__file__))
    assert process.stdout.readline() == "written\n"
    stream = beamport.open(memory)["detector"]
    assert stream.written
    views = [m["pixel_id"] for m in stream.read()]
    process.kill()
    process.communicate(timeout=GUARD_S)
    assert not stream.written
    assert len(views) == 50 and all(np.array_equal(view, pixels_of(n)) for n, view in enumerate(views))
    # What was marked `memory` is there for the next writer too.
    write_events(memory / "detector", [50])
    assert [m.origin_seq for m in stream.read()] == list(range(51))


@pytest.mark.parametrize("when_full", ["wait", "drop-oldest"])
def test_a_stopped_process_keeps_its_views_and_holds_up_nobody(memory, when_full):
    writer = write_events(memory / "detector", range(20), count=1000, close=False, when_full=when_full)
    stream = beamport.open(memory)["detector"]
    code = """if True:
        import sys, zlib, beamport
        views = [m["pixel_id"] for m in beamport.open(sys.argv[1])["detector"].read()]
        while True:
            print(*(zlib.crc32(view) for view in views), flush=True)
            sys.stdin.readline()
    """
    written = 20

    def lap():
        nonlocal written
        oldest = stream.first
        for n in range(written, written + 8000):
            writer.append(ev44(n, T0, pixels_of(n, 1000)), T0)
        written += 8000
        assert stream.first > oldest + 1000, "the ring did not turn"

    process = child(code, memory)
    before = process.stdout.readline()
    assert len(before.split()) == 20
    stop(process.pid)
    lap()
    os.kill(process.pid, signal.SIGCONT)
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == before
    # It is stopped again and never goes on: what it held is nobody's then.
    stop(process.pid)
    lap()
    process.kill()
    process.communicate(timeout=GUARD_S)
    lap()
    for m in stream.read():
        assert np.array_equal(m["pixel_id"], pixels_of(m.sequence, 1000)), f"message {m.sequence} is wrong"
    writer.close()
    print("stopped with numpy views: 1 process injected twice, then killed; 20 views unchanged, the writer went on")
