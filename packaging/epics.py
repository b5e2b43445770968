"""The EPICS client: libbeamport_epics.so out of crates/epics/shim, with the libraries of EPICS that it needs.

`python packaging/epics.py TARGET` puts them with their licences into TARGET/lib/beamport, where programs in
TARGET/release look for them. The libraries and their headers are those of pinned wheels; the client is compiled when
one of its sources has changed. Where there are no such wheels or no C++ compiler, beamport is built without it, and
the script says so.

`python packaging/epics.py TARGET --sanitize` makes the client once more, in TARGET/sanitized, with the sanitizers of
addresses and of undefined behaviour, and in TARGET/sanitized/bin the programs of TARGET/release that load it.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from pinned import PLACE, download

HERE = Path(__file__).resolve().parent
PINNED = HERE / "epics.txt"
SHIM = HERE.parent / "crates" / "epics" / "shim"
CLIENT = "libbeamport_epics.so"
# The libraries, as they are in the wheels; the linker asks for them by these names.
LIBRARIES = ["libpvxs.so", "libevent_core.so", "libevent_pthread.so", "libCom.so", "libca.so"]
# The wheels are compiled with the strings of before C++11.
FLAGS = ["-std=c++17", "-D_GLIBCXX_USE_CXX11_ABI=0", "-O2", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra"]
FLAGS += ["-Werror", "-pthread", "-shared", "-s"]
# A client that looks for mistakes in itself. PVXS and libca are not compiled so: of what they do with memory, only calls
# of functions such as `memcpy` are checked.
SANITIZE = ["-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
# The runtime of a program that loads such a library later comes first, and what it looks up in the C++ library is there.
SANITIZED = """#!/bin/sh
export LD_PRELOAD={runtime} BEAMPORT_EPICS={client}
export ASAN_OPTIONS=detect_leaks=0:log_path={reports} UBSAN_OPTIONS=print_stacktrace=1:log_path={reports}
exec {program} "$@"
"""
# Its threads would run on in what `dlclose` has unmapped; what it calls must be there when it is linked.
LINK = ["-Wl,-rpath,$ORIGIN", "-Wl,-z,nodelete", "-Wl,-z,defs", "-Wl,-soname," + CLIENT]


def provide(target: Path) -> list[Path]:
    """The files of the client, made where they are missing; none where it cannot be made."""
    folder = target / PLACE
    compiler = os.environ.get("CXX", "g++")
    try:
        if shutil.which(compiler) is None:
            raise LookupError(f"there is no C++ compiler `{compiler}`")
        headers, libraries = _fetch(target / "epics", folder)
    except (OSError, subprocess.CalledProcessError, LookupError, zipfile.BadZipFile) as error:
        # A client that is out of date must not be taken for one that is there.
        (folder / CLIENT).unlink(missing_ok=True)
        print(f"beamport is built without EPICS: {error}", file=sys.stderr)
        return []
    _compile(compiler, headers, folder, libraries)
    shutil.copy2(HERE / "LICENSE.libevent", folder)
    licences = [folder / name for name in ("LICENSE.pvxs", "LICENSE.epics", "LICENSE.libevent")]
    return [folder / CLIENT, *(folder / name for name in libraries), *licences]


def sanitize(target: Path) -> Path:
    """The folder with programs that load a client that looks for mistakes; what it finds is in `reports.PID` beside."""
    folder, compiler = target / "sanitized", os.environ.get("CXX", "g++")
    programs, lib = folder / "bin", folder / PLACE
    programs.mkdir(parents=True, exist_ok=True)
    headers, libraries = _fetch(target / "epics", target / PLACE)
    shutil.copytree(target / PLACE, lib, dirs_exist_ok=True)
    command = [part for part in _command(compiler, headers, lib, libraries) if part not in ("-O2", "-s")]
    subprocess.run([*command, *SANITIZE, "-o", str(lib / CLIENT)], check=True)
    named = [f"-print-file-name={name}" for name in ("libasan.so", "libstdc++.so.6")]
    found = [subprocess.run([compiler, name], check=True, capture_output=True, text=True).stdout for name in named]
    runtime = ":".join(str(Path(name.strip()).resolve()) for name in found)
    for program in (path for path in (target / "release").glob("beamport*") if os.access(path, os.X_OK)):
        wrapper = programs / program.name
        wrapper.unlink(missing_ok=True)
        if program.name != "beamport":
            wrapper.symlink_to(program)
            continue
        paths = {"client": lib / CLIENT, "reports": folder / "reports", "program": program}
        wrapper.write_text(SANITIZED.format(runtime=runtime, **paths))
        wrapper.chmod(0o755)
    return programs


def _fetch(scratch: Path, folder: Path) -> tuple[Path, list[str]]:
    """The folder of headers, and the names of the libraries, which are put into the folder unless they are there."""
    headers, stamp, wanted = scratch / "include", scratch / "pinned", PINNED.read_text()
    if stamp.is_file():
        written, _, names = stamp.read_text().partition("\0")
        libraries = names.split()
        if written == wanted and all((folder / name).is_file() for name in libraries):
            return headers, libraries
    if platform.libc_ver()[0] != "glibc" or platform.machine() != "x86_64":
        raise LookupError(f"there are no libraries of it for {platform.machine()} {sys.platform}")
    shutil.rmtree(scratch, ignore_errors=True)
    headers.mkdir(parents=True)
    folder.mkdir(parents=True, exist_ok=True)
    libraries = []
    with tempfile.TemporaryDirectory() as downloads:
        for path in download(PINNED, "manylinux2014_x86_64", Path(downloads)):
            with zipfile.ZipFile(path) as wheel:
                libraries += _unpack(wheel, headers, folder)
    stamp.write_text(wanted + "\0" + " ".join(libraries))
    return headers, libraries


def _unpack(wheel: zipfile.ZipFile, headers: Path, folder: Path) -> list[str]:
    """Headers, licence and libraries of a wheel. A library has the name that others ask for, and a version in it."""
    libraries = []
    for name in wheel.namelist():
        package, _, rest = name.partition("/")
        inner, _, file = rest.rpartition("/")
        if inner.split("/")[0] == "include":
            place = headers / Path(rest).relative_to("include")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(wheel.read(name))
        elif inner == "licenses":
            (folder / ("LICENSE.pvxs" if package.startswith("pvxs") else "LICENSE.epics")).write_bytes(wheel.read(name))
        elif inner == "lib" and re.sub(r"\.so\.[0-9.]+$", ".so", file) in LIBRARIES and not file.endswith(".so"):
            (folder / file).write_bytes(wheel.read(name))
            libraries.append(file)
    return libraries


def _sources() -> list[Path]:
    return sorted(path for path in SHIM.iterdir() if path.suffix in (".cpp", ".hpp", ".h"))


def _command(compiler: str, headers: Path, folder: Path, libraries: list[str]) -> list[str]:
    """The command of the compiler, without the name of what it makes."""
    versions = dict(re.findall(r"^(\w+)==([0-9.]+)", PINNED.read_text(), re.MULTILINE))
    version = f"PVXS {versions['pvxslibs']}, EPICS {versions['epicscorelibs']}"
    command = [compiler, *FLAGS, f'-DBEAMPORT_EPICS_VERSION="{version}"', "-isystem", str(headers)]
    command += [str(path) for path in _sources() if path.suffix == ".cpp"]
    return [*command, f"-L{folder}", *(f"-l:{name}" for name in libraries), *LINK]


def _compile(compiler: str, headers: Path, folder: Path, libraries: list[str]) -> None:
    """Compile the client, unless the one that is there is made of the same sources."""
    command, sources = _command(compiler, headers, folder, libraries), _sources()
    stamp, parts = headers.parent / "compiled", [" ".join(command).encode(), *(path.read_bytes() for path in sources)]
    wanted = hashlib.sha256(b"\0".join(parts)).hexdigest()
    if (folder / CLIENT).is_file() and stamp.is_file() and stamp.read_text() == wanted:
        return
    made = folder / (CLIENT + ".new")
    subprocess.run([*command, "-o", str(made)], check=True)
    # Replaced in one step: programs may have it loaded.
    made.replace(folder / CLIENT)
    stamp.write_text(wanted)


if __name__ == "__main__":
    if "--sanitize" in sys.argv[2:]:
        print(sanitize(Path(sys.argv[1]).resolve()))
    else:
        provide(Path(sys.argv[1]).resolve())
