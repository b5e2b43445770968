"""`answ`: answer of the ESS file writer."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from beamport._core import _wire_read, _wire_write
from beamport.wire._arrays import moment
from beamport.wire.fbschemas.action_response_answ.ActionOutcome import ActionOutcome
from beamport.wire.fbschemas.action_response_answ.ActionType import ActionType

FILE_IDENTIFIER = b"answ"


class Response(NamedTuple):
    """An answer; `action` and `outcome` are numbers of `ActionType` and `ActionOutcome`."""

    service_id: str
    job_id: str
    command_id: str
    action: int
    outcome: int
    message: str
    status_code: int
    stop_time: datetime


def serialise_answ(
    service_id: str,
    job_id: str,
    command_id: str,
    action: int,
    outcome: int,
    message: str,
    status_code: int,
    stop_time: datetime,
) -> bytes:
    """Write a message."""
    stop = int(stop_time.timestamp() * 1000)
    return _wire_write("answ", (service_id, job_id, action, outcome, status_code, stop, message, command_id))


def deserialise_answ(buffer) -> Response:
    """Read a message."""
    service_id, job_id, action, outcome, status_code, stop, message, command_id = _wire_read("answ", buffer)
    action, outcome = getattr(ActionType, action), getattr(ActionOutcome, outcome)
    return Response(service_id, job_id, command_id, action, outcome, message, status_code, moment(stop / 1000))
