"""A real OpenID provider, oidc-provider of npm, over HTTPS."""

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx2
from tests.support.certificates import authority, server
from tests.support.clients.npm import NODE
from tests.support.eventually import START_LIMIT

from authplane.runtime.child_processes import Line, Stream, run_process

SCRIPT: Final = Path(__file__).parents[1] / "node" / "oidc_provider.mjs"
AUDIENCE: Final = "https://backend.example"


@dataclass(frozen=True)
class OidcProvider:
    """A running provider."""

    url: str
    client: httpx2.AsyncClient

    async def token(self, scope: str = "read", **claims: object) -> str:
        """Get an access token; claims replace what would stand in it."""
        form = {
            "grant_type": "client_credentials",
            "client_id": "agent",
            "client_secret": "agent-secret",
            "scope": scope,
            "claims": json.dumps(claims),
        }
        response = await self.client.post(f"{self.url}/token", data=form)
        assert response.status_code == 200, response.text
        token: str = response.json()["access_token"]
        return token

    async def publish(self, *kids: str) -> None:
        """Publish these keys beside the first one, and sign with the last.

        A name begins with what it signs with: rs, ps, es, ed.
        """
        response = await self.client.post(f"{self.url}/control/keys", json=kids)
        assert response.status_code == 200, response.text


@asynccontextmanager
async def oidc_provider(modules: Path, folder: Path) -> AsyncGenerator[OidcProvider]:
    """Run a provider whose certificate the tests' authority has signed."""
    pair = server("localhost")
    certificate, key = folder / "provider.crt", folder / "provider.key"
    certificate.write_bytes(pair.certificate)
    key.write_bytes(pair.key.reveal())
    said: asyncio.Queue[Line] = asyncio.Queue()
    argv = [str(NODE), str(SCRIPT), str(modules), str(certificate), str(key)]
    context = ssl.create_default_context(cadata=authority().certificate.decode())
    async with run_process(argv, sink=said.put), httpx2.AsyncClient(verify=context) as client:
        yield OidcProvider(await _address(said), client)


async def _address(said: asyncio.Queue[Line]) -> str:
    lines: list[str] = []
    try:
        async with asyncio.timeout(START_LIMIT):
            while True:
                line = await said.get()
                lines.append(line.text)
                if line.stream is Stream.STDOUT and line.text.startswith("https://"):
                    return line.text
    except TimeoutError:
        raise AssertionError("\n".join(["the provider does not start:", *lines])) from None
