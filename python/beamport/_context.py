"""The slot of a worker, for the code that runs in it."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._core import _Yielded
from ._errors import Error

if TYPE_CHECKING:
    from ._run import Run


class Slot:
    """The slot in which code of a worker runs: its run, its number, a folder and a log of its own.

    Outside of slots, in a notebook or a test, there is no run, the number is 0, and the folder is the current one.

    Attributes:
        worker (str): the NAME of the section `[worker.NAME]`; empty outside of slots.
        number (int): the number of the slot, from 0.
        missed (int): messages that this instance lacks: of code without `restore`, those that earlier processes of the
            worker were given; with `per="run"`, members of the present run that could not be given again.
        log (logging.Logger): its lines appear with those of `beamport up`, with worker and slot.

    Example:
        >>> import beamport
        >>> @beamport.worker
        ... def named(frame):
        ...     run = beamport.slot.run
        ...     return frame, {"sample": run.metadata.get("sample", "") if run else ""}
    """

    worker: str = ""
    number: int = 0
    missed: int = 0

    def __init__(self) -> None:
        """Outside of slots."""
        self._folder = Path()
        self._data: Path | None = None
        self._read: Callable[[], str | None] = lambda: None
        self._text: str | None = None
        self._run: Run | None = None
        # The run of the instance that is called, where each run has one.
        self._own: Run | None = None
        self.log = logging.getLogger("beamport")
        self._job: bytes | None = None
        self._loose: _Yielded | None = None
        self._lock = threading.Lock()

    def send(self, value: Any) -> None:
        """Send a result outside of a call: from a thread, a callback, or after the call of its message.

        value: as a call returns it; `None` sends nothing. Its time is now, and its origin the worker, unless
            `beamport.result` or `beamport.message` says otherwise.

        It is in the stream `NAME.loose`, in the order of sending, and belongs to no message of the input: a message
        that is tried again may send twice. Without room it waits.

        Raises `TypeError` or `ValueError` for what no message can hold, and `Error` outside of slots.
        """
        if self._job is None:
            raise Error("cannot send a result", "this is no slot of a worker", "return it, or run `beamport up`")
        with self._lock:
            if self._loose is None:
                self._loose = _Yielded.loose(self._job)
            refused = self._loose.give(value, time.time_ns())
            self._loose.publish()
        if refused is not None:
            raise refused

    @property
    def run(self) -> Run | None:
        """The run to which the message at hand belongs, of several the one that began last; `None` outside of runs."""
        if self._own is not None:
            return self._own
        text = self._read()
        if text != self._text:
            self._text, self._run = text, None if text is None else self._run_of(text)
        return self._run

    @property
    def folder(self) -> Path:
        """A folder that the code may write to, the same for all slots of the worker; it stays."""
        self._folder.mkdir(parents=True, exist_ok=True)
        return self._folder

    def _run_of(self, text: str) -> Run:
        from ._data import Data
        from ._run import Run

        return Run(Data(self._data or Path()), json.loads(text))

    @contextlib.contextmanager
    def _as(self, data: Path, worker: str, job: bytes, read: Callable[[], str | None]) -> Iterator[None]:
        """Be the only slot of a worker for a while, without its log."""
        before = dict(vars(self))
        self.worker, self._data, self._folder, self._read = worker, data, data / ".files" / worker, read
        self._job = job
        try:
            yield
        finally:
            self._end()
            vars(self).clear()
            vars(self).update(before)

    def _end(self) -> None:
        """Close the stream of results that were sent: from now on no more are."""
        with self._lock:
            self._job = self._loose = None

    def _begin(self, text: bytes) -> None:
        """Be the slot of this process, with its job."""
        job = json.loads(text)
        worker = job["maker"]
        self.worker, self.number, self._job = worker, job["number"], text
        self._data = Path(job["data"])
        self._folder = self._data / ".files" / worker
        self.log = logging.getLogger(f"beamport.{worker}")
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
        self.log.addHandler(handler)
        self.log.setLevel(logging.INFO)


slot = Slot()
