"""The code of a source: `python -m beamport._source JSON`, started by `beamport up`.

The code yields; each value becomes messages of a stream in shared memory, from which the source takes them. Without room
there it waits at its `yield`. On stdin, a socket, comes where to begin, and from there goes a byte when there is something
new.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import inspect
import json
import os
import signal
import socket
import sys
import time
import traceback
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from types import FrameType
from typing import Any

from ._core import _Yielded
from ._slot import _copied, _die_with, declare, load
from ._state import decode, encode
from ._worker import _fits, taken_by, with_files

# A `save()` that takes longer, s of a processor, takes at most one part in so many of the time: it is called less often.
_CHEAP = 1e-3
_SAVE_RATIO = 10


class _End(BaseException):
    """Raised in the code where it waits, when the source is to end."""


class Source:
    """The code of a source, with its parameters and its state."""

    def __init__(self, target: Any, parameters: dict[str, Any], saved: str | None) -> None:
        """Make an instance of a class, with the state that it had; a function is called by `begin`."""
        parameters = with_files(parameters)
        misfit(target, parameters)
        self._target, self._parameters = target, parameters
        self._made = target(**parameters) if inspect.isclass(target) else None
        self._hook("setup")()
        if saved is not None and self.has_state:
            self._made.restore(decode(saved))

    @property
    def has_state(self) -> bool:
        """Whether it says where it is, and goes on from there."""
        return hasattr(self._made, "save")

    def save(self) -> str:
        """Write its state as text."""
        return encode(self._made.save())

    def begin(self) -> Iterator[Any] | AsyncIterator[Any]:
        """Call it: the iterator of what it yields."""
        if self._made is None:
            begun = self._target(**self._parameters)
        elif hasattr(self._made, "__aiter__") or hasattr(self._made, "__iter__"):
            begun = self._made
        else:
            begun = self._made()
        if hasattr(begun, "__aiter__"):
            return begun.__aiter__()  # type: ignore[no-any-return]
        if inspect.iscoroutine(begun):
            begun.close()
            raise TypeError("an `async def` without `yield` is no source: write `yield value` in it")
        if not hasattr(begun, "__iter__") or isinstance(begun, str | bytes | dict):
            raise TypeError(
                f"the code returned a `{type(begun).__name__}`: write `yield value` in place of `return value`"
            )
        return iter(begun)

    def close(self) -> None:
        """End it."""
        self._hook("teardown")()

    def _hook(self, name: str) -> Callable[[], Any]:
        return getattr(self._made, name, lambda: None)


def misfit(target: Any, parameters: dict[str, Any]) -> None:
    """Raise `TypeError` for parameters that code does not take, and for a class that is no source."""
    if not callable(target):
        raise TypeError("it is neither a function nor a class")
    _fits(target, parameters, 0)
    if not inspect.isclass(target):
        return
    if not any(hasattr(target, name) for name in ("__iter__", "__aiter__")) and "__call__" not in dir(target):
        raise TypeError("a class that is a source has a method `__iter__` or `__aiter__` that yields")
    if hasattr(target, "save") != hasattr(target, "restore"):
        raise TypeError("a class with state has both methods, `save(self)` and `restore(self, state)`")


class _Driver:
    """Runs the code, and passes on what it yields."""

    def __init__(self, source: Source, out: _Yielded, wake: socket.socket) -> None:
        self._source, self._out, self._wake = source, out, wake
        self.is_ending = False
        self._can_raise = False
        # Cancels what an asynchronous generator waits for.
        self._cancel: Callable[[], Any] | None = None
        # When the state was saved, what that took lately, and whether something was yielded since; seconds.
        self._saved, self._costs, self._has_news = -1e9, deque([0.0], maxlen=4), True

    def end(self, _signal: int, _frame: FrameType | None) -> None:
        """Have the code end where it waits."""
        self.is_ending = True
        if self._can_raise:
            raise _End
        if self._cancel is not None:
            self._cancel()

    def begin(self, had_state: bool) -> Iterator[Any] | AsyncIterator[Any]:
        """Call the code. `had_state`: the source has kept a state."""
        self._can_raise = True
        begun = self._source.begin()
        self._can_raise = False
        self.note("begun")
        if had_state and not self._source.has_state:
            self.note("saved")
        # The state that it was given is the newest.
        self._has_news = not had_state
        self._save()
        self._show()
        return begun

    def run(self, values: Iterator[Any]) -> None:
        """Pass on what a generator yields, until it ends or is to end."""
        try:
            while True:
                # Before it is looked whether the source is to end: a signal in between is then raised here.
                self._can_raise = True
                if self.is_ending:
                    return
                try:
                    value = next(values)
                except StopIteration:
                    self._can_raise = False
                    return self._end_of_code()
                self._put(value, values)
        except _End:
            pass
        finally:
            self._can_raise = False
            if hasattr(values, "close"):
                values.close()

    async def run_async(self, values: AsyncIterator[Any]) -> None:
        """Pass on what an asynchronous generator yields, until it ends or is to end."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)  # type: ignore[union-attr]
        try:
            while not self.is_ending:
                try:
                    value = await values.__anext__()
                except StopAsyncIteration:
                    return self._end_of_code()
                self._can_raise = True
                self._put(value, values)
        except (_End, asyncio.CancelledError):
            if not self.is_ending:
                raise
        finally:
            self._can_raise = False
            if hasattr(values, "aclose"):
                await values.aclose()

    def note(self, kind: str, text: str = "") -> None:
        self._out.note(kind, text, time.time_ns())

    def raised(self, wrong: BaseException) -> None:
        """Say that the code has raised an exception."""
        self.note("raised", _traceback(wrong))
        self._show()

    def _put(self, value: Any, values: Any) -> None:
        now = time.time_ns()
        refused = self._out.give(value, now)
        self._can_raise = False
        if refused is not None:
            place = _place(values)
            self._out.note("refused", f"{type(refused).__name__}: {refused}{place}", now)
        self._has_news = True
        self._save()
        self._show()

    def _end_of_code(self) -> None:
        self._saved = -1e9
        self._save()
        self._source.close()
        self.note("ended")
        self._show()

    def _save(self) -> None:
        """Append the state of the code, if saving does not take too much of the time."""
        if not self._has_news or not self._source.has_state:
            return
        # One that was slow once is not slow.
        cost = min(self._costs)
        if cost > _CHEAP and time.perf_counter() - self._saved < _SAVE_RATIO * cost:
            return
        began = time.thread_time()
        text = json.dumps({"numbers": self._out.numbers(), "state": self._source.save()})
        self.note("saved", text)
        self._saved = time.perf_counter()
        self._has_news = False
        self._costs.append(time.thread_time() - began)

    def _show(self) -> None:
        self._out.publish()
        # A full socket wakes the source as well; a source that is gone ends this process.
        with contextlib.suppress(OSError):
            self._wake.send(b"!", socket.MSG_DONTWAIT)


def _place(values: Any) -> str:
    """Say where a generator yielded."""
    for frame in (getattr(values, "gi_frame", None), getattr(values, "ag_frame", None)):
        if frame is not None:
            return f"\n(yielded in {frame.f_code.co_filename}, line {frame.f_lineno})"
    return ""


def _traceback(wrong: BaseException) -> str:
    """The traceback, without our own frames."""
    frames = wrong.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(wrong), wrong, frames))


def _declared(code: dict[str, Any]) -> dict[str, Any]:
    target = load(code["call"], code["folder"], _copied(code))
    try:
        misfit(target, with_files(code["parameters"]))
    except TypeError as wrong:
        return {"misfit": str(wrong), "takes": taken_by(target, 0) if callable(target) else []}
    return {}


def _socket() -> tuple[socket.socket, dict[str, Any]]:
    """The socket to the source, and where to begin. The code has an empty stdin."""
    wake = socket.socket(fileno=os.dup(0))
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    with wake.makefile("rb") as lines:
        return wake, json.loads(lines.readline())


def main() -> int:
    """Run the code of a source until it ends, or is to end."""
    text = os.fsencode(sys.argv[1])
    job = json.loads(text)
    _die_with(job["parent"])
    # A pipe leads to the mover, which prints each line with the name of the source: a line must not wait for others.
    sys.stdout.reconfigure(line_buffering=True)
    if "source" not in job:
        return declare(lambda: _declared(job["code"]))
    # Ctrl-C is for the mover: it asks this process to end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable()
    wake, start = _socket()
    saved = json.loads(start["saved"]) if start["saved"] else {"numbers": {}, "state": None}
    out = _Yielded(text, start["numbers"])
    driver: _Driver | None = None
    try:
        code = job["code"]
        source = Source(load(code["call"], code["folder"], _copied(code)), code["parameters"], saved["state"])
        if start["saved"] and source.has_state:
            out.set_numbers(saved["numbers"])
        driver = _Driver(source, out, wake)
        signal.signal(signal.SIGTERM, driver.end)
        values = driver.begin(bool(start["saved"]))
        if isinstance(values, AsyncIterator):
            asyncio.run(driver.run_async(values))
        else:
            driver.run(values)
        if driver.is_ending:
            source.close()
    except _End:
        return 0
    except BaseException as wrong:  # noqa: BLE001 - `sys.exit` of the code as well
        if driver is not None and driver.is_ending:
            traceback.print_exc()
            return 0
        print(_traceback(wrong), file=sys.stderr, end="")
        (driver or _Driver(None, out, wake)).raised(wrong)  # type: ignore[arg-type]
        return 3
    finally:
        out.publish()
    return 0


if __name__ == "__main__":
    sys.exit(main())
