"""State of user code as bytes: what `save` returns, and `restore` is given.

The bytes are the length of a JSON text (8 bytes, little-endian), the text, and the arrays and bytes that it refers to,
one behind the other. In a commit of a source they are text, in base64.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np

_DEPTH_MAX = 64
# Bytes of a state as text: it is in a commit of the source, of which there is one a second.
_TEXT_BYTES_MAX = 128 << 10
_MARK = "\0"
_KINDS = "a number, text, bytes, None, a numpy array, or lists, tuples and dicts of these"


def pack(value: Any) -> bytes:
    """Encode a state. Raises `TypeError` for what a state cannot hold, with its place."""
    parts: list[bytes] = []
    tree = _packed(value, parts, "state", 0)
    text = json.dumps(tree).encode()
    return b"".join([len(text).to_bytes(8, "little"), text, *parts])


def unpack(data: bytes) -> Any:
    """Decode a state."""
    size = int.from_bytes(data[:8], "little")
    return _unpacked(json.loads(data[8 : 8 + size]), memoryview(data)[8 + size :])


def encode(state: Any) -> str:
    """Encode a state as text. Raises `TypeError` for what a state cannot hold, `ValueError` for one that is too large."""
    text = base64.b64encode(pack(state)).decode()
    if len(text) > _TEXT_BYTES_MAX:
        raise ValueError(
            f"`save()` returned a state of {len(text)} bytes, and at most {_TEXT_BYTES_MAX} are kept: keep more in a file of "
            "your own, and its name in the state"
        )
    return text


def decode(text: str) -> Any:
    """Decode a state from text."""
    return unpack(base64.b64decode(text))


def _packed(value: Any, parts: list[bytes], where: str, depth: int) -> Any:
    if depth > _DEPTH_MAX:
        raise TypeError(f"`{where}` is nested too deeply")
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, np.ndarray | np.generic):
        return _array(np.asarray(value), isinstance(value, np.generic), parts, where)
    if isinstance(value, int | float):
        return value if isinstance(value, int) else {_MARK: "float", "value": value.hex()}
    if isinstance(value, bytes | bytearray | memoryview):
        return {_MARK: "bytes", **_placed(bytes(value), parts)}
    if isinstance(value, list | tuple):
        items = [_packed(item, parts, f"{where}[{at}]", depth + 1) for at, item in enumerate(value)]
        return items if isinstance(value, list) else {_MARK: "tuple", "items": items}
    if isinstance(value, dict):
        pairs = [
            [_packed(key, parts, f"a key of {where}", depth + 1), _packed(item, parts, f"{where}[{key!r}]", depth + 1)]
            for key, item in value.items()
        ]
        return {_MARK: "dict", "items": pairs}
    raise TypeError(f"`{where}` is a {type(value).__name__}, and `save` may return {_KINDS}")


def _array(array: np.ndarray, is_single: bool, parts: list[bytes], where: str) -> dict[str, Any]:
    if array.dtype.hasobject:
        raise TypeError(f"`{where}` is an array of Python objects, and `save` may return {_KINDS}")
    kind = array.dtype.descr if array.dtype.fields else array.dtype.str
    return {
        _MARK: "single" if is_single else "array",
        "dtype": kind,
        "shape": list(array.shape),
        **_placed(array.tobytes(), parts),
    }


def _placed(data: bytes, parts: list[bytes]) -> dict[str, int]:
    at = sum(map(len, parts))
    parts.append(data)
    return {"at": at, "size": len(data)}


def _unpacked(tree: Any, rest: memoryview) -> Any:
    if isinstance(tree, list):
        return [_unpacked(item, rest) for item in tree]
    if not isinstance(tree, dict):
        return tree
    kind = tree[_MARK]
    if kind == "float":
        return float.fromhex(tree["value"])
    if kind == "tuple":
        return tuple(_unpacked(item, rest) for item in tree["items"])
    if kind == "dict":
        return {_unpacked(key, rest): _unpacked(item, rest) for key, item in tree["items"]}
    data = rest[tree["at"] : tree["at"] + tree["size"]]
    if kind == "bytes":
        return bytes(data)
    described = tree["dtype"]
    dtype = np.dtype([tuple(field) for field in described] if isinstance(described, list) else described)
    array = np.frombuffer(data, dtype).reshape(tree["shape"]).copy()
    return array[()] if kind == "single" else array
