"""A run's file begins with a copy of a static file, made by others; the template says what comes to it."""

import json
import os
import signal
import time

import h5py
import numpy as np
import pytest
import scippnexus as snx
from conftest import ROOT, until
from nexus_files import different
from test_kill_writer import INSTRUMENT, gone, readable, writer_of

PIXELS = 200_000
STATIC = INSTRUMENT.replace('template = "amor.nexus.json"', 'template = "amor.nexus.json"\nstatic = "amor.hdf"')


def make(path, libver="earliest"):
    """What a facility keeps of an instrument: geometry, packed, and links to it."""
    with h5py.File(path, "w", libver=libver) as file:
        file.attrs["NX_class"] = "NXroot"
        file.attrs["template_version"] = "3"
        file.attrs["made_by"] = np.array(["a", "bc"], dtype=h5py.string_dtype())
        entry = file.create_group("entry")
        entry.attrs["NX_class"] = "NXentry"
        entry.attrs["note"] = np.bytes_("fixed text")
        entry.attrs["lengths"] = np.arange(3, dtype=">f4")
        banks = entry.create_group("instrument/banks")
        banks.attrs["NX_class"] = "NXdetector"
        number = np.arange(1, PIXELS + 1, dtype="i4").reshape(200, -1)
        banks.create_dataset("detector_number", data=number, chunks=(50, 500), compression="gzip", shuffle=True)
        x = banks.create_dataset("x_pixel_offset", data=np.linspace(0, 1, number.shape[1]))
        x.attrs["units"] = "mm"
        banks["names"] = np.array(["one", "zwölf"], dtype=h5py.string_dtype())
        entry["others/empty"] = h5py.Empty("f8")
        entry["others/pairs"] = np.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8")])
        for at in range(20):
            banks.create_group(f"parts/part{at}").attrs["at"] = at
        # Into a group of the template, and links of each kind.
        file["entry/instrument/detector/pixels"] = banks["detector_number"]
        entry["soft"] = h5py.SoftLink("/entry/instrument/banks/x_pixel_offset")
        entry["to_come"] = h5py.SoftLink("/entry/instrument/detector/data/event_id")


@pytest.fixture
def instrument(lab, nexus):
    text = json.loads((ROOT / "examples/amor.nexus.json").read_text())
    text |= {"template_version": "3", "dynamic_version": "7"}
    entry = text["children"][0]
    link = {"module": "link", "config": {"name": "numbers", "source": "instrument/banks/detector_number"}}
    entry["children"].append(link)
    entry["attributes"] = [
        {"name": "NX_class", "values": "NXentry"},
        {"name": "note", "values": "of the template"},
    ]
    (lab.folder / "amor.nexus.json").write_text(json.dumps(text))
    make(lab.folder / "amor.hdf")
    return lab.write(STATIC)


def check(path, libver="earliest"):
    with h5py.File(path) as file:
        assert (file.attrs["template_version"], file.attrs["dynamic_version"]) == ("3", "7")
        assert list(file.attrs["made_by"]) == ["a", "bc"]
        assert file.attrs["creator"].startswith("beamport ")
        assert file.attrs["default"] == "entry"
        assert " static " in file.attrs["beamport_template"]
        entry = file["entry"]
        assert entry.attrs["note"] == "of the template"
        assert entry.attrs["lengths"].dtype == np.dtype(">f4")
        banks = entry["instrument/banks"]
        number = banks["detector_number"]
        assert (number.compression, number.shuffle, number.chunks) == ("gzip", True, (50, 500))
        assert (number[:] == np.arange(1, PIXELS + 1).reshape(number.shape)).all()
        assert banks["x_pixel_offset"].attrs["units"] == "mm"
        assert [name.decode() for name in banks["names"][:]] == ["one", "zwölf"]
        assert entry["others/empty"].shape is None
        assert entry["others/pairs"][0]["b"] == 2.5
        assert [banks[f"parts/part{at}"].attrs["at"] for at in range(20)] == list(range(20))
        assert entry["instrument/detector/pixels"] == number
        assert entry["numbers"] == number
        link = entry.get("soft", getlink=True)
        assert isinstance(link, h5py.SoftLink)
        assert link.path == "/entry/instrument/banks/x_pixel_offset"
        assert len(entry["soft"]) == 1000
        assert entry["to_come"] == entry["instrument/detector/data/event_id"]
        assert len(entry["instrument/detector/data/event_id"]) > 0
    with snx.File(path) as file:
        assert file["entry/instrument/banks"]["detector_number"][...].size == PIXELS


def test_an_instrument_without_a_source_writes_what_is_static(lab, nexus):
    title = {"module": "dataset", "config": {"name": "title", "values": "static", "dtype": "string"}}
    times = {"module": "mdat", "config": {"items": ["start_time", "end_time"]}}
    attributes = {"NX_class": "NXentry"}
    entry = {"type": "group", "name": "entry", "attributes": attributes, "children": [title, times]}
    (lab.folder / "static.json").write_text(json.dumps({"children": [entry]}))
    lab.write(
        '[sink.file]\nkind = "nexus"\ntemplate = "static.json"\n'
        "[run.past]\nstart = 2026-01-01T00:00:00Z\nstop = 2026-01-01T00:00:01Z\n"
        "[run.open]\nstart = 2026-01-01T00:00:00Z\n"
    )
    process, _ = lab.up_ready()
    # Its writer dies while the run is open.
    os.kill(until(lambda: writer_of(lab, process), "no writer is started"), signal.SIGKILL)
    lab.run("end", "open", "--data", lab.data)
    reports = lab.reports(process)
    for report, name, end in zip(reports, ("past", "open"), (b"2026-01-01T00:00:01.000000000Z", b"2"), strict=True):
        assert (report["run"], report["closed"], report["streams"]) == (name, True, [])
        with h5py.File(report["file"]) as file:
            assert file["entry/title"][()] == b"static"
            assert file["entry/start_time"][()] == b"2026-01-01T00:00:00.000000000Z"
            assert file["entry/end_time"][()].startswith(end)
    again = lab.folder / "again.nxs"
    lab.run("write", "open", "-o", again, "--data", lab.data)
    with h5py.File(reports[1]["file"]) as one, h5py.File(again) as other:
        for name in ("title", "start_time", "end_time", "beamport/closed", "beamport/run"):
            assert one["entry"][name][()] == other["entry"][name][()]


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_a_killed_writer_of_a_static_file_leaves_all_of_it(instrument, times, dice, libver):
    lab = instrument
    make(lab.folder / "amor.hdf", libver)
    path = lab.data / "files" / "first.nxs"
    process, _ = lab.up_ready()
    for _ in range(times(3, 50)):
        writer = until(lambda: writer_of(lab, process), "no writer is started")
        time.sleep(dice.uniform(0, 0.4))
        os.kill(writer, signal.SIGKILL)
        until(lambda writer=writer: gone(writer), "the writer does not die")
        if path.exists():
            with h5py.File(path) as file:
                assert file["entry/instrument/banks/detector_number"][-1, -1] == PIXELS
    until(lambda: readable(lab, path), "the file does not open")
    lab.whole(process)
    check(path)
    lab.run("verify", path, "--data", lab.data)
    again = lab.folder / "again.nxs"
    lab.run("write", "first", "-o", again, "--data", lab.data)
    assert different(path, again) == []
    lab.run("write", "first", "-o", lab.folder / "named.nxs", "--data", lab.data, "--template", "amor.nexus.json",
            "--static", "amor.hdf")  # fmt: skip
    assert different(path, lab.folder / "named.nxs") == []


def test_several_writers_share_what_is_static(instrument):
    lab = instrument
    lab.file.write_text(lab.file.read_text().replace('flush = "50 ms"', 'flush = "50 ms"\nwriters = 3'))
    with h5py.File(lab.folder / "amor.hdf", "a") as file:
        file["entry/image"] = h5py.ExternalLink("image.h5", "/data")
        data = file.create_group("entry/instrument/detector/data")
        data["title"] = h5py.SoftLink("/entry/title")
        data["pixels"] = file["entry/instrument/banks/detector_number"]
        data["own"] = np.arange(5)
    process, _ = lab.up_ready()
    until(lambda: lab.stream("monitor").marks()[1] >= 2, "no messages")
    lab.whole(process)
    files = lab.data / "files"
    check(files / "first.nxs")
    with h5py.File(files / "first.nxs") as first:
        image = first["entry"].get("image", getlink=True)
        assert (image.filename, image.path) == ("image.h5", "/data")
        title = first["entry/title"][()]
    with h5py.File(files / "first.2.nxs") as second:
        assert second["entry/instrument/detector/data/title"][()] == title
        assert second["entry/instrument/detector/data/pixels"].size == PIXELS
        assert second["entry/instrument/detector/data/own"][4] == 4
        assert second["entry"].attrs["note"] == "of the template"
        assert "banks" not in second["entry/instrument"]


def mistakes(lab):
    """What `check` says, all at once: place, what and cause of each."""
    done = lab.run("check", lab.file, "--json", status=2)
    told = json.loads(done.stdout)["mistakes"]
    assert all(one["hint"] for one in told), told
    return [(one["pointer"], one["what"], one["cause"]) for one in told]


def test_all_that_is_wrong_with_a_static_file_is_told_at_once(instrument):
    lab = instrument
    with h5py.File(lab.folder / "amor.hdf", "a") as file:
        file.attrs["template_version"] = "4"
        file["entry/title"] = "stands in both"
        file["entry/out"] = h5py.ExternalLink("../else.h5", "/data")
        file["entry/beamport/x"] = 1
        file["entry/reference"] = file["entry/instrument"].ref
        layout = h5py.VirtualLayout(shape=(3,), dtype="i4")
        layout[:] = h5py.VirtualSource("image.h5", "data", shape=(3,))
        file.create_virtual_dataset("entry/virtual", layout)
    told = mistakes(lab)
    causes = "\n".join(cause for _, _, cause in told)
    for part in [
        "`/entry/out`: `../else.h5` is not a path to a file beside",
        "`/entry/beamport`: the name is reserved",
        "`/entry/reference`: references name places",
        "`/entry/virtual`: its data are in other files",
    ]:
        assert part in causes, causes
    make(lab.folder / "amor.hdf")
    with h5py.File(lab.folder / "amor.hdf", "a") as file:
        file.attrs["template_version"] = "4"
        file["entry/title"] = "stands in both"
        file["entry/instrument/detector/data/event_id"] = 1
    told = mistakes(lab)
    assert any("/template_version" in at and "version `4`, this is `3`" in cause for at, _, cause in told), told
    assert any("/children/0/children/" in at and "a dataset `/entry/title`" in cause for at, _, cause in told), told
    assert any("a dataset `/entry/instrument/detector/data/event_id`" in cause for _, _, cause in told), told
    lab.file.write_text(lab.file.read_text().replace("amor.hdf", "none.hdf"))
    assert "no file" in mistakes(lab)[0][2]


def test_a_damaged_static_file_ends_nothing_but_its_check(instrument, dice, times):
    lab = instrument
    path = lab.folder / "amor.hdf"
    good = path.read_bytes()
    for damaged in [b"", b"no HDF5", good[: len(good) // 2], good[:100]]:
        path.write_bytes(damaged)
        assert "amor.hdf" in mistakes(lab)[0][2]
    for _ in range(times(15, 1000)):
        turned = bytearray(good)
        for _ in range(dice.choice([1, 20, 2000])):
            turned[dice.randrange(len(good))] ^= 1 << dice.randrange(8)
        path.write_bytes(turned)
        done = lab.run("check", lab.file, "--json", status=None)
        assert done.returncode in (0, 2), done.stderr
        assert json.loads(done.stdout)["good"] == (done.returncode == 0)
    with path.open("wb") as file:
        file.write(good)
        file.truncate((1 << 30) + 1)
    assert "the limit is 1073741824" in mistakes(lab)[0][2]


def test_chunks_that_are_packed_as_only_others_know_were_called_damaged(instrument):
    lab = instrument
    with h5py.File(lab.folder / "amor.hdf", "a") as file:
        for name, filters in {"zstd": [(32015, (3,))], "bitshuffle_zstd": [(32008, (0, 3, 4, 0, 3, 3))]}.items():
            packing = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            packing.set_chunk((4,))
            for number, settings in filters:
                packing.set_filter(number, h5py.h5z.FLAG_OPTIONAL, settings)
            space = h5py.h5s.create_simple((4,))
            made = h5py.h5d.create(file.id, f"entry/{name}".encode(), h5py.h5t.STD_I32LE, space, packing)
            made.write_direct_chunk((0,), b"what others make")
    lab.run("check", lab.file)


def spoilt(good, kind):
    """A file with one wrong byte where its texts are kept: libhdf5 goes round in circles, or misses one of them."""
    spoilt = bytearray(good)
    at = good.index(b"GCOL") + 16
    if kind == "none":
        return b"no HDF5"
    if kind == "text":
        spoilt[at] = 77
        return spoilt
    while good[at : at + 2] != b"\0\0":
        at += 16 + (int.from_bytes(good[at + 8 : at + 16], "little") + 7) // 8 * 8
    spoilt[at + 8] = 0
    return spoilt


@pytest.mark.parametrize(
    ("kind", "cause"),
    [("circle", "does not finish reading"), ("text", "the attribute `NX_class` of `/`"), ("none", "signature")],
)
def test_a_writer_was_started_for_ever_with_a_static_file_that_was_damaged_meanwhile(instrument, kind, cause):
    lab = instrument
    path = lab.folder / "amor.hdf"
    process, _ = lab.up_ready()
    writer = until(lambda: writer_of(lab, process), "no writer is started")
    until((lab.data / "files" / "first.nxs").exists, "no file")
    beside = lab.folder / "beside.hdf"
    beside.write_bytes(spoilt(path.read_bytes(), kind))
    beside.replace(path)
    os.kill(writer, signal.SIGKILL)
    until(lambda: "cannot write run `first`" in lab.said(process)[1], "the file is not given up")
    troubles = json.loads(lab.ask(b'{"command": "status"}\n'))["ok"]["troubles"]
    assert any("amor.hdf" in told and cause in told for told in troubles), troubles
    lab.interrupt(process)
    (failed,) = lab.report(process, status=2)["failed"]
    assert "amor.hdf" in failed["cause"] and cause in failed["cause"], failed
    # What it says to ask says the same.
    assert kind != "none" or f"amor.nexus.json --static {path}` tells all" in failed["hint"], failed
    assert [name.name for name in (lab.data / "files").iterdir()] == ["first.nxs"]
    # The next start says it at once.
    (told,) = mistakes(lab)
    assert "amor.hdf" in told[2] and cause in told[2], told
