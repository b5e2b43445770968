"""`/metrics` of the page: scraped by a real Prometheus, checked by promtool, and asked for by what is in
`examples/monitoring`."""

import json
import re
import subprocess
import urllib.error
import urllib.parse
import urllib.request

import pytest
from conftest import HANG_S, ROOT, until
from ports import free_port

pytestmark = pytest.mark.services

MONITORING = ROOT / "examples/monitoring"
INSTRUMENT = """
[source.detector]
kind = "sim"
model = "detector"
[source.monitor]
kind = "sim"
model = "detector"
detector = 2
[worker.copied]
call = "copy"
inputs = ["detector"]
[web]
listen = "127.0.0.1:0"
"""


@pytest.fixture
def page(lab):
    """A running instrument: the URL of its page, and a function that gets a path with the token for viewing."""
    process, _ = lab.write(INSTRUMENT).up_ready()
    said = lab.folder / f"err-{process.number}"
    url = until(lambda: re.search(r"page: (http://\S+)", said.read_text()), said.read_text)[1]
    token = (lab.data / "web.view.token").read_text().strip()

    def get(path: str) -> str:
        request = urllib.request.Request(url + path, headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request, timeout=HANG_S) as answer:
            return answer.read().decode()

    return url, get


def promtool(*args, text: str | None = None) -> str:
    done = subprocess.run(["promtool", *args], input=text, text=True, capture_output=True, timeout=HANG_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_has_no_complaint(page):
    _, get = page
    text = get("metrics")
    promtool("check", "metrics", text=text)
    assert 'beamport_stream_messages{stream="detector"}' in text


def test_rules_alert_on_what_they_say():
    promtool("check", "rules", str(MONITORING / "rules.yml"))
    promtool("test", "rules", str(MONITORING / "rules.test.yml"))


def test_prometheus_answers_every_query_of_the_dashboard(lab, page):
    url, _ = page
    address = urllib.parse.urlparse(url).netloc
    port = free_port()
    # The example, for the port, folder and pace of this test.
    config = (MONITORING / "prometheus.yml").read_text()
    config = config.replace("127.0.0.1:8642", address).replace("5s", "1s")
    config = config.replace("beamport-data/mine/", f"{lab.data}/")
    (lab.folder / "prometheus.yml").write_text(config)
    (lab.folder / "rules.yml").write_bytes((MONITORING / "rules.yml").read_bytes())
    promtool("check", "config", str(lab.folder / "prometheus.yml"))
    with (lab.folder / "prometheus.log").open("wb") as log:
        prometheus = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={lab.folder}/prometheus.yml",
                f"--storage.tsdb.path={lab.folder}/tsdb",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
    try:

        def query(text: str) -> list:
            url = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": text})
            try:
                with urllib.request.urlopen(url, timeout=HANG_S) as answer:
                    return json.load(answer)["data"]["result"]
            except (urllib.error.URLError, ConnectionError):
                return []

        why = (lab.folder / "prometheus.log").read_text
        # Two scrapes: rates need them.
        until(lambda: query('rate(beamport_stream_appended_total{stream="detector"}[1m]) > 0'), why)
        dashboard = json.loads((MONITORING / "grafana.json").read_text())
        targets = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
        assert len(targets) > 10
        for target in targets:
            assert query(target.replace("$instance", ".*")), target
        instances = {row["metric"]["instance"] for row in query("beamport_instrument_running")}
        assert instances == {address}
        assert query('ALERTS{alertstate="firing"}') == []
    finally:
        prometheus.kill()
        prometheus.wait()
