"""The log of an instrument, and docs/how-to/look-at-3-am.md: each row of it made to happen."""

import hashlib
import json
import os
import re
import resource
import shutil
import signal

import pytest
from conftest import ROOT, preloaded, until
from test_reader_names import read_and_die, write
from test_udp import boards

PAGE = ROOT / "docs/how-to/look-at-3-am.md"
FIELD = '[source.field]\nkind = "sim"\nmodel = "field"\n'
TEMPLATE = '{"children": [{"module": "dataset", "config": {"name": "title", "values": "run"}}]}'
FILE = '[sink.file]\nkind = "nexus"\ntemplate = "t.json"\ninputs = ["field"]\n'


def rows() -> list[str]:
    """What the page says is in the log, by row of its table."""
    table = PAGE.read_text().split("| in the log |")[1].split("\n\n")[0]
    return re.findall(r"^\| `([^`]+)`", table, re.M)


def err(lab, process) -> str:
    return lab.said(process)[1]


def logged(lab, process, text: str) -> str:
    """The line with a text, once it is there."""
    until(lambda: text in err(lab, process), lambda: err(lab, process)[-3000:])
    return next(line for line in err(lab, process).splitlines() if text in line)


def reader_in_the_way(lab, row):
    write(lab, readers='["analysis"]')
    process, _ = lab.up_ready()
    read_and_die(lab)
    assert "`analysis`" in logged(lab, process, row)
    lab.run("forget", "cam", "analysis", "--data", lab.data)
    logged(lab, process, "a fault has passed")
    return process


def reader_gone(lab, row):
    write(lab, timeout="300 ms")
    process, _ = lab.up_ready()
    read_and_die(lab)
    logged(lab, process, row)
    return process


def with_bad_disk(lab, row, variable: str, field: str, again: str):
    """The disk is bad as long as a file is there."""
    bad = lab.folder / "bad"
    lab.write(FIELD)
    process, _ = lab.up_ready(env=os.environ | {"LD_PRELOAD": preloaded(lab.folder, "slow_sync"), variable: str(bad)})
    bad.touch()
    assert field in logged(lab, process, row)
    bad.unlink()
    logged(lab, process, again)
    return process


def hanging_disk(lab, row):
    again = "the disk of a stream writes again"
    return with_bad_disk(lab, row, "SLOW_SYNC_WHILE", 'stream="field"', again)


def failed_stage(lab, row):
    return with_bad_disk(lab, row, "SLOW_SYNC_FAILS", 'name="field"', "a fault has passed")


def full_disk(lab, row):
    lab.write(FIELD.replace('model = "field"', 'model = "amor"\nrate = 1e6'))
    process, _ = lab.up_ready()
    limit = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (4096, limit[1]))
    until(lambda: row in err(lab, process), lambda: err(lab, process)[-3000:])
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, limit)
    logged(lab, process, "a fault has passed")
    return process


def set_clock(lab, row):
    shift = lab.folder / "shift"
    shift.write_text("0")
    lab.write(FIELD + "[run.first]\n")
    process, _ = lab.up_ready(
        env=os.environ | {"LD_PRELOAD": preloaded(lab.folder, "shift_clock"), "SHIFT_CLOCK": str(shift)}
    )
    logged(lab, process, "the instrument is ready")
    (lab.folder / "new").write_text("-30000000000")
    (lab.folder / "new").rename(shift)
    step = float(re.search(r"step_s=(\S+)", logged(lab, process, row))[1])
    assert -31 < step < -29, step
    return process


def dead_slot(lab, row):
    (lab.folder / "code.py").write_text(
        "import os\n\n\ndef die(m):\n    print('I give up', flush=True)\n    os._exit(3)\n"
    )
    lab.write(FIELD + '[worker.w]\ncall = "code.py:die"\ninputs = ["field"]\n')
    process, _ = lab.up_ready()
    assert "`w`" in logged(lab, process, row)
    assert "worker `w` slot 0: I give up" in err(lab, process)
    return process


def lossy_run(lab, row):
    keys = 'rate = 2000, size = "400 B", loss = 0.05'
    lab.write(boards(1, keys) + '[run.first]\nduration = "1 s"\nsettle = "300 ms"\n')
    process = lab.up()
    lab.end(process, status=1)
    assert int(re.search(r"lost=(\d+)", logged(lab, process, row))[1]) > 0
    lost = json.loads(lab.run("ls", "first", "--json", "--data", lab.data, status=None).stdout)
    assert lost
    return None


def file_given_up(lab, row):
    (lab.folder / "t.json").write_text(TEMPLATE)
    lab.write(FIELD + FILE + '[run.first]\nduration = "300 ms"\nsettle = "100 ms"\n')
    (lab.data / "files").mkdir(parents=True)
    (lab.data / "files/lab_first.nxs").write_text("of somebody else")
    process = lab.up()
    lab.end(process, status=2)
    logged(lab, process, row)
    lab.run("write", "first", "--output", lab.folder / "again.nxs", "--data", lab.data)
    return None


def dead_page(lab, row):
    lab.write('[web]\nlisten = "127.0.0.1:0"\n' + FIELD)
    process, _ = lab.up_ready()
    (page,) = lab.children(process)
    os.kill(page, signal.SIGKILL)
    logged(lab, process, row)
    return process


def second_up(lab, row):
    lab.write(FIELD)
    process, _ = lab.up_ready()
    second = lab.up()
    lab.end(second, status=2)
    assert row in err(lab, second), err(lab, second)
    return process


def removed_memory(lab, row):
    lab.write(FIELD)
    process, _ = lab.up_ready()
    shutil.rmtree(lab.stream("field").live)
    lab.end(process, status=2)
    logged(lab, process, row)
    again, _ = lab.up_ready()
    return again


SCENARIOS = {
    "has not moved on from message": reader_in_the_way,
    "no longer waits for reader": reader_gone,
    "the disk of a stream writes nothing": hanging_disk,
    "free space on the device": full_disk,
    "the clock of this machine was set": set_clock,
    "a stage will be started again": failed_stage,
    "of worker": dead_slot,
    "a run is done": lossy_run,
    "cannot write run": file_given_up,
    "the page is started again": dead_page,
    "another process writes the stream": second_up,
    "was removed while the instrument runs": removed_memory,
}


def test_each_row_of_the_page_has_a_scenario():
    assert rows() == list(SCENARIOS)


@pytest.mark.parametrize("row", SCENARIOS)
def test_each_row_of_the_page_happens(lab, nexus, row):
    process = SCENARIOS[row](lab, row)
    if process is not None:
        lab.interrupt(process)
        lab.end(process, status=None)


def events(lab, process) -> list[dict]:
    """The events of a log in JSON: each line is one."""
    return [json.loads(line) for line in err(lab, process).splitlines()]


def of(lab, process, name: str) -> list[dict]:
    return [event for event in events(lab, process) if event["short_message"] == name]


def test_a_log_in_json_has_what_happened_to_runs_and_files(lab, nexus):
    (lab.folder / "t.json").write_text(TEMPLATE)
    lab.write('[web]\nlisten = "127.0.0.1:0"\n' + FIELD + FILE + '[run.first]\nduration = "4 s"\nsettle = "100 ms"\n')
    env = os.environ | {"BEAMPORT_LOG": "json"}
    killed, _ = lab.up_ready(env=env)
    until(lambda: of(lab, killed, "the instrument is ready"), lambda: err(lab, killed))
    lab.kill(killed)
    process = lab.up(env=env)
    lab.end(process)
    found = [event["short_message"] for event in events(lab, process) if "_process" not in event]
    course = ["the instrument starts", "a run is resumed", "the instrument is ready", "a run ends", "a run is sealed"]
    course += ["a file is finished", "a run is done", "the instrument stops"]
    assert [name for name in found if name in course] == course, found
    (start,) = of(lab, killed, "the instrument starts")
    assert start["_sha256"] == hashlib.sha256(lab.file.read_bytes()).hexdigest() and start["_version"]
    assert of(lab, killed, "a run begins")[0]["_run"] == "first"
    (file,) = of(lab, process, "a file is finished")
    path = lab.data / "files/lab_first.nxs"
    assert (file["_file"], file["_bytes"], file["_sink"]) == (str(path), path.stat().st_size, "file")
    known = json.loads(lab.run("verify", path, "--json", "--data", lab.data, status=None).stdout)
    assert file["_blake3"] in json.dumps(known), (file, known)
    (done,) = of(lab, process, "a run is done")
    assert done["_lost"] == 0 and done["_closed"] == "true" and done["_messages"] > 0
    for event in events(lab, killed) + events(lab, process):
        assert event["version"] == "1.1" and event["host"] and event["level"] in (3, 4, 6) and event["timestamp"] > 1e9
        names = set(event) - {"version", "host", "short_message", "full_message", "timestamp", "level"}
        assert all(name.startswith("_") for name in names) and "_id" not in names, event
        assert all(isinstance(event[name], str | int | float) for name in names), event


def test_neither_tokens_nor_passwords_are_in_the_log_or_in_processes_of_user_code(lab):
    (lab.folder / "code.py").write_text(
        "import os\n\n\ndef look(m):\n    print('secret', os.environ.get('LAB_SECRET'), flush=True)\n    return m\n"
    )
    kafka = '[sink.topics]\nkind = "kafka"\nbrokers = "127.0.0.1:9"\ninputs = ["field"]\ntopic = "t"\n'
    kafka += 'properties = { "sasl.mechanism" = "PLAIN", "sasl.username" = "u", "sasl.password" = "env:LAB_SECRET" }\n'
    worker = '[worker.w]\ncall = "code.py:look"\ninputs = ["field"]\n'
    lab.write('[web]\nlisten = "127.0.0.1:0"\n' + FIELD + kafka + worker)
    process, _ = lab.up_ready(env=os.environ | {"LAB_SECRET": "swordfish"})
    logged(lab, process, "secret None")
    for child in lab.children(process):
        with open(f"/proc/{child}/environ", "rb") as environment:
            assert b"swordfish" not in environment.read(), child
    location = logged(lab, process, "page: ")
    tokens = [(lab.data / f"web.{role}.token").read_text().strip() for role in ("view", "control")]
    assert f"{lab.data}/web.control.token" in location
    lab.interrupt(process)
    lab.end(process, status=None)
    assert not [word for word in [*tokens, "swordfish"] if word in err(lab, process)]
