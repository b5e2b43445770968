"""`wrdn`: the ESS file writer has finished a file."""

from __future__ import annotations

from typing import NamedTuple

from beamport._core import _wire_read, _wire_write
from beamport.wire._arrays import flag

FILE_IDENTIFIER = b"wrdn"

WritingFinished = NamedTuple(
    "FinishedWriting",
    (
        ("service_id", str),
        ("job_id", str),
        ("error_encountered", bool),
        ("file_name", str),
        ("metadata", str | None),
        ("message", str | None),
    ),
)


def serialise_wrdn(
    service_id: str,
    job_id: str,
    error_encountered: bool,
    file_name: str,
    metadata: str | None = None,
    message: str | None = None,
) -> bytes:
    """Write a message; empty metadata and message are left out."""
    return _wire_write(
        "wrdn", (service_id, job_id, flag(error_encountered), file_name, metadata or None, message or None)
    )


def deserialise_wrdn(buffer) -> WritingFinished:
    """Read a message."""
    *values, metadata, message = _wire_read("wrdn", buffer)
    return WritingFinished(*values, metadata or None, message or None)
