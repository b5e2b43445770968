"""UDP sources and simulated boards: the ledger is what the boards say that they did."""

import json
import signal
import socket
import time

import pytest
from conftest import until
from ports import free_port

beamport = pytest.importorskip("beamport", reason="pip install .")
h5py = pytest.importorskip("h5py")


def boards(count: int, keys: str) -> str:
    """Sources of simulated boards, for an instrument file."""
    section = '[source.d{:03}]\nkind = "udp"\nlisten = "127.0.0.1:{}"\nframing = "beamport"\nlive = "8 MiB"\n'
    sections = (section.format(at, port) for at, port in enumerate((free_port() for _ in range(count)), 1))
    return "".join(f"{text}boards = {{ {keys}, seed = {at} }}\n" for at, text in enumerate(sections, 1))


def template(lab, names: list[str]):
    """A template with the events of each board."""

    def kind(word: str) -> list[dict]:
        return [{"name": "NX_class", "dtype": "string", "values": word}]

    group = {"type": "group", "attributes": kind("NXevent_data")}
    groups = [
        group | {"name": name, "children": [{"module": "ev44", "config": {"stream": name, "source": name}}]}
        for name in names
    ]
    entry = {"type": "group", "name": "entry", "attributes": kind("NXentry"), "children": groups}
    (lab.folder / "lab.nexus.json").write_text(json.dumps({"template_version": "1", "children": [entry]}))


def entries_of(report: dict) -> dict[str, dict]:
    """The account of each stream at its entry."""
    return {row["stream"]: row for row in report["ledger"] if row["account"] == "entry"}


def test_a_run_of_boards_with_loss_closes_with_the_numbers_that_the_boards_printed(lab, nexus):
    keys = 'rate = 4000, size = "400 B", payload = "hits", loss = 0.01, duplicate = 0.01, corrupt = 0.002'
    names = [f"d{at:03}" for at in range(1, 5)]
    template(lab, names)
    sink = '[sink.file]\nkind = "nexus"\ntemplate = "lab.nexus.json"\n'
    lab.write(boards(4, keys) + sink)
    process, _ = lab.up_ready("--no-boards")
    lab.run("begin", "first", "--data", lab.data)
    truth = json.loads(lab.run("boards", lab.file, "--duration", "1 s").stdout)
    assert truth["sent"] == 16_000 and truth["lost"] > 100, truth
    lab.run("end", "first", "--data", lab.data)
    lab.interrupt(process)
    report = lab.report(process, status=1)
    assert report["closed"], report
    entries = entries_of(report)
    for name in names:
        did, row = truth["boards"][name], entries[name]
        assert row["sent"] == did["sent"] == row["appended"] + sum(row["lost"].values())
        assert row["lost"] == {"network": did["lost"], "damaged": did["corrupt"]}
    with h5py.File(report["file"]) as file:
        for name in names:
            arrived = entries[name]["appended"]
            assert len(file[f"entry/{name}/event_index"]) == arrived


def test_a_port_that_is_taken_ends_the_start_with_its_name(lab):
    lab.write(boards(2, "rate = 1"))
    address = lab.file.read_text().split('listen = "')[2].split('"')[0]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", int(address.split(":")[1])))
        said = lab.run("up", lab.file, status=2).stderr.decode()
    assert f"source `d002` cannot listen at {address}" in said and "in use" in said and "ss -ulpn" in said, said


def test_a_killed_mover_accounts_for_what_it_missed(lab):
    names = ["d001", "d002"]
    lab.write(boards(2, 'rate = 3000, size = "200 B", loss = 0.01') + "[run.first]\n")
    process, _ = lab.up_ready("--no-boards")
    sending = lab.popen("boards", lab.file, "--duration", "3 s")
    data = beamport.open(lab.data)
    until(lambda: all(data[name].count > 2000 for name in names), "nothing arrives")
    lab.kill(process)
    process, _ = lab.up_ready("--no-boards")
    truth = json.loads(lab.end(sending))["boards"]
    lab.interrupt(process)
    entries = entries_of(lab.report(process, status=1))
    for name in names:
        entry, did = entries[name], truth[name]
        assert entry["closed"] and entry["sent"] == did["sent"] == 9000, entry
        missing = sum(entry["lost"].values())
        assert entry["appended"] + missing == 9000 and entry["duplicate"] == 0, entry
        assert missing >= did["lost"] >= entry["lost"]["network"] > 0


def test_a_run_that_ends_with_data_flowing_knows_why_messages_are_missing(lab):
    lab.write(boards(2, 'rate = 10000, size = "100 B", loss = 0.1') + "[run.first]\n")
    process, _ = lab.up_ready("--no-boards")
    sending = lab.popen("boards", lab.file)
    data = beamport.open(lab.data)
    until(lambda: data["d001"].count > 5000 and data["d002"].count > 5000, "nothing arrives")
    lab.interrupt(process)
    entries = entries_of(lab.report(process, status=1))
    sending.send_signal(signal.SIGINT)
    lab.end(sending)
    lost = [entry["lost"] for entry in entries.values()]
    # On a busy machine the kernel drops some too.
    assert all("network" in each and set(each) <= {"network", "kernel"} for each in lost), lost
    assert all(entry["closed"] for entry in entries.values()), entries


def test_up_starts_the_boards_and_ends_them_before_the_runs(lab):
    names = ["d001", "d002", "d003"]
    keys = 'rate = 2000, size = "200 B", loss = 0.02, corrupt = 0.01, duplicate = 0.01, imbalance = 3'
    lab.write(boards(3, keys) + "[run.first]\n")
    process, _ = lab.up_ready()
    data = beamport.open(lab.data)
    until(lambda: all(data[name].count > 1000 for name in names), "nothing arrives")
    # Once a second each number that has changed is published.
    words = {"datagrams", "bytes", "fill", "next", "network"}

    def published() -> set:
        try:
            return {(m.origin, m["source_name"]) for m in data["udp.statistics"].read()}
        except KeyError:
            return set()

    until(lambda: published() >= {(name, word) for name in names for word in words}, published)
    lab.interrupt(process)
    report = lab.report(process, status=1)
    entries, truth = entries_of(report), report["boards"]["boards"]
    assert report["closed"] and set(truth) == set(names), report
    for name in names:
        did, row = truth[name], entries[name]
        assert row["sent"] == did["sent"] and row["duplicate"] == 0 < did["duplicate"], (did, row)
        assert row["lost"] == {"network": did["lost"], "damaged": did["corrupt"]}
    assert truth["d003"]["sent"] > 2 * truth["d001"]["sent"]


def test_boards_pause_while_a_reader_is_stopped(lab, nexus, times):
    """Nothing is lost while counted readers read nothing; report, file, `ls` and boards agree on the dead time."""
    names = ["d001", "d002"]
    control = free_port()
    throttle = f'throttle = {{ to = "udp://127.0.0.1:{control}", high = 0.5, low = 0.2 }}\n'
    sections = boards(2, 'rate = 2000, size = "2000 B", payload = "hits"').replace("8 MiB", "4 MiB")
    sections = sections.replace("boards =", 'level = "memory"\n' + throttle + "boards =")
    template(lab, names)
    lab.write(sections + '[sink.file]\nkind = "nexus"\ntemplate = "lab.nexus.json"\n[run.first]\n')
    process, _ = lab.up_ready()
    data = beamport.open(lab.data)

    def dead_time(name: str) -> float:
        time.sleep(0.05)
        status = json.loads(lab.ask(b'{"command": "status"}\n'))["ok"]["running"][name]["status"]
        return (status or {}).get("dead_time", 0)

    stops = times(10, 100)
    for stop in range(stops):
        known = {name: dead_time(name) for name in names}
        # They have a position once they have read a message, and commit nothing.
        readers = [data[name].read(name=f"slow{stop}", start="end", follow=True) for name in names]
        assert all([next(iter(reader)) for reader in readers])
        until(lambda known=known: all(dead_time(name) > n + 0.7 for name, n in known.items()), "nobody is throttled")
        counts = {name: data[name].count for name in names}
        for name, reader in zip(names, readers, strict=True):
            reader.close()
            data[name].forget(f"slow{stop}")
        until(lambda counts=counts: all(data[name].count > n for name, n in counts.items()), "boards do not go on")
    lab.interrupt(process)
    report = lab.report(process)
    truth = report["boards"]["boards"]
    dead = {row["stream"]: row for row in report["dead_time"]}
    (listed,) = json.loads(lab.run("ls", "--data", lab.data, "--json").stdout)["runs"]
    assert {row["stream"]: row for row in listed["dead_time"]} == dead
    with h5py.File(report["file"]) as file:
        table = file["entry/beamport/dead_time"]
        stored = dict(zip(table["stream"].asstr()[:], table["nanoseconds"][:].tolist(), strict=True))
    for name in names:
        did, row = truth[name], dead[name]
        # Of messages that memory holds no more an account of its own says that they were appended.
        rows = [row for row in report["ledger"] if (row["stream"], row["account"]) == (name, "entry")]
        assert all(not entry["lost"] and entry["sent"] == entry["appended"] for entry in rows), rows
        assert sum(entry["sent"] for entry in rows) == did["sent"], (did, rows)
        assert did["inhibited"] > 0 and row["nanoseconds"] == stored[name] > stops * 0.7e9
        seconds = row["nanoseconds"] / 1e9
        # What was due while a board paused has no number: its own clock says the same. A process that gets no processor
        # for a moment obeys, or notes it, late.
        for other in (did["dead_time"], did["inhibited"] / 2000):
            assert abs(seconds - other) < 0.01 * seconds + 0.5, (did, row)
        print(
            f"{name}: {stops} stops of a reader injected, 0 lost, {seconds:.3f} s dead, {did['dead_time']:.3f} s paused"
        )
