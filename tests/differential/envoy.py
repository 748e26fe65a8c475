"""A site as it is run: control plane, authorization server and Envoy, each a process of its own."""

import asyncio
import json
import ssl
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from tests.differential.external import RedTeam
from tests.differential.minting import published
from tests.differential.model import CERTIFICATES, ISSUERS, Answer, Case, Draft, PolicySet, Sent, Token, World
from tests.differential.reference import Reference
from tests.differential.site import Listeners, Shot, Site, gateways_of, pair_of, text_of
from tests.differential.wire import NOTED, Lane, Origin, Reached, ask_all, origin_server
from tests.support.asked import asked
from tests.support.certificates import authority
from tests.support.eventually import eventually
from tests.support.gateway import free_port
from tests.support.issuer_server import METADATA, issuer_server, response

from authplane.io.envoy import EnvoySettings, run_envoy
from authplane.io.listen import TcpAddress, UnixAddress
from authplane.io.process import Line, run_process
from authplane.io.ready import reachable
from authplane.render.bootstrap import ControlPlane, UnixSocket, ads_bootstrap
from authplane.render.dump import json_text

_UNAVAILABLE: Final = 503
_PATIENCE: Final = 60.0
_PER_LANE: Final = 40
_AT_A_TIME: Final = 12
_PROBES: Final = tuple({"type": "OIDC", "oidc": {"issuerUrl": issuer, "audiences": ["shop"]}} for issuer in ISSUERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """How Envoy comes to its decisions."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """What the AuthplaneConfiguration has for it."""


CALL_OUT: Final = Placement(name="call-out")
"""Every request is judged by the authorization server."""
PLACEMENTS: Final = (CALL_OUT,)
"""All that are compared with the reference."""


@dataclass(slots=True)
class Running:
    """A site that runs, and what its programs have written."""

    site: Site
    origin: Origin
    lines: list[str] = field(default_factory=list)
    sent: int = 0
    lanes: int = 0

    async def answers(self, shots: Sequence[Shot]) -> list[Answer]:
        """Send requests; what reached the server behind is allowed, whatever else is told."""
        first, self.sent = self.sent, self.sent + len(shots)
        numbered = {first + index: shot for index, shot in enumerate(shots)}
        statuses = await ask_all(self._lanes(numbered), _AT_A_TIME)
        return [
            Answer(number in self.origin.reached, statuses[number], self._changed(number, shot))
            for number, shot in numbered.items()
        ]

    def _changed(self, number: int, shot: Shot) -> str:
        """Say what of a request reached the server behind in another form than it was judged in."""
        reached = self.origin.reached.get(number)
        noted = (
            ",".join(value for each, value in shot.seen_headers if each.lower() == name.decode()) for name in NOTED
        )
        judged = Reached(shot.method, shot.seen_path, shot.body, tuple(noted))
        return "" if reached in {None, judged} else f"it reached the server behind as {reached}"

    def _lanes(self, shots: Mapping[int, Shot]) -> list[Lane]:
        lanes: dict[tuple[int, str], list[tuple[int, Shot]]] = {}
        for number, shot in shots.items():
            lanes.setdefault((shot.gateway, shot.certificate), []).append((number, shot))
        contexts = {name: _tls(name, self.site.root) for name in CERTIFICATES}
        made = []
        for (gateway, name), held in lanes.items():
            ports = self.site.gateways[gateway]
            for start in range(0, len(held), _PER_LANE):
                some = tuple(held[start : start + _PER_LANE])
                self.lanes += 1
                address = f"127.{1 + self.lanes // 250 % 250}.{self.lanes % 250}.2"
                made.append(Lane(address, ports.secure if name else ports.plain, contexts.get(name), some))
        return made


@asynccontextmanager
async def running(world: World, root: Path, placement: Placement = CALL_OUT) -> AsyncGenerator[Running]:
    """Run a world while the block does; what it judges by is in place when the block begins."""
    probed = World(sets=(*world.sets, _probe()), settings=world.settings)
    async with AsyncExitStack() as stack:
        origin = await stack.enter_async_context(origin_server())
        site = Site(
            world=probed,
            root=root,
            origin=origin.port,
            external=await stack.enter_async_context(asked(RedTeam())),
            issuers=await stack.enter_async_context(_issuers(root)),
            gateways=tuple(Listeners(free_port(), free_port()) for _ in gateways_of(probed)),
            now=datetime.now(UTC),
            settings=placement.settings,
        )
        site.folder.mkdir()
        (site.folder / "all.yaml").write_text(text_of(site.documents()), encoding="utf-8")
        made = Running(site, origin)
        await _start(made, stack)
        await _ready(made)
        yield made


async def compare(
    made: Running, cases: Sequence[Case], reference: Reference | None = None
) -> list[tuple[Case, Shot, Answer, Answer]]:
    """Return with each case what the reference says to it, and what Envoy does."""
    judge = reference or Reference(made.site)
    shots = [made.site.shot(case) for case in cases]
    wanted = [judge.answer(shot) for shot in shots]
    got = await made.answers(shots)
    for index, (want, answer) in enumerate(zip(wanted, got, strict=True)):
        # On a busy machine somebody may be asked in vain. That is no decision, so one asks again, and nothing else.
        if answer.status == _UNAVAILABLE != want.status and not answer.allowed:
            [got[index]] = await made.answers([shots[index]])
    return list(zip(cases, shots, wanted, got, strict=True))


def _probe() -> PolicySet:
    """Return a set by which one sees that the keys of all issuers are there."""
    rules = [{"source": each, "authorization": [{"type": "CEL", "cel": "true"}]} for each in _PROBES]
    return PolicySet(backend=(Draft(spec={"rules": rules}),))


async def _start(made: Running, stack: AsyncExitStack) -> None:
    site = made.site
    xds = UnixAddress(path=str(site.root / "xds.sock"))
    policy = UnixAddress(path=str(site.root / "policy.sock"))

    async def sink(line: Line) -> None:
        made.lines.append(line.text)

    async def program(*arguments: str) -> None:
        argv = [sys.executable, "-m", "authplane", *arguments, "--log-format", "json"]
        await stack.enter_async_context(run_process(argv, sink=sink))

    options = ("--address", str(policy), "--metrics-address", "", "--decision-log", "")
    await program("authserver", "policy", str(site.folder), *options)
    await program("control", str(site.folder), "--address", str(xds))
    async with asyncio.TaskGroup() as tasks:
        for address in (xds, policy):
            tasks.create_task(reachable(address, limit=_PATIENCE))
    bootstrap = json_text(ads_bootstrap(ControlPlane(where=UnixSocket(xds.path), delta=True), node="differential"))
    settings = EnvoySettings(concurrency=1, log_level="error")
    envoy = await stack.enter_async_context(run_envoy(bootstrap, sink=sink, settings=settings))
    await envoy.ready(limit=_PATIENCE)
    for port in (port for ports in site.gateways for port in ports):
        await reachable(TcpAddress(host="127.0.0.1", port=port), limit=_PATIENCE)


async def _ready(made: Running) -> None:
    """Wait until the authorization server has the keys of every issuer."""
    place = len(made.site.world.sets) - 1
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    headers = (("content-type", "application/json"), ("accept", "application/json, text/event-stream"))
    tokens = [Token(issuer=issuer, signer=issuer, claims={"sub": "ann", "aud": "shop"}) for issuer in ISSUERS]
    plain = Sent(headers=headers, body=json.dumps(message).encode())
    shots = [made.site.shot(Case(place=place, sent=replace(plain, token=each))) for each in tokens]

    async def known() -> bool:
        return all(answer.allowed for answer in await made.answers(shots))

    await eventually(known, limit=_PATIENCE)


@asynccontextmanager
async def _issuers(root: Path) -> AsyncGenerator[dict[str, str]]:
    async with issuer_server(root) as server:
        found = {}
        for issuer in ISSUERS:
            path = f"/{issuer.removeprefix('https://').removesuffix('.invalid')}"
            url = found[issuer] = f"{server.url}{path}"
            body = json.dumps({"issuer": url, "jwks_uri": f"{url}/keys"}).encode()
            server.answers[f"{path}{METADATA}"] = response(body)
            server.answers[f"{path}/keys"] = response(published(issuer), "Cache-Control: max-age=3600")
        yield found


def _tls(certificate: str, root: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority().certificate.decode())
    pair, path = pair_of(certificate), root / "client.pem"
    path.write_bytes(pair.certificate + pair.key.reveal())
    context.load_cert_chain(path)
    return context
