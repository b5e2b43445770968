"""User code that runs on every message: the decorator, and what a slot makes of it."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import json
import math
import types
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints, overload

import numpy as np

from . import _pinned
from ._context import slot
from ._core import Message
from ._errors import Error
from ._result import Result, result
from ._state import pack, unpack

if TYPE_CHECKING:
    from ._run import Run

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
    *,
    batch: int = 1,
    gather: bool | Literal["pinned"] = False,
    pad: bool = False,
    pure: bool = False,
    per: Literal["run"] | None = None,
    of: Literal["all"] | None = None,
) -> Callable[[_Target], _Target]: ...
def worker(
    target: Any = None,
    *,
    batch: int = 1,
    gather: bool | Literal["pinned"] = False,
    pad: bool = False,
    pure: bool = False,
    per: Literal["run"] | None = None,
    of: Literal["all"] | None = None,
) -> Any:
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
    Where the frames of a batch differ in shape or type, each is given alone, as `(1, ...)`.
    `gather="pinned"` makes it in page-locked memory of PyTorch or CuPy, which a GPU reads while the code goes on.
    With `pad` the array always has `batch` frames, at the end of a run some of zeros, and the keyword argument `count`
    is how many are real; results behind these are dropped.

    A class may have `warm_up(message)`, which is called once in each process with the first message (or batch) before the
    call with it, for code that compiles; its result is dropped, and `first_time_max` is the time for both.

    A class may have `reset()`, which `beamport worker reset NAME` calls between two messages; the numbers in
    `beamport.statistics` are removed before.

    A class may follow runs: `begin(run)` is called before the first message of a run, `end(run)` behind the last, and
    returns results as a call does. With `per="run"` each run has an instance of its own, which is given exactly the
    members of the run, as its file has them, and messages of no run are filtered. `save()` returns the state of an
    instance, and `restore(state)` is given it in the next process: numbers, text, bytes, arrays, and lists and dicts of
    them. Then each message is in the state once, whenever a process is killed. Code with `end`, `save` or `per="run"`
    has one slot and one input. `beamport.slot` has the present run, and more.

    Behind a worker `groups`, code with `of="all"` is called with each group and its messages, `code(group, messages)`: a
    message with `first`, `count`, `time` and `missing`, and a `Batch`. Its results belong to the group.

    `pure` declares that what it returns follows from the message (or the batch) and the parameters alone: not from
    messages before, the time, random numbers, or other files. `beamport replay --through` then gives the same bytes
    each time, and says so.

    Example:
        >>> import beamport
        >>> @beamport.worker
        ... def total(message, scale=1):
        ...     return message["pixel_id"].sum() * scale
    """
    _check_words(batch, gather, pad)
    if per not in (None, "run"):
        raise ValueError('`per` is "run", or is left out')
    if of not in (None, "all"):
        raise ValueError('`of` is "all", or is left out')

    def mark(target: Any) -> Any:
        target.__beamport_batch__ = batch
        target.__beamport_per__ = per
        target.__beamport_of__ = of
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


def _check_words(batch: int, gather: bool | str, pad: bool) -> None:
    """Refuse words of `worker` that are none, or do not go together."""
    if not isinstance(batch, int) or isinstance(batch, bool):
        raise TypeError(f"`batch` is {batch!r}: give a whole number, `batch=8`")
    if batch < 1:
        raise ValueError("a batch has at least one message")
    if not isinstance(gather, bool) and gather != "pinned":
        raise TypeError(f'`gather` is {gather!r}: give `gather=True` or `gather="pinned"`, or leave it out')
    if not isinstance(pad, bool):
        raise TypeError(f"`pad` is {pad!r}: give `pad=True`, or leave it out")
    if gather and batch == 1:
        raise ValueError("`gather` puts the frames of a batch together: give `batch=8` as well")
    if pad and not gather:
        raise ValueError("`pad` fills up the array of `gather`: give `gather=True` as well")


def check_callable(target: Any) -> None:
    """Raise `TypeError` for what cannot be called as a worker, with what to write instead."""
    if not callable(target):
        raise TypeError(
            f"a worker is a function or a class, and this is {target!r}: give `mean`, not its name or result"
        )
    call: Any = target
    if inspect.isclass(target):
        call = next((vars(each)["__call__"] for each in target.__mro__ if "__call__" in vars(each)), None)
        if call is None:
            name = target.__name__
            raise TypeError(f"instances of `{name}` cannot be called: write `def __call__(self, message):` in it")
    if inspect.iscoroutinefunction(call) or inspect.isasyncgenfunction(call):
        raise TypeError("a worker is called without an event loop: write `def` in place of `async def`")


def declared(target: Any) -> dict[str, Any]:
    """Say what code declares of itself. Raises `TypeError` where that does not go together."""
    wishes = Wishes(target)
    return {
        "batch": getattr(target, "__beamport_batch__", 1),
        "pure": getattr(target, "__beamport_pure__", False),
        "follows_runs": wishes.ends_runs,
        "saves_state": wishes.saves_state,
        "members": wishes.members,
        "alone": wishes.alone(),
    }


class Wishes:
    """The hooks of code."""

    def __init__(self, target: Any) -> None:
        """Look at a function or a class. Raises `TypeError` where its hooks do not go together."""
        self.is_class = inspect.isclass(target)
        hooks = {name for name in ("begin", "end", "save", "restore") if self.is_class and hasattr(target, name)}
        self.has_end = "end" in hooks
        self.per_run = getattr(target, "__beamport_per__", None) == "run"
        self.follows_runs = self.per_run or bool(hooks & {"begin", "end"})
        self.ends_runs = self.per_run or self.has_end
        self.saves_state = "save" in hooks
        self.members = getattr(target, "__beamport_of__", None) == "all"
        if self.members and self.per_run:
            raise TypeError('`of="all"` and `per="run"` do not go together: sum in a worker behind this one')
        if self.members and getattr(target, "__beamport_batch__", 1) > 1:
            raise TypeError('`of="all"` gives the messages of one group: leave `batch` out')
        if self.per_run and not self.is_class:
            raise TypeError('`per="run"` makes an instance for each run: it is for classes')
        for hook in sorted(hooks):
            _check_hook(target, hook)
        if ("save" in hooks) != ("restore" in hooks):
            other = "restore" if self.saves_state else "save"
            raise TypeError(f"it has `{(hooks & {'save', 'restore'}).pop()}` and no `{other}`: add that")

    def alone(self) -> str | None:
        """Say why the code needs one slot and one input; `None` where it does not."""
        if self.per_run:
            return "it has an instance for each run, which must be given all messages of the run"
        if self.saves_state:
            return "it saves its state, which must have all messages before"
        return "it has `end`, and one slot of several does not know the last message" if self.has_end else None


def _fits(target: Any, parameters: dict[str, Any], before: int = 1) -> None:
    """Raise `TypeError` for parameters that code does not know, that it lacks, or that do not fit its annotations.

    `before`: arguments of a function that are no parameters.
    """
    before += _has_members(target)
    first = () if inspect.isclass(target) else (None,) * before
    try:
        signature = inspect.signature(target)
    except ValueError:
        # Some functions of C have none.
        return
    # Padded batches come with the number of real frames.
    counted = {"count": 0} if not inspect.isclass(target) and _is_padded(target) else {}
    if first or counted:
        _check_arguments(signature, first, counted)
    signature.bind(*first, **counted, **parameters)
    for name, wanted in _annotated(target).items():
        if name in parameters and not _is_one(parameters[name], wanted):
            kind = inspect.formatannotation(wanted)
            raise TypeError(f"`{name}` is annotated as `{kind}`, and {parameters[name]!r} is none")


def _check_arguments(signature: inspect.Signature, first: tuple[None, ...], counted: dict[str, int]) -> None:
    """Raise `TypeError` for a function that cannot be given its message, whatever its parameters."""
    try:
        signature.bind_partial(*first)
    except TypeError as wrong:
        given = {1: "the message, `def mean(message):`", 2: "a group and its messages, `def total(group, messages):`"}
        takes = given.get(len(first), f"{len(first)} arguments")
        raise TypeError(f"{wrong}: the code is called with {takes}") from None
    try:
        signature.bind_partial(*first, **counted)
    except TypeError as wrong:
        raise TypeError(f"{wrong}: with `pad` write `def mean(frames, count):`") from None


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
    before += _has_members(target)
    return [name for name in names[before:] if name != "count" or not _is_padded(target)]


def _has_members(target: Any) -> bool:
    return getattr(target, "__beamport_of__", None) == "all"


def _is_padded(target: Any) -> bool:
    gather: tuple[bool | str, bool] = getattr(target, "__beamport_gather__", (False, False))
    return gather[1]


def _check_hook(target: Any, hook: str) -> None:
    """Raise `TypeError` for a hook that cannot be called as a slot does."""
    forms = {
        "begin": "begin(self, run)",
        "end": "end(self, run)",
        "save": "save(self)",
        "restore": "restore(self, state)",
    }
    given = (None,) * (1 if hook == "save" else 2)
    try:
        inspect.signature(getattr(target, hook)).bind(*given)
    except TypeError as error:
        raise TypeError(f"`{hook}` is called as `{forms[hook]}` ({error})") from None


def with_files(parameters: dict[str, Any]) -> dict[str, Any]:
    """Give parameters that name a file, `{"file": PATH, "sha256": HASH}`, as paths.

    Raises `Error` for a file that has changed since the worker was started: its hash is in the commits.
    """
    return {name: _file(name, value) for name, value in parameters.items()}


def _file(name: str, value: Any) -> Any:
    if not isinstance(value, dict) or "file" not in value or set(value) - {"file", "sha256"}:
        return value
    path = Path(value["file"])
    if "sha256" in value:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != value["sha256"]:
            cause = "its SHA-256 is another than at the start of the worker"
            raise Error(f"the file of `{name}`, {path}, has changed", cause, "restart `beamport up` to use it")
    return path


class Code:
    """A worker as a slot runs it.

    Attributes:
        batch (int): messages that it is called with.
        call: what is to be called with a message or a batch.
        wishes (tuple): whether it follows runs, has an instance for each, saves its state, is a class, sees runs end.
        members (bool): whether it is called with a group and its messages.
    """

    call: Callable[..., Any]

    def __init__(self, target: Any, parameters: dict[str, Any]) -> None:
        """Make an instance of a class; a function gets its parameters with each call."""
        self._target = target
        self._asked = parameters
        self._parameters = parameters = with_files(parameters)
        check_callable(target)
        _fits(target, parameters)
        self.batch: int = declared(target)["batch"]
        wishes = Wishes(target)
        self.wishes = (wishes.follows_runs, wishes.per_run, wishes.saves_state, wishes.is_class, wishes.ends_runs)
        self.members = wishes.members
        self._is_class, self._per_run, self._saves_state = wishes.is_class, wishes.per_run, wishes.saves_state
        # Instances of runs by the identity of the run; of other classes the only one under an empty name.
        self._made: dict[str, Any] = {}
        self._is_warm = False
        self._present: list[str] = []
        self._runs: dict[str, Run] = {}
        if self._per_run:
            # A mistake in `__init__` or `setup` shows now, and not with the first message of a run.
            instance = self._make()
            _hook(instance, "teardown")()
            self.call = self._call_runs
        elif self._is_class:
            self._made[""] = self._make()
            # An instance may be false: one with a length of 0.
            self.call = self._called(self._made[""])
        else:
            self.call = self._called(functools.partial(target, **parameters))

    def _make(self) -> Any:
        instance = self._target(**self._parameters)
        _hook(instance, "setup")()
        return instance

    def change(self, text: str) -> None:
        """Take new parameters, a JSON object; `call` may be another then.

        Raises `TypeError` for those that it does not know: better no slot than each message aside.
        """
        asked: dict[str, Any] = json.loads(text)
        # The first are those that it was made with.
        if asked == self._asked:
            return
        parameters = with_files(asked)
        self._asked = asked
        if not self._is_class:
            _fits(self._target, parameters)
            self.call = self._called(functools.partial(self._target, **parameters))
        self._parameters = parameters
        for run, instance in self._made.items():
            if hasattr(instance, "configure"):
                instance.configure(**parameters)
                continue
            state = instance.save() if self._saves_state else None
            _hook(instance, "teardown")()
            self._made[run] = self._make()
            if self._saves_state:
                self._made[run].restore(state)
            if not self._per_run:
                self.call = self._called(self._made[run])

    def reset(self) -> None:
        """Reset the statistics, and what the code counts besides."""
        statistics.clear()
        for instance in self._made.values():
            _hook(instance, "reset")()

    def begin(self, text: str) -> None:
        """Begin a run, given as JSON: with an instance of its own, or a hook of the only one."""
        run = slot._run_of(text)
        if not self._per_run:
            _hook(self._made[""], "begin")(run)
            return
        name = json.loads(text)["id"]
        slot.missed, slot._own, self._runs[name] = 0, run, run
        self._made[name] = self._make()
        _hook(self._made[name], "begin")(run)

    def enter(self, runs: list[str]) -> None:
        """Say to which runs the next messages belong."""
        self._present = runs

    def again(self, message: Message) -> None:
        """Give the instance of the present run a message that was answered before the run was known."""
        for run in self._present:
            slot._own = self._runs[run]
            # Its exceptions are in the messages aside already, and its results were answered.
            with contextlib.suppress(Exception):
                value = self._called(self._made[run])(message if self.batch == 1 else [message])
                if inspect.isgenerator(value):
                    list(value)

    def miss(self, messages: int) -> None:
        """Say how many messages the instance lacks."""
        slot.missed = messages
        # An instance without runs may need none of them.
        if messages and self._per_run:
            slot.log.warning("the instance of this run lacks %d of its messages", messages)

    def end(self, run: str, text: str) -> Any:
        """End a run; returns its result."""
        instance = self._made.pop(run, None) if self._per_run else self._made[""]
        ended = slot._run_of(text)
        slot._own = ended if self._per_run else None
        self._runs.pop(run, None)
        value = None
        try:
            value = _hook(instance, "end")(ended)
            # A generator is a list of results.
            if inspect.isgenerator(value):
                value = list(value)
        except Exception as raised:
            self.fail(raised)
        if self._per_run:
            _hook(instance, "teardown")()
        return value

    def fail(self, raised: Exception) -> None:
        """Report what `end` raised, or that its result is none."""
        statistics["failed_ends"] = statistics.get("failed_ends", 0) + 1
        slot.log.error("`end` of a run failed, which has no result of it", exc_info=raised)

    def save(self) -> bytes:
        """Encode the state of all instances."""
        states = {run: instance.save() for run, instance in self._made.items()}
        return pack({"code": self._name(), "states": states})

    def restore(self, data: bytes, runs: list[str]) -> bool:
        """Take the states of the process before; false where they are of other code.

        runs: those that have begun, as JSON.
        """
        known = unpack(data)
        if known["code"] != self._name():
            return False
        if self._per_run:
            self._runs = {json.loads(text)["id"]: slot._run_of(text) for text in runs}
        for run, state in known["states"].items():
            slot._own = self._runs.get(run)
            instance = self._made[run] if run in self._made else self._make()
            self._made[run] = instance
            if instance.restore(state) is False:
                return False
        return True

    def _name(self) -> str:
        return f"{self._target.__qualname__}"

    def _call_runs(self, messages: Any) -> Any:
        """Call the instances of the present runs."""
        values = []
        for run in self._present:
            slot._own = self._runs[run]
            value = self._called(self._made[run])(messages)
            values.append(list(value) if inspect.isgenerator(value) and len(self._present) > 1 else value)
        # A message alone passes as it is.
        return values[0] if len(values) == 1 else values

    def _called(self, call: Any) -> Callable[..., Any]:
        """How a slot calls it: with a message or a batch, or through `_gathered`; its first call is behind `warm_up`."""
        gather, pad = getattr(self._target, "__beamport_gather__", (False, False))

        def called(call: Any) -> Callable[..., Any]:
            rows = self.batch if pad else None
            return functools.partial(_gathered, call, rows, gather == "pinned") if gather else call

        if self._is_warm or not self._is_class or not hasattr(call, "warm_up"):
            return called(call)

        def first(*given: Any) -> Any:
            if not self._is_warm:
                value = called(call.warm_up)(*given)
                if inspect.isgenerator(value):
                    list(value)
                self._is_warm = True
            return called(call)(*given)

        return first

    def close(self) -> None:
        """End it, once."""
        made, self._made = self._made, {}
        for instance in made.values():
            _hook(instance, "teardown")()


def _hook(instance: Any, name: str) -> Callable[..., Any]:
    return getattr(instance, name, lambda *_: None)


def _gathered(call: Callable[..., Any], batch: int | None, is_pinned: bool, frames: Any) -> Any:
    """Call code with the frames of a batch as one array; `batch`: their number with those of zeros."""
    first = frames[0].array
    make = _pinned.empty if is_pinned else np.empty
    array = make((batch or len(frames), *first.shape), first.dtype)
    array[len(frames) :] = 0
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
    if isinstance(value, float | int | np.ndarray):
        # It is checked when it is encoded, once.
        return Result(value, message, None, None, None, {})
    return None if value is None else result(value, message)
