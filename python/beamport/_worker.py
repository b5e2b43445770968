"""User code that runs on every message: the decorator, and what a slot makes of it."""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import math
import types
from collections.abc import Callable
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints, overload

import numpy as np

from ._core import Message
from ._result import Result, result

_Target = TypeVar("_Target", bound=Callable[..., Any])


class Statistics(dict[str, float]):
    """Numbers that a worker reports, by name: a dict that a slot reads once a second.

    In a slot they become values (`f144`) of the stream `NAME.statistics`, which `beamport top` shows; elsewhere, in a
    notebook or a test, it is only a dict. Values that are not finite numbers are ignored, as are names of more
    than 64 bytes and all but 64 numbers.

    Example:
        >>> import beamport
        >>> @beamport.worker
        ... def bright(frame, threshold=200):
        ...     spots = int((frame.array > threshold).sum())
        ...     beamport.statistics["spots"] = spots
        ...     return frame if spots else None
    """

    def json(self) -> str:
        """Say them as a slot does: a JSON object, empty text for none."""
        numbers: dict[str, float] = {}
        for name, value in self.items():
            with contextlib.suppress(TypeError, ValueError, OverflowError):
                number = float(value)
                if math.isfinite(number):
                    numbers[str(name)] = int(value) if number.is_integer() else number
        return json.dumps(numbers) if numbers else ""


statistics = Statistics()


@overload
def worker(target: _Target) -> _Target: ...
@overload
def worker(
    *, batch: int = 1, gather: bool = False, pad: bool = False, pure: bool = False
) -> Callable[[_Target], _Target]: ...
def worker(target: Any = None, *, batch: int = 1, gather: bool = False, pad: bool = False, pure: bool = False) -> Any:
    """Mark a function, or a class whose instances can be called, as a worker.

    It is unchanged: call it in a notebook, in a test, and in a slot of `[worker.NAME]`. It is given one message
    (or with `batch` a `Batch` of that many messages, fewer at the end of a run), and returns or yields what becomes of it: nothing, numbers (`f144`),
    arrays (`ad00`), dicts of these (`da00`), text, messages, an array or a message and its attributes
    (`return frame, {"beam": 1.0}`), or `result(...)`, which also says of which message it is; several in a list.

    The keys of `[worker.NAME.parameters]` are keyword arguments of a function, and of `__init__` of a class. A class may
    have `setup()`, `teardown()`, and `configure(**parameters)` for parameters that change at run time; without it
    another instance is made then. Values that do not fit an annotation (`scale: float`) are refused. Numbers that it sets in `beamport.statistics` are shown by `beamport top`.

    With `gather` the code is given one array of the frames of a batch, shape `(N, ...)`, a copy that it may keep and
    change. A list of N results is one for each frame, in their order; anything else is a result of the last frame.
    With `pad` the array always has `batch` frames, at the end of a run some of zeros, and the keyword argument `count`
    is how many are real; results behind these are dropped.

    `pure` declares that what it returns follows from the message (or the batch) and the parameters alone: not from
    messages before, the time, random numbers, or other files. `beamport replay --through` then gives the same bytes
    each time, and says so.

    Example:
        >>> import beamport
        >>> @beamport.worker
        ... def total(message, scale=1):
        ...     return message["pixel_id"].sum() * scale
    """
    if batch < 1:
        raise ValueError("a batch has at least one message")
    if gather and batch == 1:
        raise ValueError("`gather` puts the frames of a batch together: give `batch=8` as well")
    if pad and not gather:
        raise ValueError("`pad` fills up the array of `gather`: give `gather=True` as well")

    def mark(target: Any) -> Any:
        target.__beamport_batch__ = batch
        target.__beamport_gather__ = (gather, pad)
        target.__beamport_pure__ = pure
        return target

    return mark if target is None else mark(target)


@overload
def finder(target: _Target) -> _Target: ...
@overload
def finder(*, every: int = 1, wait_ns: int | None = None) -> Callable[[_Target], _Target]: ...
def finder(target: Any = None, *, every: int = 1, wait_ns: int | None = None) -> Any:
    """Mark a function, or a class whose instances can be called, as a finder of groups.

    It is unchanged: call it in a notebook, in a test, and in the slot of a worker `groups` that names it with
    `find = "mine.py:NAME"`. It is shown the messages that are in no group yet, oldest first, as arrays that cannot be
    written: `times` (int64, ns since 1970), `members` (uint32, places in the parameter `members`, or rows of the origins)
    and `numbers` (uint64, as their origins count). It returns `(groups, done)`: the groups that are over, each as
    `(first, count)` in those arrays, and how many of the oldest messages it is done with, among them all of these groups.

    What it returns must follow from the arrays alone: after a restart it is shown the same messages again. It is called
    at each message, the last of the arrays, or with `every` at messages whose sequence and one is a multiple of that. The
    keys of `[worker.NAME.parameters.arguments]` are keyword arguments of a function, and of `__init__` of a class.

    With `wait_ns` it is also called while no message comes: when the input is complete up to more than `wait_ns` after the
    oldest pending message. Its keyword argument `complete_to` is then that time (ns since 1970), and all later messages
    have it or a later one. Without `wait_ns` what is pending waits for the next message, or for the end of the input.

    Example:
        >>> import beamport
        >>> @beamport.finder
        ... def pairs(times, members, numbers, within=100):
        ...     if len(times) < 2:
        ...         return [], 0
        ...     return ([(0, 2)], 2) if times[1] - times[0] <= within else ([], 1)
    """
    if every < 1:
        raise ValueError("`every` is a whole number from 1 on")
    if wait_ns is not None and wait_ns < 1:
        raise ValueError("`wait_ns` is a whole number from 1 on")

    def mark(target: Any) -> Any:
        target.__beamport_every__ = every
        target.__beamport_wait_ns__ = wait_ns
        return target

    return mark if target is None else mark(target)


def found_by(target: Any, arguments: dict[str, Any]) -> tuple[Callable[..., Any], int, int | None]:
    """A finder as a slot calls it, how often, and how long after the oldest message it is called without one (ns)."""
    every: int = getattr(target, "__beamport_every__", 1)
    wait_ns: int | None = getattr(target, "__beamport_wait_ns__", None)
    if inspect.isclass(target):
        call = target(**arguments)
    else:
        call = functools.partial(target, **arguments)
    inspect.signature(call).bind(None, None, None, **({} if wait_ns is None else {"complete_to": 0}))
    return call, every, wait_ns


def declared(target: Any) -> dict[str, Any]:
    """Say what code declares of itself."""
    return {
        "batch": getattr(target, "__beamport_batch__", 1),
        "pure": getattr(target, "__beamport_pure__", False),
    }


def _fits(target: Any, parameters: dict[str, Any], before: int = 1) -> None:
    """Raise `TypeError` for parameters that code does not know, that it lacks, or that do not fit its annotations.

    `before`: arguments of a function that are no parameters.
    """
    first = () if inspect.isclass(target) else (None,) * before
    try:
        signature = inspect.signature(target)
    except ValueError:
        # Some functions of C have none.
        return
    # Padded batches come with the number of real frames.
    counted = {"count": 0} if not inspect.isclass(target) and _is_padded(target) else {}
    signature.bind(*first, **counted, **parameters)
    for name, wanted in _annotated(target).items():
        if name in parameters and not _is_one(parameters[name], wanted):
            kind = inspect.formatannotation(wanted)
            raise TypeError(f"`{name}` is annotated as `{kind}`, and {parameters[name]!r} is none")


def _annotated(target: Any) -> dict[str, Any]:
    """Annotations of the parameters of code; none where they cannot be resolved."""
    try:
        return get_type_hints(target.__init__ if inspect.isclass(target) else target)
    except (NameError, TypeError, AttributeError):
        return {}


def _is_one(value: Any, wanted: Any) -> bool:
    """Whether a value of a parameter fits an annotation; true for annotations that say nothing of JSON."""
    if get_origin(wanted) in (Union, types.UnionType):
        return any(_is_one(value, one) for one in get_args(wanted))
    if wanted in (None, type(None)):
        return value is None
    if wanted is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if wanted is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if wanted in (bool, str):
        return isinstance(value, wanted)
    container = get_origin(wanted) or wanted
    return isinstance(value, container) if container in (list, dict) else True


def taken_by(target: Any, before: int = 1) -> list[str]:
    """Names of the parameters that code knows."""
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    names = [name for name, each in inspect.signature(target).parameters.items() if each.kind in named]
    if inspect.isclass(target):
        return names
    return [name for name in names[before:] if name != "count" or not _is_padded(target)]


def _is_padded(target: Any) -> bool:
    gather: tuple[bool, bool] = getattr(target, "__beamport_gather__", (False, False))
    return gather[1]


class Code:
    """A worker as a slot runs it."""

    def __init__(self, target: Any, parameters: dict[str, Any]) -> None:
        """Make an instance of a class; a function gets its parameters with each call."""
        self._target = target
        _fits(target, parameters)
        self.batch: int = declared(target)["batch"]
        self._made = target(**parameters) if inspect.isclass(target) else None
        # An instance may be false: one with a length of 0.
        is_class = self._made is not None
        self.call = self._called(self._made if is_class else functools.partial(target, **parameters))
        self._hook("setup")()

    def configure(self, parameters: dict[str, Any]) -> Callable[[Any], Any] | None:
        """Take new parameters. Gives what is to be called from now on, if that changes.

        Raises `TypeError` for those that it does not know: better no slot than each message aside.
        """
        if self._made is None:
            _fits(self._target, parameters)
            return self._called(functools.partial(self._target, **parameters))
        if hasattr(self._made, "configure"):
            self._made.configure(**parameters)
            return None
        self._hook("teardown")()
        self._made = self._target(**parameters)
        self._hook("setup")()
        return self._called(self._made)

    def _called(self, call: Any) -> Callable[[Any], Any]:
        """How a slot calls it: with a message or a batch, or through `_gathered`."""
        gather, pad = getattr(self._target, "__beamport_gather__", (False, False))
        return functools.partial(_gathered, call, self.batch if pad else None) if gather else call

    def close(self) -> None:
        """End it."""
        self._hook("teardown")()

    def _hook(self, name: str) -> Callable[[], Any]:
        return getattr(self._made, name, lambda: None)


def _gathered(call: Callable[..., Any], batch: int | None, frames: Any) -> Any:
    """Call code with the frames of a batch as one array; `batch`: their number with those of zeros."""
    first = frames[0].array
    array = (
        np.zeros((batch, *first.shape), first.dtype) if batch else np.empty((len(frames), *first.shape), first.dtype)
    )
    for row, frame in zip(array, frames, strict=False):
        pixels = frame.array
        if (pixels.shape, pixels.dtype) != (first.shape, first.dtype):
            raise ValueError(
                f"a batch has frames of shape {first.shape} ({first.dtype}) and {pixels.shape} ({pixels.dtype}): without "
                "`gather` the code is given the messages"
            )
        row[...] = pixels
    value = call(array, count=len(frames)) if batch else call(array)
    if not isinstance(value, list) or len(value) not in (len(frames), batch):
        return value
    return [_of(one, frame) for one, frame in zip(value, frames, strict=False)]


def _of(value: Any, message: Message) -> Any:
    """A result as one of a message, unless it names another."""
    if isinstance(value, Result):
        return value if value.of is not None else Result(value.value, message, *value.words())
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], dict):
        return result(value[0], message, attributes=value[1])
    return None if value is None else result(value, message)
