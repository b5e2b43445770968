"""The examples of `write-a-source-in-python.md`, as they stand there, against real peers."""

import http.server
import json
import re
import threading
import time

import numpy as np
import pytest
from conftest import ROOT, kill, until
from ports import free_port
from test_python_sources import codes, messages

pytest.importorskip("beamport", reason="pip install .")
PAGE = (ROOT / "docs/how-to/write-a-source-in-python.md").read_text()


def write(lab, *names: str, ports: dict[str, int] | None = None):
    """The files of the page, with other ports; the last one is the instrument file."""
    found = dict(re.findall(r"^`([\w.]+)`[^\n]*:\n\n```\w+\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
    for name in names:
        text = found[name]
        for known, port in (ports or {}).items():
            assert known in text or name.endswith(".py")
            text = text.replace(known, str(port))
        (lab.folder / name).write_text(text)
    lab.file = lab.folder / names[-1]
    lab.data = lab.folder / "beamport-data" / names[-1].removesuffix(".toml")
    assert b"good" in lab.run("check", lab.file).stdout


def test_the_first_example_counts_up(lab):
    write(lab, "mine.py", "mine.toml")
    process, _ = lab.up_ready()
    until(lambda: lab.stream("ramp").marks()[1] >= 5, "nothing comes")
    lab.interrupt(process)
    lab.end(process)
    assert [m.value for m in messages(lab, "ramp")][:5] == [0.0, 0.5, 1.0, 1.5, 2.0]


def test_a_class_reads_on_in_a_log_where_it_was(lab):
    (code,) = re.findall(r"^```python\n(class Log:.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (lab.folder / "log.py").write_text(code)
    lines = [f"line {number}" for number in range(200)]
    (lab.folder / "log.txt").write_text("\n".join(lines[:100]) + "\n")
    text = '[source.log]\nkind = "python"\ncall = "log.py:Log"\nparameters = { path = "log.txt" }\n'
    for run, there in (("one", 100), ("two", 200)):
        (lab.folder / "log.txt").write_text("\n".join(lines[:there]) + "\n")
        lab.write(f'{text}[run.{run}]\nduration = "1 h"\n')
        assert lab.report(lab.up())["closed"]
        assert [m.value for m in messages(lab, "log")] == lines[:there]


def test_frames_come_by_zeromq_and_the_ones_that_the_sender_dropped_are_lost(lab):
    zmq = pytest.importorskip("zmq")
    with zmq.Context() as context, context.socket(zmq.PUSH) as psi, context.socket(zmq.PUSH) as dectris:
        ports = {
            "9001": psi.bind_to_random_port("tcp://127.0.0.1"),
            "9002": dectris.bind_to_random_port("tcp://127.0.0.1"),
        }
        write(lab, "frames.py", "frames.toml", ports=ports)
        process, _ = lab.up_ready()
        numbers = [number for number in range(100, 300) if number not in (150, 151, 260)]
        for number in numbers:
            header = {"htype": "array-1.0", "shape": [8, 12], "type": "uint16", "frame": number}
            psi.send_json(header, zmq.SNDMORE)
            psi.send(np.full((8, 12), number, np.uint16))
        for series in (7, 8):
            series_of_dectris(dectris, series, 50, dropped={20} if series == 8 else set())
        until(lambda: lab.stream("jungfrau").marks()[1] >= len(numbers), "the frames do not come")
        until(lambda: lab.stream("eiger").marks()[1] >= 50 + 49 + 2, "the images do not come")
        # After a kill of the code the numbers go on.
        (pid,) = codes(lab, process, "eiger")
        kill(pid)
        until(lambda: not dectris.getsockopt(zmq.EVENTS) & zmq.POLLOUT, "the sender does not miss the code")
        until(lambda: dectris.getsockopt(zmq.EVENTS) & zmq.POLLOUT, "the code does not come back")
        series_of_dectris(dectris, 9, 50, dropped=set())
        until(lambda: lab.stream("eiger").marks()[1] >= 50 + 49 + 50 + 3, "the code does not go on")
        lab.interrupt(process)
        # Messages were lost.
        lab.end(process, 1)
    frames = messages(lab, "jungfrau")
    assert [m.origin_seq for m in frames] == numbers and all((m.array == m.origin_seq).all() for m in frames)
    images = [m for m in messages(lab, "eiger") if m.origin == "image"]
    assert [m.origin_seq for m in images] == [number for number in range(150) if number != 70]
    assert all(m.array.shape == (6, 10) and m.metadata["exposure_ns"] == 99 for m in images)
    assert [m.metadata["series"] for m in images] == [7] * 50 + [8] * 49 + [9] * 50
    rows = json.loads(lab.run("ls", "--json", "--data", lab.data).stdout)
    lost = {row["name"]: row["lost"] for row in rows["streams"]}
    assert lost == {"jungfrau": 3, "eiger": 1}


def series_of_dectris(socket, series: int, count: int, dropped: set[int]):
    """Sends a series as the interface of Dectris does."""
    socket.send_multipart(
        [
            json.dumps({"htype": "dheader-1.0", "series": series, "header_detail": "basic"}).encode(),
            json.dumps({"nimages": count}).encode(),
        ]
    )
    for number in range(count):
        if number in dropped:
            continue
        image = np.full((6, 10), series * 1000 + number, "<u4")
        what = {"htype": "dimage_d-1.0", "shape": [10, 6], "type": "uint32", "encoding": "<", "size": image.nbytes}
        parts = [
            {"htype": "dimage-1.0", "series": series, "frame": number, "hash": ""},
            what,
            image.tobytes(),
            {"htype": "dconfig-1.0", "start_time": 0, "stop_time": 99, "real_time": 99},
        ]
        socket.send_multipart([part if isinstance(part, bytes) else json.dumps(part).encode() for part in parts])
    socket.send_json({"htype": "dseries_end-1.0", "series": series})


class Gauge(http.server.BaseHTTPRequestHandler):
    """A small device with an HTTP API."""

    asked = 0

    def do_GET(self):  # noqa: N802
        type(self).asked += 1
        body = json.dumps({"pressure": 1.5 + self.asked, "unit": "mbar", "state": "ok"}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def served(port: int) -> http.server.HTTPServer:
    """The device, at work in a thread."""
    server = http.server.HTTPServer(("127.0.0.1", port), Gauge)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def test_values_come_from_an_http_api_and_the_time_without_it_is_seen(lab):
    port = free_port()
    write(lab, "gauge.py", "gauge.toml", ports={"9003": port})
    server = served(port)
    try:
        process, _ = lab.up_ready()
        until(lambda: lab.stream("gauge").marks()[1] >= 10, "no values come")
        server.shutdown()
        server.server_close()
        until(lambda: b"refused" in lab.ask(b'{"command": "status"}\n'), "no trouble is shown")
        time.sleep(0.5)
        at = lab.stream("gauge").marks()[1]
        server = served(port)
        until(lambda: lab.stream("gauge").marks()[1] >= at + 10, "it does not go on")
        lab.interrupt(process)
        lab.end(process)
    finally:
        server.shutdown()
        server.server_close()
    got = messages(lab, "gauge")
    values = [m for m in got if m.origin == "pressure"]
    assert [m.origin_seq for m in values] == list(range(len(values)))
    assert {m.value for m in got if m.origin == "state"} == {"ok"}
    assert values[0]["data"][0]["unit"] == "mbar"
    commits = lab.run("cat", "gauge.commits", "--json", "--data", lab.data).stdout.decode()
    assert '"reason":"absent"' in commits
