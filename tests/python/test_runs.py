"""Runs: their members, their state, their file and their ledger, from steps and commits made by another library."""

from __future__ import annotations

import beamport
import pytest
import sums
from beamport._core import _Writer
from payloads import SECOND, T0, bpcm, bprn, write_events


def steps(folder, *payloads) -> None:
    with _Writer(folder / "runs") as writer:
        for payload in payloads:
            writer.append(payload, T0)


def test_the_newest_step_is_the_run(memory):
    steps(
        memory,
        bprn("nickel-2", "open", T0, metadata='{"title": "Ni on glass"}'),
        bprn("empty", "open", T0 + 9 * SECOND),
        bprn("nickel-2", "settling", T0, T0 + 5 * SECOND, metadata='{"title": "Ni on glass"}', reason="asked"),
    )
    data = beamport.open(memory)
    assert [(run.name, run.state, run.stop) for run in data.runs] == [
        ("nickel-2", "settling", T0 + 5 * SECOND),
        ("empty", "open", None),
    ]
    run = data.run("nickel-2")
    assert (run.start, run.metadata, run.reason) == (T0, {"title": "Ni on glass"}, "asked")
    assert run.file is None and "nickel-2" in repr(run)


def test_a_run_that_is_not_there_names_those_that_are(memory):
    data = beamport.open(memory)
    with pytest.raises(beamport.Error, match="there is none"):
        data.run("nickel")
    steps(memory, bprn("nickel-2", "open", T0))
    with pytest.raises(KeyError) as caught:
        data.run("nickel")
    assert caught.value.hint == 'write "nickel-2"'


def test_members_are_by_source_time(memory):
    write_events(memory / "detector", range(10))
    write_events(memory / "monitor", range(10), step=2 * SECOND)
    steps(memory, bprn("r", "open", T0 + 2 * SECOND))
    data = beamport.open(memory)
    run = data.run("r")
    assert list(run) == ["detector", "monitor"] and len(run) == 2
    assert [m.sequence for m in run["detector"].read()] == [2, 3, 4, 5, 6, 7, 8, 9]
    steps(memory, bprn("r", "settling", T0 + 2 * SECOND, T0 + 6 * SECOND))
    run = data.run("r")
    assert [m.sequence for m in run["detector"].read()] == [2, 3, 4, 5]
    assert [m.sequence for m in run["monitor"].read()] == [1, 2]
    # `since` and `until` narrow it further, and never beyond.
    assert [m.sequence for m in run["detector"].read(since=T0, until=T0 + 4 * SECOND)] == [2, 3]
    assert [m.sequence for m in run["detector"].read(since=T0 + 5 * SECOND, until="now")] == [5]
    assert [m.sequence for b in run["detector"].batches() for m in b] == [2, 3, 4, 5]
    assert "run" in repr(run["detector"])


def test_what_came_after_the_seal_is_no_member(memory):
    write_events(memory / "detector", range(10))
    data = beamport.open(memory)
    stream = data["detector"]
    steps(memory, bprn("r", "sealed", T0, T0 + 60 * SECOND, streams=[("detector", stream.uuid, stream.epoch, 2, 8)]))
    write_events(memory / "detector", range(10, 12))
    run = data.run("r")
    assert list(run) == ["detector"] and run.state == "sealed"
    assert [m.sequence for m in run["detector"].read()] == [2, 3, 4, 5, 6, 7]
    assert [m.sequence for m in run["detector"].read(start=-5)] == [7]
    with pytest.raises(beamport.Error, match="has no stream `monitor`"):
        run["monitor"]


def test_a_stream_made_anew_is_not_taken_for_the_one_of_the_run(memory):
    write_events(memory / "detector", range(3))
    steps(memory, bprn("r", "sealed", T0, T0 + SECOND, streams=[("detector", "00" * 16, 1, 0, 3)]))
    with pytest.raises(beamport.Error, match="recreated"):
        beamport.open(memory).run("r")["detector"]


def test_file_and_ledger_come_from_the_commits(memory):
    write_events(memory / "detector", range(10))
    data = beamport.open(memory)
    uuid, epoch = data["detector"].uuid, data["detector"].epoch
    steps(memory, bprn("r", "sealed", T0, T0 + 8 * SECOND, streams=[("detector", uuid, epoch, 0, 10)]))
    run = data.run("r")
    with _Writer(memory / "file.commits") as writer:
        writer.append(bpcm("file", "r", [("detector", uuid, epoch, 0, 5, 5)], '{"rows": 5}', False), T0)
        writer.append(bpcm("file", "other", [], '{"file": "files/other.nxs"}', True), T0)
        assert run.file is None
        ledger = run.ledger()
        sums.adds_up(ledger)
        assert not ledger["closed"] and ledger["rows"][0]["held"] == 3
        writer.append(bpcm("file", "r", [("detector", uuid, epoch, 0, 10, 8)], '{"file": "files/r.nxs"}', True), T0)
    assert run.file == memory / "files" / "r.nxs"
    ledger = run.ledger()
    sums.adds_up(ledger)
    assert (ledger["closed"], ledger["lost"], ledger["run"]) == (True, 0, "r")
    (row,) = ledger["rows"]
    assert (row["stage"], row["read"], row["done"], row["held"]) == ("file", 8, 8, 0)
    (entry,) = ledger["entries"]
    assert (entry["origin"], entry["sent"], entry["appended"], entry["closed"]) == ("bank0", 8, 8, True)


def test_a_gap_in_the_numbers_is_loss_in_the_ledger(memory):
    write_events(memory / "detector", [0, 1, 2, 5, 6])
    stream = beamport.open(memory)["detector"]
    steps(memory, bprn("r", "sealed", T0, T0 + 60 * SECOND, streams=[("detector", stream.uuid, stream.epoch, 0, 5)]))
    ledger = beamport.open(memory).run("r").ledger()
    sums.adds_up(ledger)
    assert ledger["lost"] == 2 and ledger["entries"][0]["lost"] == {"unexplained": 2}


def test_metadata_that_are_no_json_are_an_error(memory):
    steps(memory, bprn("r", "open", T0, metadata="{"))
    with pytest.raises(beamport.Error, match="cannot read the metadata of run `r`"):
        beamport.open(memory).runs  # noqa: B018
