"""How-to pages whose blocks are executed as they stand, one after the other."""

import os
import re
import sys

import h5py
import numpy as np
import pytest
from test_tutorial import ROOT, blocks, script, terminal  # noqa: F401


def test_an_instrument_is_described_and_its_file_read(terminal, tmp_path):  # noqa: F811
    snx = pytest.importorskip("scippnexus")
    pytest.importorskip("silx.io")
    text = "\n".join(
        (ROOT / "docs" / "how-to" / page).read_text() for page in ("describe-my-instrument.md", "read-the-file.md")
    )
    assert len(blocks(text)) == 11
    status, out, err = terminal(script(text))
    print(out, err)
    assert status == 0, err[-3000:]
    for file in ("lab.toml", "static.toml"):
        assert f"{file}: good: 2 sources, 1 sink, 1 run" in out
    assert "exit status 2" in out
    # Both mistakes are named with their places.
    assert "did you mean `linspace`?" in err and "`mm` is not a unit of an angle" in err
    assert err.count("/config/") >= 2
    assert "ledger (closed)" in out and "source at [  0.   0. -20.]" in out
    with h5py.File(tmp_path / "lab_first.nxs") as file:
        angles = np.deg2rad(file["entry/instrument/detector/transformations/angle/value"][:])
        events = file["entry/instrument/detector/events"]
        counts = len(events["event_id"]), len(events["event_time_zero"])
    # The arm goes up with the motor, and 4 m stay 4 m.
    with snx.File(tmp_path / "lab_first.nxs") as file:
        place = snx.compute_positions(file["entry/instrument"][...])["detector"]["position"].values
    assert (angles > 0).all()
    np.testing.assert_allclose(place, np.stack([0 * angles, 4 * np.sin(angles), 4 * np.cos(angles)], axis=1), atol=1e-9)
    assert f"{counts[0]} events of {counts[1]} pulses" in out
    assert "since 1970-01-01T00:00:00Z" in out and "lost: 0" in out
    assert re.search(r"temperature [0-9.]+ K at 20\d\d-", out)
    assert "temperature in K" in out and "parts: chopper, detector, name, source" in out


def test_the_writer_is_tried_without_an_instrument(terminal, tmp_path):  # noqa: F811
    text = (ROOT / "docs" / "how-to" / "try-the-writer.md").read_text()
    assert [language for language, _ in blocks(text)] == ["sh", "sh", "python", "sh", "python", "sh"]
    status, out, err = terminal(script(text))
    assert status == 0, err
    answer = text.partition("```\nfile      ")[2].partition("```")[0]
    assert "\nmessages  " + answer.partition("\nmessages  ")[2] in out
    # What the program prints stands on the page.
    printed = text.partition("```python\n")[2].partition("```\n\n```\n")[2].partition("```")[0]
    assert printed and printed in out
    assert "3 messages\n" in out and "pixel_id=int32[2000]" in out
    with h5py.File(tmp_path / "second.nxs") as file:
        # The first value is older than the run, and the last one before it.
        np.testing.assert_array_equal(file["entry/temperature/value"], [296.1, 296.3])
        assert file["entry/start_time"][()].startswith(b"2026-03-01T12:00:00.5")
        assert len(file["entry/detector/events/event_id"]) == 0


def test_the_files_of_the_kafka_pages_are_good_and_show_no_secret(lab):
    pytest.importorskip("beamport", reason="pip install .")
    files = []
    for page in ("read-and-write-kafka-topics.md", "secure-kafka.md", "use-several-machines.md"):
        text = (ROOT / "docs" / "how-to" / page).read_text()
        for template in re.findall(r"^```json\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            (lab.folder / "loki.json").write_text(template)
        files += re.findall(r"^```toml\n(instrument = .*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(files) == 6 and (lab.folder / "loki.json").exists()
    for text in files:
        lab.file.write_text(text)
        shown = lab.run("check", lab.file, "--show", env=os.environ | {"KAFKA_PASSWORD": "hunter2"})
        assert b"kafka" in shown.stdout and b"hunter2" not in shown.stdout + shown.stderr
        # A secret in the file itself is a mistake, and is not repeated.
        lab.file.write_text(text.replace("env:KAFKA_PASSWORD", "hunter2"))
        if "KAFKA_PASSWORD" in text:
            wrong = lab.run("check", lab.file, status=2)
            assert b"it is a secret" in wrong.stderr and b"hunter2" not in wrong.stderr


def test_pvs_are_read(terminal, tmp_path):  # noqa: F811
    text = (ROOT / "docs" / "how-to" / "connect-epics.md").read_text()
    assert [language for language, _ in blocks(text)] == ["sh"]
    status, out, err = terminal(script(text))
    assert status == 0, err
    assert "lab.toml: good: 1 source" in out and "lost" in out
    assert "TEMPERATURE" in out and "value=" in out


def test_one_value_is_made_of_several_pvs(lab):
    beamport = pytest.importorskip("beamport", reason="pip install .")
    text = (ROOT / "docs" / "how-to" / "one-value-of-several-pvs.md").read_text()
    code, instrument = (text.split(f"```{kind}\n")[1].split("```")[0] for kind in ("python", "toml"))
    (lab.folder / "sample.py").write_text(code)
    lab.file.write_text(instrument.replace("[worker.gradient]\n", f'[worker.gradient]\npython = "{sys.executable}"\n'))
    lab.run("up", lab.file)
    data = beamport.open(lab.folder / "beamport-data" / "sample")
    newest, wanted = {}, []
    for m in data["pvs"].read(schema="f144"):
        newest[m.origin] = m["value"]
        if len(newest) == 2:
            wanted.append((m.source_time, newest["INLET"] - newest["OUTLET"]))
    found = [(m.source_time, m["value"]) for m in data["gradient"].read()]
    assert len(found) > 4 and found == wanted[: len(found)]
