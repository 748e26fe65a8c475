"""An Envoy that is sent one world after the other."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.eventually import START_LIMIT
from tests.support.ports import free_port
from tests.support.resources.contour_documents import World

from authplane.controlplane.graph.model.programming import Answered
from authplane.controlplane.render.dump import json_text
from authplane.controlplane.render.envoy_bootstrap import ControlPlane, UnixSocket, ads_bootstrap
from authplane.controlplane.serving.runtime.ads import Ads
from authplane.controlplane.serving.runtime.ads_stream import AdsEvent
from authplane.runtime.child_processes import Line
from authplane.runtime.envoy_process import EnvoySettings, run_envoy
from authplane.runtime.servers.listen import UnixAddress


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a request."""

    status: int
    """0 means that no connection could be made."""
    headers: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """Publishes worlds, and asks Envoy on a connection of its own each time."""

    ads: Ads
    http: int
    https: int

    def publish(self, documents: Iterable[str]) -> World:
        """Make this the world; it takes a moment until Envoy serves it."""
        world = World(documents)
        self.ads.publish(world.generation.snapshot)
        return world

    def accepted(self) -> bool:
        """Tell whether Envoy has accepted all of the world; that it refuses something is an error."""
        told = self.ads.programming()
        assert not (isinstance(told, Answered) and told.refused), told
        return isinstance(told, Answered) and not told.pending

    async def plain(self, host: str, path: str) -> Answer:
        """Ask over HTTP."""
        try:
            opened = await asyncio.open_connection("127.0.0.1", self.http)
        except OSError:
            return Answer(0, {})
        return await _ask(opened, host, path)

    async def secure(self, host: str, path: str, *, sni: str | None) -> Answer:
        """Ask over TLS; a client that names no host there is one that cannot."""
        try:
            opened = await asyncio.open_connection("127.0.0.1", self.https, ssl=_trusting(), server_hostname=sni or "")
        except OSError:
            return Answer(0, {})
        return await _ask(opened, host, path)


@cache
def _trusting() -> ssl.SSLContext:
    """Return what takes every certificate: which one is shown matters elsewhere."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    return tls


async def _ask(opened: tuple[asyncio.StreamReader, asyncio.StreamWriter], host: str, path: str) -> Answer:
    reader, writer = opened
    async with asyncio.timeout(5):
        writer.write(f"GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n".encode())
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
        writer.close()
    return Answer(int(first.split()[1]), dict(line.split(": ", 1) for line in lines))


@asynccontextmanager
async def pushed(*, delta: bool = False) -> AsyncGenerator[Pushed]:
    """Run Envoy; it knows nothing yet."""

    async def forget(_line: Line) -> None:
        pass

    def ignore(_event: AdsEvent) -> None:
        pass

    ads = Ads(ignore)
    with TemporaryDirectory(prefix="ap-") as folder:
        address = UnixAddress(path=str(Path(folder) / "xds.sock"))
        bootstrap = json_text(ads_bootstrap(ControlPlane(where=UnixSocket(address.path), delta=delta), node="test"))
        settings = EnvoySettings(concurrency=1, log_level="error", drain_seconds=1)
        async with ads.serve(address):
            ads.publish(World([]).generation.snapshot)
            async with run_envoy(bootstrap, sink=forget, settings=settings) as envoy:
                await envoy.ready(limit=START_LIMIT)
                yield Pushed(ads=ads, http=free_port(), https=free_port())
