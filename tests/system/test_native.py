"""Ready-made workers as a user has them: in processes of their own, checked, killed, and exact."""

import os
import re
import signal
import sys
import tomllib

import numpy as np
import pytest
from conftest import ROOT, kill, until

beamport = pytest.importorskip("beamport", reason="pip install .")


def example(lab, more=""):
    text = (ROOT / "examples" / "tiles.toml").read_text()
    (lab.folder / "tiles.py").write_text((ROOT / "examples" / "tiles.py").read_text())
    body = text.replace('instrument = "tiles"\n', "")
    body = body.replace('call = "tiles.py:above"\n', f'call = "tiles.py:above"\npython = "{sys.executable}"\n')
    return lab.write(body + more)


ATTACHED = """
[source.axis]
kind = "sim"
model = "camera-metadata"
fps = 50
values = 1

[worker.placed]
call = "attach"
inputs = ["camera"]
parameters = { values.x = { stream = "axis", source = "camera:PV001" }, unmatched = "keep" }
"""


def test_frames_of_ready_made_workers_are_read_by_the_package_of_ess(lab):
    ess = pytest.importorskip("streaming_data_types", reason="pip install ess-streaming-data-types")
    example(lab, ATTACHED)
    process, _ = lab.up_ready()
    data = beamport.open(lab.data)
    until(lambda: data["tiles"].count > 20, "no tiles")
    until(lambda: any("x" in m.metadata for m in data["placed"].read(early=True)), "no positions")
    lab.report(process)
    for name, places in (("tiles", {"tile_row", "tile_column"}), ("placed", {"x"})):
        names = set()
        for m in data[name].read():
            read = ess.deserialise_ad00(bytes(m.payload))
            np.testing.assert_array_equal(read.data, m.array)
            names |= {attribute.name for attribute in read.attributes}
        assert names >= places, names


def test_tiles_become_the_frames_that_they_were(lab):
    example(lab)
    process, _ = lab.up_ready()
    data = beamport.open(lab.data)
    until(lambda: data["frames"].count > 100, "no frames")
    lab.report(process)
    frames = {m.id: m for m in data["camera"].read()}
    whole = list(data["frames"].read())
    assert len(whole) > 50 and len({m.id for m in whole}) == len(whole)
    for m in whole:
        assert m.array.dtype == np.uint16 and m.origin_seq == frames[m.id].origin_seq
        np.testing.assert_array_equal(m.array, frames[m.id].array.clip(10) - 10)
    first = next(data["tiles"].read())
    assert first.array.shape == (120, 106) and first.id == 0
    assert "tiles.aside" not in data and "frames.aside" not in data


def test_frames_are_whole_once_whoever_is_killed_between_their_tiles(lab, dice, times):
    example(lab, "[source.nothing]\nkind = 'sim'\nmodel = 'camera-metadata'\nfps = 10\nvalues = 1\n")
    lab.file.write_text(lab.file.read_text().replace('[run.first]\nduration = "10 s"\n', ""))
    process, _ = lab.up_ready()
    data = beamport.open(lab.data)
    killed = 0
    for _ in range(times(6, 100)):
        count = data["frames"].count
        stage = dice.choice(["tiles", "frames"])
        for pid in lab.slots(process, stage):
            kill(pid)
            killed += 1
        until(lambda count=count: data["frames"].count > count + 5, "it does not go on")
    lab.interrupt(process)
    lab.end(process)
    frames = {m.id: m for m in data["camera"].read()}
    ids = [m.id for m in data["frames"].read()]
    aside = {m["sequence"] for name in ("tiles.aside", "frames.aside") if name in data for m in data[name].read()}
    assert len(set(ids)) == len(ids) and len(aside) <= killed // 2
    missing = set(range(max(ids) - 8)) - set(ids)
    assert len(missing) <= len(aside), missing
    for m in list(data["frames"].read())[::7]:
        np.testing.assert_array_equal(m.array, frames[m.id].array.clip(10) - 10)
    print(f"tiles: {killed} deaths of slots injected, {len(ids)} frames whole, 0 twice")


HISTOGRAMS = """
[source.detector]
kind = "sim"
model = "amor"
rate = 1e5

[worker.spectrum]
call = "histogram"
inputs = ["detector"]
parameters = { of = "start", to = "200 ms", bins = 400 }

[worker.pulses]
call = "histogram"
inputs = ["detector"]
slots = 2
parameters = { to = "200 ms", bins = 400 }
cpus = [0]

[worker.many]
call = "filter"
inputs = ["detector"]
slots = 2
parameters = { keep = "events % 2 == 0" }
"""


def signal_of(message):
    found = {v["name"]: np.asarray(v["data"]) for v in message["data"]}
    return found["signal"], int(np.ravel(found["outside"])[0]), found["time_of_flight"]


@pytest.mark.parametrize("level", ["memory", "disk"])
def test_a_histogram_since_start_counts_each_event_once_whoever_is_killed(lab, level, dice, times):
    lab.write(HISTOGRAMS.replace("rate = 1e5", f'rate = 1e5\nlevel = "{level}"'))
    process, _ = lab.up_ready()
    data = beamport.open(lab.data)
    killed = 0
    bound = until(lambda: lab.slots(process, "pulses"), "no slots")
    until(lambda: all(os.sched_getaffinity(pid) == {0} for pid in bound), "they are bound to no processor")
    for n in range(times(6, 100)):
        count = data["spectrum"].count
        if n % 3 == 2:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            process, _ = lab.up_ready()
            killed += 1
        else:
            stage = dice.choice(["spectrum", "spectrum", "pulses", "many"])
            for pid in lab.slots(process, stage):
                kill(pid)
                killed += 1
        until(lambda count=count: data["spectrum"].count > count + 3, "it does not go on")
    lab.interrupt(process)
    lab.end(process)
    # Copies: a reader may not hold on to so many messages.
    sent = {m.origin_seq: np.array(m["time_of_flight"]) for m in data["detector"].read()}
    edges = np.linspace(0, 200e6, 401)

    aside = [
        m["sequence"]
        for name in ("spectrum", "pulses", "many")
        if f"{name}.aside" in data
        for m in data[f"{name}.aside"].read()
    ]
    if not aside:
        for m in data["spectrum"].read():
            last = m.origin_seq, *(np.copy(part) for part in signal_of(m))
        number, counts, outside, told = last
        np.testing.assert_array_equal(told, edges)
        events = np.concatenate([times for n, times in sent.items() if n <= number])
        np.testing.assert_array_equal(counts, np.histogram(events, edges)[0])
        assert counts.sum() + outside == events.size
        pulses = [(m.origin_seq, sum(np.sum(part) for part in signal_of(m)[:2])) for m in data["pulses"].read()]
        events = np.concatenate([sent[n] for n in sorted({n for n, _ in pulses})])
        assert sum(count for _, count in pulses) == events.size
        kept = [m.origin_seq for m in data["many"].read()]
        assert kept == [n for n, times in sent.items() if len(times) % 2 == 0 and n <= kept[-1]]
    assert len(aside) <= killed // 2
    print(f"histogram: {killed} deaths injected, {events.size if not aside else 0} events counted once")


def test_a_filter_waits_for_the_value_that_belongs_to_a_frame(lab):
    lab.write(
        """
[source.camera]
kind = "sim"
model = "camera"
fps = 50
shape = [16, 16]

[source.values]
kind = "sim"
model = "camera-metadata"
fps = 50
values = 2

[worker.probe]
call = "filter"
inputs = ["values"]
parameters = { keep = "value != 0 or value == 0" }

[worker.high]
call = "filter"
inputs = ["camera"]
slots = 2
parameters = { keep = "v > THRESHOLD", values = { v = { stream = "values", source = "SOURCE" } }, wait = "2 s" }
""".replace("THRESHOLD", "-1e300").replace("SOURCE", "nobody")
    )
    process, _ = lab.up_ready()
    data = beamport.open(lab.data)
    # Of a source that says nothing there is no value.
    until(lambda: "high.aside" in data and data["high.aside"].count > 5, "nothing goes aside")
    assert {m["reason"] for m in data["high.aside"].read(stop=5)} == {"unknown"}
    seen = [(m["source_name"], float(m["value"])) for m in data["values"].read()]
    source = seen[0][0]
    middle = float(np.median([value for name, value in seen if name == source]))
    parameters = [f"keep=v > {middle!r}", f'values={{"v": {{"stream": "values", "source": "{source}"}}}}']
    lab.run("configure", "high", *parameters, "--data", lab.data)
    until(lambda: data["high"].count > 60, "nothing goes on")
    lab.interrupt(process)
    lab.end(process)
    values = sorted((m.source_time, float(m["value"])) for m in data["values"].read() if m["source_name"] == source)
    times_of = np.array([time for time, _ in values])
    kept = [m.origin_seq for m in data["high"].read()]
    wanted = []
    for m in data["camera"].read():
        at = int(np.searchsorted(times_of, m.source_time, side="right")) - 1
        if kept[0] <= m.origin_seq <= kept[-1] and values[at][1] > middle:
            wanted.append(m.origin_seq)
    assert kept == wanted and 0 < len(kept) < data["camera"].count


def test_what_the_reference_page_shows_is_checked_and_runs(lab):
    page = (ROOT / "docs" / "reference" / "workers.md").read_text()
    block = next(block for block in re.findall(r"```toml\n(.*?)```", page, re.S) if block.startswith("instrument"))
    assert {w["call"] for w in tomllib.loads(block)["worker"].values()} == {
        *("attach", "filter", "groups", "histogram", "split", "stitch")
    }
    lab.write(block.replace('instrument = "ready"\n', ""))
    lab.run("check", lab.file)
    process, _ = lab.up_ready()
    data = beamport.open(lab.data)
    for name in ("joined", "good", "spectrum", "tiles", "whole"):
        until(lambda name=name: data[name].count > 3, f"nothing comes out of {name}")
    frames = {m.id: m.array.copy() for m in data["camera"].read(early=True)}
    for m in data["whole"].read(early=True):
        np.testing.assert_array_equal(m.array, frames[m.id])
    told = lab.run("configure", "good", "keep=events > 3", "--data", lab.data).stdout.decode()
    assert told == 'worker `good` has 1 slot: keep="events > 3"\n'
    said = lab.run("configure", "good", "keep=events >", "--data", lab.data, status=2).stderr.decode()
    assert "character 9: it ends too early" in said
    # What is checked is what it would have then, not what the file says.
    lab.run("configure", "spectrum", "bins=null", "to=null", "pixels=1000", "--data", lab.data)
    said = lab.run("configure", "spectrum", "pixels=null", "--data", lab.data, status=2).stderr.decode()
    assert "nothing to count into" in said
    said = lab.run("configure", "spectrum", "--slots", "2", "--data", lab.data, status=2).stderr.decode()
    assert "one slot" in said
    lab.interrupt(process)
    lab.end(process)


def test_mistakes_in_ready_made_workers_are_told_by_check(lab):
    lab.write(
        HISTOGRAMS
        + """
[worker.wrong]
call = "filter"
inputs = ["detector"]
parameters = { keep = "evnts > 3", values = { phase = "choper" } }

[worker.beside]
call = "filter"
inputs = ["detector"]
parameters = { keep = "phase > 3", values = { phase = "detektor" } }

[worker.wide]
call = "histogram"
inputs = ["detector", "many"]
slots = 2
parameters = { of = "start", shape = [2000, 2000] }

[worker.typo]
call = "histgram"
inputs = ["detector"]
"""
    )
    said = lab.run("check", lab.file, status=2).stderr.decode()
    for part in (
        "wrong value of `keep` in [worker.wrong.parameters]",
        "character 1: there is no `evnts`",
        "did you mean `detector`?",
        "one slot must get all",
        "merge the streams first",
        "write `slot_live = ",
        "did you mean `histogram`?",
    ):
        assert part in said, said


def test_frames_have_the_positions_of_their_time_and_the_page_on_it_runs(lab):
    page = (ROOT / "docs/how-to/join-motor-positions.md").read_text()
    code, instrument = (page.split(f"```{kind}\n")[1].split("```")[0] for kind in ("python", "toml"))
    (lab.folder / "scan.py").write_text(code)
    body = instrument.partition('beamport-data/scan"\n')[2]
    lab.write(body.replace("[worker.map]\n", f'[worker.map]\npython = "{sys.executable}"\n'))
    process, _ = lab.up_ready()
    data = beamport.open(lab.data)
    until(lambda: data["map"].count > 200, "the page makes nothing")
    kill(lab.slots(process, "joined")[0])
    before = data["map"].count
    until(lambda: data["map"].count > before + 200, "nothing comes any more")
    lab.interrupt(process)
    lab.end(process)
    frames = list(data["joined"].read())
    assert [m.origin_seq for m in frames] == list(range(len(frames)))
    unmatched = 0
    for m in frames:
        # The value says to which frame it belongs: its number on the grid of 100 Hz.
        number = m.source_time // 10_000_000 % 1_000_000
        found = [m.metadata.get(name) for name in "xy"]
        unmatched += None in found
        assert None in found or found == pytest.approx([number, number + 0.001], abs=1e-6), m.id
    # The motors may have begun later than the camera.
    assert unmatched <= 20, unmatched
    for m in data["map"].read():
        place = {v["name"]: v["data"] for v in m["data"]}["position"].tolist()
        assert place == [frames[m.origin_seq].metadata[name] for name in "xy"]


def test_six_values_are_joined_and_four_slots_see_them(lab):
    (lab.folder / "join.py").write_text((ROOT / "examples" / "join.py").read_text())
    text = (ROOT / "examples" / "join.toml").read_text().replace('instrument = "join"\n', "")
    lab.write(text.replace('call = "join.py:where"\n', f'call = "join.py:where"\npython = "{sys.executable}"\n'))
    process, _ = lab.up_ready()
    data = beamport.open(lab.data)
    until(lambda: data["map"].count > 500, "nothing is joined")
    lab.report(process)
    frames = list(data["joined"].read())
    assert [m.origin_seq for m in frames] == list(range(len(frames))) and len(frames) > 500
    names = ["sample_x", "sample_y", "sample_z", "rotation", "energy", "current"]
    whole = [m for m in frames if m.metadata.keys() >= set(names)]
    assert len(whole) > len(frames) - 40
    for m in whole:
        number = m.source_time // 5_000_000 % 1_000_000
        value = [m.metadata[name] - number for name in names]
        assert value[:5] == pytest.approx([0, 0.001, 0.002, 0.003, 0.004], abs=1e-6)
        # On the line between two values, each up to 0.2 ms behind its frame of 5 ms.
        assert value[5] == pytest.approx(0.005, abs=0.05)
