"""PVs of EPICS through a running instrument: its sources read them, and it reads and writes others.

Example:
    from beamport import epics
    with beamport.run("lab.toml") as lab:
        epics.configure(lab, "pvs", add=["LAB:MOT:2.RBV"])
        epics.put(lab, "LAB:MOT:2.VAL", 12.5, timeout=120)
        epics.get(lab, "LAB:SE:T1")
"""

from __future__ import annotations

import os
import selectors
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from ._control import PATIENCE_S, ask
from ._core import Message, Stream
from ._data import Data
from ._errors import Error

__all__ = ["Updates", "configure", "get", "put", "updates"]

# Between two looks at the status of a source: a person does not notice it.
_LOOK_S = 0.05
# The status of a source is up to a second old.
_STATUS_S = 2.0
# Schemas of the messages that stand beside the values of a PV.
_BESIDE = ("al00", "ep01", "un00")
# Messages among which the newest value of a PV is looked for.
_BACK = 65_536


def configure(
    instrument: Data,
    source: str,
    *,
    add: str | Mapping[str, Any] | Sequence[Any] = (),
    remove: str | Mapping[str, Any] | Sequence[Any] = (),
    replace: bool = False,
) -> dict[str, int]:
    """Change the PVs of a running source `pva` or `ca`; returns how many were `added`, `removed`, and its `pvs`.

    source: the NAME of its section `[source.NAME]`.
    add: an entry or a list of them, as in its key `pvs`: names, or dictionaries with `pv`, `schema`, `topic` and more.
    remove: a pattern of names with `*` and `?`, a dictionary with `pv`, `topic` and `schema`, or a list of them.
    replace: remove all PVs that are not in `add`.

    Other PVs are not disturbed. The list is kept in a restart. Raises `Error` if there is no such source, if an entry
    is invalid, or if it does not answer.
    """
    request = {"add": _listed(add), "remove": _listed(remove), "replace": replace}
    answer: dict[str, int] = instrument.ask(source, request)
    return answer


def get(instrument: Data, pv: str, *, timeout: float = 5.0, details: bool = False) -> Any:
    """Read an EPICS PV now.

    pv: the name; a prefix `pva:` or `ca:` chooses the protocol, without one it is that of the source that lists it.
    timeout: how long to wait for the value, in seconds.
    details: return a dictionary of `value`, `text` (that of a choice), `time` (ns since 1970 UTC, or `None`),
        `severity` (0 none, 1 minor, 2 major, 3 invalid), `alarm` and `units`.

    Numbers, texts, lists of them; a choice is its index. The PV needs no source that lists it. Raises `Error` if no
    server has it, or if it is an image, a table or another structure.
    """
    request = {"command": "get", "pv": pv, "timeout": round(timeout * 1e9)}
    answer = ask(instrument.folder, request, patience_s=timeout + PATIENCE_S)
    return answer if details else answer["value"]


def put(instrument: Data, pv: str, value: Any, *, timeout: float = 5.0, wait: bool = True) -> float:
    """Write a value to an EPICS PV; returns the seconds until its server answered.

    pv: the name; a prefix `pva:` or `ca:` chooses the protocol, without one it is that of the source that lists it.
    value: a number, text, bool, or a list or array of them. Text is read as the type of the PV asks; that of a choice
        is its name or index. A number that the type of the PV does not have is refused.
    timeout: how long to wait for the answer, in seconds.
    wait: wait until the record has processed, of a motor until it has arrived; `False` waits for the server alone.

    The instrument records it in the stream `control`, with the answer. Raises `Error` if no server has the PV, if the
    server refuses the value or keeps a part of it, or if it does not answer; the hint says what may help.
    """
    return instrument.put(pv, value, timeout=timeout, wait=wait)


def updates(instrument: Data, pv: str, callback: Callable[[Message], object] | None = None) -> Updates:
    """Follow the values of an EPICS PV that a source lists; returns an iterator of messages, for `for` or `async for`.

    pv: the name, without a prefix.
    callback: a function that a thread of its own calls with each message, in the place of an iteration.

    It begins with the newest value that is there. `close`, or leaving a `with` block, ends it, also from another
    thread. Raises `Error` if no source lists the PV: `configure` adds it.
    """
    end = time.monotonic() + _STATUS_S
    while (found := _find(instrument, pv)) is None and time.monotonic() < end:
        time.sleep(_LOOK_S)
    if found is not None:
        followed = Updates(*found)
        if callback is not None:
            threading.Thread(target=followed._call, args=[callback], daemon=True).start()
        return followed
    hint = f"add it: `beamport.epics.configure(INSTRUMENT, SOURCE, add=[{pv!r}])`"
    raise Error(f"no source lists `{pv}`", "", hint)


class Updates:
    """Values of a PV as they come. Made by `updates`."""

    def __init__(self, stream: Stream, origin: str) -> None:
        """See `updates`."""
        of_pv = (message for message in stream.read(start=-_BACK, origin=origin) if message.schema not in _BESIDE)
        self._newest = next(iter(deque(of_pv, 1)), None)
        start = "end" if self._newest is None else self._newest.sequence + 1
        self._messages = stream.read(start=start, follow=True, early=True, origin=origin)
        # Readable once it is closed.
        self._closed, self._close = os.pipe()
        self._is_closed = False

    def __iter__(self) -> Self:
        """Go through the values."""
        return self

    def __next__(self) -> Message:
        """Wait for the next value."""
        while not self._is_closed:
            message = self._poll()
            if message is not None:
                return message
            with selectors.DefaultSelector() as selector:
                selector.register(self._messages, selectors.EVENT_READ)
                selector.register(self._closed, selectors.EVENT_READ)
                selector.select()
        raise StopIteration

    def __aiter__(self) -> Self:
        """Go through the values."""
        return self

    async def __anext__(self) -> Message:
        """Wait for the next value."""
        import asyncio  # Most programs do without.

        loop = asyncio.get_running_loop()
        while not self._is_closed:
            message = self._poll()
            if message is not None:
                return message
            ready = asyncio.Event()
            for descriptor in (self._messages.fileno(), self._closed):
                loop.add_reader(descriptor, ready.set)
            try:
                await ready.wait()
            finally:
                for descriptor in (self._messages.fileno(), self._closed):
                    loop.remove_reader(descriptor)
        raise StopAsyncIteration

    def close(self) -> None:
        """End it; who waits for a value, also in another thread, does not get one any more."""
        if not self._is_closed:
            self._is_closed = True
            os.close(self._close)

    def __enter__(self) -> Self:
        """Follow the values in the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self.close()

    def __del__(self) -> None:
        """End it."""
        if hasattr(self, "_closed"):
            self.close()
            os.close(self._closed)

    def _poll(self) -> Message | None:
        """Return a value that is there; `None` where there is none now."""
        newest, self._newest = self._newest, None
        if newest is not None:
            return newest
        try:
            while (message := self._messages.poll()) is not None and message.schema in _BESIDE:
                pass
        except EOFError:
            self.close()
            return None
        return message

    def _call(self, callback: Callable[[Message], object]) -> None:
        """Call a function with each value until it is closed."""
        for message in self:
            callback(message)


def _find(instrument: Data, pv: str) -> tuple[Stream, str] | None:
    """Find the stream of a PV, and its origin there."""
    for stage, running in instrument.status()["running"].items():
        for row in (running["status"] or {}).get("streams") or []:
            if row.get("pv") == pv and "schema" in row:
                return instrument[stage], pv if row["topic"] is None else f"{row['topic']}/{pv}"
    return None


def _listed(entries: str | Mapping[str, Any] | Sequence[Any]) -> list[Any]:
    """One entry needs no list; the letters of a text are no entries."""
    return [entries] if isinstance(entries, str | Mapping) else list(entries)
