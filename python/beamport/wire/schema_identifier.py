"""The schema of a buffer."""

from beamport.wire.exceptions import ShortBufferException, WrongSchemaException


def get_schema(buffer) -> str:
    """Return the schema id of a message; raises `ShortBufferException`."""
    if len(buffer) < 8:
        raise ShortBufferException("Could not retrieve schema as buffer too short")
    return bytes(buffer[4:8]).decode("utf-8")


def check_schema_identifier(buffer, expected_identifer: bytes) -> None:
    """Raise `WrongSchemaException` unless the message has this schema."""
    if get_schema(buffer) != expected_identifer.decode():
        raise WrongSchemaException(f"Incorrect schema: expected {expected_identifer} but got {get_schema(buffer)}")
