"""What a notebook shows: tables in which text stays text, and pictures."""

from __future__ import annotations

import base64
import io
import re
import struct
import zlib
from html.parser import HTMLParser

import beamport
import numpy as np
import pytest
from beamport import _html
from beamport._core import _Writer
from beamport._picture import picture
from payloads import SECOND, T0, bprn, remove, write_events

HOSTILE = "<script>alert('&\"x')</script>"
TAGS = {"b", "table", "tr", "td", "th", "img", "br"}


class Strict(HTMLParser):
    """Only the tags that are ours, each closed; collects the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        assert tag in TAGS, tag
        assert {name for name, _ in attrs} <= {"width", "style", "src", "colspan"}
        if tag not in ("img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.seen.append(data)


def text_of(thing) -> str:
    return " ".join(Strict(thing._repr_html_()).seen)


def pixels(shown: str) -> np.ndarray:
    """The pixels of a picture, read by the rules of PNG."""
    (data,) = re.findall(r'src="data:image/png;base64,([^"]+)"', shown)
    stream = io.BytesIO(base64.b64decode(data))
    assert stream.read(8) == b"\x89PNG\r\n\x1a\n"
    chunks = {}
    while head := stream.read(8):
        length, kind = struct.unpack(">I4s", head)
        chunks[kind] = stream.read(length)
        assert struct.unpack(">I", stream.read(4))[0] == zlib.crc32(kind + chunks[kind])
    width, height, depth, colours, *rest = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert (depth, rest) == (8, [0, 0, 0]) and list(chunks) == [b"IHDR", b"IDAT", b"IEND"]
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, -1)
    assert not rows[:, 0].any()
    return rows[:, 1:].reshape((height, width) if colours == 0 else (height, width, 3))


def test_a_folder_shows_streams_and_runs(memory):
    write_events(memory / "detector", range(3))
    with _Writer(memory / "empty"):
        pass
    with _Writer(memory / "runs") as writer:
        writer.append(bprn("nickel-2", "open", T0), T0)
    data = beamport.open(memory)
    shown = text_of(data)
    for word in (str(memory), "detector", "0 to 3", "bank0", "2026-03-01T12:00:02", "nickel-2", "open", "empty"):
        assert word in shown, word
    assert "newest message" in text_of(data["detector"]) and "newest message" not in text_of(data["empty"])
    assert "pixel_id" in text_of(data["detector"][-1])
    assert "nickel-2" in text_of(data.run("nickel-2"))


@pytest.mark.parametrize("name", [HOSTILE, "a\0b", "日本 <i>", "x" * 1000, "]]>--><!--"])
def test_text_from_outside_stays_text(memory, name):
    """Names of origins, units, attributes, texts, of runs and what is said about them."""
    data = beamport.open(memory)
    with data.create("s") as stream:
        attributes = [{"name": name, "data": name}]
        stream.append("ad00", {"source_name": name, "id": 1, "data": np.eye(3), "attributes": attributes})
        stream.append("da00", {"source_name": name, "data": [{"name": "signal", "data": [1.0], "unit": name}]})
        stream.append("f142", {"source_name": name, "timestamp": 1, "value": name})
        stream.append("json", {"json": f'"{name!r}"'})
    with _Writer(memory / "runs") as writer:
        metadata = beamport._run.json.dumps({name: name})
        writer.append(bprn("r", "open", T0, metadata=metadata, reason=name.replace("\0", "")), T0)
    for thing in (data, data["s"], *data["s"].read(), data.run("r"), data.run("r").ledger()):
        text_of(thing)
    assert name[:20] in text_of(data["s"][0])
    row = {"stream": name, "origin": name, "lost": {name: 3}}
    hostile = beamport._run.Ledger(run=name, state=name, lost=0, closed=True, entries=[row], rows=[row], gaps=[row])
    assert name[:20] in text_of(hostile)


def test_a_ledger_is_a_dict_and_shows_its_accounts(memory):
    write_events(memory / "detector", [0, 1, 4])
    identity = beamport.open(memory)["detector"].uuid
    with _Writer(memory / "runs") as writer:
        end = T0 + 9 * SECOND
        writer.append(bprn("r", "sealed", T0, end, [("detector", identity, 1, 0, 3)]), end)
    ledger = beamport.open(memory).run("r").ledger()
    assert isinstance(ledger, dict) and ledger["lost"] == 2
    shown = text_of(ledger)
    assert "sealed, closed, 2 lost" in shown and "bank0" in shown and "unexplained" in shown


def test_what_cannot_be_read_is_shown_as_its_error(memory):
    write_events(memory / "good", range(1))
    with _Writer(memory / "odd") as writer:
        writer.append(b"12345678 no message", T0, schema="ev44")
    (memory / "broken").mkdir()
    (memory / "broken" / "stream").write_text("no header")
    data = beamport.open(memory)
    shown = text_of(data)
    assert "good" in shown and "broken" in shown
    assert "no fields that can be read" in text_of(data["odd"][0])
    remove(memory / "broken")


def test_a_frame_is_a_picture(memory):
    data = beamport.open(memory)
    with data.create("camera") as stream:
        stream.append("ad00", {"source_name": "c", "id": 1, "data": np.arange(12, dtype="u2").reshape(3, 4)})
        stream.append("f144", {"source_name": "c", "value": 1.5})
    assert (pixels(data["camera"][0]._repr_html_()) == pixels(picture(np.arange(12).reshape(3, 4)))).all()
    assert "<img" not in data["camera"][1]._repr_html_()


def test_pictures_are_small_and_true():
    ramp = np.arange(100.0).reshape(10, 10)
    grey = pixels(picture(ramp))
    assert (
        grey.shape == (10, 10)
        and grey[0, 0] == 0
        and grey[9, 9] == 255
        and (np.diff(grey.ravel().astype(int)) >= 0).all()
    )
    for shape in ((4096, 3000), (1, 100_000), (513, 2), (512, 512)):
        large = pixels(picture(np.ones(shape, "u1")))
        assert max(large.shape) <= 512 and large.size > 0
    # One hot pixel leaves the others visible.
    hot = np.tile(np.arange(50, dtype="f4"), (50, 1))
    hot[0, 0] = 1e30
    assert len(np.unique(pixels(picture(hot)))) > 40


@pytest.mark.parametrize("dtype", ["i1", "u1", "i8", "u8", "f4", "f8"])
def test_pictures_of_odd_numbers(dtype):
    limits = np.iinfo(dtype) if dtype[0] in "iu" else np.finfo(dtype)
    extremes = np.array([[limits.min, limits.max]] * 4, dtype)
    assert pixels(picture(extremes)).tolist()[0] == [0, 255]
    assert pixels(picture(np.full((3, 3), 7, dtype))).tolist() == [[0] * 3] * 3
    if dtype[0] == "f":
        odd = np.array([[np.nan, np.inf], [-np.inf, 1]], dtype)
        assert pixels(picture(odd)).shape == (2, 2)
        assert not pixels(picture(np.full((600, 600), np.nan, dtype))).any()


def test_what_is_no_picture():
    assert picture(np.zeros((0, 4))) is None and picture(np.zeros(4)) is None and picture("text") is None
    assert picture(np.zeros((2, 2, 5))) is None
    colours = np.zeros((2, 2, 3), "u1")
    colours[0, 0] = 1, 2, 3
    assert pixels(picture(colours))[0, 0].tolist() == [1, 2, 3]


def test_long_tables_are_cut():
    shown = _html._table(["n"], ([str(n)] for n in range(1000)))
    assert "and 900 more" in shown and shown.count("<tr>") == 102
