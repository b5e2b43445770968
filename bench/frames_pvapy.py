"""The peer of `beamport-bench frames`: PvaPy's own programs on this machine, as its documentation starts them.

    frames_pvapy.py SCENARIO SIDE RATE SECONDS

SCENARIO: consumers1, consumers4 (frames dealt to four), fan4 (four that see all), collector4 (four, and one that orders
what they publish), join1 and join4 (six metadata channels, joined in each consumer). A simulator publishes SIDE x SIDE
frames of uint8 at RATE for SECONDS; the processor touches every byte of each frame, one a call, and passes it on.

Prints: frames that came out at the end, seconds between the first and the last of them, processor seconds of all
processes, frames that went missing (published and not seen), and what the last stage saw out of order.
"""

import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import time

PROCESSOR = '''
import json, os, signal, time
import numpy as np
from pvapy.hpc.userDataProcessor import UserDataProcessor


class Counts(UserDataProcessor):
    """What came: how many, which, when. Written at the end, one file a process."""

    def __init__(self, config={}):
        UserDataProcessor.__init__(self, config)
        self.folder, self.role = config["folder"], config["role"]
        self.count = self.low = self.high = self.wrong = 0
        self.begin = self.end = 0.0

    def note(self, number):
        now = time.monotonic()
        if self.count == 0:
            self.begin, self.low = now, number
        self.wrong += number <= self.high
        self.count, self.high, self.end = self.count + 1, max(self.high, number), now

    def stop(self):
        said = {name: getattr(self, name) for name in ("role", "count", "low", "high", "begin", "end", "wrong")}
        path = os.path.join(self.folder, f"{self.role}-{os.getpid()}.json")
        with open(path, "w") as file:
            json.dump(said, file)


class Touch(Counts):
    def process(self, pv):
        pv["value"][0]["ubyteValue"].max()
        self.note(pv["uniqueId"])
        self.updateOutputChannel(pv)
        return pv


class Pass(Counts):
    def process(self, pv):
        self.note(pv["uniqueId"])
        self.updateOutputChannel(pv)
        return pv


class Join(Counts):
    """The nearest value of each channel, in order, as the documentation's example of a metadata processor has it."""

    TOLERANCE = 0.001

    def __init__(self, config={}):
        super().__init__(config)
        self.held = {}

    def process(self, pv):
        import pvaccess

        at = pv["timeStamp"]["secondsPastEpoch"] + pv["timeStamp"]["nanoseconds"] * 1e-9
        attributes = pv["attribute"] if "attribute" in pv else []
        whole = True
        for channel, queue in self.metadataQueueMap.items():
            while True:
                try:
                    held = self.held.get(channel) or self.held.setdefault(channel, queue.get(0))
                except pvaccess.QueueEmpty:
                    whole = False
                    break
                stamp = held["timeStamp"]["secondsPastEpoch"] + held["timeStamp"]["nanoseconds"] * 1e-9
                if abs(at - stamp) <= self.TOLERANCE:
                    attributes.append(pvaccess.NtAttribute(channel, pvaccess.PvFloat(held["value"])))
                    del self.held[channel]
                    break
                if stamp > at:
                    whole = False
                    break
                del self.held[channel]
        pv["attribute"] = attributes
        pv["value"][0]["ubyteValue"].max()
        if whole:
            self.note(pv["uniqueId"])
        self.updateOutputChannel(pv)
        return pv
'''

CHANNELS = [f"bench:value{i}" for i in range(6)]


def main(scenario, side, rate, seconds):
    # Where it is ignored, as behind `nohup ... &`, the programs would not hear that they are to end.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryDirectory() as folder:
        print(*run(pathlib.Path(folder), scenario, side, rate, seconds))


def run(folder, scenario, side, rate, seconds):
    (folder / "processor.py").write_text(PROCESSOR)
    programs = pathlib.Path(sys.executable).parent
    queue = "1000" if side <= 1024 else "60"
    children = []

    def start(program, *args):
        # In a session of its own: a stop reaches its own children too.
        log = open(folder / f"log{len(children)}", "wb")
        command = [str(programs / program), *map(str, args)]
        children.append(
            subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder, start_new_session=True
            )
        )
        return children[-1]

    def processor(name, role):
        told = json.dumps({"folder": str(folder), "role": role})
        return ["--processor-file", "processor.py", "--processor-class", name, "--processor-args", told]

    kind, count = scenario[:-1], int(scenario[-1])
    consumer = ["--input-channel", "bench:image", "--server-queue-size", queue, "--report-period", "0"]
    for role in ("control", "status", "output"):
        consumer += [f"--{role}-channel", f"consumer:*:{role}"]
    consumer += ["--n-consumers", count, "--disable-curses"]
    if kind != "fan" and count > 1:
        consumer += ["--distributor-updates", "1"]
    if kind == "join":
        consumer += ["--metadata-channels", ",".join(f"pva://{c}" for c in CHANNELS)]
        # A frame waits for its values.
        consumer += ["--receiver-queue-size", "1000", "--accumulate-objects", "10"]
    begun = resource.getrusage(resource.RUSAGE_CHILDREN)
    if kind == "collector":
        # fmt: off
        start("pvapy-hpc-collector", "--collector-id", "1", "--producer-id-list", "1,2,3,4",
              "--input-channel", "consumer:*:output", "--control-channel", "collector:*:control",
              "--status-channel", "collector:*:status", "--output-channel", "collector:*:output",
              *processor("Pass", "collector"), "--report-period", "0", "--server-queue-size", queue,
              "--collector-cache-size", "100", "--disable-curses")
        # fmt: on
    start("pvapy-hpc-consumer", *consumer, *processor("Join" if kind == "join" else "Touch", "consumer"))
    time.sleep(2)
    metadata = ["-mpv", ",".join(f"pva://{c}" for c in CHANNELS)] if kind == "join" else []
    # fmt: off
    simulator = start("pvapy-ad-sim-server", "-cn", "bench:image", "-nx", side, "-ny", side, "-dt", "uint8",
                      "-rt", seconds, "-fps", rate, "-nf", 4 if side > 1024 else 16, "-std", 3, "-shd", 2, "-rp", 0, "-dc", *metadata)
    # fmt: on
    simulator.wait(timeout=seconds + 60)
    # The collector lets its last ones go after five seconds of silence.
    time.sleep(7 if kind == "collector" else 2)
    for child in children:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGINT)
    for child in children:
        try:
            child.wait(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = ended.ru_utime + ended.ru_stime - begun.ru_utime - begun.ru_stime
    said = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    last = [s for s in said if s["role"] == ("collector" if kind == "collector" else "consumer") and s["count"]]
    if not last:
        logs = "\n".join(path.read_text(errors="replace")[-2000:] for path in sorted(folder.glob("log*")))
        sys.exit(f"{logs}\nno frame came out")
    frames, high, low = (sum(s["count"] for s in last), max(s["high"] for s in last), min(s["low"] for s in last))
    copies = count if kind == "fan" else 1
    elapsed = max(s["end"] for s in last) - min(s["begin"] for s in last)
    return frames, elapsed, cpu, copies * (high - low + 1) - frames, sum(s["wrong"] for s in last)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]))
