"""`x5f2`: status of a service."""

from collections import namedtuple

from beamport._core import _wire_read, _wire_write

FILE_IDENTIFIER = b"x5f2"

StatusMessage = namedtuple(
    "StatusMessage",
    (
        "software_name",
        "software_version",
        "service_id",
        "host_name",
        "process_id",
        "update_interval",
        "status_json",
    ),
)


def deserialise_x5f2(buffer) -> StatusMessage:
    """Read a message."""
    return StatusMessage._make(_wire_read("x5f2", buffer))


def serialise_x5f2(
    software_name: str,
    software_version: str,
    service_id: str,
    host_name: str,
    process_id: int,
    update_interval: int,
    status_json: str,
) -> bytes:
    """Write a message; `update_interval` in milliseconds."""
    return _wire_write(
        "x5f2", (software_name, software_version, service_id, host_name, process_id, update_interval, status_json)
    )
