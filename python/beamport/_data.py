"""A data folder: its streams and its runs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NoReturn

from . import _core, _html
from ._core import Stream, Writer
from ._errors import Error, missing
from ._run import Run, read_runs

# Streams by which beamport keeps its books; so are all with a dot in the name, like `file.commits`.
_BOOKS = frozenset({"control", "runs", "status"})


class Data(Mapping[str, Stream]):
    """A data folder: a mapping of stream names to streams, made by `beamport.open`.

    It reads the folder on each access, so it includes streams and runs that come later. The streams in
    which beamport keeps its books (`runs`, `control`, `status`, and all with a dot in the name) are had by name but
    not listed.

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

    def stages(self) -> list[dict[str, Any]]:
        """Account for every message that merges, workers and live sinks were given, derived from their newest commits.

        One dictionary for each stage and input: `stage`, `stream`, `read`, `done`, `aside`, `skipped` and `lost` by
        reason, `held` (not looked at yet, or waiting) and `closed` (`read` is the sum of the others). Counts are
        messages, since the stage began to read the input, whatever the run.
        """
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

    def _has(self, name: str) -> bool:
        # A name is never a way out of the folder.
        return name not in ("", ".", "..") and "/" not in name and (self._folder / name / "stream").is_file()


def open(folder: str | os.PathLike[str]) -> Data:
    """Open a data folder for reading; no process needs to write it, and any number may read.

    folder: where the streams are, for example `"beamport-data/amor"` (`data` in the instrument file).

    Raises `Error` if the folder does not exist. A folder without streams is accepted: they may come.

    Example:
        >>> import beamport, os
        >>> data = beamport.open(os.environ["BEAMPORT_DATA"])
        >>> for m in data["detector"].read(since="2026-03-01T12:00:00Z", stop=2):
        ...     print(m.sequence, m["pixel_id"])
        0 [3 1 2]
        1 [4 2 3]
    """
    path = Path(folder)
    if not path.is_dir():
        cause = "it is a file" if path.exists() else "no such folder"
        hint = "name the folder that holds the streams; `beamport demo` makes `beamport-data/demo`"
        raise Error(f"cannot open `{path}`", cause, hint)
    if (path / "stream").is_file():
        hint = f'open its parent and take it by name: `beamport.open("{path.parent}")["{path.name}"]`'
        raise Error(f"cannot open `{path}` as a data folder", "it is one stream", hint)
    return Data(path)
