"""Datagrams of detectors in plain Python, written from the tables of docs/reference/udp.md alone.

    python tests/framings.py

writes tests/vectors/framings.json: datagrams of the framings `geb`, `hadaq` and `ess` with the messages in them, and
bytes that are none with the reason. The result is committed; the tests of the crate `udp` read it.
"""

import json
import struct
from pathlib import Path

GEB = struct.Struct("<iiq")
ESS = struct.Struct("<BB3sBHBBIIIII")
TICKS = 88_052_500
WRAP = 1 << 24


def geb(kind: int, ticks: int, payload: bytes) -> bytes:
    """A unit of framing `geb`."""
    return GEB.pack(kind, len(payload), ticks) + payload


def read_geb(data: bytes) -> list[dict] | str:
    """The units of a datagram, or why it is none."""
    units, at = [], 0
    while at < len(data):
        if len(data) - at < GEB.size:
            return "length"
        _, length, ticks = GEB.unpack_from(data, at)
        if length < 0 or at + GEB.size + length > len(data):
            return "length"
        units.append({"offset": at, "length": GEB.size + length, "ticks": ticks})
        at += GEB.size + length
    return units or "length"


def padded(data: bytes, fill: bytes = b"\0") -> bytes:
    """The bytes with fill behind them up to a multiple of 8."""
    return data + fill * (-len(data) % 8)


def sub_event(hub: int, trigger: int, tag: int, data: bytes, order: str = "<", error: bool = False) -> bytes:
    """A sub-event of framing `hadaq`, without padding."""
    size, decoding = 16 + len(data), 0x00020001
    return struct.pack(order + "4I", size, decoding, hub | error << 31, trigger << 8 | tag) + data


def hadaq(*events: bytes, order: str = "<", is_last_padded: bool = True) -> bytes:
    """A datagram of framing `hadaq` with these sub-events."""
    body = b"".join(padded(event, b"\xee") for event in events)
    size = 8 + (len(body) if is_last_padded else len(body) - (-len(events[-1]) % 8))
    unit = struct.pack(order + "2I", size, 0x00020001) + body
    # A unit of fewer than 32 bytes ends within its copy, which repeats it.
    return unit + (unit * 4)[:32]


def order_of(data: bytes, at: int) -> str:
    """The byte order of what begins at this place."""
    return ">" if struct.unpack_from("<I", data, at + 4)[0] > 0xFFFFFF else "<"


def read_hadaq(data: bytes) -> list[dict] | str:
    """The sub-events of a datagram, or why it is none."""
    if len(data) < 8:
        return "length"
    (size,) = struct.unpack_from(order_of(data, 0) + "I", data)
    if size < 8 or len(data) != -(-size // 8) * 8 + 32:
        return "length"
    if data[:32] != data[-32:]:
        return "trailer"
    events, at, last = [], 8, None
    while at < size:
        if size - at < 16:
            return "length"
        length, _, who, trigger = struct.unpack_from(order_of(data, at) + "4I", data, at)
        if length < 16 or at + length > size:
            return "length"
        number, tag = trigger >> 8, trigger & 255
        if last is not None:
            number = min((number + turn * WRAP for turn in range(4)), key=lambda n: abs(n - last))
        events.append({"offset": at, "length": length, "number": number, "tag": tag, "is_suspect": bool(who >> 31)})
        at += -(-length // 8) * 8
        last = number
    return events


def ess(data: bytes, version: int = 1, **fields) -> bytes:
    """A datagram of framing `ess`."""
    values = {"pad": 0, "cookie": b"ESS", "kind": 0x10, "queue": 0, "source": 0, "seconds": 0, "ticks": 0, "number": 0}
    values |= {"length": (32 if version == 1 else 30) + len(data), "before": (0, 0)} | fields
    v = values
    head = ESS.pack(
        *(v["pad"], version, v["cookie"], v["kind"], v["length"], v["queue"], v["source"]),
        *(v["seconds"], v["ticks"], *v["before"], v["number"]),
    )
    return head + (b"\0\0" if version == 1 else b"") + data


def read_ess(data: bytes) -> list[dict] | str:
    """The message of a datagram, or why it is none."""
    if len(data) < 5:
        return "length"
    if data[2:5] != b"ESS" or data[0] != 0 or data[1] > 1:
        return "magic"
    if len(data) < (32 if data[1] == 1 else 30):
        return "length"
    fields = ESS.unpack_from(data)
    length, queue, seconds, ticks, number = fields[4], fields[5], fields[7], fields[8], fields[11]
    if length != len(data):
        return "length"
    if queue >= 12:
        return "queue"
    if ticks >= TICKS:
        return "time"
    time = seconds * 10**9 + ticks * 10**9 // TICKS
    return [{"offset": 0, "length": length, "number": number, "queue": queue, "time": time}]


def event(*subs: bytes, kind: int = 0x2001, when: tuple = (2026, 3, 1, 12, 0, 0), order: str = "<") -> bytes:
    """An event of a file of format `hld` with these sub-events."""
    body = b"".join(map(padded, subs))
    year, month, day, hour, minute, second = when
    date, clock = (year - 1900) << 16 | (month - 1) << 8 | day, hour << 16 | minute << 8 | second
    return struct.pack(order + "8I", 32 + len(body), 0x00030001, kind, 0, date, clock, 0, 0) + body


def read_hld(data: bytes) -> list[dict]:
    """The events of a file of format `hld`, each with its sub-events as bytes."""
    events, at = [], 0
    while at < len(data):
        order = order_of(data, at)
        size, _, kind, sequence, date, clock, run, _ = struct.unpack_from(order + "8I", data, at)
        assert size >= 32 and at + size <= len(data)
        subs, place = [], at + 32
        while place < at + size:
            (length,) = struct.unpack_from(order_of(data, place) + "I", data, place)
            assert 16 <= length <= at + size - place
            subs.append(data[place : place + length])
            place += -(-length // 8) * 8
        when = (1900 + (date >> 16), (date >> 8 & 255) + 1, date & 255, clock >> 16, clock >> 8 & 255, clock & 255)
        events.append({"kind": kind, "sequence": sequence, "when": when, "run": run, "subs": subs})
        at += -(-size // 8) * 8
    return events


def trigger_of(sub: bytes) -> int:
    """The number of the trigger of a sub-event: the upper 24 bits of its fourth word."""
    return struct.unpack_from(order_of(sub, 0) + "I", sub, 12)[0] >> 8


READERS = {"geb": read_geb, "hadaq": read_hadaq, "ess": read_ess}


def datagrams_of_geb() -> list[bytes]:
    """Units of each kind, the largest fields, and what is none."""
    two = geb(1, 7, b"abc") + geb(0x2B, 2**48 - 1, b"")
    good = [geb(3, 0, bytes(464)), two, geb(-1, 2**62, b"\xff" * 7)]
    wrong = [b"", two[:-1], two + b"\0", geb(1, 1, b"")[:15], GEB.pack(1, -1, 0), GEB.pack(1, 2**31 - 1, 0) + bytes(9)]
    return good + wrong


def datagrams_of_hadaq() -> list[bytes]:
    """Sub-events in both byte orders, a number that begins again, errors, and what is none."""
    one = sub_event(0x8000, 4711, 0x5A, b"twelve bytes")
    three = [
        sub_event(0x8000, number % WRAP, 200 + at, bytes(at)) for at, number in enumerate(range(WRAP - 1, WRAP + 2))
    ]
    big = sub_event(0x8001, 0xABCDEF, 255, b"words in big endian.", order=">")
    plain = hadaq(one)
    good = [plain, hadaq(*three), hadaq(big, order=">"), hadaq(big, one), hadaq(one, is_last_padded=False)]
    good += [hadaq(sub_event(1, 0, 0, b"")), hadaq(sub_event(7, 5, 1, b"\xff" * 3, error=True)), hadaq()]
    head = struct.pack("<4I", 40, 0x00020001, 1, 256)
    unit = struct.pack("<2I", 24, 0x00020001) + head
    wrong = [b"", plain[:7], plain[:-8], plain + bytes(8), plain[:-1] + b"\1", unit + unit + unit[:8]]
    wrong += [struct.pack("<2I", 4, 1) + bytes(32), struct.pack("<2I", 2**32 - 1, 1) + bytes(40)]
    short = struct.pack("<6I", 24, 0x00020001, 15, 0x00020001, 1, 256)
    wrong += [short + short + short[:8], struct.pack("<4I", 16, 1, 1, 1) * 3]
    return good + wrong


def datagrams_of_ess() -> list[bytes]:
    """Both versions, the largest fields, and what is none."""
    plain = ess(b"readouts", seconds=1_772_366_400, ticks=44_026_250, number=4711, queue=3, kind=0x34)
    old = ess(bytes(24), version=0, seconds=1_772_366_400, ticks=1, number=1, source=0xFF, before=(1, 2))
    good = [plain, old, ess(b""), ess(b"", version=0, number=2**32 - 1, seconds=2**32 - 1, ticks=TICKS - 1, queue=11)]
    wrong = [b"", plain[:4], plain[:31], old[:29], plain[:-1], plain + b"\0", plain[:2] + b"ESQ" + plain[5:]]
    wrong += [ess(b"", pad=1), ess(b"", version=2), ess(b"", queue=12), ess(b"", ticks=TICKS)]
    return good + wrong


def vectors() -> list[dict]:
    """Datagrams of all framings with what they are."""
    all_of = {"geb": datagrams_of_geb(), "hadaq": datagrams_of_hadaq(), "ess": datagrams_of_ess()}
    return [
        {"framing": framing, "hex": data.hex(), "messages": READERS[framing](data)}
        for framing, datagrams in all_of.items()
        for data in datagrams
    ]


if __name__ == "__main__":
    path = Path(__file__).parent / "vectors" / "framings.json"
    path.write_text(json.dumps(vectors(), indent=1) + "\n")
