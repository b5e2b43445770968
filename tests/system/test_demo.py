"""`beamport demo`: the report, the file it names, its seed, and events drawn from a measured histogram."""

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import urllib.request
from pathlib import Path

import h5py
import numpy as np
import pytest
from conftest import HANG_S, ROOT, as_a_shell, until

EVENTS = "entry/instrument/detector/data"
MEASURED = ROOT.parent / "shared" / "data" / "amor2015n001774.hdf"


def events(path: Path) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """Pixels and times of flight of each pulse."""
    with h5py.File(path) as file:
        data = file[EVENTS]
        zero, index = data["event_time_zero"][:], data["event_index"][:].astype(np.int64)
        ids, offsets = data["event_id"][:], data["event_time_offset"][:]
    ends = np.append(index[1:], len(ids))
    pulses = zip(zero, index, ends, strict=True)
    return {int(time): (ids[low:high], offsets[low:high]) for time, low, high in pulses}


def known(lab, file: Path) -> tuple[int, str]:
    """What `verify` says of a file: its exit status, and the hash that it has."""
    done = lab.run("verify", file, "--data", lab.data, "--json", status=None)
    return done.returncode, json.loads(done.stdout)["files"][0]["blake3"]


def test_report_of_the_demonstration_is_true(lab, nexus):
    done = lab.run("demo", "--duration", "2 s", "--json", "--data", lab.data)
    report = json.loads(done.stdout)
    assert {"file", "blake3", "closed", "streams", "ledger"} <= report.keys()
    assert report["closed"] is True
    file = Path(report["file"])
    assert file.is_file() and known(lab, file) == (0, report["blake3"])
    assert file.stat().st_size == report["size"]
    changed = lab.folder / "changed.nxs"
    changed.write_bytes(file.read_bytes())
    assert known(lab, changed) == (0, report["blake3"]), "a copy is known by its hash"
    with file.open("r+b") as one:
        one.seek(report["size"] // 2)
        was = one.read(1)
        one.seek(-1, 1)
        one.write(bytes([was[0] ^ 1]))
    status, other = known(lab, file)
    assert status == 1 and other != report["blake3"]
    file.write_bytes(changed.read_bytes())
    lines = {line["name"]: line for line in report["streams"]}
    assert lines.keys() == {"detector", "monitor", "devices"}
    for line in lines.values():
        assert line.keys() == {"name", "messages", "events", "bytes", "lost", "late"}
        assert line["messages"] > 0 and line["bytes"] > 0 and line["lost"] == 0
    written = events(file)
    assert len(written) == lines["detector"]["messages"] == pytest.approx(28, abs=1)
    assert sum(len(ids) for ids, _ in written.values()) == lines["detector"]["events"]
    # 1e6 events a second for 28 pulses of 14 Hz: Poisson, so 7 standard deviations are never seen.
    wanted = 1e6 * len(written) / 14
    assert abs(lines["detector"]["events"] - wanted) < 7 * wanted**0.5
    assert {row["account"] for row in report["ledger"]} == {"entry", "reader"}
    assert all(row["closed"] for row in report["ledger"])
    # A second one replaces the first; a folder that is something else is left alone.
    again = json.loads(lab.run("demo", "--duration", "200 ms", "--json", "--data", lab.data).stdout)
    assert again["closed"] and again["blake3"] != report["blake3"] and again["content"] != report["content"]
    mine = lab.folder / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    lab.run("demo", "--duration", "200 ms", "--data", mine, status=2)
    assert [path.name for path in mine.iterdir()] == ["thesis.txt"]


def test_equal_seeds_give_equal_events(lab, nexus):
    # What a pulse brings depends on seed and pulse alone: demonstrations of the same seconds can be compared.
    folders = [(lab.folder / name, seed) for name, seed in (("one", 7), ("two", 7), ("other", 8))]
    started = [
        lab.popen("demo", "--duration", "2 s", "--json", "--rate", "1e5", "--seed", seed, "--data", folder)
        for folder, seed in folders
    ]
    try:
        one, two, other = (events(json.loads(lab.end(process))["file"]) for process in started)
    finally:
        for folder, _ in folders:
            lab.take_back(folder)
    common = one.keys() & two.keys() & other.keys()
    assert len(common) > 5, "they did not run at the same time"
    for pulse in common:
        assert all(np.array_equal(a, b) for a, b in zip(one[pulse], two[pulse], strict=True))
        assert not all(np.array_equal(a, b) for a, b in zip(one[pulse], other[pulse], strict=True))
    print(f"{len(common)} pulses with equal seeds are equal, and differ from those of another seed")


def test_events_drawn_from_a_measurement_agree_with_it(lab, nexus):
    if not MEASURED.is_file():
        pytest.skip(f"the measured file is not here: {MEASURED}")
    report = json.loads(
        lab.run("demo", "--duration", "4 s", "--rate", "2e6", "--json", "--from", MEASURED, "--data", lab.data).stdout
    )
    assert report["closed"]
    with h5py.File(MEASURED) as file:
        measured = file["entry1/AMOR/area_detector/data"][:].astype(np.int64)
        # Lower edges of the bins in ticks of 100 ns, though labelled ms: 90,706 ms would be a neutron at rest.
        lower = file["entry1/AMOR/area_detector/time_binning"][:].astype(np.float64) * 100
    edges = np.append(lower, 2 * lower[-1] - lower[-2])
    pulses = events(Path(report["file"]))
    ids = np.concatenate([pulse[0] for pulse in pulses.values()]).astype(np.int64)
    offsets = np.concatenate([pulse[1] for pulse in pulses.values()]).astype(np.float64)
    assert len(ids) == report["streams"][0]["events"] > 1_000_000
    assert ids.min() >= 1 and ids.max() <= 32768
    assert offsets.min() >= edges[0] - 1 and offsets.max() <= edges[-1] + 1
    by_pixel = np.bincount(ids - 1, minlength=32768)
    by_time, _ = np.histogram(np.clip(offsets, edges[0], edges[-1]), edges)
    told = []
    for name, found, truth in [
        ("pixel", by_pixel, measured.sum(axis=2).ravel()),
        ("time", by_time, measured.sum(axis=(0, 1))),
    ]:
        empty = truth == 0
        assert found[empty].sum() == 0, f"{name}: {empty.sum()} bins were empty and are not"
        wanted = truth[~empty] * (len(ids) / truth.sum())
        assert wanted.min() > 5
        freedom = len(wanted) - 1
        squares = ((found[~empty] - wanted) ** 2 / wanted).sum()
        sigmas = (squares - freedom) / (2 * freedom) ** 0.5
        # Both ways: events that agree too well were not drawn at random.
        assert abs(sigmas) < 6, f"{name}: chi-squared {squares:.0f} for {freedom} degrees of freedom"
        told.append(f"{name} chi-squared/dof {squares / freedom:.3f} of {freedom}, {int(empty.sum())} empty stay empty")
    print(f"{len(ids)} events drawn from the measurement: {'; '.join(told)}")


def test_what_is_no_measurement_is_refused(lab, nexus):
    other = lab.folder / "other.h5"
    with h5py.File(other, "w") as file:
        file["nothing"] = [1, 2, 3]
    (lab.folder / "text.h5").write_text("no HDF5")
    for path in (other, lab.folder / "text.h5", lab.folder / "absent.h5", Path("/dev/null")):
        done = lab.run("demo", "--from", path, "--duration", "1 s", "--data", lab.data, status=2)
        assert b"error:" in done.stderr and done.stdout == b""
    print("measured files: 4 that are none injected, refused")


@contextlib.contextmanager
def on_a_terminal(lab, *flags: str):
    """A demonstration whose input, report and messages are those of a terminal: its process, and what it wrote so far."""
    ours, its = pty.openpty()
    length = [] if "--duration" in flags else ["--duration", "300 ms"]
    command = [lab.beamport, "demo", *length, "--data", lab.data, *flags]
    process = subprocess.Popen(command, stdin=its, stdout=its, stderr=its, cwd=lab.folder, preexec_fn=as_a_shell)
    os.close(its)
    os.set_blocking(ours, False)
    written = bytearray()

    def said() -> str:
        # At its end there is no terminal any more.
        with contextlib.suppress(BlockingIOError, OSError):
            written.extend(os.read(ours, 65536))
        return written.decode(errors="replace")

    yield process, said
    if process.poll() is None:
        process.kill()
        process.wait()
    os.close(ours)


def test_page_of_a_demonstration_on_a_terminal_stays_until_ctrl_c(lab, nexus):
    with on_a_terminal(lab) as (process, said):
        until(lambda: "stays until you press Ctrl-C" in said(), said)
        text = said()
        url, token = re.search(r"page: (http://\S+/)#token=(\w+)\s+it stays", text).groups()
        assert "ledger (closed)" in text[: text.index("it stays")]
        assert process.poll() is None
        request = urllib.request.Request(f"{url}api/status", headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request, timeout=HANG_S) as answer:
            page = json.load(answer)["web"]["pid"]
        # A page that dies comes back at its address.
        os.kill(page, signal.SIGKILL)
        with urllib.request.urlopen(request, timeout=HANG_S) as answer:
            assert json.load(answer)["web"]["pid"] != page
        process.send_signal(signal.SIGINT)
        until(lambda: process.poll() is not None, said)
        assert process.returncode == 0
        assert "ending the open runs" not in said(), "there are none any more"


@pytest.mark.parametrize("flag", ["--no-page", "--json"])
def test_script_on_a_terminal_gets_the_report_and_no_page_that_stays(lab, nexus, flag):
    with on_a_terminal(lab, flag) as (process, said):
        until(lambda: (said(), process.poll() is not None)[1], said)
        assert process.returncode == 0 and "stays" not in said()


def test_ctrl_c_in_a_demonstration_ends_it_with_its_report(lab, nexus):
    with on_a_terminal(lab, "--duration", "1 h") as (process, said):
        until(lambda: lab.data.exists() and any(lab.data.glob("control.sock*")) and "page: http" in said(), said)
        process.send_signal(signal.SIGINT)
        until(lambda: (said(), process.poll() is not None)[1], said)
        assert process.returncode == 0 and "ledger (closed)" in said() and "it stays" not in said()
