"""A camera over pvAccess, taken by PvaPy's consumers or by beamport: for `beamport-bench epics`.

    camera_pvapy.py WHO SIDE RATE SECONDS [BEAMPORT]

WHO: `pvapy` (pvapy-hpc-consumer, four consumers that share the frames) or `beamport` (a source `pva` and a worker of
four slots). PvaPy's simulator sends SIDE x SIDE frames of uint8 at RATE for SECONDS, with a queue of 1,000 at both
sides; each frame is touched byte by byte in one call of Python, and published.

Prints: frames that came out, seconds between the first and the last, processor seconds of all processes behind the
camera, and frames that went missing between the first and the last.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

from frames_pvapy import PROCESSOR

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
live = "512 MiB"

[worker.out]
slots = 4
call = "touch.py:touch"
inputs = ["camera"]
level = "memory"
live = "512 MiB"
python = {python}

[run.bench]
"""


class Child:
    """A program in a session of its own, and the processor time of it and its children."""

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

    def end(self, patience_s: float = 30) -> float:
        """Wait until it has ended, and end it where it does not; the processor seconds."""
        until = time.monotonic() + patience_s
        is_asked = False
        while True:
            pid, _, usage = os.wait4(self.process.pid, os.WNOHANG)
            if pid:
                self.process.returncode = 0
                return usage.ru_utime + usage.ru_stime
            if time.monotonic() > until:
                os.killpg(self.process.pid, signal.SIGKILL if is_asked else signal.SIGINT)
                is_asked, until = True, time.monotonic() + 20
            time.sleep(0.01)

    def stop(self) -> float:
        """Ctrl-C, and the processor seconds."""
        os.killpg(self.process.pid, signal.SIGINT)
        return self.end()


def camera(folder: pathlib.Path, side: str, rate: str, seconds: str) -> Child:
    """The simulator."""
    program = pathlib.Path(sys.executable).parent / "pvapy-ad-sim-server"
    words = ["-cn", "bench:image", "-nx", side, "-ny", side, "-dt", "uint8", "-rt", seconds, "-fps", rate]
    return Child(folder, [program, *words, "-nf", 16, "-std", 3, "-shd", 2, "-rp", 0, "-dc"], 0)


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
    time.sleep(2)
    sender = camera(folder, *args)
    sender.end(float(args[2]) + 60)
    time.sleep(2)
    cpu = consumer.stop()
    said = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    said = [one for one in said if one["count"]]
    if not said:
        sys.exit(f"{consumer.log.read_text(errors='replace')[-2000:]}\nno frame came out")
    frames, high, low = (sum(s["count"] for s in said), max(s["high"] for s in said), min(s["low"] for s in said))
    return frames, max(s["end"] for s in said) - min(s["begin"] for s in said), cpu, high - low + 1 - frames


def ours(folder: pathlib.Path, args: list[str], program: str) -> tuple:
    """Run `beamport up`."""
    import beamport

    (folder / "touch.py").write_text(CODE)
    (folder / "bench.toml").write_text(INSTRUMENT.format(python=json.dumps(sys.executable)))
    instrument = Child(folder, [program, "up", "bench.toml", "--json"], 1)
    # Until the code of the slots is loaded.
    time.sleep(2)
    sender = camera(folder, *args)
    begin = end = 0.0
    until = time.monotonic() + float(args[2]) + 8
    out, seen = beamport.open(folder / "data")["out"], 0
    while time.monotonic() < until:
        time.sleep(0.05)
        count = out.marks()[2]
        if count > seen:
            seen, end = count, time.monotonic()
            begin = begin or end
    sender.end()
    cpu = instrument.stop()
    report = json.loads(instrument.log.read_text().splitlines()[-1])
    done = sum(row["done"] for row in report["ledger"] if row["account"] == "stage" and row["stage"] == "out")
    lost = sum(sum(row["lost"].values()) for row in report["ledger"] if row["account"] == "entry")
    return done, end - begin, cpu, lost


def main(who: str, *args: str) -> None:
    """Run one of them."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    shared = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(dir=shared) as folder:
        place = pathlib.Path(folder)
        result = pvapy(place, list(args[:3])) if who == "pvapy" else ours(place, list(args[:3]), args[3])
        print(*result)


if __name__ == "__main__":
    main(*sys.argv[1:])
