"""Three hosts and one run: begun on any of them, in one account, with a host that is away named and never forgotten."""

import json
import os
import re
import subprocess
import sys

import h5py
import pytest
from conftest import until
from ports import free_port
from test_hosts import Hosts, hosts  # noqa: F401

beamport = pytest.importorskip("beamport", reason="pip install .")
pytestmark = pytest.mark.services

# The lead reads boards that lose messages; the second host a camera; the third writes the file.
STAGES = """
[source.board]
kind = "udp"
listen = "127.0.0.1:{port}"
framing = "beamport"
live = "16 MiB"
host = "a"
[source.board.boards]
rate = 2000
loss = 0.05

[source.camera]
kind = "sim"
model = "camera"
shape = [16, 16]
fps = 50
live = "16 MiB"
host = "b"

[worker.mean]
call = "mean.py:mean"
inputs = ["camera"]
host = "b"

[sink.file]
kind = "nexus"
template = "camera.nexus.json"
inputs = ["board", "camera"]
file = "{{run}}.nxs"
host = "c"
"""
TEMPLATE = """{"template_version": "1", "children": [{"type": "group", "name": "entry",
  "attributes": [{"name": "NX_class", "dtype": "string", "values": "NXentry"}],
  "children": [{"type": "group", "name": "camera", "children": [{"module": "ad00", "config": {"stream": "camera"}}]}]}]}
"""
MEAN = """
import beamport

@beamport.worker
def mean(frame, scale=1.0):
    return float(frame.array.mean()) * scale
"""


@pytest.fixture
def three(lab, hosts):  # noqa: F811
    """An instrument on three hosts."""
    (lab.folder / "camera.nexus.json").write_text(TEMPLATE)
    (lab.folder / "mean.py").write_text(MEAN)

    def make(name: str, more: str = "") -> Hosts:
        return hosts(name, STAGES.format(port=free_port()) + more, hosts="abc")

    return make


def say(hosts, host: str, *words, status: int = 0):  # noqa: F811
    """A verb on a host."""
    env = {**os.environ, "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"}
    return hosts.lab.run(*words, "--data", hosts.folder(host), status=status, env=env)


def status(hosts, host: str) -> dict:  # noqa: F811
    """What a host says of itself."""
    done = subprocess.run(
        [hosts.lab.beamport, "top", "--once", "--json", "--data", hosts.folder(host)],
        capture_output=True,
        check=False,
    )
    return json.loads(done.stdout)


def away(hosts, host: str) -> set[str]:  # noqa: F811
    """The hosts that a host names as away."""
    return set(re.findall(r"host `(\w+)` is away", json.dumps(status(hosts, host))))


def listed(hosts, expected: int) -> dict:  # noqa: F811
    """`beamport hosts`, by host."""
    done = hosts.lab.run("hosts", hosts.lab.file, "--json", status=expected)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return {row["host"]: row for row in rows}


def is_written(hosts, run: str = "one") -> bool:  # noqa: F811
    """Whether the file of a run on `c` is finished."""
    try:
        runs = {known.name: known for known in beamport.open(hosts.folder("c")).runs}
        return run in runs and runs[run]._commits().get("file", ("", False))[1]
    except beamport.Error:
        # Its commits have not begun.
        return False


def test_one_run_on_three_hosts_has_one_account(three, nexus):
    hosts = three("account")  # noqa: F811
    for host in "cab":
        hosts.up(host)
    for stream in ("board", "camera"):
        until(lambda stream=stream: hosts.count("c", stream) > 0, f"no `{stream}` on c")
    # Begun on a host that does not lead; the answer is the one of the lead.
    begun = json.loads(say(hosts, "c", "begin", "one", "--json").stdout)
    assert begun["name"] == "one" and begun["state"] == "open"
    # A worker of another host.
    changed = json.loads(say(hosts, "a", "configure", "mean", "scale=2.5", "--json").stdout)
    assert changed["parameters"]["scale"] == 2.5, changed
    refused = say(hosts, "b", "begin", "one", "--start", "2020-01-01T00:00:00Z", status=2).stderr.decode()
    assert "a run of that name already exists" in refused
    refused = say(hosts, "c", "begin", "two", "--slots", "mean=2", status=2).stderr.decode()
    assert "it runs on host `b`" in refused and "beamport configure mean --slots" in refused
    rows = listed(hosts, 1)
    assert [rows[host]["state"] for host in "abc"] == ["up"] * 3
    assert rows["a"]["streams"] == ["board", "runs"] and rows["c"]["same_file"]
    assert {mirror["stream"]: mirror["of"] for mirror in rows["c"]["mirrors"]} == {"board": "a", "camera": "b"}
    assert all(abs(row["clock_ns"]) < 2e9 for row in rows.values())
    before = hosts.count("c", "board")
    until(lambda: hosts.count("c", "board") > before + 1000, "the board stands")
    ended = say(hosts, "b", "end", "one").stdout.decode()
    assert "run `one` is settling" in ended and "away" not in ended
    hosts.lab.interrupt(hosts.processes["a"])
    # Something was lost at `a`: each host says so.
    reports = {"a": hosts.lab.report(hosts.processes["a"], status=1)}
    for host in "bc":
        hosts.lab.interrupt(hosts.processes[host])
        hosts.lab.end(hosts.processes[host], None)
    for host in "abc":
        run = beamport.open(hosts.folder(host)).run("one")
        reports[host] = run.ledger()
    entries = [row for row in reports["a"]["entries"] if row["stream"] == "board"]
    lost = sum(sum(row["lost"].values()) for row in entries)
    assert lost > 0
    for host, report in reports.items():
        assert report["closed"], (host, report)
        assert report["lost"] == lost, (host, report["lost"], lost)
        assert {one["host"]: one["state"] for one in report["hosts"]} == dict.fromkeys(set("abc") - {host}, "done")
    mirrors = {row["stream"]: row for row in reports["c"]["mirrors"]}
    for stream in ("board", "camera"):
        assert mirrors[stream]["sent"] == mirrors[stream]["received"] > 0 == mirrors[stream]["missing"]
    with h5py.File(next(hosts.folder("c").rglob("one.nxs"))) as file:
        of_all = file["entry/beamport"]
        assert of_all["closed"][()] == 1 and of_all["lost"][()] == lost
        assert set(of_all["hosts"]) == {"a", "b"}
        assert sum(of_all["hosts/a/entries/lost"][()]) == lost
    text = hosts.lab.run("ls", "one", "--data", hosts.folder("b"), status=None).stdout.decode()
    assert "ledger (closed)" in text and "of this run on host a" in text, text


def test_a_host_that_is_away_is_named_and_holds_the_seal_until_it_is_back(three, nexus):
    hosts = three("away")  # noqa: F811
    for host in "abc":
        hosts.up(host)
    until(lambda: hosts.count("c", "camera") > 0 and hosts.count("c", "board") > 0, "nothing comes")
    say(hosts, "a", "begin", "one")
    hosts.moves("c", "camera")
    hosts.kill("b")
    until(lambda: "b" in away(hosts, "a") and "b" in away(hosts, "c"), "nobody names `b`")
    rows = listed(hosts, 1)
    assert (rows["a"]["state"], rows["b"]["state"]) == ("up", "away")
    ended = say(hosts, "a", "end", "one").stdout.decode()
    assert "it waits for host `b`, which is away" in ended
    refused = say(hosts, "b", "begin", "two", status=2).stderr.decode()
    assert "no instrument is running" in refused
    refused = say(hosts, "a", "configure", "mean", "scale=1", status=2).stderr.decode()
    assert "host `b` does not answer" in refused and "--host b" in refused
    # The lead has sealed its own streams; the file waits for those of `b`.
    assert not is_written(hosts)
    hosts.up("b")
    until(lambda: is_written(hosts), "no file")
    hosts.lab.interrupt(hosts.processes["a"])
    hosts.lab.end(hosts.processes["a"], 1)
    ledger = beamport.open(hosts.folder("a")).run("one").ledger()
    assert ledger["closed"] and {one["state"] for one in ledger["hosts"]} == {"done"}, ledger


def test_a_run_is_sealed_without_a_host_and_the_account_says_so(three, nexus):
    hosts = three("without")  # noqa: F811
    for host in "abc":
        hosts.up(host)
    until(lambda: hosts.count("c", "camera") > 0 and hosts.count("c", "board") > 0, "nothing comes")
    say(hosts, "a", "begin", "one")
    hosts.moves("c", "camera")
    refused = say(hosts, "a", "end", "one", "--without", "b", status=2).stderr.decode()
    assert "host `b` is up" in refused
    hosts.kill("b")
    until(lambda: "b" in away(hosts, "a"), "nobody names `b`")
    refused = say(hosts, "c", "end", "one", "--without", "d", status=2).stderr.decode()
    assert "`d` is none of the other hosts" in refused
    say(hosts, "c", "end", "one", "--without", "b")
    until(lambda: is_written(hosts), "no file")
    hosts.lab.interrupt(hosts.processes["a"])
    hosts.lab.end(hosts.processes["a"], 1)
    ledger = beamport.open(hosts.folder("c")).run("one").ledger()
    assert not ledger["closed"]
    assert {one["host"]: one["state"] for one in ledger["hosts"]} == {"a": "done", "b": "absent"}
    assert [(gap["stream"], gap["reason"]) for gap in ledger["gaps"] if gap["reason"] == "absent"] == [
        ("camera", "absent")
    ]


def test_two_processes_of_one_host_are_not_both_it(three):
    hosts = three("fenced")  # noqa: F811
    for host in "ab":
        hosts.up(host)
    until(lambda: hosts.count("a", "board") > 0, "nothing comes")
    until(lambda: listed(hosts, 1)["b"]["state"] == "up", "`b` is not up")
    # The same file with another folder for `b`: on another machine its data folder would be another one too.
    text = hosts.lab.file.read_text().replace("data-b", "data-b2")
    hosts.lab.file.write_text(text)
    other = hosts.lab.up("--host", "b")
    first = hosts.processes["b"]
    hosts.lab.end(first, 2)
    said = hosts.lab.said(first)[1]
    assert "another process runs host `b`" in said and f"it is process {other.pid} with boot" in said, said[-2000:]
    assert other.poll() is None
    rows = listed(hosts, 1)
    assert (rows["b"]["pid"], rows["a"]["same_file"]) == (other.pid, False)
    assert "runs another instrument file" in json.dumps(status(hosts, "a"))
