"""`group` in the instrument file: who else may read, keep a position by name, and give commands."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import beamport
import pytest
from beamport._instrument import _program
from strangers import IS_ROOT, RefusedError, as_stranger, folder_of_all

# A group that no user has by itself; without root one of this user's own.
GROUP = 54321 if IS_ROOT else os.getegid()
SOURCES = {
    "memory": {"kind": "sim", "model": "amor", "rate": 1e3, "level": "memory"},
    "disk": {"kind": "sim", "model": "amor", "rate": 1e3},
}


def instrument(place: Path, group: bool) -> dict:
    return {
        "instrument": "tiny",
        "data": str(place / "data"),
        "source": SOURCES,
        **({"group": str(GROUP)} if group else {}),
    }


def modes(folder: Path) -> dict[str, tuple[int, int]]:
    """Group and mode of all that is in a folder, and of the live places of its streams."""
    found = {}
    for place in [folder, *live_places(folder)]:
        for at, folders, files in os.walk(place):
            for path in [Path(at), *(Path(at) / name for name in (*folders, *files))]:
                seen = path.lstat()
                found[str(path)] = (seen.st_gid, stat.S_IMODE(seen.st_mode))
    return found


def live_places(folder: Path) -> list[Path]:
    lines = [line for header in folder.glob("*/stream") for line in header.read_text().splitlines()]
    return [Path(line.removeprefix("live ")) for line in lines if line.startswith("live ")]


def use_all(folder: Path) -> list:
    """What a member of the group does: read, keep a position, command."""
    data = beamport.open(folder)
    done = []
    for name in SOURCES:
        with data[name].read(name="analysis", follow=True, timeout=30) as messages:
            done.append(next(messages)["pixel_id"].size >= 0)
            messages.commit()
            done.append(messages.committed >= 1)
    number = len(data.runs)
    done.append(data.begin(f"mine-{number}").state == "open")
    done.append(data.end(f"mine-{number}").stop is not None)
    return done


@pytest.fixture(autouse=True)
def imported(tmp_path):
    """What is imported late is imported before another user does it."""
    with beamport.run(instrument(tmp_path, group=False)) as tiny:
        assert all(use_all(tiny.folder))
    with pytest.raises(beamport.Error):
        tiny.status()


def test_members_read_keep_positions_and_command():
    with folder_of_all() as place:
        for _ in range(2):
            with beamport.run(instrument(place, group=True)) as tiny:
                assert as_stranger(lambda: use_all(place / "data"), [GROUP]) == [True] * 6
                found = modes(tiny.folder)
                assert {group for group, _ in found.values()} == {GROUP}
                # Others have nothing, and the group writes only where readers note their positions.
                assert {path for path, (_, mode) in found.items() if mode & 0o007} == set()
                written = {Path(path).name for path, (_, mode) in found.items() if mode & 0o020}
                assert written == {"pins", "control.sock"}
                if IS_ROOT:
                    with pytest.raises(RefusedError):
                        as_stranger(lambda: list(beamport.open(place / "data")))
            # Nobody runs it: what it recorded is read.
            assert as_stranger(lambda: beamport.open(place / "data")["disk"].count, [GROUP]) > 0
        assert {run.state for run in beamport.open(place / "data").runs} == {"sealed"}


def test_a_folder_is_shared_later_and_taken_back():
    with folder_of_all() as place:
        with beamport.run(instrument(place, group=False)) as tiny:
            before = tiny["disk"].uuid
        assert not (place / "data" / ".group").exists()
        with beamport.run(instrument(place, group=True)) as tiny:
            assert tiny["disk"].uuid == before
            assert all(as_stranger(lambda: use_all(place / "data"), [GROUP]))
        with beamport.run(instrument(place, group=False)) as tiny:
            found = modes(tiny.folder)
            assert {group for group, _ in found.values()} == {os.getegid()}
            assert not [path for path, (_, mode) in found.items() if mode & 0o022]
            if IS_ROOT:
                with pytest.raises(RefusedError, match="belongs to user"):
                    as_stranger(lambda: use_all(place / "data"), [GROUP])
            assert tiny["disk"].uuid == before and use_all(tiny.folder)


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_it_does_not_depend_on_the_umask(umask):
    before = os.umask(umask)
    try:
        with folder_of_all() as place:
            with beamport.run(instrument(place, group=True)) as tiny:
                assert all(as_stranger(lambda: use_all(place / "data"), [GROUP]))
                assert not [path for path, (_, mode) in modes(tiny.folder).items() if mode & 0o007]
    finally:
        os.umask(before)


def test_a_group_that_is_not_there_is_a_mistake_at_its_line(tmp_path):
    file = tmp_path / "tiny.toml"
    file.write_text('instrument = "tiny"\ngroup = "no-such-group"\n[source.a]\nkind = "sim"\nmodel = "amor"\n')
    done = subprocess.run([_program(), "check", str(file)], capture_output=True, text=True)
    assert done.returncode == 2 and f"{file}:2" in done.stderr + done.stdout
    assert "there is no group `no-such-group`" in done.stderr + done.stdout
    assert "getent group" in done.stderr + done.stdout
