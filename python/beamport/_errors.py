"""The one exception of the package: what failed, why, and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


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


def missing(what: str, name: str, there: Iterable[str]) -> MissingError:
    """Make the error for a name that is not among those `there`, with the nearest one as its hint."""
    names = sorted(there)
    shown = ", ".join(f"`{other}`" for other in names[:20]) + (", ..." if len(names) > 20 else "")
    cause = f"there are {shown}" if len(names) > 1 else f"there is {shown or 'none'}"
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if near:
        return MissingError(f"{what} `{name}`", cause, f'write "{near[0]}"')
    return MissingError(f"{what} `{name}`", cause, f'write one of them, like "{names[0]}"' if names else "")
