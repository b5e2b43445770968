"""The notebook among the examples: its cells run one after another, and show what a notebook would show."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parents[2] / "examples" / "look.ipynb"


def cells(kind: str) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == kind]


async def shown(source: str, names: dict[str, Any]) -> Any:
    """Execute a cell as a notebook does; returns the value of its last line where that is one."""
    tree = ast.parse(source)
    if isinstance(tree.body[-1], ast.Expr):
        tree.body[-1] = ast.Assign([ast.Name("_", ast.Store())], tree.body[-1].value)
    code = compile(ast.fix_missing_locations(tree), "cell", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    names["_"] = None
    if inspect.iscoroutine(waiting := eval(code, names)):
        await waiting
    return names["_"]


def test_the_cells_run_in_order_also_a_second_time(workplace):
    async def main() -> list[Any]:
        names: dict[str, Any] = {"__name__": "__main__"}
        try:
            return [await shown("".join(cell["source"]), names) for cell in cells("code")]
        finally:
            if "data" in names:
                names["data"].close()

    for _ in range(2):
        values = asyncio.run(main())
        for value in values:
            if hasattr(value, "_repr_html_"):
                assert value._repr_html_()
        assert "<img" in values[2]._repr_html_()
        assert values[3] and len(values[-3]) == 20
        assert values[-1]["closed"] and values[-1]["lost"] == 0


def test_no_output_is_kept():
    for cell in cells("code"):
        assert cell["outputs"] == [] and cell["execution_count"] is None
