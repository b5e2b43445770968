"""Files and instruments of another user: the error names the file, whose it is, and what to do."""

from __future__ import annotations

import grp
import os
import pwd

import beamport
import pytest
from payloads import write_events
from strangers import IS_ROOT, RefusedError, as_stranger, folder_of_all

OWNER, GROUP = pwd.getpwuid(os.geteuid())[0], grp.getgrgid(os.getegid())[0]


@pytest.fixture
def folder():
    with folder_of_all() as folder:
        (folder / "data").mkdir()
        write_events(folder / "data" / "camera", range(3), level="disk")
        # What is imported late is imported here: another user may not read this Python.
        repr(beamport.open(folder / "data"))
        list(beamport.open(folder / "data")["camera"].read())
        with pytest.raises(beamport.Error):
            beamport.open(folder)["nothing"]
        with pytest.raises(beamport.Error):
            beamport.open(folder / "data").status()
        yield folder / "data"


@pytest.mark.parametrize(
    "use",
    [repr, list, len, lambda data: data["camera"], lambda data: data.runs],
    ids=["repr", "list", "len", "item", "runs"],
)
def test_a_folder_that_may_not_be_entered(folder, use):
    folder.chmod(0o750 if IS_ROOT else 0)
    with pytest.raises(RefusedError) as refused:
        as_stranger(lambda: repr(use(beamport.open(folder))))
    assert refused.value.kind == "Error", refused.value
    mode = 750 if IS_ROOT else 0
    assert refused.value.cause == f"{folder} belongs to user {OWNER} and group {GROUP}, mode {mode}"
    assert "group" in refused.value.hint


def test_a_folder_in_one_that_may_not_be_entered(folder):
    folder.parent.chmod(0o700 if IS_ROOT else 0)
    with pytest.raises(RefusedError) as refused:
        as_stranger(lambda: repr(beamport.open(folder)))
    assert refused.value.cause.startswith(f"{folder.parent} belongs to user {OWNER}")
    folder.parent.chmod(0o755)


def test_a_stream_whose_files_may_not_be_read(folder):
    (folder / "camera").chmod(0o755)
    for file in (folder / "camera").iterdir():
        file.chmod(0o640 if IS_ROOT else 0)
    with pytest.raises(RefusedError) as refused:
        as_stranger(lambda: list(beamport.open(folder)["camera"].read()))
    assert refused.value.kind == "Error" and "cannot be opened" in refused.value.what
    assert refused.value.cause.startswith(f"{folder}/camera/stream belongs to user {OWNER}")


def test_a_reader_with_a_name_needs_to_write(folder):
    """Reading alone works for everybody who may read; a position is kept in a file."""
    folder.chmod(0o755)
    (folder / "camera").chmod(0o755)
    for file in (folder / "camera").iterdir():
        file.chmod(0o644 if IS_ROOT else 0o444)
    assert as_stranger(lambda: len(list(beamport.open(folder)["camera"].read()))) == 3
    with pytest.raises(RefusedError) as refused:
        as_stranger(lambda: list(beamport.open(folder)["camera"].read(name="analysis")))
    assert refused.value.kind == "Error" and "pins" in refused.value.cause and "group" in refused.value.hint


def test_a_command_to_the_instrument_of_another_user():
    with folder_of_all() as place:
        source = {"detector": {"kind": "sim", "model": "amor", "rate": 1e3, "level": "memory"}}
        with beamport.run({"instrument": "tiny", "data": str(place / "data"), "source": source}) as tiny:
            (place / "data").chmod(0o755)
            if not IS_ROOT:
                (place / "data" / "control.sock").chmod(0)
            with pytest.raises(RefusedError) as refused:
                as_stranger(lambda: beamport.open(place / "data").begin("mine"))
            assert "takes no command of this user" in refused.value.what
            assert f"control.sock belongs to user {OWNER}" in refused.value.cause
            assert tiny.runs == []
