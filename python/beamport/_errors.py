"""The one exception of the package: what failed, why, and what to do."""

from __future__ import annotations

import difflib
import grp
import os
import pwd
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any


class Error(Exception):
    """An error from outside: a file, a message, a name, a program.

    Attributes, all `str`:
        what: what failed, with its name.
        cause: why; empty where `what` says all.
        hint: one thing to do, a command or something to write; empty where there is none.

    Example:
        >>> import beamport
        >>> try:
        ...     beamport.open("no-such-folder")
        ... except beamport.Error as error:
        ...     print(error.cause)
        no such folder
    """

    what: str
    cause: str
    hint: str

    def __init__(self, what: str, cause: str = "", hint: str = "") -> None:
        """Three pieces of text; the last two may be empty."""
        super().__init__(what, cause, hint)
        self.what, self.cause, self.hint = what, cause, hint

    def __str__(self) -> str:
        """Up to three lines, as the command line prints them."""
        lines = [self.what]
        if self.cause:
            lines.append(f"cause: {self.cause}")
        if self.hint:
            lines.append(f"hint:  {self.hint}")
        return "\n".join(lines)


class MissingError(Error, KeyError):
    """A name that is not there; a `KeyError` too, so that mappings behave as Python's own."""

    __str__ = Error.__str__


def denied(what: str, error: OSError) -> Error:
    """Make the error for a file that this user may not use: which one, whose it is, and what to do about it."""
    path = Path(os.fsdecode(error.filename or "."))
    # The folder on the way that may not be entered, or the file itself.
    found = next((up for up in reversed(path.parents) if not _may_enter(up)), path)
    try:
        at = found.stat()
    except OSError:
        return Error(what, f"no permission for {found}", "ask its owner to let your user read it")
    owner, group = _name(at.st_uid, pwd.getpwuid), _name(at.st_gid, grp.getgrgid)
    cause = f"{found} belongs to user {owner} and group {group}, mode {at.st_mode & 0o7777:o}"
    if at.st_gid in (os.getegid(), *os.getgroups()):
        return Error(what, cause, f'write `group = "{group}"` in the instrument file and start it again, as {owner}')
    hint = f'become a member of the group {group}, or let {owner} write `group = "..."` in the instrument file'
    return Error(what, cause, hint)


def _denied(what: str, path: str) -> Error:
    """As `denied`, for the compiled half."""
    return denied(what, PermissionError(13, "", path))


def _may_enter(folder: Path) -> bool:
    return os.access(folder, os.X_OK) or not os.path.lexists(folder)


def _name(number: int, of: Callable[[int], Any]) -> str:
    try:
        return str(of(number)[0])
    except KeyError:
        return str(number)


def missing(what: str, name: str, there: Iterable[str]) -> MissingError:
    """Make the error for a name that is not among those `there`, with the nearest one as its hint."""
    names = sorted(there)
    shown = ", ".join(f"`{other}`" for other in names[:20]) + (", ..." if len(names) > 20 else "")
    cause = f"there are {shown}" if len(names) > 1 else f"there is {shown or 'none'}"
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if near:
        return MissingError(f"{what} `{name}`", cause, f'write "{near[0]}"')
    return MissingError(f"{what} `{name}`", cause, f'write one of them, like "{names[0]}"' if names else "")
