"""Reads what gRPC's core writes to standard error, and reports failed TLS handshakes: it has no other interface.

The core names the client only in its traces of handshakes. They are for this module, and nobody else sees them. Lines
that it does not know go to standard error as they are.
"""

import os
import re
import select
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple
from urllib.parse import unquote

ENVIRONMENT: Final[Mapping[str, str]] = {"GRPC_TRACE": "handshaker"}
"""What gRPC must find in the environment when it is imported."""
_HEAD: Final = re.compile(r"[IWEF][0-9]{4} [0-9:.]+ +([0-9]+) ([a-z_]+\.(?:cc|h)):[0-9]+\] ")
_TRACES: Final = frozenset({"handshaker.cc", "channel_trace.h", "trace.cc"})
_REST: Final = re.compile(r"=== Source Location Trace|src/core/| shutdown=(?:true|false) index=|$")
"""The second and further lines of a trace."""
_FAILED: Final = "Handshake failed with error "
_PEER: Final = re.compile(r"endpoint_peer_address=(?:ipv[46]:)?([^,}]+)")
_IDLE: Final = 0.5
"""Seconds after which the name of a client is no longer expected."""


class FailedHandshake(NamedTuple):
    """A client that could not connect."""

    peer: str
    """Its address; empty if gRPC did not name it."""
    why: str
    """The text of the TLS library."""


class HandshakeLines:
    """Finds failed handshakes in the lines of gRPC's core."""

    def __init__(self) -> None:
        self._failed: dict[str, str] = {}
        self._thread = ""

    def take(self, line: str) -> FailedHandshake | str | None:
        """Return a failed handshake if the line completes one, the line if it is not about handshakes, or None."""
        head = _HEAD.match(line)
        if head is not None:
            self._thread = head[1]
            if _FAILED in line:
                self._failed[self._thread] = line.partition(_FAILED)[2].rstrip()
                return None
            if head[2] not in _TRACES:
                return line
        elif not _REST.match(line):
            return line
        peer = _PEER.search(line)
        if peer is None or self._thread not in self._failed:
            return None
        return FailedHandshake(unquote(peer[1]), self._failed.pop(self._thread))

    def rest(self) -> Iterator[FailedHandshake]:
        """Yield the failures whose client gRPC did not name."""
        found, self._failed = self._failed, {}
        yield from (FailedHandshake("", why) for why in found.values())


@contextmanager
def handshakes_reported(tell: Callable[[FailedHandshake], None]) -> Iterator[None]:
    """Report failed handshakes while the block runs, instead of what gRPC's core writes about them.

    Python's own standard error stays as it is. If the reader falls behind, lines are lost, and gRPC never waits.
    """
    sys.stderr.flush()
    error = os.dup(2)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    os.dup2(writer, 2)
    os.close(writer)
    before, sys.stderr = sys.stderr, os.fdopen(os.dup(error), "w", buffering=1, encoding="utf-8", errors="replace")
    ended = threading.Event()
    thread = threading.Thread(target=_read, args=(reader, error, tell, ended), name="gRPC lines", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ours, sys.stderr = sys.stderr, before
        ours.close()
        os.dup2(error, 2)
        ended.set()
        thread.join()
        os.close(reader)
        os.close(error)


def _read(reader: int, error: int, tell: Callable[[FailedHandshake], None], ended: threading.Event) -> None:
    lines = HandshakeLines()
    text = b""
    while True:
        ready = bool(select.select([reader], [], [], _IDLE)[0])
        if not ready:
            for failed in lines.rest():
                tell(failed)
            if ended.is_set():
                return
            continue
        data = os.read(reader, 1 << 16)
        if not data:
            return
        *whole, text = (text + data).split(b"\n")
        for line in whole:
            found = lines.take(line.decode(errors="replace"))
            if isinstance(found, str):
                os.write(error, line + b"\n")
            elif found is not None:
                tell(found)
