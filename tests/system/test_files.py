"""Frames in HDF5 files: what stands in them is what the stream holds, once and in order, whatever dies."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
from conftest import ROOT, lost_of, until
from signals import stop
from test_full_disk import disk  # noqa: F401
from test_kill_writer import gone, writers_of

beamport = pytest.importorskip("beamport", reason="pip install .")

CAMERA = """
[source.camera]
kind = "sim"
model = "camera"
fps = {fps}
shape = {shape}
dtype = "uint16"
live = "32 MiB"

[sink.images]
kind = "files"
inputs = ["camera"]
frames = {frames}
compression = "{compression}"
folder = "{folder}"
flush = "50 ms"

[run.first]
settle = "200 ms"
"""


def instrument(lab, fps=200, shape="[64, 96]", frames=50, folder=None, compression="none"):
    folder = folder or lab.folder / "files"
    if compression == "bitshuffle-lz4":
        pytest.importorskip("hdf5plugin")  # h5py knows it from then on
    lab.write(CAMERA.format(fps=fps, shape=shape, frames=frames, folder=folder, compression=compression))
    return folder / "lab_first_images"


def files_of(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.h5"))


def look(folder: Path) -> list[int]:
    """The numbers of the frames that the files show now; each file opens, and its rows belong together."""
    ids = []
    for path in files_of(folder):
        try:
            with h5py.File(path, "r") as file:
                data = file["entry/data"]
                rows = len(data["id"])
                columns = [data[name] for name in ("data", "time", "arrival_time", "source")]
                columns += list(file["entry/data_metadata"].values())
                assert all(len(column) == rows for column in columns), "columns of different lengths"
                assert (data["time"][:] > 0).all(), "rows that nobody wrote"
                ids += data["id"][:].tolist()
        except FileNotFoundError:
            # The next writer takes files away that no commit knew.
            continue
    return ids


def shown(folder: Path) -> int:
    """Frames that the files show now, while they are written."""
    count = 0
    for path in files_of(folder):
        try:
            with h5py.File(path, "r") as file:
                count += len(file["entry/data/id"])
        except (OSError, KeyError):
            # A reader beside the writer may come between two of its writes; one after its end may not (`look`).
            continue
    return count


def compare(lab, folder: Path, frames: int, stream="camera", run="first") -> int:
    """Every frame of the run, in the files in which it should be, equal to the stream's; the number of frames."""
    answer = json.loads(lab.run("verify", folder / "B3SUMS", "--data", lab.data, "--json").stdout)
    assert answer["ok"] and len(answer["files"]) >= len(files_of(folder))
    listed = [line.split("  ")[1] for line in (folder / "B3SUMS").read_text().splitlines()]
    files = files_of(folder)
    assert [path.name for path in files] == sorted(listed)
    assert sorted(path.name for path in folder.iterdir()) == sorted([*listed, "B3SUMS"])
    sent = iter(beamport.open(lab.data).run(run)[stream].read())
    count = 0
    for at, path in enumerate(files):
        with h5py.File(path, "r") as file:
            assert file["entry"].attrs["NX_class"] == "NXentry" and file.attrs["default"] == "entry"
            data = file["entry/data"]
            assert data.attrs["NX_class"] == "NXdata" and data.attrs["signal"] == "data"
            rows = len(data["data"])
            assert rows == frames or at == len(files) - 1
            # Small ones share a chunk.
            assert data["data"].chunks[0] == 1 or data["data"][0].nbytes < 4096
            for row in range(rows):
                m = next(sent)
                assert data["id"][row] == m.id
                assert data["time"][row] == m.source_time and data["arrival_time"][row] == m.arrival_time
                assert np.array_equal(data["data"][row], m.array) and data["data"].dtype == m.array.dtype
                for name, value in m.metadata.items():
                    held = file["entry/data_metadata"][name]
                    held = held.asstr()[row] if h5py.check_string_dtype(held.dtype) else held[row]
                    assert np.array_equal(held, value), name
            count += rows
    assert next(sent, None) is None, "frames of the run that no file holds"
    return count


@pytest.mark.parametrize(("compression", "filters"), [("none", 0), ("bitshuffle-lz4", 1), ("deflate", 2)])
def test_what_a_camera_gave_is_in_files(lab, nexus, compression, filters):
    folder = instrument(lab, compression=compression)
    process, _ = lab.up_ready()
    until(lambda: lab.stream("camera").marks()[1] > 230, "no frames")
    # While the run goes on, what is whole is listed already.
    until(lambda: "000002" in (folder / "B3SUMS").read_text(), "no file is whole")
    lab.interrupt(process)
    report = lab.report(process)
    assert report["closed"] and lost_of(report) == 0
    count = compare(lab, folder, 50)
    assert count == next(line["messages"] for line in report["streams"])
    (written,) = report["written"]
    assert written["file"] == str(folder / "B3SUMS") and written["files"] == len(files_of(folder))
    assert written["bytes"] == sum(path.stat().st_size for path in files_of(folder))
    with h5py.File(files_of(folder)[-1]) as file:
        assert file["entry/beamport/closed"][()] == 1 and "end_time" in file["entry"]
    with h5py.File(files_of(folder)[0]) as file:
        data = file["entry/data"]
        for dataset in (data["data"], data["id"], data["source"], *file["entry/data_metadata"].values()):
            assert dataset.id.get_create_plist().get_nfilters() == filters, dataset.name
        # Twelve bits of each pixel, at most, are not empty.
        assert (data["data"].id.get_storage_size() < data["data"].nbytes * 0.9) == (filters > 0)


def test_files_of_frames_are_made_again_as_the_run_wrote_them(lab, nexus):
    folder = instrument(lab, frames=40, compression="deflate")
    # Beside them a file of another kind, of which the same run can be made again too.
    template = '{"children": [{"module": "mdat", "config": {"items": ["start_time"]}}]}'
    (lab.folder / "plain.nexus.json").write_text(template)
    devices = '[source.devices]\nkind = "sim"\nmodel = "camera-metadata"\nfps = 10\nvalues = 1\n'
    plain = '[sink.plain]\nkind = "nexus"\ninputs = ["devices"]\ntemplate = "plain.nexus.json"\n'
    lab.file.write_text(lab.file.read_text() + devices + plain)
    process, _ = lab.up_ready()
    until(lambda: lab.stream("camera").marks()[1] > 130, "no frames")
    lab.interrupt(process)
    lab.report(process)
    again = lab.folder / "again"
    write = ("write", "first", "--data", lab.data, "--output")
    answer = json.loads(lab.run(*write, again, "--sink", "images", "--json").stdout)
    assert answer["files"] == len(files_of(folder)) and answer["account"]["closed"]
    # Names, frames in each, their order and content: against the run, and against the files.
    assert compare(lab, again, 40) == compare(lab, folder, 40)
    assert [path.name for path in files_of(again)] == [path.name for path in files_of(folder)]
    for old, new in zip(files_of(folder), files_of(again), strict=True):
        with h5py.File(old) as one, h5py.File(new) as other:
            for file in (one, other):
                assert file["entry/data/data"].compression == "gzip"
            names = []
            one.visit(names.append)
            others = []
            other.visit(others.append)
            assert others == names
            for name in names:
                assert dict(one[name].attrs).keys() == dict(other[name].attrs).keys(), name
    told = lab.run(*write, again, "--sink", "images", status=2).stderr.decode()
    assert "a folder of that name exists" in told and len(files_of(again)) == answer["files"]
    assert "sinks of this run are images, plain" in lab.run(*write, "x", "--sink", "imags", status=2).stderr.decode()
    # Who does not say which gets what has a template.
    lab.run(*write, lab.folder / "again.nxs")
    assert h5py.is_hdf5(lab.folder / "again.nxs")


def test_files_open_in_the_tools_that_people_use(lab, nexus):
    folder = instrument(lab, frames=20)
    process, _ = lab.up_ready()
    until(lambda: lab.stream("camera").marks()[1] > 30, "no frames")
    lab.interrupt(process)
    lab.report(process)
    first = files_of(folder)[0]
    nexusformat = pytest.importorskip("nexusformat.nexus")
    data = nexusformat.nxload(str(first))["entry/data"]
    assert data.nxsignal.shape == (20, 64, 96) and data.nxaxes[0].nxname == "time"
    silx = pytest.importorskip("silx.io.nxdata")
    with h5py.File(first) as file:
        shown = silx.get_default(file)
        assert shown.is_valid and shown.signal.shape == (20, 64, 96) and shown.interpretation == "image"


def test_frames_of_the_example_are_in_order_in_its_files(lab, nexus):
    text = (ROOT / "examples/imaging.toml").read_text().partition('instrument = "imaging"')[2]
    (lab.folder / "imaging.py").write_text((ROOT / "examples/imaging.py").read_text())
    lab.write(text.replace('call = "imaging.py', f'python = "{sys.executable}"\ncall = "imaging.py'))
    report = lab.report(lab.up())
    assert report["closed"] and lost_of(report) == 0
    count = compare(lab, lab.data / "files/lab_first_images", 100, "collected")
    run = beamport.open(lab.data).run("first")
    seen = {m.id: np.array(m.array) for m in run["camera"].read()}
    assert count == len(seen)
    ids = []
    for m in run["collected"].read():
        assert np.array_equal(m.array, seen[m.id].clip(10) - 10)
        ids.append(m.id)
    assert ids == sorted(seen)


def test_orbits_of_the_turn_by_turn_example_are_whole_in_order_and_right(lab, nexus):
    text = (ROOT / "examples/tbt.toml").read_text().partition('instrument = "tbt"')[2]
    (lab.folder / "tbt.py").write_text((ROOT / "examples/tbt.py").read_text())
    text = text.replace('call = "tbt.py', f'python = "{sys.executable}"\ncall = "tbt.py')
    # The run begins when all servers and slots have: before, pieces are missing.
    lab.write(text.partition("[run.first]")[0])
    process, _ = lab.up_ready()
    data = beamport.open(lab.data)

    def whole():
        numbers = [m.origin_seq for m in data["orbits"].read()][-200:]
        return len(numbers) == 200 and len(set(numbers)) == 10

    until(whole, "the orbits do not become whole")
    lab.run("begin", "first", "--data", lab.data)
    time.sleep(3)
    lab.run("end", "first", "--data", lab.data)
    lab.interrupt(process)
    report = lab.report(process)
    assert report["closed"] and lost_of(report) == 0
    count = compare(lab, lab.data / "files/lab_first_closed", 1000, "orbits")
    numbers, servers = [], {}
    for m in beamport.open(lab.data).run("first")["orbits"].read():
        # What the model puts into frame n of the grid, of which the number has the last 31 bits.
        truth = 1000 * np.sin(2 * np.pi * (0.37 * np.arange(28) + m.id % 4 / 4))
        assert m.array.shape == (2, 28) and np.abs(m.array - truth).max() < 2
        servers.setdefault(m.id, []).append(m.origin)
        numbers.append(m.id)
    assert count == len(numbers) and numbers == sorted(numbers)
    # All 20 servers of each together, none left out.
    assert len(servers) >= 29 and list(servers) == list(range(numbers[0], numbers[-1] + 1))
    assert all(len(set(of)) == len(of) == 20 for of in servers.values())


@pytest.mark.parametrize("compression", ["none", "bitshuffle-lz4"])
def test_files_of_a_killed_writer_open_and_hold_each_frame_once(lab, nexus, times, dice, compression):
    kills = times(10, 200)
    folder = instrument(lab, fps=400, frames=60, compression=compression)
    process, _ = lab.up_ready()
    movers = 0
    for kill in range(kills):
        (writer, *_) = until(lambda process=process: writers_of(lab, process), "no writer is started")
        time.sleep(dice.uniform(0, 0.4))
        if kill % 5 == 4:
            movers += 1
            lab.kill(process)
            until(lambda writer=writer: gone(writer), "the writer outlives the mover")
            ids = look(folder)
            process, _ = lab.up_ready()
        else:
            # Nobody writes between the kill and the look: the mover that would start the next one stands still.
            stop(process.pid)
            try:
                os.kill(writer, signal.SIGKILL)
                until(lambda writer=writer: gone(writer), "the writer does not die")
                ids = look(folder)
            finally:
                os.kill(process.pid, signal.SIGCONT)
        assert ids == list(range(ids[0], ids[0] + len(ids))) if ids else True, "frames twice, or not there"
    until(lambda: lab.stream("camera").marks()[1] > 130, "no frames")
    lab.interrupt(process)
    report = lab.report(process)
    assert report["closed"] and lost_of(report) == 0
    count = compare(lab, folder, 60)
    assert count == next(line["messages"] for line in report["streams"])
    print(
        f"writer of frames killed: {kills} injected ({movers} with the mover), all files opened each time; "
        f"0 lost, 0 twice of {count} frames in {len(files_of(folder))} files"
    )


@pytest.mark.root
@pytest.mark.parametrize("compression", ["none", "deflate"])
def test_files_on_a_full_disk_heal_and_are_complete(lab, nexus, disk, times, compression):  # noqa: F811
    small = disk("small", 300, "tmpfs")
    # So slow that the frames alone do not fill it.
    folder = instrument(lab, fps=times(200, 50), frames=20, folder=small.folder, compression=compression)
    process, _ = lab.up_ready()
    full = times(4, 40)
    stream = lab.stream("camera")
    for turn in range(full):
        until(lambda turn=turn: shown(folder) > 30 * (turn + 1), "the files do not grow")
        small.fill()
        if turn % 2:
            # No room for the next file, and a little for this one.
            with small.ballast.open("ab") as ballast:
                ballast.truncate(max(0, small.ballast.stat().st_size - 20 * 64 * 96 * 2))
        seen = shown(folder)
        count = stream.marks()[2]
        until(lambda count=count: stream.marks()[2] > count + 50, "a full disk of the files stops the stream")
        assert process.poll() is None
        small.free()
        until(lambda seen=seen: shown(folder) > seen + 30, "the files do not heal")
    lab.interrupt(process)
    report = lab.report(process)
    assert report["closed"] and lost_of(report) == 0
    frames = compare(lab, folder, 20)
    ended = lab.said(process)[1].count("ended: ")
    print(f"full disk, files of frames: {full} injected, {ended} writers ended of it, 0 lost of {frames} frames")
    assert ended == 0, "a writer ended on a full disk"


def test_a_file_of_others_in_the_way_is_kept_and_told(lab, nexus):
    folder = instrument(lab, frames=20)
    folder.mkdir(parents=True)
    (folder / "camera_000002.h5").write_text("mine")
    process, _ = lab.up_ready()
    until(lambda: "camera_000002.h5 exists" in lab.said(process)[1], "nothing is said of the file in the way")
    lab.interrupt(process)
    report = lab.report(process, status=2)
    assert report["failed"][0]["sink"] == "images" and report["written"] == []
    assert (folder / "camera_000002.h5").read_text() == "mine"


def test_a_link_left_in_the_folder_led_the_files_of_a_run_out_of_it(lab, nexus):
    folder = instrument(lab, frames=20)
    elsewhere = lab.folder / "elsewhere"
    elsewhere.mkdir()
    folder.parent.mkdir(parents=True)
    folder.symlink_to(elsewhere)
    process, _ = lab.up_ready()
    until(lambda: "it is a link" in lab.said(process)[1], "nothing is said of the link")
    lab.interrupt(process)
    assert lab.report(process, status=2)["failed"][0]["sink"] == "images"
    assert list(elsewhere.iterdir()) == [] and folder.is_symlink()


@pytest.mark.parametrize("name", ["lab_first_images", "."])
@pytest.mark.parametrize("thing", ["file", "dangling"])
def test_what_had_the_name_of_the_folder_was_tried_for_ever(lab, nexus, name, thing):
    folder = instrument(lab, frames=20)
    taken = folder.parent / name if name != "." else folder.parent
    taken.parent.mkdir(parents=True, exist_ok=True)
    taken.write_text("mine") if thing == "file" else taken.symlink_to("nowhere")
    process, _ = lab.up_ready()
    until(lambda: "cannot write run `first`" in lab.said(process)[1], "the run is not given up")
    lab.interrupt(process)
    assert lab.report(process, status=2)["failed"][0]["sink"] == "images"
    assert taken.is_symlink() if thing == "dangling" else taken.read_text() == "mine"
