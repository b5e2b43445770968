"""Servers of EPICS for tests: an IOC with records, and structures that p4p serves; on loopback, on ports of their own.

`python epics_servers.py` is the second one: it serves what stands in `SERVED`, and does what it reads on stdin.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import os
import platform
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

from ports import free_port


def need(library: Path) -> None:
    """Leave tests out where beamport or the Python that tests it was made without EPICS.

    `check` fails instead, on machines that have the wheels of both: nobody looks at what was left out there.
    """
    import pytest

    missing = [name for name in ("pvxslibs", "p4p") if importlib.util.find_spec(name) is None]
    missing += [] if library.is_file() else [str(library)]
    if not missing:
        return
    said = f"{', '.join(missing)} not installed: `cargo xtask setup`, then `pip install .`"
    has_wheels = platform.machine() == "x86_64" and sys.version_info < (3, 14)
    if has_wheels and os.environ.get("BEAMPORT_CHECK") == "1":
        pytest.fail(said)
    pytest.skip(said, allow_module_level=True)


@functools.cache
def repeater_port() -> str:
    """One for all: a process has one repeater."""
    return str(free_port())


def environment() -> dict[str, str]:
    """Settings with which one server and its clients meet each other and nobody else.

    Two servers on one address would not both get what a client searches.
    """
    names = ["PVA_BROADCAST_PORT", "PVA_SERVER_PORT", "CA_SERVER_PORT"]
    ports = {f"EPICS_{name}": str(free_port()) for name in names} | {"EPICS_CA_REPEATER_PORT": repeater_port()}
    servers = {
        "EPICS_PVAS_BROADCAST_PORT": ports["EPICS_PVA_BROADCAST_PORT"],
        "EPICS_PVAS_SERVER_PORT": ports["EPICS_PVA_SERVER_PORT"],
        "EPICS_CAS_SERVER_PORT": ports["EPICS_CA_SERVER_PORT"],
        "EPICS_CAS_BEACON_PORT": ports["EPICS_CA_REPEATER_PORT"],
    }
    lists = {f"EPICS_{name}_ADDR_LIST": "127.0.0.1" for name in ("PVA", "CA", "PVAS_INTF", "CAS_INTF")}
    lists |= {f"EPICS_{name}_BEACON_ADDR_LIST": "127.0.0.1" for name in ("PVAS", "CAS")}
    auto = ["PVA_AUTO_ADDR_LIST", "CA_AUTO_ADDR_LIST", "PVAS_AUTO_BEACON_ADDR_LIST", "CAS_AUTO_BEACON_ADDR_LIST"]
    return ports | servers | lists | {f"EPICS_{name}": "NO" for name in auto}


class Server:
    """A process that serves PVs until it is killed."""

    def __init__(self, command: list[str], ready: str, settings: dict[str, str]) -> None:
        """Start it, and wait for the line that says that it serves."""
        self.settings = settings
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            bufsize=1,
            env=os.environ | settings,
        )
        self.wait_for(ready)

    def wait_for(self, word: str) -> None:
        """Read what it prints until a line has the word."""
        said = []
        for line in self.process.stdout:
            said.append(line)
            if word in line:
                return
        raise RuntimeError(f"the server ended without `{word}`: {''.join(said)}")

    def tell(self, line: str) -> None:
        """Have it do something, and wait until it has."""
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        self.wait_for(f"did {line}")

    def kill(self) -> None:
        """kill -9; once is enough."""
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def __enter__(self) -> Server:
        """Serve while the block runs."""
        return self

    def __exit__(self, *_) -> None:
        """Kill it."""
        self.kill()


def ioc(database: Path, settings: dict[str, str] | None = None, inside: list[str] | None = None) -> Server:
    """An IOC with the records of a file, over pvAccess and Channel Access; `inside` of a network, if it is not ours."""
    command = [*(inside or []), sys.executable, "-m", "pvxslibs.ioc", "-d", str(database)]
    return Server(command, "IOC Running", settings or environment())


def structures(kind: str = "all", settings: dict[str, str] | None = None) -> Server:
    """The server of this file; `kind` is one of `SERVED` or `OTHERS`."""
    return Server([sys.executable, __file__, kind], "serving", settings or environment())


class Cable:
    """A network of its own for servers, and a cable between it and ours that is cut; needs root."""

    def __init__(self, settings: dict[str, str]) -> None:
        """Make it. In the settings, addresses of the loopback become its own."""
        number = os.getpid() % 16384
        self.name, self.ours, self.theirs = f"bp{number}", f"bpo{number}", f"bpt{number}"
        ours, theirs = (f"10.77.{number // 64}.{number % 64 * 4 + host}" for host in (1, 2))
        # A program run there keeps its process id.
        self.inside = ["ip", "netns", "exec", self.name]
        for name in settings:
            if name.endswith("ADDR_LIST"):
                is_beacon = name.endswith("BEACON_ADDR_LIST")
                settings[name] = settings[name].replace("127.0.0.1", ours if is_beacon else theirs)
        self._ip("netns", "add", self.name)
        self._ip("link", "add", self.ours, "type", "veth", "peer", "name", self.theirs, "netns", self.name)
        self._ip("address", "add", f"{ours}/30", "dev", self.ours)
        self._ip("link", "set", self.ours, "up")
        self._ip("-n", self.name, "address", "add", f"{theirs}/30", "dev", self.theirs)
        for device in ("lo", self.theirs):
            self._ip("-n", self.name, "link", "set", device, "up")

    def _ip(self, *words: str) -> None:
        subprocess.run(["ip", *words], check=True)

    def cut(self) -> None:
        """Nothing passes any more, and nobody hears of it."""
        self._ip("link", "set", self.ours, "down")

    def mend(self) -> None:
        """As before."""
        self._ip("link", "set", self.ours, "up")

    def __enter__(self) -> Cable:
        """Be there while the block runs."""
        return self

    def __exit__(self, *_) -> None:
        """Remove the network and with it the cable."""
        self._ip("netns", "delete", self.name)


class Refusing:
    """A name server and server of pvAccess that refuses the first subscriptions, then ends one, then has the value 7."""

    def __init__(self, refusals: int) -> None:
        """Listen, and answer in a thread."""
        self.refusals = refusals
        self.subscriptions = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def close(self) -> None:
        """End the thread."""
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.listener.close()

    def _serve(self) -> None:
        while True:
            try:
                peer = self.listener.accept()[0]
            except OSError:
                return
            # One peer after the other: a client has one connection to a server.
            with peer, peer.makefile("rb") as received:
                self._talk(peer, received)

    def _talk(self, peer: socket.socket, received) -> None:
        def send(command: int, payload: bytes, order: str = "<") -> None:
            flags = 0xC0 if order == ">" else 0x40
            peer.sendall(struct.pack(f"{order}BBBBI", 0xCA, 2, flags, command, len(payload)) + payload)

        peer.sendall(struct.pack("<BBBBI", 0xCA, 2, 0x41, 2, 0))
        send(1, struct.pack("<IH", 65536, 100) + b"\x01\x09anonymous")
        while len(header := received.read(8)) == 8:
            flags, command = header[2:4]
            # A search has the other order.
            order = ">" if flags & 0x80 else "<"
            (size,) = struct.unpack_from(f"{order}I", header, 4)
            if flags & 1:
                continue
            payload = received.read(size)
            if command == 1:
                send(9, b"\xff")
            elif command == 3:
                self._found(payload, order, send)
            elif command == 7:
                # Its number is the client's.
                send(7, payload[2:6] + payload[2:6] + b"\xff")
            elif command == 13:
                self._subscribed(payload[4:8], payload[8], send)

    def _found(self, payload: bytes, order: str, send) -> None:
        at = 26
        for _ in range(payload[at]):
            at += 1 + payload[at + 1]
        (count,) = struct.unpack_from(f"{order}H", payload, at + 1)
        if count == 0:
            return
        number = payload[at + 3 : at + 7]
        place = bytes(12) + payload[:4] + bytes(16) + struct.pack(f"{order}H", self.port) + b"\x03tcp"
        send(4, place + b"\x01" + struct.pack(f"{order}H", 1) + number, order)

    def _subscribed(self, number: bytes, what: int, send) -> None:
        if what & 0x08:
            self.subscriptions += 1
            if self.subscriptions <= self.refusals:
                send(13, number + b"\x08\x02\x0fnot before noon\x00")
            else:
                send(13, number + b"\x08\xff\x80\x00\x01\x05value\x22")
        elif what & 0x40:
            value = b"\x01\x01" + struct.pack("<i", 7) + b"\x00"
            send(13, number + b"\x00" + value)
            if self.subscriptions == self.refusals + 1:
                send(13, number + b"\x10\xff")


def _scalars() -> dict:
    from p4p.nt import NTScalar
    from p4p.server.thread import SharedPV

    values = {"?": True, "b": -5, "B": 250, "h": -3000, "H": 60000, "i": -70000, "I": 4000000000}
    values |= {"l": -(2**40), "L": 2**63 + 1, "f": 0.5, "d": 1e-300, "s": "word"}
    # The names of the PVs are the codes of p4p.
    return {f"S:{code}": SharedPV(nt=NTScalar(code), initial=value) for code, value in values.items()}


def image(pixels, dims: list[int], codec: str, identity: int, seconds: int = 1_700_000_001, nanos: int = 5):
    """An NTNDArray as areaDetector sends it."""
    from p4p import Value
    from p4p.nt import NTNDArray

    attribute = {"name": "gain", "value": 2.5, "descriptor": "of the amplifier", "source": "CAM:GAIN", "sourceType": 1}
    word = attribute | {"name": "mode", "value": "fast", "descriptor": "", "source": ""}
    empty = attribute | {"name": "none", "value": None, "descriptor": "", "source": ""}
    # The member of the union, which p4p would choose by itself.
    kinds = {"i1": "byte", "u1": "ubyte", "i2": "short", "u2": "ushort", "i4": "int", "u4": "uint", "i8": "long"}
    kinds |= {"u8": "ulong", "f4": "float", "f8": "double"}
    content = {
        "value": None if pixels is None else (kinds[pixels.dtype.str[1:]] + "Value", pixels),
        "dimension": [{"size": size, "fullSize": size, "binning": 1} for size in dims],
        "attribute": [attribute, word, empty],
        "uniqueId": identity,
        "compressedSize": 7,
        "uncompressedSize": 12,
        "codec.name": codec,
        "timeStamp": {"secondsPastEpoch": seconds, "nanoseconds": nanos, "userTag": 9},
        "dataTimeStamp": {"secondsPastEpoch": 1700000000, "nanoseconds": 250},
    }
    if codec:
        content["codec.parameters"] = 6
    value = Value(NTNDArray.buildType(), {})
    for name, part in content.items():
        if part is not None:
            value[name] = part
    return value


def _pvs() -> dict:
    import numpy
    from p4p import Type, Value
    from p4p.nt import NTEnum, NTScalar, NTTable
    from p4p.server.thread import SharedPV

    inner = ("S", "inner_t", [("x", "d"), ("names", "as")])
    union = ("U", "choice_t", [("number", "i"), ("word", "s")])
    other = Type(
        [("in", inner), ("one", union), ("any", "v"), ("many", ("aS", "row_t", [("n", "h")])), ("ok", "?")],
        id="facility:thing/1.0",
    )
    kept = {"in": {"x": 1.5, "names": ["a", "bc"]}, "one": ("word", "yes"), "any": 3, "many": [{"n": 1}, {"n": 2}]}
    plain = Type([("value", "ai"), ("note", "s")], id="facility:plain/1.0")
    table = NTTable([("timestamp", "L"), ("word", "s"), ("value", "d")])
    rows = [{"timestamp": 11, "word": "a", "value": 0.5}, {"timestamp": 12, "word": "bcd", "value": 1.5}]
    other_table = NTTable([("word", "s"), ("x", "d")])
    other_rows = [{"word": "a", "x": 0.5}, {"word": "bcd", "x": 1.5}]
    return {
        "T:RAMP": SharedPV(nt=NTScalar("l"), initial=0),
        "T:OTHER_RAMP": SharedPV(nt=NTScalar("l"), initial=0),
        "T:IMAGE": SharedPV(initial=image(None, [], "", 0)),
        "T:TABLE": SharedPV(nt=table, initial=rows),
        "T:OTHER_TABLE": SharedPV(nt=other_table, initial=other_rows),
        "T:THING": SharedPV(initial=Value(other, kept | {"ok": True})),
        "T:PLAIN": SharedPV(initial=Value(plain, {"value": numpy.array([3, 4], "i4")})),
        "T:ENUM": SharedPV(nt=NTEnum(), initial={"index": 1, "choices": ["off", "on"]}),
        "T:WORDS": SharedPV(nt=NTScalar("as"), initial=["x", "", "yz"]),
        "T:BOOLS": SharedPV(nt=NTScalar("a?"), initial=[True, False]),
    }


# Types of a PV that changes: the code of p4p, and its first value.
CHANGING = {"double": ("d", 1.5), "string": ("s", "text"), "array": ("ai", [1, 2]), "enum": (None, 1)}


def _open(pv, kind: str) -> None:
    from p4p.nt import NTEnum, NTScalar

    pv.kind = kind
    code, first = CHANGING[kind]
    if code is None:
        pv.open({"index": first, "choices": ["off", "on"]}, nt=NTEnum(), timestamp=time.time())
    else:
        pv.open(first, nt=NTScalar(code), timestamp=time.time())


def _changing(kind: str) -> dict:
    from p4p.server.thread import SharedPV

    pv = SharedPV()
    _open(pv, kind)
    return {"C:VALUE": pv}


def _softioc() -> None:
    import numpy
    from softioc import asyncio_dispatcher, builder, softioc

    builder.SetDeviceName("P")
    count = builder.longIn("COUNT", initial_value=0, EGU="mm")
    builder.stringIn("TEXT", initial_value="word")
    builder.WaveformIn("WAVE", initial_value=numpy.array([1.5, 2.5]))
    builder.mbbIn("CHOICE", "off", "on", initial_value=1)
    builder.LoadDatabase()
    softioc.iocInit(asyncio_dispatcher.AsyncioDispatcher())
    print("serving", flush=True)
    for value in itertools.count(1):
        count.set(value)
        time.sleep(0.05)


def _caproto() -> None:
    from caproto import ChannelType
    from caproto.server import PVGroup, pvproperty, run

    class Group(PVGroup):
        """The same PVs as of softioc."""

        count = pvproperty(value=0, name="COUNT", units="mm")
        text = pvproperty(value="word", name="TEXT", dtype=ChannelType.STRING)
        wave = pvproperty(value=[1.5, 2.5], name="WAVE")
        choice = pvproperty(value="on", name="CHOICE", enum_strings=["off", "on"], dtype=ChannelType.ENUM)

        @count.startup
        async def count(self, instance, library):
            for value in itertools.count(1):
                await instance.write(value)
                await library.sleep(0.05)

    print("serving", flush=True)
    run(Group(prefix="P:").pvdb, interfaces=["127.0.0.1"])


# Servers of others; `P:COUNT` of them counts up.
OTHERS = {"softioc": _softioc, "caproto": _caproto}

# What this server serves, by its argument.
SERVED = {
    "all": lambda: _scalars() | _pvs(),
} | {kind: functools.partial(_changing, kind) for kind in CHANGING}


def _do(pvs: dict, line: str) -> None:
    import numpy

    words = line.split()
    if words[0] == "ramp":
        # The values 1 to N of two PVs, in turn.
        for value in range(1, int(words[1]) + 1):
            for pv in (pvs["T:RAMP"], pvs["T:OTHER_RAMP"]):
                pv.post(value, timestamp=time.time())
    elif words[0] == "count":
        # The values FIRST to END of C:VALUE, in its type.
        pv = pvs["C:VALUE"]
        make = {"double": float, "string": str, "array": lambda value: [value, value + 1], "enum": int}[pv.kind]
        for value in range(int(words[1]), int(words[2])):
            pv.post(make(value), timestamp=time.time())
    elif words[0] == "change":
        pvs["C:VALUE"].close(destroy=True)
        _open(pvs["C:VALUE"], words[1])
    elif words[0] == "stamp":
        pvs["T:RAMP"].post(int(words[1]), timestamp=divmod(int(words[2]), 10**9))
    elif words[0] == "alarm":
        value = pvs["T:RAMP"].current().raw
        changed = value.type()({"alarm": {"severity": 2, "status": 3, "message": "too hot"}})
        pvs["T:RAMP"].post(changed)
    elif words[0] == "image":
        pixels = numpy.arange(6, dtype=words[1])
        pvs["T:IMAGE"].post(image(pixels, [3, 2], words[2] if len(words) > 2 else "", 77))
    elif words[0] == "pixel":
        # One image with the time of now, this number and this size in bytes.
        number, size = map(int, words[1:])
        pixels = numpy.full(size, number, "u1")
        pvs["T:IMAGE"].post(image(pixels, [size], "", number, *divmod(time.time_ns(), 10**9)))
    elif words[0] == "pixels":
        # One image after the other, each of this size in bytes.
        for identity in range(1, int(words[1]) + 1):
            pixels = numpy.full(int(words[2]), identity % 256, "u1")
            pvs["T:IMAGE"].post(image(pixels, [int(words[2])], "", identity, int(time.time())))


def main() -> None:
    """Serve until stdin ends."""
    from p4p.server import Server as PvaServer

    if sys.argv[1] in OTHERS:
        return OTHERS[sys.argv[1]]()
    pvs = SERVED[sys.argv[1]]()
    for pv in pvs.values():
        pv.put(lambda _pv, operation: (_pv.post(operation.value()), operation.done()))
    with PvaServer(providers=[pvs]):
        print("serving", flush=True)
        for line in sys.stdin:
            _do(pvs, line.strip())
            print(f"did {line.strip()}", flush=True)


if __name__ == "__main__":
    main()
