"""`beamport.run`: what is wrong is told before anything starts, and a running instrument is in hand."""

from __future__ import annotations

import tomllib
from pathlib import Path

import beamport
import pytest
import sums
from beamport import _instrument
from beamport._worker import Code

INSTRUMENT = {
    "instrument": "tiny",
    "source": {"detector": {"kind": "sim", "model": "amor", "rate": 1e4, "level": "memory"}},
}


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(beamport.Error) as caught:
        beamport.run(tmp_path / "nope.toml")
    assert "nope.toml" in caught.value.what
    assert caught.value.cause.startswith("No such file")
    assert caught.value.hint


def test_a_wrong_file_is_told_with_its_line(tmp_path):
    file = tmp_path / "wrong.toml"
    file.write_text('instrument = "tiny"\n\n[source.detector]\nkind = "sim"\nmodle = "amor"\n')
    with pytest.raises(beamport.Error) as caught:
        beamport.run(file)
    assert caught.value.what.startswith(f"{file}:5: ") and "modle" in caught.value.what
    assert "model" in str(caught.value)


def test_a_wrong_dict_leaves_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(beamport.Error, match="modle"):
        beamport.run({"instrument": "tiny", "source": {"detector": {"kind": "sim", "modle": "amor"}}})
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(beamport.Error) as caught:
        beamport.run({"instrument": "tiny", "source": {"detector": {"rate": {1, 2}}}})
    assert caught.value.what.startswith("`source.detector.rate`")
    assert list(tmp_path.iterdir()) == []


def test_no_program_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(_instrument.sysconfig, "get_path", lambda _name: str(tmp_path))
    with pytest.raises(beamport.Error, match="no program `beamport`") as caught:
        beamport.run("amor.toml")
    assert "pip install" in caught.value.hint


@pytest.mark.parametrize(
    "table",
    [
        INSTRUMENT,
        {"a b": {"c.d": {"x": 1}}, "y": [1, "two", 3.5, True], "z": {"quote": 'say "hi"\n\t\\', "del": "\x7f"}},
        {"big": 10**15, "small": 1e-9, "inf": float("inf"), "no": False, "empty": {}, "path": Path("/x/y")},
    ],
)
def test_a_dict_is_written_as_the_toml_it_means(table):
    def plain(value):
        if isinstance(value, dict):
            # A table without a value is not written: it says nothing.
            return {key: plain(other) for key, other in value.items() if other != {}}
        return str(value) if isinstance(value, Path) else value

    assert tomllib.loads(_instrument._toml(table, [])) == plain(table)


def test_what_the_program_prints_becomes_the_error():
    error = _instrument._error_of(["noise", "error: it failed", "cause: why", "hint:  do this"], "other")
    assert (error.what, error.cause, error.hint) == ("it failed", "why", "do this")
    error = _instrument._error_of(["panicked: somewhere"], "it ended")
    assert (error.what, error.cause) == ("it ended", "panicked: somewhere")


def test_a_declared_run_runs_by_itself(workplace):
    declared = INSTRUMENT | {"run": {"first": {"duration": "1 s", "settle": "100 ms"}}}
    with beamport.run(declared) as tiny:
        assert list(tiny) == ["detector"]
        messages = list(tiny["detector"].read(follow=True, stop=5))
        assert [m.sequence for m in messages] == [0, 1, 2, 3, 4]
        assert all(m["pixel_id"].size == m["time_of_flight"].size for m in messages)
        report = tiny.wait()
        assert not tiny.running
    run = tiny.run("first")
    assert run.state == "sealed" and run.stop == run.start + 1_000_000_000
    members = sum(1 for _ in run["detector"].read())
    (stream,) = report["streams"]
    assert (report["run"], report["closed"], stream["messages"]) == ("first", True, members)
    sums.adds_up([report, run.ledger()])
    assert run.ledger()["lost"] == 0
    # The file that the dict became is gone.
    assert [path.name for path in workplace.iterdir()] == ["beamport-data"]


def test_runs_are_begun_and_ended(workplace):
    with beamport.run(INSTRUMENT) as tiny:
        run = tiny.begin("first", title="Ni on glass")
        assert (run.name, run.state, run.metadata["title"]) == ("first", "open", "Ni on glass")
        for m in tiny["detector"].read(since=run.start, follow=True):
            if m.source_time > run.start:
                break
        detector = tiny.status()["running"]["detector"]
        assert (detector["kind"], detector["trouble"]) == ("source", None)
        assert tiny.end("first").stop is not None
        with pytest.raises(beamport.Error, match="nothing-of-this-name"):
            tiny.end("nothing-of-this-name")
        with pytest.raises(beamport.Error, match="first"):
            tiny.begin("first")
        with pytest.raises(beamport.Error) as caught:
            tiny.begin(duration="10")
        assert "has no unit" in caught.value.cause
        short = tiny.begin(duration="500 ms")
        assert short.stop - short.start == 500_000_000
        second = tiny.begin()
    # Leaving the block ended the run that was open.
    assert not tiny.running
    assert {run.name: run.state for run in tiny.runs} == dict.fromkeys(["first", short.name, second.name], "sealed")
    assert sum(1 for _ in tiny.run("first")["detector"].read()) >= 1


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_frames_of_4096_x_4096_pixels_ended_the_loop_of_the_page(workplace, dtype):
    camera = {"kind": "sim", "model": "camera", "shape": [4096, 4096], "dtype": dtype, "pattern": "constant"}
    with beamport.run({"instrument": "large", "source": {"camera": camera}}) as large:
        # The loop of the reference page: `m` holds the last frame while the next is taken.
        brightest = []
        for m in large["camera"].read(follow=True):
            brightest.append(int(m.array.max()))
            if len(brightest) == 6:
                break
        assert m.array.shape == (4096, 4096) and m.array.dtype == dtype
    assert brightest == [100] * 6


def test_a_worker_class_of_length_0_was_called_instead_of_its_instance():
    class Seen(list):
        def __init__(self, unused=0):
            pass

        def __call__(self, message):
            return message + 1

    code = Code(beamport.worker(Seen), {})
    assert len(code.call) == 0 and code.call(1) == 2
    code.change('{"unused": 1}')
    assert len(code.call) == 0 and code.call(2) == 3


def test_commands_to_nobody_say_so(workplace):
    with beamport.run(INSTRUMENT) as tiny:
        pass
    with pytest.raises(beamport.Error, match="no instrument is running in") as caught:
        tiny.begin("late")
    assert "beamport up" in caught.value.hint


def test_a_folder_that_is_opened_has_the_commands_of_the_instrument_that_runs_there(workplace):
    """Each command connects anew: the instrument may end and start between two of them."""
    with pytest.raises(beamport.Error, match="no such folder"):
        beamport.open("beamport-data/tiny")
    with beamport.run(INSTRUMENT):
        data = beamport.open("beamport-data/tiny")
        first = data.begin("first", title="Ni")
        assert (first.name, first.state, first.metadata["title"]) == ("first", "open", "Ni")
        assert data.status()["running"]["detector"]["kind"] == "source"
    for command in (lambda: data.begin(), lambda: data.end(), lambda: data.status(), lambda: data.put("A", 1)):
        with pytest.raises(beamport.Error, match="no instrument is running in") as caught:
            command()
        assert "beamport up" in caught.value.hint
    with beamport.run(INSTRUMENT):
        assert data.begin("second").state == "open"
        assert data.end("second").stop is not None
        with pytest.raises(beamport.Error, match="cannot configure `nothing`"):
            data.configure("nothing", slots=2)
        with pytest.raises(beamport.Error, match="nothing"):
            data.ask("nothing", {})
        with pytest.raises(beamport.Error, match="nothing"):
            data.cutover("nothing")
    assert [run.name for run in data.runs] == ["first", "second"]


def test_wait_has_an_end(workplace):
    with beamport.run(INSTRUMENT) as tiny:
        with pytest.raises(beamport.Error, match="still runs") as caught:
            tiny.wait(timeout=0.1)
        assert "close()" in caught.value.hint and tiny.running
    assert not tiny.running
    tiny.close()


def test_an_error_in_the_block_ends_the_instrument(workplace):
    with pytest.raises(ZeroDivisionError), beamport.run(INSTRUMENT) as tiny:
        1 / 0  # noqa: B018
    assert not tiny.running


def test_two_movers_in_one_folder_are_refused(workplace):
    with beamport.run(INSTRUMENT):
        with pytest.raises(beamport.Error) as caught:
            with beamport.run(INSTRUMENT) as second:
                second.wait(timeout=60)
        assert caught.value.cause
