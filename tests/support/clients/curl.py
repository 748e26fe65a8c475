"""A client that everybody knows, between a test and a gateway."""

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.certificates import authority


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One response."""

    status: int
    headers: tuple[tuple[str, str], ...]
    """Names in lower case."""
    body: str = ""

    def values(self, name: str) -> list[str]:
        """Return every value of a header."""
        return [value for each, value in self.headers if each == name]

    def seen(self, *prefixes: str) -> list[tuple[str, str]]:
        """Return what the echoing origin saw of the headers whose names begin like this."""
        found: list[list[str]] = json.loads(self.body)["headers"]
        return sorted((name, value) for name, value in found if name.startswith(prefixes))

    @property
    def json(self) -> Any:
        """What the echoing origin saw."""
        return json.loads(self.body)


@dataclass(frozen=True, slots=True, kw_only=True)
class Curl:
    """Asks a gateway on this machine, whatever the name of the host."""

    folder: Path
    """Where it keeps the CA."""
    http: int
    https: int

    async def hops(self, url: str, *options: str) -> list[Reply]:
        """Return every response on the way; none if no connection could be made."""
        ca = self.folder / "ca.pem"
        ca.write_bytes(authority().certificate)
        command = ["curl", "-s", "-i", "--max-time", "5", "--cacert", str(ca), *options]
        command += ["--connect-to", f":443:127.0.0.1:{self.https}", "--connect-to", f":80:127.0.0.1:{self.http}", url]
        async with asyncio.timeout(10):
            process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
            printed, _ = await process.communicate()
        return list(_replies(printed.decode()))

    async def get(self, url: str, *options: str) -> Reply:
        """Return the last response."""
        *_, last = await self.hops(url, *options)
        return last


def _replies(text: str) -> list[Reply]:
    found = []
    while text.startswith("HTTP/"):
        head, _, text = text.partition("\r\n\r\n")
        first, *lines = head.split("\r\n")
        pairs = (line.split(": ", 1) for line in lines)
        found.append(
            Reply(
                status=int(first.split()[1]),
                headers=tuple((name.lower(), value) for name, value in pairs),
                body="" if text.startswith("HTTP/") else text,
            )
        )
    return found
