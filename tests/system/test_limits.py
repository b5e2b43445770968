"""Limits of the machine: what shells and systemd allow is enough, and what is not enough has a name."""

import json
import os
import re
import shutil
import subprocess
import tempfile
from functools import partial
from pathlib import Path

import pytest
from conftest import HANG_S, OPEN_FILES, ROOT, as_a_shell, lost_of, until
from ports import free_ports
from test_full_disk import Disk

# These need a server or a recorded run; tests of their own start them, with the same limit.
WITH_PEERS = {"epics", "feedback", "greta-cluster", "kafka", "replay", "two-hosts", "two-pcs"}
EXAMPLES = sorted({path.stem for path in (ROOT / "examples").glob("*.toml")} - WITH_PEERS)


def many(count: int) -> str:
    """Sources that have a stream on disk each."""
    text = "".join(
        f'[source.s{number}]\nkind = "sim"\nmodel = "amor-devices"\nlive = "4 MiB"\nlevel = "disk"\n'
        for number in range(count)
    )
    return text + '[run.first]\nstart = "now"\n'


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_starts_with_1024_open_files(lab, nexus, name):
    for file in (ROOT / "examples").iterdir():
        if file.is_file():
            shutil.copy2(file, lab.folder)
    text = re.split(r"^instrument = .*$", (ROOT / f"examples/{name}.toml").read_text(), maxsplit=1, flags=re.M)[1]
    ranges = re.findall(r"127\.0\.0\.1:(\{\d+\.\.\d+\}|\d+)", text)
    for ports in ranges:
        first, _, last = ports.strip("{}").partition("..")
        count = int(last or first) - int(first) + 1
        base = free_ports(count)[0]
        text = text.replace(f":{ports}", f":{{{base}..{base + count - 1}}}" if last else f":{base}")
    lab.write(text)
    process, _ = lab.up_ready()
    lab.interrupt(process)
    report = lab.report(process, status=None)
    said = lab.said(process)[1]
    assert process.returncode in (0, 1) and "open files" not in said, said
    assert report["run"] and report["failed"] == []


def test_many_streams_on_disk_start_with_1024_open_files(lab, times):
    count = times(200, 1000)
    lab.write(many(count))
    process, seconds = lab.up_ready(preexec_fn=partial(as_a_shell, 20_000))
    used = len(os.listdir(f"/proc/{process.pid}/fd"))
    assert used > OPEN_FILES, "the soft limit was no limit"
    lab.interrupt(process)
    report = lab.report(process)
    assert lost_of(report) == 0 and len(report["streams"]) == count
    print(f"{count} streams: {used} descriptors, started in {seconds:.1f} s")


ONE = """
[source.s]
kind = "sim"
model = "amor"
rate = 1e5
live = "2 MiB"

[run.first]
start = "now"
duration = "{duration}"
"""


@pytest.mark.root
def test_a_file_system_without_fallocate_is_filled_with_zeroes(lab, tmp_path):
    """ext2 has the number of ext4."""
    disk = Disk(tmp_path / "old", 300, "ext2")
    try:
        lab.data = disk.folder / "data"
        lab.write(ONE.format(duration="2 s"))
        said = lab.run("doctor", lab.file, status=None).stdout.decode()
        assert "without fallocate" in said, said
        report = lab.report(lab.up())
        assert lost_of(report) == 0 and report["closed"] and report["streams"][0]["messages"] > 20
        lab.run("verify", "--data", lab.data)
    finally:
        disk.close()


@pytest.mark.root
def test_a_data_folder_on_overlayfs_is_a_warning_of_up(lab, tmp_path):
    for name in ("lower", "upper", "work", "merged"):
        (tmp_path / name).mkdir()
    below = Disk(tmp_path / "below", 200, "tmpfs")
    try:
        parts = {part: below.folder / part for part in ("lower", "upper", "work")}
        for path in parts.values():
            path.mkdir()
        options = ",".join(f"{part}dir={path}" for part, path in parts.items())
        merged = tmp_path / "merged"
        subprocess.run(["mount", "-t", "overlay", "-o", options, "overlay", merged], check=True)
        try:
            lab.data = merged / "data"
            lab.write(ONE.format(duration="500 ms"))
            process = lab.up()
            lab.report(process)
            said = lab.said(process)[1]
            assert "warning: the data folder" in said and "overlayfs" in said and "hint:" in said, said
        finally:
            subprocess.run(["umount", "-l", merged], check=True)
    finally:
        below.close()


@pytest.mark.root
@pytest.mark.parametrize("mode", [0o750, 0o751])
def test_another_user_goes_on_in_a_folder_that_was_ended_in_order(programs, mode):
    """`chown -R` of a folder: the shared memory of its former owner is closed to the new one, and not needed."""
    # That of root may be entered by others since it shared a folder with a group.
    Path("/dev/shm/beamport-0").mkdir(mode=0o750, exist_ok=True)
    Path("/dev/shm/beamport-0").chmod(mode)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        folder.chmod(0o755)
        (folder / "bin").mkdir()
        shutil.copy2(programs / "beamport", folder / "bin")
        libraries = programs.parent / "lib/beamport"
        if libraries.is_dir():
            shutil.copytree(libraries, folder / "lib/beamport")
        head = f'instrument = "lab"\ndata = "{folder}/data"\n'
        for run, who in (("first", 0), ("second", 65_534), ("third", 0)):
            text = head + ONE.format(duration="500 ms").replace("run.first", f"run.{run}")
            (folder / "i.toml").write_text(text)
            subprocess.run(["chown", "-R", str(who), folder], check=True)
            up = [folder / "bin/beamport", "up", folder / "i.toml", "--json"]
            ended = subprocess.run(
                up, capture_output=True, text=True, timeout=HANG_S, user=who, group=who, extra_groups=[]
            )
            assert ended.returncode == 0, ended
            report = json.loads(ended.stdout.splitlines()[-1])
            assert report["run"] == run and report["closed"] and lost_of(report) == 0
    subprocess.run([programs / "beamport", "doctor", "--clean"], check=False)


def test_the_limit_of_open_files_has_a_hint(lab):
    lab.write(many(200))
    process = lab.up(preexec_fn=partial(as_a_shell, OPEN_FILES))
    until(lambda: process.poll() is not None or "open files" in lab.said(process)[1], "nothing is said")
    said = lab.said(process)[1]
    assert "Too many open files" in said and "`ulimit -n`" in said, said
    lab.interrupt(process)
    lab.end(process, status=None)
