"""Running an instrument from Python: the `beamport` program does it, this starts it, waits for it and ends it."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import signal
import subprocess
import sysconfig
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from ._control import is_listening
from ._data import Data
from ._errors import Error

# Lines of the program's own text that are kept for the error of a program that ends early.
_LINES_KEPT = 200
# Between two looks at a program that is starting: a person does not notice it.
_LOOK_S = 0.05


class Instrument(Data):
    """A running instrument: its data folder and its process. Made by `beamport.run`, used in a `with` block.

    All that `Data` is, commands included, and `running`, `wait` and `close`. Leaving the block closes it.
    """

    def __init__(self, command: list[str], folder: Path, streams: list[str], unneeded: Path | None) -> None:
        """See `beamport.run`."""
        super().__init__(folder)
        self._streams = streams
        self._unneeded = unneeded
        self._lines: list[str] = []
        # A group of its own: Ctrl-C in the terminal reaches Python alone, which then ends the instrument in order.
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            errors="replace", env=_environment(), process_group=0,
        )  # fmt: skip
        self._report: list[str] = []
        pipes = [(self._process.stderr, self._lines), (self._process.stdout, self._report)]
        self._listeners = [threading.Thread(target=_keep, args=pipe, daemon=True) for pipe in pipes]
        for listener in self._listeners:
            listener.start()

    @property
    def running(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    def wait(self, timeout: float | None = None) -> dict[str, Any]:
        """Wait until its runs are sealed and it has ended by itself; returns its report.

        timeout: seconds; `None` waits for ever.

        Raises `Error` if it failed, or still runs after `timeout`. A report that tells of loss is no error: look at
        the ledger in it. The report is what `beamport up --json` prints, that of the last run; its `run` is `None` if
        there was none.
        """
        until = math.inf if timeout is None else time.monotonic() + timeout
        while self.running:
            left = until - time.monotonic()
            if left <= 0:
                hint = "wait longer, or end it: `close()` finishes open runs"
                raise Error("the instrument still runs", f"{timeout} s have passed", hint)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(min(left, 0.1))
        return self._ended()

    def close(self) -> None:
        """End it as Ctrl-C does: open runs are ended and their files finished. Does nothing if it has ended.

        Raises `Error` if it failed.
        """
        if self.running:
            self._process.send_signal(signal.SIGINT)
        try:
            self.wait()
        except KeyboardInterrupt:
            # Ctrl-C again while it finishes: at once, as on the command line.
            self._process.send_signal(signal.SIGINT)
            self.wait()

    def __enter__(self) -> Self:
        """Use it in a `with` block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it; an error of the block is more important than one of closing."""
        if kind is None:
            self.close()
            return
        with contextlib.suppress(Error):
            self.close()

    def _await_streams(self) -> None:
        """Wait until all its streams are there and it takes commands, or it has ended."""
        while not (all(self._has(name) for name in self._streams) and is_listening(self.folder)):
            if not self.running:
                # A short run may be over; a failure says so.
                self._ended()
                return
            time.sleep(_LOOK_S)

    def _ended(self) -> dict[str, Any]:
        status = self._process.wait()
        for listener in self._listeners:
            listener.join()
        if self._unneeded is not None:
            self._unneeded.unlink(missing_ok=True)
        if status not in (0, 1):
            raise _error_of(self._lines, f"the instrument ended with status {status}")
        return _last_object(self._report)


def run(instrument: str | os.PathLike[str] | Mapping[str, Any]) -> Instrument:
    """Start an instrument in the background, and wait until its streams are there.

    instrument: the path of an instrument file, or what would stand in one as a `dict`; its relative paths begin at
        the current folder then.

    Use it in a `with` block: leaving the block ends the instrument as Ctrl-C does, so open runs are finished first.
    If Python is killed instead, the instrument goes on; `beamport top` shows it.

    Raises `Error` for a wrong instrument (with its first mistake), and if the program fails.

    Example::

        with beamport.run("amor.toml") as amor:
            amor.begin("nickel-2", title="Ni on glass")
            for m in amor["detector"].read(follow=True, timeout=10):
                ...
    """
    unneeded = None
    if isinstance(instrument, Mapping):
        unneeded = _write(instrument)
        file = unneeded
    else:
        file = Path(instrument)
    try:
        settings = _check(file)
        folder, streams = settings
        running = Instrument([_program(), "up", str(file), "--json"], folder, streams, unneeded)
    except BaseException:
        if unneeded is not None:
            unneeded.unlink(missing_ok=True)
        raise
    try:
        running._await_streams()
    except BaseException:
        running.__exit__(BaseException, None, None)
        raise
    return running


def _check(file: Path) -> tuple[Path, list[str]]:
    """Ask the program what the file means: its data folder, and the streams that its sources fill."""
    done = _call(["check", str(file), "--show", "--json"])
    answer = _last_object(done.stdout.splitlines())
    if mistakes := answer.get("mistakes"):
        first = mistakes[0]
        where = first.get("file") or str(file)
        where += f":{first['line']}" if first.get("line") else ""
        more = f" (and {len(mistakes) - 1} more)" if len(mistakes) > 1 else ""
        what = first.get("what") or first.get("message") or "a mistake"
        what += f" (at {first['pointer']})" if first.get("pointer") else ""
        hint = first.get("hint") or f"see them all with `beamport check {file}`"
        raise Error(f"{where}: {what}{more}", first.get("cause", ""), hint)
    if done.returncode != 0 or "resolved" not in answer:
        raise _error_of(done.stderr.splitlines(), f"cannot read `{file}`")
    resolved = answer["resolved"]
    streams = [section["name"] for section in resolved["sections"] if section["kind"] == "source"]
    return Path(resolved["settings"]["data"]["value"]), streams


def _program() -> str:
    """Find the `beamport` program: in this environment, where the wheel puts it, or on the PATH."""
    beside = Path(sysconfig.get_path("scripts")) / "beamport"
    found = str(beside) if beside.is_file() else shutil.which("beamport")
    if found is None:
        raise Error("no program `beamport`", f"it is neither {beside} nor on PATH", "install it: `pip install .`")
    return found


def _environment() -> dict[str, str]:
    return os.environ | {"NO_COLOR": "1"}


def _call(words: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [_program(), *words], capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL,
        env=_environment(), check=False,
    )  # fmt: skip


def _error_of(lines: list[str], what: str) -> Error:
    """Make an error of the three lines that the program prints: `error:`, `cause:` and `hint:`."""
    parts: dict[str, str] = {}
    for line in lines:
        word, colon, text = line.partition(":")
        if colon and word in ("error", "cause", "hint"):
            parts[word] = text.strip()
    rest = "\n".join(lines[-5:]).strip()
    return Error(parts.get("error", what), parts.get("cause", "" if parts else rest), parts.get("hint", ""))


def _last_object(lines: list[str]) -> dict[str, Any]:
    for line in reversed(lines):
        with contextlib.suppress(ValueError):
            value = json.loads(line)
            if isinstance(value, dict):
                return value
    return {}


def _keep(pipe: IO[str], lines: list[str]) -> None:
    """Read what the program says until it ends, and keep the last of it."""
    for line in pipe:
        lines.append(line.rstrip("\n"))
        del lines[:-_LINES_KEPT]


def _write(instrument: Mapping[str, Any]) -> Path:
    """Write an instrument into a new file in the current folder, where its relative paths begin."""
    text = _toml(instrument, [])
    try:
        with tempfile.NamedTemporaryFile("w", prefix=".instrument-", suffix=".toml", dir=".", delete=False) as file:
            file.write(text)
    except OSError as error:
        hint = "go to a folder that can be written, or write an instrument file"
        raise Error("cannot write the instrument down", str(error), hint) from None
    return Path(file.name)


def _toml(table: Mapping[str, Any], path: list[str]) -> str:
    """Write a table as TOML: its values, then its tables."""
    values = {key: value for key, value in table.items() if not isinstance(value, Mapping)}
    text = f"[{'.'.join(map(_quoted, path))}]\n" if path and values else ""
    text += "".join(f"{_quoted(key)} = {_value(value, [*path, key])}\n" for key, value in values.items())
    return text + "".join(_toml(value, [*path, key]) for key, value in table.items() if isinstance(value, Mapping))


def _value(value: object, path: list[str]) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str() | os.PathLike():
            return _quoted(os.fspath(value))
        case list() | tuple():
            return "[" + ", ".join(_value(item, path) for item in value) + "]"
    kind = type(value).__name__
    raise Error(
        f"`{'.'.join(path)}` is not allowed in an instrument",
        f"it is a {kind}",
        "write text, a number, a list or a dict",
    )


def _quoted(text: object) -> str:
    # JSON's escapes are a part of TOML's; DEL is the one character that TOML refuses and JSON lets through.
    return json.dumps(str(text)).replace("\x7f", "\\u007f")
