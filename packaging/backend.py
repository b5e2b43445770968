"""PEP 517 backend of beamport: compiles the two programs with cargo, then lets maturin make the wheel.

maturin builds either a Python module or a program into a wheel, not both, so the programs are compiled here and
handed over as ready scripts (`packaging/wheel-data/scripts`): pip puts them beside the other commands of the
environment, where `beamport` finds `beamport-nexus` next to itself and starts without waking Python. librdkafka goes
into `lib/beamport` of the environment (`packaging/wheel-data/data`), where `beamport` looks for it: librdkafka.py. So
does the client of EPICS with its libraries: epics.py.

Everything is compiled in the repository's own target folder with the release profile: HDF5, which takes minutes,
is compiled there once for the wheel, for `cargo xtask` and for plain `cargo build --release`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import epics
import librdkafka
import maturin
from maturin import get_requires_for_build_editable, get_requires_for_build_wheel
from pinned import PLACE

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "packaging" / "wheel-data"
SCRIPTS = DATA / "scripts"
# (package, program)
PROGRAMS = [("beamport", "beamport"), ("beamport-nexus", "beamport-nexus")]


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    """Describe the wheel; nothing is compiled."""
    SCRIPTS.mkdir(parents=True, exist_ok=True)  # maturin asks for its folder even now
    return maturin.prepare_metadata_for_build_wheel(metadata_directory, config_settings)


def prepare_metadata_for_build_editable(metadata_directory, config_settings=None):
    """Describe the editable wheel; nothing is compiled."""
    SCRIPTS.mkdir(parents=True, exist_ok=True)
    return maturin.prepare_metadata_for_build_editable(metadata_directory, config_settings)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Make the wheel with the module, the package and the programs."""
    _place_programs()
    return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """Like `build_wheel`, but the package is read from `python/` in place."""
    _place_programs()
    return maturin.build_editable(wheel_directory, config_settings, metadata_directory)


class UnsupportedOperation(Exception):  # noqa: N818
    """What PEP 517 calls a request that a backend does not serve."""


def build_sdist(sdist_directory, config_settings=None):
    """Refused: the sources of all crates are the repository itself."""
    raise UnsupportedOperation("beamport has no source archive; make a wheel from a clone: `pip wheel .`")


def _place_programs() -> None:
    """Compile the programs and copy them to where maturin takes scripts from."""
    target = _target()
    arguments, files = librdkafka.provide(target, "beamport")
    command = ["cargo", "build", "--release", *arguments]
    for package, program in PROGRAMS:
        command += ["--package", package, "--bin", program]
    _check(subprocess.run(command, cwd=ROOT, env=_environment(), check=False), command)

    shutil.rmtree(DATA, ignore_errors=True)
    SCRIPTS.mkdir(parents=True)
    for _, program in PROGRAMS:
        shutil.copy2(target / "release" / program, SCRIPTS / program)
        (SCRIPTS / program).chmod(0o755)
    for file in files + epics.provide(target):
        place = DATA / "data" / PLACE
        place.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, place / file.name)


def _environment() -> dict[str, str]:
    """The environment for cargo, with the cmake of this build unless the user named one.

    HDF5 needs cmake >= 3.26; `build-system.requires` brings one, so an older one of the system does no harm.
    """
    environment = dict(os.environ)
    if "CMAKE" not in environment:
        try:
            from cmake import CMAKE_BIN_DIR
        except ImportError:  # built without isolation, and cmake came from elsewhere
            pass
        else:
            environment["CMAKE"] = os.path.join(CMAKE_BIN_DIR, "cmake")
    return environment


def _target() -> Path:
    """cargo's target folder, which the user may have moved by environment or configuration."""
    command = ["cargo", "metadata", "--format-version", "1", "--no-deps"]
    run = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=False)
    _check(run, command)
    return Path(json.loads(run.stdout)["target_directory"])


def _check(run: subprocess.CompletedProcess, command: list[str]) -> None:
    if run.returncode != 0:
        raise SystemExit(f"error: `{' '.join(command)}` failed with status {run.returncode}")
