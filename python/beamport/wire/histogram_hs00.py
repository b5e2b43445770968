"""`hs00`: a histogram as a dict."""

from beamport.wire import _histogram

FILE_IDENTIFIER = b"hs00"


def deserialise_hs00(buffer) -> dict:
    """Read a message; the arrays are read-only views of the buffer."""
    return _histogram.read("hs00", buffer)


def serialise_hs00(histogram: dict) -> bytes:
    """Write a message: `timestamp`, `current_shape`, `dim_metadata`, `data`; the others are optional."""
    return _histogram.write("hs00", "uint", histogram)
