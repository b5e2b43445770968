"""Exceptions of the (de)serialisers, under the names of `streaming_data_types`."""

import struct

from beamport._errors import Error


class StreamingDataTypesException(Error):  # noqa: N818  (the name is not ours)
    """Any of these."""


class WrongSchemaException(StreamingDataTypesException):
    """The buffer holds a message of another schema."""


class ShortBufferException(StreamingDataTypesException):
    """The buffer is too short to say its schema."""


class BrokenBufferException(StreamingDataTypesException):
    """The buffer is no message of its schema; beamport checks all of it before it gives anything out."""


class UnfitValueException(  # noqa: N818  (as the others here)
    StreamingDataTypesException, TypeError, ValueError, KeyError, struct.error
):
    """A value that the schema cannot hold: of another type, or too large.

    The other package raises one of the four as it happens, so what was written to catch them catches this.
    """

    __str__ = StreamingDataTypesException.__str__
