"""Modules of NeXus files in Python: rows, what user code does, and kills of the writer and of the process of the code."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import beamport
import h5py
import numpy as np
import pytest
import sums
from beamport._core import _Writer
from beamport.nexus import Dataset, UnfitError, message
from payloads import SECOND, T0, bprn
from test_nexus_file import HANG_S, ROOT, programs  # noqa: F401
from test_nexus_kill import writer_of

KILLS = 100 if os.environ.get("BEAMPORT_SOAK") == "1" else 10

CODE = """
import os
from beamport.nexus import Dataset, Module

class Counters(Module):
    word = "counters"
    schemas = "cnt0"
    datasets = {"time": Dataset.times(), "counts": Dataset("uint32", 4), "sum": Dataset("float64", units="counts"),
                "name": Dataset(str, size=8)}

    def __init__(self, scale=1.0):
        self.scale, self.sum = scale, 0.0

    def take(self, message):
        kind, *counts = message.payload[8:].view("<u4").tolist()
        row = {"time": message.source_time, "counts": counts, "sum": 0.0, "name": f"n{counts[0]}"}
        if kind == 1:
            raise ValueError("no such counter")
        if kind == 2:
            os.abort()
        while kind == 3:
            pass
        if kind == 4:
            return {**row, "counts": [0.5] * 4}
        if kind == 5:
            return {**row, "counts": [1] * 3}
        if kind == 6:
            return {**row, "total": 1}
        if kind == 7:
            return {**row, "name": 3}
        if kind == 8:
            return 8
        if kind == 9:
            return None
        if kind == 10:
            raise SystemExit(3)
        if kind == 11:
            print("printed")
            os.write(0, b"x" * 100)
        self.sum += self.scale * sum(counts)
        return {**row, "sum": self.sum}

    def state(self):
        return {"sum": self.sum}

    def resume(self, state):
        self.sum = state["sum"]

class Running(Module):
    word = "running"
    schemas = ("f144", "f142")
    nx_class = "NXlog"
    datasets = {"number": Dataset("uint64"), "time": Dataset.times(), "value": Dataset("float64")}

    def __init__(self):
        self.number, self.value = 0, 0.0

    def take(self, message):
        self.number += 1
        self.value += float(message["value"])
        return {"number": self.number, "time": [message["timestamp"]], "value": self.value}

    def state(self):
        return [self.number, self.value]

    def resume(self, state):
        self.number, self.value = state
"""

# What a message makes its code do, and how it then goes aside.
ASIDE = {1: "error", 2: "killed", 3: "time", 4: "unfit", 5: "unfit", 6: "unfit", 7: "unfit", 8: "unfit", 10: "killed"}


def counter(kind: int, n: int) -> bytes:
    return bytes(4) + b"cnt0" + struct.pack("<5I", kind, n, n + 1, n + 2, n + 3)


def code(folder: Path):
    """The module of the tests, imported."""
    path = folder / "counters.py"
    path.write_text(CODE)
    spec = importlib.util.spec_from_file_location("counters", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TIMES = {"module": "mdat", "config": {"items": ["start_time", "end_time"]}}


def template(word: str, **config) -> dict:
    group = {"type": "group", "name": "data", "children": [{"module": word, "config": config}]}
    return {
        "children": [
            {"type": "group", "name": "entry", "attributes": {"NX_class": "NXentry"}, "children": [TIMES, group]}
        ]
    }


def instrument(folder: Path, data: Path, source: str, sink: str = "") -> Path:
    path = folder / "mine.toml"
    path.write_text(
        f'instrument = "mine"\ndata = "{data}"\n{source}\n[sink.file]\nkind = "nexus"\ntemplate = "mine.json"\n'
        f'file = "{{run}}.nxs"\npython = "{sys.executable}"\nmodules = ["counters.py:Counters", "counters.py:Running"]\n{sink}'
    )
    return path


def run(*arguments) -> subprocess.CompletedProcess:
    return subprocess.run(list(map(str, arguments)), capture_output=True, text=True, timeout=10 * HANG_S, check=False)


def test_what_user_code_does_is_survived(programs, memory, tmp_path):  # noqa: F811
    module = code(tmp_path)
    kinds = [0, 1, 0, 0, 2, 0, 3, 0, 4, 5, 6, 7, 8, 9, 0, 10, 2, 2, 11, 0]
    with _Writer(memory / "scaler") as writer:
        for n, kind in enumerate(kinds):
            writer.append(counter(kind, n), T0 + n)
    stream = beamport.open(memory)["scaler"]
    with _Writer(memory / "runs") as writer:
        span = [("scaler", stream.uuid, stream.epoch, 0, len(kinds))]
        writer.append(bprn("r", "sealed", T0, T0 + SECOND, streams=span), T0)
    source = 'source.scaler = { kind = "sim", model = "amor" }'
    file = instrument(tmp_path, memory, source, 'time_max = "500 ms"\n')
    (tmp_path / "mine.json").write_text(json.dumps(template("counters", stream="scaler", scale=2)))
    checked = run(programs / "beamport", "check", file)
    assert checked.returncode == 0, checked.stderr
    out = tmp_path / "out.nxs"
    answer = run(programs / "beamport", "write", "r", "--output", out, "--file", file, "--data", memory)
    assert answer.returncode == 0, answer.stderr
    # In this process, without a file: what goes aside there is not given.
    alone = module.Counters(scale=2)
    rows = [(n, alone.take(message(counter(0, n), source_time=T0 + n))) for n, k in enumerate(kinds) if k in (0, 11)]
    with h5py.File(out) as nexus:
        group = nexus["entry/data"]
        assert group.attrs["NX_class"] == "NXcollection" and group.attrs["writer_module"] == "counters"
        assert group["sum"].attrs["units"] == "counts" and group["time"].attrs["start"] == "1970-01-01T00:00:00Z"
        assert group["counts"].dtype == "u4" and group["counts"].shape == (len(rows), 4)
        assert group["time"][()].tolist() == [T0 + n for n, _ in rows]
        assert group["counts"][()].tolist() == [row["counts"] for _, row in rows]
        assert group["sum"][()].tolist() == [row["sum"] for _, row in rows]
        assert group["name"][()].tolist() == [row["name"].encode() for _, row in rows]
        (told,) = json.loads(nexus["entry/beamport/account"][()])["rows"]
    wanted = {reason: sum(ASIDE.get(kind) == reason for kind in kinds) for reason in set(ASIDE.values())}
    assert told["aside"] == wanted and told["done"] == len(kinds) - sum(wanted.values())
    assert "no such counter" in answer.stderr and "Traceback" in answer.stderr and "printed" in answer.stderr


@pytest.mark.parametrize(
    ("text", "config", "cause"),
    [
        (CODE, {"stream": "scaler", "scal": 2}, "unknown key `scal`"),
        (CODE.replace("scale, 0.0", "scale / 0, 0.0"), {"stream": "scaler"}, "ZeroDivisionError"),
        (CODE.replace("import os", "import no_such_package"), {"stream": "scaler"}, "no_such_package"),
        (CODE.replace("class Counters", "class Other"), {"stream": "scaler"}, "Counters"),
        (CODE.replace('"uint32", 4', '"complex128"'), {"stream": "scaler"}, "complex128"),
        (CODE.replace('"uint32", 4', '"uint32", 1 << 40'), {"stream": "scaler"}, "a row has"),
        (CODE.replace('"cnt0"', '"counter"'), {"stream": "scaler"}, "four letters"),
        (CODE.replace('word = "counters"', 'word = "f144"'), {"stream": "scaler"}, "already"),
        (CODE.replace('word = "counters"', 'word = "counter"'), {"stream": "scaler"}, "unknown module `counters`"),
        (CODE, {"stream": "scaler", "source": "a"}, "no origin"),
        ("import os\nos._exit(7)\n", {"stream": "scaler"}, "status 7"),
    ],
)
def test_mistakes_are_told_before_the_run(programs, tmp_path, text, config, cause):  # noqa: F811
    (tmp_path / "counters.py").write_text(text)
    file = instrument(tmp_path, tmp_path / "data", 'source.scaler = { kind = "sim", model = "amor" }')
    (tmp_path / "mine.json").write_text(json.dumps(template("counters", **config)))
    checked = run(programs / "beamport", "check", file)
    assert checked.returncode == 2 and cause in checked.stderr, checked.stderr


def test_a_program_of_the_user_writes_and_checks(programs, tmp_path):  # noqa: F811
    code(tmp_path)
    data = Path(tempfile.mkdtemp(prefix="beamport-test-", dir="/dev/shm"))
    program = tmp_path / "mine"
    program.write_text(f'#!/bin/sh\necho "$1" >> {tmp_path}/asked\nexec {programs}/beamport-nexus "$@"\n')
    source = 'source.devices = { kind = "sim", model = "amor-devices" }'
    runs = '[run.first]\nstart = "now"\nduration = "1 s"\n'
    file = instrument(tmp_path, data, source, f'program = "mine"\n{runs}')
    (tmp_path / "mine.json").write_text(json.dumps(template("running", stream="devices")))
    told = run(programs / "beamport", "check", file)
    assert told.returncode == 2 and "mine does not run" in told.stderr, told.stderr
    program.chmod(0o755)
    answer = run(programs / "beamport", "up", file, "--json")
    assert answer.returncode == 0, answer.stderr
    sums.printed(answer.stdout)
    with h5py.File(json.loads(answer.stdout.splitlines()[-1])["file"]) as nexus:
        assert len(nexus["entry/data/number"]) > 10
    assert {"--version", "check", "write"} == set((tmp_path / "asked").read_text().split())
    program.unlink()
    told = run(programs / "beamport", "check", file)
    assert told.returncode == 2 and "no file" in told.stderr, told.stderr
    shutil.rmtree(data)


def process_of_modules(writer: int) -> int | None:
    """The Python that a writer started."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            above = int(stat.read_text().rpartition(")")[2].split()[1])
            if above == writer and b"beamport._modules" in (stat.parent / "cmdline").read_bytes():
                return int(stat.parent.name)
        except (OSError, IndexError):
            continue
    return None


def test_kills_of_the_writer_and_of_the_code_change_nothing(programs, tmp_path):  # noqa: F811
    module = code(tmp_path)
    data = Path(tempfile.mkdtemp(prefix="beamport-test-", dir="/dev/shm"))
    source = 'source.devices = { kind = "sim", model = "amor-devices" }'
    file = instrument(
        tmp_path, data, source, f'flush = "100 ms"\n[run.first]\nstart = "now"\nduration = "{2 * KILLS} s"\n'
    )
    (tmp_path / "mine.json").write_text(json.dumps(template("running", stream=["devices"])))
    rng = random.Random("modules")
    killed = {"writer": 0, "code": 0}
    with subprocess.Popen(
        [programs / "beamport", "up", file, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as up:
        try:
            began = time.monotonic()
            while sum(killed.values()) < KILLS and up.poll() is None and time.monotonic() - began < HANG_S + 10 * KILLS:
                time.sleep(rng.uniform(0.1, 1.0))
                pid, which = writer_of(up.pid), rng.choice(("writer", "code"))
                if pid is not None and which == "code":
                    pid = process_of_modules(pid)
                if pid is not None:
                    os.kill(pid, signal.SIGKILL)
                    killed[which] += 1
            out, err = up.communicate(timeout=HANG_S + 10 * KILLS)
        finally:
            if up.poll() is None:
                up.kill()
    assert up.returncode == 0, err
    sums.printed(out)
    report = json.loads(out.splitlines()[-1])
    alone = module.Running()
    with h5py.File(report["file"]) as nexus:
        group = nexus["entry/data"]
        count = len(group["number"])
        (told,) = json.loads(nexus["entry/beamport/account"][()])["rows"]
        wanted = [alone.take(m) for m in beamport.open(data)["devices"].read(schema="f144") if holds(nexus, m)]
        assert count == len(wanted) > 100
        for name in ("number", "value"):
            assert group[name][()].tolist() == [row[name] for row in wanted], name
        assert group["time"][()].tolist() == [row["time"][0] for row in wanted]
    shutil.rmtree(data)
    print(
        f"injected {killed['writer']} kills of the writer, {killed['code']} of the code: {count} rows, none lost or twice"
    )
    assert sum(killed.values()) == KILLS and min(killed.values()) > 0
    assert set(told["aside"]) <= {"schema", "unmatched"} and report["closed"] is True, "what was sent and is no f144"


def holds(nexus: h5py.File, m: beamport.Message) -> bool:
    """Whether a message is of the run, which is what the file says of its beginning and end."""
    start, end = (
        np.datetime64(nexus[f"entry/{name}"][()].decode().rstrip("Z"), "ns").astype(int)
        for name in ("start_time", "end_time")
    )
    return start <= m.source_time < end


def test_the_page_on_writer_modules_runs(programs, memory, tmp_path):  # noqa: F811
    page = (ROOT / "docs/how-to/add-a-writer-module.md").read_text()
    scaler, counters, trial = (part.split("```")[0] for part in page.split("```python\n")[1:])
    (instrument, *_), (template, *_) = (
        [part.split("```")[0] for part in page.split(f"```{kind}\n")[1:]] for kind in ("toml", "json")
    )
    (tmp_path / "scaler.py").write_text(scaler)
    (tmp_path / "counters.py").write_text(counters)
    (tmp_path / "mine.json").write_text(template)
    subprocess.run([sys.executable, "-c", trial], check=True, timeout=HANG_S, cwd=tmp_path)
    file = tmp_path / "mine.toml"
    python = f'python = "{sys.executable}"\n'
    instrument = instrument.replace("modules =", f"{python}modules =").replace("call =", f"{python}call =")
    file.write_text(instrument.replace("[source", f'data = "{memory}"\n\n[source', 1))
    for verb in ("check", "up"):
        answer = run(programs / "beamport", verb, file)
        assert answer.returncode == 0, answer.stderr
    with h5py.File(memory / "files/mine_first.nxs") as nexus:
        group = nexus["entry/scaler"]
        counts = group["counts"][()]
        # A slow machine sends some before the run begins.
        first = int(counts[0][0])
        assert len(counts) > 10
        assert counts.tolist() == [[n, n + 1, n + 2, n + 3] for n in range(first, first + len(counts))]
        assert group["sum"][()].tolist() == (2.5 * np.cumsum(counts.sum(axis=1))).tolist()


def test_rows_are_what_the_dataset_can_hold():
    assert Dataset("int8").rows([1, -128]).tolist() == [1, -128]
    assert Dataset("float32", 2).rows(np.array([0.1, 2.0])).shape == (1, 2)
    assert Dataset("uint8").rows([True, False]).tolist() == [1, 0]
    assert Dataset(str, size=4).rows(["aä", "aaaä", "a\0b"]).tolist() == ["aä".encode(), b"aaa", b"a"]
    assert Dataset("float64", (2, 0)).shape == (2, 0)
    for dtype, value in [
        ("int8", 128), ("uint64", -1), ("int64", 2**63), ("int32", 0.5), ("int64", float("nan")), ("float32", 1e300),
        ("int32", "1"), ("int32", [[1], [2]]), ("int32", None), (str, b"a"), (str, [["a"]]), ("int8", 1j),
    ]:  # fmt: skip
        with pytest.raises(UnfitError):
            Dataset(dtype).rows(value)
    for dtype in ("complex64", "datetime64[ns]", object):
        with pytest.raises(TypeError, match="a dataset has numbers"):
            Dataset(dtype)


def test_a_message_of_bytes_is_like_one_of_a_stream(memory):
    payload = beamport_f144()
    with _Writer(memory / "s") as writer:
        writer.append(payload, T0, origin="a", origin_seq=3)
    (real,) = beamport.open(memory)["s"].read()
    made = message(payload, source_time=T0, origin="a", origin_seq=3, arrival_time=real.arrival_time)
    assert {name: value.tolist() if hasattr(value, "tolist") else value for name, value in made.fields().items()} == {
        name: value.tolist() if hasattr(value, "tolist") else value for name, value in real.fields().items()
    }
    for name in ("sequence", "source_time", "arrival_time", "origin", "origin_seq", "schema", "flags"):
        assert getattr(made, name) == getattr(real, name), name
    assert (made.payload == real.payload).all() and not made.payload.flags.writeable
    kept = made["value"]
    del made
    assert kept.tolist() == [1.5, 2.5]


def beamport_f144() -> bytes:
    from beamport.wire import serialise_f144

    return serialise_f144("a", np.array([1.5, 2.5]), T0)
