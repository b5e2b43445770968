"""State of user code as text: what `save()` returns, and `restore(state)` gets back."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np

# Bytes of the text: it is in a commit of the source, of which there is one a second.
_BYTES_MAX = 128 << 10


def encode(state: Any) -> str:
    """Write a state as text; `TypeError` or `ValueError` says what to return instead."""
    text = json.dumps(_plain(state))
    if len(text) > _BYTES_MAX:
        raise ValueError(
            f"`save()` returned a state of {len(text)} bytes, and at most {_BYTES_MAX} are kept: keep more in a file of "
            "your own, and its name in the state"
        )
    return text


def decode(text: str) -> Any:
    """Read what `encode` wrote."""
    return _made(json.loads(text))


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "biufc":
            raise TypeError(f"`save()` returned an array of dtype {value.dtype}: return arrays of numbers")
        array = np.ascontiguousarray(value)
        return {"array": [array.dtype.str, list(value.shape), base64.b64encode(array.tobytes()).decode()]}
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        return value.item()
    if isinstance(value, bytes | bytearray):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise TypeError("`save()` returned a dict with keys that are no texts: use texts as keys")
        return {"dict": {key: _plain(one) for key, one in value.items()}}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(
        f"`save()` returned a `{type(value).__name__}`: return None, numbers, texts, bytes, arrays of numbers, and lists and "
        "dicts of these"
    )


def _made(value: Any) -> Any:
    if isinstance(value, list):
        return [_made(one) for one in value]
    if not isinstance(value, dict):
        return value
    if "dict" in value:
        return {key: _made(one) for key, one in value["dict"].items()}
    if "bytes" in value:
        return base64.b64decode(value["bytes"])
    kind, shape, text = value["array"]
    return np.frombuffer(base64.b64decode(text), np.dtype(kind)).reshape(shape).copy()
