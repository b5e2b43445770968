"""The medium of a stream is damaged below its marks: the recovery cuts it, `up` ends with status 1, `ls` keeps a line."""

import json

import pytest
from conftest import camera, until

INSTRUMENT = (
    camera(200, level="disk")
    + """
[merge.ordered]
kind = "time"
inputs = ["camera"]
wait = "50 ms"
level = "disk"
live = "8 MiB"

[worker.copy]
call = "copy"
inputs = ["ordered"]
slots = 1
level = "disk"
live = "8 MiB"
slot_live = "2 MiB"
"""
)


def line_of(gap: dict) -> str:
    return f"{gap['stream']}: messages {gap['first']} to {gap['last']} were marked, and a recovery cut them"


def listed(lab) -> tuple[dict, str]:
    """The streams of `ls --json` by name, and `ls` as people see it."""
    streams = json.loads(lab.run("ls", "--json", "--data", lab.data).stdout)["streams"]
    return {stream["name"]: stream for stream in streams}, lab.run("ls", "--data", lab.data).stdout.decode()


def measured(lab, name: str, least: int):
    """Runs the instrument until a stream has so many messages more, all of them marked, and ends it."""
    before = lab.stream(name).marks()[1] if (lab.data / name / "stream").is_file() else 0
    process, _ = lab.up_ready()
    until(lambda: lab.stream(name).marks()[1] >= before + least, lambda: f"nothing is marked: {lab.said(process)}")
    lab.interrupt(process)
    return process


@pytest.mark.parametrize("name", ["camera", "ordered", "copy"])
def test_a_recovery_that_cut_marked_messages_ended_up_with_status_0(lab, name):
    lab.write(INSTRUMENT)
    lab.end(measured(lab, "copy", 200))
    stream = lab.stream(name)
    count = stream.marks()[1]
    # The index behind message 100 is gone, with its checksums.
    table = -(-stream.index_entries // 8 // 4096) * 4096
    with (lab.data / name / "i-00000000").open("r+b") as index:
        index.truncate(table + 64 * 100)
    process = measured(lab, "copy", 20)
    lab.end(process, status=1)
    streams, text = listed(lab)
    (gap,) = streams[name]["cut"]
    assert (gap["first"], gap["stream"]) == (100, name)
    # A merge and a worker make what is behind their last commit again.
    assert gap["last"] == count - 1 if name == "camera" else 100 < gap["last"] < count
    line = line_of(gap)
    assert line in lab.said(process)[1] and line in text
    assert all(not stream["cut"] for other, stream in streams.items() if other != name)
    # It is listed from then on, and is no loss of the next `up`.
    lab.end(measured(lab, "copy", 20))
    streams, text = listed(lab)
    assert streams[name]["cut"] == [gap] and line in text
    print(f"injected 1 index of `{name}` that ends early: {count - 100} marked messages cut, and listed")
