"""Shared memory of its own that is full while an instrument runs: a drop policy drops, and the ledger counts."""

import os
import subprocess

import pytest
from conftest import lost_of, until

INSTRUMENT = """
[source.detector]
kind = "sim"
model = "amor"
rate = 3e5
level = "{level}"
when_full = "drop-newest"
live = "24 MiB"

[run.first]
settle = "200 ms"
"""


def fill(shm):
    """Takes every byte that is left."""
    with (shm / "ballast").open("ab") as file:
        piece = 1 << 22
        while piece >= 4096:
            try:
                os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, piece)
            except OSError:
                piece //= 2


@pytest.mark.root
@pytest.mark.parametrize("level", ["memory", "disk"])
def test_what_a_full_shared_memory_had_no_room_for_was_lost_without_a_count(lab, tmp_path, level):
    lab.write(INSTRUMENT.format(level=level))
    shm = tmp_path / "shm"
    shm.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", shm], check=True)
    try:
        # The instrument has this file system in place of that of the machine; we see it under its own name.
        inside = 'mount --bind "$1" /dev/shm && exec "$2" up "$3" --json'
        program, lab.beamport = lab.beamport, "unshare"
        process = lab.popen("--mount", "sh", "-c", inside, "sh", shm, program, lab.file)
        lab.beamport = program
        until(lambda: lab.ready(process), "the instrument is not ready")
        places = shm / f"beamport-{os.geteuid()}"
        head = until(lambda: next(places.glob(f"{lab.stream('detector').live.name}/head"), None), "no live place")

        def dropped() -> int:
            return int.from_bytes(head.read_bytes()[280:288], "little")

        assert dropped() == 0
        fill(shm)
        until(lambda: dropped() > 20, "nothing is dropped")
        (shm / "ballast").unlink()
        known = dropped()
        lab.interrupt(process)
        report = lab.report(process, status=1)
    finally:
        subprocess.run(["umount", "-l", shm], check=True)
    (entry,) = [row for row in report["ledger"] if row["account"] == "entry"]
    assert report["closed"] and set(entry["lost"]) == {"full"} and entry["lost"]["full"] >= known
    assert lost_of(report) == entry["lost"]["full"] == report["streams"][0]["lost"]
    assert sum(gap["last"] - gap["first"] + 1 for gap in report["gaps"]) == lost_of(report)
    print(
        f"full shared memory, {level}: 1 injected, {lost_of(report)} dropped, {lost_of(report)} in the ledger, closed"
    )
