"""Readers that are no more: a measurement does not stand still for them."""

import json
import struct
import subprocess
import sys
import time
from pathlib import Path

import beamport
from conftest import HANG_S, until

SOURCE = """
reader_timeout = "{timeout}"
readers = {readers}

[source.cam]
kind = "sim"
model = "amor"
level = "memory"
live = "1 MiB"
when_full = "wait"
rate = 1e5
"""
WORKER = """
[worker.old]
call = "copy"
inputs = ["cam"]
"""
READ = """
import sys, beamport
reader = beamport.open(sys.argv[1])["cam"].read(name="analysis", follow=True)
for message, _ in zip(reader, range(3)):
    reader.commit()
print(message.sequence, flush=True)
sys.stdin.read()
"""


def write(lab, timeout="10 min", readers="[]", more=""):
    lab.write(SOURCE.format(timeout=timeout, readers=readers) + more)


def goes_on(lab, why: str):
    """The stream has gone round its memory."""
    stream = lab.stream("cam")
    first = stream.marks()[0]
    until(lambda: stream.marks()[0] > first + 20, why)


def read_and_die(lab) -> int:
    """A reader that is killed; the last message that it committed."""
    pipe = subprocess.PIPE
    reader = subprocess.Popen([sys.executable, "-c", READ, lab.data], stdin=pipe, stdout=pipe, text=True)
    try:
        return int(reader.stdout.readline())
    finally:
        reader.kill()
        reader.communicate(timeout=HANG_S)


def stands_still(lab):
    stream = lab.stream("cam")

    def later() -> int:
        time.sleep(0.5)
        return stream.marks()[2]

    until(lambda: stream.marks()[2] == later(), "it does not wait")


def readers_of(lab) -> list[dict]:
    told = json.loads(lab.run("ls", "--json", "--data", lab.data, status=None).stdout)
    (stream,) = [one for one in told["streams"] if one["name"] == "cam"]
    return stream["readers"]


def test_a_worker_that_left_the_instrument_file_holds_back_nothing(lab):
    write(lab, more=WORKER)
    process, _ = lab.up_ready()
    goes_on(lab, "it does not begin")
    lab.interrupt(process)
    lab.end(process)
    write(lab)
    process, _ = lab.up_ready()
    goes_on(lab, "the stream waits for a worker that is no more")
    lab.interrupt(process)
    lab.end(process)
    assert "the instrument file has no stage `old`" in lab.said(process)[1]
    assert [reader["name"] for reader in readers_of(lab) if reader["name"]] == []


def test_a_reader_whose_process_is_gone_for_long_holds_back_nothing_and_keeps_its_position(lab):
    write(lab, timeout="2 s")
    process, _ = lab.up_ready()
    last = read_and_die(lab)
    goes_on(lab, "the stream waits for a reader that is no more")
    (reader,) = [reader for reader in readers_of(lab) if reader["name"] == "analysis"]
    assert reader["kind"] == "live" and reader["pid"] is None, reader
    # It comes back: what it has missed is an error that names the rest, and no message is skipped in silence.
    with beamport.open(lab.data)["cam"].read(name="analysis") as again:
        try:
            message = next(iter(again))
        except beamport.Error as error:
            assert "are gone" in str(error), error
        else:
            assert message.sequence == last + 1
    lab.interrupt(process)
    lab.end(process)
    assert "no longer waits for reader `analysis`: its process has been gone for 2 s" in lab.said(process)[1]


def test_a_reader_that_the_file_lists_is_waited_for(lab):
    write(lab, timeout="300 ms", readers='["analysis"]')
    process, _ = lab.up_ready()
    read_and_die(lab)
    stands_still(lab)
    for verb in ("ls", "doctor"):
        said = lab.run(verb, "--data", lab.data, status=None).stdout.decode()
        assert "waits for" in said and "beamport forget cam 'analysis'" in said, said
    lab.run("forget", "cam", "analysis", "--data", lab.data)
    goes_on(lab, "it was forgotten")
    lab.interrupt(process)
    lab.end(process)


def gone(pins: Path, moved_s: int = 0) -> bool:
    """Whether the file of a stream's readers says since when one is gone; moves that time."""
    content, found = bytearray(pins.read_bytes()), False
    for place in range(256, len(content), 256):
        (since,) = struct.unpack_from("<q", content, place + 248)
        if since:
            struct.pack_into("<q", content, place + 248, since + moved_s * 10**9)
            found = True
    if moved_s:
        pins.write_bytes(content)
    return found


def test_a_reader_of_yesterday_does_not_stop_the_measurement_of_today(lab):
    # Long enough that this test would wait for it in vain.
    write(lab, timeout="1 min")
    process, _ = lab.up_ready()
    read_and_die(lab)
    stands_still(lab)
    until(lambda: gone(lab.data / "cam" / "pins"), "the mover does not see that the reader is gone")
    lab.interrupt(process)
    lab.end(process)
    assert gone(lab.data / "cam" / "pins", moved_s=-24 * 3600)
    process, _ = lab.up_ready()
    goes_on(lab, "the stream waits for a reader of yesterday")
    lab.interrupt(process)
    lab.end(process)
