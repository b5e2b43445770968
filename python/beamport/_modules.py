"""The process of modules in Python: `python -m beamport._modules JSON`, started by a writer of NeXus files.

`crates/nexus/src/program/python.rs` documents the protocol.
"""

from __future__ import annotations

import faulthandler
import json
import os
import socket
import struct
import sys
import traceback
from typing import Any, BinaryIO

from ._core import _message
from ._slot import _die_with, load
from .nexus import Module, UnfitError, datasets_of, described, rows_of

# Characters of an exception that are reported.
_TOLD_MAX = 8192
_HEAD = struct.Struct("<QqqQ4sI")


class _Pipe:
    """Frames from the writer and to it."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._in: BinaryIO = end.makefile("rb", buffering=1 << 20)

    def read(self) -> tuple[bytes, memoryview] | None:
        """Wait for the next one: its kind, and its bytes."""
        head = self._in.read(8)
        if len(head) < 8:
            return None
        length = int.from_bytes(head, "little")
        frame = self._in.read(length)
        return (frame[:1], memoryview(frame)[1:]) if len(frame) == length else None

    def write(self, kind: bytes, *parts: bytes | memoryview) -> None:
        """Send one."""
        length = 1 + sum(len(part) for part in parts)
        if length <= 1 << 16:
            self._end.sendall(b"".join([length.to_bytes(8, "little"), kind, *parts]))
            return
        self._end.sendall(length.to_bytes(8, "little") + kind)
        for part in parts:
            self._end.sendall(part)

    def say(self, kind: bytes, value: Any) -> None:
        """Send one of JSON."""
        self.write(kind, json.dumps(value, allow_nan=False).encode())


def _told(raised: BaseException) -> str:
    return "".join(traceback.format_exception_only(raised)).strip()


class _Modules:
    def __init__(self, pipe: _Pipe, asked: dict[str, Any]) -> None:
        self._pipe = pipe
        self._answer_bytes_max: int = asked["answer_bytes_max"]
        self._state_bytes_max: int = asked["state_bytes_max"]
        self._classes: list[type[Module]] = []
        self._at_work: dict[int, Module] = {}

    def load(self, names: list[str], folder: str) -> bool:
        said = []
        for name in names:
            try:
                cls = load(name, folder)
                said.append(described(cls))
                self._classes.append(cls)
            except Exception as raised:
                traceback.print_exc()
                self._pipe.say(b"l", {"wrong": f"`{name}`: {_told(raised)}"})
                return False
        self._pipe.say(b"l", {"classes": said})
        return True

    def describe(self, asked: dict[str, Any]) -> None:
        try:
            self._pipe.say(b"d", {"datasets": datasets_of(self._classes[asked["class"]](**asked["settings"]))})
        except Exception as raised:
            self._pipe.say(b"d", {"wrong": _told(raised)})

    def make(self, asked: dict[str, Any]) -> None:
        try:
            module = self._classes[asked["class"]](**asked["settings"])
            if asked["state"] is not None:
                module.resume(json.loads(asked["state"]))
            self._at_work[asked["id"]] = module
            self._pipe.say(b"o", {})
        except Exception as raised:
            traceback.print_exc()
            self._pipe.say(b"o", {"wrong": _told(raised)})

    def take(self, frame: memoryview) -> None:
        module = self._at_work[int.from_bytes(frame[:4], "little")]
        at, answered = 4, 0
        # The writer keeps a bounded number of bytes until it knows the state; it asks again for the rest.
        while at < len(frame) and answered < self._answer_bytes_max:
            length = int.from_bytes(frame[at : at + 8], "little")
            answered += self._take(module, frame[at + 8 : at + 8 + length])
            at += 8 + length
        try:
            state = json.dumps(module.state(), allow_nan=False).encode()
            if len(state) > self._state_bytes_max:
                raise ValueError(f"a state of {len(state)} bytes; it has at most {self._state_bytes_max}")
        except Exception as raised:
            traceback.print_exc()
            self._pipe.write(b"w", f"cannot keep its state: {_told(raised)}".encode(errors="replace"))
        else:
            self._pipe.write(b"s", state)

    def _take(self, module: Module, frame: memoryview) -> int:
        """Answer about one message; how many bytes."""
        texts, at = [], 0
        for _ in range(2):
            length = int.from_bytes(frame[at : at + 4], "little")
            texts.append(str(frame[at + 4 : at + 4 + length], "utf-8"))
            at += 4 + length
        sequence, source_time, arrival_time, number, schema, flags = _HEAD.unpack_from(frame, at)
        payload = bytes(frame[at + _HEAD.size :])
        message = _message(payload, sequence, source_time, arrival_time, texts[1], number, schema, flags)
        try:
            rows = rows_of(module, module.take(message))
            size = sum(array.nbytes for _, array in rows)
            if size > self._answer_bytes_max:
                raise UnfitError(f"rows of {size} bytes; one message makes at most {self._answer_bytes_max}")
        except UnfitError as why:
            self._pipe.write(b"a", f"unfit\n{why}"[:_TOLD_MAX].encode(errors="replace"))
            return 0
        except Exception:
            self._pipe.write(b"a", f"error\n{traceback.format_exc()[-_TOLD_MAX:]}".encode(errors="replace"))
            return 0
        parts: list[bytes | memoryview] = []
        for place, array in rows:
            if array.nbytes:
                parts += [struct.pack("<IQ", place, array.nbytes), memoryview(array.reshape(-1).view("u1"))]
        self._pipe.write(b"r", *parts)
        return size

    def work(self) -> None:
        """Answer until nobody asks."""
        while (read := self._pipe.read()) is not None:
            kind, frame = read
            if kind == b"t":
                self.take(frame)
            elif kind == b"c":
                self._at_work.pop(int.from_bytes(frame, "little"), None)
            else:
                asked = json.loads(bytes(frame))
                (self.describe if kind == b"d" else self.make)(asked)


def main() -> int:
    """Run until nobody asks."""
    asked = json.loads(sys.argv[1])
    _die_with(asked["parent"])
    end = socket.socket(fileno=os.dup(0))
    # Neither what user code reads nor what it prints is ours.
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    # A pipe leads to the writer, which prints each line with their names: a line must not wait for others.
    sys.stdout.reconfigure(line_buffering=True)
    faulthandler.enable()
    modules = _Modules(_Pipe(end), asked)
    if not modules.load(asked["classes"], asked["folder"]):
        return 3
    modules.work()
    return 0


if __name__ == "__main__":
    sys.exit(main())
