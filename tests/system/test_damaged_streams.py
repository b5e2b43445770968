"""A stream of each kind loses its header, or the end of its index: nothing is destroyed, all that is gone is said."""

import shutil
import time

import pytest
from conftest import until
from stream_files import ENTRY

INSTRUMENT = """
[source.one]
kind = "sim"
model = "amor"
rate = 5e4
live = "4 MiB"
level = "disk"

[source.two]
kind = "sim"
model = "amor"
rate = 2e4
live = "4 MiB"
level = "disk"

[merge.all]
kind = "time"
inputs = ["one", "two"]
wait = "50 ms"

[merge.both]
kind = "time"
inputs = ["one", "two"]
wait = "50 ms"
output = "copy"
live = "8 MiB"
level = "disk"

[worker.some]
call = "filter"
inputs = ["one"]
slots = 2
live = "8 MiB"
level = "disk"
parameters = { keep = "events >= 0" }

[sink.file]
kind = "files"
inputs = ["two"]
file = "{instrument}_{run}/{stream}_{number}.h5"

[run.first]
settle = "100 ms"
"""

# Of a source, of merges, of a worker, and the books of all of them.
KINDS = ["one", "all", "all.commits", "both.view", "both.view.commits", "both", "both.commits", "some", "some.commits",
         "file.first.commits", "runs", "control"]  # fmt: skip


def contents(folder) -> dict[str, bytes]:
    """The files of a stream that its writer alone changes, with their bytes."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name not in ("pins", "lock")}


def tail_cut(lab, name: str, share: float) -> int:
    """Removes this share of the marked entries of a stream from the end of its index; how many."""
    stream = lab.stream(name)
    first, disk, _ = stream.marks()
    shutil.rmtree(stream.live, ignore_errors=True)
    keep = int(first + (disk - first) * (1 - share))
    table = -(-stream.index_entries // 8 // 4096) * 4096
    for path in sorted(stream.folder.glob("i-*")):
        number = int(path.name[2:], 16)
        entries = min(max(keep - number * stream.index_entries, 0), stream.index_entries)
        if entries < stream.index_entries:
            with path.open("r+b") as file:
                file.truncate(table + entries * ENTRY.itemsize)
    return disk - keep


def is_under_way(lab) -> bool:
    """Each stream of `KINDS` is there, and those of messages have some on the disk."""
    found = {stream.name: stream for stream in lab.streams(books=True)}
    streams = [found[name].marks()[1] > 20 for name in KINDS if name in found and "." not in name]
    return all(name in found for name in KINDS) and sum(streams) >= 4


def once(lab, goes_on_s: float):
    """`up`, for a while; its status and what it said."""
    process = lab.up()
    until(lambda: process.poll() is not None or lab.ready(process), "neither ready nor ended")
    if process.poll() is None:
        time.sleep(goes_on_s)
        lab.interrupt(process)
    out = lab.end(process, None)
    return process.returncode, out, lab.said(process)[1]


@pytest.mark.soak
@pytest.mark.parametrize("what", ["header", "tail"])
def test_a_damaged_stream_of_any_kind_destroys_nothing_and_is_said(lab, nexus, times, dice, what):
    lab.write(INSTRUMENT)
    kinds: dict[str, int] = {}
    for _ in range(times(1, 12)):
        for name in KINDS:
            if (what, name) == ("tail", "runs"):
                # The run is declared anew, and its account says that it does not close, which ends a test.
                continue
            process, _ = lab.up_ready()
            until(lambda: is_under_way(lab), "nothing comes")
            time.sleep(dice.uniform(0.1, 0.5))
            if "first" in name or dice.random() < 0.5:
                lab.kill(process)
            else:
                lab.interrupt(process)
                lab.end(process, None)
            folder = lab.data / name
            cut = 0
            if what == "header":
                (folder / "stream").unlink()
            else:
                cut = tail_cut(lab, name, dice.uniform(0.1, 0.9))
            before = contents(folder)
            status, out, err = once(lab, 1.5)
            where = f"{what} of {name} (cut {cut}): status {status}\n{err[-2000:]}"
            print(where)
            assert status in (0, 1, 2) and "panicked" not in err, where
            if what == "header":
                assert contents(folder) == before, where
                assert status != 0 and name in err, where
                assert lab.run("verify", "--data", lab.data, status=None).returncode == 1, where
            elif cut:
                assert name in err, where
                # Of a book its older commits are left; a merge whose output shows more than those ends with a hint.
                if "commits" not in name and name not in ("runs", "control"):
                    assert status == 1, where
                    assert f"{name}: messages " in lab.run("ls", "--data", lab.data, status=None).stdout.decode(), where
            kinds[name] = kinds.get(name, 0) + 1
            lab.forget(lab.data)
    print(f"{what} of streams: {sum(kinds.values())} injected in {len(kinds)} kinds of streams, all of them said")
