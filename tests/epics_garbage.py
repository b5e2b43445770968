"""Servers of pvAccess and Channel Access that send garbage or stop in the middle of a message.

One thread answers every search for a PV `G:...`, each with an address of its own, so that a client makes a connection
for each name. A connection is a conversation of a server that serves such a PV; dice choose a message of the server
that is cut, changed or replaced, and whether the connection is then closed or left open.
"""

from __future__ import annotations

import itertools
import random
import socket
import struct
import threading

CA_VERSION, CA_EVENT_ADD, CA_SEARCH, CA_ERROR, CA_READ_NOTIFY = 0, 1, 6, 11, 15
CA_CREATE, CA_WRITE_NOTIFY, CA_RIGHTS, CA_ECHO, CA_GONE = 18, 19, 22, 23, 27
DBR_TIME_DOUBLE = 20


class SpoiledError(Exception):
    """The message that ends a conversation was sent."""


class Garbage:
    """What both protocols share; `over` counts conversations that have ended."""

    # Before values come, a server sends about five messages; one of the first `messages` is spoiled.
    messages = 12

    def __init__(self, seed: int) -> None:
        """Listen on a port of its own, for searches by UDP and connections to all addresses of the loopback."""
        self.dice = random.Random(seed)
        self.over = 0
        self.lock = threading.Lock()
        self.numbers = itertools.count(1)
        self.open: list[socket.socket] = []
        self.listener = socket.create_server(("0.0.0.0", 0), backlog=4096)
        self.port = self.listener.getsockname()[1]
        self.searches = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.searches.bind(("127.0.0.1", 0))
        self.search_port = self.searches.getsockname()[1]
        for work in (self._search, self._accept):
            threading.Thread(target=work, daemon=True).start()

    def kill(self) -> None:
        """End it; connections that were left open are closed."""
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.searches.close()
        self.let_go()

    def let_go(self) -> None:
        """Close what was left open."""
        kept, self.open = self.open, []
        for peer in kept:
            peer.close()

    def address(self) -> bytes:
        """An address of the loopback that nobody got before."""
        number = next(self.numbers) % (1 << 23)
        return struct.pack("!I", 0x7F800000 + number)

    def _search(self) -> None:
        while True:
            try:
                packet, peer = self.searches.recvfrom(65536)
                for answer in self.found(packet):
                    self.searches.sendto(answer, peer)
            except OSError:
                return

    def _accept(self) -> None:
        while True:
            try:
                peer = self.listener.accept()[0]
            except OSError:
                return
            dice = random.Random(self.dice.random())
            threading.Thread(target=self._converse, args=[peer, dice], daemon=True).start()

    def _converse(self, peer: socket.socket, dice: random.Random) -> None:
        patience = dice.randrange(self.messages)

        def send(message: bytes, is_whole: bool = False) -> None:
            nonlocal patience
            patience -= not is_whole
            if patience >= 0 or is_whole:
                peer.sendall(message)
                return
            peer.sendall(spoil(message, dice))
            raise SpoiledError

        peer.settimeout(2)
        try:
            with peer.makefile("rb") as received:
                self.talk(send, received)
        except (OSError, SpoiledError, struct.error, IndexError):
            pass
        if dice.random() < 0.5:
            peer.close()
        else:
            self.open.append(peer)
        with self.lock:
            self.over += 1


def spoil(message: bytes, dice: random.Random) -> bytes:
    """A message that is cut, changed, of another length, or random."""
    kind = dice.randrange(5)
    if kind == 0:
        return message[: dice.randrange(len(message) + 1)]
    if kind == 1:
        changed = bytearray(message)
        for _ in range(dice.randrange(1, 5)):
            changed[dice.randrange(len(changed))] = dice.randrange(256)
        return bytes(changed)
    if kind == 2:
        # The header stays, so that what follows is read as what it announces.
        return message[:8] + dice.randbytes(max(len(message) - 8, 0))
    if kind == 3:
        sizes = [0xFFFFFFFF, 0x7FFFFFFF, 1, 0]
        return message[:4] + struct.pack("<I", dice.choice(sizes)) + message[8:]
    return dice.randbytes(dice.randrange(1, 4096))


class PvaGarbage(Garbage):
    """Of pvAccess."""

    def found(self, packet: bytes) -> list[bytes]:
        """Answers to a search."""
        if len(packet) < 34 or packet[3] != 3:
            return []
        order = ">" if packet[2] & 0x80 else "<"
        at = 8 + 26
        for _ in range(packet[at]):
            at += 1 + packet[at + 1]
        (count,) = struct.unpack_from(f"{order}H", packet, at + 1)
        at += 3
        answers = []
        for _ in range(count):
            number, size = packet[at : at + 4], packet[at + 4]
            name = packet[at + 5 : at + 5 + size]
            at += 5 + size
            if name.startswith(b"G:"):
                place = self.dice.randbytes(12) + packet[8:12] + bytes(10) + b"\xff\xff" + self.address()
                place += struct.pack(f"{order}H", self.port) + b"\x03tcp\x01" + struct.pack(f"{order}H", 1) + number
                header = struct.pack(f"{order}BBBBI", 0xCA, 2, packet[2] & 0x80 | 0x40, 4, len(place))
                answers.append(header + place)
        return answers

    def talk(self, send, received) -> None:
        """A conversation about a PV whose value rises."""

        def message(command: int, payload: bytes) -> bytes:
            return struct.pack("<BBBBI", 0xCA, 2, 0x40, command, len(payload)) + payload

        def say(command: int, payload: bytes) -> None:
            send(message(command, payload))

        validation = message(1, struct.pack("<IH", 65536, 100) + b"\x01\x09anonymous")
        send(struct.pack("<BBBBI", 0xCA, 2, 0x41, 2, 0))
        # Never spoiled: PVXS 1.5 counts through the methods of authentication of a message that it could not read, up
        # to 2^32 of them, and its one thread does nothing else for a minute or two (docs/reference/epics.md).
        send(validation, is_whole=True)
        while len(header := received.read(8)) == 8:
            flags, command = header[2:4]
            if flags & 1:
                continue
            payload = received.read(struct.unpack_from("<I", header, 4)[0])
            if command == 1:
                say(9, b"\xff")
            elif command == 7:
                say(7, payload[2:6] + payload[2:6] + b"\xff")
            elif command == 13 and payload[8] & 0x08:
                # A structure with a number, texts, and a union of anything.
                fields = b"\x05value\x43\x05texts\x68\x03any\x82\x05alarm\x80\x00\x01\x08severity\x22"
                say(13, payload[4:8] + b"\x08\xff\x80\x15epics:nt/NTScalar:1.0\x04" + fields)
            elif command == 13 and payload[8] & 0x40:
                for value in range(20):
                    content = struct.pack("<d", value) + b"\x02\x01a\x02bc" + b"\x23" + bytes(8) + bytes(4)
                    say(13, payload[4:8] + b"\x00\x01\x01" + content + b"\x00")


def _ca(command: int, kind: int, count: int, first: int, second: int, payload: bytes = b"") -> bytes:
    return struct.pack("!HHHHII", command, len(payload), kind, count, first, second) + payload


class CaGarbage(Garbage):
    """Of Channel Access."""

    def found(self, packet: bytes) -> list[bytes]:
        """Answers to a search."""
        answers, at = [], 0
        while at + 16 <= len(packet):
            command, size, _, _, number, _ = struct.unpack_from("!HHHHII", packet, at)
            name = packet[at + 16 : at + 16 + size]
            at += 16 + size
            if command == CA_SEARCH and name.startswith(b"G:"):
                (address,) = struct.unpack("!I", self.address())
                answers.append(_ca(CA_VERSION, 0, 13, 0, 0) + self._place(address, number))
        return answers

    def _place(self, address: int, number: int) -> bytes:
        return _ca(CA_SEARCH, self.port, 0, address, number, struct.pack("!H6x", 13))

    def talk(self, send, received) -> None:
        """A conversation about a PV whose value rises."""
        send(_ca(CA_VERSION, 0, 13, 0, 0))
        while len(header := received.read(16)) == 16:
            command, size, kind, _, first, second = struct.unpack("!HHHHII", header)
            received.read(size)
            if command == CA_CREATE:
                send(_ca(CA_RIGHTS, 0, 0, first, 3))
                send(_ca(CA_CREATE, 6, 1, first, 1))
            elif command == CA_EVENT_ADD:
                content = bytes(16 if kind == DBR_TIME_DOUBLE else 80)
                for value in range(1 if kind != DBR_TIME_DOUBLE else 20):
                    send(_ca(CA_EVENT_ADD, kind, 1, 1, second, content + struct.pack("!d", value)))
            elif command == CA_ECHO:
                send(header)


class CaLiar(CaGarbage):
    """Says of each subscription what is well formed and wrong: elements that it does not send, answers to no request."""

    messages = 1 << 62

    def talk(self, send, received) -> None:
        """Beside each value, a lie."""

        def say(message: bytes) -> None:
            send(message)
            command, _, kind, _, _, second = struct.unpack_from("!HHHHII", message)
            if command == CA_EVENT_ADD and kind == DBR_TIME_DOUBLE:
                for answer in (CA_READ_NOTIFY, CA_WRITE_NOTIFY):
                    send(_ca(answer, kind, 1, 1, second, message[16:]))
                    request = _ca(answer, kind, 1, 1, second)
                    send(_ca(CA_ERROR, 0, 0, 0, 192, request + b"no end of a text"))
                for command in (CA_CREATE, CA_GONE):
                    send(_ca(command, 6, 1, 0, 1))
                send(message[:6] + b"\xff\xf0" + message[8:])

        super().talk(say, received)
