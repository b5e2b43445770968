"""Libraries out of wheels of PyPI that are pinned by hash: fetching them, and which files of beamport they are."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

# Beside `bin` of an environment and beside `release` in cargo's target folder.
PLACE = Path("lib") / "beamport"


def download(pinned: Path, platform: str, scratch: Path) -> list[Path]:
    """The wheels of a list with hashes, as for CPython 3.13 on the platform."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary=:all:", "--python-version", "3.13", "--implementation", "cp", "--abi", "cp313"]
    command += ["--platform", platform, "--require-hashes", "--dest", str(scratch), "--requirement", str(pinned)]
    subprocess.run(command, check=True)
    return sorted(scratch.glob("*.whl"))


def only(names: Iterable[str]) -> str:
    """The one name."""
    found = list(names)
    if len(found) != 1:
        raise LookupError(f"the pinned wheel has {len(found)} files where one was expected")
    return found[0]
