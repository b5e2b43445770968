"""Hints behind the traceback of a usual mistake with messages and batches."""

from __future__ import annotations

import traceback
from types import TracebackType

from ._core import Batch, Message

_COPY = "views of messages are read-only: change a copy, `message.array.copy()`"
_READ_ONLY = ("assignment destination is read-only", "output array is read-only")


def formatted(kind: type[BaseException], raised: BaseException, frames: TracebackType | None) -> list[str]:
    """Format an exception of user code, with a hint for a usual mistake."""
    advice = _advice(raised)
    lines = traceback.format_exception(kind, raised, frames)
    return [*lines, f"hint:  {advice}\n"] if advice else lines


def _advice(raised: BaseException) -> str | None:
    text = str(raised)
    if isinstance(raised, ValueError) and text in _READ_ONLY:
        return _COPY
    if isinstance(raised, AttributeError):
        return _attribute(raised)
    if isinstance(raised, TypeError) and text.startswith("'beamport.Message' object does not support item"):
        return f'a message cannot be changed: return `message, {{"name": value}}` to add attributes; {_COPY}'
    return None


def _attribute(raised: AttributeError) -> str | None:
    if isinstance(raised.obj, Batch):
        return f"a batch is a sequence of messages: `[m.{raised.name} for m in batch]`"
    if not isinstance(raised.obj, Message):
        return None
    if "not writable" in str(raised):
        return "a message cannot be changed: return a new array, or `beamport.message(...)`"
    if hasattr(raised.obj.values, str(raised.name)):
        return f"a message is no array: write `message.values.{raised.name}`"
    return 'the fields of a message are `message["name"]`: `message.keys()` lists them'
