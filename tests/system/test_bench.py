"""Rows of `beamport-bench` that need Python beside the program: each names what it compares, and its plot is there."""

import json
import os
import re
import subprocess
import sys

import pytest
from conftest import HANG_S, ROOT


@pytest.fixture
def program():
    """The program, which no wheel holds; tests that need it are skipped in a tree where it was not built."""
    path = ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "release" / "beamport-bench"
    if not path.is_file():
        pytest.skip("beamport-bench is not built: `cargo build --release -p beamport-bench`")
    return path


def bench(program, folder, *asked):
    """The report; the measurement takes the interpreter of this test."""
    answer = folder / "answer.json"
    command = [program, *asked, "--quick", "--output", answer]
    environment = {**os.environ, "VIRTUAL_ENV": sys.prefix}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=5 * HANG_S)
    assert done.returncode == 0, done.stderr
    return json.loads(answer.read_text()), done.stdout


def test_a_sweep_says_what_the_computed_chunks_reach_and_plots_it(tmp_path, program):
    report, text = bench(program, tmp_path, "sweep")
    figures = report["figures"]
    words = ["unfiltered", "bitshuffle-lz4", "deflate"]
    assert [figure["name"] for figure in figures] == [f"computed chunks / the best, 128 KiB, {word}" for word in words]
    for figure in figures:
        assert figure["name"] in text and figure["must"] == 0.95
        # A load for each number of writers; each is compared with the best of five sizes of chunks.
        ours, limits = figure["ours"]["rounds"], [limit["rounds"] for limit in figure["limits"]]
        assert len(limits) == 5 and {len(rates) for rates in limits} == {len(ours)} == {2}
        reached = sorted(rate / max(of) for rate, of in zip(ours, zip(*limits, strict=True), strict=True))
        assert figure["figure"]["min"] == pytest.approx(reached[0], rel=0.01)
        assert figure["figure"]["max"] == pytest.approx(reached[-1], rel=0.01)
    assert (tmp_path / "answer.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["answer.json", "answer.png"]


def test_the_wire_package_is_measured_beside_the_one_whose_place_it_takes(tmp_path, program):
    pytest.importorskip("streaming_data_types", reason="pip install ess-streaming-data-types")
    report, text = bench(program, tmp_path, "wire")
    f144, ev44 = report["figures"]
    assert [f144["name"], ev44["name"]] == [f"wire {name} / streaming_data_types" for name in ("f144", "ev44")]
    for figure in (f144, ev44):
        assert figure["name"] in text and figure["ours"]["name"] == "beamport.wire"
        assert len(figure["ours"]["rounds"]) == len(figure["limits"][0]["rounds"]) == report["rounds"] == 3
    assert list(tmp_path.iterdir()) == [tmp_path / "answer.json"]


def test_udp_is_measured_beside_a_bare_receiver(tmp_path, program):
    report, text = bench(program, tmp_path, "udp", "--rounds", "1")
    *report["figures"], table, chain, usual, fine = report["figures"]
    assert [figure["name"] for figure in report["figures"]] == [
        f"12 ports, {what} / bare recvmmsg"
        for what in (
            "8.8 kB plain, one source: messages a CPU s",
            "8.8 kB plain, a stream each: messages a CPU s",
            "528 B with GRO, one source: messages a CPU s",
            "8.8 kB as fast as the sender can, one source: messages/s",
            "2 kB to disk, one source: messages a CPU s",
        )
    ]
    assert [figure["must"] for figure in [*report["figures"], table, chain]] == [0.75, 0.6, 0.4, 0.95, 0.1, 0.97, 0.7]
    assert [f"`slice` {ms} ms: wait of the merge / p99" in row["name"] for ms, row in ((10, usual), (1, fine))] == [
        True
    ] * 2
    assert 0 < usual["figure"]["median"] < 1 and 0 < fine["figure"]["median"] < 1
    assert table["name"].endswith("header by a table, messages a CPU s / by code")
    assert chain["name"].endswith("groups, reader: messages a CPU s / sum of its parts alone")
    for figure in report["figures"]:
        (ours,), ((limit,),) = figure["ours"]["rounds"], [side["rounds"] for side in figure["limits"]]
        assert figure["name"] in text and ours > 0 and limit > 0
        assert figure["figure"]["median"] == pytest.approx(ours / limit, rel=0.05)
        assert "12 idle ports take" in figure["conditions"]
    assert list(tmp_path.iterdir()) == [tmp_path / "answer.json"]


@pytest.mark.services
def test_the_page_is_measured_up_to_the_pixels_that_a_browser_shows(tmp_path, program):
    report, text = bench(program, tmp_path, "web", "--rounds", "1")
    assert [figure["name"] for figure in report["figures"]] == [
        "512 x 512, 1 Python slot, with a page and its clients / without",
        "first look of 8 panels / a pass",
        "next looks of 8 panels / a pass",
        "append to pixels on the canvas, p99 / period of asking",
    ]
    assert [(figure["must"], figure["aim"]) for figure in report["figures"]] == [(0.9, 0.97), *[(0.333, 0.667)] * 3]
    for figure in report["figures"]:
        (ours,), ((limit,),) = figure["ours"]["rounds"], [side["rounds"] for side in figure["limits"]]
        assert figure["name"] in text and ours > 0 and limit > 0
        assert figure["figure"]["median"] == pytest.approx(ours / limit, rel=0.05)
    # Of a period of 100 ms.
    assert limit == 10
    share, appended = re.search(r"([\d.]+) % of (\d+) images were displayed", figure["conditions"]).groups()
    assert 0 < float(share) <= 100 and int(appended) > 0
    assert list(tmp_path.iterdir()) == [tmp_path / "answer.json"]


@pytest.mark.soak
def test_epics_is_measured_beside_bare_clients_of_the_same_libraries(tmp_path, program):
    report, text = bench(program, tmp_path, "epics", "--rounds", "1")
    numbers, records, frames = (
        "1,000 PVs x 100 Hz, PVA",
        "1,000 PVs x 10 Hz, CA",
        "NTNDArray 512 x 512 uint8 x 1,500 Hz",
    )
    cpu = "updates a CPU s / bare {} client"
    assert [figure["name"] for figure in report["figures"]] == [
        f"{numbers}: {cpu.format('PVXS')}",
        f"{numbers}: updates/s / bare PVXS client",
        f"{numbers}: taken / sent",
        f"{records}: {cpu.format('libca')}",
        f"{frames}: {cpu.format('PVXS')}",
        f"{frames}: taken / sent",
    ]
    assert [figure["must"] for figure in report["figures"]] == [0.625, 0.95, 1.0, 0.625, 0.667, 1.0]
    for figure in report["figures"]:
        (ours,), ((limit,),) = figure["ours"]["rounds"], [side["rounds"] for side in figure["limits"]]
        assert figure["name"] in text and ours > 0 and limit > 0
        assert figure["figure"]["median"] == pytest.approx(ours / limit, rel=0.05)
    assert list(tmp_path.iterdir()) == [tmp_path / "answer.json"]


@pytest.mark.services
def test_topics_and_streams_are_measured_beside_bare_clients_and_no_topic_is_left(tmp_path, program, kafka):
    before = set(kafka.admin.list_topics(timeout=HANG_S).topics)
    report, text = bench(program, tmp_path, "kafka", "--rounds", "1", "--bytes", "20000000", "--brokers", kafka.address)
    names = [figure["name"] for figure in report["figures"]]
    ways = ["topic -> stream, {} / bare consumer", "stream -> topic, {} / bare producer"]
    assert names == [way.format(size) for size in ("200 B", "100 kB", "1 MB") for way in ways]
    assert [figure["must"] for figure in report["figures"]] == [0.5, 0.6, 0.8, 0.9, 0.8, 0.9]
    for figure in report["figures"]:
        (ours,), ((limit,),) = figure["ours"]["rounds"], [side["rounds"] for side in figure["limits"]]
        assert figure["name"] in text and ours > 0 and limit > 0
        assert figure["figure"]["median"] == pytest.approx(ours / limit, rel=0.05)
    assert set(kafka.admin.list_topics(timeout=HANG_S).topics) == before
    assert list(tmp_path.iterdir()) == [tmp_path / "answer.json"]


@pytest.mark.soak
@pytest.mark.services
def test_kafka_is_started_and_ended_by_the_bench(tmp_path, program):
    report, _ = bench(program, tmp_path, "kafka", "--rounds", "1", "--bytes", "1000000")
    assert len(report["figures"]) == 6
    assert list(tmp_path.iterdir()) == [tmp_path / "answer.json"]


@pytest.mark.soak
@pytest.mark.services
def test_hosts_are_measured_with_a_broker_of_the_bench(tmp_path, program):
    report, text = bench(program, tmp_path, "hosts", "--rounds", "1")
    assert [figure["must"] for figure in report["figures"]] == [0.5, 0.7, 3, 0.5, 0.33, 0.67]
    assert all(figure["name"] in text for figure in report["figures"])
    assert list(tmp_path.iterdir()) == [tmp_path / "answer.json"]


@pytest.mark.soak
@pytest.mark.services
def test_jobs_in_the_past_and_live_ones_are_measured_and_no_topic_is_left(tmp_path, program, kafka):
    before = set(kafka.admin.list_topics(timeout=HANG_S).topics)
    report, text = bench(program, tmp_path, "kafka-jobs", "--rounds", "1", "--brokers", kafka.address)
    names = [figure["name"] for figure in report["figures"]]
    past = [f"job in the past, {which} / the slower part" for which in ("ev44 of 12,400 events", "f144")]
    assert names == [*past, "3 live jobs at 14 Hz end so often a second"]
    assert [figure["must"] for figure in report["figures"]] == [0.6, 0.6, 0.667]
    assert all(name in text for name in names)
    assert set(kafka.admin.list_topics(timeout=HANG_S).topics) - before <= {"__consumer_offsets"}
    assert list(tmp_path.iterdir()) == [tmp_path / "answer.json"]


@pytest.mark.soak
@pytest.mark.services
def test_the_forwarder_is_measured_beside_one_of_python_and_a_bare_program(tmp_path, program, kafka):
    before = set(kafka.admin.list_topics(timeout=HANG_S).topics)
    report, text = bench(program, tmp_path, "epics-kafka", "--rounds", "1", "--brokers", kafka.address)
    cost, latency = report["figures"]
    assert cost["name"] == "forwarder, 20 k updates/s: updates a CPU s / p4p"
    assert latency["name"] == "change -> message at a consumer, p99 beyond the bare program"
    assert [(figure["must"], figure["aim"]) for figure in (cost, latency)] == [(5.0, 10.0), (100.0, 333.333)]
    (ours,), ((peer,),) = cost["ours"]["rounds"], [side["rounds"] for side in cost["limits"]]
    assert cost["figure"]["median"] == pytest.approx(ours / peer, rel=0.05)
    assert latency["figure"]["median"] > 0
    assert all(figure["name"] in text for figure in (cost, latency))
    assert set(kafka.admin.list_topics(timeout=HANG_S).topics) - before <= {"__consumer_offsets"}
    assert list(tmp_path.iterdir()) == [tmp_path / "answer.json"]
