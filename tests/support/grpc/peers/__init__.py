"""Peers of other makers, each in a process of its own.

A peer is told what to do by a line of JSON: to serve at an address, to open a channel to a target, or both. It says
"ready" when it has begun. Each further line is a call through the channel; it answers with a line: the code and what
the server said. A server answers every call with the name of the peer.
"""

import json
import os
import queue
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
from tests.support.clients.npm import NODE, node_modules
from tests.support.eventually import START_LIMIT

HERE: Final = Path(__file__).parent
GRPCIO: Final = "grpcio"
GRPC_JS: Final = "grpc-js"
GRPC_GO: Final = "grpc-go"
PEERS: Final = (GRPCIO, GRPC_JS, GRPC_GO)
_BUILD_LIMIT: Final = 180


@dataclass(frozen=True)
class Answer:
    """How a call ended."""

    code: grpc.StatusCode
    said: str


class Peer:
    """A running peer."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def tell(self, orders: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(orders) + "\n")
        self._process.stdin.flush()

    def hear(self) -> Any:
        line = self._lines.get(timeout=START_LIMIT)
        assert line, "the peer has ended"
        return json.loads(line)

    def call(self, path: str, metadata: Sequence[tuple[str, str]] = (), timeout: float = 10.0) -> Answer:
        self.tell({"path": path, "metadata": metadata, "timeout": timeout})
        heard = self.hear()
        return Answer(_CODES[heard["code"]], heard["said"])


_CODES: Final = {each.value[0]: each for each in grpc.StatusCode}


@contextmanager
def running(argv: Sequence[str], bootstrap: Mapping[str, Any], orders: Mapping[str, Any]) -> Iterator[Peer]:
    """Start a peer, and end it."""
    # grpc-js asks for a locality in any case.
    node = {"id": "peer", "locality": {}}
    environment = {
        **os.environ,
        "GRPC_XDS_BOOTSTRAP_CONFIG": json.dumps({**bootstrap, "node": node}),
        "GRPC_VERBOSITY": "NONE",
        "GRPC_XDS_EXPERIMENTAL_RBAC": "true",  # grpc-js has it behind this
    }
    environment.pop("GRPC_XDS_BOOTSTRAP", None)
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True) as process:
        try:
            peer = Peer(process)
            peer.tell(orders)
            assert peer.hear() == "ready"
            yield peer
        finally:
            process.kill()


def peer_argv(name: str, config: pytest.Config) -> list[str]:
    """Return how a peer is started; the test is skipped where its language is missing."""
    match name:
        case "grpcio":
            return [sys.executable, str(HERE / "native.py")]
        case "grpc-js":
            return [str(NODE), str(HERE / "peer.mjs"), str(node_modules(config))]
        case _:
            return [str(_go_peer(config))]


def _go_peer(config: pytest.Config) -> Path:
    go = shutil.which("go")
    if go is None:
        pytest.skip("Go is not installed here")
    built = config.cache.mkdir("go") / "peer"
    source = max(each.stat().st_mtime for each in (HERE / "go").iterdir())
    if not built.exists() or built.stat().st_mtime < source:
        fault = _build(go, built)
        if fault:
            pytest.skip(f"the peer in Go cannot be built here: {fault}")
    return built


@cache
def _build(go: str, target: Path) -> str:
    """Build the peer, once; say why not if that fails, as it does where its modules cannot be had."""
    try:
        made = subprocess.run(
            [go, "build", "-o", str(target), "."],
            cwd=HERE / "go",
            check=False,
            capture_output=True,
            text=True,
            timeout=_BUILD_LIMIT,
        )
    except subprocess.TimeoutExpired:
        return f"it takes more than {_BUILD_LIMIT} s"
    return made.stderr[-300:] if made.returncode else ""
