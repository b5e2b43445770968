"""A header that beamport does not know: its table, what `check --datagram` says of a capture, and a run of boards with it."""

import json
import random
import re
import socket
import struct
import subprocess
import time

import numpy
import pytest
from conftest import ROOT, until
from ports import free_ports

beamport = pytest.importorskip("beamport", reason="pip install .")

# The header of detectors of PSI: frame, exposure, packet, bunch, time in 100 ns, module, row, column, type and version.
HEADER = struct.Struct("<QIIQQHHHHIHBB")
PACKETS = 4

TABLE = """
[source.camera]
kind = "udp"
listen = "127.0.0.1:{FIRST..LAST}"
origins = ["m{0..1}"]
tick = "100 ns"
KEYS

[source.camera.framing]
header = 48
constants = { "u8 at 46" = 3, "u8 at 47" = 2 }
number = "u64 at 0"
packet = "u32 at 12"
packets = 4
time = "u64 at 24"
stream = "u16 at 32"
"""


def packet(frame: int, number: int, module: int, kind: int = 3) -> bytes:
    ticks = 17_723_664_000_000_000 + frame * 1000
    return HEADER.pack(frame, 10, number, 0, ticks, module, 0, 0, 0, 0, 0, kind, 2) + bytes([number]) * 64


def pcap(datagrams: list[tuple[int, bytes]]) -> bytes:
    """A capture of Ethernet: datagrams to ports."""
    out = [struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)]
    for port, payload in datagrams:
        udp = struct.pack(">HHHH", 40000, port, 8 + len(payload), 0) + payload
        ip = struct.pack(
            ">BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0, bytes([10, 1, 0, 5]), bytes([10, 1, 0, 1])
        )
        frame = bytes(12) + b"\x08\x00" + ip + udp
        out.append(struct.pack("<IIII", 0, 0, len(frame), len(frame)) + frame)
    return b"".join(out)


def instrument(lab, keys: str = "") -> int:
    """The instrument file; the first of its two ports."""
    first = free_ports(2)[0]
    text = TABLE.replace("FIRST", str(first)).replace("LAST", str(first + 1))
    lab.write(text.replace("KEYS", keys))
    return first


def test_check_prints_what_a_table_reads_in_a_capture(lab):
    first = instrument(lab)
    datagrams = [
        (first + module, packet(frame, n, module)) for frame in range(50) for module in (0, 1) for n in range(PACKETS)
    ]
    lost = [at for at in range(len(datagrams)) if at % 37 == 20]
    sent = [one for at, one in enumerate(datagrams) if at not in lost]
    # Another detector, a header that is cut, and a datagram to a port of somebody else.
    sent += [(first, packet(9, 0, 0, kind=5)), (first, b"short"), (9, b"discard")]
    capture = lab.folder / "capture.pcap"
    capture.write_bytes(pcap(sent))
    said = lab.run("check", lab.file, "--datagram", capture, status=1).stdout.decode()
    print(said)
    assert re.search(r"datagram 1 from 10.1.0.5 to port \d+, 112 bytes: 1 message\n", said)
    assert re.search(r"  number +u64 at 0 +0 \(0x0\)\n  packet +u32 at 12 +0 \(0x0\)\n  time +u64 at 24 +1772", said)
    assert "message 1: origin m0, number 0, time 2026-03-01T12:00:00Z, schema raw0, bytes 48 to 112" in said
    assert re.search(r"constants +u8 at 46 +5 \(0x5\) +<< it should be 0x3", said)
    assert "refused as `size`" in said and "bytes      73 68 6f 72 74" in said
    assert f"{len(sent) - 1} datagrams of {capture} are for source `camera`: {len(sent) - 3} read, 2 refused" in said
    assert "(1 constant, 1 size), 1 to other ports" in said
    for module in (0, 1):
        missing = sum(datagrams[at][0] == first + module for at in lost)
        messages = 50 * PACKETS - missing
        assert (
            f"origin m{module}: {messages} messages of raw0, numbers 0 to 199, {missing} missing, times 2026-" in said
        )
    # As text, and with nothing wrong.
    text = lab.folder / "datagrams.txt"
    text.write_text("# two packets\n" + "\n".join(packet(1, n, 0).hex(" ") for n in range(2)) + "\n")
    said = lab.run("check", lab.file, "--datagram", text).stdout.decode()
    assert "origin m0: 2 messages of raw0, numbers 4 to 5, 0 missing" in said
    # What is no such file.
    text.write_text("hello\n")
    said = lab.run("check", lab.file, "--datagram", text, status=2).stderr.decode()
    assert "line 1 is not a row of hexadecimal digits" in said and "hint:" in said
    capture.write_bytes(capture.read_bytes()[:-3])
    said = lab.run("check", lab.file, "--datagram", capture, status=2).stderr.decode()
    assert "the capture is damaged" in said or "it ends in the middle of a packet" in said, said
    said = lab.run("check", lab.file, "--datagram", text, "--source", "other", status=2).stderr.decode()
    assert "no source `other`" in said


def test_boards_speak_a_table_and_their_losses_are_known(lab):
    instrument(
        lab, 'boards = { rate = 2000, size = "64 B", loss = 0.02, duplicate = 0.01, seed = 5, duration = "1 s" }'
    )
    lab.file.write_text(lab.file.read_text() + '\n[run.first]\nstart = "now"\nduration = "3 s"\n')
    process, _ = lab.up_ready()
    report = lab.report(process, status=1)
    rows = {row["origin"]: row for row in report["ledger"] if row["account"] == "entry"}
    truth = report["boards"]["boards"]
    for name in ("m0", "m1"):
        row, did = rows[name], truth[name]
        assert did["lost"] > 10 and row["closed"], row
        # Nothing tells what was lost behind the last one.
        assert row["appended"] == did["sent"] - did["lost"] == row["sent"] - row["lost"]["network"], (row, did)
        assert row["refused"] == {"duplicate": did["duplicate"]}
    for message in list(beamport.open(lab.data)["camera"].read())[:100]:
        assert len(bytes(message.payload)) == 64 and message.schema == "raw0"


FRAMES = """
[worker.frames]
call = "groups"
inputs = ["camera"]

[worker.frames.parameters]
find = "trigger"
pieces = 4
members = ["m{0..1}"]
wait = "3 s"
make = "frames"
shape = [2, 8, 16]
dtype = "uint8"

[worker.whole]
call = "groups"
inputs = ["camera"]
parameters = { find = "trigger", pieces = 4, members = ["m{0..1}"], wait = "3 s", make = "frames", shape = [2, 8, 16], \
dtype = "uint8", complete = true }
"""


def piece(frame: int, number: int, module: int, size: int = 32) -> bytes:
    return packet(frame, number, module)[: HEADER.size] + pixels_of(frame, number, module)[:size]


def pixels_of(frame: int, number: int, module: int) -> bytes:
    return bytes((frame * 7 + number * 3 + module + at) % 256 for at in range(32))


def stages_of(lab) -> list[dict]:
    """What the workers of the running instrument have done with their inputs."""
    return json.loads(lab.run("ls", "--json", "--data", lab.data, status=None).stdout)["stages"]


def test_pieces_of_two_modules_become_frames(lab):
    """Mixed within a few frames, with lost, repeated and short packets, and a module that is late by a frame.

    The clock of the modules is months behind. A busy machine may stop the sender for a second.
    """
    first = instrument(lab)
    lab.file.write_text(lab.file.read_text() + FRAMES.replace(" \\\n", " "))
    process, _ = lab.up_ready()
    dice, count = random.Random(3), 300
    everything = [(frame, n, module) for frame in range(count) for module in (0, 1) for n in range(PACKETS)]
    # The first and the last packet of a module are known from outside by those around them.
    lost = {one for one in everything if 0 < one[0] < count - 1 and dice.random() < 0.01}
    short = {(5, 2, 1), (77, 0, 0)} - lost
    order = sorted(everything, key=lambda one: 8 * one[0] + one[1] + 8 * one[2] + dice.uniform(0, 12))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        for at, one in enumerate(order):
            for _ in range(2 if at % 100 == 7 else 1):
                if one not in lost:
                    out.sendto(piece(*one, size=20 if one in short else 32), ("127.0.0.1", first + one[2]))
            if at % 40 == 0:
                time.sleep(0.002)
    data = beamport.open(lab.data)
    missing = lost | short
    broken = {frame for frame, _, _ in missing}
    until(lambda: "frames" in data and data["frames"].count == count, "not all frames came")
    whole = count - len(broken)
    until(
        lambda: "whole" in data and data["whole"].count == whole, lambda: f"{data['whole'].count}, not {whole} frames"
    )
    until(lambda: not any(row["held"] for row in stages_of(lab)), "messages of incomplete frames wait")
    lab.interrupt(process)
    (report,) = (json.loads(line) for line in lab.end(process, status=1).splitlines())
    assert report["closed"], report["ledger"]
    entries = {row["origin"]: row for row in report["ledger"] if row["account"] == "entry"}
    for module in (0, 1):
        assert entries[f"m{module}"]["lost"] == {"network": sum(one[2] == module for one in lost)}
    stages = {row["stage"]: row for row in report["ledger"] if row["account"] == "stage"}
    for name in ("frames", "whole"):
        done = len(everything) - len(missing)
        assert (stages[name]["held"], stages[name]["done"]) == (0, done), stages[name]
        assert stages[name]["skipped"] == {"filtered": len(short)}, stages[name]
    # What the slots counted last is there, though they end within a second.
    for name in ("frames", "whole"):
        counted = report["statistics"][name]["0"]
        assert (counted["groups"], counted["incomplete"]) == (count, len(broken)), counted
    frames = {message.origin_seq: message for message in data["frames"].read()}
    assert sorted(frames) == list(range(count))
    for frame, message in frames.items():
        gone = [one for one in missing if one[0] == frame]
        pixels = numpy.concatenate(
            [
                numpy.frombuffer(bytes(32) if (frame, n, module) in missing else pixels_of(frame, n, module), "uint8")
                for module in (0, 1)
                for n in range(PACKETS)
            ]
        )
        assert message.schema == "ad00" and message.id == frame
        assert numpy.array_equal(message.array, pixels.reshape(2, 8, 16)), frame
        parts = numpy.flatnonzero(message.metadata["missing"]).tolist()
        assert parts == sorted(module * PACKETS + n for _, n, module in gone)
        assert message.flags == (["suspect"] if gone else [])
    assert {message.origin_seq for message in data["whole"].read()} == set(range(count)) - broken


def test_mistakes_in_a_table_have_their_lines(lab):
    instrument(lab)
    lab.file.write_text(lab.file.read_text().replace('"u64 at 24"', '"u64 24"').replace("packets = 4\n", ""))
    said = lab.run("check", lab.file, status=2).stderr.decode()
    assert "wrong value of `time` in [source.camera.framing]" in said and "`u64 24` is not a field" in said
    assert "`packets` is missing" in said, said


def code_of(kind: str, part: str) -> str:
    """Code of the page on framings."""
    page = (ROOT / "docs/how-to/add-a-framing.md").read_text().partition(f"## {part}")[2]
    return page.partition(f"```{kind}\n")[2].partition("```")[0]


def test_the_library_in_c_of_the_page_reads_datagrams(lab):
    (lab.folder / "mine.c").write_text(code_of("c", "A library in C"))
    command = [
        "cc",
        "-shared",
        "-fPIC",
        "-O2",
        "-Wall",
        "-Werror",
        "-I",
        ROOT / "include",
        "-o",
        "libmine.so",
        "mine.c",
    ]
    port = free_ports(1)[0]
    text = code_of("toml", "A library in C").replace("0.0.0.0:9001", f"127.0.0.1:{port}")
    lab.write(text.partition('instrument = "mine"\n')[2])
    said = lab.run("check", lab.file, status=2).stderr.decode()
    assert "there is no file" in said and "beside the instrument file" in said
    (lab.folder / "libmine.so").write_bytes(b"no library")
    said = lab.run("up", lab.file, status=2).stderr.decode()
    assert "cannot load the framing" in said and "beamport_framing.h" in said, said
    subprocess.run(command, cwd=lab.folder, check=True)
    lab.run("check", lab.file)
    # Both versions of the header; 7 is missing, its numbers go on behind their end.
    sent = []
    for n in [*range(0xFFFFFA, 0x1000000), *range(7), *range(8, 20)]:
        head = bytes([1 + n % 2]) + (n % 0x1000000).to_bytes(3, "big")
        sent.append(head + (bytes([0, 2]) if n % 2 else b"") + bytes([n % 256] * 8))
    sent += [b"\3...", bytes([2, 0, 0, 1, 9, 9])]
    capture = lab.folder / "capture.pcap"
    capture.write_bytes(pcap([(port, one) for one in sent]))
    said = lab.run("check", lab.file, "--datagram", capture, status=1).stdout.decode()
    assert "1 damaged, 1 foreign" in said and "25 messages of mine" in said and "1 missing" in said, said
    process, _ = lab.up_ready()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        for one in sent:
            out.sendto(one, ("127.0.0.1", port))
    data = beamport.open(lab.data)
    until(lambda: "detector" in data and data["detector"].count == 25, "not all came")
    lab.interrupt(process)
    lab.end(process, status=None)
    messages = list(data["detector"].read())
    assert [m.origin_seq for m in messages] == [*range(0xFFFFFA, 0x1000007), *range(0x1000008, 0x1000014)]
    assert all(bytes(m.payload) == bytes([m.origin_seq % 256] * 8) and m.schema == "mine" for m in messages)
