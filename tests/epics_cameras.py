"""Cameras of two server libraries, for tests: PvaPy is on pvDatabase, p4p on PVXS. Their frames have attributes of all
kinds: `gain` (a number), `axis` (an array), `motor` (a structure) and `names` (texts, for which a message has no place).

`python epics_cameras.py pvapy|p4p NAME` serves an image. Each line on stdin, `IDS SECONDS`, makes it send frames without
a pause. IDS are ids and ranges, like `1-500,502,501`. SECONDS is their time stamp, s since 1970 UTC, or `now`. With a
third word frames are compressed by this codec.
"""

from __future__ import annotations

import io
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


def ramp(number: int, codec: str) -> np.ndarray:
    """The image of a compressed frame, 48 x 64; of JPEG, which has 8 bits, a smooth one."""
    if codec == "jpeg":
        return (np.add.outer(np.arange(48), np.arange(64)) + number).astype(np.uint8)
    return (np.arange(48 * 64).reshape(48, 64) // 3 + number).astype(np.uint16)


def packed(image: np.ndarray, codec: str) -> bytes:
    """The image as the codecs of areaDetector pack it. Peers: libhdf5 with the filters of hdf5plugin, and Pillow."""
    if codec == "jpeg":
        from PIL import Image

        file = io.BytesIO()
        Image.fromarray(image).save(file, "JPEG", quality=95)
        return file.getvalue()
    if codec == "unknown":
        return bytes(100)
    import h5py
    import hdf5plugin

    filters = {"lz4": hdf5plugin.LZ4(), "bslz4": hdf5plugin.Bitshuffle(nelems=0, cname="lz4")}
    for cname in ("blosclz", "lz4", "zlib", "zstd"):
        filters[f"blosc-{cname}"] = hdf5plugin.Blosc(cname=cname)
    file = io.BytesIO()
    with h5py.File(file, "w") as made:
        dataset = made.create_dataset("x", data=image, chunks=image.shape, **filters[codec])
        mask, chunk = dataset.id.read_direct_chunk((0,) * image.ndim)
    assert mask == 0
    # HDF5 has the sizes before: of all and of a block, and for LZ4 of the only block.
    return chunk[{"lz4": 16, "bslz4": 12}.get(codec, 0) :]


def serve_pvapy(name: str) -> Callable[[int, float, str], None]:
    """Send by PvaPy."""
    import pvaccess
    from pvapy.utility.adImageUtility import AdImageUtility

    # Of an object PvaPy takes the field `value` alone: a structure.
    motor = pvaccess.PvObject({"value": {"value": pvaccess.DOUBLE, "units": pvaccess.STRING}})
    names = pvaccess.PvObject({"value": [pvaccess.STRING]}, {"value": ["a", "b"]})

    def frame(number: int, codec: str = "") -> pvaccess.PvObject:
        made = AdImageUtility.generateNtNdArray2D(number, pixels(number))
        if codec:
            image = ramp(number, codec)
            data = np.frombuffer(packed(image, codec), np.uint8)
            word = codec.partition("-")[0]
            made = AdImageUtility.generateNtNdArray2D(number, data, 64, 48, image.dtype.name, word)
        motor["value"] = {"value": number / 2, "units": "mm"}
        values = {"gain": pvaccess.PvDouble(number), "axis": pvaccess.PvScalarArray(pvaccess.DOUBLE), "motor": motor}
        values["axis"]["value"] = [number + 0.5, 1.5]
        attributes = [pvaccess.NtAttribute(key, value) for key, value in (values | {"names": names}).items()]
        made["attribute"] = attributes
        return made

    server = pvaccess.PvaServer(name, frame(0))

    def send(number: int, seconds: float, codec: str) -> None:
        made = frame(number, codec)
        made["timeStamp"] = pvaccess.PvTimeStamp(seconds)
        server.update(name, made)

    return send


def serve_p4p(name: str) -> Callable[[int, float, str], None]:
    """Send by p4p."""
    from p4p import Type, Value
    from p4p.nt import NTNDArray
    from p4p.server import Server as P4pServer
    from p4p.server import StaticProvider
    from p4p.server.thread import SharedPV

    kind = NTNDArray.buildType()
    motor = Type([("value", "d"), ("units", "s")])

    def frame(number: int, seconds: float, codec: str = "") -> Value:
        stamp = {"secondsPastEpoch": int(seconds), "nanoseconds": int(seconds % 1 * 1e9)}
        image = ramp(number, codec) if codec else pixels(number)
        data = np.frombuffer(packed(image, codec), np.uint8) if codec else image.ravel()
        # As pvData numbers its types.
        parameters = {"uint8": 5, "uint16": 6}[image.dtype.name]
        return Value(
            kind,
            {
                "value": ("ubyteValue", data),
                "codec": {"name": codec.partition("-")[0], "parameters": parameters} if codec else {},
                "dimension": [{"size": size, "fullSize": size} for size in reversed(image.shape)],
                "uncompressedSize": image.nbytes,
                "compressedSize": data.nbytes,
                "uniqueId": number,
                "timeStamp": stamp,
                "dataTimeStamp": stamp,
                "attribute": [
                    {"name": "gain", "value": float(number)},
                    {"name": "axis", "value": np.array([number + 0.5, 1.5])},
                    {"name": "motor", "value": Value(motor, {"value": number / 2, "units": "mm"})},
                    {"name": "names", "value": ["a", "b"]},
                ],
            },
        )

    pv = SharedPV(initial=frame(0, time.time()))
    provider = StaticProvider("cameras")
    provider.add(name, pv)
    # It lives as long as the function that sends.
    server = P4pServer(providers=[provider])

    def send(number: int, seconds: float, codec: str, _server: P4pServer = server) -> None:
        pv.post(frame(number, seconds, codec))

    return send


if __name__ == "__main__":
    send = {"pvapy": serve_pvapy, "p4p": serve_p4p}[sys.argv[1]](sys.argv[2])
    print("serving", flush=True)
    for line in sys.stdin:
        ids, seconds, *codec = line.split()
        for part in ids.split(","):
            first, _, last = part.partition("-")
            for number in range(int(first), int(last or first) + 1):
                send(number, time.time() if seconds == "now" else float(seconds), "".join(codec))
        print(f"did {line.strip()}", flush=True)
