"""`hs01`: a histogram as a dict."""

from beamport.wire import _histogram

FILE_IDENTIFIER = b"hs01"


def deserialise_hs01(buffer) -> dict:
    """Read a message; the arrays are read-only views of the buffer."""
    return _histogram.read("hs01", buffer)


def serialise_hs01(histogram: dict) -> bytes:
    """Write a message: `timestamp`, `current_shape`, `dim_metadata`, `data`; the others are optional."""
    return _histogram.write("hs01", "int", histogram)
