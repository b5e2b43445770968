"""Commands to a running instrument: the socket in its data folder, one JSON object a line and one answer."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ._errors import Error, denied

# The instrument answers once the command is written down, or after 15 s that it is not.
PATIENCE_S = 17.0
# A cut-over loads code and finishes what is under way; the instrument gives up by itself before.
CUTOVER_S = 605.0


def ask(folder: Path, request: dict[str, Any], *, patience_s: float = PATIENCE_S) -> dict[str, Any]:
    """Say one command to the instrument that runs in `folder`, and return its answer.

    patience_s: how long it may take.

    Raises `Error` if it refuses, if none runs there, or if it does not answer.
    """
    with _connected(folder) as line:
        try:
            line.settimeout(patience_s)
            line.sendall(json.dumps(request).encode() + b"\n")
            with line.makefile("rb") as file:
                text = file.readline()
            answer = json.loads(text)
        except TimeoutError:
            cause = f"its process is stopped, or busy for more than {patience_s:g} s"
            hint = "run `beamport ls` to see whether a run began or ended; a pending command is dropped"
            raise Error("the instrument did not answer", cause, hint) from None
        except (OSError, ValueError) as error:
            raise Error("the instrument did not answer", str(error)) from None
    if not isinstance(answer, dict) or not isinstance(answer.get("ok", answer.get("fault")), dict):
        raise Error("cannot understand the instrument's answer", str(answer)[:200])
    if fault := answer.get("fault"):
        raise Error(*(str(fault.get(part, "")) for part in ("what", "cause", "hint")))
    ok: dict[str, Any] = answer["ok"]
    return ok


def put(folder: Path, pv: str, value: Any, *, timeout: float, wait: bool) -> float:
    """Have the instrument that runs in `folder` write a PV; returns the seconds until its server answered."""
    request = {"command": "put", "pv": pv, "value": _as_json(value), "timeout": round(timeout * 1e9), "wait": wait}
    return float(ask(folder, request, patience_s=timeout + PATIENCE_S)["seconds"])


def is_listening(folder: Path) -> bool:
    """Whether an instrument takes commands in this folder."""
    try:
        with _connected(folder):
            return True
    except Error:
        return False


@contextlib.contextmanager
def _connected(folder: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(PATIENCE_S)
        try:
            # By way of the open folder: a socket's path has at most 108 bytes.
            place = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                line.connect(f"/proc/self/fd/{place}/control.sock")
            finally:
                os.close(place)
        except PermissionError:
            error = PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder / "control.sock"))
            raise denied(f"the instrument in `{folder}` takes no command of this user", error) from None
        except OSError as error:
            hint = "start it with `beamport up FILE` in another terminal, or with `beamport.run`"
            raise Error(f"no instrument is running in `{folder}`", os.strerror(error.errno or 0), hint) from None
        yield line


def _as_json(value: Any) -> Any:
    """Turn a value of `put` into JSON, which has no numbers that are not finite: they become text."""
    value = value.tolist() if hasattr(value, "tolist") else value
    match value:
        case list() | tuple():
            return [_as_json(item) for item in value]
        case float() if not math.isfinite(value):
            return str(value)
        case bool() | int() | float() | str():
            return value
    kind = type(value).__name__
    raise Error("the value cannot be written to a PV", f"it is a {kind}", "write a number, text or a list of them")
