"""`vc00`: which reasons not to count a pulse are in force at ISIS."""

from __future__ import annotations

from collections import namedtuple

from beamport._core import _wire_read, _wire_write

FILE_IDENTIFIER = b"vc00"
NUM_VETOES = 32

VetoesInfo = namedtuple("VetoesInfo", ("timestamp_ns", "vetoes", "veto_names"))


def deserialise_vc00(buffer) -> VetoesInfo:
    """Read a message; the names are `bytes`, as the package of ISIS has them."""
    timestamp, vetoes, names = _wire_read("vc00", buffer)
    return VetoesInfo(timestamp, vetoes, [name.encode() for name in names])


def serialise_vc00(timestamp_ns: int, vetoes: int, veto_names: list[bytes]) -> bytes:
    """Write a message; a name for each of 32 bits, as `bytes` or text."""
    if len(veto_names) != NUM_VETOES:
        text = f"Veto names not required amount of length (actual: {len(veto_names)}, expected {NUM_VETOES})"
        raise RuntimeError(text)
    names = [name.decode() if isinstance(name, bytes) else name for name in veto_names]
    return _wire_write("vc00", (timestamp_ns, vetoes, names))
