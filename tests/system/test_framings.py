"""Framings of UDP sources: datagrams made by plain Python (tests/framings.py), received by `beamport up`."""

import copy
import json
import socket
import sys
import time
from pathlib import Path

import pytest
from conftest import until
from ports import free_port
from test_udp import entries_of

sys.path.append(str(Path(__file__).resolve().parents[1]))
import datagrams
import framings

beamport = pytest.importorskip("beamport", reason="pip install .")


def arrives(data, name: str, count: int) -> None:
    """Waits until a stream has `count` messages."""
    until(lambda: name in data and data[name].count >= count, f"{count} messages of {name} do not arrive")


class Board:
    """A source of a lab and what sends to it."""

    def __init__(self, lab, framing: str, keys: str = ""):
        self.port = free_port()
        self.lab = lab
        source = f'[source.d001]\nkind = "udp"\nlisten = "127.0.0.1:{self.port}"\nframing = "{framing}"\n'
        lab.write(source + 'live = "8 MiB"\n' + keys + "[run.first]\n")
        self.process, _ = lab.up_ready()
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def send(self, *datagrams: bytes) -> None:
        for data in datagrams:
            self.socket.sendto(data, ("127.0.0.1", self.port))

    def restart(self) -> None:
        """Kills `up`, and starts it again."""
        self.lab.kill(self.process)
        self.process, _ = self.lab.up_ready()

    def wait(self, count: int):
        """The stream, once it has `count` messages."""
        until(
            lambda: (stream := self.stream()) is not None and stream.count >= count, f"{count} messages do not arrive"
        )
        return self.stream()

    def stream(self):
        data = beamport.open(self.lab.data)
        return data["d001"] if "d001" in data else None

    def entry(self, status: int) -> dict:
        """Ends `up`; the account of the stream."""
        self.lab.interrupt(self.process)
        return entries_of(self.lab.report(self.process, status=status))["d001"]


def test_sub_events_of_hadaq_are_messages_with_numbers_and_tags(lab):
    board = Board(lab, "hadaq")
    wrap = framings.WRAP

    def event(number: int, **more) -> bytes:
        return framings.sub_event(0x8000, number % wrap, number & 255, number.to_bytes(8, "big") * 3, **more)

    first = wrap - 6
    board.send(framings.hadaq(*(event(first + at) for at in range(4))), framings.hadaq(event(first + 4)))
    board.wait(5)
    # The process is killed before the numbers begin again, and one datagram is lost meanwhile.
    board.restart()
    late = framings.hadaq(event(first + 7), event(first + 8, error=True), order=">")
    board.send(late, late, framings.hadaq(event(first + 10)), b"foreign", framings.hadaq(event(first + 9))[:-1] + b"\1")
    stream = board.wait(8)
    messages = list(stream.read(early=True))
    numbers = [0, 1, 2, 3, 4, 7, 8, 10]
    assert [message.origin_seq - first for message in messages] == numbers
    assert [bytes(message.payload) for message in messages] == [
        event(first + 8, error=True) if at == 8 else event(first + at) for at in numbers
    ]
    entries = [entry for batch in stream.batches(early=True) for entry in batch.entries]
    assert [entry["flags"] >> 8 for entry in entries] == [first + at & 255 for at in numbers]
    assert [message.flags for message in messages] == [["suspect"] if at == 8 else [] for at in numbers]
    row = board.entry(status=1)
    assert row["closed"] and (row["sent"], row["appended"]) == (11, 8), row
    assert row["lost"] == {"absent": 2, "damaged": 1}, row


def test_readouts_of_ess_are_counted_in_each_queue(lab):
    board = Board(lab, "ess")
    first, (second, rest) = 2**32 - 3, divmod(time.time_ns(), 10**9)
    pulse = rest * framings.TICKS // 10**9

    def readout(queue: int, at: int) -> bytes:
        number = (first + at) % 2**32
        return framings.ess(bytes([queue, at]) * 24, number=number, queue=queue, seconds=second, ticks=pulse + at)

    board.send(*(readout(queue, at) for at in range(3) for queue in (0, 5)))
    board.wait(6)
    board.restart()
    # Each queue has lost one before the restart, and one after it.
    board.send(readout(0, 4), readout(5, 4), readout(0, 6), readout(5, 6), readout(5, 4), readout(5, 5)[:-1])
    messages = list(board.wait(10).read(early=True))
    assert {message.schema for message in messages} == {"ar51"}
    for queue, origin in ((0, "d001"), (5, "d001.q5")):
        own = [message for message in messages if message.origin == origin]
        assert [message.origin_seq - first for message in own] == [0, 1, 2, 4, 6]
        times = [second * 10**9 + (pulse + at) * 10**9 // framings.TICKS for at in (0, 1, 2, 4, 6)]
        assert [message.source_time for message in own] == times
        assert [message["message_id"] for message in own] == [first + at for at in (0, 1, 2, 4, 6)]
        assert [bytes(message["raw_data"]) for message in own] == [readout(queue, at) for at in (0, 1, 2, 4, 6)]
    board.lab.interrupt(board.process)
    ledger = board.lab.report(board.process, status=1)["ledger"]
    rows = {row["origin"]: row for row in ledger if row["account"] == "entry"}
    assert set(rows) == {"d001", "d001.q5"} and all(row["closed"] for row in rows.values()), rows
    assert all(row["lost"]["absent"] == 1 and sum(row["lost"].values()) == 2 for row in rows.values()), rows
    # One of the two is explained by the damaged datagram.
    assert sum(row["lost"].get("damaged", 0) for row in rows.values()) == 1, rows


def test_sources_share_the_zero_of_their_timestamps_and_keep_it_when_killed(lab):
    two = [free_port(), free_port()]
    section = '[source.d00{0}]\nkind = "udp"\nlisten = "127.0.0.1:{1}"\nframing = "beamport"\nlive = "8 MiB"\n'
    keys = 'tick = "10 ns"\nzero = "first"\nbits = 48\nreceiver = "r{0}"\n'
    lab.write("".join((section + keys).format(at, port) for at, port in enumerate(two, 1)) + "[run.first]\n")
    board = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    times = {"d001": [], "d002": []}

    def send(source: str, ticks: int) -> None:
        """Sends a message, and waits for it."""
        data, known = beamport.open(lab.data), times[source]
        payload = datagrams.datagram(len(known), b"x", timestamp=ticks % 2**48)
        board.sendto(payload, ("127.0.0.1", two[int(source[-1]) - 1]))
        arrives(data, source, len(known) + 1)
        known.append(list(data[source].read(early=True))[-1].source_time - 10 * ticks)

    process, _ = lab.up_ready()
    before = time.time_ns()
    send("d002", 3)
    after = time.time_ns()
    (zero,) = times["d002"]
    assert before - 10**9 <= zero <= after + 10**9
    # The other source, in another thread, and both after a kill.
    send("d001", 100)
    lab.kill(process)
    process, _ = lab.up_ready()
    for source in times:
        send(source, 10**6)
    assert set(times["d001"] + times["d002"]) == {zero}
    assert (lab.data / "udp-zero").read_text().startswith("20")
    lab.whole(process)


def read_again(lab, name: str, count: int, keys: str, status: int = 0) -> list:
    """The messages of a file, read by a source of kind `file` which is killed meanwhile."""
    folder = lab.folder / f"again-{name}"
    file = lab.folder / f"again-{name}.toml"
    file.write_text(f'instrument = "again"\ndata = "{folder}"\n[source.again]\nkind = "file"\n{keys}')
    process = lab.popen("up", file)
    until(lambda: folder.is_dir() and "again" in beamport.open(folder), "the file is not read")
    lab.kill(process)
    process = lab.popen("up", file)
    # The first one may have read all of it: before it is ready, an interrupt would end this one at once.
    there = copy.copy(lab)
    there.data = folder
    until(lambda: there.ready(process), "the file is not read again")
    arrives(beamport.open(folder), "again", count)
    lab.interrupt(process)
    lab.end(process, status)
    return list(beamport.open(folder)["again"].read(early=True))


def test_units_of_geb_are_written_to_a_file_and_read_again(lab):
    zero = "2026-03-01T12:00:00Z"
    board = Board(lab, "geb", f'zero = "{zero}"\n')
    began = (time.time_ns() - 1_772_366_400 * 10**9) // 10
    units = [framings.geb(at % 4, began + 7 * at, bytes([at % 256]) * (at % 700)) for at in range(1000)]
    for at in range(0, 1000, 5):
        board.send(b"".join(units[at : at + 5]))
    sent = list(board.wait(1000).read(early=True))
    lab.whole(board.process)
    file = lab.folder / "d001.geb"
    lab.run("export", "first", "--stream", "d001", "--output", file, "--data", lab.data)
    assert file.read_bytes() == b"".join(units)
    refused = lab.run("export", "first", "--stream", "d001", "--output", file, "--data", lab.data, status=2)
    assert b"a file of that name exists" in refused.stderr
    again = read_again(lab, "geb", 1000, f'path = "d001.geb"\nformat = "geb"\nzero = "{zero}"\n')
    assert len(again) == 1000
    for was, now in zip(sent, again, strict=True):
        assert bytes(was.payload) == bytes(now.payload)
        assert (was.source_time, was.origin_seq, was.schema) == (now.source_time, now.origin_seq, now.schema)


HADES = """
[merge.all]
kind = "time"
inputs = ["h1", "h2"]
wait = "100 ms"

[worker.events]
call = "groups"
inputs = ["all"]

[worker.events.parameters]
find = "trigger"
same = "tag"
wrap = 16777216
members = ["h1", "h2"]
make = "messages"
"""


def test_events_of_hades_are_built_written_to_a_file_and_read_again(lab):
    two = [free_port(), free_port()]
    section = '[source.h{}]\nkind = "udp"\nlisten = "127.0.0.1:{}"\nframing = "hadaq"\nlive = "8 MiB"\n'
    lab.write("".join(section.format(at, port) for at, port in enumerate(two, 1)) + HADES + "[run.first]\n")
    process, _ = lab.up_ready()
    board = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    first, wrong = framings.WRAP - 50, framings.WRAP - 20

    def event(hub: int, number: int) -> bytes:
        tag = (number + (hub == 2 and number == wrong)) % 256
        return framings.sub_event(hub, number % framings.WRAP, tag, bytes([hub, number % 256]) * (number % 90))

    data = beamport.open(lab.data)
    for at in range(0, 100, 4):
        for hub, port in enumerate(two, 1):
            # The hubs of four events have different seconds, unless a busy machine takes too long.
            if (at, hub) == (48, 1):
                time.sleep((0.98 - time.time()) % 1)
            elif at == 48:
                time.sleep(min(1 - time.time() % 1, 0.05))
            payload = framings.hadaq(*(event(hub, first + at + more) for more in range(4)))
            board.sendto(payload, ("127.0.0.1", port))
            arrives(data, f"h{hub}", at + 4)
    # The sub-event with another tag is in no group.
    arrives(data, "events", 199)
    lab.interrupt(process)
    assert lab.report(process)["closed"]
    events = list(data["events"].read(early=True))
    expected = [event(hub, first + at) for at in range(100) for hub in (1, 2) if (hub, first + at) != (2, wrong)]
    assert sorted(bytes(message.payload) for message in events) == sorted(expected)
    file = lab.folder / "events.hld"
    answer = json.loads(
        lab.run("export", "first", "--stream", "events", "--output", file, "--data", lab.data, "--json").stdout
    )
    assert (answer["messages"], answer["blocks"], answer["bytes"]) == (199, 100, file.stat().st_size)
    start, *built, stop = framings.read_hld(file.read_bytes())
    assert [start["kind"], stop["kind"]] == [0x00010002, 0x00010003] and not start["subs"] + stop["subs"]
    for at, one in enumerate(built):
        subs = [event(hub, first + at) for hub in (1, 2) if (hub, first + at) != (2, wrong)]
        assert sorted(one["subs"]) == sorted(subs) and one["kind"] == 0x2001 and one["sequence"] == at + 1
    # Of one event a hub's part is in no file.
    again = read_again(lab, "hld", 199, 'path = "events.hld"\nformat = "hld"\n', status=1)
    assert [bytes(message.payload) for message in again] == [bytes(message.payload) for message in events]
    # The time of an event is that of its first message, in whole seconds.
    times = {}
    for was, now in zip(events, again, strict=True):
        second = times.setdefault(was.origin_seq, was.source_time // 10**9)
        assert (now.origin, now.origin_seq) == (f"again.{int(was.origin[1]):04x}", was.origin_seq)
        assert (now.schema, now.source_time) == (was.schema, second * 10**9)


def test_a_file_of_units_that_is_damaged_is_read_up_to_the_damage(lab):
    events = [framings.event(framings.sub_event(1, at, at, b"data"), order="<>"[at % 2]) for at in range(20)]
    whole = b"".join(events)
    (lab.folder / "cut.hld").write_bytes(whole[:-9])
    (lab.folder / "cut.geb").write_bytes(framings.geb(1, 5, b"abc") + framings.GEB.pack(1, -5, 0))
    lab.write(
        '[source.hld]\nkind = "file"\npath = "cut.hld"\nformat = "hld"\n'
        '[source.geb]\nkind = "file"\npath = "cut.geb"\nformat = "geb"\n'
    )
    process, _ = lab.up_ready()
    data = beamport.open(lab.data)
    until(lambda: all(name in data and data[name].count == n for name, n in (("hld", 19), ("geb", 1))), "nothing")
    place = len(whole) - len(events[-1])
    says = [f"it ends within what begins at byte {place}", "a unit has a negative length, at byte 19"]
    until(lambda: all(what in lab.said(process)[1] for what in says), "no word of the damage")
    lab.interrupt(process)
    lab.end(process, status=None)
