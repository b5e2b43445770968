"""Messages made by other implementations, and streams of them, for the tests of the package."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import flatbuffers
import numpy as np
from beamport._core import _Writer
from flatbuffers import number_types
from streaming_data_types import serialise_ev44, serialise_f144

# 2026-03-01T12:00:00Z
T0 = 1_772_366_400_000_000_000
SECOND = 1_000_000_000


def ev44(number: int, time: int, pixels, source: str = "bank0") -> bytes:
    pixels = np.asarray(pixels, dtype="i4")
    return serialise_ev44(source, number, [time], [0], np.arange(len(pixels), dtype="i4"), pixels)


def f144(value, time: int, source: str = "temperature") -> bytes:
    return serialise_f144(source, value, time)


def pixels_of(number: int, count: int = 3) -> np.ndarray:
    """Different for every message, and known again."""
    return (np.arange(count, dtype="i4") * 7919 + number) % 32768


def write_events(folder: Path, numbers, count: int = 3, step: int = SECOND, close: bool = True, **options) -> _Writer:
    """Append an ev44 message for each number: source time T0 + number * step."""
    writer = _Writer(folder, **options)
    for n in numbers:
        writer.append(ev44(n, T0 + n * step, pixels_of(n, count)), T0 + n * step, origin="bank0", origin_seq=n)
    if close:
        writer.flush()
        writer.close()
    return writer


def remove(folder: Path) -> None:
    """Remove a data folder or a stream, with its shared memory."""
    for header in [folder / "stream", *folder.glob("*/stream")]:
        if not header.is_file():
            continue
        for line in header.read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == "live":
                shutil.rmtree(value, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)


def segment_of(array: np.ndarray) -> str:
    """The file in which an array lies, from the kernel's own table of maps."""
    address = array.__array_interface__["data"][0]
    with open(f"/proc/{os.getpid()}/maps") as maps:
        for line in maps:
            parts = line.split(maxsplit=5)
            low, high = (int(word, 16) for word in parts[0].split("-"))
            if low <= address and address + array.nbytes <= high:
                return parts[5].strip() if len(parts) > 5 else ""
    return ""


def bprn(name, state, start, stop=2**63 - 1, streams=(), metadata="{}", reason="") -> bytes:
    """A step of a run, by the FlatBuffers library; `streams`: (name, uuid in hexadecimal, epoch, first, next)."""
    b = flatbuffers.Builder(256)
    rows = []
    for stream, uuid, epoch, first, stop_sequence in streams:
        word, clock, id_ = b.CreateString(stream), b.CreateString("epoch"), b.CreateByteVector(bytes.fromhex(uuid))
        b.StartObject(7)
        b.PrependUOffsetTRelativeSlot(0, word, 0)
        b.PrependUOffsetTRelativeSlot(1, id_, 0)
        b.PrependUint32Slot(2, epoch, 0)
        b.PrependUint64Slot(3, first, 0)
        b.PrependUint64Slot(4, stop_sequence, 0)
        b.PrependUOffsetTRelativeSlot(5, clock, 0)
        rows.append(b.EndObject())
    b.StartVector(4, len(rows), 4)
    for row in reversed(rows):
        b.PrependUOffsetTRelative(row)
    table = b.EndVector()
    texts = [b.CreateString(text) for text in (name, metadata, reason)]
    uuid = b.CreateByteVector(bytes(range(16)))
    b.StartObject(10)
    b.PrependUOffsetTRelativeSlot(0, texts[0], 0)
    b.PrependUOffsetTRelativeSlot(1, uuid, 0)
    b.PrependUint8Slot(2, ("open", "settling", "sealed").index(state), 0)
    b.PrependInt64Slot(3, start, 0)
    b.PrependInt64Slot(4, stop, 2**63 - 1)
    b.PrependUOffsetTRelativeSlot(7, texts[1], 0)
    b.PrependUOffsetTRelativeSlot(8, table, 0)
    b.PrependUOffsetTRelativeSlot(9, texts[2], 0)
    b.Finish(b.EndObject(), file_identifier=b"bprn")
    return bytes(b.Output())


def bpcm(stage, run, inputs, state, finished) -> bytes:
    """A commit, by the FlatBuffers library; `inputs`: (stream, uuid in hexadecimal, epoch, first, next, done)."""
    b = flatbuffers.Builder(256)
    rows = []
    for stream, uuid, epoch, first, stop_sequence, done in inputs:
        word, id_ = b.CreateString(stream), b.CreateByteVector(bytes.fromhex(uuid))
        b.StartObject(7)
        b.PrependUOffsetTRelativeSlot(0, word, 0)
        b.PrependUOffsetTRelativeSlot(1, id_, 0)
        b.PrependUint32Slot(2, epoch, 0)
        b.PrependUint64Slot(3, first, 0)
        b.PrependUint64Slot(4, stop_sequence, 0)
        b.PrependUint64Slot(5, done, 0)
        rows.append(b.EndObject())
    b.StartVector(4, len(rows), 4)
    for row in reversed(rows):
        b.PrependUOffsetTRelative(row)
    table = b.EndVector()
    texts = [b.CreateString(text) for text in (stage, run, state)]
    b.StartObject(10)
    b.PrependUOffsetTRelativeSlot(0, texts[0], 0)
    b.PrependUOffsetTRelativeSlot(1, texts[1], 0)
    b.PrependUOffsetTRelativeSlot(4, table, 0)
    b.PrependUOffsetTRelativeSlot(8, texts[2], 0)
    b.PrependSlot(number_types.BoolFlags, 9, finished, False)
    b.Finish(b.EndObject(), file_identifier=b"bpcm")
    return bytes(b.Output())
