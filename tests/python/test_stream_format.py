"""docs/reference/stream-format.md is complete: a reader made from that page alone sees what the package sees."""

from __future__ import annotations

import os
import shutil
import signal
import struct
import subprocess
import sys
from pathlib import Path

import beamport
import pytest
from beamport._core import _Writer

# ---- the second reader, from the page alone: plain Python, no map, nothing of beamport -------------------------------

MASK = 2**64 - 1


def crc_table():
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
        yield byte


TABLE = list(crc_table())


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def mix(z: int) -> int:
    z = (z + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def u32(data: bytes, at: int) -> int:
    return struct.unpack_from("<I", data, at)[0]


def u64(data: bytes, at: int) -> int:
    return struct.unpack_from("<Q", data, at)[0]


class WrongError(Exception):
    """Bytes that do not verify."""


class PlainReader:
    def __init__(self, folder: Path):
        self.folder = folder
        text = (folder / "stream").read_bytes()
        end = text.rindex(b"crc32c ")
        if int(text[end + 7 :], 16) != crc32c(text[:end]):
            raise WrongError("the header")
        lines = [line.split(" ", 1) for line in text[:end].decode().splitlines()]
        self.header = {key: value for key, value in lines if key != "epoch"}
        if self.header["beamport-stream"] != "1":
            raise WrongError("a format that this reader does not know")
        self.epochs = [tuple(map(int, value.split())) for key, value in lines if key == "epoch"]
        self.uuid = bytes.fromhex(self.header["uuid"])
        self.per = int(self.header["index_entries"])
        self.table = -(-self.per // 8 // 4096) * 4096
        self.live = Path(self.header["live"])
        self.low = {"i": 2**32, "p": 2**32}
        self.first = self.disk = self.count = 0
        self.is_live = self._head()
        if not self.is_live and self.header["level"] == "disk":
            record = self.commit()
            if record is not None:
                self.first, self.count = record["first"], record["count"]
                self.disk = self.count
        self.end = self.disk if self.header["level"] == "disk" else self.count

    def _head(self) -> bool:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")
        path = self.live / "head"
        if boot != self.header["boot"] or not path.is_file():
            return False
        page = path.read_bytes()
        if page[:8] != b"BEAMHEAD" or u32(page, 8) != 1 or page[16:32] != self.uuid:
            return False
        self.count, self.disk, self.first = u64(page, 64), u64(page, 128), u64(page, 192)
        self.low = {"p": u32(page, 208), "i": u32(page, 212)}
        return True

    def salt(self, epoch: int, n: int) -> int:
        a, b = struct.unpack("<QQ", self.uuid)
        return mix(mix(a ^ mix(b ^ mix(epoch + 1))) ^ n) >> 32

    def epoch(self, sequence: int) -> int:
        return max(e for e, first in self.epochs if first <= sequence)

    def commit(self) -> dict | None:
        data = (self.folder / "commit").read_bytes()
        found = []
        for at in (0, 4096):
            record = data[at : at + 64]
            if len(record) == 64 and crc32c(record[:60]) ^ self.salt(0, u64(record, 0)) == u32(record, 60):
                found.append(record)
        if not found:
            return None
        names = ("generation", "count", "first", "epoch", "segment", "used", "first_segment", "clean")
        return dict(zip(names, struct.unpack("<QQQIIQII", max(found, key=lambda r: u64(r, 0))[:48]), strict=True))

    def segment(self, kind: str, number: int, at: int, length: int) -> bytes:
        place = self.live if number >= self.low[kind] else self.folder
        with (place / f"{kind}-{number:08x}").open("rb") as file:
            file.seek(at)
            return file.read(length)

    def rows(self, file: str) -> list[str]:
        names = []
        for line in (self.folder / file).read_bytes().splitlines(keepends=True):
            crc, _, text = line.decode().partition(" ")
            name, i = "", 0
            while i < len(text) - 1:
                if text[i] != "\\":
                    name, i = name + text[i], i + 1
                elif text[i + 1] == "u":
                    stop = text.index("}", i)
                    name, i = name + chr(int(text[i + 3 : stop], 16)), stop + 1
                else:
                    name, i = name + {"t": "\t", "r": "\r", "n": "\n"}.get(text[i + 1], text[i + 1]), i + 2
            if not text.endswith("\n") or int(crc, 16) != crc32c(name.encode()):
                break
            names.append(name)
        return names

    def message(self, sequence: int) -> tuple:
        """(source time, arrival, origin sequence, origin row, schema, flags, payload), verified."""
        number, slot = divmod(sequence, self.per)
        entry = self.segment("i", number, self.table + 64 * slot, 64)
        salt = self.salt(self.epoch(sequence), sequence)
        if len(entry) < 64 or crc32c(entry[:60]) ^ salt != u32(entry, 60):
            raise WrongError(f"the entry of {sequence}")
        fields = struct.unpack("<qqQQI4sIIIIHHI", entry)
        source, arrival, origin_seq, above, origin, schema, segment, place, length, crc, flags, parent, _ = fields
        if parent != 0:
            uuid, epoch, name = self.rows("parents")[parent - 1].split(" ", 2)
            other = PlainReader(self.folder.parent / name)
            if other.uuid.hex() != uuid or other.epoch(above) != int(epoch) or above < other.first:
                raise WrongError(f"the parent {name} of {sequence}")
            payload, salt = other.message(above)[-1], other.salt(int(epoch), above)
        else:
            payload = self.segment("p", segment, 8 * place, length)
        if len(payload) != length or crc32c(payload) ^ salt != crc:
            raise WrongError(f"the payload of {sequence}")
        return source, arrival, origin_seq, origin, schema, flags, payload

    def time_row(self, block: int) -> tuple[int, int] | None:
        """(smallest, largest) source time of a whole block; none if the row says nothing."""
        number, slot = divmod(256 * block, self.per)
        row = self.segment("i", number, slot // 256 * 32, 32)
        if len(row) < 32 or crc32c(row[:20]) ^ self.salt(0, 256 * block) != u32(row, 20) or u32(row, 16) != 256:
            return None
        return struct.unpack("<qq", row[:16])


# ---- compared with the package ---------------------------------------------------------------------------------------

T0 = 1_772_366_400_000_000_000
FLAGS = {0: [], 1: ["ahead"], 2: ["suspect"], 3: ["ahead", "suspect"]}
ORIGINS = ["bank0", 'pv:ä"quoted"\t\\n', ""]


def payload(n: int) -> bytes:
    """Sizes on both sides of each rule of alignment."""
    size = (0, 1, 7, 8, 100, 255, 256, 257, 1000)[n % 9]
    return bytes((n * 31 + i * 7) % 251 for i in range(size))


def fill(writer: _Writer, numbers, size=payload) -> None:
    for n in numbers:
        # Times that go back and forth.
        time = T0 + (n * 7919 % 1000) * 1_000_000
        writer.append(size(n), time, origin=ORIGINS[n % 3], origin_seq=n // 3, schema="test", flags=n % 4)


def compare(folder: Path, expected: range | None = None) -> PlainReader:
    """Both readers see the same messages, each with all its fields."""
    plain = PlainReader(folder)
    stream = beamport.open(folder.parent)[folder.name]
    names = plain.rows("origins")
    assert names == stream.origins
    assert (plain.uuid.hex(), plain.epochs[-1][0]) == (stream.uuid, stream.epoch)
    assert (plain.header["level"], plain.header["clock"]) == (stream.level, stream.clock)
    assert (plain.first, plain.count) == (stream.first, stream.count)
    seen = range(plain.first, plain.end)
    if expected is not None:
        assert seen == expected
    last_arrival = 0
    messages = list(stream.read())
    assert [m.sequence for m in messages] == list(seen)
    for m in messages:
        source, arrival, number, row, schema, flags, data = plain.message(m.sequence)
        assert (source, arrival, number) == (m.source_time, m.arrival_time, m.origin_seq)
        assert (names[row], schema.decode(), FLAGS[flags]) == (m.origin, m.schema, m.flags)
        assert data == bytes(m.payload)
        assert arrival >= last_arrival
        last_arrival = arrival
    for block in range(-(-plain.first // 256), plain.end // 256):
        times = [plain.message(s)[0] for s in range(256 * block, 256 * block + 256)]
        assert plain.time_row(block) == (min(times), max(times)), block
    return plain


@pytest.mark.parametrize("level", ["memory", "disk"])
def test_a_stream_that_is_being_written(level, memory, disk):
    folder = (memory if level == "memory" else disk) / "detector"
    with _Writer(folder, level=level) as writer:
        fill(writer, range(700))
        assert writer.flush()
        plain = compare(folder, range(700))
        assert plain.is_live
        assert PlainReader(folder).message(3)[-1] == payload(3)


def test_a_disk_stream_that_was_closed(disk):
    folder = disk / "detector"
    with _Writer(folder, level="disk") as writer:
        fill(writer, range(600))
    plain = compare(folder, range(600))
    assert plain.commit()["clean"] == 1
    # And without its live place, as after a start of the machine.
    shutil.rmtree(plain.live)
    plain = compare(folder, range(600))
    assert not plain.is_live
    # Going on needs no new epoch: the tail was proven.
    with _Writer(folder, level="disk") as writer:
        fill(writer, range(600, 610))
        assert writer.flush()
        assert compare(folder, range(610)).epochs == [(1, 0)]


def test_a_memory_stream_whose_segments_were_written_again(memory):
    folder = memory / "detector"
    with _Writer(folder, when_full="drop-oldest") as writer:
        fill(writer, range(900), lambda n: payload(n) * 9 if n % 9 else bytes([n % 256]) * 2000)
        plain = compare(folder)
        assert 0 < plain.first < 900 and plain.count == 900


def test_a_message_larger_than_a_segment(disk):
    folder = disk / "detector"
    with _Writer(folder, level="disk") as writer:
        large = bytes(range(256)) * 1024
        fill(writer, range(4), lambda n: large if n == 2 else payload(n))
        assert writer.flush()
        assert int(PlainReader(folder).header["segment_bytes"]) < len(large)
        compare(folder, range(4))


def test_a_stream_after_the_loss_of_its_memory_has_a_second_epoch(disk):
    folder = disk / "detector"
    # A writer that is killed; then what a power cut does to shared memory.
    script = "\n".join(
        [
            "import os, sys, signal; from pathlib import Path; sys.path[:0] = [os.environ['HERE']]",
            "import test_stream_format as t",
            "w = t._Writer(Path(sys.argv[1]), level='disk'); t.fill(w, range(300)); assert w.flush()",
            "os.kill(os.getpid(), signal.SIGKILL)",
        ]
    )
    here = str(Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", script, folder], env={**os.environ, "HERE": here}, timeout=120, check=False
    )
    assert done.returncode == -signal.SIGKILL
    plain = compare(folder, range(300))
    assert plain.commit()["clean"] == 0
    shutil.rmtree(plain.live)
    compare(folder, range(300))
    with _Writer(folder, level="disk") as writer:
        fill(writer, range(300, 400))
        assert writer.flush()
        plain = compare(folder, range(400))
    assert plain.epochs == [(1, 0), (2, 300)]


@pytest.mark.parametrize("kind", ["i", "p"])
def test_a_flipped_bit_is_found(kind, disk):
    folder = disk / "detector"
    with _Writer(folder, level="disk") as writer:
        fill(writer, range(5))
    with (folder / f"{kind}-00000000").open("r+b") as file:
        # Message 4: the fifth entry, and 100 bytes at 24 of the segment (0, 1, 7 and 8 bytes come before it).
        file.seek(4096 + 4 * 64 + 3 if kind == "i" else 24 + 50)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 16]))
    plain = PlainReader(folder)
    assert plain.message(3)[-1] == payload(3)
    with pytest.raises(WrongError, match=f"the {'entry' if kind == 'i' else 'payload'} of 4"):
        plain.message(4)
    with pytest.raises(beamport.Error):
        list(beamport.open(disk)["detector"].read())
