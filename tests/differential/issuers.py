"""The issuers of cases, which rotate their keys when they are told to."""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.differential.minting import FIRST_KEYS, published
from tests.differential.model import ISSUERS
from tests.support.issuers.issuer_server import METADATA, IssuerServer, issuer_server, response


@dataclass(frozen=True, slots=True)
class Issuers:
    """All issuers, on one server."""

    server: IssuerServer

    @property
    def urls(self) -> Mapping[str, str]:
        """Where they are, by what they are called in cases."""
        return {each: f"{self.server.url}{_path(each)}" for each in ISSUERS}

    def publish(self, keys: tuple[int, ...] = FIRST_KEYS) -> None:
        """Show these keys of each issuer from now on."""
        for issuer, url in self.urls.items():
            body = json.dumps({"issuer": url, "jwks_uri": f"{url}/keys"}).encode()
            self.server.answers[f"{_path(issuer)}{METADATA}"] = response(body)
            shown = response(published(issuer, keys), "Cache-Control: max-age=3600")
            self.server.answers[f"{_path(issuer)}/keys"] = shown


@asynccontextmanager
async def serving_issuers(root: Path) -> AsyncGenerator[Issuers]:
    """Serve the first keys of all issuers while the block runs."""
    async with issuer_server(root) as server:
        made = Issuers(server)
        made.publish()
        yield made


def _path(issuer: str) -> str:
    return f"/{issuer.removeprefix('https://').removesuffix('.invalid')}"
