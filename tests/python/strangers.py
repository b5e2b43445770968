"""What another user meets. As root, a child process becomes that user; else the tests take their own permissions away."""

from __future__ import annotations

import contextlib
import os
import pickle
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from payloads import remove

IS_ROOT = os.geteuid() == 0
# No user has it; root may become it.
NOBODY = 65534


@contextlib.contextmanager
def folder_of_all() -> Iterator[Path]:
    """A folder that everybody may enter; those of pytest are private."""
    folder = Path(tempfile.mkdtemp(prefix="beamport-test-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        for at, folders, _files in os.walk(folder):
            for name in folders:
                with contextlib.suppress(OSError):
                    (Path(at) / name).chmod(0o700)
        remove(folder)


def as_stranger(call: Callable[[], Any], groups: list[int] | None = None) -> Any:
    """What `call` returns or raises in a child process, as root of another user that is in `groups` alone."""
    receiving, sending = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            if IS_ROOT:
                os.setgroups(groups or [])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            try:
                answer = (True, call())
            except Exception as error:  # noqa: BLE001
                answer = (False, (type(error).__name__, *(getattr(error, n, "") for n in ("what", "cause", "hint"))))
            with os.fdopen(sending, "wb") as pipe:
                pickle.dump(answer, pipe)
        finally:
            os._exit(0)
    os.close(sending)
    with os.fdopen(receiving, "rb") as pipe:
        went, answer = pickle.load(pipe)
    os.waitpid(pid, 0)
    if not went:
        raise RefusedError(*answer)
    return answer


class RefusedError(Exception):
    """What the child raised: name of its class, and the parts of a `beamport.Error`."""

    def __init__(self, kind: str, what: str, cause: str, hint: str) -> None:
        super().__init__(kind, what, cause, hint)
        self.kind, self.what, self.cause, self.hint = kind, what, cause, hint
