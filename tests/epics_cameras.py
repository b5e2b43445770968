"""Cameras of two server libraries, for tests: PvaPy is on pvDatabase, p4p on PVXS.

`python epics_cameras.py pvapy|p4p NAME` serves an image. Each line on stdin, `IDS SECONDS`, makes it send frames without
a pause. IDS are ids and ranges, like `1-500,502,501`. SECONDS is their time stamp, s since 1970 UTC, or `now`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np
from epics_servers import Server

SIDE = 64
KINDS = ["pvapy", "p4p"]


def camera(kind: str, name: str, settings: dict[str, str]) -> Server:
    """A camera of 64 x 64 bytes, each the lowest byte of the frame's id."""
    return Server([sys.executable, __file__, kind, name], "serving", settings)


def pixels(number: int) -> np.ndarray:
    """The image of a frame."""
    return np.full((SIDE, SIDE), number % 256, np.uint8)


def serve_pvapy(name: str) -> Callable[[int, float], None]:
    """Send by PvaPy."""
    import pvaccess
    from pvapy.utility.adImageUtility import AdImageUtility

    server = pvaccess.PvaServer(name, AdImageUtility.generateNtNdArray2D(0, pixels(0)))

    def send(number: int, seconds: float) -> None:
        frame = AdImageUtility.generateNtNdArray2D(number, pixels(number))
        frame["timeStamp"] = pvaccess.PvTimeStamp(seconds)
        server.update(name, frame)

    return send


def serve_p4p(name: str) -> Callable[[int, float], None]:
    """Send by p4p."""
    from p4p import Value
    from p4p.nt import NTNDArray
    from p4p.server import Server as P4pServer
    from p4p.server import StaticProvider
    from p4p.server.thread import SharedPV

    kind = NTNDArray.buildType()

    def frame(number: int, seconds: float) -> Value:
        stamp = {"secondsPastEpoch": int(seconds), "nanoseconds": int(seconds % 1 * 1e9)}
        return Value(
            kind,
            {
                "value": ("ubyteValue", pixels(number).ravel()),
                "dimension": [{"size": SIDE, "fullSize": SIDE}] * 2,
                "uncompressedSize": SIDE * SIDE,
                "compressedSize": SIDE * SIDE,
                "uniqueId": number,
                "timeStamp": stamp,
                "dataTimeStamp": stamp,
            },
        )

    pv = SharedPV(initial=frame(0, time.time()))
    provider = StaticProvider("cameras")
    provider.add(name, pv)
    # It lives as long as the function that sends.
    server = P4pServer(providers=[provider])

    def send(number: int, seconds: float, _server: P4pServer = server) -> None:
        pv.post(frame(number, seconds))

    return send


if __name__ == "__main__":
    send = {"pvapy": serve_pvapy, "p4p": serve_p4p}[sys.argv[1]](sys.argv[2])
    print("serving", flush=True)
    for line in sys.stdin:
        ids, seconds = line.split()
        for part in ids.split(","):
            first, _, last = part.partition("-")
            for number in range(int(first), int(last or first) + 1):
                send(number, time.time() if seconds == "now" else float(seconds))
        print(f"did {line.strip()}", flush=True)
