"""docs/reference/stream-format.md is complete: a reader made from that page alone sees what the package sees."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import beamport
import pytest
from beamport._core import _Writer

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
sys.path.insert(0, str(REFERENCE))

from stream_reader import PlainReader, WrongError  # noqa: E402

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
    # `count` is what can be read; behind the mark `disk` that takes `early`.
    end = stream.read(start="end", early=True).position[2]
    assert (plain.first, plain.count) == (stream.first, end) and stream.count <= end
    seen = range(plain.first, plain.end)
    if expected is not None:
        assert seen == expected
    last_arrival = 0
    sequences = iter(seen)
    for m in stream.read():
        assert m.sequence == next(sequences)
        source, arrival, number, row, schema, flags, data = plain.message(m.sequence)
        assert (source, arrival, number) == (m.source_time, m.arrival_time, m.origin_seq)
        assert (names[row], schema.decode(), FLAGS[flags]) == (m.origin, m.schema, m.flags)
        assert data == bytes(m.payload)
        assert arrival >= last_arrival
        last_arrival = arrival
    assert next(sequences, None) is None
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
    assert plain.commit()[-1] == 1
    # Its live place went with its writer.
    assert not plain.is_live and not Path(plain.live).exists()
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


def test_the_reader_of_the_page_is_short_and_a_program(memory):
    assert len((REFERENCE / "stream_reader.py").read_text().splitlines()) <= 200
    with _Writer(memory / "detector") as writer:
        fill(writer, range(2))
        done = subprocess.run(
            [sys.executable, REFERENCE / "stream_reader.py", memory / "detector"],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
    assert done.stdout.splitlines()[0] == f"0 {T0} bank0 test 0"


def test_a_stream_without_messages_and_a_copy_of_one_that_is_written(disk):
    folder = disk / "detector"
    with _Writer(folder, level="disk") as writer:
        compare(folder, range(0))
        fill(writer, range(5))
        assert writer.flush()
        shutil.copytree(folder, disk / "copy")
        fill(writer, range(5, 10))
        assert writer.flush()
        # The live place is that of the original.
        assert not compare(disk / "copy", range(5)).is_live
        assert compare(folder, range(10)).is_live


def test_a_message_larger_than_a_segment(disk):
    folder = disk / "detector"
    with _Writer(folder, level="disk") as writer:
        large = bytes(range(256)) * 1024
        fill(writer, range(4), lambda n: large if n == 2 else payload(n))
        assert writer.flush()
        assert int(PlainReader(folder).header["segment_bytes"]) < len(large)
        compare(folder, range(4))


@pytest.mark.parametrize("level", ["memory", "disk"])
def test_a_view_of_two_streams_and_a_view_of_that(level, memory, disk):
    data = memory if level == "memory" else disk
    with (
        _Writer(data / "bank0", level=level) as bank0,
        _Writer(data / "bank1", level=level) as bank1,
        _Writer(data / "both", level=level) as both,
        _Writer(data / "again", level=level) as again,
    ):
        fill(bank0, range(20))
        fill(bank1, range(20, 40))
        assert bank0.flush() and bank1.flush()
        for n in range(20):
            both.point(f"bank{n % 2}", 19 - n)
        both.append(b"of its own", T0, schema="test")
        assert both.flush()
        for n in (20, 7, 0):
            again.point("both", n)
        assert again.flush()
        plain = compare(data / "both", range(21))
        assert plain.message(0)[-1] == payload(19) and plain.message(1)[-1] == payload(38)
        assert plain.rows("parents")[1].endswith(" bank1")
        compare(data / "again", range(3))
    if level == "disk":
        compare(data / "again", range(3))
        shutil.rmtree(data / "bank0")
        with pytest.raises(beamport.Error, match="bank0"):
            list(beamport.open(data)["both"].read())


def test_a_stream_after_the_loss_of_its_memory_has_a_second_epoch(disk):
    folder = disk / "detector"
    # A writer that is killed; then what a power cut does to shared memory.
    script = "\n".join(
        [
            "import os, sys, signal; from pathlib import Path; sys.path[:0] = [os.environ['HERE']]",
            "import test_stream_format as t",
            "w = t._Writer(Path(sys.argv[1]), level='disk'); t.fill(w, range(300)); assert w.flush()",
            # Little and waited for: marked without a record of its own, mostly; so is a part of the 300 where the
            # drainer came between.
            "t.fill(w, range(300, 303)); assert w.flush()",
            "os.kill(os.getpid(), signal.SIGKILL)",
        ]
    )
    here = str(Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", script, folder], env={**os.environ, "HERE": here}, timeout=120, check=False
    )
    assert done.returncode == -signal.SIGKILL
    plain = compare(folder, range(303))
    assert plain.commit()[-1] == 0
    shutil.rmtree(plain.live)
    # Behind the record it proves itself, but within one start of the machine may be in caches alone.
    plain = compare(folder)
    assert (plain.count, plain.disk) == (303, plain.commit()[1])
    with _Writer(folder, level="disk") as writer:
        fill(writer, range(303, 400))
        assert writer.flush()
        plain = compare(folder, range(400))
    assert plain.epochs == [(1, 0), (2, 303)]


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
