"""Data folders that leave nothing behind."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from payloads import remove


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
