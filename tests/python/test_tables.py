"""Streams as tables and arrays of pandas, xarray and scipp."""

from __future__ import annotations

import sys

import beamport
import numpy as np
import pandas
import pytest
import scipp
import xarray
from beamport._core import _Writer
from payloads import SECOND, T0, ev44, f144, pixels_of, write_events
from streaming_data_types import serialise_ev44

TIMES = np.array([T0, T0 + SECOND, T0 + 2 * SECOND], "datetime64[ns]")


@pytest.fixture
def devices(memory):
    """Three values each of two PVs, and an alarm."""
    data = beamport.open(memory)
    with data.create("devices") as stream:
        for n in range(3):
            for name in ("T", "p"):
                stream.append("f144", {"source_name": name, "timestamp": T0 + n * SECOND, "value": n + 0.5})
        stream.append("al00", {"source_name": "T", "timestamp": T0 + 9, "severity": "MAJOR", "message": "hot"})
    return data["devices"]


def array(stream, number: int, q=(1.0, 2.0, 3.0), unit: str = "counts", **more) -> None:
    """A data array: two values with edges, errors and an attribute."""
    data = [
        {"name": "signal", "data": np.array([1.0, 2.0]) + number, "axes": ["q"], "unit": unit},
        {"name": "errors", "data": np.array([0.5, 1.0]), "axes": ["q"], "unit": unit},
        {"name": "q", "data": np.array(q), "axes": ["q"], "unit": "1/angstrom"},
        {"name": "beam", "data": 2.0 * number},
        *({"name": name, "data": value} for name, value in more.items()),
    ]
    stream.append("da00", {"source_name": "iq", "timestamp": T0 + number * SECOND, "data": data})


def test_values_as_pandas(devices):
    table = devices.to_pandas(origin="T", schema="f144")
    assert list(table.columns) == ["origin", "value"]
    assert table["value"].tolist() == [0.5, 1.5, 2.5] and set(table["origin"]) == {"T"}
    assert str(table.index.dtype) == "datetime64[ns, UTC]" and table.index.name == "time"
    assert (table.index.tz_localize(None).to_numpy() == TIMES).all()
    assert len(devices.to_pandas(start=-3)) == len(devices[-3:].to_pandas()) == 3
    assert len(devices.to_pandas(since=T0 + SECOND, until=T0 + 2 * SECOND)) == 2
    assert len(devices.to_pandas(stop=4)) == len(devices.to_pandas(limit=4)) == 4
    # Several schemas: their columns together, and which it is.
    both = devices.to_pandas(origin="T")
    assert sorted(both["schema"]) == ["al00", "f144", "f144", "f144"]
    assert both["severity"].dropna().tolist() == ["MAJOR"]
    empty = devices.to_pandas(limit=0)
    assert len(empty) == 0 and list(empty.columns) == ["origin", "value"] and empty.index.tz is not None


def test_values_as_arrays_over_time(devices):
    of_xarray, of_scipp = (getattr(devices, how)(schema="f144") for how in ("to_xarray", "to_scipp"))
    assert of_xarray.dims == ("time",) and of_xarray.name == "devices"
    assert of_xarray.sel(time=TIMES[1]).values.tolist() == [1.5, 1.5]
    assert of_xarray["origin"].values.tolist() == ["T", "p"] * 3
    assert of_scipp.dims == ("time",) and of_scipp.unit == "one"
    assert of_scipp.coords["time"].values.tolist() == np.repeat(TIMES, 2).tolist()
    assert list(of_scipp.coords["origin"].values) == ["T", "p"] * 3
    for how in ("to_xarray", "to_scipp"):
        with pytest.raises(beamport.Error, match="schemas f144 and al00") as refused:
            getattr(devices, how)()
        assert 'schema="f144"' in refused.value.hint
        assert len(getattr(devices, how)(limit=0)) == 0


def test_arrays_of_values_texts_and_shapes_that_differ(memory):
    data = beamport.open(memory)
    with data.create("waves") as stream:
        for n in range(3):
            stream.append("f144", {"source_name": "w", "timestamp": T0 + n, "value": np.arange(4, dtype="u2") + n})
        stream.append("f144", {"source_name": "v", "timestamp": T0 + 3, "value": [1.0, 2.0]})
        for text in ("open", "shut"):
            stream.append("f142", {"source_name": "s", "timestamp": T0, "value": text})
    waves = data["waves"]
    assert waves.to_xarray(origin="w").dims == waves.to_scipp(origin="w").dims == ("time", "dim_0")
    assert (
        waves.to_xarray(origin="w")[2].values.tolist() == waves.to_scipp(origin="w").values[2].tolist() == [2, 3, 4, 5]
    )
    assert waves.to_pandas(origin="w")["value"].iloc[1].tolist() == [1, 2, 3, 4]
    assert waves.to_xarray(origin="s").values.tolist() == ["open", "shut"]
    assert list(waves.to_scipp(origin="s").values) == ["open", "shut"]
    with pytest.raises(beamport.Error, match=r"shapes \(4,\) and \(2,\)") as refused:
        waves.to_xarray(schema="f144")
    assert refused.value.hint == 'read one origin alone: `origin="w"`'


def test_frames(memory):
    data = beamport.open(memory)
    with data.create("camera") as stream:
        for n in range(3):
            fields = {"source_name": "cam", "id": 5 + n, "timestamp": T0 + n * SECOND, "data": np.full((2, 3), n, "u2")}
            sometimes = [{"name": "shutter", "data": "open"}] if n else []
            stream.append("ad00", fields | {"attributes": [{"name": "gain", "data": 1.5 * n}, *sometimes]})
    camera = data["camera"]
    frames = camera.to_xarray()
    assert (frames.dims, frames.shape, frames.dtype) == (("time", "y", "x"), (3, 2, 3), np.uint16)
    assert frames.mean("time").values.tolist() == [[1, 1, 1], [1, 1, 1]]
    assert (frames["id"].values.tolist(), frames["gain"].values.tolist()) == ([5, 6, 7], [0, 1.5, 3])
    assert "shutter" not in frames.coords
    of_scipp = camera[-2:].to_scipp()
    assert (of_scipp.dims, of_scipp.shape) == (("time", "y", "x"), (2, 2, 3))
    assert of_scipp.values[1].tolist() == [[2, 2, 2], [2, 2, 2]] and of_scipp.coords["gain"].values.tolist() == [1.5, 3]
    table = camera.to_pandas()
    assert table["id"].tolist() == [5, 6, 7] and table["shutter"].isna().tolist() == [True, False, False]


def test_data_arrays_keep_axes_units_and_errors(memory):
    data = beamport.open(memory)
    with data.create("iq") as stream:
        array(stream, 0)
        array(stream, 1, note="dark")
    stream = data["iq"]
    made = stream.to_xarray()
    assert made.dims == ("time", "q") and made.attrs == {"units": "counts"}
    # Edges of bins: an index has as many as there are values.
    assert made["q"].values.tolist() == [1.5, 2.5] and made["q"].attrs["units"] == "1/angstrom"
    assert made["q"].attrs["edges"].tolist() == [1, 2, 3] and made["errors"].values.tolist() == [[0.5, 1], [0.5, 1]]
    assert made["beam"].values.tolist() == [0, 2]
    of_scipp = stream.to_scipp()
    assert of_scipp.unit == "counts" and of_scipp.variances.tolist() == [[0.25, 1], [0.25, 1]]
    assert scipp.identical(of_scipp.coords["q"], scipp.array(dims=["q"], values=[1.0, 2, 3], unit="1/angstrom"))
    assert stream.to_pandas()["beam"].tolist() == [0, 2]
    with data.create("iq") as stream:
        array(stream, 2, q=(1.0, 2.0, 4.0))
    with pytest.raises(beamport.Error, match="axis `q` has other values"):
        data["iq"].to_xarray()


def test_a_unit_that_scipp_does_not_know(memory):
    data = beamport.open(memory)
    with data.create("iq") as stream:
        array(stream, 0, unit="furlongs per <b>")
    with pytest.warns(UserWarning, match="furlongs"):
        assert data["iq"].to_scipp().unit == "one"


def test_events_are_rows(memory):
    write_events(memory / "detector", range(4))
    with _Writer(memory / "detector") as writer:
        # Two pulses in one message.
        times = [T0, T0 + 7]
        writer.append(serialise_ev44("bank1", 9, times, [0, 2], [10, 11, 12], [1, 2, 3]), T0, origin="bank1")
    stream = beamport.open(memory)["detector"]
    table = stream.to_pandas()
    assert list(table.columns) == ["origin", "time_of_flight", "pixel_id"] and len(table) == 15
    assert table["pixel_id"].tolist()[:12] == np.concatenate([pixels_of(n) for n in range(4)]).tolist()
    assert table["origin"].tolist() == ["bank0"] * 12 + ["bank1"] * 3
    last = table[table["origin"] == "bank1"]
    assert [time.value for time in last.index] == [T0, T0, T0 + 7]
    assert last["time_of_flight"].tolist() == [10, 11, 12]
    events = stream.to_scipp()
    assert events.sizes == {"event": 15} and events.unit == "counts"
    assert events.coords["event_id"].values.tolist() == table["pixel_id"].tolist()
    assert events.coords["event_time_offset"].unit == "ns"
    assert events.coords["event_time_zero"].values[-1] == np.datetime64(T0 + 7, "ns")
    assert (
        events.hist(event_time_offset=scipp.array(dims=["event_time_offset"], values=[0, 20], unit="ns")).sum().value
        == 15
    )
    with pytest.raises(beamport.Error, match="list of events"):
        stream.to_xarray()


def test_a_monitor_has_no_pixels_and_empty_messages_no_rows(memory):
    with _Writer(memory / "monitor") as writer:
        writer.append(serialise_ev44("m", 1, [T0], [0], [1, 2], []), T0)
        writer.append(serialise_ev44("m", 2, [T0 + 1], [0], [], []), T0)
    table = beamport.open(memory)["monitor"].to_pandas()
    assert list(table.columns) == ["origin", "time_of_flight"] and table["time_of_flight"].tolist() == [1, 2]
    assert beamport.open(memory)["monitor"].to_scipp().sizes == {"event": 2}


def test_events_and_values_are_no_one_table(memory):
    with _Writer(memory / "mixed") as writer:
        writer.append(ev44(1, T0, [1]), T0)
        writer.append(f144(1.5, T0), T0)
        writer.append(ev44(2, T0, [2]), T0)
    stream = beamport.open(memory)["mixed"]
    for messages in (stream[:2], stream[1:]):
        with pytest.raises(beamport.Error, match="some are events"):
            messages.to_pandas()
    with pytest.raises(beamport.Error, match="some are events"):
        stream.to_scipp()


def test_pulses_that_make_no_sense_are_refused(memory):
    with _Writer(memory / "wrong") as writer:
        writer.append(serialise_ev44("m", 1, [T0, T0 + 1], [2, 0], [1, 2, 3], [1, 2, 3]), T0)
    with pytest.raises(beamport.Error, match="2 pulses"):
        beamport.open(memory)["wrong"].to_pandas()
    with _Writer(memory / "unequal") as writer:
        writer.append(serialise_ev44("m", 1, [T0], [0], [1, 2, 3], [1]), T0)
    with pytest.raises(beamport.Error, match="3 times and 1 pixels"):
        beamport.open(memory)["unequal"].to_pandas()


def test_members_of_a_run_that_is_open(devices):
    assert devices._members(T0 + SECOND, T0 + 2 * SECOND).to_pandas()["value"].tolist() == [1.5, 1.5]


def test_a_table_is_bounded(memory, monkeypatch):
    data = beamport.open(memory)
    with data.create("camera") as stream:
        for n in range(10):
            stream.append("ad00", {"source_name": "c", "id": n, "data": np.zeros((100, 100))})
    monkeypatch.setattr(beamport._tables, "_BYTES_MAX", 500_000)
    with pytest.raises(beamport.Error, match="too large for one table") as refused:
        data["camera"].to_xarray()
    assert "limit=" in refused.value.hint
    assert len(data["camera"].to_xarray(limit=20)) == 10
    with pytest.raises(beamport.Error, match="`limit` is -1"):
        data["camera"].to_pandas(limit=-1)


def test_no_stream_memory_is_held(memory):
    """A table of more frames than a reader may hold."""
    data = beamport.open(memory)
    with data.create("camera", live=1 << 20) as stream:
        for n in range(60):
            stream.append("ad00", {"source_name": "c", "id": n, "data": np.full((100, 100), n, "u1")})
    assert len(data["camera"].to_xarray()) == len(data["camera"]) > 50


@pytest.mark.parametrize("library", ["pandas", "xarray", "scipp"])
def test_without_the_library_it_is_named(devices, monkeypatch, library):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(beamport.Error) as missing:
        getattr(devices, f"to_{library}")()
    assert missing.value.hint == f"install it: `pip install {library}`"
    with pytest.raises(beamport.Error, match=library):
        getattr(devices[-2:], f"to_{library}")()


def test_the_libraries_are_what_they_are(devices):
    assert isinstance(devices.to_pandas(), pandas.DataFrame)
    assert isinstance(devices.to_xarray(schema="f144"), xarray.DataArray)
    assert isinstance(devices.to_scipp(schema="f144"), scipp.DataArray)
