"""`6s4t`: stop of a run, for the ESS file writer."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from beamport._core import _wire_read, _wire_write
from beamport.wire._arrays import milliseconds

FILE_IDENTIFIER = b"6s4t"


class RunStopInfo(NamedTuple):
    """A stop; its time in milliseconds since 1970 UTC, 0 = now."""

    stop_time: int
    run_name: str
    job_id: str
    service_id: str
    command_id: str


def serialise_6s4t(
    job_id: str,
    run_name: str = "test_run",
    service_id: str = "",
    command_id: str = "",
    stop_time: int | datetime | None = None,
) -> bytes:
    """Write a message."""
    service_id = "" if service_id is None else service_id
    return _wire_write("6s4t", (milliseconds(stop_time, 0), run_name, job_id, service_id, command_id))


def deserialise_6s4t(buffer) -> RunStopInfo:
    """Read a message."""
    return RunStopInfo._make(_wire_read("6s4t", buffer))
