"""A site that runs with an Envoy: what it is sent, and what comes of it."""

import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from tests.differential.certificates import pair_of
from tests.differential.model import CERTIFICATES, Answer
from tests.differential.placements import Placement
from tests.differential.site import Shot, Site
from tests.differential.stage import PATIENCE, Stage
from tests.differential.wire import NOTED, Lane, Reached, ask_all
from tests.support.certificates import authority

from authplane.runtime.envoy_process import Envoy

_PER_LANE: Final = 40
_AT_A_TIME: Final = 12
_ASKED: Final = re.compile(r"^http\..*ext_authz\.(?:.*\.)?(ok|denied|error)$")
_REFUSED: Final = re.compile(r"^http\..*rbac\.(?:.*\.)?denied$")


class Counts(NamedTuple):
    """What Envoy has counted since it runs."""

    asked: int
    """How often the authorization service was asked."""
    granted: int
    """How often it said yes."""
    refused: int
    """How many requests Envoy denied by its own rules."""


@dataclass(slots=True)
class Running:
    """A site that runs with an Envoy."""

    stage: Stage
    envoy: Envoy
    placement: Placement

    @property
    def site(self) -> Site:
        """Where it runs."""
        return self.stage.site

    async def answers(self, shots: Sequence[Shot], removed: Sequence[frozenset[str]] = ()) -> list[Answer]:
        """Send requests; what reached the server behind is allowed, whatever else is told.

        ``removed`` are the headers of each that must not reach it.
        """
        first, self.stage.sent = self.stage.sent, self.stage.sent + len(shots)
        numbered = {first + index: shot for index, shot in enumerate(shots)}
        gone = removed or (frozenset[str](),) * len(shots)
        heard = await ask_all(self._lanes(numbered), _AT_A_TIME)
        return [
            Answer(
                number in self.stage.origin.reached,
                heard[number].status,
                self._changed(number, shot, gone[number - first]),
                why=heard[number].text,
            )
            for number, shot in numbered.items()
        ]

    async def counts(self) -> Counts:
        """Ask Envoy what it has counted."""
        lines = (await self.envoy.admin("/stats?usedonly", limit=PATIENCE)).body.splitlines()
        found = [(name, int(value)) for name, _, value in (line.partition(": ") for line in lines) if value.isdigit()]
        told = [(match[1], value) for name, value in found if (match := _ASKED.match(name))]
        return Counts(
            asked=sum(value for _, value in told),
            granted=sum(value for word, value in told if word == "ok"),
            refused=sum(value for name, value in found if _REFUSED.match(name)),
        )

    def _changed(self, number: int, shot: Shot, removed: frozenset[str]) -> str:
        """Say what of a request reached the server behind in another form than it was judged in."""
        reached = self.stage.origin.reached.get(number)
        if reached is None:
            return ""
        noted = (
            ",".join(value for each, value in shot.seen_headers if each.lower() == name.decode()) for name in NOTED
        )
        path, host = self.site.rewritten(shot)
        if reached[:5] != Reached(shot.method, path, shot.body, host, tuple(noted))[:5]:
            return f"it reached the server behind as {reached}"
        leaked = sorted(removed & reached.names)
        return f"it reached the server behind with {leaked}" if leaked else ""

    def _lanes(self, shots: Mapping[int, Shot]) -> list[Lane]:
        lanes: dict[tuple[int, str, bool], list[tuple[int, Shot]]] = {}
        for number, shot in shots.items():
            lanes.setdefault((shot.gateway, shot.certificate, shot.http2), []).append((number, shot))
        contexts = {
            (name, http2): _tls(name, self.site.root, http2=http2) for name in CERTIFICATES for http2 in (False, True)
        }
        made = []
        for (gateway, name, http2), held in lanes.items():
            ports = self.site.listeners(gateway)
            for start in range(0, len(held), _PER_LANE):
                some = tuple(held[start : start + _PER_LANE])
                self.stage.lanes += 1
                address = f"127.{1 + self.stage.lanes // 250 % 250}.{self.stage.lanes % 250}.2"
                port = ports.secure if name else ports.plain
                made.append(Lane(address, port, contexts.get((name, http2)), http2, some))
        return made


def _tls(certificate: str, root: Path, *, http2: bool) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority().certificate.decode())
    context.set_alpn_protocols(["h2" if http2 else "http/1.1"])
    pair, path = pair_of(certificate), root / "client.pem"
    path.write_bytes(pair.certificate + pair.key.reveal())
    context.load_cert_chain(path)
    return context
