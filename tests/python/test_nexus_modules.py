"""Messages of every schema that a NeXus file takes, made by other implementations, load where users load them."""

from __future__ import annotations

import datetime
import json
import subprocess
import warnings
from pathlib import Path

import beamport
import h5py
import numpy as np
import pytest
import streaming_data_types as sdt
from beamport._core import _Writer
from payloads import SECOND, T0, bprn
from streaming_data_types.alarm_al00 import Severity
from streaming_data_types.area_detector_ad00 import Attribute
from streaming_data_types.dataarray_da00 import Variable
from streaming_data_types.epics_connection_ep01 import ConnectionInfo
from test_nexus_file import HANG_S, ROOT, programs  # noqa: F401

VECTORS = ROOT / "tests" / "vectors" / "wire"
# Each message comes so many times, a second apart.
TIMES = 5


def module(word: str, source: str | None = None, **settings) -> dict:
    named = {} if source is None else {"source": source}
    return {"module": word, "config": {"stream": "all", **named, **settings}}


MODULES = {
    "events": module("ev44", "grace"),
    "log": module("f144", "a", value_units="K", enable_alarm_info=True, enable_epics_con_info=True),
    "chopper": module("tdct", "chopper"),
    "samples": module("se00", "magnet", value_units="T"),
    "image": module("hs01", "just-bin-it"),
    "plain": module("hs00", "plain"),
    "raw": module("ar51", "detector"),
    "text": module("json"),
    "camera": module("ad00", "camera"),
    "bare": module("ad00", "bare"),
    "spectrum": module("da00", "monitor", variables=[{"name": "signal"}, {"name": "proton_charge"}]),
}


ATTRIBUTES = [Attribute("exposure", "how long", "pv", 0.5), Attribute("mode", "", "", "mono")]


def histogram(source: str, time: int, n: int, **more) -> dict:
    edges = [
        {"length": 2, "unit": "", "label": "row", "bin_boundaries": np.array([0.0, 1.0, 2.0])},
        {"length": 3, "unit": "us", "label": "time of flight", "bin_boundaries": np.array([0.0, 0.5, 1.0, 1.5])},
    ]
    data = np.arange(6, dtype="i4").reshape(2, 3) + n
    return {"source": source, "timestamp": time, "current_shape": [2, 3], "dim_metadata": edges, "data": data, **more}


def messages(time: int, n: int) -> list[bytes]:
    when = datetime.datetime.fromtimestamp(time / 1e9, tz=datetime.UTC)
    pixels = np.arange(1, n + 1, dtype="u4")
    errors = np.sqrt(np.arange(6.0)).reshape(2, 3)
    return [
        sdt.serialise_ev42("grace", n, time, 1000 * pixels, pixels),
        sdt.serialise_f144("a", 1.5 * n, time),
        # What a forwarder sends again.
        sdt.serialise_f144("a", 1.5 * n, time),
        sdt.serialise_ep01(time, ConnectionInfo.CONNECTED, "a"),
        sdt.serialise_al00("a", time, Severity.MINOR, "warm"),
        sdt.serialise_tdct("chopper", np.array([time, time + SECOND // 2], dtype="u8")),
        sdt.serialise_senv("magnet", 0, when, SECOND // 10, n, np.array([n, -n], dtype="i2")),
        sdt.serialise_hs01(histogram("just-bin-it", time, n, errors=errors)),
        sdt.serialise_hs01(histogram("plain", time, n)),
        (VECTORS / "ar51.bin").read_bytes(),
        sdt.serialise_json(json.dumps({"n": n})),
        # As many rows of pixels, and as many bins, as there are messages: lengths do not tell one dimension from another.
        sdt.serialise_ad00("camera", n, time, np.full((TIMES, TIMES), n, dtype="u2"), attributes=ATTRIBUTES),
        sdt.serialise_ad00("bare", n, time, np.full((2, 3), n, dtype="u2"), attributes=[]),
        sdt.serialise_da00(
            "monitor",
            time,
            [Variable("signal", np.full(TIMES, n), axes=["tof"], unit="counts"), Variable("proton_charge", float(n))],
        ),
    ]


def written(programs: Path, data: Path, out: Path, modules: dict, sent: list[tuple[int, bytes]], first=0) -> dict:  # noqa: F811
    """Writes the messages, each with its time, to a file by the program; returns the account in the file.

    `first`: where the range of the sealed run begins.
    """
    with _Writer(data / "all") as writer:
        for time, payload in sent:
            writer.append(payload, time)
    stream = beamport.open(data)["all"]
    span = [("all", stream.uuid, stream.epoch, first, len(sent))]
    with _Writer(data / "runs") as writer:
        writer.append(bprn("r", "sealed", T0, T0 + 3600 * SECOND, streams=span), T0)
    groups = [{"type": "group", "name": name, "children": [one]} for name, one in modules.items()]
    entry = {"type": "group", "name": "entry", "attributes": {"NX_class": "NXentry"}, "children": groups}
    template = out.with_suffix(".json")
    template.write_text(json.dumps({"children": [entry]}))
    answer = subprocess.run(
        [programs / "beamport", "write", "r", "--output", out, "--template", template, "--data", data],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    with h5py.File(out) as file:
        return json.loads(file["entry/beamport/account"][()])


@pytest.fixture
def file(programs, memory, tmp_path):  # noqa: F811
    sent = [(T0 + n * SECOND, payload) for n in range(TIMES) for payload in messages(T0 + n * SECOND, n)]
    account = written(programs, memory, tmp_path / "all.nxs", MODULES, sent)
    (row,) = account["rows"]
    assert (row["read"], row["aside"], row["lost"]) == (len(sent), {"repeated": TIMES}, {})
    assert account["closed"] is True
    return tmp_path / "all.nxs"


def test_the_datasets_hold_what_was_sent(file):
    times = T0 + np.arange(TIMES) * SECOND
    with h5py.File(file) as nexus:
        entry = nexus["entry"]
        events = entry["events"]
        assert events["event_index"][()].tolist() == [0, 0, 1, 3, 6]
        assert events["event_id"][()].tolist() == [1, 1, 2, 1, 2, 3, 1, 2, 3, 4]
        assert events["event_time_offset"].dtype == "i4" and events["event_time_zero"].dtype == "u8"
        log = entry["log"]
        assert log.attrs["NX_class"] == "NXlog" and log.attrs["writer_module"] == "f144"
        assert log["value"][()].tolist() == [1.5 * n for n in range(TIMES)]
        for name in ("time", "alarm_time", "connection_status_time"):
            assert (log[name][()] == times).all() and log[name].attrs["units"] == "ns", name
        assert log["connection_status"].dtype == "i2" and set(log["connection_status"][()]) == {2}
        assert log["alarm_message"][0] == b"warm"
        assert (entry["chopper/time"][()] == np.repeat(times, 2) + [0, SECOND // 2] * TIMES).all()
        assert entry["samples/value"][()].tolist() == [0, 0, 1, -1, 2, -2, 3, -3, 4, -4]
        assert (entry["samples/time"][1::2] - entry["samples/time"][::2] == SECOND // 10).all()
        assert entry["image/data"].shape == entry["image/errors"].shape == (TIMES, 2, 3)
        assert entry["image/axis_1"].attrs["long_name"] == "time of flight"
        assert "errors" not in entry["plain"]
        raw = entry["raw"]
        assert raw["raw_data"][()].tolist() == [0, 1, 255] * TIMES
        assert raw["raw_data_index"][()].tolist() == [0, 3, 6, 9, 12] and (raw["time"][()] == times).all()
        text = entry["text"]
        ends = [*text["text_index"][1:], len(text["text"])]
        texts = [bytes(text["text"][a:b]) for a, b in zip(text["text_index"], ends, strict=True)]
        assert [json.loads(one)["n"] for one in texts] == list(range(TIMES))


def test_scippnexus_loads_every_class(file):
    sc = pytest.importorskip("scipp")
    snx = pytest.importorskip("scippnexus")
    with warnings.catch_warnings():
        # What does not fit together is only a warning and a plain group.
        warnings.simplefilter("error")
        with snx.File(file) as nexus:
            entry = nexus["entry"]
            events = entry["events"][()]
            assert isinstance(events, sc.DataArray) and events.bins.size().values.tolist() == [0, 1, 2, 3, 4]
            log = entry["log"][()]
            assert set(log) == {"value", "alarm", "connection_status"}
            assert all(isinstance(one, sc.DataArray) for one in log.values())
            assert log["value"].unit == "K" and log["value"].coords["time"].dtype == sc.DType.datetime64
            samples = entry["samples"][()]
            assert isinstance(samples, sc.DataArray) and samples.sizes == {"time": 2 * TIMES}
            for name in ("image", "plain"):
                image = entry[name][()]
                assert isinstance(image, sc.DataArray), name
                assert image.sizes == {"time": TIMES, "axis_0": 2, "axis_1": 3}
                assert image.unit == "counts" and image.coords["axis_1"].unit == "us"
                assert image.coords.is_edges("axis_0") and image.coords.is_edges("axis_1")
                assert (image.variances is not None) == (name == "image")
            assert entry["chopper"][()].sizes == {"time": 2 * TIMES}
            for name, sides in (("camera", [TIMES, TIMES]), ("bare", [2, 3])):
                frames = entry[name][()]
                assert isinstance(frames, sc.DataArray), name
                assert frames.sizes == dict(zip(["time", "dim_1", "dim_2"], [TIMES, *sides], strict=True))
                assert {"time", "id", "arrival_time", "source"} <= set(frames.coords)
            assert entry["camera_metadata"][()]["exposure"].values.tolist() == [0.5] * TIMES
            spectrum = entry["spectrum"][()]
            assert isinstance(spectrum, sc.DataArray) and spectrum.sizes == {"time": TIMES, "tof": TIMES}
            charge = spectrum.coords["proton_charge"]
            assert charge.dims == ("time",) and charge.values.tolist() == list(range(TIMES))


def test_recorded_messages_of_a_facility_load(programs, memory, tmp_path):  # noqa: F811
    folder = ROOT.parent / "shared" / "data" / "vectors"
    if not folder.is_dir():
        pytest.skip("no recorded messages beside the repository (../shared/data/vectors)")
    snx = pytest.importorskip("scippnexus")
    names = ("al00", "ev42", "f144", "hs01")
    sent = [(T0, (folder / f"{name}.bin").read_bytes()) for name in names]
    modules = {name: {"module": name, "config": {"stream": "all"}} for name in names}
    account = written(programs, memory, tmp_path / "recorded.nxs", modules, sent)
    assert account["rows"][0]["done"] == len(sent)
    with warnings.catch_warnings(), snx.File(tmp_path / "recorded.nxs") as nexus:
        warnings.simplefilter("error")
        events, image = nexus["entry/ev42"][()], nexus["entry/hs01"][()]
        assert events.bins.size().sum().value == 1629
        assert image.sizes == {"time": 1, "axis_0": 64, "axis_1": 200}
        assert image.coords.is_edges("axis_0") and image.coords.is_edges("axis_1")


@pytest.mark.parametrize("first", [0, 3, 9])
def test_a_log_begins_with_the_last_value_before_the_run(programs, memory, tmp_path, first):  # noqa: F811
    f144, al00 = sdt.serialise_f144, sdt.serialise_al00
    before = [
        (-9, f144("still", 1.0, T0 - 9 * SECOND)),
        (-8, f144("moves", 2.0, T0 - 8 * SECOND)),
        (-7, sdt.serialise_ev44("grace", 1, [T0 - 7 * SECOND], [0], [1], [1])),
        (-6, f144("still", 3.0, T0 - 6 * SECOND)),
        (-5, al00("moves", T0 - 5 * SECOND, Severity.MINOR, "warm")),
        (-4, f144("moves", 4.0, T0 - 4 * SECOND)),
        (-3, f144("nobody", 5.0, T0 - 3 * SECOND)),
        # The same again, as a forwarder sends it: that of the run is not written twice.
        (-2, f144("again", 6.0, T0 + SECOND)),
        (-1, sdt.serialise_tdct("chopper", np.array([T0 - SECOND], dtype="u8"))),
    ]
    during = [
        (1, f144("moves", 7.0, T0 + SECOND)),
        (1, f144("again", 6.0, T0 + SECOND)),
        (2, sdt.serialise_ev44("grace", 2, [T0 + 2 * SECOND], [0], [1], [2])),
        (3, sdt.serialise_tdct("chopper", np.array([T0 + 3 * SECOND], dtype="u8"))),
    ]
    modules = {
        "still": module("f144", "still"),
        "moves": module("f144", "moves", enable_alarm_info=True),
        "again": module("f144", "again"),
        "never": module("f144", "never"),
        "events": module("ev44", "grace"),
        "chopper": module("tdct", "chopper"),
    }
    sent = [(T0 + at * SECOND, payload) for at, payload in before + during]
    account = written(programs, memory, tmp_path / "last.nxs", modules, sent, first)
    (row,) = account["rows"]
    assert (row["read"], row["aside"], row["lost"]) == (4, {"repeated": 1}, {})
    with h5py.File(tmp_path / "last.nxs") as nexus:
        values = {name: nexus[f"entry/{name}/value"][()].tolist() for name in ("still", "moves", "again", "never")}
        assert values == {"still": [3.0], "moves": [4.0, 7.0], "again": [6.0], "never": []}
        assert nexus["entry/moves/time"][()].tolist() == [T0 - 4 * SECOND, T0 + SECOND]
        assert nexus["entry/moves/alarm_message"][()].tolist() == [b"warm"]
        assert nexus["entry/moves/average_value"][()] == 5.5
        # What was counted before the run is not of it.
        assert nexus["entry/events/event_id"][()].tolist() == [2]
        assert nexus["entry/chopper/time"][()].tolist() == [T0 + 3 * SECOND]
