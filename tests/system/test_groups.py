"""Groups as a user has them: detectors, a merge, the groups of its messages, and a NeXus file of them."""

import re
import subprocess
import sys
import time

import numpy as np
import pytest
from conftest import ROOT, kill, line_of, until

beamport = pytest.importorskip("beamport", reason="pip install .")


def example(lab, run="10 s"):
    """The example, with its template."""
    (lab.folder / "coincidence.nexus.json").write_text((ROOT / "examples/coincidence.nexus.json").read_text())
    text = (ROOT / "examples/coincidence.toml").read_text().partition('instrument = "coincidence"\n')[2]
    return lab.write(text.replace('duration = "10 s"', f'duration = "{run}"'))


def rows(stream) -> list[dict]:
    names = ("first", "count", "time", "missing", "members")
    return [{name: m[name] for name in names} | {"number": m.origin_seq} for m in stream.read()]


def gaps(messages, gap: int, least: int) -> list[tuple[int, int, set]]:
    """Groups as the page says: first sequence, how many, and whose."""
    groups, newest = [], None
    for m in messages:
        if newest is None or m.source_time - newest > gap:
            groups.append([m.sequence, 0, set()])
            newest = m.source_time
        newest = max(newest, m.source_time)
        groups[-1][1] += 1
        groups[-1][2].add(m.origin)
    # The last one may not be over.
    return [tuple(group) for group in groups[:-1] if len(group[2]) >= least]


def test_coincidences_of_120_detectors_are_found_and_written(lab, nexus):
    example(lab, "3 s")
    process, _ = lab.up_ready()
    report = lab.report(process)
    assert report["closed"], report
    data = beamport.open(lab.data)
    messages = list(data["all"].read())
    assert len({m.origin for m in messages}) == 120
    wanted = {group[0]: group for group in gaps(messages, 100, 3)}
    found = rows(data["groups"])
    shown = [row for row in found if row["first"] >= messages[0].sequence]
    assert len(shown) > 100
    for row in shown:
        first, count, whose = wanted[row["first"]]
        assert (row["count"], len(row["missing"])) == (count, 120 - len(whose))
        missing = {f"detector{place + 1:03}" for place in row["missing"]}
        assert not missing & whose and row["time"] == messages[first - messages[0].sequence].source_time
    numbers = [row["number"] for row in found]
    assert numbers == sorted(set(numbers))
    # Nearly all that were put in together are there, and by chance hardly any.
    true = [row for row in shown if len({m["time_of_flight"][0] for m in range_of(data, row)} - {0}) == 1]
    assert len(true) > 0.95 * len(shown)
    # Of every tenth the messages themselves.
    prompt = list(data["prompt"].read())
    assert 0 < len(prompt) < len(messages) / 10
    assert {m.origin for m in prompt} <= {m.origin for m in messages}
    h5py = pytest.importorskip("h5py")
    with h5py.File(report["file"]) as file:
        table = file["entry/groups"]
        known = {row["number"]: row for row in found}
        assert len(table["number"]) > 100
        begins = [*table["missing_index"][:], len(table["missing"])]
        for at, number in enumerate(table["number"][:].tolist()):
            row = known[number]
            assert (table["first"][at], table["count"][at], table["time"][at]) == (
                row["first"],
                row["count"],
                row["time"],
            )
            np.testing.assert_array_equal(table["missing"][begins[at] : begins[at + 1]], row["missing"])


def range_of(data, row) -> list:
    return list(data["all"].read(start=row["first"], stop=row["first"] + row["count"]))


def page() -> tuple[str, str]:
    """Instrument and program of the page."""
    text = (ROOT / "docs/how-to/build-coincidences.md").read_text()
    code, instrument = (text.split(f"```{kind}\n")[1].split("```")[0] for kind in ("python", "toml"))
    return instrument.partition('beamport-data/coincidences"\n')[2], code


def test_the_page_on_coincidences_runs(lab):
    instrument, code = page()
    lab.write(instrument)
    (lab.folder / "look.py").write_text(code)
    process, _ = lab.up_ready()
    data = beamport.open(lab.data)
    until(lambda: data["pairs"].count > 50 and data["prompt"].count > 10, "the page finds nothing")
    lab.interrupt(process)
    lab.end(process)
    said = subprocess.run([sys.executable, "look.py", lab.data], cwd=lab.folder, capture_output=True, check=True)
    lines = said.stdout.decode().splitlines()
    # The row says who fired, and who did not.
    names = {"left": 1, "right": 2, "top": 3}
    assert len(lines) > 50
    for line in lines:
        without, has = re.fullmatch(r"\d+ without \[(.*)\] has \[(.*)\]", line).groups()
        silent = {names[name] for name in re.findall(r"\w+", without)}
        assert {int(n) for n in has.split(",")} == {1, 2, 3} - silent, line
    prompt = list(data["prompt"].read())
    assert {m.origin for m in prompt} == {"left", "right"}


FINDER = """
import beamport

@beamport.finder
def pairs(times, members, numbers, within):
    done, groups = 0, []
    while len(times) - done > 1:
        if times[done + 1] - times[done] <= within and members[done] != members[done + 1]:
            groups.append((done, 2))
            done += 2
        else:
            done += 1
    return groups, done
"""

USER = f"""
source.left = {{ kind = "sim", model = "detector", detector = 1, detectors = 2, multiplicity = 2, origin = "left" }}
source.right = {{ kind = "sim", model = "detector", detector = 2, detectors = 2, multiplicity = 2, origin = "right" }}

[merge.all]
kind = "time"
inputs = ["left", "right"]
wait = "300 ms"

[worker.pairs]
call = "groups"
inputs = ["all"]
python = "{sys.executable}"

[worker.pairs.parameters]
find = "mine.py:pairs"
arguments = {{ within = 60 }}
members = ["left", "right"]
"""


def test_a_finder_of_the_user_finds_the_same_whoever_is_killed(lab, dice, times):
    (lab.folder / "mine.py").write_text(FINDER)
    lab.write(USER)
    process, _ = lab.up_ready()
    data = beamport.open(lab.data)
    killed = 0
    for n in range(times(5, 60)):
        count = data["pairs"].count if "pairs" in data else 0
        until(lambda count=count: "pairs" in data and data["pairs"].count > count + 20, "no pairs come")
        if n % 3 == 2:
            slots = lab.slots(process, "pairs")
            lab.kill(process)
            until(lambda slots=slots: not any(map(line_of, slots)), "its slots do not end")
            process, _ = lab.up_ready()
        else:
            for pid in lab.slots(process, "pairs"):
                kill(pid)
        killed += 1
    until(lambda count=data["pairs"].count: data["pairs"].count > count + 20, "no pairs come any more")
    lab.interrupt(process)
    lab.end(process)
    messages = list(data["all"].read())
    wanted, at = [], 0
    while at + 1 < len(messages):
        one, two = messages[at], messages[at + 1]
        is_pair = two.source_time - one.source_time <= 60 and one.origin != two.origin
        wanted += [one.sequence] if is_pair else []
        at += 2 if is_pair else 1
    found = rows(data["pairs"])
    # How far the worker is behind when all stops depends on the machine.
    assert [row["first"] for row in found] == wanted[: len(found)]
    assert [row["number"] for row in found] == list(range(len(found)))
    assert all(row["count"] == 2 and len(row["missing"]) == 0 for row in found)
    print(f"a finder of the user: {killed} deaths injected, {len(found)} pairs, each once and in order")


WAITS = """
import beamport

@beamport.finder(wait_ns=200_000_000)
def parts(times, members, numbers, complete_to=None):
    # Each time is a group: it is over where the next one begins, or where none comes any more.
    begins = [at for at in range(len(times)) if at == 0 or times[at] != times[at - 1]]
    if complete_to is None or len(times) == 0 or complete_to - times[-1] <= 200_000_000:
        ends = begins[1:]
    else:
        ends = [*begins[1:], len(times)]
    return [(first, end - first) for first, end in zip(begins, ends)], ends[-1] if ends else 0
"""


def test_a_finder_of_the_user_is_called_when_time_has_passed(lab):
    """The input pauses, and is silent before the run ends."""
    (lab.folder / "mine.py").write_text(WAITS)
    lab.write(f"""
source.left = {{ kind = "appended" }}

[worker.parts]
call = "groups"
inputs = ["left"]
python = "{sys.executable}"
parameters = {{ find = "mine.py:parts" }}

[run.first]
start = "now"
""")
    process, _ = lab.up_ready()
    data = beamport.open(lab.data)
    with data.create("left") as stream:
        for group in range(3):
            now = time.time_ns()
            for n in range(12):
                fields = {"source_name": "T", "timestamp": now + n // 3, "value": float(n)}
                stream.append("f144", fields, time=now + n // 3)
            # The last of the four too, though no message follows it.
            count = 4 * (group + 1)
            until(lambda count=count: "parts" in data and data["parts"].count == count, "the last group is not closed")
    lab.interrupt(process)
    report = lab.report(process, status=None)
    (stage,) = [row for row in report["ledger"] if row["account"] == "stage"]
    assert (stage["done"], stage["held"], stage["closed"]) == (36, 0, True), stage
    assert [row["count"] for row in rows(data["parts"])] == [3] * 12


def test_a_member_that_never_sends_and_a_frame_beyond_its_slot_are_said(lab):
    lab.write("""
source.left = { kind = "appended" }

[worker.frames]
call = "groups"
inputs = ["left"]

[worker.frames.parameters]
find = "trigger"
members = ["m0", "m1"]
wait = "50 ms"
make = "frames"
shape = [2, 8]
dtype = "uint8"

[run.first]
start = "now"
""")
    process, _ = lab.up_ready()
    data = beamport.open(lab.data)
    with data.create("left") as stream:
        for number in range(3):
            stream.append(b"12345678", origin="m0", origin_seq=number)
    until(lambda: "frames" in data and data["frames"].count == 3, "the frames do not come")
    lab.interrupt(process)
    counted = lab.report(process)["statistics"]["frames"]["0"]
    assert {word: count for word, count in counted.items() if count} == {"groups": 3, "incomplete": 3, "absent": 1}
    lab.write(lab.file.read_text().replace("shape = [2, 8]", "shape = [2, 8192, 8192]"))
    said = lab.run("check", lab.file, status=2).stderr.decode()
    assert "its output needs 536870912 B" in said and 'slot_live = "512 MiB"' in said, said


def test_what_is_wrong_with_groups_is_said(lab):
    lab.write(
        USER.replace("mine.py:pairs", "other.py:pairs").replace("members = [", 'multiplicity = 3\nmembers = ["left", ')
    )
    said = lab.run("check", lab.file, status=2).stderr.decode()
    assert "`left` is there twice" in said and "name each once" in said, said
    lab.write(USER)
    said = lab.run("check", lab.file, status=2).stderr.decode()
    assert "no file" in said and "beside the instrument file" in said, said
    # A finder that answers nonsense ends its slot, and says why.
    (lab.folder / "mine.py").write_text(FINDER.replace("return groups, done", "return [(0, 5)], 1"))
    process, _ = lab.up_ready()
    until(lambda: "a group of 5 messages from 0 on" in lab.said(process)[1], "it is not said")
    lab.interrupt(process)
    lab.end(process, status=None)


def test_a_finder_stays_what_it_was():
    @beamport.finder(every=8)
    def first(times, members, numbers, count=1):
        return [(0, count)], count

    assert first([1], [0], [0]) == ([(0, 1)], 1) and first.__beamport_every__ == 8
    with pytest.raises(ValueError, match="whole number from 1"):
        beamport.finder(every=0)
    with pytest.raises(ValueError, match="`wait_ns` is a whole number from 1"):
        beamport.finder(wait_ns=0)
