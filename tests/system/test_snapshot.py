"""`beamport write` of a run that goes on: a file of its own with what there is now; the run's file never hears of it."""

import json

import beamport
import h5py
import pytest
from conftest import lost_of, until
from nexus_files import different
from test_life_of_runs import SINK, SOURCE, TEMPLATE

EVENTS = "entry/events"


def rows(path) -> dict:
    with h5py.File(path, "r") as file:
        return {name: data[:].tolist() for name, data in file[EVENTS].items()}


def before(lab, end: int) -> int:
    """Messages up to there that came before the run."""
    instrument = beamport.open(lab.data)
    start = instrument.run("one").start
    return sum(m.source_time < start for m in instrument["detector"].read() if m.sequence < end)


@pytest.mark.parametrize("packed", [False, True])
def test_a_snapshot_has_the_rows_until_its_mark_and_the_run_goes_on(lab, nexus, packed):
    template = TEMPLATE.replace('{"stream"', '{"compression": "deflate", "stream"') if packed else TEMPLATE
    (lab.folder / "t.json").write_text(template)
    lab.write(SOURCE.format(level="disk").replace('retain = "1 MiB"', "") + SINK)
    process, _ = lab.up_ready()
    lab.run("begin", "one", "--data", lab.data)
    stream = lab.stream("detector")
    name = lab.folder / "one-{snapshot}.nxs"
    write = ["write", "one", "--data", lab.data, "--json", "--output"]
    # A name that does not say it is refused, and the way is told.
    refused = lab.run(*write, lab.folder / "one.nxs", status=2)
    assert b"it is open" in refused.stderr and b"{snapshot}" in refused.stderr
    taken = []
    for _ in range(3):
        more = stream.marks()[1] + 14
        until(lambda more=more: stream.marks()[1] > more, "the source stands still")
        least = stream.marks()[1]
        answer = json.loads(lab.run(*write, name).stdout)
        most = stream.marks()[1]
        (account,) = [row for row in answer["account"]["rows"] if row["stream"] == "detector"]
        members = account["done"]
        assert members + before(lab, least) <= most and least <= members + before(lab, most), "what was there then"
        assert answer["account"]["closed"] and answer["account"]["lost"] == 0
        path = lab.folder / answer["file"]
        assert answer["snapshot"].split(".")[0].replace("-", "").replace(":", "").rstrip("Z") in path.name
        with h5py.File(path, "r") as file:
            assert file.attrs["beamport_snapshot"] == answer["snapshot"]
            assert json.loads(file["entry/beamport/account"][()])["state"] == "snapshot"
        found = rows(path)
        assert len(found["event_time_zero"]) == members > 0
        taken.append((path, found))
    lab.run("end", "one", "--data", lab.data)
    lab.interrupt(process)
    report = lab.report(process)
    assert report["closed"] and lost_of(report) == 0
    whole = rows(report["file"])
    for _, found in taken:
        for key, values in found.items():
            assert values == whole[key][: len(values)], f"{key} is not how the run begins"
    # The run's own file is what the streams make of it, and no snapshot.
    again = lab.folder / "again.nxs"
    lab.run(*write, again)
    assert different(report["file"], again) == []
    with h5py.File(report["file"], "r") as file:
        assert "beamport_snapshot" not in file.attrs
    assert len({path for path, _ in taken}) == 3 and taken[0][1] != taken[2][1]
    sealed = lab.run(*write, name, status=2)
    assert b"it is sealed, so it is complete" in sealed.stderr
