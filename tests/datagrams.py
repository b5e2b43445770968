"""Datagrams of the framing `beamport` in plain Python, written from docs/reference/udp.md alone.

    python tests/datagrams.py

writes tests/vectors/datagrams.json: datagrams with their fields, and bytes that are none with the reason. The result is
committed; the tests of the crate `udp` read it.
"""

import json
import struct
from pathlib import Path

HEADER = struct.Struct("<4sBBHHHIQQIII")
REST = struct.Struct("<4s12x")
NAMES = ("magic", "version", "header_bytes", "type", "subtype", "stream", "flags", "timestamp", "sequence")
NAMES += ("payload_bytes", "payload_crc", "run")
DATA, END, THROTTLE, BEAT = 1, 2, 3, 4
EPOCH = 1


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli), bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def datagram(sequence: int, payload: bytes = b"", **fields) -> bytes:
    """A datagram; `fields` are those of the header, by name."""
    values = dict.fromkeys(NAMES, 0) | {"magic": b"BPRT", "version": 1, "header_bytes": 64, "type": DATA}
    values |= {"sequence": sequence, "payload_bytes": len(payload), "payload_crc": crc32c(payload)}
    schema = fields.pop("schema", "none").encode()
    values |= fields
    head = HEADER.pack(*(values[name] for name in NAMES))
    return head + struct.pack("<I", fields.get("header_crc", crc32c(head))) + REST.pack(schema) + payload


def read(data: bytes) -> dict | str:
    """The fields of a datagram, or why it is none."""
    if len(data) < 64:
        return "length"
    fields = dict(zip(NAMES, HEADER.unpack_from(data), strict=True))
    if (fields.pop("magic"), fields.pop("version"), fields.pop("header_bytes")) != (b"BPRT", 1, 64):
        return "magic"
    (fields["header_crc"],) = struct.unpack_from("<I", data, 44)
    if fields["header_crc"] != crc32c(data[:44]):
        return "checksum"
    if fields["payload_bytes"] != len(data) - 64:
        return "length"
    if fields["type"] == DATA and fields["payload_crc"] != crc32c(data[64:]):
        return "checksum"
    return fields | {"schema": data[48:52].decode()}


def vectors() -> list[dict]:
    """Datagrams of each kind, the largest fields, and what is none."""
    most = {"subtype": 2**16 - 1, "stream": 2**16 - 1, "flags": 2**32 - 1, "timestamp": 2**64 - 1, "run": 2**32 - 1}
    plain = datagram(4711, b"123456789", flags=EPOCH, timestamp=1772366400_000000001, schema="ev44", run=7, stream=3)
    good = [plain, datagram(2**64 - 1, bytes(range(256)), **most, schema="abcd"), datagram(0)]
    good += [datagram(12, type=kind, flags=EPOCH, timestamp=5) for kind in (END, BEAT)]
    good += [datagram(0, struct.pack("<II", 612, 0), type=THROTTLE), datagram(1, b"x", type=9)]
    wrong = [b"", plain[:63], plain[:-1], plain + b"\0", b"BPRS" + plain[4:], plain[:4] + b"\2" + plain[5:]]
    wrong += [plain[:24] + b"\0" + plain[25:], plain[:70] + b"\0" + plain[71:], datagram(1, header_crc=0)]
    return [{"hex": data.hex(), "fields": read(data)} for data in good + wrong]


if __name__ == "__main__":
    path = Path(__file__).parent / "vectors" / "datagrams.json"
    path.write_text(json.dumps(vectors(), indent=1) + "\n")
