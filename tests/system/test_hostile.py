"""Hostile instrument files, names, patterns and a control socket full of nonsense.

Whatever comes in: refused with a name and a hint (status 2) or done as asked, no panic (status 101) and no signal, and
nothing is written outside the folder that was given.
"""

import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import pytest
from conftest import HANG_S, ROOT, gapless, lost_of, until

GOOD = """instrument = "lab"
data = "{data}"

[source.detector]
kind = "sim"
model = "amor"
rate = 1e4
live = "1 MiB"
when_full = "wait"

[source.devices]
kind = "sim"
model = "amor-devices"
live = "1 MiB"

[run.first]
start = "now"
duration = "100 ms"
settle = "10 ms"
"""

# Values that have been someone's security hole.
NAMES = [
    "../up",
    "..",
    ".",
    "/etc/beamport",
    "a/b",
    "a\\u0000b",
    "",
    " ",
    "a" * 300,
    "con\\u202etrol",
    "runs",
    "control",
    "files",
    "x.commits",
    "-rf",
    "$(touch pwned)",
    "`touch pwned`",
    "%s%n",
    "a\\nb",
    "~",
    "\\uFFFD",
]
SINK = '\n[sink.file]\nkind = "nexus"\ninputs = ["detector"]\ntemplate = "{template}"\n'


def snapshot(folder, without=()):
    """Every name below a folder with its size and time of change."""
    found = {}
    for base, folders, files in os.walk(folder, followlinks=False):
        if any(os.path.samefile(base, w) for w in without if os.path.exists(w)):
            folders.clear()
            continue
        for name in folders + files:
            path = os.path.join(base, name)
            stat = os.lstat(path)
            found[path] = (stat.st_mode, stat.st_size if name in files else 0, stat.st_mtime_ns if name in files else 0)
    return found


class Cage:
    """A folder in a folder: all that appears outside of the data folder is an escape."""

    def __init__(self, lab):
        self.lab = lab
        self.root = lab.folder / "cage"
        self.inner = self.root / "a" / "b"
        self.inner.mkdir(parents=True)
        (self.root / "outside").mkdir()
        self.data = self.inner / "data"
        self.file = self.inner / "hostile.toml"

    def run(self, verb: str, text: bytes | str | None, *more) -> subprocess.CompletedProcess:
        """Runs a verb on the text; fails on a panic, a signal, or a file outside."""
        if text is not None:
            self.file.write_bytes(text.encode() if isinstance(text, str) else text)
        before = snapshot(self.root, without=[self.data])
        done = subprocess.run(
            [self.lab.beamport, verb, self.file, *more],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            cwd=self.inner,
            timeout=HANG_S,
        )
        after = snapshot(self.root, without=[self.data])
        assert done.returncode in (0, 2), f"status {done.returncode}\n{done.stderr.decode(errors='replace')[-2000:]}"
        assert b"panicked" not in done.stderr
        new = {path for path in after.keys() ^ before.keys() if path != str(self.data)}
        changed = {path for path in before if before[path] != after.get(path)}
        assert not new and not changed, f"outside the data folder: {sorted(new | changed)}"
        if done.returncode == 2:
            assert b"error:" in done.stderr, "refused without a word"
        return done


@pytest.fixture
def cage(lab):
    return Cage(lab)


def test_mutated_instrument_files_are_refused_or_read(cage, times, dice):
    seeds = [
        GOOD.format(data="data"),
        (ROOT / "examples/amor.toml").read_text(),
        (ROOT / "examples/ess.toml").read_text(),
        (ROOT / "examples/camera.toml").read_text(),
    ]
    words = [
        "9" * 400,
        "-1",
        "[",
        "]",
        '"',
        "'''",
        "\\u0000",
        "1e999",
        "nan",
        "inf",
        "../../x",
        "\x00",
        "\xff",
        "=",
        "é",
        "🦀",
        "[[",
        "{",
    ]
    words += [
        "true",
        '"64 EiB"',
        '"-1 s"',
        '"999999999999 d"',
        '"1e400 s"',
        "0x7fffffffffffffff",
        "9223372036854775808",
        ".",
        "\r",
    ]
    count = times(60, 5000)
    refused = 0
    for _ in range(count):
        text = dice.choice(seeds)
        for _ in range(dice.randint(1, 4)):
            at = dice.randrange(len(text) + 1)
            end = min(len(text), at + dice.randint(0, 12))
            what = dice.randrange(4)
            if what == 0:
                text = text[:at] + dice.choice(words) + text[end:]
            elif what == 1:
                text = text[:at] + text[end:]
            elif what == 2:
                text = text[:at] + text[at:end] * dice.randint(2, 50) + text[end:]
            else:
                lines = text.splitlines(keepends=True)
                dice.shuffle(lines)
                text = "".join(lines)
        done = cage.run("check", text.encode("utf-8", "surrogateescape"))
        refused += done.returncode == 2
    print(f"instrument files: {count} mutations injected, {refused} refused with names, 0 panics, 0 files outside")


@pytest.mark.parametrize(
    ("what", "make"),
    [
        ("10,000 lists in each other", lambda: "x = " + "[" * 10_000 + "]" * 10_000),
        ("10,000 tables in each other", lambda: "x = " + "{a=" * 10_000 + "1" + "}" * 10_000),
        ("10,000 dotted words", lambda: ".".join(["a"] * 10_000) + " = 1"),
        ("a header of 10,000 dotted words", lambda: "[" + ".".join(["a"] * 10_000) + "]"),
        ("100 MB of comment", lambda: "#" * 100_000_000),
        ("100 MB of zeroes", lambda: b"\0" * 100_000_000),
        ("20,000 sections", lambda: "".join(f'[source.s{n}]\nkind = "sim"\n' for n in range(20_000))),
        ("not text", lambda: bytes(range(256)) * 64),
        ("a lone quote", lambda: '"'),
        ("an endless string", lambda: 'instrument = """' + "a" * 900_000),
        ("200,000 keys", lambda: "\n".join(f"k{n} = 1" for n in range(100_000))),
        ("a bomb of dotted keys", lambda: "\n".join(f"a{n}.b.c.d.e.f.g = 1" for n in range(20_000))),
    ],
)
def test_absurd_instrument_file_is_refused(cage, what, make):
    done = cage.run("check", make())
    assert done.returncode == 2
    assert len(done.stderr) < 2_000_000, "an answer as absurd as the question"
    print(f"instrument file: {what} injected, refused")


def test_names_and_paths_of_an_instrument_file_stay_inside(cage):
    good = GOOD.format(data="data")
    template = cage.inner / "t.json"
    template.write_text('{"children": []}')
    injected = refused = 0
    for name in NAMES:
        quoted = json.dumps(json.loads(f'"{name}"')) if "\\" in name else json.dumps(name)
        cases = [
            good.replace('"lab"', quoted),
            good.replace("source.detector", f"source.{quoted}"),
            good.replace("run.first", f"run.{quoted}"),
            good + SINK.format(template=name),
            good + SINK.format(template="t.json").replace("sink.file", f"sink.{quoted}"),
            good + SINK.format(template="t.json").replace('["detector"]', f"[{quoted}]"),
            good + SINK.format(template="t.json") + f"file = {quoted}\n",
            good + SINK.format(template="t.json") + f'file = {quoted[:-1]}{{run}}.nxs"\n',
            good + SINK.format(template="t.json") + f'file = "{{run}}"\nfolder = {quoted}\n',
        ]
        for text in cases:
            injected += 1
            refused += cage.run("check", text).returncode == 2
    # All of the names are no name of a source, and none is a whole file pattern.
    assert refused > injected // 2
    print(f"names and patterns: {injected} injected, {refused} refused, 0 panics, 0 files outside")


@pytest.mark.parametrize(
    "pattern", ["../{run}.nxs", "/tmp/{run}.nxs", "a/{run}.nxs", "{run}/../../x.nxs", "\\u0000{run}", "{run}/x", ".."]
)
def test_file_pattern_that_leads_elsewhere_is_refused(cage, pattern):
    (cage.inner / "t.json").write_text('{"children": []}')
    text = GOOD.format(data="data") + SINK.format(template="t.json") + f'file = "{pattern}"\n'
    done = cage.run("up", text)
    assert done.returncode == 2 and b"file" in done.stderr
    print(f"file pattern: {pattern!r} injected, refused")


def group(name: str, *children) -> str:
    return json.dumps(
        {"type": "group", "name": name, "attributes": {"NX_class": "NXentry"}, "children": list(children)}
    )


@pytest.mark.parametrize(
    ("what", "make"),
    [
        ("10,000 lists in each other", lambda: "[" * 10_000 + "]" * 10_000),
        ("10,000 groups in each other", lambda: '{"children":[{"type":"group","name":"a",' * 10_000 + "}]}" * 10_000),
        ("100 MB of spaces", lambda: " " * 100_000_000),
        ("100 MB of zeroes", lambda: b"\0" * 100_000_000),
        ("not text", lambda: bytes(range(256)) * 64),
        ("half an object", lambda: '{"children": ['),
        ("a number", lambda: "1e999"),
        ("a name that leads out", lambda: '{"children": [' + group("../x") + "]}"),
        ("a name from the root", lambda: '{"children": [' + group("/etc/passwd") + "]}"),
        ("a name with a zero", lambda: '{"children": [' + group("a\0b") + "]}"),
        ("a name that is none", lambda: '{"children": [' + group(".") + "]}"),
        ("an empty name", lambda: '{"children": [' + group("") + "]}"),
        (
            "a dataset of 2^60 values",
            lambda: '{"children": [{"module": "dataset", "config": {"name": "x", "shape": [1152921504606846976]}}]}',
        ),
        (
            "a link to another file",
            lambda: (
                '{"children": [{"module": "link", "config": {"name": "x", "source": "/etc/passwd", "file": "/etc/passwd"}}]}'
            ),
        ),
        ("an unknown module", lambda: '{"children": [{"module": "system", "config": {"command": "id"}}]}'),
    ],
)
def test_absurd_template_is_refused(cage, nexus, what, make):
    made = make()
    (cage.inner / "t.json").write_bytes(made if isinstance(made, bytes) else made.encode())
    text = GOOD.format(data="data") + SINK.format(template="t.json")
    for verb in ("check", "up"):
        done = cage.run(verb, text)
        assert done.returncode == 2
        assert len(done.stderr) < 2_000_000
    print(f"template: {what} injected, refused")


@pytest.mark.parametrize(
    "path", ["/dev/zero", "/dev/stdin", "/dev/full", "/proc/self/mem", "/", "loop", "dangling", "fifo"]
)
def test_instrument_file_that_is_no_file_is_refused(lab, path):
    (lab.folder / "loop").symlink_to("loop")
    (lab.folder / "dangling").symlink_to("nowhere")
    os.mkfifo(lab.folder / "fifo")
    done = subprocess.run(
        [lab.beamport, "check", path], capture_output=True, stdin=subprocess.DEVNULL, cwd=lab.folder, timeout=HANG_S
    )
    assert done.returncode == 2 and b"error:" in done.stderr, done.stderr[-1000:]
    print(f"instrument file: {path} injected, refused")


def test_files_of_a_stream_that_are_links_elsewhere_are_not_written_through(cage):
    """A folder may lie elsewhere, on a larger disk; the files in it are ours alone."""
    victim = cage.root / "outside" / "precious"
    injected = 0
    for name in ["lock", "stream.new", "origins", "pins", "commit", "p-00000000", "i-00000000"]:
        victim.write_text("mine")
        folder = cage.data / "detector"
        folder.mkdir(parents=True)
        (folder / name).symlink_to(victim)
        cage.run("up", GOOD.format(data="data"), "--json")
        assert victim.read_text() == "mine", name
        cage.lab.forget(cage.data)
        injected += 1
    print(f"files of a stream: {injected} links elsewhere injected, 0 written through")


@pytest.mark.root
def test_shared_memory_made_by_another_user_is_refused(beamport):
    """Everybody may write in /dev/shm, so somebody may have been there before."""
    user = 54321
    trap = Path(f"/dev/shm/beamport-{user}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "bin").mkdir()
        shutil.copy2(beamport, folder / "bin")
        # The program finds librdkafka beside the folder that it lies in.
        libraries = Path(beamport).resolve().parent.parent / "lib" / "beamport"
        if libraries.is_dir():
            shutil.copytree(libraries, folder / "lib" / "beamport")
        (folder / "lab.toml").write_text(GOOD.format(data="data"))
        os.chown(folder, user, user)
        try:
            for kind in ("a folder of another user", "a folder open to all", "a link"):
                if kind == "a link":
                    (folder / "elsewhere").mkdir()
                    trap.symlink_to(folder / "elsewhere")
                else:
                    trap.mkdir()
                    trap.chmod(0o777)
                    os.chown(trap, *((user, user) if kind == "a folder open to all" else (0, 0)))
                done = subprocess.run(
                    [folder / "bin" / "beamport", "up", "lab.toml"], cwd=folder, user=user, group=user, extra_groups=[],
                    capture_output=True, stdin=subprocess.DEVNULL, timeout=HANG_S,
                )  # fmt: skip
                assert done.returncode == 2 and str(trap).encode() in done.stderr, done.stderr
                if trap.is_symlink():
                    trap.unlink()
                else:
                    assert list(trap.iterdir()) == []
                    trap.rmdir()
        finally:
            if trap.is_symlink():
                trap.unlink()
            elif trap.exists():
                shutil.rmtree(trap)
    print("shared memory: 3 traps of another user injected, 3 refused, nothing written into them")


def begin(run, **more) -> bytes:
    return json.dumps({"command": "begin", "run": run, "settle": 10_000_000, **more}).encode() + b"\n"


def test_control_socket_survives_nonsense(lab, times, dice):
    lab.write(GOOD.split("\n", 2)[2].format(data="").replace('duration = "100 ms"\n', ""))
    (lab.folder / "outside").mkdir()
    process, _ = lab.up_ready()
    before = snapshot(lab.folder, without=[lab.data])
    lines = [
        b"\n",
        b"{\n",
        b"null\n",
        b"[]\n",
        b'"begin"\n',
        b"{}\n",
        b'{"command": null}\n',
        b'{"command": "rm -rf /"}\n',
        b'{"command": "end", "run": "nobody"}\n',
        b'{"command": "end", "run": "first", "stop": "soon"}\n',
        b'{"command": "end", "run": "first", "stop": 1e300}\n',
        b"\xff\xfe\x00\n",
        b"\0" * 1000 + b"\n",
        b"[" * 20_000 + b"\n",
        b'{"a":' * 10_000 + b"\n",
        b'{"command": "begin", "run": 7}\n',
        b'{"command": "begin", "metadata": []}\n',
        begin("x", start=5, stop=5),
        begin("x", start=2**63 - 1),
        begin("x", settle=-1),
    ]
    lines += [
        begin(name if "\\" not in name else json.loads(f'"{name}"'))
        for name in NAMES
        if name not in ("runs", "control", "files", "-rf")
    ]
    answered = 0
    for line in lines:
        answer = json.loads(lab.ask(line))
        assert "fault" in answer and answer["fault"]["what"], (line[:80], answer)
        answered += 1
    for _ in range(times(50, 5000)):
        line = bytearray(begin(f"run-{answered}", metadata={"title": "x"}).replace(b"begin", b"status"))
        for _ in range(dice.randint(1, 6)):
            line[dice.randrange(len(line) - 1)] = dice.randrange(256)
        answer = json.loads(lab.ask(bytes(line).replace(b"\n", b" ") + b"\n"))
        assert answer.keys() in ({"ok"}, {"fault"})
        answered += 1
    # 40 MiB without an end: refused without being read to its end.
    with lab.dial() as client:
        try:
            client.sendall(b"x" * (40 << 20))
        except OSError:
            pass
        try:
            assert b"too long" in client.recv(4096)
        except ConnectionResetError:
            pass
    # 200 that say nothing, one that says a letter a second: others are served meanwhile, or told to come again.
    crowd = []
    for _ in range(200):
        try:
            crowd.append(lab.dial(5.0))
        except (BlockingIOError, TimeoutError):
            break
    stop = threading.Event()

    def dawdle():
        with lab.dial() as slow:
            while not stop.wait(0.5):
                try:
                    slow.send(b"{")
                except OSError:
                    return

    slow = threading.Thread(target=dawdle)
    slow.start()
    until(lambda: b'"ok"' in patient(lab), "a crowd that says nothing keeps everybody else away")
    stop.set()
    slow.join()
    for client in crowd:
        client.close()
    until(lambda: b'"ok"' in patient(lab), "the crowd went and nobody is served")
    assert process.poll() is None
    assert snapshot(lab.folder, without=[lab.data]).keys() == before.keys()
    lab.interrupt(process)
    out, err = lab.end(process), lab.said(process)[1]
    assert "panicked" not in err
    reports = json.loads(out)
    for report in reports if isinstance(reports, list) else [reports]:
        assert report["closed"] and lost_of(report) == 0
    for stream in lab.streams():
        gapless(stream)
    assert snapshot(lab.folder, without=[lab.data]).keys() == before.keys()
    print(
        f"control socket: {answered} lines of nonsense, 1 MB, {len(crowd)} silent and 1 slow client injected; all answered or refused, 0 lost"
    )


def patient(lab) -> bytes:
    """The answer to `status`, or nothing where there is no room now."""
    try:
        return lab.ask(b'{"command": "status"}\n', 1.0)
    except OSError:
        time.sleep(0.05)
        return b""


def test_control_socket_is_for_its_owner_alone(lab):
    lab.write(GOOD.split("\n", 2)[2].format(data="").replace('duration = "100 ms"\n', ""))
    process, _ = lab.up_ready()
    path = lab.data / "control.sock"
    assert path.lstat().st_mode & 0o777 == 0o600
    for stream in lab.streams(books=True):
        assert stream.folder.stat().st_mode & 0o027 == 0 and stream.live.stat().st_mode & 0o027 == 0
    lab.kill(process)
    # What a killed instrument left is in nobody's way.
    process, _ = lab.up_ready()
    lab.kill(process)
    # Nor is something else of that name, put there by somebody else.
    path.unlink(missing_ok=True)
    victim = lab.folder / "victim"
    victim.write_text("mine")
    path.symlink_to(victim)
    process, _ = lab.up_ready()
    assert victim.read_text() == "mine" and not path.is_symlink()
    lab.kill(process)
    print("control socket: 1 stale and 1 planted injected, both replaced, 0 written through")
