"""What is public, said in the reference, typed in the stub, and shown in examples that run."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
from pathlib import Path

import beamport
import pytest
import reference_page
from beamport import _core
from payloads import T0, ev44, write_events

ROOT = Path(__file__).resolve().parents[2]
STUB = ROOT / "python" / "beamport" / "_core.pyi"


def test_at_most_sixteen_public_names():
    names = {name for name in vars(beamport) if not name.startswith("_") and name != "version"}
    # A module of its own is not counted: nobody meets it who does not ask for it.
    public = {name for name in names if not inspect.ismodule(getattr(beamport, name))}
    assert names - public <= {"epics", "files", "nexus", "testing", "wire"}
    assert len(beamport.__all__) <= 16
    assert public == set(beamport.__all__)


def test_the_reference_page_is_of_today():
    text = (ROOT / "docs" / "reference" / "python.md").read_text()
    _, mark, rest = text.partition(reference_page.BEGIN)
    hint = "make it anew: python tests/python/reference_page.py, below the introduction"
    assert mark + rest == reference_page.page(), hint


def test_every_public_member_says_what_it_is():
    for name in beamport.__all__:
        thing = getattr(beamport, name)
        assert inspect.getdoc(thing), name
        if inspect.isclass(thing):
            for member, value in vars(thing).items():
                assert member.startswith("_") or inspect.getdoc(value), f"{name}.{member}"


def stub_classes() -> dict[str, ast.ClassDef]:
    return {node.name: node for node in ast.parse(STUB.read_text()).body if isinstance(node, ast.ClassDef)}


@pytest.mark.parametrize("name", sorted(stub_classes()))
def test_the_stub_has_the_members_of_the_module(name):
    real, stub = getattr(_core, name), stub_classes()[name]
    functions = {node.name: node for node in stub.body if isinstance(node, ast.FunctionDef)}
    # Slots that Python derives from others, or that stand for ones that a checker does not know.
    ignored = {
        "__doc__",
        "__module__",
        "__repr__",
        "__setitem__",
        "__delitem__",
        "__getitem__",
        "__iter__",
        "__buffer__",
    }
    assert set(vars(real)) - ignored == set(functions) - ignored
    for member, node in functions.items():
        if member.startswith("__") or any(getattr(d, "id", "") == "property" for d in node.decorator_list):
            continue
        wanted = [parameter.name for parameter in inspect.signature(getattr(real, member)).parameters.values()]
        arguments = [a.arg for a in node.args.posonlyargs + node.args.args + node.args.kwonlyargs]
        assert wanted == arguments, f"{name}.{member}"


def test_the_stub_has_the_names_of_the_module():
    tree = ast.parse(STUB.read_text())
    names = {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    assert names == {name for name in vars(_core) if not name.startswith("__")}


@pytest.mark.parametrize(
    "module", ["beamport", "beamport._data", "beamport._errors", "beamport._when", "beamport.testing"]
)
def test_examples(module, memory, monkeypatch):
    writer = write_events(memory / "detector", [], close=False)
    for n, pixels in enumerate([[3, 1, 2], [4, 2, 3], [5, 3, 4]]):
        writer.append(ev44(n, T0 + n, pixels), T0 + n)
    writer.close()
    write_events(memory / "temperature", range(1))
    monkeypatch.setenv("BEAMPORT_DATA", str(memory))
    result = doctest.testmod(importlib.import_module(module))
    assert result.attempted > 0 and result.failed == 0
