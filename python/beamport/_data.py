"""A data folder: its streams and its runs."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NoReturn

from . import _core, _html
from ._control import CUTOVER_S, ask, put
from ._core import Stream, Writer
from ._errors import Error, denied, missing
from ._run import Run, read_runs
from ._when import nanoseconds

# Streams by which beamport keeps its books; so are all with a dot in the name, like `file.commits`.
_BOOKS = frozenset({"control", "runs", "status"})


class Data(Mapping[str, Stream]):
    """A data folder: a mapping of stream names to streams, made by `beamport.open`.

    It reads the folder on each access, so it includes streams and runs that come later. The streams in
    which beamport keeps its books (`runs`, `control`, `status`, and all with a dot in the name) are had by name but
    not listed.

    Where an instrument runs in the folder, whoever started it, `begin`, `end`, `put`, `configure`, `manage`, `cutover`,
    `ask` and `status` command it. Each command connects anew, so the instrument may be restarted between two of them.

    Example:
        >>> import beamport, os
        >>> data = beamport.open(os.environ["BEAMPORT_DATA"])
        >>> list(data)
        ['detector', 'temperature']
        >>> data["detector"].level
        'memory'
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """See `beamport.open`."""
        self._folder = Path(folder).absolute()
        self._known: dict[str, Stream] = {}

    @property
    def folder(self) -> Path:
        """The folder, as an absolute path."""
        return self._folder

    @property
    def streams(self) -> list[Stream]:
        """The streams of the instrument, by name."""
        return [self[name] for name in self]

    @property
    def runs(self) -> list[Run]:
        """All runs, oldest first, as they are now."""
        self._enter(f"cannot read the runs of {self._folder}")
        return read_runs(self)

    def run(self, name: str) -> Run:
        """Find the run of this name.

        Raises `Error` (a `KeyError` too) if there is none; it lists the runs.
        """
        runs = self.runs
        for run in runs:
            if run.name == name:
                return run
        raise missing(f"{self._folder} has no run", name, [run.name for run in runs])

    def create(self, name: str, *, level: Literal["disk", "memory"] | None = None, live: int = 64 << 20) -> Writer:
        """Open a stream of this data folder for writing; a missing one is created.

        name: of the stream, but not of a book (`runs`, names with a dot).
        level: what messages of a new stream survive. Default: `"disk"`, or `"memory"` where the data folder is in memory.
        live: shared memory of a new stream's live end in bytes; a stream in memory keeps no more than that.

        Raises `Error` where another process writes the stream, with its number.

        Example:
            >>> import beamport, numpy as np, os
            >>> data = beamport.open(os.environ["BEAMPORT_DATA"])
            >>> with data.create("frames") as stream:
            ...     stream.append("ad00", {"source_name": "cam", "id": 1, "timestamp": 7, "data": np.eye(3)})
            ...     stream.append("f144", {"source_name": "T", "timestamp": 8, "value": 1.5}, origin_seq=40)
            ...
            0
            1
            >>> [(m.origin, m.origin_seq, m.source_time) for m in data["frames"].read()]
            [('cam', 0, 7), ('T', 40, 8)]
        """
        return Writer(self._folder, name, level, live)

    def begin(self, name: str | None = None, *, duration: str | None = None, **metadata: Any) -> Run:
        """Begin a run now.

        name: letters, digits, `_` and `-`; `None` takes the next number.
        duration: `"10 min"`; `None` runs until `end`.
        metadata: what the file should say about the run: `title="Ni on glass"`.

        Raises `Error` if the name is taken or the instrument does not answer.
        """
        request: dict[str, Any] = {"command": "begin", "metadata": metadata}
        if duration is not None:
            start = time.time_ns()
            request |= {"start": start, "stop": start - nanoseconds(f"-{duration}", "duration", 0)}
        return self._command(request, name)

    def end(self, name: str | None = None) -> Run:
        """End a run now; `None` ends the only open one. Raises `Error` if there is none."""
        return self._command({"command": "end"}, name)

    def ask(self, source: str, request: Any) -> Any:
        """Ask a source while it runs, in words of its kind; returns its answer.

        source: the NAME of its section `[source.NAME]`.
        request: what JSON can say.

        Raises `Error` if there is no such source, if it does not take the request, or if it does not answer.
        """
        return ask(self.folder, {"command": "ask", "source": source, "request": request})["answer"]

    def put(self, pv: str, value: Any, *, timeout: float = 5.0, wait: bool = True) -> float:
        """Write a value to an EPICS PV through the instrument that runs; returns the seconds until its server answered.

        pv: the name; a prefix `pva:` or `ca:` chooses the protocol, without one it is that of the source that lists it.
        value: a number, text, bool, or a list or array of them.
        timeout: how long to wait for the answer, in seconds.
        wait: wait until the record has processed, of a motor until it has arrived; `False` waits for the server alone.

        The instrument records it in the stream `control`, as `beamport put` and `beamport.epics.put` do. Raises `Error`
        if no instrument runs, if no server has the PV, or if the server refuses the value.
        """
        return put(self.folder, pv, value, timeout=timeout, wait=wait)

    def configure(self, worker: str, *, slots: int | None = None, **parameters: Any) -> dict[str, Any]:
        """Change a running worker; returns its new state: `worker`, `slots`, `code`, all its `parameters`.

        Of a worker on several hosts: `worker`, `hosts` (the state on each) and `away`, the hosts that follow later.

        worker: the NAME of its section `[worker.NAME]`.
        slots: new number of slots; `None` keeps it.
        parameters: those to change; `None` removes one. They apply from the next block on, and after a restart.

        Raises `Error` if there is no such worker, or the instrument does not answer.
        """
        request: dict[str, Any] = {"command": "configure", "worker": worker, "parameters": parameters}
        return ask(self.folder, request if slots is None else request | {"slots": slots})

    def manage(self, action: str, worker: str) -> dict[str, Any]:
        """Act on a worker of the instrument that runs, as `beamport worker ACTION NAME` does.

        action: `"pause"` (no message is begun), `"resume"`, `"reset"` (its statistics), `"retry"` (process once more what
            is in `NAME.aside`, each message once; the answer has `retried`), `"add"` (start it as the instrument file
            has it now) or `"remove"` (end it; its stream stays).
        worker: the NAME of its section `[worker.NAME]`.

        Raises `Error` if there is no such worker, if it cannot do that, or if the instrument does not answer.
        """
        return ask(self.folder, {"command": "worker", "action": action, "worker": worker})

    def cutover(self, shadow: str) -> dict[str, Any]:
        """Switch a worker to the code of its shadow; returns the first message affected.

        shadow: the NAME of the section `[worker.NAME]` that has `shadow = "OLD"`.

        The answer has `worker` (OLD), its `code`, `parameters` and `slots` from now on; `from`, a list with `stream`,
        `epoch` and `sequence` of the first message of each input that the new code is given; `output`, the sequence of
        what it makes first; and `compared`, what `beamport compare` said just before. It comes when the change stands:
        all before that message was made by the old code, all from it on will be by the new.

        Raises `Error` if there is no such shadow, if its code cannot be loaded, or if the old code does not finish what
        it has: then the old code goes on.
        """
        return ask(self.folder, {"command": "cutover", "shadow": shadow}, patience_s=CUTOVER_S)

    def status(self) -> dict[str, Any]:
        """Say how it does now: `pid`, `instrument`, `file`, `troubles`, `running`, `workers`, `hosts`.

        `troubles` are the errors that keep parts of it from their work, as text. `running` has a dictionary for each
        stage by its name: `kind` (`"source"`, `"merge"`, `"worker"` or `"sink"`), `status` (what a source or live sink
        reports of itself, or `None`) and `trouble` (its error as `what`, `cause` and `hint`, or `None`). `workers` has
        for each worker the `numbers` of its statistics, and the `statistics` of each slot. `hosts` has for each other
        host of an instrument on several its `state`, its `workers` as it has said last, and its `troubles`.

        Raises `Error` if the instrument does not answer.
        """
        return ask(self.folder, {"command": "status"})

    def stages(self) -> list[dict[str, Any]]:
        """Account for every message that merges, workers and live sinks were given, derived from their newest commits.

        One dictionary for each stage and input: `stage`, `stream`, `read`, `done`, `aside`, `skipped` and `lost` by
        reason, `held` (not looked at yet, or waiting) and `closed` (`read` is the sum of the others). Counts are
        messages, since the stage began to read the input, whatever the run.
        """
        self._enter(f"cannot account for {self._folder}")
        rows: list[dict[str, Any]] = json.loads(_core._stages(self._folder))
        return rows

    def __getitem__(self, name: str) -> Stream:
        """Open the stream of this name; raises `Error` (a `KeyError` too) that says which there are."""
        if not isinstance(name, str) or not self._has(name):
            raise missing(f"{self._folder} has no stream", str(name), self)
        if name not in self._known:
            self._known[name] = Stream(self._folder / name)
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        """Go through the names of the instrument's streams, sorted."""
        try:
            names = sorted(os.listdir(self._folder))
        except PermissionError as error:
            raise denied(f"cannot list {self._folder}", error) from None
        except OSError as error:
            raise Error(f"cannot list {self._folder}", os.strerror(error.errno or 0)) from None
        return (name for name in names if name not in _BOOKS and "." not in name and self._has(name))

    def __len__(self) -> int:
        """Count the instrument's streams."""
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        """Name the folder and its streams."""
        return f"<beamport.Data {str(self._folder)!r}: {', '.join(self) or 'no streams'}>"

    def _repr_html_(self) -> str:
        return _html.data(self)

    def __reduce__(self) -> NoReturn:
        """Refuse: beamport never unpickles."""
        cause = "it refers to memory of this machine"
        raise Error("cannot pickle a data folder", cause, "send its path and call `beamport.open` there")

    def _command(self, request: dict[str, Any], name: str | None) -> Run:
        answer = ask(self.folder, request if name is None else request | {"run": name})
        return self.run(answer["name"])

    def _enter(self, what: str) -> None:
        """Refuse where this user may not enter the folder."""
        if os.path.lexists(self._folder) and not os.access(self._folder, os.X_OK):
            raise denied(what, PermissionError(errno.EACCES, "", str(self._folder / "runs")))

    def _has(self, name: str) -> bool:
        # A name is never a way out of the folder.
        if name in ("", ".", "..") or "/" in name:
            return False
        try:
            return (self._folder / name / "stream").is_file()
        except PermissionError as error:
            raise denied(f"stream `{name}` cannot be opened", error) from None


def open(folder: str | os.PathLike[str]) -> Data:
    """Open a data folder for reading; no process needs to write it, and any number may read.

    folder: where the streams are, for example `"beamport-data/amor"` (`data` in the instrument file).

    Raises `Error` if the folder does not exist. A folder without streams is accepted: they may come. Files of another
    user that may not be read raise an `Error` that names the file, its owner and its group.

    Example:
        >>> import beamport, os
        >>> data = beamport.open(os.environ["BEAMPORT_DATA"])
        >>> for m in data["detector"].read(since="2026-03-01T12:00:00Z", stop=2):
        ...     print(m.sequence, m["pixel_id"])
        0 [3 1 2]
        1 [4 2 3]
    """
    if not os.fspath(folder):
        raise Error(
            "cannot open a data folder", "its name is empty", 'write `beamport.open(".")` for the working folder'
        )
    path = Path(folder)
    try:
        is_there = path.is_dir()
    except PermissionError as error:
        raise denied(f"cannot open `{path}`", error) from None
    if not is_there:
        cause = "it is a file" if path.exists() else "no such folder"
        hint = "name the folder that holds the streams; `beamport demo` makes `beamport-data/demo`"
        if path.suffix == ".toml" and path.exists():
            hint = f'name its data folder, `data` in that file; `beamport.run("{path}")` starts the instrument'
        raise Error(f"cannot open `{path}`", cause, hint)
    if os.access(path, os.X_OK) and (path / "stream").is_file():
        hint = f'open its parent and take it by name: `beamport.open("{path.parent}")["{path.name}"]`'
        raise Error(f"cannot open `{path}` as a data folder", "it is one stream", hint)
    return Data(path)
