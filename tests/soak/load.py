"""Clients that send a mix of requests all the time, and remember every answer."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Final

import httpx2
from tests.soak import documents
from tests.soak.judge import AT_FIRST, NOBODY, Answer
from tests.soak.programs import PATIENCE
from tests.soak.requests import KINDS, WEB, Kind, Shown, Tokens, body_of, path_of
from tests.soak.running_site import World
from tests.support.certificates import authority
from tests.support.eventually import eventually
from tests.support.mcp.mcp_checks import workload

CLIENTS: Final = 8
_PER_SECOND: Final = 10.0
"""Requests that each client sends."""
_TIMEOUT: Final = 20.0
_MCP: Final = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
_WEIGHTS: Final = [kind.weight for kind in KINDS]


@dataclass
class Load:
    """The clients."""

    world: World
    answers: list[Answer] = field(default_factory=list)
    _numbers: "count[int]" = field(default_factory=lambda: count(1))
    _https: dict[str, httpx2.AsyncClient] = field(default_factory=dict)
    tokens: Tokens = field(init=False)

    def __post_init__(self) -> None:
        self.tokens = Tokens(self.world)

    async def send(self, kind: Kind) -> Answer:
        """Send one request, and remember how it ended."""
        loop = asyncio.get_running_loop()
        number, sent = next(self._numbers), loop.time()
        status = await self._try(kind, number)
        if status == NOBODY:
            # A connection that Envoy closes may take a request with it: clients try once more.
            status = await self._try(kind, number)
        answer = Answer(number, kind, sent, loop.time(), status)
        self.answers.append(answer)
        return answer

    async def _try(self, kind: Kind, number: int) -> int:
        path, headers = path_of(kind, number), self.tokens.headers(kind.shown)
        try:
            if kind.target == WEB:
                return (await self._https[WEB].get(path, extensions={"sni_hostname": documents.WEB})).status_code
            client = self._https["agent" if kind.shown is Shown.CERTIFICATE else "plain"]
            if not kind.tool:
                return (await client.get(path)).status_code
            return (await client.post(path, content=body_of(kind, number), headers={**_MCP, **headers})).status_code
        except (httpx2.TransportError, ssl.SSLError):
            return NOBODY

    async def settle(self) -> None:
        """Wait until every kind is answered as it should be, before anything is remembered."""
        for kind in KINDS:

            async def right(kind: Kind = kind) -> bool:
                return await self._try(kind, 0) in AT_FIRST[kind.right]

            await eventually(right, limit=PATIENCE)

    async def burst(self, size: int, random: Random) -> None:
        """Send many requests at once."""
        async with asyncio.TaskGroup() as tasks:
            for kind in random.choices(KINDS, _WEIGHTS, k=size):
                tasks.create_task(self.send(kind))

    async def go_on(self, random: Random) -> None:
        """Be one client, until this task is cancelled."""
        while True:
            await self.send(random.choices(KINDS, _WEIGHTS)[0])
            await asyncio.sleep(random.expovariate(_PER_SECOND))

    @asynccontextmanager
    async def running(self, random: Random) -> AsyncGenerator[None]:
        """Send requests while the block runs."""
        async with AsyncExitStack() as stack:
            for name, client in self._clients().items():
                self._https[name] = await stack.enter_async_context(client)
            await self.settle()
            tasks = [asyncio.create_task(self.go_on(Random(random.random()))) for _ in range(CLIENTS)]  # noqa: S311 (no secret)
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
                results = await asyncio.gather(*tasks, return_exceptions=True)
                for result in results:
                    if isinstance(result, Exception):
                        raise result

    def _clients(self) -> Mapping[str, httpx2.AsyncClient]:
        ports = self.world.ports
        agent, pem = workload(), self.world.root / "agent.pem"
        pem.write_bytes(agent.certificate + agent.key.reveal())
        tls, mutual = (ssl.create_default_context(cadata=authority().certificate.decode()) for _ in range(2))
        mutual.load_cert_chain(pem)
        return {
            "plain": httpx2.AsyncClient(base_url=f"http://127.0.0.1:{ports.http}", timeout=_TIMEOUT),
            "agent": httpx2.AsyncClient(base_url=f"https://localhost:{ports.https}", timeout=_TIMEOUT, verify=mutual),
            WEB: httpx2.AsyncClient(
                base_url=f"https://127.0.0.1:{ports.web}", timeout=_TIMEOUT, verify=tls, headers={"host": documents.WEB}
            ),
        }
