"""What tests of EPICS share: databases, what a source reports, and the counters that judge what it stored."""

import json
from pathlib import Path

import beamport
from conftest import Lab


def counters(lab: Lab, count: int, scan: str = ".1 second") -> Path:
    """A database of records that count up."""
    path = lab.folder / "counters.db"
    record = 'record(calc, "T:{}") {{ field(CALC, "VAL+1") field(SCAN, "{}") field(EGU, "mm") field(TSE, "0") }}\n'
    path.write_text("".join(record.format(number, scan) for number in range(count)))
    return path


def shown(lab: Lab) -> dict:
    """What the source reports of itself."""
    return json.loads(lab.ask(b'{"command": "status"}\n'))["ok"]["running"]["pvs"]["status"] or {}


def brief(lab: Lab) -> dict:
    """The same without the list of all streams, for messages of tests."""
    return {key: value for key, value in shown(lab).items() if key != "streams"}


def values(lab: Lab, schema: str = "f144", stream: str = "pvs") -> dict[str, list]:
    """The messages of a schema in the stream, by origin."""
    found = {}
    for message in beamport.open(lab.data)[stream].read():
        if message.schema == schema:
            found.setdefault(message.origin, []).append(message)
    return found


def taken(lab: Lab) -> int:
    """Messages of the stream."""
    return lab.stream("pvs").marks()[2]


def ledger(report: dict, names: list[str], reasons: set[str]) -> dict[str, dict]:
    """The rows of PVs: nothing is lost, nothing there twice, and only these reasons left something out."""
    rows = {row["origin"]: row for row in report["ledger"] if row["account"] == "entry"}
    rows = {name: rows[name] for name in names}
    for row in rows.values():
        assert row["duplicate"] == 0 and row["lost"] == {} and set(row["skipped"]) <= reasons, row
    return rows


def judge_counters(lab: Lab, names: list[str], *, restarts: bool = False) -> dict[str, list[int]]:
    """Values of counters rise by one while their PV is connected; the steps over its disconnections, by PV.

    `restarts`: the counters began again meanwhile. Otherwise they rise over disconnections too.
    """
    last, is_cut, steps = {}, {}, {name: [] for name in names}
    for message in beamport.open(lab.data)["pvs"].read():
        origin = message.origin
        if origin not in steps:
            continue
        if message.schema == "ep01":
            is_cut[origin] = is_cut.get(origin, False) or message["status"] != "CONNECTED"
        elif message.schema == "f144":
            value, before = message["value"], last.get(origin)
            if before is not None and is_cut[origin]:
                assert restarts or value > before, (origin, before, value)
                steps[origin].append(int(value - before))
            elif before is not None:
                assert value == before + 1, (origin, before, value)
            last[origin], is_cut[origin] = value, False
    assert len(last) == len(names)
    return steps


def links(lab: Lab) -> dict[str, list[str]]:
    """What was reported of the connections, by origin."""
    return {origin: [message["status"] for message in found] for origin, found in values(lab, "ep01").items()}
