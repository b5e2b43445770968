"""The part of `docs/reference/python.md` that is made from the docstrings: `python tests/python/reference_page.py`."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from pathlib import Path
from types import ModuleType

import beamport
import beamport.epics
import beamport.testing
from beamport import _core

BEGIN = "<!-- From here on made from the docstrings by tests/python/reference_page.py; a test compares. -->"


def page() -> str:
    """Every public name, with the names of its members, in the order of reading."""
    order = [
        "open",
        "run",
        "worker",
        "result",
        "message",
        "finder",
        "slot",
        "statistics",
        "Data",
        "Stream",
        "Message",
        "Batch",
        "Run",
        "Instrument",
        "Error",
    ]
    assert sorted(order) == sorted(beamport.__all__)
    named = [(name, getattr(beamport, name)) for name in order]
    # Nobody makes one by its name: it is what `Data.create` gives.
    named.insert(order.index("Stream") + 1, ("Writer", _core.Writer))
    return (
        BEGIN
        + "\n"
        + "".join(_section(name, thing) for name, thing in named)
        + _module(beamport.testing)
        + _module(beamport.epics)
    )


def _module(module: ModuleType) -> str:
    """The functions of a module that is imported by its name."""
    text = f"\n## {module.__name__}\n\n{_prose(module)}\n"
    for name in module.__all__:
        if not inspect.isclass(thing := getattr(module, name)):
            text += f"\n### {module.__name__}.{name}\n\n{_signed(name, thing)}\n\n{_prose(thing)}\n"
    return text


def _section(name: str, thing: object) -> str:
    text = f"\n## {name}\n\n"
    if not callable(thing):
        return text + f"{_prose(thing)}\n"
    if not inspect.isclass(thing):
        return text + f"{_signed(name, thing)}\n\n{_prose(thing)}\n"
    text += _prose(thing) + "\n"
    members = [(member, vars(thing)[member]) for member in _in_order(thing) if _is_public(member)]
    values = [(member, value) for member, value in members if not callable(value)]
    if values:
        text += "\n| property | is |\n|---|---|\n"
        text += "".join(f"| `{member}` | {_line(value)} |\n" for member, value in values)
    for member, value in members:
        if callable(value):
            text += f"\n### {name}.{member}\n\n{_signed(member, value)}\n\n{_prose(value)}\n"
    return text


def _in_order(thing: type) -> list[str]:
    """Names of the members as they are written; for a compiled class, whose members have no order, in the stub."""
    stub = Path(beamport.__file__).with_name("_core.pyi")
    for node in ast.parse(stub.read_text()).body:
        if isinstance(node, ast.ClassDef) and node.name == thing.__name__:
            return [member.name for member in node.body if isinstance(member, ast.FunctionDef)]
    return list(vars(thing))


def _is_public(member: str) -> bool:
    return not member.startswith("_")


def _signed(name: str, thing: object) -> str:
    signature = inspect.signature(thing)
    parameters = [parameter for parameter in signature.parameters.values() if parameter.name != "self"]
    bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters]
    return f"```python\n{name}{inspect.Signature(bare)}\n```"


def _line(thing: object) -> str:
    return " ".join(inspect.getdoc(thing).split()).replace("|", "\\|")


def _prose(thing: object) -> str:
    """The docstring as Markdown: what follows `Example:` becomes code, `name: meaning` becomes a list."""
    out: list[str] = []
    lines = inspect.getdoc(thing).splitlines()
    while lines:
        line = lines.pop(0)
        if line.rstrip(":") == "Example" and lines:
            code = []
            while lines and (not lines[0].strip() or lines[0].startswith("    ")):
                code.append(lines.pop(0))
            out += ["Example:", "", "```python", textwrap.dedent("\n".join(code)).strip("\n"), "```", ""]
        elif named := re.match(r"\s*([a-z_]+(?:, [a-z_]+)*)(?: \(([^)]*)\))?: (.*)", line):
            names, kind, text = named.groups()
            if out and out[-1] and not out[-1].startswith(("* ", "  ")):
                out.append("")
            out.append(f"* `{names}`{f' ({kind})' if kind else ''}: {text}")
        elif line.startswith("    "):
            out.append(f"  {line.strip()}")
        else:
            out.append(line)
    return "\n".join(out).strip()


if __name__ == "__main__":
    print(page(), end="")
