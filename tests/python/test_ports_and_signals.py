"""What tests rely on: ports that stay with who asked for them, and processes that stand still once they are stopped."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from ports import free_port, free_ports
from signals import stop

TESTS = Path(__file__).resolve().parents[1]
# Threads that wait.
SLEEPERS = """
import threading, time
for _ in range(8):
    threading.Thread(target=time.sleep, args=(1e6,), daemon=True).start()
print("ready", flush=True)
time.sleep(1e6)
"""


def test_a_free_port_stays_with_the_process_that_asked_for_it():
    ports = {free_port() for _ in range(100)} | set(free_ports(50))
    assert len(ports) == 150
    code = "from ports import *\nfor _ in range(500):\n    print(free_port())"
    other = subprocess.run([sys.executable, "-c", code], cwd=TESTS, capture_output=True, text=True, check=True)
    assert ports.isdisjoint(map(int, other.stdout.split()))
    for port in ports:
        # It is held by a name alone: the program that it is for binds it.
        socket.create_server(("127.0.0.1", port)).close()


def test_a_free_port_is_none_that_the_kernel_gives_away():
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert all(free_port() < low for _ in range(100))


def test_every_thread_of_a_stopped_process_has_stopped():
    process = subprocess.Popen([sys.executable, "-c", SLEEPERS], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "ready\n"
        for _ in range(20):
            stop(process.pid)
            states = [(task / "stat").read_text().split()[2] for task in Path(f"/proc/{process.pid}/task").iterdir()]
            assert states == ["T"] * 9
            os.kill(process.pid, signal.SIGCONT)
    finally:
        process.kill()
        process.communicate()


def test_a_process_that_has_ended_is_stopped_already():
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    stop(child.pid)
    child.wait()
