"""Frames as small pictures: PNG, made with zlib alone."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import numpy as np

# Pixels of the longer side: what fits beside a cell of a notebook.
PIXELS_MAX = 512
# The darkest and the brightest hundredth are cut: one hot pixel does not turn a frame black.
_PERCENTILES = (1, 99)


def picture(array: Any) -> str | None:
    """Make an `<img>` of an array of two dimensions (or of three, the last being red, green and blue); else `None`."""
    array = np.asarray(array)
    if array.dtype.kind not in "biuf" or array.size == 0:
        return None
    is_colour = array.ndim == 3 and array.shape[2] in (3, 4) and array.dtype == np.uint8
    if is_colour:
        pixels = np.stack([_reduced(array[:, :, channel]) for channel in range(3)], axis=2).astype(np.uint8)
    elif array.ndim == 2:
        pixels = _grey(_reduced(array))
    else:
        return None
    height, width = pixels.shape[:2]
    data = base64.b64encode(_png(pixels)).decode("ascii")
    # Small frames are shown larger, with their pixels as squares.
    shown = width * max(1, PIXELS_MAX // 2 // max(width, height))
    return f'<img width="{shown}" style="image-rendering: pixelated" src="data:image/png;base64,{data}">'


def _reduced(array: np.ndarray) -> np.ndarray:
    """Means of squares of pixels, so many that the picture is not too large; NaN where a square has no finite value."""
    step = -(-max(array.shape) // PIXELS_MAX)
    finite = np.isfinite(array)
    rows, columns = (np.arange(0, length, step) for length in array.shape)

    def summed(values: np.ndarray) -> np.ndarray:
        total: np.ndarray = np.add.reduceat(np.add.reduceat(values, rows, 0, np.float64), columns, 1, np.float64)
        return total

    with np.errstate(all="ignore"):
        means: np.ndarray = summed(array if finite.all() else np.where(finite, array, 0)) / summed(finite)
    means[~np.isfinite(means)] = np.nan
    return means


def _grey(values: np.ndarray) -> np.ndarray:
    """Grey values; what is not finite is black."""
    finite = values[np.isfinite(values)]
    if finite.size == 0:
        return np.zeros(values.shape, np.uint8)
    low, high = np.percentile(finite, _PERCENTILES)
    if low == high:
        low, high = finite.min(), finite.max()
    # Halves, because the difference of two doubles may be none.
    span = high / 2 - low / 2
    scaled = (values / 2 - low / 2) / span if span > 0 else np.zeros(values.shape)
    return (np.clip(np.nan_to_num(scaled, nan=0.0), 0, 1) * 255).astype(np.uint8)


def _png(pixels: np.ndarray) -> bytes:
    """A PNG of grey or coloured pixels of 8 bits."""
    height, width = pixels.shape[:2]
    colours = 0 if pixels.ndim == 2 else 2
    # Each row begins with its filter: none.
    rows = np.zeros((height, pixels[0].size + 1), np.uint8)
    rows[:, 1:] = pixels.reshape(height, -1)
    head = struct.pack(">IIBBBBB", width, height, 8, colours, 0, 0, 0)
    parts = [(b"IHDR", head), (b"IDAT", zlib.compress(rows.tobytes(), 6)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, content) for kind, content in parts)


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
