"""A slot of a worker: `python -m beamport._slot JSON`, started by `beamport up`."""

from __future__ import annotations

import ctypes
import difflib
import faulthandler
import importlib
import importlib.util
import inspect
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ._code import Copied
from ._context import slot
from ._core import _Slot
from ._worker import Code, _fits, check_callable, declared, found_by, statistics, taken_by, with_files


def load(call: str, folder: str, copied: Copied | None = None) -> Any:
    """Find `mine.py:function` (beside the instrument file) or `package.module:function`, in a copy where it is there."""
    where, _, name = call.rpartition(":")
    if where.endswith(".py"):
        path = (Path(folder) / where).resolve()
        sys.path.insert(0, str(path.parent))
        spec = copied.spec(path.stem, path.name) if copied else None
        spec = spec or importlib.util.spec_from_file_location(path.stem, path)
        if spec is None or spec.loader is None:
            raise ImportError(f"{path} is not a Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
    else:
        sys.path.insert(0, folder)
        module = importlib.import_module(where)
    target: Any = module
    for part in name.split("."):
        if not hasattr(target, part):
            near = difflib.get_close_matches(
                part, [name for name in vars(target) if callable(getattr(target, name))], 1
            )
            raise AttributeError(f"`{where}` has no `{name}`" + (f"; it has `{near[0]}`" if near else ""))
        target = getattr(target, part)
    return target


def _die_with(parent: int) -> None:
    """Have the kernel kill this process when the mover dies."""
    prctl_set_death_signal = 1
    ctypes.CDLL(None).prctl(prctl_set_death_signal, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(0)


def _copied(code: dict[str, Any]) -> Copied | None:
    """The copy of the code that is to be loaded; imports look there first."""
    if not code["copied"]:
        return None
    copied = Copied(code["copied"])
    copied.install()
    return copied


def declare(says: Callable[[], dict[str, Any]]) -> int:
    """Print what `says` returns of the code, as a line of JSON; what the code prints itself goes to stderr."""
    line = os.dup(1)
    os.dup2(2, 1)
    try:
        said = says()
    except BaseException as wrong:  # noqa: BLE001 - `sys.exit` of the code as well
        said = {"wrong": _wrong(wrong)}
    with os.fdopen(line, "w") as out:
        print(json.dumps(said), file=out)
    return 0


def _declared(job: dict[str, Any]) -> dict[str, Any]:
    code = job["code"]
    target = load(code["call"], code["folder"], _copied(code))
    # A message is the first argument of a function; a finder gets three arrays.
    before = 3 if job["finds"] else 1
    if not job["finds"]:
        check_callable(target)
    try:
        parameters = with_files(code["parameters"])
        _fits(target, parameters, before)
        if job["changes"] and inspect.isclass(target) and hasattr(target, "configure"):
            _fits(target.configure, parameters)
    except TypeError as misfit:
        return {"misfit": str(misfit), "takes": taken_by(target, before)}
    return {} if job["finds"] else declared(target)


def _wrong(wrong: BaseException) -> str:
    """Say what code raised while it was loaded, and where."""
    text = traceback.format_exception_only(wrong)[-1].strip()
    if isinstance(wrong, SyntaxError):
        return f"{text} ({wrong.filename}, line {wrong.lineno})" if wrong.filename else text
    own = (__file__, importlib.__file__, "<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>")
    frames = [frame for frame in traceback.extract_tb(wrong.__traceback__) if frame.filename not in own]
    return f"{text} ({frames[-1].filename}, line {frames[-1].lineno})" if frames else text


def _find(process: _Slot, code: dict[str, Any], copied: Copied | None) -> None:
    """Find groups as code of the user says: the rest is that of the ready-made worker."""

    def make(text: str) -> tuple[Any, int, int | None]:
        parameters = json.loads(text)
        return found_by(load(parameters["find"], code["folder"], copied), parameters.get("arguments", {}))

    process.run_finder(make)


def main() -> int:
    """Run until told to end."""
    # The bytes of the argument, whatever the locale: JSON is UTF-8.
    text = os.fsencode(sys.argv[1])
    job = json.loads(text)
    _die_with(job["parent"])
    # A pipe leads to the mover, which prints each line with the name of this slot: a line must not wait for others.
    sys.stdout.reconfigure(line_buffering=True)
    # The job of a process that only loads the code names no worker.
    if "stage" not in job:
        return declare(lambda: _declared(job))
    if job["cpu"] is not None:
        os.sched_setaffinity(0, {job["cpu"]})
    # Ctrl-C is for the mover: it lets slots finish what they have.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable()
    asked = job["code"]
    copied = _copied(asked)
    if asked["call"] == "groups":
        _find(_Slot(text), asked, copied)
        return 0
    slot._begin(text)
    code = Code(load(asked["call"], asked["folder"], copied), asked["parameters"])
    # Only now: the streams of a slot that cannot load its code are not opened.
    process = _Slot(text)
    slot._read = process.runs.read
    process.run(code, statistics.json)
    code.close()
    slot._end()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Exception:
        traceback.print_exc()
        sys.exit(3)
