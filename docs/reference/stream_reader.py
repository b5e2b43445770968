"""Reads streams of formats 1 and 2 in plain Python: made from stream-format.md alone, no map, nothing of beamport.

With the folder of a stream it prints each message. Checked against the package by tests/python/test_stream_format.py.
"""

import re
import struct
import sys
from functools import reduce
from pathlib import Path

MASK = 2**64 - 1
TABLE = [reduce(lambda crc, _: crc >> 1 ^ 0x82F63B78 * (crc & 1), range(8), byte) for byte in range(256)]
ESCAPED, PLAIN = re.compile(r"\\(?:u\{(\w+)\}|(.))"), {"t": "\t", "r": "\r", "n": "\n"}


def crc32c(data: bytes) -> int:
    return reduce(lambda crc, byte: TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8, data, 0xFFFFFFFF) ^ 0xFFFFFFFF


def mix(z: int) -> int:
    z = (z + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def word(data: bytes, at: int, size: int = 4) -> int:
    return int.from_bytes(data[at : at + size], "little")


class WrongError(Exception):
    """Bytes that do not verify."""


def salt(uuid: bytes, epoch: int, n: int) -> int:
    a, b = struct.unpack("<QQ", uuid)
    return mix(mix(a ^ mix(b ^ mix(epoch + 1))) ^ n) >> 32


def block(data: bytes) -> tuple:
    """(uuid, epoch, previous, frontier, messages) of a block: of each message its sequence, then as `message` does, with
    the name of the origin."""
    if len(data) < 64 or data[:4] != b"BBLK" or word(data, 4, 2) != 1:
        raise WrongError("what is no block")
    uuid, epoch, count, first, previous, frontier, length, crc = struct.unpack_from("<16sIIQQqII", data, 8)
    names, origins = data[len(data) - length :] if length else b"", []
    if crc != crc32c(data[:60] + names):
        raise WrongError("the head of a block")
    while names:
        end = 2 + word(names, 0, 2)
        origins.append(names[2:end].decode())
        names = names[end:]
    messages = []
    for at in range(count):
        entry = data[(place := len(data) - length - 64 * (count - at)) : place + 64]
        of = salt(uuid, epoch, first + at)
        time, arrival, number, _, row, schema, _, begin, size, payload_crc, flags, _, entry_crc = struct.unpack(
            "<qqQQI4sIIIIHHI", entry
        )
        payload = data[64 + 8 * begin : 64 + 8 * begin + size]
        if entry_crc != crc32c(entry[:60]) ^ of or payload_crc != crc32c(payload) ^ of:
            raise WrongError(f"message {first + at} of a block")
        messages.append((first + at, time, arrival, number, origins[row], schema, flags, payload))
    return uuid, epoch, previous, frontier, messages


class PlainReader:
    def __init__(self, folder: Path):
        self.folder, text = folder, (folder / "stream").read_bytes()
        end = text.rindex(b"crc32c ")
        if int(text[end + 7 :], 16) != crc32c(text[:end]):
            raise WrongError("the header")
        lines = [line.split(" ", 1) for line in text[:end].decode().splitlines()]
        self.header = {key: value for key, value in lines if key not in ("epoch", "near")}
        # Of a mirror: (own sequence, uuid of the near stream, its epoch), rising.
        self.near = [value.split() for key, value in lines if key == "near"]
        if self.header["beamport-stream"] not in ("1", "2"):
            raise WrongError("a format that this reader does not know")
        self.epochs = [tuple(map(int, value.split())) for key, value in lines if key == "epoch"]
        self.uuid, self.live = bytes.fromhex(self.header["uuid"]), Path(self.header["live"])
        self.per = int(self.header["index_entries"])
        self.table = -(-self.per // 8 // 4096) * 4096
        self.first, self.disk, self.count, self.low = 0, 0, 0, {"i": 2**32, "p": 2**32}
        self.is_live = self.header["level"] == "memory" and self._head(folder) or self._head(self.live)
        if not self.is_live and self.header["level"] == "disk":
            self._cold()
        self.end = self.disk if self.header["level"] == "disk" else self.count

    def _head(self, live: Path) -> bool:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")
        path, lock = live / "head", (self.folder / "lock").stat()
        self.same_boot = boot == self.header["boot"]
        page = path.read_bytes() if self.same_boot and path.is_file() else b""
        home = lock.st_ino ^ (lock.st_dev << 48 | lock.st_dev >> 16) & MASK
        if (page[:8], page[16:32], word(page, 288, 8)) != (b"BEAMHEAD", self.uuid, home) or word(page, 8) not in (1, 2):
            return False
        self.live, self.count, self.disk, self.first = live, word(page, 64, 8), word(page, 128, 8), word(page, 192, 8)
        self.low = {"p": word(page, 208), "i": word(page, 212)}
        return True

    def salt(self, epoch: int, n: int) -> int:
        return salt(self.uuid, epoch, n)

    def epoch(self, sequence: int) -> int:
        return max(e for e, first in self.epochs if first <= sequence)

    def _cold(self) -> None:
        _, self.disk, self.first, _, *last, _, clean = self.commit()
        end, known = self.disk, len(self.rows("origins"))
        while not clean:
            try:
                *_, origin, _, segment, place, _, _, _, parent, _ = self.entry(end)
                used = 8 * place + (0 if parent else len(self.payload(end)))
            except (WrongError, OSError):
                break
            if origin >= known or [segment, 8 * place] < last or segment > last[0] + 1:
                break
            end, last = end + 1, [segment, used]
        self.count, self.disk = end, self.disk if self.same_boot else end

    def commit(self) -> tuple:
        """(generation, count, first, epoch, segment, used, first segment, 1 = closed cleanly)."""
        data = (self.folder / "commit").read_bytes()
        good = [r for r in (data[:64], data[4096:4160]) if crc32c(r[:60]) ^ self.salt(0, word(r, 0, 8)) == word(r, 60)]
        return struct.unpack("<QQQIIQII", max(good, key=lambda r: word(r, 0, 8))[:48])

    def segment(self, kind: str, number: int, at: int, length: int) -> bytes:
        with ((self.live if number >= self.low[kind] else self.folder) / f"{kind}-{number:08x}").open("rb") as file:
            file.seek(at)
            return file.read(length)

    def rows(self, file: str) -> list[str]:
        names, path = [], self.folder / file
        for line in path.read_bytes().splitlines(keepends=True) if path.is_file() else ():
            crc, _, text = line.decode().partition(" ")
            name = ESCAPED.sub(lambda m: chr(int(m[1], 16)) if m[1] else PLAIN.get(m[2], m[2]), text[:-1])
            if not text.endswith("\n") or int(crc, 16) != crc32c(name.encode()):
                break
            names.append(name)
        return names

    def entry(self, sequence: int) -> tuple:
        number, slot = divmod(sequence, self.per)
        entry = self.segment("i", number, self.table + 64 * slot, 64)
        if len(entry) < 64 or crc32c(entry[:60]) ^ self.salt(self.epoch(sequence), sequence) != word(entry, 60):
            raise WrongError(f"the entry of {sequence}")
        return struct.unpack("<qqQQI4sIIIIHHI", entry)

    def payload(self, n: int) -> bytes:
        *_, segment, place, length, crc, _, _, _ = self.entry(n)
        payload = self.segment("p", segment, 8 * place, length) if length else b""
        if len(payload) != length or crc != crc32c(payload) ^ self.salt(self.epoch(n), n):
            raise WrongError(f"the payload of {n}")
        return payload

    def message(self, sequence: int) -> tuple:
        """(source time, arrival, origin sequence, origin row, schema, flags, payload), verified."""
        stream, n, last, depth = self, sequence, (shown := self.entry(sequence)), 0
        while parent := last[11]:
            uuid, epoch, name = stream.rows("parents")[parent - 1].split(" ", 2)
            stream, n = PlainReader(stream.folder.parent / name), last[3]
            wrong = (stream.uuid.hex(), stream.epoch(n)) != (uuid, int(epoch)) or n < stream.first
            if wrong or (depth := depth + 1) > 4:
                raise WrongError(f"the parent {name} of {sequence}")
            last = stream.entry(n)
        if last[8:10] != shown[8:10]:
            raise WrongError(f"the payload of {sequence}")
        return *shown[:3], *shown[4:6], shown[10], stream.payload(n)

    def time_row(self, block: int) -> tuple[int, int] | None:
        number, slot = divmod(256 * block, self.per)
        row = self.segment("i", number, slot // 256 * 32, 32)
        if len(row) < 32 or crc32c(row[:20]) ^ self.salt(0, 256 * block) != word(row, 20) or word(row, 16) != 256:
            return None
        return struct.unpack("<qq", row[:16])


if __name__ == "__main__":
    names = (reader := PlainReader(Path(sys.argv[1]))).rows("origins")
    for n in range(reader.first, reader.end):
        time, _, _, origin, schema, _, data = reader.message(n)
        print(n, time, names[origin], schema.decode(), len(data))
