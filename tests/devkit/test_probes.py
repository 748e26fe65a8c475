"""The probes of `authplane doctor`: what each says of what works, of what does not, and of what it cannot know."""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
from tests.controlplane.serving.test_handshake import NAME, serving
from tests.support.certificates import ca_secret, server, tls_secret
from tests.support.issuers.issuer_server import METADATA, issuer_server, response
from tests.support.issuers.minting import key_set, signer
from tests.support.policies.documents import GATEWAY, policy, rule
from tests.support.resources.contour_documents import AUTH, ECHO, EXTENSION, PROXY, World, whole

from authplane.devkit.diagnosis.attempts import resolve, try_all
from authplane.devkit.diagnosis.examination import Examined, Outcome, Row
from authplane.devkit.diagnosis.issuer_probe import probe_issuers
from authplane.devkit.diagnosis.machine_probes import probe_certificates, probe_envoy, probe_ports, release_outcome
from authplane.devkit.diagnosis.probes import PROBES, probe_documents, probe_protection
from authplane.devkit.diagnosis.server_probes import (
    probe_extension_services,
    probe_external_services,
    probe_origins,
)
from authplane.runtime.servers.listen import Address, TcpAddress

Told = tuple[str, str, str]


def examined(*documents: str, now: datetime | None = None, served: bool = False, private: bool = False) -> Examined:
    clock = (lambda: now) if now is not None else (lambda: datetime.now(UTC))
    generation = World(documents).generation
    return Examined(generation=generation, clock=clock, served=served, allow_private_issuers=private)


def told(rows: object) -> list[Told]:
    assert isinstance(rows, list | tuple)
    for row in rows:
        assert isinstance(row, Row)
        assert bool(row.remedy) is (row.outcome is not Outcome.OK), "each row that is not well has a remedy"
        assert row.message.endswith(".")
    return [(row.subject, row.outcome.value, row.message) for row in rows]


def port_of(address: Address) -> int:
    assert isinstance(address, TcpAddress)
    return address.port


def at(documents: str, port: int) -> str:
    """Let the one endpoint of a Service be on this machine."""
    head, _, slice_ = documents.partition("---")
    lines = [line.replace("8080", str(port)).replace("9443", str(port)) for line in slice_.splitlines()]
    return head + "---\n" + "\n".join(lines).replace("10.0.0.1", "127.0.0.1").replace("10.0.0.2", "127.0.0.1") + "\n"


# --- Servers


async def test_an_authorization_service_is_greeted_with_the_tls_of_its_extension_service() -> None:
    named = EXTENSION.replace("auth.example", NAME)
    async with serving(clients=False) as address:
        auth = at(AUTH, port_of(address))
        well = examined(auth, named, ca_secret("ca"))
        wrong = examined(auth, EXTENSION, ca_secret("ca"))
        plain = examined(auth, named.split("  validation")[0] + "  protocol: h2c\n")
        subject = f"default/auth {address}"
        assert told(await probe_extension_services(well)) == [(subject, "ok", "The server accepts connections.")]
        [(_, outcome, message)] = told(await probe_extension_services(wrong))
        assert outcome == "finding"
        assert "certificate" in message
        [(_, outcome, _)] = told(await probe_extension_services(plain))
        assert outcome == "finding"


async def test_an_origin_is_reached_or_not_and_a_service_without_endpoints_is_a_finding() -> None:
    documents = {**whole(), "auth": AUTH}
    async with await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0) as origin:
        port = origin.sockets[0].getsockname()[1]
        documents["echo"] = at(ECHO, port)
        there = examined(*documents.values())
        assert told(await probe_origins(there)) == [
            (f"default/echo 127.0.0.1:{port}", "ok", "The server accepts connections.")
        ]
    assert told(await probe_origins(there)) == [
        (f"default/echo 127.0.0.1:{port}", "finding", "Cannot connect: Connection refused.")
    ]
    documents["echo"] = ECHO.split("---", maxsplit=1)[0]
    assert told(await probe_origins(examined(*documents.values()))) == [
        ("default/echo", "finding", "The Service has no ready endpoint.")
    ]


BACKEND = """
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: Backend
metadata: {name: shop}
spec: {type: MCP, mcp: {serviceName: echo, port: 80}}
"""
EXTERNAL = (
    "[{authorization: [{type: ExternalAuth, externalAuth: {protocol: GRPC, backendRef: {name: auth, port: 9443}}}]}]"
)


async def test_a_service_that_policies_ask_is_tried() -> None:
    async with serving(tls=False) as address:
        asked = examined(BACKEND, ECHO, at(AUTH, port_of(address)), policy(EXTERNAL))
        assert told(await probe_external_services(asked)) == [
            (f"default/auth {address}", "ok", "The server accepts connections.")
        ]
    [(_, outcome, message)] = told(await probe_external_services(asked))
    assert (outcome, message) == ("finding", "Cannot connect: Connection refused.")


async def test_a_name_that_only_the_cluster_knows_is_no_finding_outside_of_it() -> None:
    service = AUTH.split("---", maxsplit=1)[0]
    [(subject, outcome, message)] = told(
        await probe_external_services(examined(BACKEND, ECHO, service, policy(EXTERNAL)))
    )
    assert (subject, outcome) == ("default/auth auth.default.svc.cluster.local:9443", "unknown")
    assert "cannot resolve" in message


# --- Issuers and the clock


async def issuer_rows(folder: Path, date: str = "", *, ca: bool = True, private: bool = True) -> list[Told]:
    async with issuer_server(folder) as issuer:
        issuer.publish(signer("ES256"))
        if date:
            body = f'{{"issuer": "{issuer.url}", "jwks_uri": "{issuer.url}/keys"}}'.encode()
            issuer.answers[METADATA] = response(body, f"Date: {date}")
            issuer.answers["/keys"] = response(key_set(signer("ES256").jwk()), f"Date: {date}")
        source = f"{{type: OIDC, oidc: {{issuerUrl: '{issuer.url}', audiences: [shop]}}}}"
        trusted = "caSecret: {name: ca, namespace: default}, " if ca else ""
        settings = f"""
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata: {{name: authplane}}
spec: {{issuers: [{{url: '{issuer.url}', {trusted}allowPrivateNetwork: {str(private).lower()}}}]}}
"""
        return told(await probe_issuers(examined(BACKEND, ECHO, policy(rule(source)), settings, ca_secret("ca"))))


async def test_the_keys_of_an_issuer_are_fetched_and_its_clock_is_compared(tmp_path: Path) -> None:
    (_, outcome, message), (_, clock, agrees) = await issuer_rows(tmp_path, format_datetime(datetime.now(UTC)))
    assert (outcome, message) == ("ok", "Fetched 1 key.")
    assert (clock, agrees) == ("ok", "The two clocks agree within 30 s.")


async def test_a_clock_that_is_off_is_a_finding(tmp_path: Path) -> None:
    date = format_datetime(datetime.now(UTC) - timedelta(minutes=10))
    (_, outcome, _), (_, clock, message) = await issuer_rows(tmp_path, date)
    assert (outcome, clock) == ("ok", "finding")
    assert "s ahead of the issuer's" in message


async def test_a_clock_is_not_compared_where_no_policy_names_an_issuer() -> None:
    assert told(await probe_issuers(examined(BACKEND, ECHO, policy(rule())))) == []


@pytest.mark.parametrize("date", ["", "yesterday"])
async def test_a_missing_clock_is_unknown(tmp_path: Path, date: str) -> None:
    (_, outcome, _), (subject, clock, message) = await issuer_rows(tmp_path, date)
    assert (outcome, subject, clock) == ("ok", "this machine", "unknown")
    assert message == "authplane cannot compare the clock, because no issuer answered with a Date header."


async def test_the_remedy_for_an_issuer_names_the_setting_that_is_missing(tmp_path: Path) -> None:
    (_, outcome, message), _ = await issuer_rows(tmp_path, ca=False)
    assert outcome == "finding"
    assert "certificate" in message.lower()
    (_, outcome, message), _ = await issuer_rows(tmp_path, private=False)
    assert outcome == "finding"
    assert "the address is private" in message


async def test_an_issuer_that_does_not_listen_is_named_with_the_reason(tmp_path: Path) -> None:
    async with issuer_server(tmp_path) as issuer:
        pass
    source = f"{{type: OIDC, oidc: {{issuerUrl: '{issuer.url}', audiences: [shop]}}}}"
    away = examined(BACKEND, ECHO, policy(rule(source)), private=True)
    (subject, outcome, message), (_, clock, _) = told(await probe_issuers(away))
    assert (subject, outcome, clock) == (issuer.url, "finding", "unknown")
    assert message == "Cannot fetch keys: Connection refused."


@pytest.mark.slow
async def test_an_issuer_that_accepts_connections_and_says_nothing_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        source = (
            f"{{type: OIDC, oidc: {{issuerUrl: 'https://127.0.0.1:{silent.getsockname()[1]}', audiences: [shop]}}}}"
        )
        mute = examined(BACKEND, ECHO, policy(rule(source)), private=True)
        (_, outcome, message), _ = told(await probe_issuers(mute))
    assert (outcome, message) == ("finding", "Cannot fetch keys: the issuer did not answer in time.")


# --- Certificates, ports, Envoy


async def test_certificates_are_judged_by_their_end() -> None:
    documents = tls_secret("tls", server("web.example")), ca_secret("ca")
    today = datetime.now(UTC)

    async def outcomes(now: datetime) -> set[str]:
        return {outcome for _, outcome, _ in told(await probe_certificates(examined(*documents, now=now)))}

    assert await outcomes(today - timedelta(days=60)) == {"finding"}
    assert await outcomes(today) == {"ok"}
    assert await outcomes(today + timedelta(hours=20)) == {"warning"}
    assert await outcomes(today + timedelta(days=2)) == {"finding"}
    rows = told(await probe_certificates(examined(*documents, now=today + timedelta(hours=20))))
    assert [subject for subject, _, _ in rows] == ["Secret/default/ca ca.crt", "Secret/default/tls tls.crt"]
    assert all(message.startswith("The certificate expires on ") and "0 days" in message for _, _, message in rows)


async def test_a_port_is_free_or_the_process_that_has_it_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        where = f"""
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata: {{name: authplane}}
spec: {{listeners: {{http: {{address: 127.0.0.1, port: {port}}}, https: {{address: 127.0.0.1, port: 1}}}}}}
"""
        plain = PROXY.replace("    tls: {secretName: tls}\n", "").split("    auth")[0] + ROUTES
        documents = (ECHO, plain, where)
        [(subject, outcome, message)] = told(await probe_ports(examined(*documents)))
        assert (subject, outcome) == (f"127.0.0.1:{port}", "finding")
        assert message.startswith(f"The port is in use by process {os.getpid()} (")
        # While a control plane serves the folder, Envoy may have the port, and nobody else.
        [(_, outcome, _)] = told(await probe_ports(examined(*documents, served=True)))
        assert outcome == "finding"
    [(_, outcome, message)] = told(await probe_ports(examined(*documents)))
    assert (outcome, message) == ("ok", "The port is free.")


ROUTES = """  routes:
  - services:
    - {name: echo, port: 80}
"""


async def test_the_installed_envoy_is_found() -> None:
    [(subject, outcome, message)] = told(await probe_envoy(examined()))
    assert (subject, outcome) == ("envoy", "ok")
    assert message.endswith("is supported.")


@pytest.mark.parametrize(
    ("version", "want"),
    [("1.39.3", Outcome.OK), ("1.20.0", Outcome.FINDING), ("1.99.0", Outcome.WARNING), ("odd", Outcome.UNKNOWN)],
)
def test_a_release_is_supported_or_not(version: str, want: Outcome) -> None:
    outcome, message, remedy = release_outcome(version)
    assert outcome is want
    assert version in message
    assert bool(remedy) is (want is not Outcome.OK)


# --- Documents and protection


async def test_warnings_of_documents_are_counted_too() -> None:
    warned = examined(*{**whole(), "echo": ECHO.split("---", maxsplit=1)[0]}.values())
    assert told(await probe_documents(warned)) == [("folder", "warning", "The documents have 1 warning.")]
    assert told(await probe_documents(examined(*whole().values()))) == [
        ("folder", "ok", "The documents have no errors and no warnings.")
    ]


async def test_a_route_without_authorization_is_named() -> None:
    assert told(await probe_protection(examined(*whole().values()))) == []
    bare = PROXY.split("    authorization")[0] + ROUTES
    off = PROXY.replace("  - services:", "  - authPolicy: {disabled: true}\n    services:")
    for proxy in (bare, off):
        [(subject, outcome, message)] = told(await probe_protection(examined(*{**whole(), "proxy": proxy}.values())))
        assert (subject, outcome) == ("HTTPProxy/default/web", "warning")
        assert message == "Envoy does not authorize requests to these routes: web.example /."


async def test_a_route_of_a_gateway_without_a_policy_is_named() -> None:
    assert told(await probe_protection(examined(GATEWAY, HTTP_ROUTE, ECHO))) == [
        ("HTTPRoute/default/web", "warning", "Envoy does not authorize requests to these routes: * /.")
    ]
    # Backends are named by themselves.
    backend = HTTP_ROUTE.replace(
        "name: echo, port: 80", "group: agentic.networking.x-k8s.io, kind: Backend, name: shop"
    )
    [(subject, outcome, _)] = told(await probe_protection(examined(GATEWAY, backend, BACKEND, ECHO)))
    assert (subject, outcome) == ("Backend/default/shop", "finding")


HTTP_ROUTE = """
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web}
spec:
  parentRefs: [{name: edge}]
  rules: [{backendRefs: [{name: echo, port: 80}]}]
"""


# --- Time


@pytest.mark.requirement("O04")
async def test_whatever_does_not_answer_costs_no_more_than_the_limit() -> None:
    async def silent() -> str:
        await asyncio.Event().wait()
        return "never"

    async def quick() -> str:
        return "at once"

    attempts: list[Callable[[], Awaitable[str]]] = [*[silent] * 200, quick]
    found = await try_all(attempts[-1:] + attempts[:-1], limit=0.05)
    assert found == ["at once", *[None] * 200]
    assert await resolve("no-such-host.invalid", limit=0) == ()
    assert [probe.__name__ for probe in PROBES] == [
        "probe_documents",
        "probe_protection",
        "probe_policy_server",
        "probe_issuers",
        "probe_extension_services",
        "probe_external_services",
        "probe_origins",
        "probe_certificates",
        "probe_ports",
        "probe_envoy",
    ]
