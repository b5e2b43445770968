"""The page of `[web]` in a browser, while what it shows is deleted, damaged or removed, and processes are killed.

A fault is a sentence in its panel, which names the cause; the other panels are shown, no script fails, and the page
continues by itself once the data are back.
"""

import json
import os
import re
import shutil
import signal
import time
from pathlib import Path
from urllib.parse import quote

import pytest
from conftest import kill, line_of, until
from ports import free_port
from signals import stop
from test_web import INSTRUMENT, ask, image_of, url_of

# Streams that are written by the test, with the panels of the page: stream and view.
VIEWS = {
    "camera": ("image", "message"),
    "detector": ("pixels", "spectrum"),
    "monitor": ("curve",),
    "devices": ("trend",),
}
PANELS = [(stream, view) for stream, views in VIEWS.items() for view in views]
# All messages lie in one second, so that the windows of all views have several of them.
SPACING_NS = 20_000_000


class Written:
    """A data folder with a stream of each kind, whose page `beamport web` serves."""

    def __init__(self, lab, level: str):
        np = pytest.importorskip("numpy")
        self.lab = lab
        lab.data.mkdir()
        data = pytest.importorskip("beamport", reason="pip install .").open(lab.data)
        self.begin = time.time_ns() // SPACING_NS * SPACING_NS - 10_000_000_000
        self.streams = {name: data.create(name, level=level, live=1 << 20) for name in VIEWS}
        self.content = {
            "camera": lambda n, t: ("ad00", {"source_name": "c", "id": n, "timestamp": t, "data": np.full((64, 64), n, "u2")}),
            "detector": lambda n, t: (
                "ev44",
                {
                    "source_name": "d",
                    "message_id": n,
                    "reference_time": [t],
                    "reference_time_index": [0],
                    "time_of_flight": np.arange(1000, dtype="i4"),
                    "pixel_id": np.arange(1, 1001, dtype="i4"),
                },
            ),
            "monitor": lambda n, t: (
                "da00",
                {"source_name": "m", "timestamp": t, "data": [{"name": "signal", "axes": ["x"], "shape": [1000], "data": np.arange(1000) + n}]},
            ),
            "devices": lambda n, t: ("f144", {"source_name": "T", "timestamp": t, "value": np.full(1000, n, "f8")}),
        }  # fmt: skip
        self.count = 0
        self.append(40)
        self.serve()

    def serve(self):
        """Starts a server."""
        self.process = self.lab.popen("web", "--data", self.lab.data, "--listen", "127.0.0.1:0")
        self.url = url_of(self.lab, self.process)

    def append(self, count: int):
        for _ in range(count):
            at = self.begin + self.count * SPACING_NS
            for name, stream in self.streams.items():
                stream.append(*self.content[name](self.count, at))
            self.count += 1

    def close(self):
        for stream in self.streams.values():
            stream.close()

    def moment(self, number: int) -> int:
        """A time just after a message."""
        return self.begin + number * SPACING_NS + SPACING_NS // 2

    def open(self, tab, at: int):
        """The page at a moment."""
        panels = "".join(f"&panel={stream};view={view}" for stream, view in PANELS)
        page = tab(f"{self.url}&at={at}{panels}")
        # All panels are seen: only those are asked for.
        page.set_viewport_size({"width": 1280, "height": 5000})
        return page

    def page(self, tab, at: int):
        """The same, once all panels are drawn."""
        page = self.open(tab, at)
        all_shown(page)
        return page


def articles(page):
    found = page.locator("#panels article")
    found.nth(len(PANELS) - 1).wait_for()
    return [found.nth(i) for i in range(len(PANELS))]


def all_shown(page):
    """Waits until each panel shows its view, without a sentence."""
    for article, (_, view) in zip(articles(page), PANELS, strict=True):
        article.locator("canvas, table, dl").first.wait_for()
        article.locator(".sentence.bad").wait_for(state="hidden")
        if view == "image":
            article.locator("canvas[data-sequence]").wait_for()


def sentence(article, words: str):
    """Waits for a sentence with these words in a panel."""
    shown = article.locator(".sentence.bad:visible")
    until(
        lambda: re.search(words, " ".join(shown.all_inner_texts()), re.S),
        lambda: f"not {words}\n{article.inner_text()}",
    )


def go_to(page, at: int):
    page.evaluate("at => { location.hash = location.hash.replace(/at=\\d+/, `at=${at}`) }", str(at))


@pytest.mark.services
def test_retention_under_an_open_page_is_named_in_each_panel(lab, tab):
    written = Written(lab, "memory")
    page = written.page(tab, written.moment(20))
    last = None
    # Memory streams keep no more than `live`.
    for _ in range(40):
        written.append(100)
        last = written.moment(written.count - 1)
        if all(row["first"] > 20 for row in firsts(written)):
            break
    for article in articles(page):
        sentence(article, "has no message of this moment.*retention has deleted.*`retain` keeps more")
    # The later moment of the hint.
    go_to(page, last)
    all_shown(page)
    print(f"injected retention of {written.count} messages under an open page: a sentence in {len(PANELS)} panels")
    written.close()


def firsts(written) -> list[dict]:
    return [dict(zip(("first", "disk", "memory"), written.lab.stream(name).marks(), strict=True)) for name in VIEWS]


def files(written, kind: str) -> list[Path]:
    return [path for name in VIEWS for path in sorted((written.lab.data / name).glob(f"{kind}-*"))]


def flip(path: Path, begin: int = 0):
    """Inverts one byte of every 32."""
    bytes_ = bytearray(path.read_bytes())
    for at in range(begin, len(bytes_), 32):
        bytes_[at] ^= 0xFF
    path.write_bytes(bytes_)


def truncate(path: Path):
    with path.open("r+b") as file:
        file.truncate(0)


# The file, and what finds all damage.
DAMAGED = "cause: .*(i|p)-0000.*beamport verify"
DAMAGES = {
    "payloads inverted": lambda written: [flip(path) for path in files(written, "p")],
    "index inverted": lambda written: [flip(path) for path in files(written, "i")],
    "payloads truncated": lambda written: [truncate(path) for path in files(written, "p")],
    "index truncated": lambda written: [truncate(path) for path in files(written, "i")],
    "payloads removed": lambda written: [path.unlink() for path in files(written, "p")],
    "index removed": lambda written: [path.unlink() for path in files(written, "i")],
}


@pytest.mark.services
def test_damage_under_an_open_page_is_named_in_each_panel(lab, tab):
    written = Written(lab, "disk")
    written.close()
    whole = lab.folder / "whole"
    shutil.copytree(lab.data, whole)
    page = written.page(tab, written.moment(30))
    for at, (what, damage) in enumerate(DAMAGES.items(), 20):
        print(f"damage: {what}")
        damage(written)
        # Another moment, so that all panels read again.
        go_to(page, written.moment(at))
        for article, (_, view) in zip(articles(page), PANELS, strict=True):
            # The server has the values of a trend since they were whole.
            if view == "trend":
                article.locator("canvas").wait_for()
            else:
                sentence(article, DAMAGED)
        assert written.process.poll() is None, what
        for path in [*files(written, "p"), *files(written, "i")]:
            path.unlink()
        for path in whole.glob("*/[ip]-*"):
            shutil.copy2(path, lab.data / path.parent.name)
        go_to(page, written.moment(at - 10))
        all_shown(page)
    # A server that has read nothing before.
    DAMAGES["payloads inverted"](written)
    written.serve()
    for article in articles(written.open(tab, written.moment(30))):
        sentence(article, DAMAGED)
    print(f"injected {len(DAMAGES)} damages under an open page: a sentence in {len(PANELS)} panels each")


@pytest.mark.services
def test_removed_folders_under_an_open_page_are_named_and_their_return_is_seen(lab, tab):
    written = Written(lab, "disk")
    written.close()
    page = written.page(tab, written.moment(30))
    away = lab.folder / "away"
    (lab.data / "camera").rename(away)
    for article, (stream, _) in zip(articles(page), PANELS, strict=True):
        if stream == "camera":
            sentence(article, "stream `camera`.*beamport ls")
            page.locator(".lane").filter(has_text="camera, ▲ cannot be read").wait_for()
        else:
            article.locator(".sentence.bad").wait_for(state="hidden")
    away.rename(lab.data / "camera")
    all_shown(page)
    lab.data.rename(away)
    page.get_by_role("alert").filter(has_text="cannot read data folder").wait_for()
    for article in articles(page):
        sentence(article, "stream `")
    away.rename(lab.data)
    all_shown(page)
    page.get_by_role("alert").wait_for(state="hidden")
    print("injected a removed stream and a removed data folder under an open page: named, and seen when they are back")


@pytest.mark.services
def test_panel_of_the_first_picture_stays_when_its_stream_is_removed(lab, tab):
    written = Written(lab, "disk")
    written.close()
    page = tab(written.url)
    image_of(page, "camera")
    shutil.rmtree(lab.data / "camera")
    sentence(page.get_by_role("article", name="camera"), "stream `camera`.*beamport ls")
    page.get_by_role("article", name="detector").locator("canvas").first.wait_for()


def newest(page, stream: str) -> int:
    """Number of the message that a panel shows."""
    shown = page.get_by_role("article", name=stream).locator(".meta").inner_text()
    return int(re.search(r"message (\d+)", shown)[1])


def goes_on(page, streams=("camera", "detector")):
    """Waits until panels show later messages."""
    for stream in streams:
        before = newest(page, stream)
        until(lambda: newest(page, stream) > before, f"the panel of {stream} stands still")  # noqa: B023
    page.get_by_role("alert").wait_for(state="hidden")


def layout(page) -> dict:
    """What a reader of the page arranged: panels, what is asked of them, where the page is scrolled to, the focus."""
    return page.evaluate("""() => ({
        hash: location.hash,
        panels: [...document.querySelectorAll('article h3')].map(head => head.textContent),
        scroll: scrollY,
        focus: document.activeElement.outerHTML.slice(0, 60),
    })""")


def arranged(lab, tab, port: int = 0):
    """A running instrument, its URL, and a page with a layout of its own."""
    process, _ = lab.write(INSTRUMENT.replace("127.0.0.1:0", f"127.0.0.1:{port}")).up_ready()
    url = url_of(lab, process)
    page = tab(url + "&panel=camera;region=100,100,300,300&panel=detector;window=3;shape=256,128&panel=devices")
    page.set_viewport_size({"width": 1280, "height": 3000})
    for stream in ("camera", "detector"):
        image_of(page, stream)
    page.get_by_role("article", name="devices").locator("canvas").wait_for()
    page.get_by_role("article", name="detector").get_by_label("view").focus()
    return process, url, page


@pytest.mark.services
def test_page_goes_on_with_its_layout_when_its_server_is_killed_again_and_again(lab, tab, times):
    process, url, page = arranged(lab, tab)
    before = layout(page)
    frames = lab.stream("camera").marks()[2]
    pids = set()
    for _ in range(times(10, 100)):
        pid = json.loads(ask(url, "api/status"))["web"]["pid"]
        pids.add(pid)
        kill(pid)
        # While a request may be under way, and while none is.
        time.sleep(0.05)
    goes_on(page)
    assert layout(page) == before
    assert page.locator(".sentence.bad:visible").count() == 0
    frames = lab.stream("camera").marks()[2] - frames
    assert len(pids) == times(10, 100) and process.poll() is None
    print(f"injected {len(pids)} kills of the server under an open page: the page continues, {frames} frames meanwhile")


@pytest.mark.services
def test_page_goes_on_when_the_mover_is_killed_and_started_again(lab, tab, times):
    port = free_port()
    process, url, page = arranged(lab, tab, port)
    before = layout(page)
    cuts = 0
    for at in range(times(2, 20)):
        lab.kill(process)
        if at % 2:
            # As a power cut does: what was in memory alone is lost, and a new epoch begins.
            cuts += 1
            for stream in lab.streams(books=True):
                shutil.rmtree(stream.live)
        page.get_by_role("alert").filter(has_text="The server does not answer").wait_for()
        process, _ = lab.up_ready()
        assert url_of(lab, process) == url
        goes_on(page)
        assert layout(page) == before
    assert len(lab.stream("camera").epochs) == 1 + cuts
    print(f"injected {at + 1} kills of the mover, {cuts} of them with loss of memory, under an open page: it continues")


def browser_processes() -> list[int]:
    """The processes of the Chromium that this process of pytest started."""
    children = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(folder.name))
    found, ahead = [], [os.getpid()]
    while ahead:
        more = children.get(ahead.pop(), [])
        ahead += more
        found += [pid for pid in more if b"chromium" in line_of(pid).split(b"\0")[0]]
    return found


def resident(pid: int) -> int:
    """Bytes of memory of a process."""
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) << 10


@pytest.mark.services
def test_browser_that_is_stopped_hinders_nobody_and_goes_on(lab, tab, times):
    process, url, page = arranged(lab, tab)
    server = json.loads(ask(url, "api/status"))["web"]["pid"]
    begin, answered, seconds = resident(server), 0, times(5, 60)
    stopped = browser_processes()
    assert len(stopped) > 2
    for pid in stopped:
        stop(pid)
    try:
        end = time.monotonic() + seconds
        most = begin
        while time.monotonic() < end:
            json.loads(ask(url, "api/status"))
            answered += 1
            most = max(most, resident(server))
            time.sleep(0.05)
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    goes_on(page)
    assert json.loads(ask(url, "api/status"))["web"]["pid"] == server
    grown = max(most, resident(server)) - begin
    assert grown < 256 << 20
    print(
        f"injected a browser of {len(stopped)} processes stopped for {seconds} s: {answered} other requests answered, "
        f"memory of the server {begin >> 20} MiB + {grown >> 20} MiB, the page continues"
    )


HOSTILE = '"\'><img src=x onerror="window.hacked=1"><script>window.hacked=1</script>${window.hacked=1}'
PICKY = f"""
import beamport


@beamport.worker
def picky(message):
    raise ValueError({HOSTILE!r})
"""
WATCHED = """
[web]
listen = "127.0.0.1:0"

[source.monitor]
kind = "sim"
model = "amor-monitor"
live = "4 MiB"

[worker.picky]
call = "picky.py:picky"
inputs = ["monitor"]
"""


@pytest.mark.services
def test_text_of_the_data_is_never_run_as_code(lab, nexus, tab):
    beamport = pytest.importorskip("beamport", reason="pip install .")
    (lab.folder / "picky.py").write_text(PICKY)
    lab.write(WATCHED)
    now = time.time_ns()
    lab.data.mkdir()
    with beamport.open(lab.data).create("devices", live=1 << 20) as stream:
        stream.append("f144", {"source_name": HOSTILE, "timestamp": now, "value": 1.0})
        stream.append("al00", {"source_name": HOSTILE, "timestamp": now, "severity": 2, "message": HOSTILE})
        stream.append("un00", {"source_name": HOSTILE, "timestamp": now, "units": HOSTILE})
    # A folder may have any name.
    shutil.copytree(lab.data / "devices", lab.data / HOSTILE.replace("/", "")[:200])
    process, _ = lab.up_ready()
    lab.run("begin", "first", "--metadata", json.dumps({"title": HOSTILE}), "--data", lab.data)
    url = url_of(lab, process)
    until(lambda: [w for w in json.loads(ask(url, "api/status"))["workers"] if w["aside"] > 0], "no message is aside")
    named = quote(HOSTILE.replace("/", "")[:200])
    page = tab(
        f"{url}&at={now + 10_000_000}&panel=devices&panel=devices;view=message&panel={named}&panel={quote(HOSTILE)};view=x"
    )
    page.set_viewport_size({"width": 1280, "height": 3000})
    page.get_by_role("article").nth(1).get_by_text(HOSTILE).first.wait_for()
    page.get_by_role("button", name=HOSTILE).first.wait_for()
    account = page.locator("#account")
    account.get_by_label("Account of").select_option("streams/picky")
    account.locator("details summary").first.click()
    account.get_by_text("Traceback").first.wait_for()
    page.locator("#runs").get_by_role("button", name="first").click()
    page.locator("#control").get_by_text("Commands so far").click()
    page.locator("#control").get_by_text(HOSTILE[:20]).first.wait_for()
    assert page.evaluate("window.hacked") is None
    assert page.locator("body img, body script, body iframe").count() == 0
