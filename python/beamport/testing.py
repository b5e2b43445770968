"""Test a worker without an instrument: in one process, by the rules of its slots.

`run` gives messages to the code, as a slot of `[worker.NAME]` would: whose message a result is, exact batches, `gather`
and `pad`, `setup`, `configure` and `teardown`, results that are sent outside of calls, and what is set aside, with its
traceback. It is made for pytest. What needs several processes is not tested: code that ends its process ends the test,
there is one slot, and no time limit holds.

Example::

    from beamport import testing
    from mine import mean

    def test_mean():
        out = testing.run(mean, [np.ones((4, 4))], {"scale": 2})
        assert [m.value for m in out] == [2.0] and not out.aside
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ._context import slot
from ._core import Message, Stream, Writer, _message, _Slot, _Trial, message
from ._errors import Error
from ._run import Run
from ._tables import MessageList
from ._worker import Code, statistics

__all__ = ["Aside", "Results", "run"]

_INPUT = "input"
# Shared memory of the input, and of what the worker makes: frames of any camera.
_INPUT_LIVE, _OUTPUT_LIVE = 256 << 20, 64 << 20
# The time of the first message that a test gives without one, and from one to the next.
_FIRST_NS, _STEP_NS = 1_767_225_600_000_000_000, 10_000_000


@dataclass(frozen=True)
class Aside:
    """A message that the code could not handle.

    Attributes:
        index (int): which of the given messages, from 0.
        reason (str): one word: `"error"` where the code raised, `"type"` where it returned what no message holds.
        text (str): the traceback, or what to write instead.
    """

    index: int
    reason: str
    text: str


class Results(MessageList):
    """What a worker made: messages in the order of its output, copied, and those that were set aside.

    Attributes:
        aside (list[Aside]): the messages that the code could not handle.
        loose (list[Message]): results that the code sent with `beamport.slot.send`, copied, in the order of sending.
    """

    def __init__(self, made: Iterable[Message], aside: list[Aside], loose: Iterable[Message] = ()) -> None:
        """See `run`."""
        super().__init__(made)
        self.aside = aside
        self.loose = list(loose)


def run(
    code: Any,
    messages: Iterable[Any] | Stream | Run,
    parameters: Mapping[str, Any] | None = None,
    *,
    name: str | None = None,
    changes: Mapping[int, Mapping[str, Any]] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Results:
    """Give messages to a worker, and return what it makes.

    code: a function or class, as in `call` of `[worker.NAME]`.
    messages: messages of streams or of `beamport.message`, arrays (each becomes a frame, `ad00`) or numbers (`f144`), in
        a list; or a stream, `data["camera"]`, a slice of it, the stream of a run, `run["camera"]`, or a run with one stream.
    parameters: those of the code, as in `[worker.NAME.parameters]`.
    name: NAME of the worker, the origin of what it makes. Default: that of the code.
    changes: parameters from a message on, by its index: `{100: {"scale": 3}}`; of a worker with batches, a multiple of
        these. They are all the parameters that then hold.
    metadata: those of the run `test`, of which all messages are members, for code that follows runs: `begin` and `end`
        are called, or the instance of the run is made.

    Raises what the code raises while it is made, `TypeError` for parameters that it does not know, and `Error` for what
    cannot be given to it. Exceptions for a message are in `aside` of the results.

    Example:
        >>> import beamport.testing, numpy as np
        >>> def mean(frame, scale=1):
        ...     return frame.array.mean() * scale
        >>> out = beamport.testing.run(mean, [np.ones((2, 2)), np.zeros((2, 2))], {"scale": 3})
        >>> [m.value for m in out], out.aside
        ([3.0, 0.0], [])
    """
    if hasattr(code, "__beamport_every__"):
        raise Error("cannot test this as a worker", "it is a finder", "call it with three arrays of your own")
    known = _plain(parameters or {})
    made = Code(code, known)
    try:
        stage = _stage(name or getattr(code, "__name__", type(code).__name__))
        with _folder() as folder:
            feed = _Feed(messages, made.batch, {at: _plain(change) for at, change in (changes or {}).items()})
            return _run(folder, stage, made, (json.dumps(known), json.dumps(dict(metadata or {}))), feed)
    finally:
        made.close()


def _run(folder: Path, stage: str, code: Code, texts: tuple[str, str], feed: _Feed) -> Results:
    with Writer(folder, _INPUT, "disk", _INPUT_LIVE) as writer:
        trial = _Trial(folder, stage, _INPUT, (code.batch, code.wishes), texts, _OUTPUT_LIVE)
        feeder = threading.Thread(target=feed.give, args=(writer, trial))
        feeder.start()
        try:
            process = _Slot(trial.job)
            with slot._as(folder, stage, trial.job, process.runs.read):
                process.run(code, statistics.json)
                # Its threads may send results to the last.
                code.close()
        finally:
            feed.stop()
            feeder.join()
            trial.close()
    if feed.trouble is not None:
        raise feed.trouble
    results = Results(_copied(Stream(folder / stage)), _aside(folder, stage), _loose(folder, stage))
    if any("KeyboardInterrupt" in aside.text.splitlines()[-1] for aside in results.aside if aside.text):
        raise KeyboardInterrupt
    return results


class _Feed:
    """The input of a worker: appends it, and changes parameters between two messages."""

    def __init__(self, messages: Any, batch: int, changes: dict[int, dict[str, Any]]) -> None:
        self.trouble: BaseException | None = None
        self._messages, self._changes = _messages(messages), changes
        self._stopped = False
        for at in changes:
            if at % batch:
                hint = f"change them at a multiple of {batch}"
                raise Error("cannot change parameters there", f"message {at} is within a batch", hint)

    def give(self, writer: Writer, trial: _Trial) -> None:
        """Append all, in a thread of its own."""
        try:
            for at, one in enumerate(self._messages):
                if self._stopped:
                    break
                if at in self._changes and writer.wait() and trial.settle():
                    trial.configure(json.dumps(self._changes[at]))
                schema, payload, words = _encoded(one, at)
                writer.append(schema, payload, **words)
            writer.wait()
        except BaseException as trouble:  # noqa: BLE001 - raised in the thread of the caller
            self.trouble = trouble
        trial.finish()

    def stop(self) -> None:
        """Append no more."""
        self._stopped = True


def _messages(given: Any) -> Iterator[Any]:
    if isinstance(given, Run):
        if len(given) != 1:
            names = ", ".join(given)
            raise Error("cannot give a run to a worker", f"it has the streams {names}", 'choose one: `run["camera"]`')
        given = given[next(iter(given))]
    if isinstance(given, Message | np.ndarray):
        raise Error("cannot give one message to a worker", "messages are given in a list", "write `[message]`")
    if not isinstance(given, Iterable):
        kind = type(given).__name__
        raise Error(
            "cannot give this to a worker", f"it is a `{kind}`, and no list", "write `[1.0, 2.0]`, or `[frame]`"
        )
    return iter(given)


def _encoded(one: Any, at: int) -> tuple[str, bytes, dict[str, Any]]:
    """Schema and bytes of a message, and what stands beside them."""
    if not isinstance(one, Message):
        one = _made(one, at)
    words = {"time": one.source_time, "origin": one.origin, "origin_seq": one.origin_seq}
    return one.schema, bytes(one.payload), words


def _made(value: Any, at: int) -> Message:
    """An array as a frame, a number as a value."""
    time = _FIRST_NS + at * _STEP_NS
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        cause = f"message {at} is a `{type(value).__name__}`"
        raise Error("cannot give this to a worker", cause, "give arrays, numbers, or `beamport.message(...)`")
    if array.ndim == 0:
        return message("f144", {"source_name": _INPUT, "value": value}, time=time, origin_seq=at)
    return message("ad00", {"source_name": _INPUT, "id": at, "data": array}, time=time, origin_seq=at)


def _copied(stream: Stream) -> Iterator[Message]:
    """Messages that need no stream."""
    for batch in stream.batches(early=True):
        for m, entry in zip(batch, batch.entries, strict=True):
            yield _message(
                bytes(m.payload), m.sequence, m.source_time, m.arrival_time, m.origin, m.origin_seq, m.schema.encode(),
                int(entry["flags"]),
            )  # fmt: skip


def _aside(folder: Path, stage: str) -> list[Aside]:
    path = folder / f"{stage}.aside"
    if not (path / "stream").is_file():
        return []
    return [Aside(m["sequence"], m["reason"], m["text"]) for m in Stream(path).read(early=True)]


def _loose(folder: Path, stage: str) -> list[Message]:
    path = folder / f"{stage}.loose0"
    return list(_copied(Stream(path))) if (path / "stream").is_file() else []


def _plain(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as the code is given them by an instrument: what JSON can say."""
    try:
        made: dict[str, Any] = json.loads(json.dumps(dict(parameters)))
    except (TypeError, ValueError) as wrong:
        raise Error("these are no parameters of a worker", str(wrong), "give texts, numbers, lists and dicts") from None
    return made


def _stage(name: str) -> str:
    """A name that a worker may have."""
    return re.sub(r"[^A-Za-z0-9_-]", "", name) or "worker"


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """A data folder that leaves nothing behind."""
    folder = Path(tempfile.mkdtemp(prefix="beamport-testing-"))
    try:
        yield folder
    finally:
        for header in folder.glob("*/stream"):
            for line in header.read_text().splitlines():
                if line.startswith("live "):
                    shutil.rmtree(line.removeprefix("live "), ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)
