"""`beamport web` without a browser: what programs get from it, what it refuses, and what it survives."""

import json
import os
import random
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import numpy as np
import pytest
from conftest import HANG_S, OPEN_FILES, ROOT, kill, until
from signals import stop

INSTRUMENT = """
[source.camera]
kind = "sim"
model = "camera"
fps = 20
shape = [256, 256]
[source.devices]
kind = "sim"
model = "amor-devices"
[web]
listen = "127.0.0.1:0"
"""


class Page:
    """The page of a running instrument."""

    def __init__(self, lab, process):
        self.lab = lab
        self.process = process
        self.said = lab.folder / f"err-{process.number}"
        found = until(lambda: re.search(r"page: (http://(\S+):(\d+)/)", self.said.read_text()), self.told)
        self.url, self.port = found[1], int(found[3])
        self.token = (lab.data / "web.control.token").read_text().strip()

    def told(self) -> str:
        return self.said.read_text()

    def get(self, path: str, body=None, token: str | None = None, **headers) -> tuple[int, dict]:
        """Status and JSON of an answer."""
        headers = {"Authorization": f"Bearer {token or self.token}"} | headers
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers)
        try:
            with urllib.request.urlopen(request, timeout=HANG_S) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text[:1] in b"{[" else text
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    @property
    def pid(self) -> int:
        return self.get("api/status")[1]["web"]["pid"]


@pytest.fixture
def page(lab) -> Page:
    process, _ = lab.write(INSTRUMENT).up_ready()
    return Page(lab, process)


def resident(pid: int) -> int:
    """Bytes of memory of a process."""
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def test_the_reader_of_the_how_to_page_prints_the_mean_of_an_image(page):
    text = (ROOT / "docs/how-to/watch-an-instrument.md").read_text()
    program = re.search(r"```python\n(.*?)```", text, re.S)[1]
    until(lambda: page.get("api/status")[1]["streams"][0]["count"] > 0, "no frame")
    command = [sys.executable, "-c", program, f"{page.url}#token={page.token}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, done.stderr
    assert 0 < float(done.stdout) < 100


def test_a_token_allows_what_its_role_allows(page):
    view = (page.lab.data / "web.view.token").read_text().strip()
    assert page.get("api/status", token=view)[1]["web"]["role"] == "view"
    assert page.get("api/status")[1]["web"]["role"] == "control"
    assert page.get("api/status", token="0" * 32)[0] == 401
    assert page.get("api/command", {"command": "begin"}, token=view)[0] == 403
    assert page.get("api/status", Host="evil.example")[0] == 403
    assert page.get("api/command", {"command": "begin"}, Origin="http://evil.example")[0] == 403
    assert page.get("api/status")[1]["runs"] == []
    for path in ("web.view.token", "web.control.token"):
        assert (page.lab.data / path).stat().st_mode & 0o777 == 0o600


def test_commands_of_the_page_and_who_gave_them_are_recorded(page):
    status, answer = page.get("api/command", {"command": "begin", "run": "first", "metadata": {"title": "x"}})
    assert (status, answer["ok"]["name"]) == (200, "first")
    assert "fault" in page.get("api/command", {"command": "begin", "run": "first"})[1]
    page.lab.run("end", "first", "--data", page.lab.data)
    assert page.get("api/command", {"command": "put", "pv": "x"})[0] == 400
    rows = page.get("api/control")[1]
    assert [row["command"] for row in rows] == ["end", "begin", "begin"]
    assert re.fullmatch(r"uid \d+, pid \d+", rows[0]["from"])
    assert re.fullmatch(rf"page, control token, uid \d+, pid {page.pid}", rows[2]["from"])
    until(lambda: page.get("api/status")[1]["runs"][0]["state"] == "sealed", "not sealed")
    account = page.get("api/runs/first")[1]["account"]
    assert account["closed"] and account["lost"] == 0


def test_a_page_that_is_killed_comes_back_and_nothing_is_lost(page, times):
    page.lab.run("begin", "first", "--data", page.lab.data)
    pids = []
    for _ in range(times(10, 100)):
        pids.append(page.pid)
        kill(pids[-1])
    assert page.pid not in pids and len(set(pids)) == len(pids)
    status, answer = page.get("api/look", {"panels": [{"stream": "camera", "view": "message"}]})
    assert status == 200 and answer[:4] == b"BPL1"
    page.lab.run("end", "first", "--data", page.lab.data)
    page.process.send_signal(2)
    assert page.process.wait(HANG_S) == 0
    report = json.loads((page.lab.folder / f"out-{page.process.number}").read_text())
    assert report["closed"]
    print(f"injected {len(pids)} kills of the page: the run closes, 0 lost")


def test_a_port_that_is_taken_is_a_warning_until_it_is_free(lab):
    taken = socket.socket()
    taken.bind(("127.0.0.1", 0))
    taken.listen()
    port = taken.getsockname()[1]
    process, _ = lab.write(INSTRUMENT.replace(":0", f":{port}")).up_ready()
    said = lab.folder / f"err-{process.number}"
    until(lambda: f"the page cannot be served at 127.0.0.1:{port}" in said.read_text(), said.read_text)
    taken.close()
    assert Page(lab, process).port == port
    assert said.read_text().count("cannot be served") == 1


def test_wrong_requests_slow_clients_and_crowds_stop_nobody(page, times, dice):
    count, crowd = times(2000, 100_000), times(1200, 10_000)
    begin, pid = resident(page.pid), page.pid
    # Clients that never say a whole request, each on a connection of its own.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    slow = []
    try:
        for at in range(min(crowd, hard - 200)):
            client = socket.create_connection(("127.0.0.1", page.port))
            client.sendall(b"POST /api/look HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n"[: at % 70])
            slow.append(client)
        stop = threading.Event()
        answered = []

        def watch():
            while not stop.is_set():
                answered.append(page.get("api/status")[0])
                time.sleep(0.01)

        watcher = threading.Thread(target=watch)
        watcher.start()
        good = json.dumps({"at": None, "panels": [{"stream": "camera", "width": 8, "region": [0, 0, 9, 9]}]}).encode()
        for _ in range(count):
            page_request(page, wrong(good, dice))
        stop.set()
        watcher.join()
    finally:
        for client in slow:
            client.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert set(answered) == {200}
    # The same process: nothing made it end.
    assert page.pid == pid
    grown = resident(pid) - begin
    print(
        f"injected {count} wrong requests and {len(slow)} slow clients: {len(answered)} answered beside them, memory grew by {grown >> 20} MiB"
    )
    assert grown < 512 << 20


def wrong(good: bytes, dice: random.Random) -> bytes:
    """A request with some damage: of its JSON, its length, its first line or its bytes."""
    body = bytearray(good)
    for _ in range(dice.randrange(4)):
        body[dice.randrange(len(body))] = dice.randrange(256)
    words = [b"null", b"-1", b"1e400", b"[]", b"{}", b'"' + b"x" * 300 + b'"', b"9" * 40]
    if dice.randrange(2):
        body = good.replace(dice.choice([b"null", b"8", b"[0, 0, 9, 9]", b'"camera"']), dice.choice(words))
    path = dice.choice([b"/api/look"] * 5 + [b"/api/command", b"/api/runs/..%2f", b"/" + b"x" * 200, b"//", b"/api/"])
    method = dice.choice([b"POST"] * 6 + [b"GET", b"PUT", b"BREW", b""])
    length = dice.choice([len(body)] * 6 + [0, 1 << 40, -1])
    head = b"%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer TOKEN\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    return head % (method, path, length) + bytes(body)


def page_request(page: Page, bytes_: bytes):
    """Sends a request; whatever comes back is read, for a moment."""
    with socket.create_connection(("127.0.0.1", page.port)) as client:
        client.settimeout(0.2)
        try:
            client.sendall(bytes_.replace(b"TOKEN", page.token.encode()))
            client.shutdown(socket.SHUT_WR)
            while client.recv(65536):
                pass
        except OSError:
            pass


def test_clients_that_do_not_read_cost_bounded_memory(lab, times):
    camera = INSTRUMENT.replace("shape = [256, 256]", 'shape = [2048, 2048]\ndtype = "uint16"\nlive = "256 MiB"')
    process, _ = lab.write(camera.replace("fps = 20", "fps = 2")).up_ready()
    page = Page(lab, process)
    until(lambda: page.get("api/status")[1]["streams"][0]["count"] > 0, "no frame")
    begin, pid = resident(page.pid), page.pid
    body = json.dumps({"panels": [{"stream": "camera", "width": 2048, "height": 2048}]}).encode()
    head = f"POST /api/look HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {page.token}\r\n"
    request = head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body
    stuck = []
    try:
        for _ in range(times(100, 400)):
            client = socket.create_connection(("127.0.0.1", page.port))
            # The answer does not fit into the buffers of the kernel.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.sendall(request)
            stuck.append(client)
        # Once their requests are answered, others are, though nobody takes those answers.
        small = {"panels": [{"stream": "camera", "width": 8}]}
        until(lambda: page.get("api/look", small)[0] == 200, "not answered")
        assert page.get("api/control")[0] == 200
    finally:
        grown = resident(pid) - begin
        for client in stuck:
            client.close()
    assert page.pid == pid
    print(f"injected {len(stuck)} clients that do not read 8 MiB each: memory grew by {grown >> 20} MiB")
    assert 64 << 20 < grown < 640 << 20


def test_what_is_gone_or_damaged_is_a_fault_of_its_panel(lab):
    keep = INSTRUMENT.replace(
        "[source.devices]", 'retain = "1 MiB"\nlevel = "memory"\nlive = "1 MiB"\n[source.devices]'
    )
    process, _ = lab.write(keep).up_ready()
    page = Page(lab, process)

    def fault(**panel) -> dict:
        status, answer = page.get("api/look", {"panels": [{"stream": "devices", "view": "message"}, panel]})
        assert status == 200
        devices, other = json.loads(answer[8 : 8 + int.from_bytes(answer[4:8], "little")])["panels"]
        # The other panel is not affected.
        assert "fault" not in devices
        return other.get("fault", {})

    until(lambda: all(s["count"] > 0 for s in page.get("api/status")[1]["streams"]), "no messages")
    until(lambda: "retention" in fault(stream="camera", sequence=0).get("cause", ""), "nothing is deleted")
    assert fault(stream="nothing")["what"]
    assert fault(stream="../x")["what"]
    assert fault(stream="runs")["what"]
    assert fault(stream="camera", sequence=1 << 60)["cause"].startswith("the newest is")
    # The instrument is killed; one payload is damaged, then the stream is removed under the page.
    lab.kill(process)
    stream = lab.data / "devices"
    served = lab.popen("web", "--data", lab.data, "--listen", "127.0.0.1:0")
    page = Page(lab, served)
    assert page.get("api/look", {"panels": [{"stream": "devices", "sequence": 0, "view": "message"}]})[0] == 200
    live = lab.data / "devices.away"
    stream.rename(live)

    def gone() -> bool:
        _, answer = page.get("api/look", {"panels": [{"stream": "devices", "view": "message"}]})
        return b'"fault"' in answer

    until(gone, "the folder is away, and the stream is still shown")
    assert page.get("api/status")[0] == 200
    live.rename(stream)
    until(lambda: not gone(), "the folder is back")


def served(lab, **more) -> Page:
    """A page without an instrument, of a folder with one stream."""
    lab.data.mkdir(exist_ok=True)
    content = {"schema": "f144", "source_name": "T", "timestamp": 1, "value": 1.0}
    message = {"schema": "f144", "origin": "T", "source_time": 1, "content": content}
    (lab.folder / "messages.json").write_text(json.dumps(message))
    lab.run("append", "devices", lab.folder / "messages.json", "--data", lab.data)
    return Page(lab, lab.popen("web", "--data", lab.data, "--listen", "127.0.0.1:0", **more))


def test_picture_of_a_recorded_detector_has_its_pixels_where_they_are(lab, nexus):
    lab.run("demo", "--duration", "1 s", "--data", lab.data)
    page = Page(lab, lab.popen("web", "--data", lab.data, "--listen", "127.0.0.1:0", cwd="/"))
    asked = {"stream": "detector", "window": 60_000_000_000, "width": 256, "height": 256}
    body = page.get("api/look", {"panels": [asked]})[1]
    length = int.from_bytes(body[4:8], "little")
    facts = json.loads(body[8 : 8 + length])["panels"][0]
    values = facts["arrays"]["values"]
    first = (8 + length + 7) // 8 * 8 + values["offset"]
    picture = np.frombuffer(body, values["dtype"], np.prod(values["shape"]), first).reshape(values["shape"])
    printed = lab.run("cat", "detector", "--json", "--arrays", "--data", lab.data).stdout
    ids = np.concatenate([json.loads(line)["content"]["pixel_id"] for line in printed.splitlines()])
    # The template has rows of x and columns of y.
    wanted = np.bincount(ids - 1, minlength=128 * 256).reshape(128, 256)
    assert facts["view"] == "events" and facts["outside"] == 0 and wanted.sum() > 10_000
    assert np.array_equal(picture, wanted.T[::-1])


def test_server_with_few_descriptors_answers_and_does_not_spin(lab):
    few = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))  # noqa: E731
    page = served(lab, preexec_fn=few)
    pid, slow = page.pid, []
    try:
        for _ in range(600):
            client = socket.create_connection(("127.0.0.1", page.port))
            client.sendall(b"POST /api/look HTTP/1.1\r\n")
            slow.append(client)
        looks = [{"panels": [{"stream": "devices", "view": "message"}]} for _ in range(10)]
        assert all(b'"fault"' not in page.get("api/look", look)[1] for look in looks)
        begin = cpu_s(pid)
        time.sleep(1)
        spent = cpu_s(pid) - begin
    finally:
        for client in slow:
            client.close()
    assert page.get("api/status")[1]["web"]["pid"] == pid
    print(
        f"injected {len(slow)} slow clients, 128 descriptors: others answered; {spent:.2f} s of CPU in 1 s without requests"
    )


def cpu_s(pid: int) -> float:
    """CPU time of a process."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_thousand_clients_connect_while_the_server_does_not_accept(lab):
    page = served(lab)
    stop(page.process.pid)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        # A queue that is full drops them: each then tries again after a second, and more.
        clients = [socket.create_connection(("127.0.0.1", page.port), HANG_S) for _ in range(1000)]
    finally:
        page.process.send_signal(signal.SIGCONT)
    assert page.get("api/status")[0] == 200
    for client in clients:
        client.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, most))


def raw(page: Page, request: bytes) -> bytes:
    """The first bytes that come back for a request; none where the connection is closed."""
    with socket.create_connection(("127.0.0.1", page.port), HANG_S) as client:
        try:
            client.sendall(request.replace(b"TOKEN", page.token.encode()))
            return client.recv(4096)
        except (BrokenPipeError, ConnectionResetError):
            return b""


HEAD = b"Host: 127.0.0.1\r\nAuthorization: Bearer TOKEN\r\n"
POST = b"POST /api/look HTTP/1.1\r\n" + HEAD


CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
CHUNK = b"8000\r\n" + b" " * 0x8000 + b"\r\n"
REFUSED = [
    b"GET / HTTP/1.1\r\n" + HEAD + b"X: " + b"x" * 1_000_000 + b"\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + HEAD + b"X: x\r\n" * 5000 + b"\r\n",
    b"GET /" + b"x" * 1_000_000 + b" HTTP/1.1\r\n" + HEAD + b"\r\n",
    CHUNKED + CHUNK * 40,
    CHUNKED + b"ffffffffffffffffff\r\n",
    POST + b"Content-Length: 100000\r\n\r\n" + b"[" * 100_000,
    POST + b"Content-Length: 100023\r\n\r\n" + b'{"at": null, "panels": ' + b"[" * 100_000,
    POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
    POST + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    *(
        b"GET " + path + b" HTTP/1.1\r\n" + HEAD + b"\r\n"
        for path in (
            b"/../web.control.token",
            b"/%2e%2e/web.control.token",
            b"/api/streams/..%2f..%2fetc",
            b"/api/runs/%00",
            b"/api/aside/" + b"a/" * 2500,
            b"//web.control.token",
            b"\\..\\x",
        )
    ),
    b"OPTIONS /api/command HTTP/1.1\r\nOrigin: http://evil.example\r\n" + HEAD + b"\r\n",
    b"CONNECT evil.example:80 HTTP/1.1\r\n" + HEAD + b"\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    bytes(range(256)) * 100,
]


def test_requests_of_an_attacker_are_refused_and_others_are_answered(lab):
    page = served(lab)
    begin = resident(page.pid)
    for request in REFUSED:
        answer = raw(page, request)
        assert answer == b"" or re.match(rb"HTTP/1.1 4\d\d ", answer), (request[:80], answer)
        assert b"access-control" not in answer.lower()
        assert page.pid == page.process.pid, request[:80]
    # Bodies that do not end.
    endless = [socket.create_connection(("127.0.0.1", page.port)) for _ in range(100)]
    for client in endless:
        client.sendall((CHUNKED + CHUNK).replace(b"TOKEN", page.token.encode()))
    assert page.get("api/status")[0] == 200
    # More pixels than there are on all screens.
    most = {"stream": "devices", "view": "trend", "width": 1 << 31, "height": 1 << 31, "window": 1 << 62}
    status, answer = page.get("api/look", {"at": 1, "panels": [most] * 64})
    assert status == 200 and len(answer) < 80 << 20
    grown = resident(page.pid) - begin
    for client in endless:
        client.close()
    print(
        f"injected {len(REFUSED)} requests of an attacker, {len(endless)} bodies without end: memory grew by {grown >> 20} MiB"
    )
    assert grown < 256 << 20


def test_second_server_at_a_port_says_what_to_do(lab):
    page = served(lab)
    done = lab.run("web", "--data", lab.data, "--listen", f"127.0.0.1:{page.port}", status=None)
    assert done.returncode == 2 and b"--listen 127.0.0.1:0" in done.stderr, done.stderr
    assert page.get("api/status")[0] == 200


def test_pipes_and_devices_in_place_of_files_do_not_block_the_server(lab):
    page = served(lab)
    (lab.data / "instrument.toml").symlink_to("/dev/zero")
    status, answer = page.get("api/settings")
    assert status == 422 and "not a file" in answer["fault"]["cause"]
    (lab.data / "instrument.toml").unlink()
    os.mkfifo(lab.data / "instrument.toml")
    assert page.get("api/settings")[0] == 422
    assert page.get("api/look", {"panels": [{"stream": "devices", "view": "events"}]})[0] == 200
    page.process.kill()
    page.process.wait(HANG_S)
    (lab.data / "web.view.token").unlink()
    os.mkfifo(lab.data / "web.view.token")
    done = lab.run("web", "--data", lab.data, "--listen", "127.0.0.1:0", status=None)
    assert done.returncode == 2 and b"web.view.token" in done.stderr and b"delete it" in done.stderr
