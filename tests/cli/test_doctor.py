"""`authplane doctor`: what the folder relies on, tried from here."""

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from tests.controlplane.serving.test_handshake import NAME, serving
from tests.support.certificates import ca_secret
from tests.support.policies.documents import BACKEND, policy, rule
from tests.support.ports import free_port

from authplane.cli.main import build_app
from authplane.controlplane.graph.upstreams.policy_connection import OverSocket, PolicyServer
from authplane.controlplane.serving.runtime.control_plane import Control, ControlSettings, Told
from authplane.devkit.local.dev_folder import prepare_issuer
from authplane.devkit.local.dev_issuer import IssuerPlan, serve_issuer
from authplane.runtime.servers.listen import Address, TcpAddress, UnixAddress
from authplane.sources.runtime.read_folder import Folder

UNUSED = "127.0.0.1:1"


def configuration(address: Address | str, more: str = "") -> str:
    return f"""
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata: {{name: authplane}}
spec:
  policyServer: {{address: "{address}"{more}}}
"""


async def diagnose(folder: Path, *documents: str, options: tuple[str, ...] = ("-o", "json")) -> Result:
    (folder / "all.yaml").write_text("---".join(documents), encoding="utf-8")
    return await asyncio.to_thread(CliRunner().invoke, build_app(), ["doctor", str(folder), *options])


def rows(result: Result) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [row for row in json.loads(result.stdout) if row["probe"] == "policy-server"]
    return found


async def test_a_server_that_accepts_us_is_well(tmp_path: Path) -> None:
    async with serving(tls=False) as address:
        result = await diagnose(tmp_path, BACKEND, policy(rule()), configuration(address))
    assert rows(result) == [
        {
            "probe": "policy-server",
            "subject": str(address),
            "outcome": "ok",
            "message": "The server accepts connections.",
            "remedy": "",
        }
    ]


async def test_a_server_that_demands_a_certificate_is_a_finding_with_a_remedy(tmp_path: Path) -> None:
    async with serving() as address:
        more = f", serverName: {NAME}, caSecret: {{name: ca, namespace: default}}"
        result = await diagnose(tmp_path, BACKEND, policy(rule()), configuration(address, more), ca_secret("ca"))
    (found,) = rows(result)
    assert (result.exit_code, found["outcome"]) == (1, "finding")
    assert "TLS handshake failed" in found["message"]
    assert "clientSecret" in found["remedy"]


async def test_a_file_that_is_on_another_machine_is_unknown(tmp_path: Path) -> None:
    more = f", serverName: {NAME}, caFile: /nowhere/ca.crt"
    result = await diagnose(tmp_path, BACKEND, policy(rule()), configuration(UNUSED, more))
    (found,) = rows(result)
    assert found["outcome"] == "unknown"
    assert "/nowhere/ca.crt" in found["message"]


async def test_without_a_control_plane_the_address_is_named_as_the_default(tmp_path: Path) -> None:
    (found,) = rows(await diagnose(tmp_path, BACKEND, policy(rule())))
    assert found["subject"] == "127.0.0.1:9443"
    assert found["message"].endswith("This is the default address, because spec.policyServer is not set.")
    assert found["outcome"] == "ok" or "Start 'authplane run'" in found["remedy"]


async def test_what_authplane_run_decides_by_is_tried_not_what_the_folder_names(tmp_path: Path) -> None:
    def tell(_: Told) -> None: ...

    (tmp_path / "all.yaml").write_text("---".join((BACKEND, policy(rule()))), encoding="utf-8")
    socket = UnixAddress(path=str(tmp_path / "policy.sock"))
    control = Control(Folder(tmp_path), tell, PolicyServer(addresses=(OverSocket(socket.path),)))
    async with control.serve(ControlSettings(address=UnixAddress(path=str(tmp_path / "xds.sock")))):
        (silent,) = rows(await diagnose(tmp_path, BACKEND, policy(rule()), configuration(UNUSED)))
        async with serving(tls=False, address=socket):
            (found,) = rows(await diagnose(tmp_path, BACKEND, policy(rule()), configuration(UNUSED)))
    assert (found["subject"], found["outcome"]) == ("authplane run", "ok")
    assert (silent["subject"], silent["outcome"], silent["remedy"]) == (
        "authplane run",
        "finding",
        "Restart 'authplane run'.",
    )


async def test_without_policies_no_server_is_needed(tmp_path: Path) -> None:
    assert rows(await diagnose(tmp_path, configuration(UNUSED))) == []


async def test_the_table_has_a_remedy_below_each_finding(tmp_path: Path) -> None:
    result = await diagnose(tmp_path, BACKEND, policy(rule()), configuration(UNUSED), options=())
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith(f"policy-server  {UNUSED}"))
    assert "Connection refused" in lines[at]
    assert lines[at + 1].startswith("    Fix: Start 'authplane authserver policy' at this address")


async def test_every_backend_that_no_policy_protects_is_named(tmp_path: Path) -> None:
    bare = BACKEND.replace("{name: shop}", "{name: bare}")

    async def found(*documents: str) -> list[tuple[str, ...]]:
        result = await diagnose(tmp_path, *documents)
        return [
            (row["subject"], row["outcome"], row["message"], row["remedy"])
            for row in json.loads(result.stdout)
            if row["probe"] == "protection"
        ]

    assert await found(BACKEND, policy(rule())) == [
        ("Backends", "ok", "Every Backend has a policy that protects it.", "")
    ]
    assert await found(BACKEND, bare, policy(rule())) == [
        (
            "Backend/default/bare",
            "finding",
            "No policy protects this target, so authplane denies every request.",
            "Add an AccessPolicy that names it, or set spec.unprotectedBackends of the AuthplaneConfiguration to"
            " Allow.",
        )
    ]
    assert await found(configuration(UNUSED)) == []


async def test_a_folder_whose_servers_run_is_well(tmp_path: Path) -> None:
    """The whole command: an issuer, its clock, an origin, certificates, a port and Envoy, each in a row of its own."""
    folder, ports = tmp_path / "gateway", [free_port() for _ in range(3)]
    origin, gateway, listening = ports
    plan = IssuerPlan(folder=tmp_path / "dev", address=TcpAddress(host="127.0.0.1", port=listening))
    async with (
        serve_issuer(plan, datetime.now(UTC)) as issuer,
        await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", origin),
        serving(tls=False) as address,
    ):
        source = f"{{type: OIDC, oidc: {{issuerUrl: '{issuer.url}', audiences: [shop]}}}}"
        settings = f"""
  policyServer: {{address: "{address}"}}
  gateway: {{port: {gateway}}}
  issuers: [{{url: '{issuer.url}', caFile: '{issuer.ca_file}', allowPrivateNetwork: true}}]
"""
        folder.mkdir()
        backend = BACKEND.replace("serviceName: shop, port: 80", f"url: 'http://127.0.0.1:{origin}/mcp'")
        named = configuration(address).partition("  policyServer")[0] + settings
        result = await diagnose(folder, backend, policy(rule(source)), named)
    found = [(row["probe"], row["outcome"]) for row in json.loads(result.stdout)]
    assert (result.exit_code, found) == (
        0,
        [
            ("documents", "ok"),
            ("protection", "ok"),
            ("policy-server", "ok"),
            ("issuer", "ok"),
            ("clock", "ok"),
            ("origin", "ok"),
            ("certificate", "ok"),
            ("port", "ok"),
            ("envoy", "ok"),
        ],
    ), result.stdout


async def test_an_issuer_on_this_machine_gets_the_remedy_for_the_development_issuer(tmp_path: Path) -> None:
    port, folder = free_port(), tmp_path / "gateway"
    folder.mkdir()
    trusted = prepare_issuer(tmp_path / "trusted", "127.0.0.1", datetime.now(UTC)).ca
    url = f"https://127.0.0.1:{port}"
    named = configuration(UNUSED) + f"  issuers: [{{url: '{url}', caFile: '{trusted}', allowPrivateNetwork: true}}]\n"
    source = f"{{type: OIDC, oidc: {{issuerUrl: '{url}', audiences: [shop]}}}}"

    async def remedy() -> str:
        result = await diagnose(folder, BACKEND, policy(rule(source)), named)
        return next(str(row["remedy"]) for row in json.loads(result.stdout) if row["probe"] == "issuer")

    start = "in the directory where you ran 'authplane init'. Otherwise, "
    assert f"start 'authplane run' or 'authplane dev issuer' {start}" in await remedy()
    plan = IssuerPlan(folder=tmp_path / "dev", address=TcpAddress(host="127.0.0.1", port=port))
    async with serve_issuer(plan, datetime.now(UTC)):
        assert f"stop the process that listens at its address, and start 'authplane run' {start}" in await remedy()
