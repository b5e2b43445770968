"""Adds up every account that a program prints, by the rules of docs/reference/ledger.md.

The same as `crates/testkit/src/sums.rs` for tests in Python; both judge `tests/vectors/sums.json`.
"""

import json
import re

ACCOUNT = re.compile(r"\S+ +[\d,]+ (?:sent|read)(?: \+ .*)? = ")


def adds_up(said):
    """Fails where a row, a total or a list of an account in a JSON document (or in text) is wrong."""
    wrong = wrong_lines(said) if isinstance(said, str) else wrong_sums(said)
    assert not wrong, "it does not add up:\n" + "\n".join(wrong)


def printed(out: bytes | str):
    """Adds up what a program printed: lines of JSON or of text."""
    text = out.decode(errors="replace") if isinstance(out, bytes) else out
    adds_up(text)
    for line in text.splitlines():
        # A line may be cut where its program was killed; messages of `cat` are no accounts.
        if line.startswith("{") and line.endswith("}") and ('"lost"' in line or '"reason"' in line):
            try:
                said = json.loads(line)
            except ValueError:
                continue
            adds_up(said)


def wrong_lines(text: str) -> list[str]:
    """Lines `NAME N sent = ...` and `NAME N read = ...` that do not add up."""
    wrong = []
    for line in map(str.strip, text.splitlines()):
        if ACCOUNT.match(line):
            left, right = line.split(" = ", 1)
            if amounts(left.split(" ", 1)[1]) != amounts(right):
                wrong.append(line)
    return wrong


def amounts(side: str) -> int:
    """The sum of the numbers before the words of a side: 1583 of `1,583 lost (full)`."""
    return sum(int(re.match(r" *([\d,]+)", term)[1].replace(",", "")) for term in side.split(" + "))


def wrong_sums(said) -> list[str]:
    """What does not add up in a JSON document."""
    if isinstance(said, list):
        return [wrong for one in said for wrong in wrong_sums(one)]
    if not isinstance(said, dict):
        return []
    wrong = [f"{what}: {json.dumps(said)[:2000]}" for what in check(said)]
    return wrong + [wrong for one in said.values() for wrong in wrong_sums(one)]


def check(said: dict):
    """What is wrong with one object, by the keys that it has."""
    keys = said.keys()
    if keys >= {"sent", "appended", "duplicate", "skipped", "lost"}:
        yield from equal(said, ("sent", "duplicate"), ("appended", "skipped", "lost"))
    elif keys >= {"read", "done", "aside", "skipped", "lost", "held"}:
        yield from equal(said, ("read",), ("done", "aside", "skipped", "lost", "held"))
    elif keys >= {"ledger", "streams", "gaps"}:
        yield from of_report(said)
    elif keys >= {"entries", "rows", "gaps", "lost"}:
        rows = said["entries"] + said["rows"]
        if number(said, "lost") != sum(number(row, "lost") for row in rows):
            yield "lost is not that of its rows"
        yield from of_closed(said, rows)
    elif keys >= {"streams", "runs", "stages"}:
        yield from of_status(said)
    elif keys >= {"missing", "incomplete", "without"}:
        if number(said, "incomplete") != number(said, "without"):
            yield "incomplete is not that by parts"
        listed = [0, 0]
        for gap in said.get("gaps", ()):
            listed[gap["reason"] == "missing"] += count(gap)
        if listed[1] > number(said, "missing") or listed[0] > number(said, "incomplete"):
            yield "gaps name more ids than are counted"
    elif keys >= {"first", "last", "reason"}:
        # A time that is unknown is None.
        is_known = None not in (said["from"], said["to"])
        if said["first"] > said["last"] + 1 or is_known and said["from"] > said["to"]:
            yield "it begins behind its end"
    elif keys >= {"first", "count", "messages", "lag", "fill"}:
        if said["count"] - said["first"] != said["messages"]:
            yield "count - first is not messages"
        if said["first"] > said["count"] or number(said, "disk") > said["count"] or not 0 <= said["fill"] <= 1:
            yield "beyond its bounds"


def equal(row: dict, left: tuple[str, ...], right: tuple[str, ...]):
    """Left and right of the equation of a row."""
    if sum(number(row, key) for key in left) != sum(number(row, key) for key in right):
        yield f"{' + '.join(left)} is not {' + '.join(right)}"


def of_report(report: dict):
    """The report of a run: a line of a stream says what the rows of that stream say."""
    entries = [row for row in report["ledger"] if row["account"] == "entry"]
    readers = [row for row in report["ledger"] if row["account"] == "reader"]
    yield from of_closed(report, entries + readers)
    for line in report["streams"]:
        name, messages = line["name"], line["messages"]
        appended = [row["appended"] for row in entries if row["stream"] == name]
        read = [row for row in readers if row["stream"] == name]
        if line["lost"] != sum(number(row, "lost") for row in entries + readers if row["stream"] == name):
            yield f"lost of {name} is not that of its rows"
        for row in read:
            if not row["read"] - number(row, "lost") <= messages <= row["read"]:
                yield f"{messages} messages of {name}, but {row['stage']} read {row['read']}"
        if appended and sum(appended) < messages:
            yield f"{messages} messages of {name}, but fewer were appended"
    # Over all starts only the newest gaps are listed.
    yield from of_gaps(report["gaps"], [row for row in entries + readers if row.get("scope") != "all"])


def of_gaps(gaps: list[dict], rows: list[dict]):
    """What is lost is listed. A list that is full reaches on over what was not lost, so it may name more."""
    listed = {}
    for gap in gaps:
        # A reason is `lost.WORD` or the word alone.
        key = (gap["stream"], gap["reason"].removeprefix("lost."))
        listed[key] = listed.get(key, 0) + count(gap)
    for row in rows:
        for reason, lost in row["lost"].items():
            if reason != "cut" and listed.get((row["stream"], reason), 0) < lost:
                yield f"gaps name fewer than the {lost} of {row['stream']} lost as {reason}"


def of_closed(account: dict, rows: list[dict]):
    """What is closed has only closed rows that hold nothing, and no losses that nobody knows."""
    is_open = any(not row["closed"] or number(row, "held") for row in rows)
    unknown = any(gap["reason"] == "unknown" for gap in account["gaps"])
    if account["closed"] and (is_open or unknown):
        yield "closed, but not all of its rows are"


def of_status(status: dict):
    """A data folder as `ls` and `top` show it."""
    streams = {stream["name"]: stream for stream in status["streams"]}
    if len(streams) < len(status["streams"]):
        yield "a stream is listed twice"
    stages = {}
    for row in status["stages"]:
        stages[row["stage"]] = stages.get(row["stage"], 0) + number(row, "lost")
    for stage, lost in stages.items():
        if stage in streams and streams[stage]["lost"] != lost:
            yield f"lost of {stage} is not that of its inputs"
    late = [sum(one["late"] for one in status[key]) for key in ("streams", "runs")]
    if late[0] != late[1] and not status.get("unreadable"):
        yield "late of streams is not late of runs"
    for run in status["runs"]:
        if run["closed"] and run["state"] != "sealed":
            yield f"run {run['name']} is closed and not sealed"


def count(gap: dict) -> int:
    """Numbers of a gap."""
    return max(gap["last"] + 1 - gap["first"], 0)


def number(said: dict, key: str) -> int:
    """A number, or the sum of the numbers by reason."""
    value = said.get(key) or 0
    return sum(value.values()) if isinstance(value, dict) else value
