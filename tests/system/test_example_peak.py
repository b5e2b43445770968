"""The example `peak`: its fit finds the truth, and is that of an undisturbed fit of the same frames after kills."""

import os
import re
import shutil
import signal
import sys

import numpy as np
import pytest
from conftest import ROOT, until

beamport = pytest.importorskip("beamport", reason="pip install .")

NAMES = ["centre", "centre_error", "width", "width_error"]


def test_a_peak_is_that_of_an_undisturbed_fit_whatever_is_killed(lab, times, monkeypatch):
    shutil.copy2(ROOT / "examples/peak.py", lab.folder)
    text = re.split(r"^instrument = .*$", (ROOT / "examples/peak.toml").read_text(), maxsplit=1, flags=re.M)[1]
    truth = {name: float(re.search(rf"{name} = ([\d.]+)", text)[1]) for name in ("centre", "width")}
    text = re.sub(r"^\[run\.\w+\][^\[]*", "", text, flags=re.M)
    lab.write(text.replace('kind = "python"', f'kind = "python"\npython = "{sys.executable}"'))
    process, _ = lab.up_ready()
    data = beamport.open(lab.data)
    data.begin("scan", **{f"true_{name}": str(value) for name, value in truth.items()})
    for _ in range(times(3, 100)):
        before = data["peak"].count
        until(lambda before=before: data["peak"].count > before + 40, "nothing is fitted")
        [os.kill(pid, signal.SIGKILL) for pid in lab.slots(process, "peak")]
    before = data["peak"].count
    until(lambda: data["peak"].count > before + 80, "nothing is fitted")
    data.end()
    until(lambda: data.run("scan").state == "sealed", "the run is not sealed")
    lab.interrupt(process)
    lab.end(process)
    run = data.run("scan")
    span = {"since": run.start, "until": run.stop}
    found = [(m.origin_seq, m["source_name"], float(m.value)) for m in data["peak"].read(**span)]
    monkeypatch.syspath_prepend(str(lab.folder))
    from peak import Peak

    # The same code on the recorded frames of the run, undisturbed: bit for bit the same values.
    code, again = Peak(), []
    for frame in data["placed"].read(**span):
        again += [(frame.origin_seq, one.name, one.value) for one in code(frame) or []]
    # Results of frames that were worked on before the instrument knew of the run are dropped; their counts are in it.
    assert found and found == [one for one in again if one[0] >= found[0][0]]
    last = {name: [value for _, origin, value in found if origin == name][-1] for name in NAMES}
    for name in ("centre", "width"):
        value = float(run.metadata[f"true_{name}"])
        assert 0 < last[f"{name}_error"] < 0.1
        assert np.abs(last[name] - value) < 6 * last[f"{name}_error"], last
