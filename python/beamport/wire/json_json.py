"""`json`: text that is JSON."""

from beamport._core import _wire_read, _wire_write

FILE_IDENTIFIER = b"json"


def deserialise_json(buffer) -> str:
    """Read a message; whether the text is JSON is not looked at."""
    return _wire_read("json", buffer)[0]


def serialise_json(json_str: str) -> bytes:
    """Write a message."""
    return _wire_write("json", (json_str,))
