"""Decisions by AccessPolicies: in process, and over the pyvoy front beside the test backend in the same run."""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

from envoy.service.auth.v3 import external_auth_pb2
from tests.support.mcp.mcp_checks import AGENT, call_body, mcp_check

from authplane.authserver.backends.access_policies import AccessPolicies
from authplane.authserver.backends.runtime.cel_watch import WatchedExpressions
from authplane.authserver.engine.check_engine import Answer, CheckEngine, Failed, Pending
from authplane.authserver.plan.server_plan import (
    PolicyPlan,
    TestServerPlan,
)
from authplane.cel.evaluate.remembered_results import RememberedExpressions
from authplane.devkit.local.dev_issuer import IssuerPlan, RunningIssuer, dev_token, serve_issuer
from authplane.policy.check.decision import Allow
from authplane.policy.compile.compile_policies import compile_policies
from authplane.policy.decide.request_case import Means
from authplane.policy.identity.evidence import Identifier
from authplane.policy.identity.tokens.inspector import TokenInspector
from authplane.policy.rules.access_settings import Options
from authplane.resources.documents import Resources
from authplane.runtime.issuers.issuers import IssuerOptions, follow_issuers
from authplane.runtime.servers.listen import TcpAddress
from authplane.sources.document_versions import Library
from bench.h2load import cores, load, require_allowed
from bench.processes import seconds_used, started_here
from bench.servers import serve_ours

_DECISIONS: Final = 5_000
_CHECKS: Final = 20_000
_ROUNDS: Final = 5
_POLICIES: Final = 100
_RULES: Final = 10
_TARGETS: Final = 1_000
WARM: Final = "CEL + OIDC, warm"
"""The check whose token was verified before."""
_SHOP: Final = {"authplane.target": "Backend/default/shop"}
_ADD: Final = "[{type: InlineTools, tools: [add, subtract]}]"
_SPIFFE: Final = f"{{type: SPIFFE, spiffe: '{AGENT}'}}"
_CEL: Final = '[{type: CEL, cel: \'request.mcp.tool_name.startsWith("read_") && identity.group == "admin"\'}]'


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Policies, and a check that they allow."""

    documents: tuple[str, ...]
    asked: external_auth_pb2.CheckRequest


async def main() -> None:
    """Measure both."""
    with TemporaryDirectory() as folder:
        plan = IssuerPlan(folder=Path(folder) / "dev", address=TcpAddress(host="127.0.0.1", port=0))
        async with serve_issuer(plan, datetime.now(UTC)) as issuer:
            cases = scenarios(issuer, Path(folder) / "dev")
            await _in_process(cases)
            await _over_the_front(cases, Path(folder))


def scenarios(issuer: RunningIssuer, folder: Path) -> Mapping[str, Scenario]:
    """Return what is measured, by name."""
    oidc = f"{{type: OIDC, oidc: {{issuerUrl: '{issuer.url}', audiences: [shop]}}}}"
    add = mcp_check(call_body("add", a=1, b=2), spiffe_id=AGENT, context=_SHOP, headers=_others())
    read = _reading(folder)
    inline = (_backend("shop"), _policy("shop", f"[{{source: {_SPIFFE}, authorization: {_ADD}}}]"))
    rules = [
        f"{{source: {{type: SPIFFE, spiffe: '{AGENT}{each}'}}, authorization: {_ADD}}}" for each in range(_RULES - 1)
    ]
    crowded = f"[{', '.join([*rules, f'{{source: {_SPIFFE}, authorization: {_ADD}}}'])}]"
    others = [f"other{number}" for number in range(_TARGETS - 1)]
    return {
        "InlineTools + SPIFFE": Scenario(documents=inline, asked=add),
        WARM: Scenario(
            documents=(
                _settings(issuer),
                _backend("shop"),
                _policy("shop", f"[{{source: {oidc}, authorization: {_CEL}}}]"),
            ),
            asked=read,
        ),
        f"{_POLICIES} policies of {_RULES} rules": Scenario(
            documents=(
                _backend("shop"),
                *(_policy("shop", crowded, name=f"p{number}") for number in range(_POLICIES)),
            ),
            asked=add,
        ),
        f"{_TARGETS} targets": Scenario(
            documents=(
                *inline,
                *(_backend(name) for name in others),
                *(_policy(name, f"[{{source: {_SPIFFE}, authorization: {_ADD}}}]") for name in others),
            ),
            asked=add,
        ),
    }


def denied(folder: Path) -> list[external_auth_pb2.CheckRequest]:
    """Return checks that the policy of `WARM` denies: another tool, audience or claim, or no valid token."""
    return [
        _reading(folder, tool="write_file"),
        _reading(folder, aud="other"),
        _reading(folder, group="guest"),
        _reading(folder, prefix="Basic"),
        _reading(folder, suffix="AAAA"),
    ]


def _reading(
    folder: Path, *, tool: str = "read_file", prefix: str = "Bearer", suffix: str = "", **claims: str
) -> external_auth_pb2.CheckRequest:
    claimed = {"sub": "alice", "aud": "shop", "group": "admin"} | claims
    token = dev_token(folder, claimed, now=datetime.now(UTC), lifetime=timedelta(hours=1))
    headers = _others() | {"authorization": f"{prefix} {token}{suffix}"}
    return mcp_check(call_body(tool, path="/a"), context=_SHOP, headers=headers)


async def _in_process(scenarios: Mapping[str, Scenario]) -> None:
    """Judge the bytes of a check, one after the other."""
    costs = {}
    for name, scenario in scenarios.items():
        compiled = compile_policies(resources_of(scenario), Options(most_per_target=_POLICIES))
        async with follow_issuers(compiled.policies.issuers, IssuerOptions(allow_private_networks=True)) as issuers:
            await issuers.tried(5)
            means = Means(evaluate=RememberedExpressions(WatchedExpressions()))
            backend = AccessPolicies(Identifier(TokenInspector(issuers)), means=means)
            backend.publish(compiled.policies)
            body, now = scenario.asked.SerializeToString(), datetime.now(UTC)
            check = CheckEngine(backend).check
            _require_allowed(check(body, now))
            costs[name] = _timed(lambda: check(body, now))  # noqa: B023 (called at once)
    for name, cost in costs.items():
        print(f"  {name}: {1 / cost:.0f} decisions/s in process, {cost * 1e6:.0f} µs each", flush=True)
    alone, among = costs["InlineTools + SPIFFE"], costs[f"{_TARGETS} targets"]
    print(f"  policies on other targets cost {among / alone:.2f} times as much (limit 1.2)", flush=True)


async def _over_the_front(scenarios: Mapping[str, Scenario], folder: Path) -> None:
    with cores() as core:
        if core is None:
            return
        wanted = {name: each for name, each in scenarios.items() if "rules" not in name}
        rates: dict[str, list[float]] = {name: [] for name in ("testserver", *wanted)}
        spent: dict[str, list[float]] = {name: [] for name in rates}
        async with AsyncExitStack() as stack:
            ports, processes = {}, {}
            for name in rates:
                before = started_here()
                server = (
                    _testserver()
                    if name == "testserver"
                    else serve_scenario(wanted[name], folder / name.replace(" ", ""))
                )
                ports[name] = await stack.enter_async_context(server)
                processes[name] = started_here() - before
            # All are asked about requests of the same kind.
            same = scenarios[WARM].asked
            asked = {name: wanted[name].asked if name in wanted else same for name in ports}
            for name, port in ports.items():
                await until_allowed(port, asked[name])
            for name in list(ports) * _ROUNDS:
                used = seconds_used(processes[name])
                rates[name].append((await load(ports[name], core, asked[name], _CHECKS)).rate)
                spent[name].append((seconds_used(processes[name]) - used) / _CHECKS)
        best, least = max(rates["testserver"]), min(spent["testserver"])
        for name in wanted:
            print(
                f"  {name}: {max(rates[name]):.0f} checks/s over pyvoy, {max(rates[name]) / best:.2f} times the "
                f"{best:.0f} of testserver (limit 0.5); by processor time {min(spent[name]) * 1e6:.0f} and "
                f"{least * 1e6:.0f} µs a check, {least / min(spent[name]):.2f} times",
                flush=True,
            )


async def until_allowed(port: int, asked: external_auth_pb2.CheckRequest) -> None:
    """Wait until a server has the keys of the issuer."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await require_allowed(port, asked)
            except RuntimeError:
                await asyncio.sleep(0.1)


def serve_scenario(scenario: Scenario, folder: Path) -> AbstractAsyncContextManager[int]:
    """Serve as `authplane authserver policy` does, without a log."""
    write_documents(folder, scenario)
    return serve_ours(PolicyPlan(folder=str(folder), allow_private_issuers=True))


def _testserver() -> AbstractAsyncContextManager[int]:
    """Serve as `authplane authserver testserver` does, without a log."""
    return serve_ours(TestServerPlan())


def write_documents(folder: Path, scenario: Scenario) -> None:
    """Write the policies into a new folder."""
    folder.mkdir()
    (folder / "policies.yaml").write_text("\n---\n".join(scenario.documents), encoding="utf-8")


def _require_allowed(made: Answer | Pending[Answer] | Failed) -> None:
    match made:
        case Answer(decision=Allow()):
            return
        case _:
            raise RuntimeError(f"this should be allowed: {made}")


def resources_of(scenario: Scenario) -> Resources:
    """Read the policies."""
    library = Library()
    library.changed("policies.yaml", "\n---\n".join(scenario.documents).encode())
    return library.current().resources


def _settings(issuer: RunningIssuer) -> str:
    return f"""
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata: {{name: authplane}}
spec: {{issuers: [{{url: '{issuer.url}', caFile: '{issuer.ca_file}', allowPrivateNetwork: true}}]}}
"""


def _backend(name: str) -> str:
    return f"""
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: Backend
metadata: {{name: {name}}}
spec: {{mcp: {{serviceName: {name}, port: 80}}}}
"""


def _policy(target: str, rules: str, *, name: str = "") -> str:
    return f"""
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: AccessPolicy
metadata: {{name: {name or target}}}
spec:
  targetRefs: [{{kind: Backend, name: {target}}}]
  rules: {rules}
"""


def _others() -> dict[str, str]:
    """Return headers as a client of MCP sends them, and some of a proxy."""
    return {
        "user-agent": "python-httpx2/2.16.0",
        "accept-encoding": "gzip, deflate",
        "mcp-protocol-version": "2025-11-25",
        "mcp-session-id": "0123456789abcdef0123456789abcdef",
        "x-forwarded-proto": "https",
        "x-request-id": "b2d3a1e0-0000-4000-8000-000000000000",
        ":authority": "mcp.example",
        ":path": "/mcp",
        ":method": "POST",
        ":scheme": "https",
    }


def _timed(call: Callable[[], object]) -> float:
    """Return how long a call takes, mostly: what else the machine does falls on few of them."""
    taken = []
    for _ in range(_DECISIONS):
        begun = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begun)
    return median(taken)
