"""Signals of tests to other processes."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

# A guard against hanging only.
HANG_S = 120.0


def stop(pid: int) -> None:
    """SIGSTOP, and the stop of every thread awaited: a thread runs on for long after the signal on a busy machine."""
    os.kill(pid, signal.SIGSTOP)
    end = time.monotonic() + HANG_S
    while not all(_stands(task) for task in _tasks(pid)):
        if time.monotonic() > end:
            raise TimeoutError(f"process {pid} has not stopped for {HANG_S:.0f} s")
        time.sleep(0.001)


def _tasks(pid: int) -> list[Path]:
    """Its threads; none where the process has ended."""
    try:
        return list(Path(f"/proc/{pid}/task").iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return []


def _stands(task: Path) -> bool:
    """Whether a thread is stopped, or has ended."""
    try:
        state = (task / "stat").read_text().rpartition(") ")[2][:1]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state in "TtZX"
