"""Hosts that join an instrument which measures already: the accounts of the runs of before stay closed."""

import pytest
from conftest import until
from test_hosts import beamport, hosts  # noqa: F401
from test_hosts_account import MEAN, say

pytestmark = pytest.mark.services

CAMERA = '[source.camera]\nkind = "sim"\nmodel = "camera"\nshape = [16, 16]\nfps = 200\nlive = "16 MiB"\nhost = "a"\n'
WORKER = '[worker.{name}]\ncall = "mean.py:mean"\ninputs = ["camera"]\n{on}\n'


def measured(hosts, run: str, moving: list[tuple[str, str]], during=None):  # noqa: F811
    """A run, in which these streams grow."""
    say(hosts, "a", "begin", run)
    for host, stream in moving:
        hosts.moves(host, stream)
    if during:
        during()
        for host, stream in moving:
            hosts.moves(host, stream)
    say(hosts, "a", "end", run)


def accounts(hosts, on: str, run: str) -> dict[str, dict]:  # noqa: F811
    """The account of a run on these hosts; empty where one of them does not have the run."""
    folders = {host: beamport.open(hosts.folder(host)) for host in on}
    if any(run not in [known.name for known in folder.runs] for folder in folders.values()):
        return {}
    return {host: folder.run(run).ledger() for host, folder in folders.items()}


def closes(hosts, on: str, run: str):  # noqa: F811
    """Waits until the account of a run is closed on these hosts."""

    def is_closed():
        of = accounts(hosts, on, run)
        return of and all(ledger["closed"] and ledger["lost"] == 0 for ledger in of.values())

    until(is_closed, lambda: accounts(hosts, on, run))


def stop(hosts):  # noqa: F811
    """Ctrl-C on all hosts."""
    for process in hosts.processes.values():
        hosts.lab.interrupt(process)
    for process in hosts.processes.values():
        hosts.lab.end(process)
    hosts.processes.clear()


def test_a_host_that_is_added_between_runs_leaves_their_accounts_closed(lab, hosts):  # noqa: F811
    (lab.folder / "mean.py").write_text(MEAN)
    hosts = hosts("added", CAMERA + WORKER.format(name="mean", on='host = "b"'))  # noqa: F811
    for host in "ab":
        hosts.up(host)
    until(lambda: hosts.count("b", "mean") > 0, "nothing comes")
    measured(hosts, "one", [("a", "camera"), ("b", "mean")])
    closes(hosts, "ab", "one")
    stop(hosts)
    before = accounts(hosts, "ab", "one")
    more = WORKER.format(name="more", on='host = "c"')
    lab.file.write_text(f'{lab.file.read_text()}[host.c]\ndata = "{hosts.folder("c")}"\n{more}')
    for host in "ab":
        hosts.up(host)
    hosts.moves("b", "mean")
    assert accounts(hosts, "ab", "one") == before
    # The third host joins in the middle of a run.
    measured(hosts, "two", [("b", "mean")], lambda: hosts.up("c"))
    closes(hosts, "abc", "two")
    measured(hosts, "three", [("b", "mean"), ("c", "more")])
    closes(hosts, "abc", "three")
    stop(hosts)
    assert accounts(hosts, "ab", "one") == before
    assert "one" not in [run.name for run in beamport.open(hosts.folder("c")).runs]
    two = accounts(hosts, "abc", "two")
    assert {host: {of["host"] for of in ledger["hosts"]} for host, ledger in two.items()} == {
        "a": {"b", "c"},
        "b": {"a", "c"},
        "c": {"a", "b"},
    }


def test_hosts_of_a_worker_that_join_in_the_middle_of_a_run_leave_all_accounts_closed(lab, hosts):  # noqa: F811
    (lab.folder / "mean.py").write_text(MEAN)
    worker = WORKER.format(name="mean", on='hosts = { "n{1..2}" = 2 }')
    hosts = hosts("joined", CAMERA + worker, hosts=["a", "b", "n1", "n2"])  # noqa: F811
    lab.file.write_text(lab.file.read_text() + '[merge.all]\nkind = "time"\ninputs = ["camera", "mean"]\nhost = "b"\n')
    for host in ["a", "b", "n1"]:
        hosts.up(host)
    until(lambda: hosts.count("b", "mean") > 0, "nothing comes")
    moving = [("a", "camera"), ("b", "mean")]
    measured(hosts, "one", moving)
    closes(hosts, "ab", "one")
    # One that the file names.
    measured(hosts, "two", moving, lambda: hosts.up("n2"))
    closes(hosts, "ab", "two")
    stop(hosts)
    before = {run: accounts(hosts, "ab", run) for run in ["one", "two"]}
    # One that it did not name.
    text = lab.file.read_text().replace("n{1..2}", "n{1..3}")
    lab.file.write_text(f'{text}[host.n3]\ndata = "{hosts.folder("n3")}"\n')
    for host in ["a", "b", "n1", "n2"]:
        hosts.up(host)
    hosts.moves("b", "mean")
    measured(hosts, "three", moving, lambda: hosts.up("n3"))
    closes(hosts, "ab", "three")
    stop(hosts)
    assert {run: accounts(hosts, "ab", run) for run in ["one", "two"]} == before
