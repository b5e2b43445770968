"""EPICS sources and what goes wrong around them: nothing is lost but what is counted, nothing is there twice."""

import json
import signal
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from conftest import until
from epics_cameras import KINDS as CAMERAS
from epics_cameras import camera
from epics_servers import Cable, environment, ioc, structures
from signals import stop

beamport = pytest.importorskip("beamport", reason="pip install .")

from epics_garbage import CaGarbage, PvaGarbage  # noqa: E402
from epics_lab import brief, counters, judge_counters, ledger, links, shown, taken, values  # noqa: E402


def by_both(names: list[str]) -> list[str]:
    """Every other PV by Channel Access."""
    return [f"ca:{name}" if number % 2 else name for number, name in enumerate(names)]


def configure(lab, **change) -> int:
    """Changes the list, and waits until that is done; how many PVs it has then."""
    line = json.dumps({"command": "configure", "source": "pvs"} | change).encode() + b"\n"
    # A source that is busy may not answer within a second. The same change again changes nothing.
    answer = until(lambda: json.loads(lab.ask(line)).get("ok"), "the source does not answer")
    return answer["answer"]["pvs"]


def start(lab, entries: list, more: str = "", kind: str = "pva"):
    """A source of these PVs, and a run whose ledger counts for all of them."""
    lab.write(f'[source.pvs]\nkind = "{kind}"\npvs = {json.dumps(entries)}\n{more}\n[run.first]\n')
    return lab.up_ready()[0]


def finish(lab, process, names: list[str], reasons: set[str]) -> dict[str, dict]:
    """Ctrl-C, and the rows of these PVs in the ledger."""
    lab.interrupt(process)
    return ledger(lab.report(process, status=None), names, reasons)


def connected(lab, count: int) -> None:
    """Waits until `count` PVs are connected and send values."""
    until(lambda: (shown(lab).get("connected") or 0) >= count, lambda: brief(lab))
    before = taken(lab)
    until(lambda: taken(lab) > before + 2 * count, "no values come")


def test_an_ioc_that_dies_and_returns_needs_nobody(lab, network, servers, times):
    count, rounds = 1000, times(5, 50)
    names = [f"T:{number}" for number in range(count)]
    database = counters(lab, count, ".5 second")
    servers.append(ioc(database, network))
    process = start(lab, by_both(names))
    connected(lab, count)
    for _ in range(rounds):
        # Channel Access waits for 10 s before it searches again; it may find the IOC after the next.
        connected(lab, count // 2)
        servers.pop().kill()
        until(lambda: shown(lab)["connected"] == 0, lambda: brief(lab))
        assert len(shown(lab)["disconnected"]) == 10
        servers.append(ioc(database, network))
    connected(lab, count)
    # A record that an IOC has not processed yet has no time.
    rows = finish(lab, process, names, {"old"})
    judge_counters(lab, names, restarts=True)
    for name, states in links(lab).items():
        assert states == ["CONNECTED", "DISCONNECTED"] * (len(states) // 2) + ["CONNECTED"], (name, states)
        assert 1 <= len(states) // 2 <= rounds
    skipped = sum(sum(row["skipped"].values()) for row in rows.values())
    print(
        f"epics: {rounds} kills of an IOC with {count} PVs injected, {skipped} skipped for their times, 0 lost, 0 twice"
    )


@pytest.mark.root
def test_a_network_that_is_cut_costs_what_came_meanwhile_and_no_more(lab, network, servers, times, monkeypatch):
    count, rounds = 100, times(5, 50)
    names = [f"T:{number}" for number in range(count)]
    # A second of silence is noticed, as far as the protocols allow.
    for protocol in ("PVA", "CA"):
        network[f"EPICS_{protocol}_CONN_TMO"] = "2"
    with Cable(network) as cable:
        for name, value in network.items():
            monkeypatch.setenv(name, value)
        servers.append(ioc(counters(lab, count), network, cable.inside))
        process = start(lab, by_both(names))
        for number in range(rounds):
            connected(lab, count)
            cable.cut()
            if number % 2:
                until(lambda: shown(lab)["connected"] == 0, lambda: brief(lab))
            else:
                # So short that TCP mends it.
                time.sleep(0.5)
            cable.mend()
        connected(lab, count)
        finish(lab, process, names, {"old"})
        servers.pop().kill()
    steps = judge_counters(lab, names)
    long = rounds // 2
    for name, states in links(lab).items():
        assert states == ["CONNECTED", "DISCONNECTED"] * long + ["CONNECTED"], (name, states)
    missing = sum(step - 1 for found in steps.values() for step in found)
    print(
        f"epics: network cut {rounds} times injected, {long} of them until it was seen: {missing} values not sent, 0 twice"
    )


KINDS = ["double", "string", "array", "enum"]


def test_a_pv_changes_its_type_disappears_and_comes_back_on_another_server(lab, network, servers, times):
    rounds = times(10, 100)
    other = environment()
    ports = [settings["EPICS_PVA_BROADCAST_PORT"] for settings in (network, other)]
    addresses = " ".join(f"127.0.0.1:{port}" for port in ports)
    servers.append(structures("double", network))
    process = start(lab, ["C:VALUE"], f'addresses = "{addresses}"')
    wanted = ["1.5"]
    for number in range(rounds):
        come(lab, wanted)
        servers[0].tell(f"count {10 * number} {10 * number + 10}")
        wanted += [str(value) for value in range(10 * number, 10 * number + 10)]
        come(lab, wanted)
        kind = KINDS[(number + 1) % len(KINDS)]
        if number % 3 == 2:
            # The same server serves it as another type.
            servers[0].tell(f"change {kind}")
        else:
            settings = other if servers[0].settings is network else network
            servers.append(structures(kind, settings))
            servers.pop(0).kill()
        wanted.append(INITIAL[kind])
    come(lab, wanted)
    finish(lab, process, ["C:VALUE"], set())
    states = links(lab)["C:VALUE"]
    assert states == ["CONNECTED", "DISCONNECTED"] * rounds + ["CONNECTED"], states
    print(
        f"epics: a PV changed its type {rounds} times injected, with server or without, 0 of {len(wanted)} lost, 0 twice"
    )


def come(lab, wanted: list[str]) -> None:
    """Waits until these values are stored, and no others."""
    until(lambda: len(stored(lab)) >= len(wanted), lambda: (stored(lab)[-20:], wanted[-20:], brief(lab)))
    assert stored(lab) == wanted


INITIAL = {"double": "1.5", "string": "text", "array": "1", "enum": "1"}


def stored(lab) -> list[str]:
    """The values of C:VALUE, whatever their type; of arrays the first element."""
    found = []
    for message in beamport.open(lab.data)["pvs"].read():
        if message.schema in ("f144", "f142"):
            value = message["value"]
            found.append(value if isinstance(value, str) else f"{np.ravel(value)[0]:g}")
    return found


def test_a_list_of_a_thousand_pvs_is_replaced_while_updates_flow(lab, network, servers, times):
    rounds, stay, size = times(10, 100), 100, 1000
    names = [f"T:{number}" for number in range(stay + 2 * size)]
    entries = by_both(names)
    servers.append(ioc(counters(lab, len(names), ".5 second"), network))
    lists = [entries[:stay] + entries[stay + n * size : stay + (n + 1) * size] for n in (0, 1)]
    process = start(lab, lists[0])
    connected(lab, stay + size)
    # Each list has its values once; later a PV may be removed before its first.
    until(lambda: set(names[: stay + size]) <= set(values(lab)), lambda: brief(lab))
    for number in range(rounds):
        assert configure(lab, replace=True, add=lists[(number + 1) % 2]) == stay + size
        connected(lab, stay + size)
        if number == 0:
            until(lambda: set(names) <= set(values(lab)), lambda: brief(lab))
    finish(lab, process, names, {"old"})
    steps, states = judge_counters(lab, names), links(lab)
    for name in names[:stay]:
        # They were not disturbed.
        assert (steps[name], states[name]) == ([], ["CONNECTED"]), name
    for name in names[stay:]:
        # Under load a PV may be removed before its first value, with which its connection is reported, or has none yet.
        assert not any(pair == ("CONNECTED", "CONNECTED") for pair in pairwise(states[name])), (name, states[name])
        assert set(states[name]) <= {"CONNECTED", "CANCELLED", "NEVER_CONNECTED"}
    print(f"epics: list of {size} PVs replaced {rounds} times injected, 0 values of {stay} others lost, 0 twice")


HOUR = 3600 * 10**9


def test_the_clock_of_a_pv_jumps(lab, network, servers, times):
    rounds = times(5, 50)
    servers.append(structures("all", network))
    process = start(lab, ["T:RAMP"])
    until(lambda: shown(lab).get("connected") == 1, lambda: brief(lab))
    began, wanted = time.time_ns(), []
    for number in range(1, rounds + 1):
        now = began + 10 * number
        # (its time, whether it is stored)
        posts = [(now, True), (now + HOUR, False), (now + 1, True), (now - HOUR, False), (0, True)]
        posts += [(now, False), (now + 1, True), (now + 2, True)]
        for value, (moment, is_stored) in enumerate(posts, 10 * number):
            servers[0].tell(f"stamp {value} {moment}")
            wanted += [value] if is_stored else []
        until(lambda: len(values(lab).get("T:RAMP", [])) >= len(wanted), lambda: values(lab))  # noqa: B023
    until(lambda: shown(lab)["skipped"] == 3 * rounds, lambda: brief(lab))
    rows = finish(lab, process, ["T:RAMP"], {"backward", "ahead"})
    # The first value of the server has no time.
    found = values(lab)["T:RAMP"]
    assert [message["value"] for message in found[1:]] == wanted
    stamps = [message.source_time for message in found if not message.flags]
    assert stamps == sorted(stamps)
    # What has no time has that of its arrival, and a flag.
    untimed = [message for message in found if message.flags]
    assert len(untimed) == 1 + rounds and {tuple(message.flags) for message in untimed} == {("suspect",)}
    assert all(began < message.source_time <= message.arrival_time for message in untimed[1:])
    assert rows["T:RAMP"]["skipped"] == {"ahead": rounds, "backward": 2 * rounds}
    print(
        f"epics: clock of a PV changed {4 * rounds} times injected, {3 * rounds} skipped and counted, 0 lost, 0 twice"
    )


def private_mib(process) -> int:
    """Memory of a process that is not of its streams."""
    (line,) = (line for line in Path(f"/proc/{process.pid}/status").read_text().splitlines() if "RssAnon" in line)
    return int(line.split()[1]) >> 10


@pytest.mark.parametrize("protocol", ["pva", "ca"])
def test_servers_that_send_garbage_or_stop_harm_nobody(lab, network, servers, times, dice, protocol):
    rounds, size = times(2, 200), 250
    names = [f"T:{number}" for number in range(10)]
    servers.append(ioc(counters(lab, len(names)), network))
    garbage = (PvaGarbage if protocol == "pva" else CaGarbage)(dice.randrange(2**32))
    servers.append(garbage)
    port = network["EPICS_PVA_BROADCAST_PORT" if protocol == "pva" else "EPICS_CA_SERVER_PORT"]
    addresses = f'addresses = "127.0.0.1:{port} 127.0.0.1:{garbage.search_port}"'
    process = start(lab, names, addresses, protocol)
    wrong = [f"G:{number}" for number in range(size)]
    connected(lab, len(names))
    memory = []
    for number in range(rounds):
        configure(lab, add=wrong)
        until(lambda number=number: garbage.over >= (number + 1) * size, lambda: (garbage.over, brief(lab)))
        # Each value of the others is one more than the last.
        connected(lab, len(names))
        configure(lab, remove=["G:*"])
        garbage.let_go()
        memory.append(private_mib(process))
    connected(lab, len(names))
    finish(lab, process, names, {"old"})
    assert all(found == [] for found in judge_counters(lab, names).values())
    states = links(lab)
    assert all(states[name] == ["CONNECTED"] for name in names)
    said = lab.said(process)[1]
    assert "panicked" not in said and len(said) < 100_000
    assert max(memory) < memory[0] + 32, memory
    print(
        f"epics: {garbage.over} connections of {protocol} with garbage injected, 0 of 10 others disturbed, "
        f"memory of the process {memory[0]} to {max(memory)} MiB"
    )


def numbers_of(lab, source: str, schema: str) -> list[tuple[int, float]]:
    """The number of each message of a schema, and its value or the id of its frame."""
    messages = beamport.open(lab.data)[source].read(schema=schema)
    return [(message.origin_seq, message["value"] if schema == "f144" else message.id) for message in messages]


def test_a_process_that_was_stopped_stores_what_its_servers_kept(lab, network, servers, times):
    rounds, posts = times(1, 10), 50_000
    servers.append(structures("all", network))
    more = '[source.deep]\nkind = "pva"\npvs = ["T:OTHER_RAMP"]\nqueue = 100000\n'
    process = start(lab, ["T:RAMP"], more)
    servers[0].tell("ramp 1")
    until(lambda: numbers_of(lab, "pvs", "f144") and numbers_of(lab, "deep", "f144"), lambda: brief(lab))
    for number in range(rounds):
        stop(process.pid)
        end = time.monotonic() + 5
        servers[0].tell(f"ramp {posts}")
        time.sleep(max(end - time.monotonic(), 0))
        process.send_signal(signal.SIGCONT)
        # Behind the last value nothing else comes.
        until(
            lambda: all(numbers_of(lab, name, "f144")[-1][1] == posts for name in ("pvs", "deep")), lambda: shown(lab)
        )
        wanted = 1 + (number + 1) * posts
        until(lambda wanted=wanted: lab.stream("deep").marks()[2] >= wanted, lambda: lab.stream("deep").marks())
    status = shown(lab)
    lab.interrupt(process)
    report = lab.report(process, status=None)
    rows = {row["origin"]: row for row in report["ledger"] if row["account"] == "entry"}
    # The first value of the server is 0, without a time, if it is seen.
    deep = [value for _, value in numbers_of(lab, "deep", "f144") if value != 0]
    assert deep == [1, *list(range(1, posts + 1)) * rounds]
    assert rows["T:OTHER_RAMP"]["lost"] == {} and rows["T:OTHER_RAMP"]["duplicate"] == 0
    # Of RAMP: where each value stands among those that were sent, after a first one.
    found = [one for one in numbers_of(lab, "pvs", "f144") if one[1] != 0]
    place = squashed = 0
    for (before, _), (after, value) in zip(found, found[1:], strict=False):
        squashed += after - before - 1
        place += (int(value) - 1 - place) % posts + 1
    assert place == rounds * posts
    # What this client overwrote has numbers; what the server overwrote has none. PVXS does not even report it.
    overwritten = place + 1 - len(found) - squashed
    assert rows["T:RAMP"]["lost"].get("squashed", 0) == squashed == status["squashed"]
    assert overwritten >= status["server_squashed"]
    print(
        f"epics: process stopped for 5 s {rounds} times injected under {posts} updates of 2 PVs: with a deep queue 0 "
        f"lost, else {overwritten} overwritten by the server and {squashed} squashed, all told"
    )


def is_still(what, least: int) -> bool:
    """A figure is at least this, and the same for three seconds."""
    before = what()
    for _ in range(6):
        time.sleep(0.5)
        if not least < before == what():
            return False
    return True


def test_what_a_full_stream_makes_the_client_overwrite_is_counted_exactly(lab, network, servers):
    frames, posts = 350, 20_000
    servers.append(structures("all", network))
    # As deep as what is sent: a server whose client is slow overwrites nothing itself.
    more = f'queue = {posts + 1}\nlevel = "memory"\nlive = "16 MiB"\nwhen_full = "wait"'
    process = start(lab, ["T:RAMP", "T:IMAGE"], more)
    until(lambda: shown(lab).get("connected") == 2, lambda: brief(lab))
    servers[0].tell("ramp 1")
    until(lambda: values(lab), lambda: brief(lab))
    found = {"T:RAMP": [], "T:IMAGE": []}
    with beamport.open(lab.data)["pvs"].read(name="slow", follow=True) as slow:
        next(slow)
        # 350 MB for a stream of 16 MiB, and for a client that keeps 256 MiB: it overwrites from then on.
        servers[0].tell(f"pixels {frames} 1000000")
        servers[0].tell(f"ramp {posts}")
        until(lambda: is_still(lambda: private_mib(process), 256), lambda: private_mib(process))
        for message in slow:
            if message.schema in ("ad00", "f144"):
                what = message.id if message.schema == "ad00" else message["value"]
                found[message.origin].append((message.origin_seq, what))
            slow.commit()
            if found["T:RAMP"][-1:] and found["T:RAMP"][-1][1] == posts:
                break
    ids = [what for _, what in found["T:IMAGE"]]
    # What has no later number is from before, one value or two.
    before = found["T:RAMP"][-1][0] - posts
    ramp = [(number, value) for number, value in found["T:RAMP"] if number > before]
    assert ids == sorted(set(ids)) and ids[-1] == frames
    assert all(number == before + value for number, value in ramp)
    lost = {"T:RAMP": posts - len(ramp), "T:IMAGE": frames - len(ids)}
    assert lost["T:RAMP"] > 0 and lost["T:IMAGE"] > 0
    until(lambda: {row["pv"]: row["lost"] for row in shown(lab)["streams"]} == lost, lambda: (lost, shown(lab)))
    assert shown(lab)["squashed"] == sum(lost.values())
    finish(lab, process, [], set())
    print(f"epics: stream full under {frames} frames and {posts} values, 1 injected: {lost} lost, as the server counts")


@pytest.mark.parametrize("kind", CAMERAS)
def test_a_camera_that_dies_stops_or_is_slow_loses_what_it_did_not_send_and_no_more(lab, network, servers, times, kind):
    rounds = times(3, 30)
    servers.append(camera(kind, "cam:Image", network))
    lab.write('[source.pvs]\nkind = "pva"\npvs = ["cam:Image"]\nqueue = 1000\n[run.first]\n')
    process, _ = lab.up_ready()

    def found() -> list[int]:
        return [frame.id for frames in values(lab, "ad00").values() for frame in frames]

    first, wanted = 1, set()
    for number in range(rounds):
        until(lambda: shown(lab).get("connected") == 1, lambda: brief(lab))
        servers[-1].tell(f"{first}-{first + 99} now")
        wanted.update(range(first, first + 100))
        until(lambda: wanted <= set(found()), lambda: brief(lab))
        if number % 3 == 0:
            # Another one in its place goes on behind a hole.
            servers.pop().kill()
            until(lambda: shown(lab)["connected"] == 0, lambda: brief(lab))
            servers.append(camera(kind, "cam:Image", network))
        elif number % 3 == 1:
            stop(servers[-1].process.pid)
            time.sleep(2)
            servers[-1].process.send_signal(signal.SIGCONT)
        else:
            for one in range(first + 200, first + 210):
                servers[-1].tell(f"{one}-{one} now")
                time.sleep(0.05)
            wanted.update(range(first + 200, first + 210))
        first += 300
    until(lambda: wanted <= set(found()), lambda: brief(lab))
    lab.interrupt(process)
    report = lab.report(process, status=None)
    assert report["closed"]
    rows = [row for row in report["ledger"] if row["account"] == "entry" and row["origin"].startswith("cam:Image")]
    # A camera that starts has a frame 0.
    frames = [one for one in found() if one > 0]
    assert len(frames) == len(set(frames)) and set(frames) == wanted
    assert {reason for row in rows for reason in row["lost"]} <= {"absent", "unsent"}, rows
    assert all(row["duplicate"] == 0 for row in rows)
    print(f"epics: {rounds} faults of a camera of {kind} injected, {len(frames)} frames kept, none twice")
