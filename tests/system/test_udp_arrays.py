"""The examples of arrays of boards, shortened: the ledger is what the boards say that they did, and the events are whole."""

import framings
import pytest
from conftest import ROOT, line_of, until
from ports import free_ports

beamport = pytest.importorskip("beamport", reason="pip install .")
h5py = pytest.importorskip("h5py")


def example(lab, name: str, ports: dict[str, int], seconds: int):
    """An example with ports of its own, whose boards send for some seconds, and whose run ends by Ctrl-C.

    `ports`: the ports in the example, and how many there are.
    """
    (lab.folder / f"{name}.nexus.json").write_text((ROOT / f"examples/{name}.nexus.json").read_text())
    text = (ROOT / f"examples/{name}.toml").read_text().partition(f'instrument = "{name}"\n')[2]
    base = free_ports(sum(ports.values()))[0]
    for old, count in ports.items():
        new = str(base) if count == 1 else f"{{{base}..{base + count - 1}}}"
        assert text.count(f':{old}"') == 1
        text, base = text.replace(f':{old}"', f':{new}"'), base + count
    assert 'duration = "60 s"' in text and 'duration = "70 s"\n' in text
    return lab.write(text.replace('duration = "60 s"', f'duration = "{seconds} s"').replace('duration = "70 s"\n', ""))


def run_of(lab) -> dict:
    """The report, once the boards have sent all and what they sent has been built."""
    process, _ = lab.up_ready()
    found = until(lambda: [pid for pid in lab.children(process) if b"\0boards\0" in line_of(pid)], "no boards")
    until(lambda: not line_of(found[0]), "the boards do not end")
    lab.interrupt(process)
    return lab.report(process, status=1)


def entries_of(report: dict) -> dict[str, dict]:
    """The account of each board at its entry: boards of a range of ports are origins of one stream."""
    return {row["origin"]: row for row in report["ledger"] if row["account"] == "entry"}


@pytest.mark.parametrize(
    ("name", "ports"),
    [
        ("greta", {"9000": 1, "{9001..9120}": 120, "9121": 1}),
        ("hades", {"{9201..9204}": 4}),
        ("modules", {"{9301..9302}": 2}),
    ],
)
def test_the_second_day_is_like_the_first(lab, nexus, name, ports):
    """The boards were switched off in between: they count from 0 again."""
    made, found = [], []
    for run in ("first", "second", "third"):
        # All of them have ports of their own, and the groups go on.
        example(lab, name, ports, 2)
        lab.file.write_text(lab.file.read_text().replace("[run.first]", f"[run.{run}]"))
        report = run_of(lab)
        assert report["run"] == run and report["closed"], report["ledger"]
        made.append(report["boards"]["sent"])
        with h5py.File(report["file"]) as file:
            (rows,) = (
                file[f"entry/{n}"] for n in ("groups/number", "events/number", "detector/id") if n in file["entry"]
            )
            found.append(len(rows))
        rows = entries_of(report)
        # No message waits for those of the next day.
        assert all(row["held"] == 0 for row in report["ledger"] if row["account"] == "stage"), report["ledger"]
        assert sum(row["appended"] for row in rows.values()) > 0.9 * made[-1]
    print(f"{name}: {made} messages of three days in {found} groups")
    assert all(0.6 * found[0] < day < 1.6 * found[0] for day in found[1:]), found


def check_entries(report: dict, names: list[str]) -> int:
    """The account of each board is what the board did; the number of messages that arrived."""
    entries, truth = entries_of(report), report["boards"]["boards"]
    assert report["closed"], report["ledger"]
    for name in names:
        row, did = entries[name], truth[name]
        lost = {"network": did["lost"]} if did["lost"] else {}
        assert (row["sent"], row["lost"]) == (did["sent"], lost), (row, did)
    return sum(entries[name]["appended"] for name in names)


def test_the_array_of_120_boards_loses_what_the_boards_say(lab, nexus):
    example(lab, "greta", {"9000": 1, "{9001..9120}": 120, "9121": 1}, 3)
    report = run_of(lab)
    names = [f"d{at:03}" for at in range(1, 121)]
    arrived = check_entries(report, names)
    truth = report["boards"]
    sent = [truth["boards"][name]["sent"] for name in names]
    assert arrived == sum(sent) - truth["lost"] and sum(sent[60:]) > 2 * sum(sent[:60])
    entries = entries_of(report)
    # Units have no numbers: what was lost of them is not known.
    assert entries["aux"]["sent"] == truth["boards"]["aux"]["sent"] - truth["boards"]["aux"]["lost"]
    data = beamport.open(lab.data)
    members = [*names, "aux"]
    groups = list(data["groups"].read())
    # Three boards at a time; where two parts are lost there is no group. On a
    # busy machine boards send late: what the merge does not wait for belongs to another group.
    times = truth["sent"] // 3
    late, newest = 0, 0
    for message in data["all"].read():
        late, newest = late + (message.source_time < newest), max(newest, message.source_time)
    wrong = truth["lost"] + 3 * late
    assert times - wrong <= len(groups) <= times + late
    assert late or {group["count"] for group in groups} <= {2, 3}
    assert sum(group["count"] == 3 for group in groups) >= times - wrong
    with_aux = sum(members.index("aux") not in group["missing"] for group in groups)
    assert 0 < with_aux <= truth["boards"]["aux"]["sent"]
    assert with_aux >= truth["boards"]["aux"]["sent"] - wrong
    print(f"{len(groups)} groups of {times}, {late} late")
    prompt = list(data["prompt"].read())
    assert 0 < len(prompt) <= 3 * (len(groups) // 10 + 1)
    with h5py.File(report["file"]) as file:
        assert len(file["entry/groups/number"]) == len(groups)


def test_modules_are_joined_to_frames_that_list_lost_pieces(lab, nexus):
    example(lab, "modules", {"{9301..9302}": 2}, 2)
    report = run_of(lab)
    assert report["closed"], report["ledger"]
    entries, truth = entries_of(report), report["boards"]["boards"]
    frames = list(beamport.open(lab.data)["frames"].read())
    missing = sum(int(frame.metadata["missing"].sum()) for frame in frames)
    lost = sum(did["lost"] for did in truth.values())
    arrived = sum(entries[name]["appended"] for name in ("m0", "m1"))
    # Pieces that the machine holds up for longer than the worker waits are counted, and listed as missing.
    (stage,) = (row for row in report["ledger"] if row["account"] == "stage" and row["stage"] == "frames")
    late = stage["skipped"].get("filtered", 0)
    # The last frame of each module may be in part.
    assert 30 < len(frames) <= 42 and len({frame.id for frame in frames}) == len(frames)
    assert arrived - late + missing == 32 * len(frames) and lost + late <= missing <= lost + late + 32
    with h5py.File(report["file"]) as file:
        assert file["entry/detector/data"].shape == (len(frames), 2, 256, 256)
        assert list(file["entry/detector_metadata"]) == ["missing"]
        marked = zip(file["entry/detector/id"], file["entry/detector_metadata/missing"], strict=True)
        assert {number: one.tolist() for number, one in marked} == {
            frame.id: frame.metadata["missing"].tolist() for frame in frames
        }


def test_hubs_are_built_to_events_by_their_numbers(lab, nexus):
    example(lab, "hades", {"{9201..9204}": 4}, 3)
    report = run_of(lab)
    names = [f"hub{at}" for at in range(1, 5)]
    entries, truth = entries_of(report), report["boards"]["boards"]
    assert report["closed"], report["ledger"]
    for name in names:
        row, did = entries[name], truth[name]
        # Nothing tells what was lost before the first and behind the last one.
        assert row["appended"] == did["sent"] - did["lost"] == row["sent"] - row["lost"].get("network", 0), (row, did)
    arrived = sum(entries[name]["appended"] for name in names)
    data = beamport.open(lab.data)
    events = list(data["events"].read())
    # 2,000 a second for three seconds. All that arrived is in an event, the last ones too.
    assert 5000 < len(events) <= 6000
    assert sum(event["count"] for event in events) == arrived
    stages = {row["stage"]: row for row in report["ledger"] if row["account"] == "stage"}
    assert all((stages[name]["held"], stages[name]["done"]) == (0, arrived) for name in ("events", "built")), stages
    # One that is whole does not wait for one before it that is not.
    numbers = sorted(event.origin_seq for event in events)
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), "an event is missing"
    missing = sum(len(event["missing"]) for event in events)
    assert missing + sum(event["count"] for event in events) == 4 * len(events)
    assert arrived == report["boards"]["sent"] - report["boards"]["lost"]
    assert missing <= report["boards"]["lost"]
    file = lab.folder / "hades.hld"
    lab.run("export", "first", "--stream", "built", "--output", file, "--data", lab.data)
    start, *built, stop = framings.read_hld(file.read_bytes())
    assert [start["kind"], stop["kind"]] == [0x00010002, 0x00010003]
    # Two workers close their groups at moments of their own, so their orders may differ.
    parts = {framings.trigger_of(event["subs"][0]): len(event["subs"]) for event in built}
    assert len(parts) == len(built) and parts == {event.origin_seq: event["count"] for event in events}


def test_the_last_events_of_a_run_do_not_wait_for_another_message(lab, nexus):
    """The boards are silent before the run ends; it is sealed when the events that miss a part are closed."""
    example(lab, "hades", {"{9201..9204}": 4}, 2)
    text = lab.file.read_text().replace("loss = 0.001", "loss = 0.05")
    lab.file.write_text(text.replace('start = "now"\n', 'start = "now"\nduration = "4 s"\n'))
    process, _ = lab.up_ready()
    report = lab.report(process, status=1)
    arrived = sum(row["appended"] for row in entries_of(report).values())
    assert report["closed"] and arrived > 10_000, report["ledger"]
    with h5py.File(report["file"]) as file:
        assert sum(file["entry/events/count"][:]) == arrived
        assert len(set(file["entry/events/number"][:])) > 3500
