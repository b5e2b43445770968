"""The C interface of crates/epics/shim in ctypes, for its tests."""

from __future__ import annotations

import ctypes
import os
import select
import struct
import sys
import time
from ctypes import POINTER, Structure, byref, c_char_p, c_int, c_int16, c_int32, c_int64, c_size_t, c_uint32, c_uint64
from ctypes import c_void_p as pointer
from dataclasses import dataclass
from pathlib import Path

import numpy

LIBRARY = Path(sys.prefix) / "lib" / "beamport" / "libbeamport_epics.so"
PVA, CA = 0, 1
CONNECTED, DISCONNECTED, VALUE, REFUSED, SQUASHED, FINISHED, WRITTEN = range(7)
SCALAR, ARRAY, ENUM, TABLE, IMAGE, OTHER = range(6)
CHANGED_VALUE, CHANGED_ALARM, CHANGED_TIME, CHANGED_UNITS = 1, 2, 4, 8
STRING = 11
NUMBERS = ["", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"]
# A guard against hanging, more than ten times of what is expected.
HANG_S = 20.0


class _Settings(Structure):
    _fields_ = [("protocol", c_uint32), ("addresses", c_char_p), ("name_servers", c_char_p), ("queue_bytes", c_uint64)]


class _Elements(Structure):
    _fields_ = [("type", c_uint32), ("reserved", c_uint32), ("count", c_uint64), ("data", pointer), ("bytes", c_uint64)]

    def copied(self):
        """None, a list of strings, or an array."""
        content = ctypes.string_at(self.data, self.bytes) if self.bytes else b""
        assert not self.bytes or self.data % 8 == 0
        if self.type == 0:
            return None
        if self.type != STRING:
            return numpy.frombuffer(content, NUMBERS[self.type])
        found = []
        for _ in range(self.count):
            (size,) = struct.unpack_from("I", content)
            found.append(content[4 : 4 + size].decode())
            content = content[4 + size :]
        return found


class _Text(Structure):
    _fields_ = [("data", pointer), ("bytes", c_uint64)]

    def copied(self) -> str:
        return ctypes.string_at(self.data, self.bytes).decode() if self.bytes else ""


class _Named(Structure):
    _fields_ = [("name", _Text), ("description", _Text), ("source", _Text), ("values", _Elements)]


class _Update(Structure):
    _fields_ = [
        *(("id", c_uint64), ("what", c_uint32), ("form", c_uint32), ("count", c_uint64), ("seconds", c_int64)),
        *(("nanoseconds", c_uint32), ("user_tag", c_int32), ("changed", c_uint32)),
        *(("severity", c_int16), ("status", c_int16)),
        *(("text", _Text), ("alarm", _Text), ("units", _Text), ("type_id", _Text), ("value", _Elements)),
        *(("columns_count", c_uint64), ("columns", POINTER(_Named)), ("dims_count", c_uint64)),
        *(("dims", POINTER(c_uint64)), ("unique_id", c_int32), ("has_unique_id", c_int32)),
        *(("data_seconds", c_int64), ("data_nanoseconds", c_uint32), ("reserved", c_uint32), ("codec", _Text)),
        *(("uncompressed", c_uint64), ("codec_type", c_uint32), ("reserved2", c_uint32)),
    ]


class _Counts(Structure):
    _fields_ = [(name, c_uint64) for name in ("updates", "client_squash", "server_squash", "waiting")]


@dataclass
class Update:
    """A copy of an update."""

    id: int
    what: int
    form: int
    count: int
    time: tuple[int, int, int]
    changed: int
    severity: int
    status: int
    text: str
    alarm: str
    units: str
    type_id: str
    value: object
    type: int
    columns: list[tuple[str, str, str, object]]
    dims: list[int]
    unique_id: int | None
    data_time: tuple[int, int]
    codec: tuple[str, int, int]


def _copied(of: _Update) -> Update:
    named = [of.columns[i] for i in range(of.columns_count)]
    return Update(
        *(of.id, of.what, of.form, of.count, (of.seconds, of.nanoseconds, of.user_tag), of.changed),
        *(of.severity, of.status, of.text.copied(), of.alarm.copied(), of.units.copied(), of.type_id.copied()),
        *(of.value.copied(), of.value.type),
        [(n.name.copied(), n.description.copied(), n.source.copied(), n.values.copied()) for n in named],
        [of.dims[i] for i in range(of.dims_count)],
        of.unique_id if of.has_unique_id else None,
        (of.data_seconds, of.data_nanoseconds),
        (of.codec.copied(), of.uncompressed, of.codec_type),
    )


class Client:
    """A client of one protocol, closed when the block ends; it meets the server of these settings."""

    def __init__(
        self,
        protocol: int,
        environment: dict[str, str],
        *,
        queue_bytes: int = 1 << 24,
        addresses: str | None = None,
        name_servers: str | None = None,
    ) -> None:
        self.before = {name: value for name, value in os.environ.items() if name.startswith("EPICS_")}
        self._set(environment)
        library = ctypes.CDLL(str(LIBRARY))
        library.bp_open.restype = pointer
        library.bp_poll.restype = c_size_t
        library.bp_version.restype = c_char_p
        self.library = library
        self.version = library.bp_version().decode()
        self.error = ctypes.create_string_buffer(400)
        encoded = [text.encode() if text is not None else None for text in (addresses, name_servers)]
        settings = _Settings(protocol, *encoded, queue_bytes)
        self.handle = pointer(library.bp_open(byref(settings), self.error, c_size_t(400)))
        if not self.handle:
            self._set(self.before)
            raise RuntimeError(self.error.value.decode())
        self.descriptor = library.bp_descriptor(self.handle)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_) -> None:
        self.library.bp_close(self.handle)
        self._set(self.before)

    def _set(self, environment: dict[str, str]) -> None:
        for name in [name for name in os.environ if name.startswith("EPICS_")]:
            del os.environ[name]
        os.environ.update(environment)

    def add(self, number: int, pv: str, *, queue: int = 100, pipeline: bool = False) -> None:
        size = c_size_t(400)
        arguments = (c_uint64(number), pv.encode(), c_uint32(queue), c_int(pipeline), self.error, size)
        if self.library.bp_add(self.handle, *arguments):
            raise RuntimeError(self.error.value.decode())

    def remove(self, number: int) -> None:
        self.library.bp_remove(self.handle, c_uint64(number))

    def poll(self, most: int = 1000) -> list[Update]:
        updates = (_Update * most)()
        return [_copied(updates[i]) for i in range(self.library.bp_poll(self.handle, updates, c_size_t(most)))]

    def readable(self, seconds: float) -> bool:
        return bool(select.select([self.descriptor], [], [], seconds)[0])

    def until(self, enough, most: int = 1000) -> list[Update]:
        """All updates until `enough(updates)`."""
        found: list[Update] = []
        end = time.monotonic() + HANG_S
        while not enough(found):
            assert time.monotonic() < end, f"only {found[-20:]}"
            self.readable(0.5)
            found += self.poll(most)
        return found

    def values(self, numbers, enough=lambda _: True) -> dict[int, Update]:
        """The newest value of each of the PVs, once all have one that is enough."""

        def newest(updates):
            return {u.id: u for u in updates if u.what == VALUE and u.id in numbers and enough(u)}

        return newest(self.until(lambda updates: len(newest(updates)) == len(set(numbers))))

    def counts(self, number: int) -> _Counts | None:
        counts = _Counts()
        return counts if self.library.bp_counted(self.handle, c_uint64(number), byref(counts)) else None

    def put(self, pv: str, value, *, seconds: float = 20.0) -> None:
        """Write a number, a text, or a list or array of them."""
        elements, is_array, _memory = _elements(value)
        arguments = (pv.encode(), byref(elements), c_int(is_array), c_uint32(int(seconds * 1000)))
        if self.library.bp_put(self.handle, *arguments, self.error, c_size_t(400)):
            raise RuntimeError(self.error.value.decode())

    def put_start(self, number: int, value, tag: int) -> None:
        """The same to a PV of `add`; the answer is an update."""
        elements, is_array, _memory = _elements(value)
        arguments = (c_uint64(number), byref(elements), c_int(is_array), c_int32(tag))
        if self.library.bp_put_start(self.handle, *arguments, self.error, c_size_t(400)):
            raise RuntimeError(self.error.value.decode())


def _elements(value) -> tuple[_Elements, bool, object]:
    """The value as the library takes it, whether it is an array, and its memory."""
    is_array = isinstance(value, (list, numpy.ndarray))
    many = value if is_array else [value]
    if len(many) and isinstance(many[0], str):
        kind = STRING
        content = b"".join(struct.pack("I", len(text.encode())) + text.encode() for text in many)
    else:
        array = numpy.asarray(many, None if is_array else numpy.asarray(value).dtype)
        kind, content = NUMBERS.index(array.dtype.str[1:]), array.tobytes()
    memory = ctypes.create_string_buffer(content, max(len(content), 1))
    return _Elements(kind, 0, len(many), ctypes.cast(memory, pointer), len(content)), is_array, memory
