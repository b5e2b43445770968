"""Ports of this machine for tests: each is one program's until the process that asked for it ends.

`crates/testkit/src/ports.rs` follows the same rule, so programs in Rust and in Python that run at once agree.
"""

from __future__ import annotations

import random
import socket
from pathlib import Path

LOWEST, HIGHEST = 10_000, 32_000
TRIES = 1000

# Names that hold the ports of this process.
_held: list[socket.socket] = []


def free_port() -> int:
    """A port of TCP and UDP that is this process's until it ends: for programs that it starts, and starts again."""
    return free_ports(1)[0]


def free_ports(count: int) -> range:
    """As many ports, one behind the other.

    The kernel gives ports of the ephemeral range to any connection, so these lie below. A socket with an abstract name
    holds each: such a name belongs to the network namespace, as the port does, and ends with its process.
    """
    ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    end = max(min(HIGHEST, ephemeral), LOWEST + TRIES)
    for _ in range(TRIES):
        first = random.SystemRandom().randrange(LOWEST, end - count + 1)
        names = []
        try:
            for port in range(first, first + count):
                names.append(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
                _hold(names[-1], port)
        except OSError:
            for name in names:
                name.close()
            continue
        _held.extend(names)
        return range(first, first + count)
    raise OSError(f"no free ports were found in {TRIES} tries")


def _hold(name: socket.socket, port: int) -> None:
    """Give the socket the name that holds the port; an error where a program has the name or uses the port."""
    name.bind(f"\0beamport-port-{port}")
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_INET, kind) as probe:
            probe.bind(("", port))
