"""A file of every kind is opened and read whole by the tools that people open files with.

What a tool says against a kind and is not mended stands in `KNOWN`, with the reason; anything else fails, and so does a
line of `KNOWN` that no tool says any more.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import beamport
import h5py
import numpy as np
import pytest
import streaming_data_types as sdt
import sums
from beamport._core import _Writer
from beamport.wire import serialise_f142
from payloads import SECOND, T0, bprn, remove
from streaming_data_types.area_detector_ad00 import Attribute, serialise_ad00
from streaming_data_types.dataarray_da00 import Variable
from test_nexus_file import HANG_S, ROOT, SOURCES, programs, writer_job  # noqa: F401
from test_nexus_modules import VECTORS, messages, module

# Each message comes so many times, a second apart.
TIMES = 5

# Of modules: how they were packed, and in which layout.
PACKED = {
    "modules": ("nexus", None),
    "modules-ess": ("ess", None),
    "modules-bitshuffle": ("nexus", "bitshuffle-lz4"),
    "modules-deflate": ("nexus", "deflate"),
    "modules-ess-deflate": ("ess", "deflate"),
}
# Of a measurement: the file of one writer, that of several, one of a run that goes on, and files of frames.
MEASURED = ("one-writer", "several-writers", "snapshot", "frames", "frames-packed")
KINDS = (*PACKED, *MEASURED)
TOOLS = ("h5py", "scippnexus", "chexus", "punx", "nexusformat", "silx")

# Tool, pattern of `KIND PATH: what it says`, and why that is not ours to mend.
KNOWN = (
    (
        "h5py",
        r"\S+ \S+/(alarm|connection)_\w+: has no rows",
        "Nobody sent an alarm, or how the connection is, of this origin.",
    ),
    (
        "scippnexus",
        r"modules\S* /entry/(alarms|connection): (Failed to load .* as NXlog: Could not determine signal .*|is no array)",
        "`al00` and `ep01` alone are an NXlog without a value, as the ESS file writer makes it; beside a value they load.",
    ),
    (
        "chexus",
        r"modules\S* /entry/(alarms|connection): NXlog_has_value",
        "The same.",
    ),
    (
        "punx",
        r"\S+ \S+: WARN validItemName: NXcollection contains non-NeXus content",
        "It says so of each collection: they may hold anything.",
    ),
    (
        "punx",
        r"\S+ \S+@axes: ERROR valid name @axes\['\.'\]: not a valid NeXus name",
        "NXdata has `.` for a dimension without an axis, which is what rows and columns of pixels are.",
    ),
    (
        "silx",
        r"\S+ \S+: Axis (axis_1|tof) number of elements does not correspond to the length of any signal dimension, .*",
        "It does not know the edges of bins, of which NXdata allows one more than there are bins.",
    ),
)


def sent_at(when: int, n: int) -> list[bytes]:
    """A message for each module."""
    rng = np.random.default_rng(n)
    moment = datetime.datetime.fromtimestamp(when / 1e9, tz=datetime.UTC)
    counts = np.arange(4 * TIMES).reshape(TIMES, 4) + n
    array = [
        Variable(name="signal", data=counts, unit="counts", axes=["x", "tof"]),
        Variable(name="signal_errors", data=np.sqrt(counts), unit="counts", axes=["x", "tof"]),
        Variable(name="height", data=np.arange(4.0 * TIMES).reshape(TIMES, 4), unit="m", axes=["x", "tof"]),
        Variable(name="tof", data=np.arange(5.0), unit="us", axes=["tof"]),
        Variable(name="x", data=np.arange(float(TIMES)), unit="m", axes=["x"]),
    ]
    attributes = [Attribute("gain", "of the chip", "camera", 1.5 * n), Attribute("mode", "", "", "fast")]
    return [
        *messages(when, n),
        sdt.serialise_ev44("bank", n, [when], [0], np.arange(n, dtype="i4"), np.arange(n, dtype="i4")),
        sdt.serialise_f144("vector", np.arange(3.0) + n, when),
        serialise_f142(2.0 * n, "old", when),
        sdt.serialise_senv("array", 0, moment, SECOND // 10, n, np.array([n, -n], dtype="i2")),
        sdt.serialise_da00("counts", when, array),
        serialise_ad00("pixels", n, when, rng.integers(0, 99, (8, 16)).astype("u2"), attributes),
        (VECTORS / "bpgr.bin").read_bytes(),
    ]


def template(packed: str | None) -> dict:
    """Every module, alone, and a log with its alarms and the state of its connection."""
    variables = {
        "variables": [{"name": "signal"}, {"name": "signal_errors"}],
        "constants": [{"name": "height"}, {"name": "tof"}, {"name": "x"}],
    }
    modules = {
        "events44": module("ev44", "bank"),
        "events42": module("ev42", "grace"),
        "log": module("f144", "a", value_units="K", enable_alarm_info=True, enable_epics_con_info=True),
        "vector": module("f144", "vector", value_units="mm"),
        "old": module("f142", "old", value_units="mm"),
        "alarms": module("al00", "a"),
        "connection": module("ep01", "a"),
        "top_dead_center": module("tdct", "chopper"),
        "samples": module("se00", "magnet", value_units="T"),
        "more_samples": module("senv", "array", value_units="T"),
        "monitor": module("da00", "counts", **variables),
        "image": module("hs01", "just-bin-it"),
        "plain": module("hs00", "plain"),
        "camera": module("ad00", "pixels"),
        "raw": module("ar51", "detector"),
        "text": module("json"),
        "groups": module("bpgr"),
    }
    if packed:
        for one in modules.values():
            one["config"]["compression"] = packed
    fixed = [
        {"module": "mdat", "config": {"items": ["start_time", "end_time"]}},
        {"module": "dataset", "config": {"name": "title", "values": "every module"}},
        {"module": "dataset", "config": {"name": "experiment_identifier", "values": "p1"}},
        {"module": "dataset", "config": {"name": "words", "dtype": "string", "values": ["a", "ü", "ccc"]}},
        {"module": "dataset", "config": {"name": "cube", "dtype": "int16", "values": [[[1, 2], [3, 4]]]}},
        {"module": "link", "config": {"name": "linked", "source": "log"}},
    ]
    groups = [{"type": "group", "name": name, "children": [one]} for name, one in modules.items()]
    entry = {"type": "group", "name": "entry", "attributes": {"NX_class": "NXentry"}, "children": [*fixed, *groups]}
    return {"children": [entry]}


def make_modules(programs: Path, folder: Path, data: Path) -> dict[str, Path]:  # noqa: F811
    """A file of one run for each of `PACKED`."""
    sent = [(T0 + n * SECOND, payload) for n in range(TIMES) for payload in sent_at(T0 + n * SECOND, n)]
    with _Writer(data / "all") as writer:
        for when, payload in sent:
            writer.append(payload, when)
    stream = beamport.open(data)["all"]
    with _Writer(data / "runs") as writer:
        span = [("all", stream.uuid, stream.epoch, 0, len(sent))]
        writer.append(bprn("r", "sealed", T0, T0 + 3600 * SECOND, streams=span), T0)
    made = {}
    for kind, (layout, packed) in PACKED.items():
        made[kind] = folder / f"{kind}.nxs"
        of = folder / f"{kind}.json"
        of.write_text(json.dumps(template(packed)))
        job = writer_job(data, of, made[kind], layout=layout, detached=True)
        answer = done([programs / "beamport-nexus", "write"], job)
        assert answer.returncode == 0, answer.stderr + answer.stdout
        with h5py.File(made[kind]) as file:
            (row,) = json.loads(file["entry/beamport/account"][()])["rows"]
        # A forwarder sent a value twice, and not every message of another test has a module here.
        assert row["read"] == len(sent) and set(row["aside"]) <= {"repeated", "unmatched"}, row["aside"]
    return made


INSTRUMENT = (
    SOURCES
    + """
[source.camera]
kind = "sim"
model = "camera"
fps = 50
shape = [16, 24]
dtype = "uint16"

[sink.several]
kind = "nexus"
inputs = ["detector", "monitor", "devices"]
template = "amor.nexus.json"
writers = 4
file = "{{run}}.nxs"
folder = "{folder}"

[sink.frames]
kind = "files"
inputs = ["camera"]
frames = 20
folder = "{folder}/frames"

[sink.packed]
kind = "files"
inputs = ["camera"]
frames = 20
compression = "bitshuffle-lz4"
folder = "{folder}/packed"
"""
)


def make_measured(programs: Path, folder: Path, data: Path) -> dict[str, Path]:  # noqa: F811
    """The files of a measurement for each of `MEASURED`."""
    shutil.copy2(ROOT / "examples" / "amor.nexus.json", folder)
    (folder / "kinds.toml").write_text(INSTRUMENT.format(data=data, folder=folder))
    beamport = programs / "beamport"
    write = [beamport, "write", "first", "--data", data, "--sink", "several", "--output"]

    def until(*words):
        end = time.monotonic() + HANG_S
        while (answer := done(words)).returncode != 0:
            assert process.poll() is None and time.monotonic() < end, answer.stderr
            time.sleep(0.05)

    with (folder / "out").open("wb") as out:
        process = subprocess.Popen([beamport, "up", folder / "kinds.toml", "--json"], stdout=out, cwd=folder)
        try:
            until(beamport, "begin", "first", "--data", data)
            time.sleep(1.5)  # Two writes of the monitor, some frames.
            until(*write, folder / "now-{snapshot}.nxs")
            until(beamport, "end", "first", "--data", data)
            process.send_signal(signal.SIGINT)
            assert process.wait(HANG_S) == 0
            sums.printed((folder / "out").read_bytes())
        finally:
            process.kill()
            process.wait()
    until(*write, folder / "one.nxs")
    found = {
        "one-writer": "one.nxs",
        "several-writers": "first.nxs",
        "snapshot": "now-*.nxs",
        "frames": "frames/*/*1.h5",
        "frames-packed": "packed/*/*1.h5",
    }
    return {kind: next(folder.glob(pattern)) for kind, pattern in found.items()}


def done(words, stdin: str = "") -> subprocess.CompletedProcess:
    return subprocess.run(words, input=stdin, capture_output=True, text=True, timeout=HANG_S, check=False)


@pytest.fixture(scope="module")
def files(programs, tmp_path_factory) -> dict[str, Path]:  # noqa: F811
    """A file of each kind."""
    pytest.importorskip("hdf5plugin")  # h5py knows bitshuffle from then on
    folder = tmp_path_factory.mktemp("kinds")
    made = {}
    for make in (make_modules, make_measured):
        data = Path(tempfile.mkdtemp(prefix="beamport-test-", dir="/dev/shm"))
        try:
            made |= make(programs, folder, data)
        finally:
            remove(data)
    assert tuple(made) == KINDS
    return made


@pytest.fixture(scope="module")
def said(files, tmp_path_factory):
    """What a tool says against each kind of file: `said(TOOL)` is a list of `KIND PATH: WORDS`."""
    known = {}

    def ask(tool: str) -> list[str]:
        if tool not in known:
            if tool == "punx":
                known[tool] = [*ask_punx(files, tmp_path_factory.mktemp("punx"))]
            else:
                ask_one = globals()[f"ask_{tool}"]
                known[tool] = [f"{kind} {line}" for kind, path in files.items() for line in ask_one(path)]
        return known[tool]

    return ask


def each_dataset(file: h5py.File) -> dict:
    """Path and values of each dataset; also of those that another file has."""
    found = {}

    def look(group):
        for name, item in group.items():
            if isinstance(item, h5py.Group):
                look(item)
            else:
                found[f"{group.name.rstrip('/')}/{name}"] = np.asarray(item[()])

    look(file)
    return found


def is_same(shown, seen) -> bool:
    return seen.dtype.kind not in "iuf" or np.array_equal(shown, seen, equal_nan=seen.dtype.kind == "f")


def ask_h5py(path: Path):
    with h5py.File(path) as file:
        assert "beamport" in file["entry"]
        seen = each_dataset(file)
        assert len(seen) > 10
        for name, values in seen.items():
            if values.size == 0:
                yield f"{name}: has no rows"


def ask_scippnexus(path: Path):
    sc = pytest.importorskip("scipp")
    snx = pytest.importorskip("scippnexus")

    def look(group):
        shown = None
        with warnings.catch_warnings(record=True) as told:
            # What does not fit together is only a warning and a plain group.
            warnings.simplefilter("always")
            try:
                shown = group[()]
            except Exception as error:
                yield f"{group.name}: {error!r}"
        # Of groups in it as well.
        for one in {str(one.message) for one in told if f" {group.name} " in str(one.message)}:
            yield f"{group.name}: {one}"
        if group.attrs.get("NX_class") in ("NXdata", "NXevent_data", "NXlog") and shown is not None:
            # A log with alarms is several.
            parts = shown.values() if isinstance(shown, sc.DataGroup) else [shown]
            # One in transformations has become what it means.
            parts = [one.value if type(one).__name__ == "Transform" else one for one in parts]
            if not all(isinstance(one, sc.DataArray) for one in parts):
                yield f"{group.name}: is no array"
        for child in group.values():
            if isinstance(child, snx.Group):
                yield from look(child)

    with snx.File(path) as file:
        yield from look(file["entry"])


def ask_chexus(path: Path):
    chexus = pytest.importorskip("chexus")
    file = chexus.read_hdf5(path)
    checked = chexus.validate(next(file), validators=chexus.validators.base_validators(has_scipp=True))
    file.close()
    assert sum(result.checks for result in checked.values()) > 10
    for result in checked.values():
        for violation in result.violations:
            yield f"{violation.name}: {result.validator.name}"


def ask_nexusformat(path: Path):
    nexusformat = pytest.importorskip("nexusformat.nexus")
    root = nexusformat.nxload(path)

    def look(group):
        if group.nxclass == "NXdata":
            signal, axes = group.nxsignal, group.nxaxes
            if signal is None or axes is None or len(axes) != signal.ndim:
                yield f"{group.nxpath}: no signal with its axes"
        for item in group.entries.values():
            if isinstance(item, nexusformat.NXgroup):
                yield from look(item)

    yield from look(root)
    with h5py.File(path) as plain:
        for name, seen in each_dataset(plain).items():
            if not is_same(root[name].nxdata, seen):
                yield f"{name}: other values"


def ask_silx(path: Path):
    silx = pytest.importorskip("silx.io")
    from silx.io.nxdata import NXdata

    with h5py.File(path) as plain, silx.open(str(path)) as file:
        for name, seen in each_dataset(plain).items():
            if not is_same(file[name][()], seen):
                yield f"{name}: other values"

        def look(group):
            if group.attrs.get("NX_class") == "NXdata":
                shown = NXdata(group)
                if not shown.is_valid:
                    yield f"{group.name}: {' '.join(shown.issues)}"
            for item in group.values():
                if silx.is_group(item):
                    yield from look(item)

        yield from look(file)


# punx takes from Qt only the place of a file with settings, which is not worth a window system.
QT = """
class QSettings:
    IniFormat = UserScope = 0

    def __init__(self, file, *_):
        self.file = str(file or {folder!r} + "/punx.ini")

    def fileName(self):
        return self.file

    def value(self, _, default=None):
        return default

    def setValue(self, *_):
        pass

    def sync(self):
        pass
"""

# All files by one process: to read its definitions takes it longer than a file.
PUNX = """
import json, sys
import hdf5plugin
from punx.validate import Data_File_Validator

validator = Data_File_Validator()
for path in sys.argv[1:]:
    try:
        validator.validate(path)
        found = [(f.h5_address, str(f.status), f.test_name, f.comment) for f in validator.validations]
    except Exception as error:
        found = [("/", "CRASH", type(error).__name__, str(error))]
    validator.close()
    print(json.dumps(found))
"""


def ask_punx(files: dict[str, Path], folder: Path):
    for needed in ("lxml", "punx"):
        pytest.importorskip(needed)
    (folder / "PyQt5").mkdir()
    (folder / "PyQt5" / "__init__.py").touch()
    (folder / "PyQt5" / "QtCore.py").write_text(QT.format(folder=str(folder)))
    answer = subprocess.run(
        [sys.executable, "-c", PUNX, *files.values()],
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    for kind, line in zip(files, answer.stdout.splitlines(), strict=True):
        found = json.loads(line)
        for address, status, test, comment in found:
            if status in ("ERROR", "WARN", "CRASH"):
                yield f"{kind} {address}: {status} {test}: {comment}"


def of(tool: str) -> list[re.Pattern]:
    return [re.compile(pattern) for name, pattern, _ in KNOWN if name == tool]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tool", TOOLS)
def test_a_tool_reads_all_of_a_file_and_says_nothing_new(said, tool, kind):
    mine = [line for line in said(tool) if line.startswith(f"{kind} ")]
    new = [line for line in mine if not any(pattern.fullmatch(line) for pattern in of(tool))]
    assert not new, "\n".join(new)


def test_an_array_has_its_errors_as_variances_and_a_coordinate_its_dimensions(files):
    snx = pytest.importorskip("scippnexus")
    for kind in PACKED:
        with snx.File(files[kind]) as file:
            array = file["entry/monitor"][()]
        # As many columns as there are times, so that by its shape `height` could be one of them.
        assert array.sizes == {"time": TIMES, "x": TIMES, "tof": 4}
        assert array.coords["height"].dims == ("x", "tof") and array.coords.is_edges("tof")
        assert np.allclose(array.values, array.variances)


@pytest.mark.parametrize("tool", TOOLS)
def test_what_is_known_of_a_tool_is_still_what_it_says(said, tool):
    lines = said(tool)
    stale = [pattern.pattern for pattern in of(tool) if not any(map(pattern.fullmatch, lines))]
    assert not stale
