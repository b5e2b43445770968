"""Disks that are full: for streams and for the file. Nothing crashes, nothing marked is lost, all heals with room.

With root, an ext4 image that is really filled; without, a limit on the size of files (RLIMIT_FSIZE), which the system
reports in the same way.
"""

import json
import os
import resource
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from conftest import ROOT, camera, lost_of, until, worker
from nexus_files import different
from test_kill_writer import readable, writers_of

STREAMS = """
[source.detector]
kind = "sim"
model = "amor"
rate = 4e5
live = "2 MiB"

[source.devices]
kind = "sim"
model = "amor-devices"
live = "1 MiB"

[run.first]
settle = "200 ms"
"""
FILE = """
[source.detector]
kind = "sim"
model = "amor"
rate = 1e5
live = "8 MiB"

[source.devices]
kind = "sim"
model = "amor-devices"
live = "1 MiB"

[source.monitor]
kind = "sim"
model = "amor-monitor"
live = "1 MiB"

[sink.file]
kind = "nexus"
template = "amor.nexus.json"
file = "{{run}}.nxs"
folder = "{folder}"
flush = "50 ms"

[run.first]
settle = "200 ms"
"""


def still(stream, which: int) -> bool:
    """A mark (1 `disk`, 2 `memory`) that has not moved for a second; 14 messages are due."""
    mark = stream.marks()[which]
    time.sleep(1.0)
    return stream.marks()[which] == mark


class Disk:
    """A small file system of its own, and the ballast that fills it."""

    def __init__(self, folder: Path, mib: int, kind: str):
        self.folder = folder
        folder.mkdir()
        if kind == "tmpfs":
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", folder], check=True)
        else:
            image = folder.with_suffix(".image")
            with image.open("wb") as file:
                file.truncate(mib << 20)
            subprocess.run([f"mkfs.{kind}", "-q", "-F", "-m", "0", image], check=True)
            subprocess.run(["mount", "-o", "loop", image, folder], check=True)
        self.ballast = folder / "ballast"

    def fill(self):
        """Takes every byte that is left."""
        with self.ballast.open("ab") as file:
            piece = 1 << 24
            while piece >= 4096:
                try:
                    os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, piece)
                except OSError:
                    piece //= 2

    def free(self):
        """Gives it back."""
        self.ballast.unlink()

    def close(self):
        """Unmounts; lazily where something still lies open."""
        if subprocess.run(["umount", self.folder]).returncode != 0:
            subprocess.run(["umount", "-l", self.folder], check=False)


@pytest.fixture
def disk(tmp_path):
    made = []

    def make(name: str, mib: int, kind: str) -> Disk:
        made.append(Disk(tmp_path / name, mib, kind))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.root
def test_streams_on_a_full_disk_wait_and_heal(lab, disk, times):
    small = disk("small", 400, "ext4")
    lab.data = small.folder / "data"
    lab.write(STREAMS)
    process, _ = lab.up_ready()
    stream = lab.stream("detector")
    full = times(5, 20)
    restarts, healed = 0, []
    for turn in range(full):
        until(lambda stream=stream: stream.marks()[1] > 5, "nothing is marked")
        small.fill()
        until(lambda stream=stream: still(stream, 1) and still(stream, 2), "the disk is full and the marks go on")
        _, marked, published = stream.marks()
        # Reading goes on, of all that there is.
        seen = lab.run("cat", "detector", "--early", "--json", "--data", lab.data).stdout.count(b"\n")
        assert seen == published
        assert b'"ok"' in lab.ask(b'{"command": "status"}\n')
        if turn % 2:
            # The mover dies on the full disk; whether it comes back now or later, it must come back whole.
            restarts += 1
            lab.kill(process)
            process = lab.up()
            time.sleep(0.5)
            small.free()
            began = time.monotonic()
            if process.poll() is not None:
                assert process.returncode == 2 and "hint:" in lab.said(process)[1]
                process, _ = lab.up_ready()
            else:
                until(lambda process=process: lab.ready(process), "it does not come back")
        else:
            small.free()
            began = time.monotonic()
        until(lambda published=published: lab.stream("detector").marks()[1] > published, "it does not heal")
        healed.append(time.monotonic() - began)
        stream = lab.stream("detector")
        assert stream.marks()[1] >= marked
    lab.whole(process)
    lab.run("verify", "--data", lab.data)
    print(
        f"full disk, streams: {full} injected ({restarts} with a kill), 0 lost of {stream.marks()[2]} messages, "
        f"marks went on at latest {max(healed) * 1000:.0f} ms after there was room"
    )


def limit(process, size: int):
    """No file of this process may grow beyond `size` from now on."""
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def test_streams_that_may_not_grow_wait_and_heal(lab, times):
    lab.write(STREAMS)
    process, _ = lab.up_ready()
    stream = lab.stream("detector")
    full = times(2, 20)
    for _ in range(full):
        began = stream.marks()[1]
        until(lambda began=began: stream.marks()[1] > began + 5, "nothing is marked")
        limit(process, 64 << 10)
        until(lambda: still(stream, 2), "no file may grow and messages go on")
        published = stream.marks()[2]
        assert process.poll() is None
        seen = lab.run("cat", "detector", "--early", "--json", "--data", lab.data).stdout.count(b"\n")
        assert seen == published
        limit(process, resource.RLIM_INFINITY)
        until(lambda published=published: stream.marks()[1] > published, "it does not heal")
    lab.whole(process)
    lab.run("verify", "--data", lab.data)
    print(f"files that may not grow, streams: {full} injected, 0 lost of {stream.marks()[2]} messages")


def test_a_worker_that_could_not_write_said_so_nowhere(lab):
    (lab.folder / "mine.py").write_text("import beamport\n\n\n@beamport.worker\ndef one(frame):\n    return 1\n")
    lab.write(camera(100, "memory") + worker("one", "mine.py:one", "level = 'disk'\n"))
    process, _ = lab.up_ready()
    until(lambda: b'"one"' in lab.run("ls", "--json", "--data", lab.data).stdout, "it does not begin")
    stream = lab.stream("one")
    until(lambda: stream.marks()[1] > 5, "nothing is marked")
    limit(process, 4096)
    said = until(
        lambda: [t for t in json.loads(lab.ask(b'{"command": "status"}\n'))["ok"]["troubles"] if "`one" in t], "no word"
    )
    assert "is not written to disk" in said[0] and "the inputs keep what is not done" in said[0]
    limit(process, resource.RLIM_INFINITY)
    marked = stream.marks()[1]
    until(lambda: stream.marks()[1] > marked, "it does not heal")
    until(lambda: not json.loads(lab.ask(b'{"command": "status"}\n'))["ok"]["troubles"], "it says so for ever")
    lab.interrupt(process)
    lab.end(process)


def test_interrupt_on_a_full_disk_seals_when_there_is_room(lab):
    lab.write(STREAMS)
    process, _ = lab.up_ready()
    stream = lab.stream("detector")
    until(lambda stream=stream: stream.marks()[1] > 5, "nothing is marked")
    limit(process, 4096)
    until(lambda: still(stream, 2), "no file may grow and messages go on")
    lab.interrupt(process)
    time.sleep(1.0)
    assert process.poll() is None, lab.said(process)[1]
    limit(process, resource.RLIM_INFINITY)
    report = lab.report(process)
    assert report["closed"] and lost_of(report) == 0
    print(f"interrupt while no file may grow: 1 injected, sealed with room, 0 lost of {stream.marks()[2]} messages")


def troubles(lab) -> list[str]:
    """What the control socket says that holds things up."""
    return json.loads(lab.ask(b'{"command": "status"}\n'))["ok"]["troubles"]


def finish(lab, process, file: Path) -> int:
    """Ends the run and compares its file with the undisturbed one; the number of messages."""
    report = lab.whole(process)
    again = lab.folder / "again.nxs"
    lab.run("write", "first", "-o", again, "--data", lab.data, "--template", lab.folder / "amor.nexus.json")
    assert different(file, again) == []
    return sum(line["messages"] for line in report["streams"])


@pytest.mark.root
def test_file_on_a_full_disk_heals_and_is_complete(lab, nexus, disk, times):
    small = disk("small", times(300, 2000), "tmpfs")
    shutil.copy2(ROOT / "examples/amor.nexus.json", lab.folder)
    lab.write(FILE.format(folder=small.folder))
    process, _ = lab.up_ready()
    file = small.folder / "first.nxs"
    full, healed = times(5, 50), []
    stream = lab.stream("detector")
    for _ in range(full):
        until(lambda: file.exists() and file.stat().st_size > 1 << 20, "the file does not grow")
        small.fill()
        size = file.stat().st_size
        count = stream.marks()[2]
        # The streams lie elsewhere: they go on whatever becomes of the file.
        until(lambda count=count: stream.marks()[2] > count + 14, "a full disk of the file stops the streams")
        assert process.poll() is None
        # It stays readable, with rows of the stream alone.
        until(lambda: readable(lab, file), "a full disk leaves a file that does not open")
        small.free()
        began = time.monotonic()
        until(lambda size=size: file.exists() and file.stat().st_size > size + (1 << 20), "the file does not heal")
        healed.append(time.monotonic() - began)
        until(lambda process=process: writers_of(lab, process), "there is no writer")
    messages = finish(lab, process, file)
    ended = lab.said(process)[1].count("ended: signal")
    print(
        f"full disk, file: {full} injected, {ended} writers died of it, it opened each time and grew by 1 MiB at latest "
        f"{max(healed):.1f} s after there was room, 0 lost of {messages} messages, equal to the undisturbed file"
    )
    assert ended == 0, "a writer died of a signal on a full disk"


@pytest.mark.root
def test_write_on_a_full_disk_ends_and_leaves_nothing(lab, nexus, disk, times):
    small = disk("small", 16, "tmpfs")
    shutil.copy2(ROOT / "examples/amor.nexus.json", lab.folder)
    lab.write(FILE.format(folder=lab.folder / "files"))
    process, _ = lab.up_ready()
    until(lambda: lab.stream("detector").marks()[1] > 60, "nothing is marked")
    lab.interrupt(process)
    lab.report(process)
    again = small.folder / "again.nxs"
    words = ("write", "first", "-o", again, "--data", lab.data, "--template", lab.folder / "amor.nexus.json")
    full = times(2, 20)
    for turn in range(full):
        small.fill()
        # Room for the beginning of the file, and for nothing at all.
        with small.ballast.open("ab") as ballast:
            ballast.truncate(small.ballast.stat().st_size - (2 << 20) * (turn % 2))
        refused = lab.run(*words, status=2)
        assert b"no space" in refused.stderr and b"hint:" in refused.stderr, refused.stderr
        assert [path.name for path in small.folder.iterdir()] == ["ballast"]
        small.free()
    lab.run(*words)
    assert different(lab.folder / "files" / "first.nxs", again) == []
    print(f"full disk, write: {full} injected, each refused, nothing left behind; 0 lost once there was room")


def test_file_that_may_not_grow_heals_and_is_complete(lab, nexus, times):
    shutil.copy2(ROOT / "examples/amor.nexus.json", lab.folder)
    lab.write(FILE.format(folder=lab.folder / "files"))
    process, _ = lab.up_ready()
    file = lab.folder / "files" / "first.nxs"
    full = times(3, 20)
    stream = lab.stream("detector")
    for _ in range(full):
        until(lambda: file.exists() and file.stat().st_size > 1 << 20, "the file does not grow")
        size = file.stat().st_size
        for pid in writers_of(lab, process):
            try:
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
            except ProcessLookupError:
                continue
        count = stream.marks()[2]
        until(lambda count=count: stream.marks()[2] > count + 14, "a full disk of the file stops the streams")
        (said,) = until(lambda: troubles(lab), "the reason stands nowhere")
        assert "first.nxs" in said and "free some space" in said
        for pid in writers_of(lab, process):
            try:
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            except ProcessLookupError:
                continue
        until(lambda size=size: file.stat().st_size > size + (1 << 20), "the file does not heal")
        until(lambda: troubles(lab) == [], "it says so for ever")
    messages = finish(lab, process, file)
    assert "ended: signal" not in lab.said(process)[1], "a writer died of a signal on a full disk"
    print(f"file that may not grow: {full} injected, 0 lost of {messages} messages, equal to the undisturbed file")
