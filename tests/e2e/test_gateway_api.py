"""Gateways, HTTPRoutes and Backends through a real Envoy: who is asked about what, and what reaches whom."""

import asyncio
import json
import socket
import ssl
from collections import Counter
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import unquote

import httpx2
import pytest
from cryptography import x509
from tests.support.certificates import authority, ca_secret, server, tls_secret
from tests.support.gateways.gateway_api import Served, backend, policy, served, trusting
from tests.support.ports import free_port

from authplane.authserver.backends.testserver import Mode
from authplane.devkit.identities.throwaway_certificates import Leaf, Usage, create_authority, issue

pytestmark = pytest.mark.real

REFUSED = (httpx2.TransportError, ssl.SSLError)
OIDC = '{type: OIDC, oidc: {issuerUrl: "https://issuer.example", scopes: ["read:all"]}}'


def gateway(port: int, listener: str = "protocol: HTTP") -> str:
    return f"""
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: edge}}
spec:
  listeners: [{{name: only, port: {port}, {listener}}}]
"""


def route(*rules: str) -> str:
    written = "".join(f"  - {rule}\n" for rule in rules)
    return f"""
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: web}}
spec:
  parentRefs: [{{name: edge}}]
  rules:
{written}"""


def ref(name: str, weight: int = 1) -> str:
    return f"{{group: agentic.networking.x-k8s.io, kind: Backend, name: {name}, weight: {weight}}}"


async def raw(port: int, request: str) -> tuple[int, bytes]:
    """Send a request byte for byte; returns the status and everything that came."""
    async with asyncio.timeout(5):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request.replace("\n", "\r\n").encode())
        answer = await reader.read()
        writer.close()
    return int(answer.split()[1]), answer


async def test_without_a_gateway_every_backend_has_a_path_on_this_machine(tmp_path: Path) -> None:
    documents = [backend("weather"), backend("open", "{serviceName: open, port: 80, path: /sse/}"), policy("weather")]
    async with served(documents, tmp_path, origins=("weather", "open")) as it:
        paths = ("/default/weather", "/default/weather/sub?q=1", "/default/open", "/default/open/sub")
        answers = [(await it.client.get(it.url + path)).json() for path in paths]
        assert [(each["origin"], each["path"]) for each in answers] == [
            ("weather", "/mcp"),
            ("weather", "/mcp/sub?q=1"),
            ("open", "/sse"),
            ("open", "/sse/sub"),
        ]
        # Only the Backend with a policy is asked about.
        assert it.targets() == ["Backend/default/weather"] * 2
        assert it.policy.asked[0].context == {
            "authplane.gateway": "Gateway/default/authplane/default",
            "authplane.route": "HTTPRoute/default/weather",
            "authplane.target": "Backend/default/weather",
        }
        for path in ("/default/weathers", "/other/weather", "/"):
            assert (await it.client.get(it.url + path)).status_code == 404


@pytest.mark.requirement("R36")
async def test_every_backend_of_a_weighted_route_has_its_own_check(tmp_path: Path) -> None:
    port = free_port()
    shares = ", ".join([ref("one", 2), ref("two"), ref("open"), ref("missing")])
    documents = [gateway(port), route(f"backendRefs: [{shares}]"), policy("one"), policy("two"), policy("missing")]
    documents += [backend(name) for name in ("one", "two", "open")]
    async with served(documents, tmp_path, origins=("one", "two", "open"), port=port) as it:
        seen: Counter[tuple[str, str | None]] = Counter()
        for _ in range(120):
            before = len(it.policy.asked)
            answer = await it.client.post(f"{it.url}/mcp", content=b"{}")
            asked = it.targets()[before:]
            origin = answer.json()["origin"] if answer.status_code == 200 else str(answer.status_code)
            assert len(asked) <= 1
            seen[origin, asked[0] if asked else None] += 1
        assert set(seen) == {
            ("one", "Backend/default/one"),
            ("two", "Backend/default/two"),
            ("open", None),
            ("500", "Backend/default/missing"),
        }


async def test_a_body_goes_to_the_check_whole_or_not_at_all(tmp_path: Path) -> None:
    async with served([backend("weather"), policy("weather")], tmp_path) as it:
        largest = bytes(range(256)) * 3 + bytes(232)  # not UTF-8, and as large as it may be
        assert (await it.client.post(f"{it.url}/default/weather", content=largest)).status_code == 200
        assert [request.body for request in it.policy.asked] == [largest]
        assert it.reached[0].request.body == largest
        too_large = await it.client.post(f"{it.url}/default/weather", content=largest + b"!")
        assert too_large.status_code == 413

        async def pieces() -> AsyncGenerator[bytes]:
            for _ in range(4):
                yield b"x" * 400

        assert (await it.client.post(f"{it.url}/default/weather", content=pieces())).status_code == 413
        assert len(it.policy.asked) == len(it.reached) == 1


@pytest.mark.requirement("E21")
@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("upgrade", ["websocket", "h2c", "other"])
async def test_an_upgrade_is_refused_or_is_an_ordinary_request_that_is_checked_whole(
    tmp_path: Path, upgrade: str, method: str
) -> None:
    body = '{"method":"tools/call"}' if method == "POST" else ""
    async with served([backend("weather"), policy("weather")], tmp_path) as it:
        status, answer = await raw(
            it.port,
            f"{method} /default/weather HTTP/1.1\nhost: a\nconnection: upgrade, http2-settings, close\n"
            f"upgrade: {upgrade}\nhttp2-settings: AAMAAABkAARAAAAAAAIAAAAA\nsec-websocket-version: 13\n"
            f"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\ncontent-length: {len(body)}\n\n{body}",
        )
        assert status != 101
        if upgrade == "h2c":
            # Envoy takes no notice of it: what is left is a request like any other.
            assert (status, [request.body for request in it.policy.asked]) == (200, [body.encode()])
            assert not it.reached[0].request.header("upgrade")
        else:
            assert (status, it.reached) == (403, []), answer


@pytest.mark.parametrize(
    ("target", "status", "path"),
    [
        ("/default/open/../weather", 200, "/default/weather"),
        ("/default/open/%2e%2e/weather", 200, "/default/weather"),
        ("//default///weather", 200, "/default/weather"),
        ("/default/we%61ther", 200, "/default/weather"),
        ("/default%2fweather", 400, ""),
        ("/default/open/..%2fweather", 400, ""),
        ("/default/open%5c..%5cweather", 400, ""),
        ("/default/weather#/../open", 400, ""),
    ],
)
async def test_a_path_means_the_same_to_the_route_to_the_check_and_to_the_backend(
    tmp_path: Path, target: str, status: int, path: str
) -> None:
    documents = [backend("weather"), backend("open"), policy("weather")]
    async with served(documents, tmp_path, origins=("weather", "open")) as it:
        got, _ = await raw(it.port, f"GET {target} HTTP/1.1\nhost: a\nconnection: close\n\n")
        assert got == status
        assert [request.path for request in it.policy.asked] == ([path] if path else [])
        assert [(each.name, each.request.target) for each in it.reached] == ([("weather", "/mcp")] if path else [])


async def test_without_an_answer_from_the_policy_server_nothing_goes_through(tmp_path: Path) -> None:
    documents = [backend("weather"), backend("open"), policy("weather")]
    async with served(documents, tmp_path, origins=("weather", "open"), decides=False) as it:
        assert (await it.client.get(f"{it.url}/default/weather")).status_code == 503
        assert (await it.client.get(f"{it.url}/default/open")).status_code == 200
        assert [each.name for each in it.reached] == ["open"]


async def test_what_the_policy_server_denies_does_not_reach_the_backend(tmp_path: Path) -> None:
    async with served([backend("weather"), policy("weather")], tmp_path, mode=Mode.PATH) as it:
        assert (await it.client.get(f"{it.url}/default/weather")).status_code == 401
        assert (await it.client.get(f"{it.url}/default/weather/allow")).status_code == 200
        assert [each.request.target for each in it.reached] == ["/mcp/allow"]


async def test_a_policy_of_a_gateway_applies_to_services_as_well(tmp_path: Path) -> None:
    port = free_port()
    of_gateway = policy("edge").replace("kind: Backend", "kind: Gateway")
    documents = [gateway(port), route("backendRefs: [{name: weather, port: 80}]"), of_gateway]
    async with served(documents, tmp_path, port=port) as it:
        assert (await it.client.get(f"{it.url}/anything")).status_code == 200
        assert [request.context for request in it.policy.asked] == [
            {"authplane.gateway": "Gateway/default/edge/only", "authplane.route": "HTTPRoute/default/web"}
        ]


async def test_paths_and_hosts_are_rewritten_as_the_route_says(tmp_path: Path) -> None:
    port = free_port()
    written = {
        "/a": "path: {type: ReplacePrefixMatch, replacePrefixMatch: /mcp}",
        "/b.c": "path: {type: ReplacePrefixMatch, replacePrefixMatch: /}",
        "/d": "path: {type: ReplaceFullPath, replaceFullPath: /mcp}, hostname: mcp.internal",
        "/": "path: {type: ReplacePrefixMatch, replacePrefixMatch: /all}",
    }
    rules = [
        f"matches: [{{path: {{value: {path}}}}}]\n    filters: [{{type: URLRewrite, urlRewrite: {{{rewrite}}}}}]\n"
        f"    backendRefs: [{ref('weather')}]"
        for path, rewrite in written.items()
    ]
    sent = ["/a", "/a/x?q=/a", "/b.c", "/b.c/x", "/bxc/x", "/d/x?q=1", "/ab", "/"]
    async with served([gateway(port), route(*rules), backend("weather")], tmp_path, port=port) as it:
        answers = [(await it.client.get(it.url + path)).json() for path in sent]
        assert [each["path"] for each in answers] == [
            "/mcp", "/mcp/x?q=/a", "/", "/x", "/all/bxc/x", "/mcp?q=1", "/all/ab", "/all/",
        ]  # fmt: skip
        assert [each["host"] for each in answers] == [
            "mcp.internal" if path.startswith("/d") else f"127.0.0.1:{port}" for path in sent
        ]


# --- Who issues tokens


async def test_everybody_learns_who_issues_tokens_under_the_host_that_was_asked(tmp_path: Path) -> None:
    async with served([backend("weather"), policy("weather", source=OIDC)], tmp_path, mode=Mode.PATH) as it:
        where = "/.well-known/oauth-protected-resource/default/weather"
        answer = await it.client.get(it.url + where)
        assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
        assert answer.json() == {
            "resource": f"{it.url}/default/weather",
            "authorization_servers": ["https://issuer.example"],
            "bearer_methods_supported": ["header"],
            "scopes_supported": ["read:all"],
        }
        other = await it.client.get(it.url + where, headers={"host": "mcp.example"})
        assert other.json()["resource"] == "http://mcp.example/default/weather"
        assert not it.policy.asked
        await it.client.get(f"{it.url}/default/weather")
        assert it.policy.asked[0].context["authplane.resource"] == "/default/weather"


@pytest.mark.parametrize("host", ['a"b', "a\\b", "a%REQ(x-secret)%b", "a,b"])
async def test_a_host_cannot_garble_the_document(tmp_path: Path, host: str) -> None:
    async with served([backend("weather"), policy("weather", source=OIDC)], tmp_path) as it:
        where = "/.well-known/oauth-protected-resource/default/weather"
        status, answer = await raw(
            it.port, f"GET {where} HTTP/1.1\nhost: {host}\nx-secret: s3cret\nconnection: close\n\n"
        )
        assert b"s3cret" not in answer
        if status == 200:
            body = json.loads(answer.partition(b"\r\n\r\n")[2])
            assert body["resource"] == f"http://{host}/default/weather"
            assert body["authorization_servers"] == ["https://issuer.example"]
        else:
            assert status == 400


# --- TLS


def client_files(folder: Path, name: str = "client", *, ours: bool = True) -> tuple[Path, Path]:
    """Write a certificate with a SPIFFE id, signed by the CA of the tests or by another."""
    now, lifetime = datetime.now(UTC), timedelta(days=1)
    signer = authority() if ours else create_authority("others", now=now, lifetime=lifetime)
    leaf = Leaf(name="agent", usage=Usage.CLIENT, uris=("spiffe://cluster.local/agent",))
    pair = issue(signer, leaf, now=now, lifetime=lifetime)
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    certificate.write_bytes(pair.certificate)
    key.write_bytes(pair.key.reveal())
    return certificate, key


SECRETS = [tls_secret("tls", server("a.example", "b.example", "localhost")), ca_secret("clients")]


async def over_tls(it: Served, tls: ssl.SSLContext, sni: str, host: str, **headers: str) -> httpx2.Response:
    async with httpx2.AsyncClient(verify=tls, timeout=5) as client:
        return await client.get(
            f"https://127.0.0.1:{it.port}/default/weather",
            headers={"host": host} | headers,
            extensions={"sni_hostname": sni},
        )


@pytest.mark.requirement("S07")
@pytest.mark.parametrize("mode", ["AllowValidOnly", "AllowInsecureFallback"])
async def test_the_clients_certificate_reaches_only_the_check(tmp_path: Path, mode: str) -> None:
    port = free_port()
    validation = f"frontendValidation: {{caCertificateRefs: [{{name: clients}}], mode: {mode}}}"
    listener = f"protocol: HTTPS, tls: {{certificateRefs: [{{name: tls}}], {validation}}}"
    documents = [gateway(port, listener), route(f"backendRefs: [{ref('weather')}]")]
    async with served([*documents, *SECRETS, backend("weather"), policy("weather")], tmp_path, port=port) as it:
        spoofed = {"x-forwarded-client-cert": "URI=spiffe://cluster.local/admin"}
        answer = await over_tls(it, trusting(*client_files(tmp_path)), "a.example", "a.example", **spoofed)
        assert answer.status_code == 200
        [asked] = it.policy.asked
        shown = x509.load_pem_x509_certificate(unquote(asked.source.certificate).encode())
        names = shown.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert names.get_values_for_type(x509.UniformResourceIdentifier) == ["spiffe://cluster.local/agent"]
        assert asked.source.principal == "spiffe://cluster.local/agent"
        assert not asked.values("x-forwarded-client-cert")
        passed_on = {name for name, _ in it.reached[0].request.headers}
        assert not {name for name in passed_on if "cert" in name or "client" in name}
        # One that somebody else signed is refused in both modes: it would be an identity.
        with pytest.raises(REFUSED):
            await over_tls(it, trusting(*client_files(tmp_path, "other", ours=False)), "a.example", "a.example")
        if mode == "AllowValidOnly":
            with pytest.raises(REFUSED):
                await over_tls(it, trusting(), "a.example", "a.example")
        else:
            assert (await over_tls(it, trusting(), "a.example", "a.example")).status_code == 200
            assert it.policy.asked[-1].source.certificate == ""


async def test_a_host_that_another_listener_has_is_misdirected(tmp_path: Path) -> None:
    port = free_port()
    tls = "protocol: HTTPS, tls: {certificateRefs: [{name: tls}]}"
    strict = "frontendValidation: {caCertificateRefs: [{name: clients}]}"
    listeners = f"{tls}}}, {{name: strict, port: {port}, hostname: b.example, {tls[:-1]}, {strict}}}"
    documents = [gateway(port, listeners), route(f"backendRefs: [{ref('weather')}]"), backend("weather"), *SECRETS]
    async with served(documents, tmp_path, port=port) as it:
        assert (await over_tls(it, trusting(), "a.example", "a.example")).status_code == 200
        # Who does not show a certificate cannot take the way round over the listener that does not ask for one.
        assert (await over_tls(it, trusting(), "a.example", "b.example")).status_code == 421
        with pytest.raises(REFUSED):
            await over_tls(it, trusting(), "b.example", "b.example")
        certified = trusting(*client_files(tmp_path))
        assert (await over_tls(it, certified, "b.example", "b.example")).status_code == 200
        assert (await over_tls(it, certified, "b.example", "a.example")).status_code == 421


@pytest.mark.requirement("R10")
@pytest.mark.parametrize("trusted", [True, False])
async def test_a_host_outside_is_verified_and_hears_its_own_name(tmp_path: Path, trusted: bool) -> None:
    heard: list[tuple[str, bytes]] = []
    names: list[str] = []
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    name = "localhost" if trusted else "other.example"
    certificate, key = tmp_path / "origin.crt", tmp_path / "origin.key"
    certificate.write_bytes(server(name).certificate)
    key.write_bytes(server(name).key.reveal())
    tls.load_cert_chain(certificate, key)
    tls.sni_callback = lambda _socket, asked, _context: names.append(str(asked))

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(("head", await reader.readuntil(b"\r\n\r\n")))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    port, addresses = free_port(), {str(each[4][0]) for each in socket.getaddrinfo("localhost", None)}
    async with await asyncio.start_server(answer, sorted(addresses), port, ssl=tls):
        wiki = backend("wiki", f"{{hostname: localhost, port: {port}}}")
        async with served([wiki], tmp_path, origins=()) as it:
            got = await it.client.get(f"{it.url}/default/wiki")
            assert got.status_code == (200 if trusted else 503), got.text
            assert set(names) == {"localhost"}
            assert [f"host: localhost:{port}".encode() in head.lower() for _, head in heard] == [True] * trusted
