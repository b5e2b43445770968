"""The pages that describe an instrument and read its file are executed as they stand, one after the other."""

import re

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
    assert len(blocks(text)) == 10
    status, out, err = terminal(script(text))
    print(out, err)
    assert status == 0, err[-3000:]
    for file in ("lab.toml", "static.toml"):
        assert f"{file}: good: 2 sources, 1 sink, 1 run" in out
    assert "exit status 2" in out
    # Both mistakes are named with their places.
    assert "perhaps `linspace` is meant" in err and "`mm` is no unit of an angle" in err
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
