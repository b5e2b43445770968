"""Things as a notebook shows them: tables and pictures in HTML.

All text comes from outside and is escaped. What cannot be read is shown as its error: a damaged stream does not hide the
others.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ._core import Message, Stream
from ._errors import Error
from ._picture import picture

if TYPE_CHECKING:
    from ._data import Data
    from ._run import Run

# Rows of one table, and characters of one cell.
_ROWS_MAX = 100
_TEXT_MAX = 200


def data(of: Data) -> str:
    """A data folder: its streams and runs."""
    streams = _table(["stream", "level", "messages", "newest", "origins"], (_stream_row(of, name) for name in of))
    runs = _table(
        ["run", "state", "start", "stop"], ([r.name, r.state, _time(r.start), _time(r.stop)] for r in of.runs[::-1])
    )
    return f"<b>{_text(of.folder)}</b>{streams}{runs}"


def stream(of: Stream) -> str:
    """A stream: what it is, and its newest message."""
    newest = _newest(of)
    rows = [
        ["level", of.level],
        ["messages", f"{of.first} to {of.count}"],
        ["written", "now" if of.written else "no"],
        ["origins", _some(of.origins)],
    ]
    shown = f"<br>newest message:<br>{message(newest)}" if isinstance(newest, Message) else _text(newest or "")
    return f"<b>{_text(of.name)}</b>{_table([], rows)}{shown}"


def message(of: Message) -> str:
    """A message: its entry, its fields, and a picture where it is one."""
    title = f"{of.schema} {of.sequence} from {of.origin}, {of.time}"
    try:
        fields = of.fields()
        rows = [[name, _value(value)] for name, value in fields.items() if name not in ("attributes", "data")]
        rows += [[name, _value(value)] for name, value in _attributes(of).items()]
        shown = _picture(of) or ""
        if not shown and "data" in fields:
            rows.append(["data", _value(fields["data"])])
    except Error as error:
        rows, shown = [["error", error.what], ["bytes", str(of.payload.size)]], ""
    return f"<b>{_text(title)}</b>{_table([], rows)}{shown}"


def run(of: Run) -> str:
    """A run: its interval, its metadata, its file and its streams."""
    rows = [
        ["state", of.state],
        ["start", _time(of.start)],
        ["stop", _time(of.stop)],
        ["reason", of.reason],
        ["file", str(_tried(lambda: of.file) or "none yet")],
        ["streams", _some(list(of))],
        *([f"metadata: {name}", _value(value)] for name, value in of.metadata.items()),
    ]
    return f"<b>run {_text(of.name)}</b>{_table([], [row for row in rows if row[1]])}"


def ledger(of: dict[str, Any]) -> str:
    """An account of a run: at the entry, at each reader, and what is missing."""
    state = "closed" if of.get("closed") else "not closed"
    title = f"ledger of run {of.get('run')}: {of.get('state')}, {state}, {of.get('lost')} lost"
    entries = _table(
        ["stream", "origin", "sent", "appended", "duplicate", "skipped", "lost", "closed"],
        ([_value(row.get(key)) for key in _ENTRY] for row in of.get("entries", [])),
    )
    rows = _table(
        ["sink", "stream", "read", "done", "aside", "skipped", "lost", "held", "closed"],
        ([_value(row.get(key)) for key in _ROW] for row in of.get("rows", [])),
    )
    gaps = _table(
        ["gap in", "origin", "first", "last", "reason"],
        (
            [_value(row.get(key)) for key in ("stream", "origin", "first", "last", "reason")]
            for row in of.get("gaps", [])
        ),
    )
    return f"<b>{_text(title)}</b>{entries}{rows}{gaps}"


_ENTRY = ("stream", "origin", "sent", "appended", "duplicate", "skipped", "lost", "closed")
_ROW = ("stage", "stream", "read", "done", "aside", "skipped", "lost", "held", "closed")


def _stream_row(of: Data, name: str) -> list[str]:
    try:
        one = of[name]
        newest = _newest(one)
        shown = f"{_time(newest.source_time)} {newest.schema}" if isinstance(newest, Message) else (newest or "")
        return [name, one.level, f"{one.first} to {one.count}", shown, _some(one.origins)]
    except Error as error:
        return [name, "", "", error.what, ""]


def _newest(of: Stream) -> Message | str | None:
    """The newest message, or why there is none."""
    try:
        return of[-1]
    except IndexError:
        return None
    except Error as error:
        return error.what


def _picture(of: Message) -> str | None:
    if of.schema not in ("ad00", "da00", "hs00", "hs01"):
        return None
    try:
        return picture(of.value)
    except Error:
        return None


def _attributes(of: Message) -> dict[str, Any]:
    return dict(of.metadata) if of.schema in ("ad00", "da00") else {}


def _tried(ask: Any) -> Any:
    try:
        return ask()
    except Error as error:
        return error.what


def _time(nanoseconds: int | None) -> str:
    return "" if nanoseconds is None else str(np.datetime64(nanoseconds, "ns"))


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _value(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape}: {np.array2string(value.ravel(), threshold=8, edgeitems=3)}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_value(one)}" for name, one in list(value.items())[:8])
    if isinstance(value, list):
        return f"{len(value)} entries: " + ", ".join(_value(one) for one in value[:3])
    return "" if value is None else str(value)


def _text(value: Any) -> str:
    text = str(value)
    text = text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}..."
    return html.escape(text, quote=True)


def _table(head: list[str], rows: Iterable[list[str]]) -> str:
    """A table of texts that are escaped here; nothing for no rows."""
    all_rows = list(rows)
    if not all_rows:
        return ""
    lines = ["<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in row) + "</tr>" for row in all_rows[:_ROWS_MAX]]
    if len(all_rows) > _ROWS_MAX:
        lines.append(f'<tr><td colspan="{len(all_rows[0])}">and {len(all_rows) - _ROWS_MAX} more</td></tr>')
    top = "<tr>" + "".join(f"<th>{_text(cell)}</th>" for cell in head) + "</tr>" if head else ""
    return f"<table>{top}{''.join(lines)}</table>"
