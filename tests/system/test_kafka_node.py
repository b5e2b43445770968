"""The Kafka that other tests rely on: what it acknowledged is there, it comes back, and it never outlives the tests."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from conftest import until
from kafka_node import Node

pytestmark = pytest.mark.services


def test_what_was_acknowledged_is_there_after_kill_9(kafka):
    topic = kafka.topic("acknowledged", partitions=2)
    sent = [(topic, number % 2, b"%d" % number) for number in range(1000)]
    kafka.send(sent)
    kafka.restart()
    kafka.send([(topic, 0, b"after")])
    rows = {partition: kafka.read(topic, partition) for partition in (0, 1)}
    for partition in (0, 1):
        offsets = [offset for offset, _ in rows[partition]]
        assert offsets == list(range(len(offsets)))
    assert [payload for _, payload in rows[0]] == [b"%d" % number for number in range(0, 1000, 2)] + [b"after"]
    assert [payload for _, payload in rows[1]] == [b"%d" % number for number in range(1, 1000, 2)]


def test_a_node_that_does_not_start_says_why(tmp_path, kafka):
    node = Node(tmp_path)
    # Nobody formatted its folder.
    with pytest.raises(pytest.fail.Exception, match="(?s)ended with status 1.*meta.properties"):
        node.start()


def test_the_node_of_a_killed_test_run_outlived_it(tmp_path):
    code = f"""
        import sys, time
        sys.path.insert(0, {str(Path(__file__).parents[1])!r})
        from kafka_node import Node
        from pathlib import Path
        node = Node(Path({str(tmp_path)!r}))
        node.format()
        print(node.java("kafka.Kafka", node.properties).pid, flush=True)
        time.sleep(1000)
    """
    run = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True)
    pid = int(run.stdout.readline())
    stat = Path(f"/proc/{pid}/stat")
    assert stat.exists()
    run.kill()
    run.wait()
    # Whose parent is gone may stay behind as a zombie where nobody reaps it.
    until(lambda: not stat.exists() or stat.read_text().split(") ")[1][0] == "Z", "Java lives")
