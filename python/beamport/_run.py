"""Runs as they stand in the streams, with their file and their ledger."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _core, _html
from ._errors import Error, missing

if TYPE_CHECKING:
    from ._core import Stream
    from ._data import Data

_UNKNOWN = 2**63 - 1


class Run(Mapping[str, "Stream"]):
    """A named interval of source time over the streams: a mapping of stream names to the members of the run.

    Made by `Data.run(name)` and `Data.runs`; it is the run as it was at that moment.

    Attributes:
        name (str): its name.
        state (str): `"open"`, `"settling"` (ended, late messages are waited for) or `"sealed"` (complete for ever).
        start (int): first source time that belongs to it, ns since 1970 UTC.
        stop (int | None): first source time that belongs no more; `None` while it is not known.
        metadata (dict): what was said about it when it began, with sinks and code of workers of its instrument.
        reason (str): who or what ended it.

    Example: `sum(len(m["pixel_id"]) for m in data.run("nickel-2")["detector"].read())`
    """

    name: str
    state: str
    start: int
    stop: int | None
    metadata: dict[str, Any]
    reason: str

    def __init__(self, data: Data, fields: dict[str, Any]) -> None:
        """See `Data.run`."""
        self._data = data
        self.name, self.state, self.reason = fields["name"], fields["state"], fields["reason"]
        self.start = fields["start"]
        self.stop = None if fields["stop"] == _UNKNOWN else fields["stop"]
        said = (fields[key] or "{}" for key in ("metadata", "instrument"))
        own, of_instrument = (_object(text, f"the metadata of run `{self.name}`") for text in said)
        self.metadata = own | of_instrument
        if fields["undescribed"] is not None:
            warnings.warn(
                f"the sinks of run `{self.name}` are not known: they were in message {fields['undescribed']} of `runs`, "
                "which does not verify",
                stacklevel=2,
            )
        # A stream has a row for each of its epochs.
        self._ranges: dict[str, list[dict[str, Any]]] = {}
        for row in fields["streams"]:
            self._ranges.setdefault(row["stream"], []).append(row)

    def __getitem__(self, name: str) -> Stream:
        """Open the members of the run in the stream of this name: `read` gives those alone."""
        if self._ranges and name not in self._ranges:
            raise missing(f"run `{self.name}` has no stream", str(name), self._ranges)
        stream = self._data[name]
        until = _UNKNOWN if self.stop is None else self.stop
        rows = self._ranges.get(name)
        # Until it is sealed, the run's messages may still come.
        if rows is None or self.state != "sealed":
            return stream._members(self.start, until)
        uuid = stream.uuid
        if all(row["uuid"] != uuid for row in rows):
            cause = f"the stream `{name}` was recreated after the run was sealed"
            raise Error(f"the messages of run `{self.name}` are gone", cause, "the run's file still has them: `.file`")
        return stream._members(self.start, until, min(r["first"] for r in rows), max(r["next"] for r in rows))

    def __iter__(self) -> Iterator[str]:
        """Go through the names of the streams of the run."""
        return iter(self._ranges or self._data)

    def __len__(self) -> int:
        """Count the streams of the run."""
        return len(self._ranges or self._data)

    @property
    def file(self) -> Path | None:
        """The finished file of the run, or `None` while there is none. With several sinks the first by name."""
        for stage, (state, finished) in self._commits().items():
            product = _object(state, f"the commit of `{stage}`").get("file") if finished else None
            if isinstance(product, str):
                return self._data.folder / product
        return None

    def ledger(self) -> dict[str, Any]:
        """Account for every message of the run, derived from the streams as they are now.

        Keys: `run`, `state`, `lost` (messages, of all reasons), `closed` (sealed, every account balances, nothing is
        held), `entries` (per stream and origin: `sent`, `appended`, `duplicate`, `skipped`, `lost` and `refused` by
        reason, `closed`), `rows` (per sink and stream: `read`, `done`, `aside`, `skipped` and `lost` by reason, `held`,
        `closed`), `gaps` (what is missing: `stream`, `origin`, `first`, `last`, `from`, `to`, `reason`, `count`: 0
        where all between are missing; a time that is unknown is `None`) and `clock_step_ns` (how far the wall clock of the machine was set in the run:
        negative = back, 0 = not). Of an instrument on several hosts also `mirrors` (per stream of another host: `stream`,
        `host`, `sent`, `received`, `kept`, `missing`) and `hosts` (per other host: `host`, `state`, `account`), and
        `lost` and `closed` are of all hosts. Counts are messages.

        Reads the index of the run once: 64 bytes a message.
        """
        sinks = list(self._commits())
        account: dict[str, Any] = json.loads(_core._account(self._data.folder, self.name, sinks))
        return Ledger(account)

    def __repr__(self) -> str:
        """Name, state and streams."""
        return f"<beamport.Run `{self.name}` ({self.state}): {', '.join(self) or 'no streams'}>"

    def _repr_html_(self) -> str:
        return _html.run(self)

    def _commits(self) -> dict[str, tuple[str, bool]]:
        """Read the sinks that worked on the run, by name: the state of the newest commit, and whether it is the last."""
        return _core._commits(self._data.folder, self.name)


class Ledger(dict[str, Any]):
    """The account of a run, as a notebook shows it."""

    def _repr_html_(self) -> str:
        return _html.ledger(self)


def read_runs(data: Data) -> list[Run]:
    """Read all runs of a folder, as their newest messages say."""
    return [Run(data, fields) for fields in json.loads(_core._runs(data.folder))]


def _object(text: str, what: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise Error(f"cannot read {what}", str(error)) from None
    if not isinstance(value, dict):
        raise Error(f"cannot read {what}", "it is not a JSON object")
    return value
