"""Each example that needs no other program, started three times in one folder: a run of each start is whole.

Boards are in `test_udp.py`; Kafka and EPICS have tests of their own.
"""

import re
import shutil

import pytest
from conftest import ROOT, lost_of

pytestmark = pytest.mark.usefixtures("nexus")

EXAMPLES = ["amor", "camera", "coincidence", "ess", "imaging", "join", "tbt", "tiles"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_makes_a_whole_run_at_each_of_three_starts(lab, name):
    for file in (ROOT / "examples").iterdir():
        if file.is_file():
            shutil.copy2(file, lab.folder)
    text = (ROOT / f"examples/{name}.toml").read_text()
    text = re.split(r"^instrument = .*$", text, maxsplit=1, flags=re.M)[1]
    text = re.sub(r"^\[run\.\w+\][^\[]*", "", text, flags=re.M)
    counts = []
    for run in ("one", "two", "three"):
        lab.write(f'{text}\n[run.{run}]\nduration = "1 s"\nsettle = "1 s"\n')
        report = lab.report(lab.up())
        assert report["run"] == run and report["closed"] and lost_of(report) == 0, report
        counts.append({line["name"]: line["messages"] for line in report["streams"]})
        # What a start before made is in no account of this run.
        assert all(line["late"] == 0 for line in report["streams"])
    for stream in counts[0]:
        made = [count[stream] for count in counts]
        assert all(made) or not any(made), f"{stream}: {made}"
    print(f"{name}: 3 starts in one folder, {[sum(count.values()) for count in counts]} messages, 0 lost")
