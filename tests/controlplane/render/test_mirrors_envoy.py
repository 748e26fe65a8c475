"""A mirror in a real Envoy: it gets copies, and never a request for its answer."""

import asyncio
from asyncio import StreamReader, StreamWriter

import httpx2
import pytest
from tests.support.eventually import START_LIMIT, eventually
from tests.support.gateways.contour_gateway import service
from tests.support.ports import free_port
from tests.support.resources.contour_documents import World

from authplane.controlplane.render.dump import json_text
from authplane.controlplane.render.envoy_bootstrap import static_bootstrap
from authplane.devkit.local.echo_origin import serve_echo
from authplane.runtime.child_processes import Line
from authplane.runtime.envoy_process import EnvoySettings, run_envoy
from authplane.runtime.servers.listen import TcpAddress

REQUESTS = 40
LISTENERS = """
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata: {name: test}
spec: {listeners: {http: {address: 127.0.0.1, port: PORT}}}
"""
PROXY = """
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {name: web}
spec:
  virtualhost: {fqdn: web.example}
  routes:
  - services: [{name: echo, port: 80}, {name: copy, port: 80, mirror: true, weight: 100}]
  - conditions: [{prefix: /alone}]
    services: [{name: copy, port: 80, mirror: true}]
"""


class Copies:
    """Answers 418 to everything, and counts."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            self.paths.append(head.split()[1].decode())
            writer.write(b"HTTP/1.1 418 copied\r\ncontent-length: 0\r\n\r\n")
            await writer.drain()

    async def served(self, reader: StreamReader, writer: StreamWriter) -> None:
        try:
            await self.serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


async def _ignore(_line: Line) -> None:
    pass


@pytest.mark.real
async def test_a_mirror_gets_a_copy_of_every_request_and_answers_none() -> None:
    copies, port = Copies(), free_port()
    async with (
        serve_echo(TcpAddress(host="127.0.0.1", port=0)) as origin,
        await asyncio.start_server(copies.served, "127.0.0.1", 0) as mirror,
    ):
        assert isinstance(origin, TcpAddress)
        copy = mirror.sockets[0].getsockname()[1]
        world = World(
            [LISTENERS.replace("PORT", str(port)), service("echo", origin.port), service("copy", copy), PROXY]
        )
        assert world.problems("HTTPProxy") == []
        config = json_text(static_bootstrap(world.generation.rendered))
        async with (
            run_envoy(config, sink=_ignore, settings=EnvoySettings(concurrency=1, log_level="error")) as envoy,
            httpx2.AsyncClient(
                timeout=5, base_url=f"http://127.0.0.1:{port}", headers={"host": "web.example"}
            ) as client,
        ):
            await envoy.ready(limit=START_LIMIT)
            assert (await client.get("/alone")).status_code == 503
            answers = {(await client.get(f"/{each}")).status_code for each in range(REQUESTS)}
            assert answers == {200}

            async def copied() -> bool:
                return len(copies.paths) >= REQUESTS

            await eventually(copied)
            assert sorted(copies.paths) == sorted(f"/{each}" for each in range(REQUESTS))
