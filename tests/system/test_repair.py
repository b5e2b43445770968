"""Bits are turned in the files of a stream: `verify` names them, `verify --repair` makes good what can be proven."""

import json

from conftest import until

INSTRUMENT = """
[source.detector]
kind = "sim"
model = "amor"
rate = 1e5
live = "1 MiB"

[run.first]
settle = "200 ms"
"""


def turn(path, at: int, bit: int = 4):
    """One bit of a file, the other way round."""
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ bit]))


def test_verify_repairs_an_index_and_names_what_it_cannot(lab, times, dice):
    lab.write(INSTRUMENT)
    process, _ = lab.up_ready()
    until(lambda: lab.stream("detector").marks()[1] > 20, "nothing is marked")
    busy = lab.run("verify", "detector", "--repair", "--data", lab.data)
    assert b"ok" in busy.stdout, "a stream without damage is only read"
    lab.interrupt(process)
    lab.end(process)
    folder = lab.data / "detector"
    stream = lab.stream("detector")
    count = stream.marks()[1]
    good = (folder / "i-00000000").read_bytes()
    table = -(-stream.index_entries // 8 // 4096) * 4096
    turns = times(20, 500)
    for _ in range(turns):
        number = dice.randrange(count)
        turn(folder / "i-00000000", table + 64 * number + dice.randrange(64), 1 << dice.randrange(8))
        seen = json.loads(lab.run("verify", "detector", "--json", "--data", lab.data, status=1).stdout)["streams"][0]
        assert seen["lost"] == 1 and seen["ranges"][0]["first"] == number
        told = lab.run("verify", "detector", "--repair", "--data", lab.data).stdout.decode()
        assert "repaired: 1 index entry" in told and told.count("ok") == 1
        assert (folder / "i-00000000").read_bytes() == good
        for copy in folder.glob("*.damaged-*"):
            copy.unlink()
    # A payload has no second witness: it is named, and stays so.
    entry = stream.entries(3, 4)[0]
    turn(folder / f"p-{entry['segment']:08x}", int(entry["offset8"]) * 8 + 100)
    told = lab.run("verify", "detector", "--repair", "--data", lab.data, status=1).stdout.decode()
    assert "message 3 is lost" in told and "nothing could be repaired" in told
    print(f"bits of an index: {turns} injected, each named and made good byte for byte; 1 of a payload named")


def test_a_report_counts_on_behind_a_missing_segment(lab):
    lab.write(INSTRUMENT)
    process, _ = lab.up_ready()
    folder, stream = lab.data / "detector", lab.stream("detector")
    # The source may be ahead of the run: a segment behind the start of the run, and not the last.
    first = stream.marks()[1]
    until(lambda: stream.marks()[1] > first + 50, "it does not grow")
    lab.kill(process)
    number = int(stream.entries(first + 10, first + 11)[0]["segment"])
    gone = folder / f"p-{number:08x}"
    inside = sum(entry["segment"] == number for entry in stream.entries(first, stream.marks()[1]))
    gone.unlink()
    process, _ = lab.up_ready()
    lab.interrupt(process)
    report = lab.report(process, status=2)
    (line,) = report["streams"]
    (run,) = json.loads(lab.run("ls", "--json", "--data", lab.data).stdout)["runs"]
    assert inside > 0 and (line["messages"], line["bytes"]) == (run["messages"], run["bytes"])
    # What is in the segment cannot be counted event by event.
    assert line["events"] > 0
    said = lab.said(process)[1]
    assert "cannot read messages" in said and "of `detector`" in said and "beamport verify" in said, said
    print(f"injected 1 missing segment with {inside} messages: the report counts {line['messages']} of the run")
