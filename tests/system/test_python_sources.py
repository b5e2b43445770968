"""Sources in Python: what user code yields is in the stream once and in order, whatever dies."""

import json
import sys
import time

import pytest
from conftest import gapless, kill, line_of, lost_of, until

beamport = pytest.importorskip("beamport", reason="pip install .")


def source(name: str, call: str, more: str = "", live: str = "4 MiB") -> str:
    """A source of user code, in this Python."""
    return (
        f'\n[source.{name}]\nkind = "python"\ncall = "{call}"\npython = "{sys.executable}"\n'
        f'level = "memory"\nlive = "{live}"\n{more}'
    )


# It ends with the sources, and `up` with it.
RUN = '\n[run.all]\nduration = "1 h"\n'


def codes(lab, process, name: str) -> list[int]:
    """The processes of the code of a source."""
    return [pid for pid in lab.children(process) if f'"source":"{name}"'.encode() in line_of(pid)]


def messages(lab, name: str) -> list:
    """All messages of a stream."""
    return list(beamport.open(lab.data)[name].read())


FRAMES = """
import numpy as np

def frames(count, shape=[4, 6]):
    for number in range(count):
        yield np.full(shape, number, np.uint16)

def values():
    for number in range(1000):
        yield number / 2
"""

STATE = """
import asyncio
import time
import numpy as np

class Counter:
    def __init__(self, count, save_s=0.0, pause_s=0.0):
        self.count, self.save_s, self.pause_s, self.next = count, save_s, pause_s, 0

    def __iter__(self):
        while self.next < self.count:
            self.next += 1
            yield np.full((4, 6), self.next - 1, np.uint32)
            time.sleep(self.pause_s)

    def save(self):
        end = time.thread_time() + self.save_s
        while time.thread_time() < end:
            pass
        return {"next": self.next, "as bytes": b"\\0\\1", "as array": np.arange(self.next % 5)}

    def restore(self, state):
        assert state["as bytes"] == b"\\0\\1" and state["as array"].tolist() == list(range(state["next"] % 5))
        self.next = state["next"]

class Later(Counter):
    async def __aiter__(self):
        for frame in super().__iter__():
            await asyncio.sleep(self.pause_s)
            yield frame
"""


def test_a_generator_is_a_finite_source_with_exact_numbers(lab):
    (lab.folder / "mine.py").write_text(FRAMES)
    lab.write(
        source("camera", "mine.py:frames", "parameters = { count = 1000 }\n")
        + source("temperature", "mine.py:values")
        + RUN
    )
    assert b"good: 2 sources" in lab.run("check", lab.file).stdout
    elsewhere = lab.folder / "elsewhere"
    elsewhere.mkdir()
    report = lab.report(lab.up(cwd=elsewhere))
    assert report["closed"] and lost_of(report) == 0
    frames = messages(lab, "camera")
    assert [m.origin_seq for m in frames] == [m.id for m in frames] == list(range(1000))
    assert all(m.origin == "camera" and (m.array == m.id).all() and m.array.shape == (4, 6) for m in frames)
    assert [m.value for m in messages(lab, "temperature")] == [number / 2 for number in range(1000)]
    # A second start in the same folder calls the code again; its numbers go on.
    lab.write(lab.file.read_text().split("\n", 2)[2].replace("run.all", "run.more"))
    report = lab.report(lab.up())
    assert report["closed"] and lost_of(report) == 0
    for name in ("camera", "temperature"):
        gapless(lab.stream(name))
        assert len(messages(lab, name)) == 2000


def test_check_names_what_is_wrong_with_the_code(lab):
    (lab.folder / "mine.py").write_text(FRAMES + "\nclass Nothing:\n    pass\n\nwrong = 3\n")
    for call, more, said in [
        ("mine.py:frame", "", "it has `frames`"),
        ("other.py:frames", "", "no file"),
        ("mine.py", "", "names no function"),
        ("mine.py:frames", "", "it takes `count`, `shape`"),
        ("mine.py:frames", "parameters = { counts = 3 }\n", "it takes `count`, `shape`"),
        ("mine.py:frames", "parameters = 3\n", "expected a table"),
        ("mine.py:Nothing", "", "`__iter__` or `__aiter__`"),
        ("mine.py:wrong", "", "neither a function nor a class"),
        ("mine.py:values", "slots = 3\n", "slots"),
    ]:
        lab.write(source("camera", call, more))
        assert said in lab.run("check", lab.file, status=2).stderr.decode(), call
    lab.write(source("camera", "mine.py:values").replace(sys.executable, "/bin/false"))
    assert b"has no module `beamport`" in lab.run("check", lab.file, status=2).stderr
    process = lab.up()
    lab.end(process, 2)
    assert "has no module `beamport`" in lab.said(process)[1]


def counted(lab, name: str, count: int):
    """The stream has the numbers 0, 1, 2... as numbers and as pixels, each once and in order."""
    frames = messages(lab, name)
    assert [m.origin_seq for m in frames] == list(range(count))
    assert all((m.array == m.origin_seq).all() and m.id == m.origin_seq for m in frames)


@pytest.mark.parametrize(
    ("call", "save_s", "level"),
    [("Counter", 0.0, "memory"), ("Counter", 0.02, "disk"), ("Later", 0.0, "disk"), ("Later", 0.02, "memory")],
)
def test_code_with_a_state_goes_on_where_it_was_killed(lab, call, save_s, level, times, dice):
    (lab.folder / "mine.py").write_text(STATE)
    count = times(20, 200) * 400
    more = f"parameters = {{ count = {count}, save_s = {save_s}, pause_s = 0.0005 }}\n"
    text = source("camera", f"mine.py:{call}", more, live="64 MiB").replace('"memory"', f'"{level}"')
    lab.write(text + RUN)
    process, _ = lab.up_ready()
    kills = movers = at = 0
    stream = lab.stream("camera")
    while kills < times(20, 200):
        at = until(lambda at=at: stream.marks()[2] if stream.marks()[2] > at else 0, "nothing more comes")
        time.sleep(dice.uniform(0.0, 0.05))
        found = codes(lab, process, "camera")
        if process.poll() is not None or stream.marks()[2] >= count:
            break
        if not found:
            continue
        if dice.random() < 0.15:
            lab.kill(process)
            process, _ = lab.up_ready()
            movers += 1
        else:
            kill(found[0])
        kills += 1
    # A soak has minutes of messages left on a machine that does something else.
    while (at := stream.marks()[2]) < count:
        until(lambda at=at: stream.marks()[2] > at, "nothing more comes")
    report = lab.report(process)
    assert report["closed"] and lost_of(report) == 0
    counted(lab, "camera", count)
    print(f"python source: injected {kills} kills, {movers} of them of `up`: {count} messages once each, 0 lost")


SLOW = """
import os
import time
import numpy as np

def noted(count):
    for number in range(count):
        with open("at", "w") as file:
            file.write(str(number))
        yield np.full((64, 64), number, np.uint16)

def slow(frame):
    while not os.path.exists("go"):
        time.sleep(0.01)
    return frame.id
"""


def test_the_code_waits_for_a_slow_reader(lab):
    """The generator stands at its `yield` while there is no room, and nothing is lost."""
    (lab.folder / "mine.py").write_text(SLOW)
    worker = f'[worker.slow]\ncall = "mine.py:slow"\ninputs = ["camera"]\npython = "{sys.executable}"\n'
    lab.write(source("camera", "mine.py:noted", "parameters = { count = 3000 }\n", live="1 MiB") + worker + RUN)
    process, _ = lab.up_ready()
    # Both streams of 1 MiB have at most 130 frames of 8 kB.
    assert until(lambda: still(lab.folder / "at"), "the code does not wait") < 300
    (lab.folder / "go").write_text("")
    lab.end(process)
    assert [m.value for m in messages(lab, "slow")] == list(range(3000))


@pytest.mark.parametrize("policy", ["drop-oldest", "drop-newest"])
def test_a_source_that_drops_does_not_stop_the_code_and_counts_each_message(lab, policy):
    (lab.folder / "mine.py").write_text(SLOW)
    worker = f'[worker.slow]\ncall = "mine.py:slow"\ninputs = ["camera"]\npython = "{sys.executable}"\n'
    more = f'parameters = {{ count = 3000 }}\nwhen_full = "{policy}"\n'
    lab.write(source("camera", "mine.py:noted", more, live="1 MiB") + worker + RUN)
    process, _ = lab.up_ready()
    at = lab.folder / "at"
    until(lambda: at.exists() and at.read_text() == "2999", "the code waits")
    (lab.folder / "go").write_text("")
    # Loss is an exit status of 1.
    report = lab.report(process, status=1)
    entry = [row for row in report["ledger"] if row["account"] == "entry"]
    (stage,) = [row for row in report["ledger"] if row["account"] == "stage"]
    values = [m.value for m in messages(lab, "slow")]
    assert report["closed"] and len(values) == len(set(values)) == stage["done"] and values == sorted(values)
    assert sum(row["sent"] for row in entry) == 3000
    if policy == "drop-newest":
        # Also those at the end, behind the last message of the run that found room.
        assert values[-1] < 2999 and sum(row["lost"].get("full", 0) for row in entry) == 3000 - len(values) > 0
    else:
        assert stage["read"] == 3000 and stage["lost"]["full"] > 0
        assert stage["done"] + stage["lost"]["full"] + stage["held"] == 3000


def still(path) -> int | None:
    """The number in a file, if it stays the same for a second."""
    read = lambda: int(path.read_text() or 0) if path.exists() else 0  # noqa: E731
    number = read()
    time.sleep(1.0)
    return number if number and read() == number else None


KINDS = """
import numpy as np
import beamport

def everything():
    yield 1.5
    yield "text"
    yield np.zeros((2, 3)), {"beam": 1.0}
    yield {"signal": np.arange(3), "errors": np.ones(3)}
    yield [1, 2]
    yield beamport.result(3.5, name="T1", unit="K")
    yield beamport.result(4.5, name="T1", time=1_700_000_000_000_000_000)
    yield None
    yield beamport.message("f144", {"source_name": "T2", "timestamp": 7, "value": 1.0}, origin_seq=5)
    yield beamport.message("f144", {"source_name": "T2", "timestamp": 8, "value": 2.0})
    yield beamport.result(np.zeros((2, 2), np.uint8), origin_seq=9)
    yield object()
    yield {1: 2}
    yield [7, object(), 8]
    yield 9
"""


def test_all_that_a_worker_returns_a_source_yields_and_the_rest_is_set_aside(lab):
    (lab.folder / "mine.py").write_text(KINDS)
    lab.write(source("kinds", "mine.py:everything") + RUN)
    # Numbers 6, 7 and 8 of `kinds` never came.
    report = lab.report(lab.up(), status=1)
    assert report["closed"] and lost_of(report) == 3, report["ledger"]
    got = [(m.origin, m.origin_seq, m.schema) for m in messages(lab, "kinds")]
    assert got == [
        ("kinds", 0, "f144"),
        ("kinds", 1, "f142"),
        ("kinds", 2, "ad00"),
        ("kinds", 3, "da00"),
        ("kinds", 4, "f144"),
        ("kinds", 5, "f144"),
        ("T1", 0, "da00"),
        ("T1", 1, "f144"),
        ("T2", 5, "f144"),
        ("T2", 6, "f144"),
        ("kinds", 9, "ad00"),
        ("kinds", 10, "f144"),
    ]
    assert messages(lab, "kinds")[7].source_time == 1_700_000_000_000_000_000
    assert messages(lab, "kinds")[10].id == 9
    aside = lab.run("cat", "kinds.aside", "--json", "--data", lab.data).stdout.decode()
    texts = [json.loads(line) for line in aside.splitlines()]
    assert len(texts) == 3 and all("mine.py, line" in json.dumps(one) for one in texts)


FAILS = """
import os
import beamport

def fails():
    for number in range(3):
        yield number
    if os.path.exists("good"):
        return
    raise ValueError("the device is off")

def silent():
    import time
    try:
        yield 1
        while True:
            time.sleep(1000)
    finally:
        open("finally", "w").write("x")

async def waits():
    import asyncio
    try:
        yield 1
        await asyncio.sleep(1000)
    finally:
        open("finally-too", "w").write("x")
"""


def test_an_exception_starts_the_code_again_and_is_shown(lab):
    (lab.folder / "mine.py").write_text(FAILS)
    lab.write(source("device", "mine.py:fails") + RUN)
    process, _ = lab.up_ready()
    status = until(lambda: (said := status_of(lab)) and "the device is off" in said and said, "no trouble is shown")
    assert "the code of source `device` failed" in status
    until(lambda: lab.stream("device").marks()[2] >= 9, "it is not started again")
    (lab.folder / "good").write_text("")
    lab.end(process)
    gapless(lab.stream("device"))
    assert "ValueError: the device is off" in lab.said(process)[1]
    aside = lab.run("cat", "device.aside", "--json", "--data", lab.data).stdout.decode()
    assert "mine.py" in aside and "the device is off" in aside


def status_of(lab) -> str:
    """What a running instrument says of itself."""
    return lab.ask(b'{"command": "status"}\n').decode()


@pytest.mark.parametrize(("call", "file"), [("silent", "finally"), ("waits", "finally-too")])
def test_ctrl_c_ends_the_code_in_order(lab, call, file):
    (lab.folder / "mine.py").write_text(FAILS)
    lab.write(source("device", f"mine.py:{call}"))
    process, _ = lab.up_ready()
    until(lambda: lab.stream("device").marks()[2] == 1, "nothing comes")
    (pid,) = codes(lab, process, "device")
    lab.interrupt(process)
    lab.end(process)
    assert (lab.folder / file).exists() and not line_of(pid)


def test_a_parameter_may_be_a_file_that_stays_the_same(lab):
    code = "import time\n\ndef lines(table):\n    while True:\n        yield float(table.read_text())\n        time.sleep(0.01)\n"
    (lab.folder / "mine.py").write_text(code)
    (lab.folder / "table.txt").write_text("3.5")
    elsewhere = lab.folder / "elsewhere"
    elsewhere.mkdir()
    lab.write(source("from_file", "mine.py:lines", 'parameters = { table = { file = "tables.txt" } }\n'))
    assert "`table` has no file" in lab.run("check", lab.file, status=2, cwd=elsewhere).stderr.decode()
    lab.write(source("from_file", "mine.py:lines", 'parameters = { table = { file = "table.txt" } }\n'))
    lab.run("check", lab.file, cwd=elsewhere)
    process, _ = lab.up_ready(cwd=elsewhere)
    until(lambda: len(messages(lab, "from_file")) > 5, "nothing comes")
    (lab.folder / "table.txt").write_text("4.5")
    [kill(pid) for pid in codes(lab, process, "from_file")]
    until(lambda: "has changed" in lab.said(process)[1], "nobody says that the file has changed")
    lab.interrupt(process)
    lab.end(process, status=None)
