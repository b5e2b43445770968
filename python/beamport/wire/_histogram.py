"""What `hs00` and `hs01` share: all but the types of their whole numbers."""

from __future__ import annotations

import numpy as np

from beamport._core import _wire_read, _wire_write
from beamport.wire._arrays import column, shaped
from beamport.wire.exceptions import UnfitValueException


def read(schema: str, buffer) -> dict:
    """The dict of a histogram; its arrays are read-only views of the buffer."""
    source, timestamp, dims, changed, shape, _, data, errors, info = _wire_read(schema, buffer)
    shape = shape.tolist()
    return {
        "source": source,
        "timestamp": timestamp,
        "current_shape": shape,
        "dim_metadata": [
            {"length": length, "bin_boundaries": edges, "unit": unit, "label": label}
            for length, unit, label, edges in dims
        ],
        "data": shaped(schema, data, shape),
        "errors": [] if errors is None else shaped(schema, errors, shape),
        "last_metadata_timestamp": changed,
        "info": info,
    }


def write(schema: str, whole: str, histogram: dict) -> bytes:
    """Write a histogram; `whole` is `int` or `uint`."""
    flat = lambda values: _flat(values, whole)  # noqa: E731
    dims = [
        (dim["length"], dim.get("unit", ""), dim.get("label", ""), flat(dim["bin_boundaries"]))
        for dim in histogram["dim_metadata"]
    ]
    return _wire_write(
        schema,
        (
            histogram.get("source", ""),
            histogram["timestamp"],
            dims or None,
            histogram.get("last_metadata_timestamp", 0),
            column(list(histogram["current_shape"]), f"{whole}32"),
            None,
            flat(histogram["data"]),
            flat(histogram["errors"]) if "errors" in histogram else None,
            histogram.get("info", ""),
        ),
    )


def _flat(values, whole: str) -> np.ndarray:
    """In one dimension, of a type that the schema has: whole numbers in 64 bits, all else as doubles."""
    values = np.ascontiguousarray(values).reshape(-1)
    if values.dtype.kind not in "biuf":
        raise UnfitValueException("an array of numbers is wanted", f"this is one of {values.dtype}")
    values = values.astype(values.dtype.newbyteorder("="), copy=False)
    if values.dtype.name in (f"{whole}32", f"{whole}64", "float32", "float64"):
        return values
    return values.astype(f"{whole}64" if values.dtype == np.int64 else "float64")
