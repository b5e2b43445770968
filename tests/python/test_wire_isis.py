"""`beamport.wire` and the package of ISIS, whose module has the same name as that of the ESS: in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import beamport
import pytest

# Where `cargo xtask setup` puts it.
ASIDE = Path(sys.prefix) / "aside"
HERE = Path(__file__).parent


@pytest.mark.skipif(not (ASIDE / "streaming_data_types").is_dir(), reason="cargo xtask setup")
def test_each_reads_what_the_package_of_isis_writes_and_the_other_way_round():
    path = os.pathsep.join([str(ASIDE), str(Path(beamport.__file__).parents[1])])
    words = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "test_wire_suite.py"]
    done = subprocess.run(words, cwd=HERE, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:]
    for schema in ("pu00", "un00", "vc00", "ev44", "da00", "hs01"):
        assert f"test_each_reads_what_the_other_writes[{schema}] PASSED" in done.stdout, schema
