"""The simulated camera as a user has it: `examples/camera.toml`, and frames from files."""

import shutil

import numpy as np
import pytest
from conftest import ROOT, gapless, lost_of, until

beamport = pytest.importorskip("beamport", reason="pip install .")


def members(lab, name, run="first"):
    """The messages of a stream in a run."""
    return list(beamport.open(lab.data).run(run)[name].read())


def test_frames_come_at_their_rate_with_the_values_that_belong_to_them(lab):
    lab.write(ROOT.joinpath("examples/camera.toml").read_text().partition('instrument = "camera"')[2])
    report = lab.report(lab.up())
    assert report["closed"] and lost_of(report) == 0
    for stream in lab.streams():
        gapless(stream)
    frames, overview, values = (members(lab, name) for name in ("camera", "overview", "values"))
    # By their own times, so on any machine: 2 s of each, however late they came.
    assert abs(len(frames) - 2000) <= 1 and abs(len(overview) - 20) <= 1 and abs(len(values) - 4000) <= 4
    steps = np.diff([m.source_time for m in frames])
    assert np.all(steps == 1_000_000)
    ids = [m.id for m in frames]
    assert ids == [m.origin_seq for m in frames] and np.all(np.diff(ids) == 1)
    for m in frames[::50]:
        assert (m.array.shape, m.array.dtype) == ((128, 128), np.uint8)
        assert m.array.__array_interface__["data"][0] % 64 == 0
        assert m.metadata == {"fps": 1000.0, "pattern": "spots"}
    assert overview[0].array.shape == (512, 512) and overview[0].array.dtype == np.uint16
    known = {m.source_time for m in frames}
    assert {m.source_time for m in overview} <= known
    for m in values[:500]:
        number = int(m["value"])
        variable = round((m["value"] - number) * 1000)
        assert m.origin == f"camera:PV{variable + 1:03}"
        # The time on the grid that the value names, not later than the message and 0.2 ms behind at most.
        frame = m.source_time // 1_000_000
        assert frame % 1_000_000 == number and m.source_time - frame * 1_000_000 < 200_000


def test_frames_of_files_are_those_of_the_files(lab):
    stack = np.arange(3 * 20 * 30, dtype="u2").reshape(3, 20, 30)
    np.save(lab.folder / "stack.npy", stack)
    stack[::-1].tofile(lab.folder / "plain.raw")
    lab.write(
        """
[source.camera]
kind = "sim"
model = "camera"
fps = 200
shape = [20, 30]
dtype = "uint16"
files = ["stack.npy", "plain.raw"]
[run.first]
duration = "1 s"
"""
    )
    report = lab.report(lab.up())
    assert report["closed"] and lost_of(report) == 0
    both = np.concatenate([stack, stack[::-1]])
    frames = members(lab, "camera")
    assert abs(len(frames) - 200) <= 1
    for m in frames:
        # Frame n of the grid, 5 ms each.
        assert np.array_equal(m.array, both[m.source_time // 5_000_000 % 6])
        assert m.metadata["pattern"] == "files"


def test_a_file_without_frames_is_refused_at_the_start(lab):
    shutil.copy(ROOT / "README.md", lab.folder / "frames.npy")
    lab.write(
        """
[source.camera]
kind = "sim"
model = "camera"
files = ["frames.npy"]
[run.first]
duration = "1 s"
"""
    )
    process = lab.up()
    lab.end(process, status=2)
    _, told = lab.said(process)
    assert "frames.npy" in told and "hint:  write `shape` and `dtype` of its frames" in told


def test_a_file_that_becomes_shorter_stops_the_camera_alone(lab):
    frames = lab.folder / "plain.raw"
    pixels = np.full((8, 64, 64), 7, "u1")
    pixels.tofile(frames)
    lab.write(
        """
[source.camera]
kind = "sim"
model = "camera"
fps = 500
shape = [64, 64]
dtype = "uint8"
files = ["plain.raw"]
[source.other]
kind = "sim"
model = "field"
[run.first]
duration = "1 s"
"""
    )
    process, _ = lab.up_ready()
    # The map stays; what it shows is no longer there to be had.
    with frames.open("r+b") as file:
        file.truncate(4096)
        until(
            lambda: "check whether the file was truncated" in lab.said(process)[1], "the camera does not miss its file"
        )
        assert process.poll() is None
        before = len(lab.stream("other").all())
        until(lambda: len(lab.stream("other").all()) > before, "the other source stands still")
        file.write(pixels.tobytes())
    report = lab.report(process)
    assert report["closed"] and lost_of(report) == 0
    print("injected 1 file cut off under its map: the camera stopped and went on, 0 lost")
