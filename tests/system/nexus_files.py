"""Comparing NeXus files: everything that is in them, dataset by dataset."""

import json
from pathlib import Path

import h5py
import numpy as np

# These say which file it is, when it was made and by which stage, not what was measured.
OWN_ATTRIBUTES = {"file_name", "file_time", "creator"}
OWN_DATASETS = {"/entry/beamport/rows/stage"}


def content(path: Path, others: tuple[str, ...] = ()) -> dict:
    """Every group, dataset, link and attribute of a file, by its path; links to `others` are followed."""
    found = {}

    def attributes(name, node):
        for key, value in node.attrs.items():
            if name or key not in OWN_ATTRIBUTES:
                found[f"{name}@{key}"] = plain(value)

    def walk(name, group):
        attributes(name, group)
        for key in group:
            child = f"{name}/{key}"
            link = group.get(key, getlink=True)
            if isinstance(link, h5py.SoftLink):
                found[child] = ("link", link.path)
                continue
            if isinstance(link, h5py.ExternalLink):
                assert (link.filename in others, link.path) == (True, child), f"{child} leads to {link.filename}"
            node = group[key]
            if isinstance(node, h5py.Group):
                found[child] = ("group",)
                walk(child, node)
            else:
                found[child] = ("dataset", str(node.dtype), node.shape, plain(node[()]))
                attributes(child, node)

    with h5py.File(path, "r") as file:
        walk("", file)
    return found


def plain(value):
    """A value that can be compared, NaN with NaN."""
    if isinstance(value, np.ndarray):
        return value.tolist() if value.dtype.hasobject else (str(value.dtype), value.shape, value.tobytes())
    return value.tobytes() if isinstance(value, np.generic) else value


def account(path: Path) -> dict:
    """The ledger that stands in a file, without the name of the stage that wrote it."""
    with h5py.File(path, "r") as file:
        found = json.loads(file["entry/beamport/account"][()])
    for row in found["rows"]:
        del row["stage"]
    return found


def different(one: Path, other: Path) -> list[str]:
    """Names of what two files do not have in common."""
    a, b = content(one), content(other)
    for name in OWN_DATASETS:
        assert a.pop(name)[:3] == b.pop(name)[:3]
    a["/entry/beamport/account"], b["/entry/beamport/account"] = account(one), account(other)
    return sorted(name for name in a.keys() | b.keys() if a.get(name) != b.get(name))
