"""TLS towards clients with the real Envoy: certificates that are asked for, and hosts that need not be named."""

import ssl
from collections.abc import AsyncGenerator, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

import httpx2
import pytest
import pytest_asyncio
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from tests.support.certificates import authority, ca_secret, indented, server, tls_secret
from tests.support.eventually import START_LIMIT
from tests.support.gateways.contour_gateway import service
from tests.support.ports import free_port
from tests.support.resources.contour_documents import World

from authplane.controlplane.render.dump import json_text
from authplane.controlplane.render.envoy_bootstrap import static_bootstrap
from authplane.devkit.identities.throwaway_certificates import KeyPair, Leaf, Usage, create_authority, issue
from authplane.devkit.local.echo_origin import serve_echo
from authplane.runtime.child_processes import Line
from authplane.runtime.envoy_process import EnvoySettings, run_envoy
from authplane.runtime.servers.listen import TcpAddress

pytestmark = pytest.mark.asyncio(loop_scope="module")

NOW = datetime.now(UTC)
DAY = timedelta(days=1)
FALLBACK = "fallback.example"
NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


@cache
def client(name: str) -> KeyPair:
    """Return a client's certificate; the stranger's is of another authority."""
    signer = create_authority("elsewhere", now=NOW, lifetime=DAY) if name == "stranger" else authority()
    leaf = Leaf(name=name, usage=Usage.CLIENT, dns=(f"{name}.example",), uris=(f"spiffe://example/{name}",))
    return issue(signer, leaf, now=NOW, lifetime=DAY)


def revocation_list(*revoked: KeyPair) -> str:
    issuer = x509.load_pem_x509_certificate(authority().certificate).subject
    builder = x509.CertificateRevocationListBuilder().issuer_name(issuer).last_update(NOW).next_update(NOW + DAY)
    for pair in revoked:
        number = x509.load_pem_x509_certificate(pair.certificate).serial_number
        entry = x509.RevokedCertificateBuilder().serial_number(number).revocation_date(NOW).build()
        builder = builder.add_revoked_certificate(entry)
    key = load_pem_private_key(authority().key.reveal(), password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    pem = builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    return f"""
apiVersion: v1
kind: Secret
metadata: {{name: crl}}
stringData:
  crl.pem: |
{indented(pem)}
"""


HOSTS = {
    "must": "clientValidation: {caSecret: ca}",
    "may": "clientValidation: {caSecret: ca, optionalClientCertificate: true}",
    "any": "clientValidation: {skipClientCertValidation: true}",
    "any-of": "clientValidation: {caSecret: ca, skipClientCertValidation: true}",
    "maybe-any": "clientValidation: {caSecret: ca, skipClientCertValidation: true, optionalClientCertificate: true}",
    "revoked": "clientValidation: {caSecret: ca, crlSecret: crl}",
    "leaf": "clientValidation: {caSecret: ca, crlSecret: crl, crlOnlyVerifyLeafCert: true}",
    "tells": (
        "clientValidation: {caSecret: ca, optionalClientCertificate: true, "
        "forwardClientCertificate: {subject: true, dns: true, uri: true}}"
    ),
    "tells-any": "clientValidation: {skipClientCertValidation: true, forwardClientCertificate: {subject: true}}",
    "open": "minimumProtocolVersion: ''",
    "new": "minimumProtocolVersion: '1.3'",
    "old": "maximumProtocolVersion: '1.2'",
    "fallback": "enableFallbackCertificate: true",
}


def documents(http: int, https: int, echo: int) -> Iterable[str]:
    yield f"""
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata: {{name: test}}
spec:
  listeners:
    http: {{address: 127.0.0.1, port: {http}}}
    https: {{address: 127.0.0.1, port: {https}}}
  contour:
    httpproxy:
      fallbackCertificate: {{name: fallback, namespace: default}}
"""
    yield service("echo", echo)
    names = [f"{name}.example" for name in HOSTS]
    yield tls_secret("tls", server(*names))
    yield tls_secret("fallback", server("nobody.example"))
    yield ca_secret("ca")
    yield revocation_list(client("thief"))
    for name, tls in HOSTS.items():
        yield f"""
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {{name: {name}}}
spec:
  virtualhost:
    fqdn: {name}.example
    tls:
      secretName: tls
      {tls}
  routes:
  - services: [{{name: echo, port: 80}}]
"""


class Reached(NamedTuple):
    """Where Envoy listens, and where certificates can be kept for a client."""

    port: int
    folder: Path


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def envoy(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Reached]:
    async def forget(line: Line) -> None:
        pass

    http, https = free_port(), free_port()
    async with serve_echo(TcpAddress(host="127.0.0.1", port=0)) as echo:
        assert isinstance(echo, TcpAddress)
        world = World(documents(http, https, echo.port))
        assert world.problems("HTTPProxy") == []
        config = json_text(static_bootstrap(world.generation.rendered))
        async with run_envoy(config, sink=forget, settings=EnvoySettings(concurrency=1, log_level="error")) as running:
            await running.ready(limit=START_LIMIT)
            yield Reached(https, tmp_path_factory.mktemp("clients"))


async def ask(  # noqa: PLR0913 (a client may do each of them differently)
    envoy: Reached,
    host: str,
    certificate: KeyPair | None = None,
    *,
    sni: str | None = "",
    version: ssl.TLSVersion | None = None,
    headers: Mapping[str, str] = NOTHING,
) -> httpx2.Response | None:
    """Send a request on a connection of its own; None if no connection could be made."""
    tls = ssl.create_default_context(cadata=authority().certificate.decode())
    tls.check_hostname = False
    if version is not None:
        tls.minimum_version = tls.maximum_version = version
    if certificate is not None:
        path = envoy.folder / "client.pem"
        path.write_bytes(certificate.certificate + certificate.key.reveal())
        tls.load_cert_chain(path)
    extensions = {} if sni is None else {"sni_hostname": sni or host}
    async with httpx2.AsyncClient(verify=tls, timeout=5) as one:
        try:
            return await one.get(
                f"https://127.0.0.1:{envoy.port}/", headers={"host": host, **headers}, extensions=extensions
            )
        except (httpx2.TransportError, ssl.SSLError):
            return None


class Case(NamedTuple):
    host: str
    who: str
    served: bool


CASES = {
    "a certificate is demanded": Case("must", "", False),
    "and a good one accepted": Case("must", "friend", True),
    "and another's refused": Case("must", "stranger", False),
    "it may be left out": Case("may", "", True),
    "but not be wrong": Case("may", "stranger", False),
    "any will do": Case("any", "stranger", True),
    "and none as well": Case("any", "", True),
    "any will do, of those too that name an authority": Case("any-of", "stranger", True),
    "none will do for these": Case("any-of", "", False),
    "anything goes": Case("maybe-any", "", True),
    "anything at all": Case("maybe-any", "stranger", True),
    "a certificate that is not revoked": Case("revoked", "friend", True),
    "a revoked one": Case("revoked", "thief", False),
    "a leaf that is not revoked": Case("leaf", "friend", True),
    "a revoked leaf": Case("leaf", "thief", False),
    "nobody is asked": Case("open", "", True),
}


@pytest.mark.real
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_clients_present_the_requested_certificates(envoy: Reached, case: Case) -> None:
    answer = await ask(envoy, f"{case.host}.example", client(case.who) if case.who else None)
    assert (answer is not None and answer.status_code == 200) is case.served


def told(answer: httpx2.Response | None) -> list[str]:
    """Return what the origin was told of the client's certificate."""
    assert answer is not None
    assert answer.status_code == 200
    return [value for name, value in answer.json()["headers"] if name == "x-forwarded-client-cert"]


FORGED = {"x-forwarded-client-cert": 'Subject="CN=friend"'}


@pytest.mark.real
async def test_the_origin_gets_the_configured_certificate_fields(envoy: Reached) -> None:
    [value] = told(await ask(envoy, "tells.example", client("friend"), headers=FORGED))
    parts = dict(part.split("=", 1) for part in value.split(";"))
    digest = x509.load_pem_x509_certificate(client("friend").certificate).fingerprint(hashes.SHA256()).hex()
    assert parts == {
        "Hash": digest,
        "Subject": '"CN=friend"',
        "URI": "spiffe://example/friend",
        "DNS": "friend.example",
    }


@pytest.mark.real
async def test_an_unverified_client_certificate_is_still_requested(envoy: Reached) -> None:
    [value] = told(await ask(envoy, "tells-any.example", client("stranger"), headers=FORGED))
    assert value.endswith(';Subject="CN=stranger"')


@pytest.mark.real
@pytest.mark.parametrize("host", ["open", "may", "tells", "fallback"])
async def test_what_a_client_says_of_itself_is_removed(envoy: Reached, host: str) -> None:
    assert told(await ask(envoy, f"{host}.example", headers=FORGED)) == []


VERSIONS = {
    "old clients are refused": ("new", ssl.TLSVersion.TLSv1_2, False),
    "new ones are served": ("new", ssl.TLSVersion.TLSv1_3, True),
    "new clients are refused": ("old", ssl.TLSVersion.TLSv1_3, False),
    "old ones are served": ("old", ssl.TLSVersion.TLSv1_2, True),
}


@pytest.mark.real
@pytest.mark.parametrize(("host", "version", "served"), VERSIONS.values(), ids=VERSIONS.keys())
async def test_the_versions_of_tls_are_those_of_the_host(
    envoy: Reached, host: str, version: ssl.TLSVersion, *, served: bool
) -> None:
    answer = await ask(envoy, f"{host}.example", version=version)
    assert (answer is not None) is served


NAMELESS = {
    "no name in TLS": (None, FALLBACK, 200),
    "a name that nobody serves": ("nobody.example", FALLBACK, 200),
    "the host's own name": (FALLBACK, FALLBACK, 200),
    "a host that did not ask for it": (None, "open.example", 421),
    "a host that demands certificates": (None, "must.example", 421),
}


@pytest.mark.real
@pytest.mark.requirement("EN-1")
@pytest.mark.parametrize(("sni", "host", "status"), NAMELESS.values(), ids=NAMELESS.keys())
async def test_the_fallback_certificate_serves_those_that_asked_for_it(
    envoy: Reached, sni: str | None, host: str, status: int
) -> None:
    answer = await ask(envoy, host, sni=sni)
    assert answer is not None
    assert answer.status_code == status
