"""Iterations that asyncio waits for: `async for m in stream.read(follow=True)`."""

from __future__ import annotations

import asyncio
import math
import os
from typing import Protocol, TypeVar

_Item = TypeVar("_Item", covariant=True)


class _Iteration(Protocol[_Item]):
    def _look(self) -> _Item | float | None: ...

    def fileno(self) -> int: ...


async def next_of(iteration: _Iteration[_Item]) -> _Item:
    """Await the next message or batch; the event loop goes on meanwhile.

    Nothing is read while this waits, so a task that is cancelled takes no message with it.
    """
    while True:
        match iteration._look():
            case None:
                raise StopAsyncIteration
            case float(seconds) if seconds > 0:
                await _readable(iteration, None if math.isinf(seconds) else seconds)
            case float():
                await asyncio.sleep(0)
            case item:
                return item


async def _readable(iteration: _Iteration[_Item], seconds: float | None) -> None:
    """Wait until the descriptor is readable, or for so many seconds."""
    loop = asyncio.get_running_loop()
    woken: asyncio.Future[None] = loop.create_future()
    # A copy: a loop has one callback a descriptor, and several tasks may wait for one iteration.
    descriptor = os.dup(iteration.fileno())
    try:
        loop.add_reader(descriptor, lambda: woken.done() or woken.set_result(None))
        await asyncio.wait([woken], timeout=seconds)
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
