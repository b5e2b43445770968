"""A camera over pvAccess, taken by PvaPy's consumers or by beamport: for `beamport-bench epics`.

    camera_pvapy.py WHO SIDE RATE SECONDS [BEAMPORT]

WHO: `pvapy` (pvapy-hpc-consumer, four consumers that share the frames) or `beamport` (a source `pva` and a worker of
four slots). PvaPy's simulator sends SIDE x SIDE frames of uint8 at RATE for SECONDS, with a queue of 1,000 at both
sides; each frame is touched byte by byte in one call of Python, and published.

Prints: frames of a while in which the camera sends, its seconds, the processor seconds of all processes behind the
camera in it, and frames that went missing between the first and the last of all.
"""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
from typing import ClassVar

from frames_pvapy import PROCESSOR

# The camera begins so late, and what it sends first is not counted: pages of memory are new.
START_S, WARM_S = 3.0, 3.0

CODE = """
def touch(frame):
    frame.array.max()
    return frame
"""

INSTRUMENT = """
instrument = "bench"
data = "data"

[source.camera]
kind = "pva"
pvs = ["bench:image"]
queue = 1000
level = "memory"
live = "256 MiB"

[worker.out]
slots = 4
call = "touch.py:touch"
inputs = ["camera"]
level = "memory"
live = "256 MiB"
python = {python}

[run.bench]
"""


class Child:
    """A program in a session of its own."""

    all: ClassVar[list[Child]] = []

    def __init__(self, folder: pathlib.Path, command: list, number: int) -> None:
        """Start it."""
        self.log = folder / f"log{number}"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                start_new_session=True,
            )
        Child.all.append(self)

    def cpu(self) -> float:
        """Processor seconds of it and of the processes that it started, of those that live."""
        ticks = 0
        for entry in os.scandir("/proc"):
            if not entry.name.isdigit():
                continue
            try:
                with open(f"/proc/{entry.name}/stat") as file:
                    fields = file.read().rpartition(") ")[2].split()
            except OSError:
                continue
            # Session, and the times in the two modes.
            if int(fields[3]) == self.process.pid:
                ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def behind_a_camera(self, folder: pathlib.Path, args: list[str]) -> tuple:
        """Run the simulator and end both: frames of a while in which it sends, its seconds, and our processor seconds."""
        rate, seconds = float(args[1]), float(args[2])
        sender = camera(folder, *args)
        time.sleep(START_S + WARM_S)
        before, begin = self.cpu(), time.monotonic()
        time.sleep(seconds - WARM_S - 0.5)
        cpu, elapsed = self.cpu() - before, time.monotonic() - begin
        sender.end(seconds + 60)
        time.sleep(1)
        self.stop()
        return round(rate * elapsed), elapsed, cpu

    def end(self, patience_s: float = 30) -> None:
        """Wait until it has ended, and end it where it does not."""
        for name in (signal.SIGINT, signal.SIGKILL):
            try:
                self.process.wait(patience_s)
                return
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, name)
        self.process.wait()

    def stop(self) -> None:
        """Ctrl-C."""
        os.killpg(self.process.pid, signal.SIGINT)
        self.end()


def camera(folder: pathlib.Path, side: str, rate: str, seconds: str) -> Child:
    """The simulator."""
    program = pathlib.Path(sys.executable).parent / "pvapy-ad-sim-server"
    words = ["-cn", "bench:image", "-nx", side, "-ny", side, "-dt", "uint8", "-rt", seconds, "-fps", rate]
    return Child(folder, [program, *words, "-nf", 16, "-std", int(START_S), "-shd", 2, "-rp", 0, "-dc"], 0)


def pvapy(folder: pathlib.Path, args: list[str]) -> tuple:
    """PvaPy's own consumers."""
    (folder / "processor.py").write_text(PROCESSOR)
    program = pathlib.Path(sys.executable).parent / "pvapy-hpc-consumer"
    told = json.dumps({"folder": str(folder), "role": "consumer"})
    words = ["--input-channel", "bench:image", "--server-queue-size", 1000, "--report-period", 0]
    for role in ("control", "status", "output"):
        words += [f"--{role}-channel", f"consumer:*:{role}"]
    words += ["--n-consumers", 4, "--distributor-updates", 1, "--disable-curses"]
    words += ["--processor-file", "processor.py", "--processor-class", "Touch", "--processor-args", told]
    consumer = Child(folder, [program, *words], 1)
    time.sleep(4)
    used = consumer.behind_a_camera(folder, args)
    said = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    said = [one for one in said if one["count"]]
    if not said:
        sys.exit(f"{consumer.log.read_text(errors='replace')[-2000:]}\nno frame came out")
    frames, high, low = (sum(s["count"] for s in said), max(s["high"] for s in said), min(s["low"] for s in said))
    return *used, high - low + 1 - frames


def ours(folder: pathlib.Path, args: list[str], program: str) -> tuple:
    """Run `beamport up`."""
    (folder / "touch.py").write_text(CODE)
    (folder / "bench.toml").write_text(INSTRUMENT.format(python=json.dumps(sys.executable)))
    instrument = Child(folder, [program, "up", "bench.toml", "--json"], 1)
    # Until the code of the slots is loaded.
    time.sleep(4)
    used = instrument.behind_a_camera(folder, args)
    report = json.loads(instrument.log.read_text().splitlines()[-1])
    lost = sum(sum(row["lost"].values()) for row in report["ledger"] if row["account"] == "entry")
    return *used, lost


def main(who: str, *args: str) -> None:
    """Run one of them."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    shared = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(dir=shared) as folder:
        place = pathlib.Path(folder)
        try:
            result = pvapy(place, list(args[:3])) if who == "pvapy" else ours(place, list(args[:3]), args[3])
        finally:
            for child in Child.all:
                child.end(0)
        print(*result)


if __name__ == "__main__":
    main(*sys.argv[1:])
