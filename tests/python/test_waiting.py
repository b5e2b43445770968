"""Waiting for messages: asleep, by a descriptor, beside other threads, and across a fork."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import selectors
import signal
import threading
import time

import beamport
import pytest
from beamport._core import _Writer
from payloads import SECOND, T0, write_events

# A guard against hanging, not a promise.
GUARD_S = 60


def readable(things, seconds: float = GUARD_S) -> bool:
    return select.select([things], [], [], seconds)[0] == [things]


@pytest.mark.parametrize("how", ["read", "batches"])
def test_select_tells_of_each_message_once(memory, how):
    writer = write_events(memory / "detector", range(2), close=False)
    things = getattr(beamport.open(memory)["detector"], how)(follow=True)
    sequences = []
    for n in range(2, 40):
        while len(sequences) < n:
            assert readable(things)
            thing = things.poll()
            # The first look may find nothing: the descriptor is readable at first.
            if thing is not None:
                sequences += [thing.sequence] if how == "read" else thing.sequences.tolist()
        assert not readable(things, 0)
        assert things.poll() is None
        writer.append(b"more", T0)
    assert sequences == list(range(39))
    writer.close()


def test_next_after_select_does_not_wait(memory):
    writer = write_events(memory / "detector", range(3), close=False)
    messages = beamport.open(memory)["detector"].read(follow=True, timeout=GUARD_S)
    seen = []
    while readable(messages, 0):
        seen.append(next(messages).sequence)
    assert seen == [0, 1, 2]
    threading.Timer(0.05, writer.append, (b"late", T0)).start()
    assert readable(messages) and next(messages).sequence == 3
    assert not readable(messages, 0)


def test_messages_that_are_not_wanted_wake_but_do_not_show(memory):
    writer = write_events(memory / "detector", [], close=False)
    messages = beamport.open(memory)["detector"].read(follow=True, origin="b")
    assert messages.poll() is None
    messages.fileno()
    for n in range(20):
        assert readable(messages, 0) or n > 0
        assert messages.poll() is None
        writer.append(b"x", T0, origin="a")
        assert readable(messages) and messages.poll() is None
        writer.append(b"y", T0, origin="b")
        assert readable(messages) and messages.poll().origin == "b"


def test_asyncio_reads_two_streams(memory):
    names, count = ["a", "b"], 200
    writers = {name: _Writer(memory / name) for name in names}
    data = beamport.open(memory)
    seen: dict[str, list[int]] = {name: [] for name in names}

    async def main() -> None:
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def drain(name: str, messages) -> None:
            while (message := messages.poll()) is not None:
                seen[name].append(message.sequence)
            if all(len(got) == count for got in seen.values()):
                done.set()

        following = {name: data[name].read(follow=True) for name in names}
        for name, messages in following.items():
            loop.add_reader(messages, drain, name, messages)
        thread = threading.Thread(target=write)
        thread.start()
        await asyncio.wait_for(done.wait(), GUARD_S)
        thread.join()
        for messages in following.values():
            loop.remove_reader(messages)
            messages.close()

    def write() -> None:
        for n in range(count):
            for writer in writers.values():
                writer.append(b"%d" % n, T0)

    asyncio.run(main())
    assert seen == {name: list(range(count)) for name in names}


def test_the_end_is_readable_and_poll_says_so(memory):
    writer = write_events(memory / "detector", range(2), close=False)
    messages = beamport.open(memory)["detector"].read(follow=True, stop=3)
    with selectors.DefaultSelector() as selector:
        selector.register(messages, selectors.EVENT_READ)
        assert [messages.poll().sequence, messages.poll().sequence] == [0, 1]
        assert messages.poll() is None and not selector.select(0)
        writer.append(b"last", T0)
        assert selector.select(GUARD_S) and messages.poll().sequence == 2
        for _ in range(2):
            assert selector.select(0)
            with pytest.raises(EOFError):
                messages.poll()
        assert list(messages) == []
    with pytest.raises(EOFError):
        beamport.open(memory)["detector"].read(follow=True, start=3, until=T0).poll()


def test_poll_without_following_ends_with_the_stream(memory):
    write_events(memory / "detector", range(2))
    messages = beamport.open(memory)["detector"].read()
    assert [messages.poll().sequence, messages.poll().sequence] == [0, 1]
    with pytest.raises(EOFError):
        messages.poll()
    messages = beamport.open(memory)["detector"].read()
    with pytest.raises(beamport.Error, match="follow=True"):
        messages.fileno()


def test_a_closed_iteration_leaves_no_thread_and_no_descriptor(memory):
    write_events(memory / "detector", range(2))
    stream = beamport.open(memory)["detector"]
    count = lambda: (len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd")))  # noqa: E731
    next(stream.read())
    before = count()
    for n in range(50):
        messages = stream.read(follow=True)
        descriptor = messages.fileno()
        assert messages.fileno() == descriptor
        while messages.poll() is not None:
            pass
        if n % 2:
            messages.close()
            with pytest.raises(ValueError, match="ended"):
                messages.fileno()
        del messages
        # A thread stands in /proc for a moment after it was joined.
        began = time.monotonic()
        while count() != before and time.monotonic() - began < GUARD_S:
            time.sleep(0.001)
        assert count() == before


def test_a_second_writer_is_seen(memory):
    write_events(memory / "detector", range(2))
    messages = beamport.open(memory)["detector"].read(follow=True)
    messages.fileno()
    assert [messages.poll().sequence, messages.poll().sequence] == [0, 1]
    write_events(memory / "detector", [2])
    while (message := messages.poll()) is None:
        assert readable(messages)
    assert message.sequence == 2


def test_another_thread_counts_while_one_waits(memory):
    writer = write_events(memory / "detector", range(1), close=False)
    messages = beamport.open(memory)["detector"].read(follow=True, start=1)
    waiting, counted, seen = threading.Event(), [0], []

    def wait() -> None:
        waiting.set()
        seen.append(next(messages).sequence)

    thread = threading.Thread(target=wait)
    thread.start()
    assert waiting.wait(GUARD_S)
    # If waiting kept the interpreter to itself, the message would never be written.
    while counted[0] < 200_000:
        counted[0] += 1
    assert thread.is_alive() and not seen
    writer.append(b"now", T0)
    thread.join(GUARD_S)
    assert seen == [1]


def test_a_forked_child_must_not_use_what_its_parent_opened(memory):
    """Neither a reader that follows, nor its descriptor, nor a writer; and the parent goes on as if nothing was."""
    writer = write_events(memory / "detector", range(1), close=False)
    messages = beamport.open(memory)["detector"].read(follow=True)
    assert messages.fileno() >= 0 and messages.poll().sequence == 0
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            for use in (messages.fileno, messages.poll, lambda: next(messages), lambda: writer.append(b"child", T0)):
                try:
                    use()
                except beamport.Error as error:
                    assert "fork" in error.what, error
                else:
                    raise AssertionError("used after a fork")
            writer.close()
            messages.close()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert not readable(messages, 0)
    writer.append(b"parent", T0)
    assert readable(messages)
    assert (message := messages.poll()).sequence == 1 and bytes(message.payload) == b"parent"
    writer.close()


@pytest.mark.parametrize("how", ["read", "batches"])
def test_threads_share_one_iteration(memory, how):
    """Each message goes to exactly one thread, and a thread that waits does not keep the others from ending it."""
    writer = write_events(memory / "detector", [], close=False)
    shared = getattr(beamport.open(memory)["detector"], how)(follow=True, stop=3000)
    seen: list[list[int]] = [[] for _ in range(4)]

    def go(mine: list[int]) -> None:
        for item in shared:
            mine += [item.sequence] if how == "read" else item.sequences.tolist()

    threads = [threading.Thread(target=go, args=[mine]) for mine in seen]
    for thread in threads:
        thread.start()
    for _ in range(3000):
        writer.append(b"some", T0)
    for thread in threads:
        thread.join(GUARD_S)
        assert not thread.is_alive()
    assert sorted(sum(seen, [])) == list(range(3000))
    assert all(mine == sorted(mine) for mine in seen)
    writer.close()


def test_another_thread_ends_an_iteration_that_waits(memory):
    writer = write_events(memory / "detector", range(1), close=False)
    messages = beamport.open(memory)["detector"].read(follow=True)
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.extend(m.sequence for m in messages))
    thread.start()
    began = time.monotonic()
    while not seen and time.monotonic() - began < GUARD_S:
        time.sleep(0.001)
    assert messages.position[2] == 1
    messages.close()
    thread.join(GUARD_S)
    assert not thread.is_alive() and seen == [0]
    writer.close()


def test_a_signal_handler_ends_an_iteration_that_waits(memory):
    """It runs between two turns of the thread that waits: no thread waits for itself."""
    writer = write_events(memory / "detector", range(2), close=False)
    messages = beamport.open(memory)["detector"].read(follow=True)
    before = signal.signal(signal.SIGALRM, lambda *_: messages.close())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        assert [m.sequence for m in messages] == [0, 1]
    finally:
        signal.signal(signal.SIGALRM, before)
    writer.close()


def test_a_process_forked_while_a_thread_waits(memory):
    """The thread that has the turn does not exist in the child, which must not wait for it."""
    writer = write_events(memory / "detector", range(1), close=False)
    messages = beamport.open(memory)["detector"].read(follow=True, stop=2)
    thread = threading.Thread(target=lambda: list(messages))
    thread.start()
    for _ in range(20):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                with pytest.raises(beamport.Error, match="fork"):
                    next(messages)
                messages.close()
                status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    writer.append(b"last", T0)
    thread.join(GUARD_S)
    assert not thread.is_alive()
    writer.close()


@pytest.mark.parametrize("how", ["read", "batches"])
def test_async_for_goes_on_beside_others(memory, how):
    """Two tasks of one iteration, one of another, and the loop itself."""
    writer, count = write_events(memory / "detector", [], close=False), 500
    stream = beamport.open(memory)["detector"]
    seen: list[list[int]] = [[], [], []]

    async def follow(items, mine: list[int]) -> None:
        async for item in items:
            mine += [item.sequence] if how == "read" else item.sequences.tolist()

    async def main() -> None:
        read = getattr(stream, how)
        shared, alone = read(follow=True, stop=count), read(follow=True, stop=count)
        tasks = [follow(shared, seen[0]), follow(shared, seen[1]), follow(alone, seen[2])]
        await asyncio.wait_for(asyncio.gather(write(), *tasks), GUARD_S)

    async def write() -> None:
        for n in range(count):
            writer.append(b"%d" % n, T0)
            await asyncio.sleep(0)

    asyncio.run(main())
    assert sorted(seen[0] + seen[1]) == seen[2] == list(range(count))
    writer.close()


def test_async_for_ends_as_for_does(memory):
    writer = write_events(memory / "detector", range(3), close=False)
    stream = beamport.open(memory)["detector"]

    async def main() -> None:
        assert [m.sequence async for m in stream.read()] == [0, 1, 2]
        assert [m.sequence async for m in stream.read(follow=True, timeout=0.05)] == [0, 1, 2]
        until = time.time_ns() + SECOND // 10
        assert [m.sequence async for m in stream.read(follow=True, start=1, until=until)] == [1, 2]
        messages = stream.read(follow=True)
        assert [(await anext(messages)).sequence for _ in range(3)] == [0, 1, 2]
        waiting = asyncio.create_task(anext(messages))
        await asyncio.sleep(0.01)
        messages.close()
        with pytest.raises(StopAsyncIteration):
            await asyncio.wait_for(waiting, GUARD_S)

    asyncio.run(main())
    writer.close()


def test_a_cancelled_task_takes_no_message_with_it(memory):
    writer = write_events(memory / "detector", range(1), close=False)
    messages = beamport.open(memory)["detector"].read(follow=True)
    descriptors = lambda: len(os.listdir("/proc/self/fd"))  # noqa: E731

    async def main() -> None:
        assert (await anext(messages)).sequence == 0
        before = None
        for n in range(1, 50):
            task = asyncio.create_task(anext(messages))
            await asyncio.sleep(0.001 if n % 2 else 0)
            if n % 3 == 0:
                writer.append(b"between", T0)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
                raise AssertionError("it was cancelled before it ran on")
            before = before or descriptors()
            assert descriptors() == before
            if n % 3 == 0:
                assert (await asyncio.wait_for(anext(messages), GUARD_S)).sequence == n // 3

    asyncio.run(main())
    messages.close()
    writer.close()
