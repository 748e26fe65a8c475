"""A site as it is run: control plane, authorization service and Envoy, each a process of its own."""

import json
import re
import ssl
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from tests.differential.minting import published
from tests.differential.model import CERTIFICATES, ISSUERS, Answer, Case, Draft, PolicySet, Sent, Token, World
from tests.differential.placements import CALL_OUT, Placement
from tests.differential.reference import Reference
from tests.differential.site import Listeners, Shot, Site, gateways_of, pair_of, text_of
from tests.differential.wire import NOTED, Lane, Origin, Reached, ask_all, origin_server
from tests.support.authservers.asked_services import asked
from tests.support.authservers.external_answers import RedTeam
from tests.support.certificates import authority
from tests.support.envoy.releases import INSTALLED, Version
from tests.support.eventually import START_LIMIT, eventually, listening
from tests.support.issuers.issuer_server import METADATA, issuer_server, response
from tests.support.ports import free_port

from authplane.controlplane.render.dump import json_text
from authplane.controlplane.render.envoy_bootstrap import ControlPlane, UnixSocket, ads_bootstrap
from authplane.runtime.child_processes import Line, LineSink, run_process
from authplane.runtime.envoy_process import Envoy, run_envoy
from authplane.runtime.servers.listen import TcpAddress, UnixAddress

_UNAVAILABLE: Final = 503
_PATIENCE: Final = START_LIMIT
_PER_LANE: Final = 40
_AT_A_TIME: Final = 12
_PROBES: Final = tuple({"type": "OIDC", "oidc": {"issuerUrl": issuer, "audiences": ["shop"]}} for issuer in ISSUERS)
_ASKED: Final = re.compile(r"^http\..*ext_authz\.(?:.*\.)?(ok|denied|error)$")
_REFUSED: Final = re.compile(r"^http\..*rbac\.(?:.*\.)?denied$")


@dataclass(slots=True)
class Stage:
    """All that is around Envoy: it stays while placements come and go."""

    site: Site
    origin: Origin
    control: Path
    """The folder of the control plane, which each placement writes anew."""
    xds: UnixAddress
    lines: list[str] = field(default_factory=list)
    """What programs have written."""
    sent: int = 0
    lanes: int = 0


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

    async def answers(self, shots: Sequence[Shot]) -> list[Answer]:
        """Send requests; what reached the server behind is allowed, whatever else is told."""
        first, self.stage.sent = self.stage.sent, self.stage.sent + len(shots)
        numbered = {first + index: shot for index, shot in enumerate(shots)}
        heard = await ask_all(self._lanes(numbered), _AT_A_TIME)
        return [
            Answer(
                number in self.stage.origin.reached,
                heard[number].status,
                self._changed(number, shot),
                why=heard[number].text,
            )
            for number, shot in numbered.items()
        ]

    async def counts(self) -> Counts:
        """Ask Envoy what it has counted."""
        lines = (await self.envoy.admin("/stats?usedonly", limit=_PATIENCE)).body.splitlines()
        found = [(name, int(value)) for name, _, value in (line.partition(": ") for line in lines) if value.isdigit()]
        told = [(match[1], value) for name, value in found if (match := _ASKED.match(name))]
        return Counts(
            asked=sum(value for _, value in told),
            granted=sum(value for word, value in told if word == "ok"),
            refused=sum(value for name, value in found if _REFUSED.match(name)),
        )

    def _changed(self, number: int, shot: Shot) -> str:
        """Say what of a request reached the server behind in another form than it was judged in."""
        reached = self.stage.origin.reached.get(number)
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
                self.stage.lanes += 1
                address = f"127.{1 + self.stage.lanes // 250 % 250}.{self.stage.lanes % 250}.2"
                made.append(Lane(address, ports.secure if name else ports.plain, contexts.get(name), some))
        return made


class Judged(NamedTuple):
    """A case as it is sent, and what the reference says to it."""

    case: Case
    shot: Shot
    wanted: Answer


class Compared(NamedTuple):
    """What the reference says to a case, and what Envoy did."""

    case: Case
    shot: Shot
    wanted: Answer
    got: Answer


@asynccontextmanager
async def staged(world: World, root: Path) -> AsyncGenerator[Stage]:
    """Set up everything but Envoy for a world, while the block runs."""
    probed = replace(world, sets=(*world.sets, _probe()))
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
        )
        site.folder.mkdir()
        (site.folder / "all.yaml").write_text(text_of(site.documents()), encoding="utf-8")
        stage = Stage(site, origin, root / "control", UnixAddress(path=str(root / "xds.sock")))
        stage.control.mkdir()
        policy = UnixAddress(path=str(root / "policy.sock"))
        options = ("--address", str(policy), "--metrics-address", "", "--decision-log", "", "--loosen-after", "0")
        await _program(stage, stack, "authserver", "policy", str(site.folder), *options)
        served = ("--address", str(stage.xds), "--metrics-address", "", "--loosen-after", "0")
        await _program(stage, stack, "control", str(stage.control), *served)
        await listening(policy)
        await listening(stage.xds)
        yield stage


@asynccontextmanager
async def placed(stage: Stage, placement: Placement, version: Version = INSTALLED) -> AsyncGenerator[Running]:
    """Run Envoy while the block runs; what it judges by is in place when the block begins."""
    await _place(stage, placement)
    where = UnixSocket(stage.xds.path)
    bootstrap = json_text(ads_bootstrap(ControlPlane(where=where, delta=True), node="differential"))
    async with run_envoy(bootstrap, sink=_sink(stage), settings=version.settings()) as envoy:
        await envoy.ready(limit=_PATIENCE)
        for port in (port for ports in stage.site.gateways for port in ports):
            await listening(TcpAddress(host="127.0.0.1", port=port))
        made = Running(stage, envoy, placement)
        await _ready(made)
        yield made


@asynccontextmanager
async def running(
    world: World, root: Path, placement: Placement = CALL_OUT, version: Version = INSTALLED
) -> AsyncGenerator[Running]:
    """Run a world with one Envoy while the block runs."""
    async with staged(world, root) as stage, placed(stage, placement, version) as made:
        yield made


def judged(site: Site, cases: Sequence[Case], reference: Reference | None = None) -> list[Judged]:
    """Return with each case what the reference says to it."""
    judge = reference or Reference(site)
    return [Judged(case, shot, judge.answer(shot)) for case, shot in ((case, site.shot(case)) for case in cases)]


async def compare(made: Running, cases: Sequence[Judged]) -> list[Compared]:
    """Return with each case what Envoy does."""
    got = await made.answers([each.shot for each in cases])
    for index, (each, answer) in enumerate(zip(cases, got, strict=True)):
        # On a busy machine somebody may be asked in vain. That is no decision, so one asks again, and nothing else.
        if answer.status == _UNAVAILABLE != each.wanted.status and not answer.allowed:
            [got[index]] = await made.answers([each.shot])
    return [Compared(*each, answer) for each, answer in zip(cases, got, strict=True)]


def _probe() -> PolicySet:
    """Return a set by which one sees that the keys of all issuers are there."""
    rules = [{"source": each, "authorization": [{"type": "CEL", "cel": "true"}]} for each in _PROBES]
    return PolicySet(gateway=(Draft(spec={"rules": rules}),), service=True)


def _sink(stage: Stage) -> LineSink:
    async def sink(line: Line) -> None:
        stage.lines.append(line.text)

    return sink


async def _program(stage: Stage, stack: AsyncExitStack, *arguments: str) -> None:
    argv = [sys.executable, "-m", "authplane", *arguments, "--log-format", "json"]
    await stack.enter_async_context(run_process(argv, sink=_sink(stage)))


async def _place(stage: Stage, placement: Placement) -> None:
    """Write what the control plane is to serve, and wait until it does."""
    before, path = len(stage.lines), stage.control / "all.yaml"
    text = text_of(stage.site.documents(placement.settings))
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return
    draft = stage.control / ".all.yaml.new"
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)

    async def rebuilt() -> bool:
        return any('"event": "rebuilt configuration"' in line for line in stage.lines[before:])

    await eventually(rebuilt, limit=_PATIENCE)


async def _ready(made: Running) -> None:
    """Wait until everybody who verifies tokens has the keys of every issuer."""
    place = len(made.site.world.sets) - 1
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    headers = (("content-type", "application/json"), ("accept", "application/json, text/event-stream"))
    claims, times = {"sub": "ann", "aud": "shop"}, {"exp": 3000, "iat": -60}
    tokens = [Token(issuer=issuer, signer=issuer, claims=claims, times=times) for issuer in ISSUERS]
    plain = Sent(headers=headers, body=json.dumps(message).encode())
    shots = [made.site.shot(Case(place=place, sent=replace(plain, token=each))) for each in tokens]

    async def known() -> bool:
        before = await made.counts()
        allowed = all(answer.allowed for answer in await made.answers(shots))
        # What Envoy can decide by itself it decides once it has the keys too.
        return allowed and (not made.placement.native or (await made.counts()).asked == before.asked)

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
