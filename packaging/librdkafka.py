"""librdkafka for the programs: the library in a pinned wheel of PyPI, or the features that compile it.

`python packaging/librdkafka.py TARGET PACKAGE` puts the library with its licence into TARGET/lib/beamport, where
programs in TARGET/release look for it, and prints the arguments with which cargo builds the package, one a line. With the library nothing of it is
compiled: cargo is told what the build script of `rdkafka-sys` would find. Without it (another system, no network) the
sources that come with `rdkafka-sys` are compiled; TLS and SCRAM are in it if the headers of OpenSSL are there.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from pinned import PLACE, download, only

HERE = Path(__file__).resolve().parent
PINNED = HERE / "librdkafka.txt"
# What links the programs with it; the name behind it is the library's own, which the programs ask for.
LINK_NAME = "librdkafka.so"
# What has a client, by package; with `-bundled` or `-bundled-tls` it is compiled.
FEATURES = {
    "beamport": "beamport/kafka",
    "beamport-ess": "beamport-ess/client",
    "beamport-kafka": "beamport-kafka/client",
}


def provide(target: Path, package: str) -> tuple[list[str], list[Path]]:
    """Arguments with which cargo builds the package, and the files that its programs need then."""
    feature = FEATURES[package]
    folder = target / PLACE
    try:
        _fetch(folder)
    except (OSError, subprocess.CalledProcessError, LookupError, zipfile.BadZipFile) as error:
        print(f"librdkafka is compiled from its sources: {error}", file=sys.stderr)
        return ["--features", f"{feature}-bundled{_tls()}"], []
    config = folder / "cargo.toml"
    # Written each time: a target folder may have been moved.
    lines = ['rustc-link-lib = ["rdkafka"]', f'rustc-link-search = ["native={folder}"]']
    config.write_text("\n".join([f"[target.{_host()}.rdkafka]", *lines, ""]))
    files = [file for file in sorted(folder.iterdir()) if "librdkafka" in file.name and file.name != LINK_NAME]
    return ["--features", feature, "--config", str(config)], files


def _fetch(folder: Path) -> None:
    """Put the library of the pinned wheel into the folder, unless it is there."""
    # The stamp is the list itself, written last.
    stamp, wanted = folder / ".pinned", PINNED.read_text()
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    if platform.libc_ver()[0] != "glibc" or platform.machine() not in ("x86_64", "aarch64"):
        raise LookupError(f"there is none for {platform.machine()} {sys.platform}")
    with tempfile.TemporaryDirectory() as scratch:
        [path] = download(PINNED, f"manylinux_2_28_{platform.machine()}", Path(scratch))
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("librdkafka*"):
            old.unlink()
        with zipfile.ZipFile(path) as wheel:
            library = only(name for name in wheel.namelist() if "/librdkafka-" in name)
            licence = only(name for name in wheel.namelist() if name.endswith("/LICENSE"))
            (folder / Path(library).name).write_bytes(wheel.read(library))
            (folder / "LICENSE.librdkafka").write_bytes(wheel.read(licence))
    (folder / LINK_NAME).symlink_to(Path(library).name)
    stamp.write_text(wanted)


def _host() -> str:
    """The machine that cargo compiles for."""
    said = subprocess.run(["rustc", "-vV"], stdout=subprocess.PIPE, text=True, check=True).stdout
    return only(line.removeprefix("host: ") for line in said.splitlines() if line.startswith("host: "))


def _tls() -> str:
    """The end of the feature with TLS, where the headers of OpenSSL are."""
    asked = subprocess.run(["pkg-config", "--exists", "openssl"], check=False) if shutil.which("pkg-config") else None
    return "-tls" if asked and asked.returncode == 0 else ""


if __name__ == "__main__":
    arguments, _ = provide(Path(sys.argv[1]).resolve(), sys.argv[2])
    print("\n".join(arguments))
