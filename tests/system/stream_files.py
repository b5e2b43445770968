"""A second reader of the stream format, written from docs/reference/stream-format.md and not from the program.

Tests use it as a witness: what it saw marked before a fault must be there, byte for byte, after it. It reads files and
maps nothing, so it also works on streams whose writer was killed in the middle of a write.
"""

import struct
from pathlib import Path

import numpy as np

ENTRY = np.dtype(
    [
        ("source_time", "<i8"),
        ("arrival_time", "<i8"),
        ("origin_seq", "<u8"),
        ("parent_sequence", "<u8"),
        ("origin", "<u4"),
        ("schema", "S4"),
        ("segment", "<u4"),
        ("offset8", "<u4"),
        ("length", "<u4"),
        ("payload_crc", "<u4"),
        ("flags", "<u2"),
        ("parent", "<u2"),
        ("crc", "<u4"),
    ]
)
assert ENTRY.itemsize == 64

AHEAD = 1


class Stream:
    """One stream's folder, as it lies there now."""

    def __init__(self, folder: Path):
        self.folder = Path(folder)
        self.name = self.folder.name
        self.epochs: list[tuple[int, int]] = []
        fields = {}
        for line in (self.folder / "stream").read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == "epoch":
                epoch, first = value.split()
                self.epochs.append((int(epoch), int(first)))
            else:
                fields[key] = value
        self.level = fields["level"]
        self.uuid = fields["uuid"]
        self.index_entries = int(fields["index_entries"])
        self.live = Path(fields["live"])

    def head(self) -> dict[str, int] | None:
        """The control page, or None where the live place is gone or not yet made."""
        try:
            page = (self.live / "head").read_bytes()
        except FileNotFoundError:
            return None
        if len(page) < 4096 or page[:8] != b"BEAMHEAD" or page[16:32].hex() != self.uuid:
            return None
        word = struct.Struct("<Q").unpack_from
        half = struct.Struct("<I").unpack_from
        return {
            "memory": word(page, 64)[0],
            "disk": word(page, 128)[0],
            "first": word(page, 192)[0],
            "state": half(page, 256)[0],
            "pid": half(page, 260)[0],
        }

    def committed(self) -> tuple[int, int]:
        """(first, count) of the newer commit record (its checksum is for `beamport verify`)."""
        try:
            bytes_ = (self.folder / "commit").read_bytes()
        except FileNotFoundError:
            return 0, 0
        records = [struct.unpack_from("<QQQ", bytes_, at) for at in (0, 4096) if len(bytes_) >= at + 64]
        _, count, first = max(records, default=(0, 0, 0))
        return first, count

    def marks(self) -> tuple[int, int, int]:
        """(first, disk, memory): of the control page, else what the medium says."""
        head = self.head()
        if head is None:
            first, count = self.committed()
            return first, count, count
        return head["first"], head["disk"], head["memory"]

    def entries(self, first: int, end: int) -> np.ndarray:
        """Index entries `first..end`, which must be below a mark."""
        rows = []
        at = first
        while at < end:
            number, slot = divmod(at, self.index_entries)
            count = min(end - at, self.index_entries - slot)
            rows.append(self._index(number, slot, count))
            at += count
        return np.concatenate(rows) if rows else np.zeros(0, ENTRY)

    def _index(self, number: int, slot: int, count: int) -> np.ndarray:
        name = f"i-{number:08x}"
        # Without its control page the live place is being made: its files hold nothing yet.
        places = [self.live / name] if self.head() is not None else []
        if self.level == "disk":
            places.append(self.folder / name)
        for path in places:
            try:
                with path.open("rb") as file:
                    table = -(-self.index_entries // 8 // 4096) * 4096
                    file.seek(table + slot * ENTRY.itemsize)
                    found = file.read(count * ENTRY.itemsize)
            except FileNotFoundError:
                continue
            if len(found) == count * ENTRY.itemsize:
                return np.frombuffer(found, ENTRY)
        raise AssertionError(f"stream {self.name}: entries {slot}..{slot + count} of {name} are nowhere")

    def all(self) -> np.ndarray:
        """Every entry up to the mark `memory` (a cold stream: what is committed)."""
        first, _, count = self.marks()
        return self.entries(first, count)

    def origins(self) -> list[str]:
        """Names of the origins, by row."""
        path = self.folder / "origins"
        if not path.exists():
            return []
        return [line.split(" ", 1)[1] for line in path.read_text().splitlines()]

    def numbers(self) -> dict[str, np.ndarray]:
        """The numbers of each origin, in the order in which they stand."""
        entries, names = self.all(), self.origins()
        return {names[row]: entries["origin_seq"][entries["origin"] == row] for row in np.unique(entries["origin"])}


def streams(data: Path, books: bool = False) -> list[Stream]:
    """The streams of a data folder; `books`: with those that keep the books."""
    found = []
    for folder in sorted(Path(data).iterdir()):
        is_book = "." in folder.name or folder.name in ("runs", "control")
        if (folder / "stream").is_file() and (books or not is_book):
            found.append(Stream(folder))
    return found
