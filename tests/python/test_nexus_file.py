"""A file written from streams loads where users load it. What other tools say: `test_nexus_tools.py`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import warnings
from pathlib import Path

import h5py
import pytest
import sums
from blake3_by_rule import blake3

ROOT = Path(__file__).resolve().parents[2]
HANG_S = 120.0

SOURCES = """
instrument = "amor"
data = "{data}"

[source.detector]
kind = "sim"
model = "amor"
rate = 2e5
seed = 7

[source.monitor]
kind = "sim"
model = "amor-monitor"

[source.devices]
kind = "sim"
model = "amor-devices"
"""
INSTRUMENT = (
    SOURCES
    + """
[sink.file]
kind = "nexus"
template = "amor.nexus.json"
file = "{{run}}.nxs"

[run.first]
start = "now"
duration = "3 s"
"""
)


@pytest.fixture(scope="module")
def programs(tmp_path_factory) -> Path:
    """A folder with `beamport` and `beamport-nexus`: those on PATH, else those in `target`."""
    on_path = shutil.which("beamport")
    if on_path and (Path(on_path).resolve().parent / "beamport-nexus").is_file():
        return Path(on_path).resolve().parent
    folder = tmp_path_factory.mktemp("programs")
    for name, kinds in (("beamport", ("release", "debug")), ("beamport-nexus", ("release",))):
        found = [ROOT / "target" / kind / name for kind in kinds]
        program = next((path for path in found if path.is_file()), None)
        if program is None:
            pytest.skip(f"`{name}` is neither on PATH nor in target: `pip install .`")
        shutil.copy2(program, folder)
    return folder


def writer_job(data: Path, template: Path, output: Path, *, layout: str = "nexus", detached: bool = False) -> str:
    """What `beamport-nexus write` reads from its stdin: the file of run `r`, of the stream `all`."""
    no_time = {"secs": 0, "nanos": 0}
    writer = {"layout": layout, "topics": {}, "modules": [], "folder": "", "time_max": no_time}
    job = {"data": str(data), "sink": "file", "run": "r", "inputs": ["all"], "work": {"template": str(template)}}
    job |= {"output": str(output), "flush": {"secs": 1, "nanos": 0}, "hold": no_time, "whole": False}
    job |= {"detached": detached}
    return json.dumps(job | {"elsewhere": {"streams": []}, "writer": writer})


def measure(programs: Path, folder: Path, template: str, layout: str = "nexus", again: Path | None = None):
    """A measurement of three seconds: the report of `beamport up --json`, and the file, in `folder`; made again to `again`."""
    data = Path(tempfile.mkdtemp(prefix="beamport-test-", dir="/dev/shm"))
    (folder / "amor.nexus.json").write_text(template)
    instrument = INSTRUMENT.format(data=data).replace("template =", f'layout = "{layout}"\ntemplate =')
    (folder / "amor.toml").write_text(instrument)
    answer = subprocess.run(
        [programs / "beamport", "up", "amor.toml", "--json"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    sums.printed(answer.stdout)
    report = json.loads(answer.stdout.splitlines()[-1])
    kept = folder / "first.nxs"
    shutil.copy2(report["file"], kept)
    if again is not None:
        write = [programs / "beamport", "write", report["run"], "--output", again, "--data", data]
        subprocess.run(write, check=True, timeout=HANG_S, capture_output=True)
    shutil.rmtree(data)
    return report, kept


@pytest.fixture(scope="module")
def measured(programs, tmp_path_factory):
    """A measurement with the template of the examples."""
    template = (ROOT / "examples" / "amor.nexus.json").read_text()
    return measure(programs, tmp_path_factory.mktemp("measured"), template)


def test_the_file_has_the_size_and_hash_of_the_report(measured):
    report, path = measured
    assert path.stat().st_size == report["size"]
    assert blake3(path.read_bytes()) == report["blake3"]


def test_events_load_as_binned_data(measured):
    sc = pytest.importorskip("scipp")
    snx = pytest.importorskip("scippnexus")
    report, path = measured
    sent = next(s for s in report["streams"] if s["name"] == "detector")
    with warnings.catch_warnings():
        # A broken NXevent_data is only a warning and a plain group.
        warnings.simplefilter("error")
        with snx.File(path) as file:
            events = file["entry/instrument/detector/data"][()]
            assert isinstance(events, sc.DataArray)
            assert events.bins is not None
            assert events.bins.size().sum().value == sent["events"] > 0
            assert events.coords["event_time_zero"].dtype == sc.DType.datetime64
            assert events.bins.coords["event_time_offset"].unit == "ns"
            assert events.sizes["event_time_zero"] == sent["messages"]

            monitor = file["entry/instrument/monitor/data"][()]
            assert isinstance(monitor, sc.DataArray)
            assert monitor.dims == ("time", "tof")
            assert monitor.coords.is_edges("tof")

            angle = file["entry/sample/mu"][()]
            assert isinstance(angle, sc.DataArray)
            assert angle.unit == "deg"
            assert angle.coords["time"].dtype == sc.DType.datetime64
            assert angle.coords["minimum_value"].value == angle.min().value
            assert angle.coords["maximum_value"].value == angle.max().value


@pytest.mark.parametrize("compression", ["bitshuffle-lz4", "deflate"])
def test_packed_datasets_are_read_as_plain_ones_and_are_smaller(programs, tmp_path, compression):
    pytest.importorskip("hdf5plugin")  # h5py knows bitshuffle from then on
    modules = {"ev44": "detector", "da00": "monitor"}
    variables = {"variables": [{"name": "signal"}], "constants": [{"name": "tof"}]}
    groups = [
        {
            "type": "group",
            "name": f"{module}_{word}",
            "children": [
                {
                    "module": module,
                    "config": {"stream": stream, "compression": packed} | (variables if module == "da00" else {}),
                }
            ],
        }
        for module, stream in modules.items()
        for word, packed in (("plain", {}), ("packed", compression))
    ]
    # The last chunk is not whole; a small one is not packed.
    numbers = {"dtype": "int32", "range": {"first": 1, "shape": [700, 1000]}, "compression": compression}
    values = {"dtype": "double", "values": [0.5 * n for n in range(2000)], "compression": compression}
    few = {"values": [[1, 2], [3, 4]], "compression": compression}
    fixed = {"numbers": numbers, "values": values, "few": few}
    groups += [{"module": "dataset", "config": {"name": name, **config}} for name, config in fixed.items()]
    entry = {"type": "group", "name": "entry", "attributes": {"NX_class": "NXentry"}, "children": groups}
    _, path = measure(programs, tmp_path, json.dumps({"children": [entry]}))
    with h5py.File(path) as file:
        numbers, values, few = (file[f"entry/{name}"] for name in fixed)
        assert numbers[()].ravel().tolist() == list(range(1, 700_001)) and numbers.shape == (700, 1000)
        assert values[()].tolist() == [0.5 * n for n in range(2000)]
        assert few[()].tolist() == [[1, 2], [3, 4]] and few.chunks is None
        assert numbers.id.get_storage_size() < 0.5 * numbers.nbytes
        for module in modules:
            plain, packed = (file[f"entry/{module}_{word}"] for word in ("plain", "packed"))
            assert set(plain) == set(packed)
            for name in plain:
                assert plain[name].dtype == packed[name].dtype
                assert (plain[name][()] == packed[name][()]).all(), name
        ids, counts = file["entry/ev44_packed/event_id"], file["entry/da00_packed/signal"]
        assert len(ids) > 100_000 and len(counts) > 1
        assert ids.id.get_storage_size() < 0.7 * ids.nbytes
        assert ids.id.get_create_plist().get_nfilters() == (2 if compression == "deflate" else 1)


def test_in_the_layout_of_ess_names_and_types_are_those_of_its_writer(programs, tmp_path):
    template = (ROOT / "examples" / "amor.nexus.json").read_text()
    report, path = measure(programs, tmp_path, template, "ess", tmp_path / "again.nxs")
    sent = next(s for s in report["streams"] if s["name"] == "detector")
    for file in (path, tmp_path / "again.nxs"):
        with h5py.File(file) as nexus:
            events = nexus["entry/instrument/detector/data"]
            types = {name: dataset.dtype.str[1:] for name, dataset in events.items()}
            assert types == {
                "event_id": "i4",
                "event_time_offset": "i4",
                "event_time_zero": "u8",
                "event_index": "i8",
                "cue_index": "i8",
                "cue_timestamp_zero": "i8",
            }
            assert len(events["event_id"]) == sent["events"] > 0
            assert events["event_time_zero"].attrs["start"] == "1970-01-01T00:00:00Z"
            assert events.attrs["topic"] == "detector" and "stream" not in events.attrs
            angle = nexus["entry/sample/mu"]
            assert angle["time"].dtype == "u8" and {"alarm_time", "connection_status"} <= set(angle)


def test_the_account_and_the_truth_stand_in_the_file(measured):
    report, path = measured
    with h5py.File(path) as file:
        ours = file["entry/beamport"]
        account = json.loads(ours["account"][()])
        sums.adds_up(account)
        assert account["closed"] is True and ours["closed"][()] == 1
        assert ours["lost"][()] == 0
        assert ours["entries/sent"][()].sum() == sum(e["sent"] for e in account["entries"])
        assert "mu_degrees" in ours["metadata"][()].decode()
        assert file.attrs["creator"].startswith("beamport ")
        assert file["entry/start_time"][()].decode().endswith("Z")
        assert file["entry/end_time"][()] > file["entry/start_time"][()]
        events = file["entry/instrument/detector/data"]
        # The widths that Mantid reads.
        assert events["event_id"].dtype == "u4" and events["event_index"].dtype == "u8"
        assert events["event_time_zero"].dtype == "u8" and set(events["event_time_zero"].attrs) == {"units", "offset"}
        assert events["event_time_offset"].dtype == "i4"


def test_a_template_with_mistakes_is_told_whole(programs, tmp_path):
    template = tmp_path / "wrong.json"
    template.write_text('{"children": [{"type": "group", "nam": "entry"}, {"module": "ev45", "config": {}}]}')
    answer = subprocess.run(
        [programs / "beamport-nexus", "check", template, "--json"],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert answer.returncode == 1
    pointers = [mistake["pointer"] for mistake in json.loads(answer.stdout)["mistakes"]]
    assert pointers == ["/children/0/nam", "/children/0", "/children/1/module"]


def test_the_check_of_a_template_answers_its_modules_also_where_it_has_mistakes(programs, tmp_path):
    config = {"topic": "devices", "source": "T", "unit": "K", "dtype": "flot"}
    template = tmp_path / "wrong.json"
    template.write_text(json.dumps({"children": [{"module": "f144", "config": config}]}))
    answer = subprocess.run(
        [programs / "beamport-nexus", "check", template, "--json"],
        capture_output=True,
        timeout=HANG_S,
        check=False,
    )
    answer = json.loads(answer.stdout)
    (mistake,), (module,) = answer["mistakes"], answer["modules"]
    assert (mistake["level"], mistake["pointer"]) == ("error", "/children/0/config/dtype")
    assert module == {
        "pointer": "/children/0/config",
        "module": "f144",
        "key": "topic",
        "streams": ["devices"],
        "source": "T",
        "units": {"key": "unit", "text": "K"},
        "variables": [],
    }


def test_mistakes_of_a_template_and_of_its_streams_are_told_together(programs, tmp_path):
    modules = [
        '{"module": "f144", "config": {"stream": "devces", "source": 7}}',
        '{"module": "f144", "config": {"stream": "devices", "source": "AMOR:SE:TEMP02"}}',
        '{"module": "da00", "config": {"stream": "monitor",\n "variables": [{"name": "signol"}]}}',
        '{"module": "ev45", "config": {"stream": "devices"}}',
    ]
    groups = (f'{{"type": "group", "name": "g{n}", "children": [{one}]}}' for n, one in enumerate(modules))
    (tmp_path / "t.json").write_text('{"children": [\n' + ",\n".join(groups) + "]}")
    sources = ("devices", "amor-devices"), ("monitor", "amor-monitor")
    text = "".join(f'[source.{name}]\nkind = "sim"\nmodel = "{model}"\n' for name, model in sources)
    (tmp_path / "a.toml").write_text(
        f'instrument = "a"\n{text}[sink.f]\nkind = "nexus"\ntemplate = "t.json"\nwriters = 2\n'
    )
    command = [programs / "beamport", "check", "a.toml", "--json"]
    told = subprocess.run(command, capture_output=True, cwd=tmp_path, timeout=HANG_S, check=False)
    assert told.returncode == 2
    found = [(one["line"], one["pointer"]) for one in json.loads(told.stdout)["mistakes"]]
    at = "/children/{}/children/0/"
    assert found == [
        (2, at.format(0) + "config/source"),
        (2, at.format(0) + "config/stream"),
        (3, at.format(1) + "config/source"),
        (5, at.format(2) + "config/variables/0/name"),
        (6, at.format(3) + "module"),
    ], told.stdout
    # A comma too much has its line, and no pointer.
    (tmp_path / "t.json").write_text('{"children": [\n1,\n,]}')
    told = subprocess.run(command[:3], capture_output=True, cwd=tmp_path, timeout=HANG_S, check=False)
    assert b"t.json:3: the template has a mistake\ncause: it is not valid JSON: expected value, at col" in told.stderr


@pytest.mark.parametrize("words", [[], ["--word-of-tomorrow", "1"]])
@pytest.mark.parametrize("is_whole", [True, False])
def test_what_another_beamport_asks_for_was_asked_for_again_and_again(programs, tmp_path, words, is_whole):
    # In the words of an earlier version, with a field of a later one, or without one.
    job = json.loads(writer_job(tmp_path, tmp_path / "t.json", tmp_path / "x.nxs"))
    if is_whole:
        job["field_of_tomorrow"] = 1
    else:
        del job["flush"]
    answer = subprocess.run(
        [programs / "beamport-nexus", "write", *words],
        input=json.dumps(job),
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    # The status that says: do not start me again.
    assert answer.returncode == 3
    fault = json.loads(answer.stdout.splitlines()[-1])["fault"]
    cause = "--word-of-tomorrow" if words else "field_of_tomorrow" if is_whole else "`flush`"
    assert "does not fit" in fault["what"] and cause in fault["cause"] and fault["hint"]


def test_a_measured_histogram_is_handed_over(programs, tmp_path):
    import numpy as np

    counts = np.arange(2 * 3 * 4, dtype="i4").reshape(2, 3, 4)
    path = tmp_path / "measured.h5"
    with h5py.File(path, "w") as file:
        group = file.create_group("entry/bank")
        group.create_dataset("data", data=counts, chunks=(1, 3, 4), compression="gzip").attrs["signal"] = 1
        group.create_dataset("time_of_flight", data=np.array([1.0, 2, 3, 4, 5])).attrs["units"] = "us"
        file.create_dataset("larger", data=np.zeros((9, 9, 9), "i4"))
        file.create_dataset("elsewhere", (2, 3, 400), "i4", external=[("/etc/passwd", 0, 9600)]).attrs["signal"] = 1
    out = subprocess.run(
        [programs / "beamport-nexus", "histogram", path], capture_output=True, timeout=HANG_S, check=True
    ).stdout
    assert out[:4] == b"bphg"
    assert np.frombuffer(out, "u4", 5, 4).tolist() == [1, 2, 3, 4, 0]
    assert np.frombuffer(out, "f8", 5, 24).tolist() == [1e3, 2e3, 3e3, 4e3, 5e3]
    assert (np.frombuffer(out, "u4", 24, 64).reshape(2, 3, 4) == counts).all()


def test_hostile_files_give_an_error_and_no_histogram(programs, tmp_path):
    import numpy as np

    good = tmp_path / "good.h5"
    with h5py.File(good, "w") as file:
        file.create_dataset("data", data=np.ones((4, 4, 4), "i4"))
        file.create_dataset("tof", data=np.arange(5.0)).attrs["units"] = "us"
        file["loop"] = h5py.SoftLink("/")
        file["outside"] = h5py.ExternalLink("/etc/passwd", "/")
    original = good.read_bytes()
    rng = np.random.default_rng(20261121)
    counts = {0: 0, 2: 0, "killed": 0}
    for _ in range(60 if os.environ.get("BEAMPORT_SOAK") != "1" else 2000):
        damaged = bytearray(original)
        for at in rng.integers(0, len(damaged), 1 + rng.integers(40)):
            damaged[at] = rng.integers(256)
        path = tmp_path / "damaged.h5"
        path.write_bytes(damaged[: rng.integers(len(damaged)) if rng.random() < 0.2 else len(damaged)])
        answer = subprocess.run(
            [programs / "beamport-nexus", "histogram", path], capture_output=True, timeout=HANG_S, check=False
        )
        # libhdf5 may end its own process, and only that.
        counts[answer.returncode if answer.returncode in (0, 2) else "killed"] += 1
        assert answer.returncode != 0 or answer.stdout[:4] == b"bphg"
        assert answer.returncode != 2 or b"cause:" in answer.stderr
    print(f"injected damage into {sum(counts.values())} files: {counts}")
    assert counts["killed"] == 0
