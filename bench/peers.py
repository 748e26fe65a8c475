"""Compares authplane with other authorization services: the Check server alone, and the whole path through Envoy.

Servers are on one core, the load is on another. Everything is loaded in turn, in many short rounds of one run.
``PEERS=folder`` names a folder with programs that cannot be built here; see `bench.peer_programs`.
"""

from contextlib import AbstractAsyncContextManager, AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from envoy.service.auth.v3 import external_auth_pb2
from tests.support.envoy.releases import SECOND
from tests.support.ports import free_port

from authplane.authserver.plan.server_plan import TestServerPlan
from authplane.devkit.local.dev_issuer import IssuerPlan, RunningIssuer, serve_issuer
from authplane.runtime.envoy_process import envoy_binary
from authplane.runtime.servers.listen import TcpAddress, UnixAddress
from bench.h2load import ONE, cores, message, posted_check, require_denied
from bench.native_site import Ports, Site, calls, whole_gateway
from bench.peer_programs import CONTOUR_AUTHSERVER, NEEDS_KUBERNETES, OPA, program
from bench.peer_servers import (
    Opa,
    contour_authserver,
    equal_policy,
    gateway_with_callout,
    opa_envoy,
    trivial_policy,
)
from bench.policy import WARM, denied, scenarios, serve_scenario
from bench.policy import until_allowed as until_check_allowed
from bench.processes import started_here
from bench.rounds import Call, Cost, compare, one_round, until_allowed, until_native
from bench.servers import bare_pyvoy_in_batches, serve_ours

_CHECKS: Final = 3_000
_REQUESTS: Final = 3_000
_ROUNDS: Final = 10
_OPA_TRIVIAL: Final = "OPA-Envoy, trivial rule"
_OPA: Final = "OPA-Envoy, same policy"
_OPA_CACHED: Final = "OPA-Envoy, same policy, token cache"
_CONTOUR: Final = "contour-authserver testserver"
_BARE: Final = "bare pyvoy application"
"""The least that a Check server of this construction takes: it reads the message and always gives the same reply."""


class _Programs(NamedTuple):
    """The programs of other projects; None is a missing one."""

    opa: Path | None
    contour_authserver: Path | None


async def main() -> None:
    """Print both tables, and the ratios that have a limit."""
    programs = _Programs(await program(OPA), await program(CONTOUR_AUTHSERVER))
    for name in NEEDS_KUBERNETES:
        print(f"  left out: {name}. It reads its configuration only from the API of Kubernetes.", flush=True)
    with cores() as core:
        if core is None:
            return
        with TemporaryDirectory() as name:
            root = Path(name)
            plan = IssuerPlan(folder=root / "dev", address=TcpAddress(host="127.0.0.1", port=0))
            async with serve_issuer(plan, datetime.now(UTC)) as issuer:
                await _checks(core, root, issuer, programs)
                await _paths(core, root, issuer, programs)


async def _checks(core: int, root: Path, issuer: RunningIssuer, programs: _Programs) -> None:
    """Measure the Check servers: one connection, eight checks in flight."""
    tested, scenario = message(), scenarios(issuer, root / "dev")[WARM]
    async with AsyncExitStack() as stack:
        sent: dict[str, Call] = {}

        async def add(
            name: str, asked: external_auth_pb2.CheckRequest, server: AbstractAsyncContextManager[object], port: int = 0
        ) -> None:
            before = started_here()
            made = await stack.enter_async_context(server)
            at = port or int(str(made))
            await until_check_allowed(at, asked)
            for other in denied(root / "dev") if asked is scenario.asked else ():
                await require_denied(at, other)
            processes = started_here() - before
            sent[name] = Call(posted_check(at, asked), Site(Ports(at, 0, 0), processes, frozenset()), ONE)

        await add("testserver", tested, serve_ours(TestServerPlan()))
        await add(_BARE, tested, bare_pyvoy_in_batches())
        await add("JWT + CEL", scenario.asked, serve_scenario(scenario, root / "checks"))
        if programs.contour_authserver:
            port = free_port()
            address = TcpAddress(host="127.0.0.1", port=port)
            await add(_CONTOUR, tested, contour_authserver(programs.contour_authserver, address), port)
        if programs.opa:
            for name, asked, policy in (
                (_OPA_TRIVIAL, tested, trivial_policy()),
                (_OPA, scenario.asked, equal_policy(issuer)),
                (_OPA_CACHED, scenario.asked, equal_policy(issuer)),
            ):
                port = free_port()
                opa = Opa(programs.opa, root / f"opa{port}", policy, name == _OPA_CACHED)
                await add(name, asked, opa_envoy(opa, TcpAddress(host="127.0.0.1", port=port)), port)
        costs = await _measure(sent, core, _CHECKS)
    _table("The Check server alone", costs)
    _ratio(costs, "testserver", _CONTOUR, 0.83)
    _ratio(costs, _BARE, _CONTOUR)
    _ratio(costs, "testserver", _OPA_TRIVIAL)
    _ratio(costs, "JWT + CEL", _OPA, 3)
    _ratio(costs, "JWT + CEL", _OPA_CACHED)


async def _paths(core: int, root: Path, issuer: RunningIssuer, programs: _Programs) -> None:
    """Measure calls of MCP tools through Envoy."""
    binary = SECOND.binary or envoy_binary()
    async with AsyncExitStack() as stack:
        start = stack.enter_async_context
        ours, upstream = await start(whole_gateway(root, core, issuer, binary))
        sent = {name: Call(each, ours) for name, each in calls(ours.ports, root / "dev").items()}
        for name in (_OPA, _OPA_CACHED) if programs.opa else ():
            path = f"{root}/opa{len(sent)}.sock"
            opa = Opa(programs.opa or Path(), root / f"opa{len(sent)}", equal_policy(issuer), name == _OPA_CACHED)
            answering = await start(opa_envoy(opa, UnixAddress(path=path)))
            site = await start(gateway_with_callout(root, upstream, path, binary))
            posted = sent["open"].posted._replace(url=f"http://127.0.0.1:{site.ports.plain}/claims")
            sent[name] = Call(posted, site._replace(deciding=answering))
        for call in sent.values():
            await until_allowed(call, core)
        for name in ("tools, native", "claims, native"):
            await until_native(sent[name], core)
        costs = await _measure(sent, core, _REQUESTS)
    _table(f"The whole path, Envoy {SECOND.number}", costs)
    _ratio(costs, "tools, native", "open, TLS", 0.55)
    _ratio(costs, "claims, native", "open", 0.5)
    _ratio(costs, "tools, native", "tools, call-out", 2.5)
    _ratio(costs, "claims, native", "claims, call-out", 2.5)
    _ratio(costs, "claims, native", _OPA, 5)
    _ratio(costs, "claims, native", _OPA_CACHED)
    _ratio(costs, "claims, call-out", _OPA)


async def _measure(sent: dict[str, Call], core: int, requests: int) -> dict[str, Cost]:
    for call in sent.values():
        await one_round(call, Cost([], [], []), core, requests)
    costs = {name: Cost([], [], []) for name in sent}
    for name in list(sent) * _ROUNDS:
        await one_round(sent[name], costs[name], core, requests)
    return costs


def _table(title: str, costs: dict[str, Cost]) -> None:
    print(f"  {title}:", flush=True)
    for name, cost in costs.items():
        outside = (
            f", {median(cost.deciding) * 1e6:.0f} of it in the authorization service" if any(cost.deciding) else ""
        )
        print(f"    {name}: {max(cost.rates):.0f}/s, {cost.least * 1e6:.0f} µs of processor time{outside}", flush=True)


def _ratio(costs: dict[str, Cost], name: str, other: str, limit: float | None = None) -> None:
    if other in costs:
        compare(costs, name, other, limit)
