"""Ports that nobody else takes."""

import contextlib
import os
import socket
from itertools import count
from typing import Final

_PORTS: Final = count(10_240 + os.getpid() * 61 % 16_000)
"""Below those that the system gives to whoever connects: such a one could take the port of a server that is to start,
or a client that comes too early could connect to itself."""


def free_port() -> int:
    """Return a port that nobody has, and that nobody is given unless they ask for it."""
    while True:
        port = 10_240 + (next(_PORTS) - 10_240) % 22_000
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
