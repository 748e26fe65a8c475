"""`authplane control` and `authplane run` fetch the keys of issuers for Envoy."""

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.support.certificates import ca_secret, server, tls_secret
from tests.support.eventually import eventually
from tests.support.gateways.contour_gateway import service
from tests.support.gateways.mcp_gateway import backend, gateway, policy, route
from tests.support.gateways.status_conditions import records
from tests.support.issuers.issuer_server import IssuerServer, issuer_server, response
from tests.support.issuers.minting import Signer, key_set, signer
from tests.support.ports import free_port

from authplane.runtime.child_processes import Line, run_process

pytestmark = pytest.mark.real


@dataclass
class Program:
    """A program and what it says."""

    folder: Path
    issuer: IssuerServer
    http: int = field(default_factory=free_port)
    lines: list[str] = field(default_factory=list)

    @asynccontextmanager
    async def running(self, *command: str) -> AsyncGenerator[None]:
        async def sink(line: Line) -> None:
            self.lines.append(line.text)

        async with run_process([sys.executable, "-m", "authplane", *command], sink=sink):
            yield

    async def says(self, words: str) -> None:
        async def holds() -> bool:
            return any(words in line for line in self.lines)

        await eventually(holds)


@pytest.fixture
async def program(tmp_path: Path) -> AsyncGenerator[Program]:
    folder = tmp_path / "resources"
    folder.mkdir()
    async with issuer_server(tmp_path) as issuer:
        issuer.publish(signer("ES256"))
        made = Program(folder, issuer)
        source = f"{{type: OIDC, oidc: {{issuerUrl: '{issuer.url}', audiences: [shop]}}}}"
        documents = [
            f"""
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata: {{name: authplane}}
spec:
  gateway: {{address: 127.0.0.1}}
  issuers: [{{url: '{issuer.url}', caSecret: {{name: ca, namespace: default}}}}]
""",
            gateway(made.http, free_port()),
            tls_secret("tls", server("localhost")),
            ca_secret("ca"),
            backend("shop"),
            service("shop", free_port()),
            route("shop", {"shop": 1}),
            policy(f"[{{source: {source}, authorization: [{{type: InlineTools, tools: [add]}}]}}]"),
        ]
        (folder / "all.yaml").write_text("\n---\n".join(documents), encoding="utf-8")
        yield made


def control(program: Program, *options: str) -> list[str]:
    address = f"unix:{program.folder.parent}/xds.sock"
    where = ["--address", address, "--metrics-address", ""]
    return ["control", str(program.folder), *where, "--log-format", "json", *options]


async def test_the_control_plane_fetches_keys_from_private_networks_only_if_it_may(program: Program) -> None:
    # Whom to ask for decisions is not known to a control plane by itself.
    path = program.folder / "all.yaml"
    text = path.read_text(encoding="utf-8").replace(
        "  issuers: [", "  policyServer: {address: 'unix:/p.sock'}\n  issuers: ["
    )
    path.write_text(text, encoding="utf-8")
    async with program.running(*control(program)):
        await program.says("cannot fetch issuer keys")
    assert program.issuer.asked == []
    async with program.running(*control(program, "--allow-private-issuers")):
        await program.says("fetched issuer keys")
        await program.says('"extensions added": ["authplane/tokens"]')
    assert "/keys" in program.issuer.asked


async def test_keys_reach_the_envoy_of_authplane_run(program: Program, tmp_path: Path) -> None:
    command = ["run", str(program.folder), "--state-dir", str(tmp_path / "state"), "--allow-private-issuers"]
    async with program.running(*command, "--authserver-address", "", "--echo-address", ""):
        await program.says("Press Ctrl-C to stop")
        await program.issuer.until(lambda it: it.asked.count("/keys") == 2)
        await program.says("fetched issuer keys")
    # It is said once, although two parts of the program follow the issuer.
    assert len([line for line in program.lines if "fetched issuer keys" in line]) == 1


async def resolved(program: Program) -> tuple[str, str, str]:
    """Return how it stands with what the policy refers to."""
    [policy] = [each for each in await records(program.folder) if each["kind"] == "AccessPolicy"]
    [ancestor] = policy["status"]["ancestors"]
    [found] = [each for each in ancestor["conditions"] if each["type"] == "ResolvedRefs"]
    return found["status"], found["reason"], found["message"]


@pytest.mark.requirement("J25")
async def test_too_many_keys_are_refused_with_a_condition_of_the_policy_that_needs_them(program: Program) -> None:
    good = signer("ES256")
    program.issuer.publish(*(Signer(f"k{number}", good.algorithm, good.key) for number in range(257)))

    async def refused() -> bool:
        status, reason, message = await resolved(program)
        return (status, reason) == ("False", "IssuerUnreachable") and "more than 256 keys" in message

    # Rules that the policy server decides need the keys as well.
    path = program.folder / "all.yaml"
    path.write_text(
        path.read_text(encoding="utf-8").replace("spec:\n  gateway", "spec:\n  placement: CallOut\n  gateway", 1)
    )
    async with program.running(*control(program, "--allow-private-issuers")):
        await program.says("cannot fetch issuer keys")
        await eventually(refused)


@pytest.mark.requirement("J25")
async def test_a_key_that_cannot_be_used_costs_itself_alone_and_is_named(program: Program) -> None:
    small = {"kty": "EC", "crv": "P-192", "kid": "small", "x": "A" * 32, "y": "A" * 32}
    program.issuer.answers["/keys"] = response(key_set(small, signer("ES256").jwk()))
    async with program.running(*control(program, "--allow-private-issuers")):
        await program.says('"extensions added": ["authplane/tokens"]')
        assert (await resolved(program))[:2] == ("True", "ResolvedRefs")
    told = [json.loads(line) for line in program.lines if "ignored issuer key" in line]
    assert [(each["key"], each["why"]) for each in told] == [("small", "no supported algorithm fits it")]
