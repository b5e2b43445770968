"""Limits of the machine: what shells and systemd allow is enough, and what is not enough has a name."""

import os
import re
import shutil
from functools import partial

import pytest
from conftest import OPEN_FILES, ROOT, as_a_shell, lost_of, until
from ports import free_ports

# These need a server or a recorded run; tests of their own start them, with the same limit.
WITH_PEERS = {"epics", "feedback", "kafka", "replay"}
EXAMPLES = sorted({path.stem for path in (ROOT / "examples").glob("*.toml")} - WITH_PEERS)


def many(count: int) -> str:
    """Sources that have a stream on disk each."""
    text = "".join(
        f'[source.s{number}]\nkind = "sim"\nmodel = "amor-monitor"\nlive = "4 MiB"\nlevel = "disk"\n'
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


def test_200_streams_on_disk_start_with_1024_open_files(lab):
    lab.write(many(200))
    process, seconds = lab.up_ready(preexec_fn=partial(as_a_shell, 20_000))
    used = len(os.listdir(f"/proc/{process.pid}/fd"))
    assert used > OPEN_FILES, "the soft limit was no limit"
    lab.interrupt(process)
    report = lab.report(process)
    assert lost_of(report) == 0 and len(report["streams"]) == 200
    print(f"200 streams: {used} descriptors, started in {seconds:.1f} s")


def test_the_limit_of_open_files_has_a_hint(lab):
    lab.write(many(200))
    process = lab.up(preexec_fn=partial(as_a_shell, OPEN_FILES))
    until(lambda: process.poll() is not None or "open files" in lab.said(process)[1], "nothing is said")
    said = lab.said(process)[1]
    assert "Too many open files" in said and "`ulimit -n`" in said, said
    lab.interrupt(process)
    lab.end(process, status=None)
