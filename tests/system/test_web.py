"""The page of `[web]`, driven in Debian's Chromium; its types, and what it takes from npm.

`cargo xtask check` installs the browser and fetches TypeScript, axe-core and uPlot into `target/web`.
"""

import datetime
import json
import os
import re
import shutil
import subprocess
import urllib.request

import pytest
from conftest import HANG_S, ROOT, kill, until
from ports import free_port
from test_hosts import hosts  # noqa: F401

beamport = pytest.importorskip("beamport", reason="pip install .")

PAGE = ROOT / "crates/web/page"
FETCHED = ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "web/node_modules"
PICTURE = ROOT / "docs/images/page.png"
BYTES_MAX = 300_000

INSTRUMENT = """
[web]
listen = "127.0.0.1:0"

[source.camera]
kind = "sim"
model = "camera"
fps = 10
shape = [512, 512]
dtype = "uint16"
counts = 1000

[source.detector]
kind = "sim"
model = "amor"
rate = 1e5
live = "8 MiB"

[source.devices]
kind = "sim"
model = "amor-devices"
live = "4 MiB"
"""

# Says how the pixels of the detector lie.
FILE = """
[sink.file]
kind = "nexus"
inputs = ["detector"]
template = "detector.nexus.json"
"""

# Different colours of a canvas, and a number that changes with its pixels.
PIXELS = """canvas => {
    const image = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    const pixels = new Uint32Array(image.data.buffer);
    return { colours: new Set(pixels).size, sum: pixels.reduce((sum, pixel, i) => (sum * 31 + pixel + i) >>> 0, 0) };
}"""
# Pixels of a canvas that have the colour of the line of a trend.
LINE = """canvas => {
    const probe = document.createElement('canvas').getContext('2d');
    probe.fillStyle = getComputedStyle(document.documentElement).getPropertyValue('--accent');
    probe.fillRect(0, 0, 1, 1);
    const [wanted] = new Uint32Array(probe.getImageData(0, 0, 1, 1).data.buffer);
    const image = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    return new Uint32Array(image.data.buffer).filter(pixel => pixel === wanted).length;
}"""

# How far to the right they go, of the width.
EDGE = LINE.replace(
    ".filter(pixel => pixel === wanted).length",
    ".reduce((most, pixel, i) => pixel === wanted ? Math.max(most, (i % canvas.width) / canvas.width) : most, 0)",
)
# The same of what is wrong.
BAD = LINE.replace("--accent", "--bad")


@pytest.fixture
def served(lab, nexus):
    """A running instrument with a page: its process, and the URL with the token."""
    template = json.loads((ROOT / "examples/amor.nexus.json").read_text())
    instrument = next(child for child in template["children"][0]["children"] if child.get("name") == "instrument")
    detector = next(child for child in instrument["children"] if child.get("name") == "detector")
    kept = [
        child
        for child in detector["children"]
        if child.get("name") == "data"
        or re.search("detector_number|pixel_offset", child.get("config", {}).get("name", ""))
    ]
    (lab.folder / "detector.nexus.json").write_text(json.dumps({"children": [detector | {"children": kept}]}))
    process, _ = lab.write(INSTRUMENT + FILE).up_ready()
    return process, url_of(lab, process)


def url_of(lab, process, data=None) -> str:
    """The URL of the page, which `up` prints once it is served, with the token."""
    said = until(lambda: re.search(r"^page: (http://\S+)", lab.said(process)[1], re.M), lambda: lab.said(process)[1])
    return f"{said[1]}#token={((data or lab.data) / 'web.control.token').read_text().strip()}"


def ask(url: str, path: str) -> bytes:
    """The answer to a request with the token of the URL."""
    address, token = url.split("/#token=")
    request = urllib.request.Request(f"{address}/{path}", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=HANG_S) as answer:
        return answer.read()


def image_of(page, stream: str):
    """The canvas of an image, once one is drawn."""
    panel = page.get_by_role("article", name=stream)
    panel.scroll_into_view_if_needed()
    canvas = panel.locator(".picture > canvas")
    panel.locator(".picture > canvas[data-sequence]").wait_for()
    return canvas


def changed(canvas, before: dict) -> dict:
    """The pixels of a canvas, once they are others."""
    return until(lambda: (now := canvas.evaluate(PIXELS)) != before and now, "the image does not change")


def refusals(page) -> list[str]:
    """Serious violations that axe-core finds."""
    page.evaluate((FETCHED / "axe-core/axe.min.js").read_text())
    found = page.evaluate("axe.run()")["violations"]
    return [
        f"{one['id']}: {one['help']}: {[node['html'] for node in one['nodes']]}"
        for one in found
        if one["impact"] in ("serious", "critical")
    ]


def test_page_is_small_and_has_all_its_parts():
    files = {path for path in PAGE.rglob("*") if path.is_file()}
    assert sum(path.stat().st_size for path in files) <= BYTES_MAX
    wanted = {PAGE / name for name in re.findall(r'(?:src|href)="([^"#]+)"', (PAGE / "index.html").read_text())}
    for path in PAGE.rglob("*.js"):
        wanted |= {(path.parent / name).resolve() for name in re.findall(r"from '(\.[^']+)'", path.read_text())}
    # The licence goes with the code that it is of; the first page is the answer to `/`.
    assert files == wanted | {PAGE / "index.html", PAGE / "uPlot.LICENSE"}


@pytest.mark.services
def test_types_of_the_page_are_right():
    done = subprocess.run(
        [
            shutil.which("node") or "node",
            FETCHED / "typescript/bin/tsc",
            *["--allowJs", "--checkJs", "--strict", "--noEmit"],
            *["--noUnusedLocals", "--noUnusedParameters", "--noImplicitReturns"],
            *["--target", "es2022", "--module", "es2022", "--moduleResolution", "bundler"],
            # uPlot is a script of its own, with one global name.
            *["--lib", "es2022,dom,dom.iterable", "--allowUmdGlobalAccess", "--types", ""],
            FETCHED / "uplot/dist/uPlot.d.ts",
            PAGE / "app.js",
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=HANG_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.services
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("uPlot.iife.min.js", "dist/uPlot.iife.min.js"),
        ("uPlot.min.css", "dist/uPlot.min.css"),
        ("uPlot.LICENSE", "LICENSE"),
    ],
)
def test_uplot_is_that_of_npm(ours, theirs):
    assert (PAGE / ours).read_bytes() == (FETCHED / "uplot" / theirs).read_bytes()


@pytest.mark.services
def test_page_is_served_as_it_is_here(served):
    _, url = served
    for path in (path for path in PAGE.rglob("*") if path.is_file()):
        name = str(path.relative_to(PAGE)).replace("index.html", "")
        assert ask(url, name) == path.read_bytes(), name


@pytest.mark.services
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_first_picture_needs_no_configuration(served, tab, tmp_path, scheme):
    _, url = served
    page = tab(url, scheme=scheme)
    # The token is not in the address any more, nor in the history.
    page.wait_for_function("() => location.hash === ''")
    for stream in ("camera", "detector", "devices"):
        row = page.locator("#streams").get_by_role("row", name=stream)
        row.get_by_role("cell").first.filter(has_text=re.compile(r"^[1-9]")).wait_for()
    canvas = image_of(page, "camera")
    first = canvas.evaluate(PIXELS)
    assert first["colours"] > 10
    changed(canvas, first)

    trend = page.get_by_role("article", name="devices")
    trend.get_by_role("button", name="AMOR:SE:TEMP01").click()
    until(lambda: trend.locator(".plot canvas").evaluate(LINE) > 20, "no line is drawn", 20)
    trend.get_by_role("row", name="AMOR:SE:TEMP01").get_by_text(re.compile(r"^[23]\d\d\.")).wait_for()

    detector = page.get_by_role("article", name="detector")
    events = image_of(page, "detector")
    detector.get_by_text(re.compile(r"^[1-9][\d,]* events in \d+ messages")).wait_for()
    assert events.evaluate(PIXELS)["colours"] > 10

    picture = PICTURE if os.environ.get("BLESS") == "1" and scheme == "light" else tmp_path / "page.png"
    # The strip is where the page is scrolled to.
    page.evaluate("scrollTo(0, 0)")
    picture.parent.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=picture, full_page=True)
    assert refusals(page) == []


@pytest.mark.services
def test_every_view_can_be_chosen(served, tab):
    page = tab(served[1])
    image_of(page, "detector")
    detector = page.get_by_role("article", name="detector")
    detector.get_by_label("view").select_option("spectrum")
    until(lambda: detector.locator(".plot canvas").evaluate(LINE) > 20, "no line is drawn")
    detector.locator(".plot").focus()
    page.keyboard.press("ArrowRight")
    detector.locator("output").filter(has_text=re.compile(r"^[\d.]+ to [\d.]+ ms: \d+ counts$")).wait_for()
    page.keyboard.press("+")
    page.wait_for_function("() => /panel=detector;view=spectrum;region=/.test(location.hash)")
    assert refusals(page) == []

    detector.get_by_label("view").select_option("message")
    detector.get_by_text("time_of_flight").wait_for()
    detector.get_by_text("amor_detector", exact=True).wait_for()
    assert refusals(page) == []

    detector.get_by_label("view").select_option("trend")
    detector.get_by_text("No values in this time.").wait_for()
    detector.get_by_label("view").select_option("events")
    image_of(page, "detector")


@pytest.fixture
def shelf(lab, nexus):
    """The page of a data folder that nobody writes: `shelf(STREAM, [MESSAGE, ...])` appends; the URL."""
    lab.data.mkdir()
    process = lab.popen("web", "--data", lab.data, "--listen", "127.0.0.1:0")

    def append(stream: str, messages: list[dict]) -> None:
        path = lab.folder / "messages.json"
        path.write_text(json.dumps(messages))
        lab.run("append", stream, path, "--data", lab.data)

    return append, url_of(lab, process)


def value(at: int, origin: str = "T") -> dict:
    """A value of a device; its time in ns since 1970."""
    content = {"schema": "f144", "source_name": origin, "timestamp": at, "value": float(at % 1000)}
    return {"source_time": at, "origin": origin, "content": content}


def minutes_ago(shelf) -> int:
    """Appends values of `devices` of 500, 300 and 100 s ago; the time of the server, ns since 1970."""
    append, url = shelf
    now = json.loads(ask(url, "api/status"))["time"]
    append("devices", [value(now - seconds * 1_000_000_000) for seconds in (500, 300, 100)])
    return now


@pytest.mark.services
def test_message_is_found_by_number_time_and_step(shelf, tab):
    append, url = shelf
    start = 1_772_366_400_000_000_000
    append("devices", [value(start + n * 1_000_000_000, "ab"[n % 2]) for n in range(6)])
    page = tab(url + "&panel=devices;view=message")
    panel = page.get_by_role("article", name="devices")

    def shown(number: int) -> None:
        panel.locator(".meta").filter(has_text=f"message {number} ").wait_for()
        page.wait_for_function(f"() => location.hash.includes('sequence={number}')")

    panel.locator(".meta").filter(has_text="message 5 ").wait_for()
    number = panel.get_by_role("spinbutton", name="message")
    number.fill("3")
    number.press("Enter")
    shown(3)
    panel.get_by_role("button", name="Previous").click()
    shown(2)
    # By keys, and of the same origin.
    fields = panel.get_by_role("region", name="Fields of devices")
    fields.press("ArrowRight")
    shown(3)
    panel.get_by_label("of the same origin").check()
    fields.press("ArrowLeft")
    shown(1)
    fields.press("ArrowLeft")
    panel.get_by_text("it is the oldest of its origin").wait_for()
    shown(1)
    # By its time, which the panel shows of the message.
    when = panel.get_by_label("at (UTC)")
    assert when.input_value() == "2026-03-01 12:00:01.000"
    when.fill("2026-03-01 12:00:04.5")
    when.press("Enter")
    shown(4)
    when.fill("2026-03-01 11:00:00")
    when.press("Enter")
    panel.get_by_text("all that are there came after it").wait_for()
    when.fill("yesterday")
    when.press("Enter")
    panel.get_by_text("This is not a date and time").wait_for()
    # A number that is not there says so, and the message stays.
    number.fill("99")
    number.press("Enter")
    panel.get_by_text("the newest is 5").wait_for()
    shown(4)
    assert refusals(page) == []
    fields.press("End")
    panel.locator(".meta").filter(has_text="message 5 ").wait_for()
    assert "sequence" not in page.url
    narrow = tab(url + "&" + page.url.split("#")[1], width=360)
    narrow.get_by_label("at (UTC)").wait_for()
    assert narrow.evaluate("document.documentElement.scrollWidth") == 360


@pytest.mark.services
@pytest.mark.parametrize("width", [1280, 360])
def test_image_of_a_labelled_array_has_axes_and_errors(shelf, tab, width):
    append, url = shelf
    variable = lambda name, axes, data, unit, **more: {  # noqa: E731
        "name": name,
        "axes": axes,
        "data": data,
        "unit": unit,
        **more,
    }
    content = {
        "schema": "da00",
        "source_name": "area",
        "timestamp": 1_772_366_400_000_000_000,
        "data": [
            variable("signal", ["y", "x"], [[4, 9], [16, 25], [36, 49]], "counts"),
            variable("errors", ["y", "x"], [[2.0, 3.0], [4.0, 5.0], [6.0, 7.0]], "counts"),
            variable("x", ["x"], [0.0, 100.0, 200.0], "mm", label="width"),
            variable("y", ["y"], [-1.5, 0.0, 1.5], "deg"),
        ],
    }
    append("area", [{"content": content}])
    page = tab(url, width=width)
    canvas = image_of(page, "area")
    panel = page.get_by_role("article", name="area")
    panel.get_by_text("width (mm)").wait_for()
    panel.get_by_text("y (deg)").wait_for()
    ticks = panel.locator(".ticks").all_inner_texts()
    assert [side.split() for side in ticks] == [["-1", "0", "1"], ["0", "50", "100", "150", "200"]]
    # The lower left pixel is the first column of the last row.
    canvas.focus()
    for key in ("ArrowLeft", "ArrowLeft", "ArrowDown", "ArrowDown"):
        page.keyboard.press(key)
    value = "width 0 to 100 mm, y 1.5 deg, column 0, row 2: 36 ± 6 counts"
    panel.locator("output").get_by_text(value, exact=True).wait_for()
    panel.locator(".scale").get_by_text("49 counts").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert refusals(page) == []


@pytest.mark.services
def test_curve_in_ns_is_read_in_ms_with_its_units(shelf, tab):
    append, url = shelf
    variables = [
        {"name": "signal", "axes": ["tof"], "data": [1, 4, 9], "unit": "counts"},
        {"name": "errors", "axes": ["tof"], "data": [1.0, 2.0, 3.0], "unit": "counts"},
        {"name": "tof", "axes": ["tof"], "data": [0, 1_000_000, 2_000_000, 3_000_000], "unit": "ns"},
    ]
    append("monitor", [{"content": {"schema": "da00", "source_name": "m", "timestamp": 1, "data": variables}}])
    page = tab(url)
    panel = page.get_by_role("article", name="monitor")
    until(lambda: panel.locator(".plot canvas").evaluate(LINE) > 20, "no line is drawn")
    panel.locator(".plot").focus()
    page.keyboard.press("ArrowRight")
    panel.locator("output").get_by_text("1 to 2 ms: 4 ± 2 counts", exact=True).wait_for()
    assert refusals(page) == []


@pytest.mark.services
def test_figures_and_times_are_not_cut_to_other_ones(shelf, tab):
    page = tab(shelf[1])
    page.locator("#shown").wait_for()
    said = page.evaluate("""async () => {
        const { estimate, number, time } = await import('/format.js');
        const values = [1234567890, 4611686018427388353, 9223372036854775807, -3, 0.1, 1234567.8, 1e-9, 99999.94];
        const times = ['1795687002250000000', '1795687002249999999', '1795686889850000000', '1795687193437054208'];
        return [values.map(number), times.map(text => time(Number(text))), [0.2, 0.7, 346.909, 7].map(estimate)];
    }""")
    assert said == [
        ["1234567890", "4.61169e18", "9.22337e18", "-3", "0.1", "1.23457e6", "1e-9", "99999.9"],
        ["2026-11-26 " + at for at in ("09:56:42.250", "09:56:42.250", "09:54:49.850", "09:59:53.437")],
        ["less than 1", "about 1", "about 347", "7"],
    ]


@pytest.mark.services
def test_alarm_is_there_at_the_moment_that_was_found(shelf, tab):
    append, url = shelf
    # A browser has a number, or a text, that is less than each of these but the second.
    times = [1_795_686_800_437_054_208 + n * 1_000_000_077 for n in range(8)]
    alarms = [
        {"schema": "al00", "source_name": "T", "timestamp": at, "severity": ("MINOR", "OK")[n % 2], "message": f"m{n}"}
        for n, at in enumerate(times)
    ]
    append("devices", [value(times[0] - 1_000_000_000)])
    append("devices", [{"source_time": at, "origin": "T", "content": a} for at, a in zip(times, alarms, strict=True)])
    page = tab(url)
    panel = page.get_by_role("article", name="devices")
    for direction, order in (("Previous", (6, 4, 2, 0)), ("Next", (2, 4, 6))):
        for n in order:
            page.get_by_role("button", name=f"{direction} alarm").click()
            page.get_by_text(f"alarm of T in devices, MINOR, m{n}").wait_for()
            panel.get_by_text(f"MINOR, m{n} from").wait_for()
            assert times[n] <= int(re.search(r"at=(\d+)", page.url)[1]) <= times[n] + 512
    # A time that is written shows what has this time.
    append("other", [value(1_795_686_889_850_000_000)])
    page.get_by_label("Moment (UTC)").fill("2026-11-26 09:54:49.850")
    page.get_by_role("button", name="Show", exact=True).click()
    page.get_by_role("article", name="other").get_by_text("09:54:49").first.wait_for()


@pytest.mark.services
def test_last_message_of_a_finished_folder_is_the_one_that_arrived_last(shelf, tab):
    append, url = shelf
    now = json.loads(ask(url, "api/status"))["time"]
    append("devices", [value(now - 1_000_000_000), value(now + (1 << 61))])
    page = tab(url)
    strip = page.locator("#strip")
    said = strip.get_by_text(re.compile(r"last message arrived \d{4}-"))
    said.wait_for()
    before = said.inner_text()
    until(lambda: json.loads(ask(url, "api/status"))["time"] > now + 3_000_000_000, "time stands still")
    page.wait_for_timeout(1500)
    assert said.inner_text() == before


@pytest.mark.services
def test_frame_of_three_dimensions_says_which_plane_is_shown(shelf, tab):
    append, url = shelf
    frame = {
        "schema": "ad00",
        "source_name": "c",
        "id": 1,
        "timestamp": 1,
        "data": [[[p, 2], [3, 4]] for p in range(3)],
    }
    append("camera", [{"content": frame}])
    page = tab(url)
    image_of(page, "camera")
    page.get_by_role("article", name="camera").get_by_text("2 × 2, plane 1 of 3").wait_for()


@pytest.mark.services
def test_detector_with_any_pixel_number_can_be_given_its_shape(shelf, tab):
    append, url = shelf
    events = {"schema": "ev44", "source_name": "d", "message_id": 1, "reference_time": [1], "reference_time_index": [0]}
    events |= {"time_of_flight": [1, 2, 3, 4], "pixel_id": [-3, 0, 9, 2147483647]}
    append("detector", [{"content": events}])
    page = tab(url)
    panel = page.get_by_role("article", name="detector")
    # A picture of a guessed shape looks like a measured one: this is a curve, and says why.
    panel.get_by_text("no template says how the pixels of this detector lie").wait_for()
    panel.get_by_text("1 in no pixel").wait_for()
    assert panel.locator(".picture").count() == 0
    assert refusals(page) == []
    for name, entered in (("rows", "2"), ("columns", "5")):
        panel.get_by_label(name).fill(entered)
        panel.get_by_label(name).press("Enter")
    panel.get_by_text(re.compile("^5 × 2$")).wait_for()
    image_of(page, "detector")
    assert "shape=2,5" in page.url


@pytest.mark.services
def test_recorded_detector_stands_as_its_template_says_wherever_the_server_works(lab, nexus, tab):
    """AMOR has `[x, y]`: its picture was turned, and without the template, which the server did not find, a guess."""
    lab.run("demo", "--duration", "1 s", "--data", "data/amor")
    data = lab.folder / "data/amor"
    # Neither the folder of `demo` nor its template is where it was.
    moved = lab.folder / "moved"
    data.rename(moved)
    (moved / "demo.nexus.json").unlink()
    process = lab.popen("web", "--data", moved, "--listen", "127.0.0.1:0", cwd="/")
    page = tab(url_of(lab, process, moved))
    image_of(page, "detector")
    panel = page.get_by_role("article", name="detector")
    panel.get_by_text(re.compile("^128 × 256$")).wait_for()
    panel.get_by_text("↑ y_pixel_offset (m)").wait_for()
    panel.get_by_text("→ x_pixel_offset (m)").wait_for()
    assert panel.get_by_label("first pixel").input_value() == "1"
    panel.locator("canvas").first.focus()
    page.keyboard.press("ArrowRight")
    read = panel.locator("output").filter(has_text="pixel").text_content()
    x, y, pixel, column, row = re.fullmatch(
        r"x_pixel_offset (\S+) m, y_pixel_offset (\S+) m, pixel (\d+), column (\d+), row (\d+): .*", read
    ).groups()
    assert int(pixel) == 1 + int(column) * 256 + 255 - int(row)
    assert float(x) == pytest.approx(-0.085328125 + int(column) * 2 * 0.085328125 / 127, rel=1e-4)
    assert float(y) == pytest.approx(0.09462890625 - int(row) * 2 * 0.09462890625 / 255, rel=1e-4)
    assert refusals(page) == []


@pytest.mark.services
def test_lane_shows_how_late_messages_were_at_their_time(shelf, tab):
    _, url = shelf
    minutes_ago(shelf)
    page = tab(url)
    lane = page.locator(".lane").filter(has_text="devices")
    # They were appended now.
    lane.get_by_text(re.compile(r"^devices, at most (8|9|1\d) min( \d\d s)? late$")).wait_for()
    bar = page.get_by_role("slider", name="Moment that all panels show")
    bar.focus()
    # Of the newest message before the moment: 3 s ago, then some minutes.
    page.keyboard.press("ArrowLeft")
    lane.get_by_text(re.compile(r"here 1 message, (1\d\d(\.\d)? s|[2-4] min( \d\d s)?) late")).wait_for()
    for _ in range(3):
        page.keyboard.press("PageDown")
    lane.get_by_text(re.compile(r"here 1 message, [5-9] min( \d\d s)? late")).wait_for()
    page.get_by_text("Line: how long after their time they arrived").wait_for()
    assert refusals(page) == []


@pytest.mark.services
def test_lane_of_ticks_had_no_message_at_any_moment(lab, shelf, tab):
    core = pytest.importorskip("beamport._core", reason="pip install .")
    with core._Writer(lab.data / "ticks", clock="ticks") as writer:
        for n in range(3):
            writer.append(bytes(8), n, schema="test")
        now = json.loads(ask(shelf[1], "api/status"))["time"]
        page = tab(f"{shelf[1]}&at={now}")
        # They arrived in one of the parts up to the moment.
        page.locator(".lane").get_by_text("ticks, here 3 messages").wait_for()


@pytest.mark.services
def test_moment_stays_in_the_bar_and_what_was_found_goes_with_its_moment(shelf, tab):
    _, url = shelf
    now = minutes_ago(shelf)
    page = tab(url)
    page.locator(".lane").filter(has_text="devices").wait_for()
    moment = datetime.datetime.fromtimestamp(now // 1_000_000_000 - 300, datetime.UTC)
    page.get_by_label("Moment (UTC)").fill(f"{moment:%Y-%m-%d %H:%M:%S}")
    page.get_by_role("button", name="Show", exact=True).click()
    marker = page.locator(".marker")
    marker.wait_for()
    page.get_by_label("time shown").select_option("60")
    page.locator("#time .ends").get_by_text(f"{moment:%Y-%m-%d %H:}").first.wait_for()
    page.wait_for_load_state("networkidle")
    assert marker.is_visible()
    page.get_by_role("button", name="Next gap").click()
    page.get_by_text("No gap of any stream after").wait_for()
    page.get_by_role("slider", name="Moment that all panels show").press("ArrowLeft")
    page.get_by_text("No gap of any stream after").wait_for(state="hidden")
    assert "as of now" in page.locator("#streams h2").evaluate("head => getComputedStyle(head, '::after').content")
    assert refusals(page) == []


@pytest.mark.services
def test_hidden_page_asks_nothing_and_goes_on_when_it_is_shown(served, tab):
    page = tab(served[1])
    canvas = image_of(page, "camera")
    asked = []
    page.on("request", lambda request: asked.append(request.url.rsplit("/", 1)[1]))
    until(lambda: page.wait_for_timeout(50) or {"status", "look"} <= set(asked), "the page asks nothing")

    def show(state: str) -> None:
        page.evaluate(
            """state => {
                Object.defineProperty(document, 'visibilityState', { value: state, configurable: true });
                Object.defineProperty(document, 'hidden', { value: state === 'hidden', configurable: true });
                document.dispatchEvent(new Event('visibilitychange'));
            }""",
            state,
        )

    show("hidden")
    # What was asked before is answered.
    page.wait_for_load_state("networkidle")
    asked.clear()
    drawn = lambda: int(canvas.get_attribute("data-sequence"))  # noqa: E731
    # A busy browser draws it later.
    until(lambda: (drawn(), page.wait_for_timeout(1000))[0] == drawn(), "it goes on drawing")
    seen = drawn()
    newest = lambda: json.loads(ask(served[1], "api/status"))["streams"][0]["messages"]  # noqa: E731
    until(lambda: page.wait_for_timeout(50) or newest() > seen + 30, "no frames come")
    assert asked == []
    assert drawn() == seen
    show("visible")
    page.wait_for_function(f"() => document.querySelector('.picture > canvas').dataset.sequence > {seen + 20}")
    until(lambda: page.wait_for_timeout(50) or {"status", "look"} <= set(asked), "the page asks nothing any more")


@pytest.mark.services
def test_page_fits_a_telephone(served, tab):
    page = tab(served[1], width=360)
    image_of(page, "camera")
    page.get_by_role("article", name="devices").scroll_into_view_if_needed()
    page.locator(".plot canvas").wait_for()
    image_of(page, "detector")
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    assert refusals(page) == []


@pytest.mark.services
def test_image_is_zoomed_to_single_pixels_by_keys_and_mouse(served, tab):
    page = tab(served[1])
    canvas = image_of(page, "camera")
    panel = page.get_by_role("article", name="camera")
    # The part that is chosen with the mouse is asked for, and its pixels are those of the image.
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 4, box["y"] + box["height"] / 4)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.up()
    panel.get_by_text(re.compile(r"512 × 512, columns 1\d\d to 2\d\d, rows 1\d\d to 2\d\d")).wait_for()
    canvas.focus()
    for _ in range(8):
        page.keyboard.press("+")
    page.wait_for_function("() => document.querySelector('.picture > canvas').width === 4")
    assert canvas.evaluate("canvas => canvas.height") == 4
    # The value under the cursor is that of the message.
    page.keyboard.press("ArrowRight")
    panel.locator("output").filter(has_text=re.compile(r"^column \d+, row \d+: \d+$")).wait_for()
    # What is shown is in the address: another tab shows the same part.
    region = re.search(r"panel=camera;region=(\d+),(\d+),(\d+),(\d+)", page.url)
    assert region, page.url
    assert int(region[3]) - int(region[1]) == int(region[4]) - int(region[2]) == 4
    other = tab(served[1] + "&" + page.url.split("#")[1])
    image_of(other, "camera")
    other.wait_for_function("() => document.querySelector('.picture > canvas').width === 4")
    page.keyboard.press("0")
    page.wait_for_function("() => document.querySelector('.picture > canvas').width > 100")
    assert "region" not in page.url


@pytest.mark.services
def test_past_is_shown_and_stands_still(served, tab):
    _, url = served
    page = tab(url)
    image_of(page, "camera")
    # The moment of a message that is there.
    moment = json.loads(ask(url, "api/status"))["time"]
    until(lambda: json.loads(ask(url, "api/status"))["time"] > moment + 1_000_000_000, "time stands still")
    past = tab(f"{url}&at={moment}")
    canvas = image_of(past, "camera")
    meta = past.get_by_role("article", name="camera").locator(".meta")
    shown = meta.inner_text()
    page.reload()
    newest = int(image_of(page, "camera").get_attribute("data-sequence"))
    assert int(canvas.get_attribute("data-sequence")) < newest
    assert meta.inner_text() == shown
    past.get_by_role("button", name="Now").click()
    past.wait_for_function(f"() => document.querySelector('.picture > canvas').dataset.sequence >= {newest}")
    assert "at=" not in past.url


@pytest.mark.services
def test_time_bar_rules_the_panels(served, tab):
    page = tab(served[1])
    canvas = image_of(page, "camera")
    bar = page.get_by_role("slider", name="Moment that all panels show")
    lane = page.locator(".lane").filter(has_text="camera").locator("canvas")
    until(lambda: lane.evaluate(LINE) > 20, "the lane shows no messages")
    assert bar.get_attribute("aria-valuetext") == "now"
    # Keys move the moment, and the panels with it.
    first = int(canvas.get_attribute("data-sequence"))
    page.wait_for_function(f"() => document.querySelector('.picture > canvas').dataset.sequence > {first + 20}")
    page.locator("#time").get_by_label("time shown").select_option("60")
    page.wait_for_function("() => location.hash.includes('span=60')")
    bar.focus()
    page.keyboard.press("ArrowLeft")
    page.wait_for_function("() => /at=[0-9]+/.test(location.hash)")
    moment = int(re.search(r"at=(\d+)", page.url)[1])
    assert bar.get_attribute("aria-valuetext") != "now"
    assert refusals(page) == []
    # Playing moves it on.
    page.locator("#time").get_by_label("play").select_option("1")
    page.wait_for_function(f"() => Number((/at=([0-9]+)/.exec(location.hash) ?? [])[1]) > {moment + 200_000_000}")
    bar.press("End")
    page.wait_for_function("() => !location.hash.includes('at=')")
    assert bar.get_attribute("aria-valuetext") == "now"


@pytest.mark.services
def test_moment_is_written_as_people_write_it(served, tab):
    page = tab(served[1])
    image_of(page, "camera")
    field, bar = page.get_by_label("Moment (UTC)"), page.locator("#strip")
    # The field follows the time, until something is written into it.
    shown = field.input_value()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}", shown)
    until(lambda: field.input_value() > shown, "the field stands still")
    for wrong in ("25:00", "noon", "061624", "2026-02-30 10:00"):
        field.fill(wrong)
        field.press("Enter")
        bar.get_by_text(f'"{wrong}" is not a time.').wait_for()
    assert "at=" not in page.url
    assert refusals(page) == []
    now = datetime.datetime.fromtimestamp(json.loads(ask(served[1], "api/status"))["time"] / 1e9, datetime.UTC)
    field.fill(f"{now + datetime.timedelta(days=1):%Y-%m-%d %H:%M}")
    bar.get_by_role("button", name="Show").click()
    bar.get_by_text("is in the future").wait_for()
    assert "at=" not in page.url

    def goes_to(written: str, moment: datetime.datetime):
        field.fill(written)
        field.press("Enter")
        page.wait_for_function(f"() => location.hash.includes('at={moment.timestamp():.0f}000')")
        assert field.input_value() == f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03}"
        bar.get_by_text("The past").wait_for()

    second = now.replace(microsecond=0) - datetime.timedelta(seconds=2)
    goes_to(f"{second:%H:%M:%S}", second)
    minute = second.replace(second=0)
    goes_to(f"{minute:%H:%M}", minute)
    # The time bar goes to where the moment is, and shows it in itself.
    before = minute - datetime.timedelta(days=2)
    goes_to(f"{before:%Y-%m-%dT%H:%M:%SZ}", before)
    page.locator("#time .ends").get_by_text(f"{before:%Y-%m-%d}").first.wait_for()
    page.locator("#time .marker").wait_for()
    # Without a date it is the newest such time: not one of tomorrow.
    later = now + datetime.timedelta(hours=2)
    goes_to(f"{later:%H:%M:%S}", later.replace(microsecond=0) - datetime.timedelta(days=1))
    # It is seen wherever the page is scrolled to, and so is the way back.
    page.locator("#control").scroll_into_view_if_needed()
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    assert page.evaluate("scrollY") > 100
    bar.get_by_role("button", name="Now").click()
    page.wait_for_function("() => !location.hash.includes('at=')")
    until(lambda: field.input_value() > f"{now:%Y-%m-%d %H:%M:%S}", "the field keeps the old moment")
    assert bar.get_by_text("The past").count() == 0
    # A step beyond now is now.
    slider = page.get_by_role("slider", name="Moment that all panels show")
    slider.press("ArrowLeft")
    page.wait_for_function("() => location.hash.includes('at=')")
    slider.press("PageUp")
    page.wait_for_function("() => !location.hash.includes('at=')")


@pytest.mark.services
@pytest.mark.parametrize("width", [1280, 360])
def test_page_says_whether_an_instrument_runs(lab, served, tab, width):
    process, url = served
    page = tab(url, width=width)
    image_of(page, "camera")
    page.locator("#strip").get_by_text("The instrument runs, no run is open").wait_for()
    trend = page.get_by_role("article", name="devices")
    trend.scroll_into_view_if_needed()
    until(lambda: trend.locator(".plot canvas").evaluate(LINE) > 20, "no line is drawn")
    page.close()
    lab.interrupt(process)
    process.wait(HANG_S)
    url = url_of(lab, lab.popen("web", "--data", lab.data, "--listen", "127.0.0.1:0"))
    page = tab(url, width=width)
    image_of(page, "camera")
    said = page.locator("#strip").get_by_text(re.compile(r"^no instrument runs; last message arrived \d{4}-"))
    said.wait_for()
    # Nothing is wrong with a recording.
    assert page.locator("#strip .bad:visible").count() == 0
    page.locator("#control").get_by_text("No instrument runs").wait_for()
    trend = page.get_by_role("article", name="devices")
    trend.scroll_into_view_if_needed()
    trend.get_by_text(re.compile(r"^Nobody writes this stream; its newest message is of \d{4}-")).wait_for()
    # No line goes on to now.
    assert trend.locator(".plot canvas").evaluate(LINE) > 10
    until(lambda: trend.locator(".plot canvas").evaluate(EDGE) < 0.9, "the line goes on")
    assert said.bounding_box()["y"] < 200
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert refusals(page) == []


def verdict_of(lab, url) -> dict:
    """The parts of the verdict by kind, which `top`, `ls` and `/metrics` have too."""
    parts = json.loads(ask(url, "api/status"))["verdict"]
    kinds = {part["kind"]: part for part in parts}
    metrics = ask(url, "metrics").decode()
    for kind, part in kinds.items():
        assert re.search(rf'^beamport_verdict{{kind="{kind}"}} {part["count"]}$', metrics, re.M), kind
    for verb in (["top", "--once"], ["ls"]):
        said = lab.run(*verb, "--data", lab.data).stdout.decode()
        assert parts[0]["text"] in said and "1 worker is paused (picky)" in said, said
    return kinds


@pytest.mark.services
@pytest.mark.parametrize("width", [1280, 360])
def test_one_line_says_what_is_measured_and_what_is_wrong(lab, watched, tab, width):
    _, url = watched
    lab.run("worker", "pause", "picky", "--data", lab.data)
    until(lambda: "is paused (picky)" in ask(url, "api/status").decode(), "the worker is not paused")
    kinds = verdict_of(lab, url)
    assert kinds["state"]["text"] == "measuring run first"
    assert kinds["aside"]["text"] == "1 worker moved messages aside (picky, 1 message)"
    assert kinds["paused"]["bad"] is False
    assert "(paused)" in lab.run("top", "--once", "--data", lab.data).stdout.decode()

    page = tab(url, width=width)
    strip = page.locator("#strip")
    strip.get_by_role("link", name="1 worker is paused (picky)").wait_for()
    assert page.locator("#workers").get_by_role("row", name="picky").get_by_text("paused").count() == 1
    strip.get_by_role("link", name="1 worker moved messages aside").click()
    assert page.evaluate("document.activeElement.closest('#workers') !== null")
    page.evaluate("scrollTo(0, 0)")
    strip.get_by_role("link", name="measuring run first").click()
    assert page.evaluate("document.activeElement.textContent") == "first"
    # An open run has its figures so far.
    row = page.locator("#runs").get_by_role("row", name="first")
    row.get_by_text("so far").wait_for()
    assert re.match(r"[1-9]", row.get_by_role("cell").nth(3).inner_text().removeprefix("messages: "))
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert refusals(page) == []


@pytest.mark.services
def test_results_and_the_worst_of_many_streams_come_first(lab, watched, tab):
    _, url = watched
    path = lab.folder / "messages.json"
    path.write_text(json.dumps([value(10**18)]))
    for number in range(130):
        lab.run("append", f"a{number:03}", path, "--data", lab.data)
    page = tab(url)
    rows = page.locator("#streams").get_by_role("row")
    page.locator("#streams").get_by_text("20 of 133 are shown.").wait_for()
    page.get_by_role("article", name="picky").wait_for()
    assert page.locator("article h3").first.inner_text() == "picky"
    assert page.locator(".lane span").first.inner_text().startswith("picky")
    assert rows.nth(1).get_by_role("button").first.inner_text() == "picky"
    totals = page.locator("#streams .readout")
    assert totals.inner_text().startswith("133 streams")
    until(lambda: page.evaluate("document.documentElement.scrollHeight") < 6000, "the page is too high")
    page.locator("#streams").get_by_label("Only names with").fill("a12")
    until(lambda: rows.count() == 11, "the rows are not filtered")
    assert totals.inner_text().startswith("10 streams")
    page.locator("#streams").get_by_label("sorted by").select_option("name")
    assert rows.nth(1).get_by_role("button").first.inner_text() == "a120"
    assert refusals(page) == []


@pytest.mark.services
def test_recording_opens_at_its_newest_run(lab, nexus, tab):
    process, _ = lab.write(INSTRUMENT).up_ready()
    url = url_of(lab, process)
    for name in ("first", "second"):
        lab.run("begin", name, "--data", lab.data)
        frames = lab.stream("camera").marks()[2]
        until(lambda frames=frames: lab.stream("camera").marks()[2] > frames + 10, "no frames")
        lab.run("end", name, "--data", lab.data)
    until(lambda: all(run["state"] == "sealed" for run in json.loads(ask(url, "api/status"))["runs"]), "not sealed")
    lab.interrupt(process)
    process.wait(HANG_S)
    url = url_of(lab, lab.popen("web", "--data", lab.data, "--listen", "127.0.0.1:0"))
    page = tab(url)
    page.wait_for_function("() => location.hash.includes('at=')")
    second = json.loads(ask(url, "api/status"))["runs"][1]
    at = int(re.search(r"at=(\d+)", page.evaluate("location.hash"))[1])
    assert second["start"] < at < second["stop"]
    image_of(page, "camera")
    for stream in ("detector", "devices"):
        panel = page.get_by_role("article", name=stream)
        panel.scroll_into_view_if_needed()
        panel.locator(".plot canvas").wait_for()
    assert page.locator("article .sentence.bad:visible").all_inner_texts() == []
    run = page.locator(".run-lane span", has_text="second")
    assert run.bounding_box()["width"] > 0.6 * page.locator(".lanes").bounding_box()["width"]
    assert refusals(page) == []


@pytest.mark.services
def test_colours_have_limits_by_hand_maps_and_a_true_logarithm(served, tab):
    page = tab(served[1])
    canvas = image_of(page, "camera")
    panel = page.get_by_role("article", name="camera")
    panel.get_by_label("colours").select_option("hand")
    panel.get_by_label("low").fill("10")
    panel.get_by_label("high").fill("1000")
    panel.get_by_label("high").press("Enter")
    scale = panel.locator(".scale span")
    until(lambda: [scale.nth(0).inner_text(), scale.nth(1).inner_text()] == ["10", "1000"], "other limits")
    page.wait_for_function("() => location.hash.includes('low=10;high=1000')")
    panel.get_by_label("log").check()
    until(lambda: scale.nth(1).inner_text() == "1000 (log)", "no logarithm")
    seen = {}
    for name in ("viridis", "inferno", "cividis"):
        panel.get_by_label("map").select_option(name)
        seen[name] = panel.locator(".scale canvas").evaluate(PIXELS)["sum"]
    assert len(set(seen.values())) == 3
    # Of a logarithm a factor is a distance: 100 lies in the middle of 10 and 1000.
    middle = page.evaluate(
        """async () => {
            const { colour } = await import('./views/image.js');
            const pixels = new Uint32Array(4);
            const colours = Uint32Array.from({ length: 256 }, (_, i) => i);
            colour(Float32Array.of(0, 10, 100, 1000), 10, 1000, true, pixels, colours);
            return [...pixels];
        }"""
    )
    assert middle == [0, 0, 128, 255]
    assert canvas.evaluate(PIXELS)["colours"] > 10
    assert refusals(page) == []


@pytest.mark.services
def test_panel_is_saved_as_picture_and_as_numbers(served, tab):
    page = tab(served[1])
    image_of(page, "camera")
    panel = page.get_by_role("article", name="camera")
    with page.expect_download() as got:
        panel.get_by_role("button", name="PNG").click()
    assert re.fullmatch(r"camera-[\d-]+\.png", got.value.suggested_filename)
    with open(got.value.path(), "rb") as file:
        assert file.read(8) == b"\x89PNG\r\n\x1a\n"
    with page.expect_download() as got:
        panel.get_by_role("button", name="CSV").click()
    with open(got.value.path()) as file:
        head, part, *rows = file.read().splitlines()
    assert head.startswith("# stream camera, view image, ") and part == "# columns 0 to 511, rows 0 to 511"
    assert len({len(row.split(",")) for row in rows}) == 1 and len(rows) > 50
    trend = page.get_by_role("article", name="devices")
    trend.scroll_into_view_if_needed()
    until(lambda: trend.locator(".plot canvas").evaluate(LINE) > 20, "no line is drawn")
    with page.expect_download() as got:
        trend.get_by_role("button", name="CSV").click()
    with open(got.value.path()) as file:
        names = file.read().splitlines()[1]
    assert names.startswith("time (s since 1970 UTC)") and "AMOR:SE:TEMP01 last" in names


@pytest.mark.services
def test_panel_fills_the_window_and_escape_brings_it_back(served, tab):
    page = tab(served[1])
    image_of(page, "camera")
    panel = page.get_by_role("article", name="devices")
    panel.scroll_into_view_if_needed()
    before = panel.bounding_box()
    panel.get_by_role("button", name="Fill").click()
    assert panel.bounding_box() == {"x": 0, "y": 0, "width": 1280, "height": 900}
    until(lambda: panel.locator(".plot canvas").bounding_box()["height"] > 500, "the plot is small")
    assert refusals(page) == []
    page.keyboard.press("Escape")
    until(lambda: panel.bounding_box()["width"] == before["width"], "the panel is large")


@pytest.mark.services
def test_back_goes_to_what_was_shown_before(served, tab):
    page = tab(served[1])
    image_of(page, "camera")
    page.wait_for_timeout(1500)
    page.locator("#streams").get_by_role("button", name="devices").click()
    page.wait_for_function("() => location.hash.includes('panel=camera')")
    assert page.get_by_role("article", name="devices").count() == 0
    page.wait_for_timeout(1500)
    page.locator("#at").fill("00:00:01")
    page.get_by_role("button", name="Show", exact=True).click()
    page.wait_for_function("() => location.hash.includes('at=')")
    page.go_back()
    page.wait_for_function("() => !location.hash.includes('at=') && location.hash.includes('panel=')")
    page.locator("#when").get_by_text("Now").wait_for()
    page.go_back()
    page.get_by_role("article", name="devices").wait_for()


@pytest.mark.services
def test_value_of_a_resting_motor_is_shown_and_every_name_is_found(shelf, tab):
    append, url = shelf
    # Three hours ago.
    old = json.loads(ask(url, "api/status"))["time"] - 10_800_000_000_000
    append("devices", [value(old + number, f"LAB:MOTOR{number:02}") for number in range(40)])
    page = tab(url + "&panel=devices;view=trend;origin=LAB%3AMOTOR07")
    trend = page.get_by_role("article", name="devices")
    trend.get_by_text("24 more origins").wait_for()
    trend.get_by_label("Only names with").fill("motor3")
    until(lambda: trend.get_by_role("row").count() == 11, "the names are not searched")
    trend.get_by_role("button", name="LAB:MOTOR37").click()
    trend.get_by_role("row", name="LAB:MOTOR37").wait_for()
    page.wait_for_function("() => location.hash.includes('search=motor3')")
    assert refusals(page) == []


@pytest.mark.services
def test_page_needs_the_token_and_takes_it_by_hand(served, tab):
    address, token = served[1].split("#token=")
    page = tab(address)
    page.get_by_text("This page needs a token.").wait_for()
    assert refusals(page) == []
    page.keyboard.type("wrong")
    page.keyboard.press("Enter")
    page.get_by_text("The server does not take this token").wait_for()
    # Not what a program would do.
    assert "Authorization" not in page.locator("#door").inner_text()
    page.get_by_label("Token").fill(token)
    page.keyboard.press("Enter")
    image_of(page, "camera")


@pytest.mark.services
def test_fault_of_a_panel_is_a_sentence_in_it(served, tab):
    page = tab(served[1] + "&panel=nothing&panel=camera")
    image_of(page, "camera")
    fault = page.get_by_role("article", name="nothing").locator(".sentence")
    assert "nothing" in fault.inner_text()
    assert refusals(page) == []


@pytest.mark.services
def test_page_goes_on_when_its_server_was_killed(lab, served, tab):
    process, url = served
    page = tab(url)
    canvas = image_of(page, "camera")
    before = json.loads(ask(url, "api/status"))["web"]["pid"]
    count = lab.stream("camera").marks()[2]
    seen = canvas.evaluate(PIXELS)
    kill(before)
    # `up` keeps the address: requests wait there for the next server.
    until(lambda: json.loads(ask(url, "api/status"))["web"]["pid"] != before, "no other server comes")
    sequence = int(canvas.get_attribute("data-sequence"))
    page.wait_for_function(f"() => document.querySelector('.picture > canvas').dataset.sequence > {sequence}")
    changed(canvas, seen)
    page.get_by_role("alert").wait_for(state="hidden")
    assert process.poll() is None
    frames = lab.stream("camera").marks()[2] - count
    assert frames > 0
    print(f"1 kill of the page's server injected: the page went on by itself, and {frames} frames came meanwhile")


@pytest.mark.services
def test_page_goes_on_when_the_instrument_is_back(lab, nexus, tab):
    port = free_port()
    lab.write(INSTRUMENT.replace("127.0.0.1:0", f"127.0.0.1:{port}"))
    process, _ = lab.up_ready()
    url = url_of(lab, process)
    page = tab(url)
    canvas = image_of(page, "camera")
    server = json.loads(ask(url, "api/status"))["web"]["pid"]
    lab.kill(process)
    kill(server)
    page.get_by_role("alert").filter(has_text="The server does not answer").wait_for()
    assert refusals(page) == []
    seen = canvas.evaluate(PIXELS)
    process, _ = lab.up_ready()
    # The tokens are those of the data folder.
    assert url_of(lab, process) == url
    page.get_by_role("alert").wait_for(state="hidden")
    changed(canvas, seen)


WATCHED = """
[web]
listen = "127.0.0.1:0"

[source.camera]
kind = "sim"
model = "camera"
fps = 10
shape = [64, 64]

[source.monitor]
kind = "sim"
model = "amor-monitor"
live = "4 MiB"

[worker.picky]
call = "picky.py:picky"
inputs = ["monitor"]
"""
WORKER = """
import beamport


@beamport.worker
def picky(message):
    if message.sequence == 1:
        raise ValueError("this one is refused")
    return 1.5
"""


@pytest.fixture
def watched(lab, nexus):
    """An instrument whose worker refuses a message, that was killed once: its process and URL."""
    pytest.importorskip("beamport", reason="pip install .")
    (lab.folder / "picky.py").write_text(WORKER)
    process, _ = lab.write(WATCHED).up_ready()
    lab.run("begin", "first", "--data", lab.data)
    url = url_of(lab, process)
    status = lambda: json.loads(ask(url, "api/status"))  # noqa: E731
    until(lambda: [w for w in status()["workers"] if w["aside"] > 0], "no message is aside")
    lab.kill(process)
    process, _ = lab.up_ready()
    url = url_of(lab, process)
    until(lambda: json.loads(ask(url, "api/streams/camera"))["gaps"], "the absence is not in the ledger")
    return process, url


@pytest.mark.services
def test_what_is_missing_is_explained(lab, watched, tab):
    page = tab(watched[1])
    account = page.locator("#account")
    account.get_by_label("Account of").select_option("streams/picky")
    account.get_by_text("this one is refused").first.wait_for()
    account.locator("details summary").click()
    account.get_by_text("Traceback").wait_for()
    assert refusals(page) == []
    first = page.locator("#runs").get_by_role("button", name="first")
    first.click()
    account.get_by_text("This run is not sealed yet").wait_for()
    lab.run("end", "first", "--data", lab.data)
    page.locator("#runs").get_by_text("sealed (asked)").wait_for()
    first.click()
    account.get_by_role("row", name="camera").first.wait_for()
    account.get_by_text("no source ran").first.wait_for()
    # The moment of a gap is shown where it is seen.
    gaps = account.get_by_role("row").filter(has_text="no source ran")
    gaps.first.get_by_role("button", name="Show").click()
    page.wait_for_function("() => location.hash.includes('at=')")
    page.locator("#strip").get_by_text("The past").wait_for()
    bar = page.get_by_role("slider", name="Moment that all panels show")
    assert bar.evaluate("bar => bar === document.activeElement")
    assert 0 < bar.bounding_box()["y"] < 800
    page.locator("#time .marker").wait_for()
    assert refusals(page) == []


@pytest.mark.services
def test_messages_aside_are_not_lost_in_the_account_of_their_worker(watched, tab):
    page = tab(watched[1])
    account = page.locator("#account")
    account.get_by_label("Account of").select_option("streams/picky")
    verdict = account.get_by_role("status")
    verdict.get_by_text("1 message was moved aside").wait_for()
    assert "Nothing is lost." in verdict.inner_text()
    assert refusals(page) == []


@pytest.mark.services
def test_stream_with_a_damaged_index_was_said_to_lose_nothing(lab, shelf, tab):
    minutes_ago(shelf)
    index = lab.data / "devices" / "i-00000000"
    index.write_bytes(bytes(byte ^ 0x5A for byte in index.read_bytes()))
    page = tab(shelf[1])
    account = page.locator("#account")
    account.get_by_label("Account of").select_option("streams/devices")
    account.get_by_text("there is no account: what is missing is not known").wait_for()
    account.get_by_text("What was damaged since, `beamport verify` finds.").wait_for()
    assert "Nothing is lost" not in account.inner_text() and "closes" not in account.inner_text()


@pytest.mark.services
def test_account_of_a_finished_run_names_its_files(lab, tab):
    files = '\n[sink.frames]\nkind = "files"\ninputs = ["camera"]\n'
    process, _ = lab.write(INSTRUMENT + files).up_ready()
    url = url_of(lab, process)
    lab.run("begin", "first", "--data", lab.data)
    until(lambda: [s for s in json.loads(ask(url, "api/status"))["streams"] if s["count"] > 10], "no frames")
    lab.run("end", "first", "--data", lab.data)
    until(lambda: json.loads(ask(url, "api/status"))["runs"][0]["files"], "the files are not finished")
    page = tab(url)
    page.locator("#runs").get_by_role("button", name="first").click()
    row = page.locator("#account").get_by_role("row").filter(has_text="B3SUMS")
    product = json.loads(ask(url, "api/runs/first"))["files"][0]["product"]
    row.get_by_text(product["blake3"]).wait_for()
    assert f"{product['files']} files" in row.inner_text()
    # What was shown of a run does not stay beside the account of another.
    page.locator("#account").get_by_label("Account of").select_option("streams/camera")
    row.wait_for(state="hidden")
    assert refusals(page) == []


@pytest.mark.services
def test_loss_of_a_stream_leads_to_its_account(lab, tab):
    boards = """
[source.board]
kind = "udp"
listen = "127.0.0.1:{port}"
framing = "beamport"
when_full = "drop-oldest"
boards = {{ rate = 200, size = "100 B", loss = 0.2, seed = 7 }}
"""
    port = free_port()
    process, _ = lab.write(INSTRUMENT + boards.format(port=port)).up_ready()
    page = tab(url_of(lab, process))
    page.locator("#streams").get_by_title("why messages of board are missing").click()
    account = page.locator("#account")
    account.get_by_role("row").filter(has_text="never received").first.wait_for()
    assert account.get_by_label("Account of").input_value() == "streams/board"
    # The status of a source is not a text.
    page.locator("#running").get_by_role("row").filter(has_text=re.compile(r"datagrams \d+, .*network \d+")).wait_for()
    assert refusals(page) == []


@pytest.mark.services
def test_account_of_a_run_has_all_hosts(lab, hosts, tab):  # noqa: F811
    camera = '[source.camera]\nkind = "sim"\nmodel = "camera"\nshape = [16, 16]\nfps = 50\nhost = "{}"\n'
    worker = '[worker.picky]\ncall = "picky.py:picky"\ninputs = ["camera"]\nhost = "a"\n'
    (lab.folder / "picky.py").write_text(WORKER)
    page_and_run = '[web]\nlisten = "127.0.0.1:0"\n[run.first]\n[run.second]\n'
    hosts = hosts("seen", camera.format("b") + worker + page_and_run)  # noqa: F811
    process = hosts.up("a")
    page = tab(url_of(lab, process, hosts.folder("a")))
    hosts.up("b")
    hosts.moves("a", "camera")
    table = page.get_by_role("table", name="Hosts")
    table.get_by_role("row").filter(has_text=re.compile(r"^b\s*up")).wait_for()
    assert table.get_by_role("row").count() == 3
    scraped = lambda: ask(url_of(lab, process, hosts.folder("a")), "metrics").decode()  # noqa: E731
    until(lambda: 'beamport_host_mirror_lag_messages{host="a",stream="camera",of="b"}' in scraped(), scraped)
    assert all(f'beamport_host_up{{host="{host}"}} 1' in scraped() for host in "ab")
    lab.run("end", "first", "--data", hosts.folder("a"))
    run = beamport.open(hosts.folder("a")).run("first")
    until(lambda: run.ledger()["closed"], lambda: run.ledger())
    account = page.locator("#account")
    account.get_by_label("Account of").select_option("runs/first")
    said = account.get_by_role("status")
    until(lambda: "Nothing is lost. Every account closes." in said.inner_text(), said.inner_text)
    account.get_by_role("row").filter(has_text="camera (host b)").wait_for()
    account.get_by_role("table", name="What mirrors have").get_by_role("row").filter(has_text="camera").wait_for()
    hosts.kill("b")
    end = ["end", "second", "--without", "b", "--data", hosts.folder("a")]
    until(lambda: lab.run(*end, status=None).returncode == 0, "host b is not away")
    run = beamport.open(hosts.folder("a")).run("second")
    until(lambda: run.ledger()["state"] == "sealed", lambda: run.ledger())
    account.get_by_label("Account of").select_option("runs/second")
    # The network drops the next question: it is asked again.
    page.route("**/api/runs/*", lambda route: route.abort("failed"), times=1)
    account.get_by_role("button", name="Refresh").click()
    until(lambda: "The run was sealed without host b." in said.inner_text(), said.inner_text)
    assert refusals(page) == []


@pytest.mark.services
def test_answers_of_commands_are_sentences(lab, tab):
    (lab.folder / "picky.py").write_text(WORKER)
    shadow = '\n[worker.trial]\ncall = "picky.py:picky"\nshadow = "picky"\n'
    process, _ = lab.write(WATCHED + shadow).up_ready()
    url = url_of(lab, process)
    until(lambda: len(json.loads(ask(url, "api/status"))["workers"]) == 2, "the shadow does not run")
    page = tab(url)
    control, dialog = page.locator("#control"), page.get_by_role("dialog")
    control.get_by_role("button", name="Configure").click()
    control.get_by_text("Nothing would change").wait_for()
    control.get_by_label("slots").fill("2")
    control.get_by_role("button", name="Configure").click()
    dialog.get_by_text("Change worker picky: 2 slots.").wait_for()
    dialog.get_by_role("button", name="Send").click()
    control.get_by_text("done: worker picky has 2 slots: no parameters").wait_for()
    control.get_by_role("button", name="Cut over").click()
    dialog.get_by_text("Worker picky runs the code of its shadow trial").wait_for()
    assert refusals(page) == []
    dialog.get_by_role("button", name="Send").click()
    control.get_by_text(
        re.compile(r"done: worker picky now runs picky.py:picky from message \d+ of monitor on")
    ).wait_for()
    assert refusals(page) == []


@pytest.mark.services
def test_commands_are_confirmed_and_recorded(watched, tab):
    page = tab(watched[1])
    control = page.locator("#control")
    control.get_by_label("run", exact=True).fill("no run")
    control.get_by_role("button", name="Begin").click()
    # The browser shows the rule beside "match the requested format".
    wrong = control.locator("input:invalid")
    assert "letters, digits" in wrong.get_attribute("title")
    control.get_by_label("run", exact=True).fill("second")
    control.get_by_label("title").fill("by hand")
    control.get_by_role("button", name="Begin").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text('"run": "second"').wait_for()
    assert refusals(page) == []
    dialog.get_by_role("button", name="Cancel").click()
    assert [run["name"] for run in json.loads(ask(watched[1], "api/status"))["runs"]] == ["first"]
    control.get_by_role("button", name="Begin").click()
    dialog.get_by_role("button", name="Send").click()
    control.get_by_text("done: run second is open").wait_for()
    # A fault of the instrument is shown as it is.
    control.get_by_role("button", name="Begin").click()
    dialog.get_by_role("button", name="Send").click()
    control.get_by_text(re.compile("▲ .*second")).wait_for()
    control.get_by_label("open run").select_option("second")
    control.get_by_role("button", name="End").click()
    dialog.get_by_role("button", name="Send").click()
    control.get_by_text("done: run second is settling").wait_for()
    control.get_by_text("Commands so far").click()
    control.get_by_role("row").filter(has_text="page, control token").first.wait_for()
    control.get_by_text("Instrument file").click()
    control.get_by_text('model = "amor-monitor"').wait_for()
    assert refusals(page) == []


@pytest.mark.services
def test_who_may_only_look_has_no_commands(lab, watched, tab):
    address, _ = watched[1].split("#token=")
    page = tab(f"{address}#token={(lab.data / 'web.view.token').read_text().strip()}")
    image_of(page, "camera")
    assert not page.locator("#control").get_by_role("button", name="Begin").is_visible()
    page.locator("#control").get_by_text("The token of this page allows looking only.").wait_for()


@pytest.mark.services
@pytest.mark.parametrize("width", [1280, 360])
def test_alarm_is_shown_and_found(served, tab, width):
    # No panel shows the devices: the server searches their stream.
    before = json.loads(ask(served[1], "api/status"))["time"] - 3_600_000_000_000
    page = tab(f"{served[1]}&at={before}&panel=camera", width=width)
    bar = page.locator("#time")
    # The temperature of the simulated devices gets too high after 4 s.
    found = bar.get_by_text(re.compile(r"^\S+ \S+: alarm of AMOR:SE:TEMP01 in devices, (MINOR|MAJOR)"))

    def search() -> bool:
        bar.get_by_role("button", name="Next alarm").click()
        bar.get_by_text(re.compile("^No alarm of any stream after|: alarm of ")).wait_for()
        return found.count() > 0

    until(search, "no alarm is found")
    moment = int(re.search(r"at=(\d+)", page.evaluate("location.hash"))[1])
    assert moment > before
    # The bar goes there.
    bar.locator(".marker").wait_for()
    bar.get_by_role("button", name="Previous alarm").click()
    bar.get_by_text("No alarm of any stream before").wait_for()
    page.get_by_role("button", name="Now", exact=True).click()
    bar.get_by_role("button", name="Previous alarm").click()
    found.wait_for()
    assert int(re.search(r"at=(\d+)", page.evaluate("location.hash"))[1]) >= moment
    page.get_by_role("button", name="Now", exact=True).click()

    page.locator("#streams").get_by_role("button", name="devices").click()
    trend = page.get_by_role("article", name="devices")
    trend.scroll_into_view_if_needed()
    row = trend.get_by_role("row").filter(has_text="AMOR:SE:TEMP01")
    row.get_by_role("button").click()
    # In words in its row, and with a shape on the trend.
    words = row.get_by_text(re.compile(r"(MINOR|MAJOR)"))
    words.wait_for()
    # The page draws the row anew with each value; a row that it has just removed has no box.
    place, around = (until(each.bounding_box, "it has no box") for each in (words, trend))
    assert place["x"] + place["width"] <= around["x"] + around["width"] and place["width"] > 100
    trend.get_by_text("▼ alarm").wait_for()
    until(lambda: trend.locator(".plot canvas").evaluate(BAD) > 40, "no mark is drawn")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert refusals(page) == []


MANY = """
[web]
listen = "127.0.0.1:0"

[source."s{01..14}"]
kind = "sim"
model = "camera"
fps = 1
shape = [16, 16]
live = "1 MiB"
"""


@pytest.mark.services
@pytest.mark.parametrize("width", [1280, 360])
def test_time_bar_has_all_streams_and_a_scale(lab, nexus, tab, width):
    process, _ = lab.write(MANY).up_ready()
    page = tab(url_of(lab, process) + "&panel=s03", width=width)
    bar = page.get_by_role("slider", name="Moment that all panels show")
    lanes = page.locator("#time .lane")
    until(lambda: lanes.count() == 14, "streams without a panel have no lane")
    page.get_by_text("14 lanes: scroll in the bar for the others").wait_for()
    bar.press("Shift+ArrowDown")
    until(lambda: bar.evaluate("bar => bar.scrollTop") > 0, "the bar does not scroll")
    assert "at=" not in page.url
    labels = page.locator("#time .scale-of-times span").filter(has_text=re.compile(r"^\d\d:\d\d$"))
    assert labels.count() >= 2
    until(lambda: lanes.nth(5).locator("canvas").evaluate(LINE) > 2, "the lane shows no messages")
    lanes.nth(5).scroll_into_view_if_needed()
    lanes.nth(5).hover()
    page.locator("#time output").filter(has_text=re.compile(r"UTC: s06, \S+ messages in ")).wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert refusals(page) == []


@pytest.mark.services
def test_gaps_are_found_wherever_they_are(watched, tab):
    url = watched[1]
    before = json.loads(ask(url, "api/status"))["time"] - 86_400_000_000_000
    page = tab(f"{url}&at={before}&panel=picky")
    bar = page.locator("#time")
    # The instrument was killed once: nobody knows how much is missing.
    bar.get_by_role("button", name="Next gap").click()
    bar.get_by_text(re.compile(r", an unknown number .*\(absent\)")).first.wait_for()
    assert int(re.search(r"at=(\d+)", page.url)[1]) > before
    bar.locator(".marker").wait_for()
    lane = page.locator(".lane").filter(has_text="camera").locator("canvas")
    until(lambda: lane.evaluate(BAD) > 2, "the lane does not show what is missing")
    bar.get_by_text("Gaps in this time: ").wait_for()

    def is_last() -> bool:
        bar.get_by_role("button", name="Next gap").click()
        # A click begins the search anew.
        until(lambda: bar.get_by_text("Searching…").count() == 0, "the search goes on for ever")
        return bar.get_by_text("No gap of any stream after").count() > 0

    until(is_last, "gaps go on for ever")
    bar.get_by_role("button", name="Previous gap").click()
    page.wait_for_function(f"() => location.hash.includes('at=') && !location.hash.includes('at={before}')")
    assert refusals(page) == []


# No lane is answered.
NO_LANES = """(() => {
    const plain = window.fetch;
    window.fetch = (...asked) => asked[1]?.body?.includes('"times"') ? new Promise(() => {}) : plain(...asked);
})()"""


@pytest.mark.services
def test_next_gap_was_none_until_the_first_lanes_were_there(watched, tab):
    url = watched[1]
    before = json.loads(ask(url, "api/status"))["time"] - 86_400_000_000_000
    page = tab("about:blank")
    page.add_init_script(NO_LANES)
    page.goto(f"{url}&at={before}&panel=picky")
    bar = page.locator("#time")
    bar.get_by_role("button", name="Next gap").click()
    bar.get_by_text(re.compile(r"^\d.*, an unknown number .*\(absent\)")).wait_for()
    assert int(re.search(r"at=(\d+)", page.url)[1]) > before
    bar.get_by_role("button", name="Earlier").click()
    assert "1970-" not in bar.inner_text()
    # After a look at the past, keys begin at the time of now.
    page.locator("#strip").get_by_role("button", name="Now").click()
    page.get_by_role("slider", name="Moment that all panels show").press("ArrowLeft")
    page.wait_for_function("() => location.hash.includes('at=')")
    assert 0 < json.loads(ask(url, "api/status"))["time"] - int(re.search(r"at=(\d+)", page.url)[1]) < 3600e9


@pytest.mark.services
def test_groups_show_their_multiplicity(lab, nexus, tab):
    detectors = "".join(
        f'[source.d{at}]\nkind = "sim"\nmodel = "detector"\ndetector = {at}\nlive = "4 MiB"\n' for at in (1, 2)
    )
    merge = '[merge.all]\nkind = "time"\ninputs = ["d1", "d2"]\nwait = "100 ms"\n'
    groups = '[worker.pairs]\ncall = "groups"\ninputs = ["all"]\n[worker.pairs.parameters]\ngap = "1 ms"\n'
    process, _ = lab.write(f'[web]\nlisten = "127.0.0.1:0"\n{detectors}{merge}{groups}').up_ready()
    page = tab(url_of(lab, process) + "&panel=pairs")
    panel = page.get_by_role("article", name="pairs")
    panel.get_by_text(re.compile(r"^[1-9][\d,]* groups in ")).wait_for()
    panel.get_by_text("█").first.wait_for()
    windows = []
    page.on(
        "request",
        lambda sent: windows.extend(one.get("window") for one in (sent.post_data_json or {}).get("panels", [])),
    )
    panel.get_by_label("last").select_option("1")
    until(lambda: page.wait_for_timeout(50) or 1e9 in windows, "the panel asks for another time")
    assert refusals(page) == []
