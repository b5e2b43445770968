"""Frames: pixels as views with shape and type, numbers, attributes."""

from __future__ import annotations

import gc
from pathlib import Path

import beamport
import numpy as np
import pytest
from beamport._core import _Writer
from payloads import T0, ev44, f144, pixels_of, segment_of
from streaming_data_types.area_detector_ad00 import Attribute, serialise_ad00

DTYPES = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64"]
SHAPES = [(), (7,), (3, 5), (2, 4, 3), (2, 3, 1, 4), (0, 4)]


def frame(data, number: int = 5, attributes=()) -> bytes:
    return serialise_ad00("camera", number, T0, data, list(attributes))


def read(folder):
    return beamport.open(folder)["camera"].read()


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type_and_layout_is_a_view_of_its_shape(memory, dtype):
    arrays = [np.arange(np.prod(shape, dtype=int)).astype(dtype).reshape(shape) for shape in SHAPES]
    with _Writer(memory / "camera") as writer:
        for number, array in enumerate(arrays):
            writer.append(frame(array, number), T0)
    for number, (m, array) in enumerate(zip(read(memory), arrays, strict=True)):
        assert (m.id, m.metadata) == (number, {})
        assert (m.array.shape, m.array.dtype) == (array.shape, array.dtype)
        assert np.array_equal(m.array, array) and np.array_equal(m["data"], array)


def test_pixels_lie_in_stream_memory_and_stay(memory):
    with _Writer(memory / "camera") as writer:
        writer.append(frame(np.arange(10_000, dtype="u2").reshape(100, 100)), T0)
    (m,) = read(memory)
    array = m.array
    del m
    gc.collect()
    assert segment_of(array).startswith(str(memory / "camera"))
    assert not array.flags.writeable and not array.flags.owndata
    with pytest.raises(ValueError):
        array[0, 0] = 1
    assert int(array.sum()) == sum(range(10_000))


def test_pixels_that_beamport_wrote_are_aligned(memory):
    ours = Path(__file__).parents[1] / "vectors" / "wire" / "ours" / "ad00_large.bin"
    with _Writer(memory / "camera") as writer:
        for _ in range(3):
            writer.append(ours.read_bytes(), T0)
    for m in read(memory):
        assert m.array.shape == (20, 30) and m.array[19, 29] == 599
        assert m.array.__array_interface__["data"][0] % 64 == 0


def test_attributes_are_metadata(memory):
    attributes = [
        Attribute("ColorMode", "", "", "Mono °"),
        Attribute("Gain", "of the amplifier", "CAM:GAIN", -1.5),
        Attribute("Exposures", "", "", 3),
        Attribute("Centre", "", "", np.array([1.5, 2.5], "f4")),
        Attribute("None", "", "", np.array([], "i2")),
        Attribute("Gain", "again", "", 2.5),
    ]
    with _Writer(memory / "camera") as writer:
        writer.append(frame(np.zeros((2, 2)), 2**31 - 1, attributes), T0)
    (m,) = read(memory)
    found = m.metadata
    assert m.id == 2**31 - 1
    assert list(found) == ["ColorMode", "Gain", "Exposures", "Centre", "None"]
    assert (found["ColorMode"], found["Gain"], found["Exposures"]) == ("Mono °", 2.5, 3)
    assert (type(found["Gain"]), type(found["Exposures"])) == (float, int)
    assert found["Centre"].tolist() == [1.5, 2.5] and found["Centre"].dtype == np.float32
    assert found["None"].shape == (0,)
    assert [a["description"] for a in m["attributes"]][1] == "of the amplifier"


def test_text_in_the_place_of_pixels_is_its_bytes(memory):
    with _Writer(memory / "camera") as writer:
        writer.append(frame("grüezi"), T0)
    (m,) = read(memory)
    assert bytes(m.array).decode() == m["data"] == "grüezi"


@pytest.mark.parametrize("name", ["array", "id", "metadata"])
def test_other_messages_are_no_frames_and_say_so(memory, name):
    with _Writer(memory / "camera") as writer:
        writer.append(ev44(1, T0, pixels_of(1)), T0)
        writer.append(f144(1.5, T0), T0)
    for m in read(memory):
        with pytest.raises(beamport.Error) as caught:
            getattr(m, name)
        assert caught.value.what == f"message {m.sequence} has no `{name}`"
        assert m.schema in caught.value.cause and "ad00" in caught.value.cause
        assert "m.fields()" in caught.value.hint


@pytest.mark.parametrize("name", ["array", "id", "metadata"])
def test_a_broken_frame_is_an_error(memory, name):
    good = bytearray(frame(np.zeros((2, 2), "u1")))
    at = good.index(b"camera")
    good[at] = 0xFF
    with _Writer(memory / "camera") as writer:
        writer.append(bytes(good), T0)
    (m,) = read(memory)
    with pytest.raises(beamport.Error, match="no fields that can be read"):
        getattr(m, name)
    assert len(m.payload) == len(good)
