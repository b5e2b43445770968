"""The slot of a worker, for the code that runs in it."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

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
    def _as(self, data: Path, worker: str, read: Callable[[], str | None]) -> Iterator[None]:
        """Be the only slot of a worker for a while, without its log."""
        before = dict(vars(self))
        self.worker, self._data, self._folder, self._read = worker, data, data / ".files" / worker, read
        try:
            yield
        finally:
            vars(self).clear()
            vars(self).update(before)

    def _begin(self, data: str, worker: str, number: int, read: Callable[[], str | None]) -> None:
        """Be the slot of this process."""
        self.worker, self.number, self._read = worker, number, read
        self._data = Path(data)
        self._folder = self._data / ".files" / worker
        self.log = logging.getLogger(f"beamport.{worker}")
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
        self.log.addHandler(handler)
        self.log.setLevel(logging.INFO)


slot = Slot()
