"""Everything that runs: the programs as users start them, an issuer, an origin, and a folder to edit."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.soak.documents import Ports, files
from tests.soak.origin import Origin, serve_origin
from tests.soak.programs import PATIENCE, Program, children_of
from tests.support.certificates import server
from tests.support.eventually import eventually, listening
from tests.support.gateways.contour_gateway import AUTH_NAME
from tests.support.issuers.issuer_server import IssuerServer, issuer_server
from tests.support.issuers.minting import Signer, signer

from authplane.runtime.envoy_process import envoy_binary
from authplane.runtime.servers.listen import TcpAddress

WORKERS: Final = 2
KEYS_KEPT: Final = 60
"""Seconds for which the issuer lets others keep its keys: the least that anybody keeps them for."""
_LOG_ROOM: Final = "256m"
_LISTENS: Final = "authorization service listening"


@dataclass
class World:
    """The programs and the folder."""

    root: Path
    ports: Ports
    issuer: IssuerServer
    origin: Origin
    small_disk: bool
    """The decision log has a disk of its own, which can be filled."""
    signer: Signer = field(default_factory=lambda: signer("ES256", "soak-0"))
    control: Program = field(init=False)
    policy: Program = field(init=False)
    web: Program = field(init=False)
    envoy: Program = field(init=False)

    def __post_init__(self) -> None:
        folder, ports = str(self.folder), self.ports
        state = ("--state-dir", str(self.root / "state"))
        self.control = _authplane("control plane", "control plane listening", "control", folder, *state,
            "--address", f"unix:{self.root}/xds.sock", "--metrics-address", "")  # fmt: skip
        self.policy = _authplane("policy server", _LISTENS, "authserver", "policy", folder, *state,
            "--address", f"127.0.0.1:{ports.policy}", "--metrics-address", f"127.0.0.1:{ports.metrics}",
            "--workers", str(WORKERS), "--decision-log", str(self.log))  # fmt: skip
        self.web = _authplane("authserver", _LISTENS, "authserver", "testserver", "--mode", "path",
            "--address", f"127.0.0.1:{ports.auth}", "--metrics-address", "", "--decision-log", "", "--engine", "grpcio",
            "--tls-cert-path", str(self.root / "auth.crt"), "--tls-key-path", str(self.root / "auth.key"))  # fmt: skip
        self.envoy = Program("Envoy", [str(envoy_binary()), "-c", str(self.root / "envoy.json"),
            "--use-dynamic-base-id", "--concurrency", "1", "--log-level", "warning",
            "--drain-time-s", "5", "--drain-strategy", "immediate"])  # fmt: skip

    @property
    def folder(self) -> Path:
        return self.root / "resources"

    @property
    def log(self) -> Path:
        return self.root / "log" / "decisions.log"

    @property
    def programs(self) -> tuple[Program, ...]:
        return (self.control, self.policy, self.web, self.envoy)

    def workers(self) -> list[int]:
        """Return the processes of the policy server that answer checks."""
        return children_of(self.policy.pid)

    def processes(self) -> dict[str, int]:
        """Return every process by a name of its own."""
        found = {each.name: each.pid for each in self.programs if each.child is not None}
        if self.policy.child is not None:
            found |= {f"policy worker {number}": pid for number, pid in enumerate(self.workers())}
        return found

    def write(self, name: str, text: str) -> None:
        """Write a file as careful programs do: whole, then in place."""
        draft = self.folder / f".{name}.new"
        draft.write_text(text, encoding="utf-8")
        draft.replace(self.folder / name)

    def publish(self, *signers: Signer) -> None:
        """Let the issuer have these keys."""
        self.issuer.publish(*signers, cache_control=f"max-age={KEYS_KEPT}")

    async def envoy_serves(self) -> None:
        """Wait until every listener of Envoy takes connections."""
        for port in (self.ports.http, self.ports.https, self.ports.web):
            await listening(TcpAddress(host="127.0.0.1", port=port))


def _authplane(name: str, ready: str, *arguments: str) -> Program:
    return Program(name, [sys.executable, "-m", "authplane", *arguments, "--log-format", "json"], ready)


@asynccontextmanager
async def world(root: Path) -> AsyncGenerator[World]:
    """Start everything and wait until it serves; all of it ends with the block."""
    for each in ("resources", "log", "issuer", "state"):
        (root / each).mkdir(mode=0o700)
    with _small_disk(root / "log") as small:
        async with issuer_server(root / "issuer") as issuer, serve_origin() as origin:
            ports = Ports(origin=origin.port)
            made = World(root, ports, issuer, origin, small)
            await _prepare(made)
            tasks = [asyncio.create_task(each.keep()) for each in made.programs]
            try:
                await _settle(made)
                yield made
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)


async def _prepare(made: World) -> None:
    made.publish(made.signer)
    pair = server(AUTH_NAME)
    (made.root / "auth.crt").write_bytes(pair.certificate)
    (made.root / "auth.key").write_bytes(pair.key.reveal())
    for name, text in files(made.ports, made.issuer.url).items():
        made.write(name, text)
    admin = ("--admin", f"127.0.0.1:{made.ports.admin}")
    argv = [sys.executable, "-m", "authplane", "bootstrap", "--address", f"unix:{made.root}/xds.sock", *admin]
    asked = await asyncio.create_subprocess_exec(*argv, stdout=subprocess.PIPE)
    printed, _ = await asked.communicate()
    (made.root / "envoy.json").write_bytes(printed)


async def _settle(made: World) -> None:
    for each in (made.control, made.policy, made.web):
        await each.serves()

    async def whole() -> bool:
        return len(made.workers()) == WORKERS

    await eventually(whole, limit=PATIENCE)
    await made.envoy_serves()


@contextmanager
def _small_disk(folder: Path) -> Iterator[bool]:
    """Mount a disk that is quickly full, where that is allowed."""
    options = ["-t", "tmpfs", "-o", f"size={_LOG_ROOM},mode=0700", "tmpfs", str(folder)]
    mounted = False
    with suppress(OSError):
        mounted = subprocess.run(["mount", *options], check=False, capture_output=True).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=False, capture_output=True)
