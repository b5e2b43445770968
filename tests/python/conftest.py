"""Data folders that leave nothing behind."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest


def remove(folder: Path) -> None:
    """Remove a data folder, and the shared memory of its streams."""
    for header in folder.glob("*/stream"):
        for line in header.read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == "live":
                shutil.rmtree(value, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def memory():
    """A data folder in shared memory."""
    folder = Path(tempfile.mkdtemp(prefix="beamport-test-", dir="/dev/shm"))
    yield folder
    remove(folder)


@pytest.fixture
def disk(tmp_path):
    """A data folder on disk."""
    folder = tmp_path / "data"
    folder.mkdir()
    yield folder
    remove(folder)


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    """An empty current folder, in which instruments may run."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for folder in tmp_path.glob("beamport-data/*"):
        remove(folder)
