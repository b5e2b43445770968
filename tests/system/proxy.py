"""A TCP proxy for tests: it forwards connections, holds one direction back, and cuts."""

import queue
import socket
import struct
import threading

RESET = struct.pack("ii", 1, 0)


class Connection:
    """One connection; each direction has a reader, a queue without a limit, and a writer that a gate stops."""

    def __init__(self, client: socket.socket, server: socket.socket):
        self.ends = (client, server)
        self.gates = {}
        for way, source, target in (("up", client, server), ("down", server, client)):
            self.gates[way] = threading.Event()
            self.gates[way].set()
            pieces = queue.Queue()
            threading.Thread(target=self.read, args=(source, pieces), daemon=True).start()
            threading.Thread(target=self.write, args=(way, target, pieces), daemon=True).start()

    @staticmethod
    def read(source: socket.socket, pieces: queue.Queue):
        """Takes all that comes, also while the gate is closed: a process that dies then has sent it."""
        try:
            while piece := source.recv(1 << 16):
                pieces.put(piece)
        except OSError:
            pass
        pieces.put(b"")

    def write(self, way: str, target: socket.socket, pieces: queue.Queue):
        """Forwards what was read, and its end."""
        try:
            while piece := pieces.get():
                self.gates[way].wait()
                target.sendall(piece)
            self.gates[way].wait()
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def cut(self):
        """Resets both ends; what was held back is gone."""
        for end in self.ends:
            try:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                end.shutdown(socket.SHUT_RD)
                end.close()
            except OSError:
                pass
        for gate in self.gates.values():
            gate.set()


class Proxy:
    """Listens on a port of the loopback for a server on another one."""

    def __init__(self, port: int, server: int):
        self.server = server
        self.address = f"127.0.0.1:{port}"
        self.connections: list[Connection] = []
        self.listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        """Forwards each connection; one that the server refuses is closed."""
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.server))
            except OSError:
                client.close()
                continue
            self.connections.append(Connection(client, server))

    def hold(self, *ways: str):
        """Holds back what the connections of now send `up` (to the server) or `down`."""
        for connection in self.connections:
            for way in ways:
                connection.gates[way].clear()

    def release(self):
        """Forwards what was held back."""
        for connection in self.connections:
            for gate in connection.gates.values():
                gate.set()

    def cut(self):
        """Resets all connections."""
        connections, self.connections = self.connections, []
        for connection in connections:
            connection.cut()

    def close(self):
        """Ends it."""
        # The thread that accepts would keep it open.
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.cut()
