"""What tests of the whole system share: the programs, instruments in a folder of their own, and the counts of faults.

Each test prints one line with the word `injected`: what it did and what was lost. Those lines are the soak report.
Times are printed, never asserted; HANG_S is a guard against hanging only, more than ten times of what is expected.
"""

import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import epics_servers
import pytest
import sums
from stream_files import Stream, streams

ROOT = Path(__file__).resolve().parents[2]
HANG_S = 120.0
# What shells and systemd allow softly: programs raise it themselves.
OPEN_FILES = 1024
SOAK = os.environ.get("BEAMPORT_SOAK") == "1"


def as_a_shell(hard: int | None = None):
    """A `preexec_fn`: the child has the soft limit of open files of a shell, and `hard` (default: that of the tests).

    The tests themselves read many streams.
    """
    hard = hard or resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, hard))


def pytest_collection_modifyitems(items: list[pytest.Item]):
    """Runs long tests first, so that all worker processes end at about the same time."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.fixture(scope="session")
def programs(tmp_path_factory) -> Path:
    """A folder with `beamport`, and `beamport-nexus` where it was built: those on PATH, else those in `target`."""
    on_path = shutil.which("beamport")
    if on_path:
        return Path(on_path).parent
    # A copy: a compiler that works meanwhile does not change what is tested, and both lie side by side.
    folder = tmp_path_factory.mktemp("programs")
    found = [(ROOT / "target" / kind / "beamport") for kind in ("debug", "release")]
    program = next((path for path in found if path.is_file()), None)
    if program is None:
        pytest.fail("no `beamport` on PATH or in target: `pip install .` or `cargo build -p beamport`")
    shutil.copy2(program, folder)
    writer = ROOT / "target" / "release" / "beamport-nexus"
    if writer.is_file():
        shutil.copy2(writer, folder)
    # The library of EPICS lies beside `target/release`, not beside the copy.
    library = ROOT / "target" / "lib" / "beamport" / "libbeamport_epics.so"
    if library.is_file():
        os.environ.setdefault("BEAMPORT_EPICS", str(library))
    return folder


@pytest.fixture(scope="session")
def beamport(programs) -> Path:
    """The program."""
    return programs / "beamport"


@pytest.fixture
def nexus(programs) -> Path:
    """The process that writes files; tests that need it are skipped in a tree where it was not built."""
    path = programs / "beamport-nexus"
    if not path.is_file():
        pytest.skip("beamport-nexus is not built: `cargo build --release -p beamport-nexus`")
    return path


@pytest.fixture
def network(programs, monkeypatch) -> dict[str, str]:
    """Settings with which servers and clients of EPICS of a test meet each other and nobody else."""
    library = programs.parent / "lib" / "beamport" / "libbeamport_epics.so"
    epics_servers.need(Path(os.environ.get("BEAMPORT_EPICS", library)))
    settings = epics_servers.environment()
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    return settings


@pytest.fixture
def servers(network):
    """Servers that a test starts; they end with it."""
    started = []
    yield started
    for server in started:
        server.kill()


@pytest.fixture(scope="session")
def kafka_node(tmp_path_factory):
    """The Kafka of all tests of this process of pytest; tests ask for `kafka`."""
    # Here, so that a test run without the marker `services` needs no client of Kafka.
    from kafka_node import Node

    node = Node(tmp_path_factory.mktemp("kafka"))
    node.format()
    node.start()
    yield node
    node.kill()
    shutil.rmtree(node.folder, ignore_errors=True)


@pytest.fixture
def kafka(kafka_node):
    """Apache Kafka, up; one node whose topics the tests share. A test that failed may have left it dead."""
    if kafka_node.process is None or kafka_node.process.poll() is not None:
        kafka_node.start()
    return kafka_node


@pytest.fixture
def proxy(kafka):
    """A proxy before Kafka."""
    from proxy import Proxy

    proxy = Proxy(kafka.proxy, kafka.behind)
    yield proxy
    proxy.close()


@pytest.fixture
def facility(lab, nexus, kafka, request):
    """A facility with topics of its own, for `beamport ess writer`."""
    from ess_facility import Facility

    name = re.sub(r"\W", "_", request.node.name.removeprefix("test_")[:60])
    facility = Facility(lab, kafka, name)
    yield facility
    facility.close()


@pytest.fixture(scope="session")
def chromium():
    """A browser of this process of pytest."""
    # Here, so that a test run without the marker `services` needs no playwright.
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium")
    assert program, "no `chromium` on PATH: `cargo xtask check` installs it"
    with sync_playwright() as playwright:
        # Root has no sandbox of Chromium.
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def tab(chromium):
    """Opens tabs: `tab(url, width, scheme)`. Errors of scripts fail the test; those of the network are its own."""
    contexts, errors = [], []

    def note(message):
        if message.type == "error" and "Failed to load resource" not in message.text:
            errors.append(message.text)

    def open_tab(url: str, width: int = 1280, scheme: str = "light"):
        context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        context.set_default_timeout(HANG_S * 1e3)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", note)
        page.goto(url)
        return page

    yield open_tab
    for context in contexts:
        context.close()
    assert errors == []


@pytest.fixture
def times():
    """`times(ci, soak)`: how many faults are injected."""
    return lambda ci, soak: soak if SOAK else ci


@pytest.fixture
def dice(request) -> random.Random:
    """Random numbers of a test: the same each time in CI, new ones (and printed) in a soak."""
    seed = random.SystemRandom().randrange(2**32) if SOAK else request.node.name
    print(f"seed {seed}")
    return random.Random(seed)


def until(what, why, within_s: float = HANG_S):
    """The first true answer of `what()`; fails with `why`, or what it answers then, where none comes."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        answer = what()
        if answer:
            return answer
        time.sleep(0.002)
    pytest.fail(f"nothing came for {within_s:.0f} s: {why() if callable(why) else why}")


def preloaded(folder: Path, name: str) -> str:
    """A library for LD_PRELOAD, made from its source beside this file."""
    made = folder / f"{name}.so"
    command = ["cc", "-shared", "-fPIC", "-O1", "-o", made, ROOT / f"tests/system/{name}.c"]
    subprocess.run(command, check=True, timeout=HANG_S)
    return str(made)


def line_of(pid: int) -> bytes:
    """The command line of a process, NUL between its words; empty once it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def kill(pid: int):
    """kill -9 of a process that may have ended by itself."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


class Lab:
    """A folder with an instrument file, its data folder, and the processes a test started there."""

    def __init__(self, folder: Path, beamport: Path):
        self.folder = folder
        self.beamport = beamport
        self.file = folder / "lab.toml"
        self.data = folder / "data"
        self.started: list[subprocess.Popen] = []
        self._lives: set[Path] = set()

    def write(self, text: str) -> "Lab":
        """The instrument file; its first lines are always the same."""
        self.file.write_text(f'instrument = "lab"\ndata = "{self.data}"\n{text}')
        return self

    def popen(self, *args, **more) -> subprocess.Popen:
        """Starts the program; what it says goes to files `out-N` and `err-N`."""
        number = len(self.started)
        with (self.folder / f"out-{number}").open("wb") as out, (self.folder / f"err-{number}").open("wb") as err:
            process = subprocess.Popen(
                [self.beamport, *map(str, args)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                **{"cwd": self.folder, "preexec_fn": as_a_shell} | more,
            )
        process.number = number
        self.started.append(process)
        return process

    def up(self, *flags: str, **more) -> subprocess.Popen:
        """`beamport up` on the instrument file."""
        return self.popen("up", self.file, "--json", *flags, **more)

    def run(self, *args, status: int | None = 0, **more) -> subprocess.CompletedProcess:
        """Runs the program to its end. `status`: what it must exit with."""
        done = subprocess.run(
            [self.beamport, *map(str, args)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=HANG_S,
            **{"cwd": self.folder, "preexec_fn": as_a_shell} | more,
        )
        if status is not None:
            assert done.returncode == status, f"{args}: status {done.returncode}\n{done.stderr.decode()[-2000:]}"
        sums.printed(done.stdout)
        return done

    def said(self, process: subprocess.Popen) -> tuple[str, str]:
        """stdout and stderr of a process so far."""
        return tuple(
            (self.folder / f"{which}-{process.number}").read_text(errors="replace") for which in ("out", "err")
        )

    def end(self, process: subprocess.Popen, status: int | None = 0) -> str:
        """Waits for the end of a process; its stdout."""
        got = process.wait(HANG_S)
        out, err = self.said(process)
        if status is not None:
            assert got == status, f"status {got}, not {status}\n{err[-3000:]}"
        sums.printed(out)
        return out

    def reports(self, process: subprocess.Popen, status: int = 0) -> list[dict]:
        """What `up --json` says at its end: the report of each run, or none in the place of one."""
        printed = [json.loads(line) for line in self.end(process, status).splitlines()]
        assert printed, "no report, and no object in the place of one"
        return [report for report in printed if report.get("run") is not None]

    def report(self, process: subprocess.Popen, status: int = 0) -> dict:
        """The report of its only run."""
        (report,) = self.reports(process, status)
        return report

    def report_of(self, run: str, status: int = 0) -> dict:
        """The report of a run that was done before `up` stopped."""
        return json.loads(self.run("ls", run, "--json", "--data", self.data, status=status).stdout)

    def ask(self, line: bytes, patience_s: float = HANG_S) -> bytes:
        """Says one line to the control socket; the line that comes back."""
        with self.dial(patience_s) as client:
            client.sendall(line)
            answer = b""
            while not answer.endswith(b"\n"):
                piece = client.recv(65536)
                if not piece:
                    break
                answer += piece
            return answer

    def dial(self, patience_s: float = HANG_S) -> socket.socket:
        """A connection to the control socket. Through the open folder: paths of sockets are short, those of tests not."""
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(patience_s)
        folder = os.open(self.data, os.O_RDONLY)
        try:
            client.connect(f"/proc/self/fd/{folder}/control.sock")
        except OSError:
            client.close()
            raise
        finally:
            os.close(folder)
        return client

    def ready(self, process: subprocess.Popen) -> bool:
        """This process answers commands, so its streams are open and its runs have begun; fails if it ended."""
        if process.poll() is not None:
            pytest.fail(f"it ended with status {process.returncode}\n{self.said(process)[1][-3000:]}")
        try:
            answer = self.ask(b'{"command": "status"}\n', 1.0)
        except OSError:
            return False
        # A process that ends answers with a fault.
        return bool(answer) and json.loads(answer).get("ok", {}).get("pid") == process.pid

    def up_ready(self, *flags: str, **more) -> tuple[subprocess.Popen, float]:
        """A started instrument, and the seconds until it was ready."""
        began = time.monotonic()
        process = self.up(*flags, **more)
        until(lambda: self.ready(process), "the instrument is not ready")
        return process, time.monotonic() - began

    def streams(self, books: bool = False) -> list[Stream]:
        """The streams of the data folder, as they lie there now."""
        if not self.data.is_dir():
            return []
        found = streams(self.data, books)
        self._lives.update(stream.live for stream in found)
        return found

    def stream(self, name: str) -> Stream:
        """One stream."""
        return Stream(self.data / name)

    def kill(self, process: subprocess.Popen):
        """kill -9, and the end awaited."""
        process.kill()
        process.wait(HANG_S)

    def interrupt(self, process: subprocess.Popen):
        """Ctrl-C."""
        process.send_signal(signal.SIGINT)

    def whole(self, process: subprocess.Popen) -> dict:
        """Ctrl-C, and the report of the only run: closed, nothing lost, each stream without a gap."""
        self.interrupt(process)
        report = self.report(process)
        assert report["closed"] and lost_of(report) == 0
        for stream in self.streams():
            gapless(stream)
        return report

    def children(self, process: subprocess.Popen) -> list[int]:
        """Processes that a process started: its writers. Those of a thread that ended while we looked are another's now."""
        found = []
        for _ in range(3):
            try:
                tasks = list(Path(f"/proc/{process.pid}/task").iterdir())
            except (FileNotFoundError, ProcessLookupError):
                return []
            found = [self.children_of(task) for task in tasks]
            if None not in found:
                break
        return [pid for children in found for pid in children or ()]

    def children_of(self, task: Path) -> list[int] | None:
        """Processes that a thread started; none where it has ended."""
        try:
            return [int(pid) for pid in (task / "children").read_text().split()]
        except (FileNotFoundError, ProcessLookupError):
            return None

    def slots(self, process: subprocess.Popen, stage: str | None = None) -> list[int]:
        """The slots of Python, or of one ready-made worker. One that ended while we looked is none.

        A process of Python that only says what the code declares has no stage in its job.
        """
        words = (f'"stage":"{stage}"',) if stage else ("beamport._slot", '"stage":"')
        lines = {pid: line_of(pid) for pid in self.children(process)}
        return [pid for pid, line in lines.items() if all(word.encode() in line for word in words)]

    def clear(self):
        """Ends what this test started, by its id, and takes its shared memory back."""
        for process in self.started:
            if process.poll() is None:
                for child in self.children(process):
                    kill(child)
                process.kill()
                process.wait(HANG_S)
        self.take_back(self.data)
        for live in self._lives:
            take_back(live)

    def forget(self, data: Path):
        """Removes a data folder. Nobody may write there any more."""
        self.take_back(data)
        shutil.rmtree(data, ignore_errors=True)

    def take_back(self, data: Path):
        """Removes the shared memory of a data folder."""
        for folder in data.iterdir() if data.is_dir() else []:
            try:
                take_back(Stream(folder).live)
            except (OSError, KeyError, ValueError):
                continue


def take_back(live: Path):
    """Removes a live place, if it is one."""
    if live.parent == Path(f"/dev/shm/beamport-{os.geteuid()}"):
        shutil.rmtree(live, ignore_errors=True)


@pytest.fixture
def lab(tmp_path, beamport):
    """An empty laboratory."""
    lab = Lab(tmp_path, beamport)
    yield lab
    lab.clear()
    for process in lab.started:
        sums.printed(lab.said(process)[0])


def camera(fps: int, level: str = "memory", live: str = "16 MiB") -> str:
    """A camera of small frames, for an instrument file."""
    return f"""
[source.camera]
kind = "sim"
model = "camera"
fps = {fps}
shape = [32, 48]
dtype = "uint8"
level = "{level}"
live = "{live}"
"""


def worker(name: str, call: str, more: str = "", live: str = "8 MiB") -> str:
    """A worker of the camera or, with `shadow`, of what it is beside; its slots are of this Python."""
    inputs = "" if "shadow" in more else 'inputs = ["camera"]\n'
    python = f'python = "{sys.executable}"\nslot_live = "2 MiB"\nlive = "{live}"\n'
    return f'\n[worker.{name}]\ncall = "{call}"\n{inputs}{python}{more}'


def lost_of(report: dict) -> int:
    """Messages that any account of a report calls lost."""
    return sum(sum(row["lost"].values()) for row in report["ledger"])


def gapless(stream: Stream):
    """Each origin's numbers begin at 0 and go up by one, in order, once each."""
    for origin, numbers in stream.numbers().items():
        wanted = range(len(numbers))
        assert numbers.tolist() == list(wanted), f"{stream.name}/{origin}: numbers have holes or repeat"
