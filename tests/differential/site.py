"""Where a world runs: its documents, and requests as they are sent there."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from tests.differential.minting import sign
from tests.differential.model import (
    CERTIFICATES,
    CLUSTER,
    HOST,
    ISSUERS,
    PLAIN_PORT,
    SECURE_PORT,
    SPIRE,
    TIDIED,
    TRUST_DOMAIN,
    Case,
    Draft,
    Framing,
    PolicySet,
    Sent,
    World,
)
from tests.support.authservers.external_answers import PORT, SERVICE
from tests.support.certificates import authority, server

from authplane.devkit.identities.throwaway_certificates import KeyPair, Leaf, Usage, issue

_AGENTIC: Final = "agentic.networking.x-k8s.io"
_WITH_LENGTH: Final = frozenset({"POST", "PUT", "PATCH"})

Json = dict[str, Any]


class Listeners(NamedTuple):
    """The ports of a Gateway."""

    plain: int
    secure: int


class Shot(NamedTuple):
    """A request as it is sent."""

    method: str
    path: str
    seen_path: str
    """The path as the proxy tidies it up before anybody looks at it."""
    host: str
    headers: tuple[tuple[str, str], ...]
    """All others, with those that frame the body."""
    seen_headers: tuple[tuple[str, str], ...]
    """Those of them that the proxy shows to anybody, and sends on."""
    body: bytes
    chunked: bool
    certificate: str
    gateway: int
    place: int


@cache
def pair_of(certificate: str) -> KeyPair:
    """Return the certificate that a case calls so, and its key."""
    leaf = Leaf(name="client", usage=Usage.CLIENT, uris=CERTIFICATES[certificate], dns=("client.example",))
    return issue(authority(), leaf, now=datetime.now(UTC), lifetime=timedelta(days=1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A world with all that is only known where it runs."""

    world: World
    root: Path
    origin: int
    """The port of the server that all Backends are."""
    external: int
    """The port of the external service."""
    issuers: Mapping[str, str]
    """Where issuers are, by what they are called in cases."""
    gateways: tuple[Listeners, ...]
    """As many as `gateways_of` says."""
    now: datetime

    @property
    def folder(self) -> Path:
        """Where the documents are."""
        return self.root / "resources"

    def gateway_of(self, place: int) -> int:
        """Return which Gateway leads to a set."""
        return gateways_of(self.world).index(self.world.sets[place].gateway)

    def shot(self, case: Case) -> Shot:
        """Fill in all that a request leaves open."""
        sent, gateway = case.sent, self.gateway_of(case.place)
        names = self._names(case.place)
        headers = [(name, fill(value, names)) for name, value in sent.headers]
        if sent.token is not None:
            issuer = fill(sent.token.issuer, names)
            token = sign(sent.token, int(self.now.timestamp()), fill(dict(sent.token.claims), names), issuer)
            headers.append(("authorization", f"{sent.token.scheme}{token}"))
        whole = (*headers, *_framing(sent))
        return Shot(
            method=sent.method,
            path=sent.path,
            seen_path=TIDIED.get(sent.path, sent.path),
            host=fill(sent.host, names),
            headers=whole,
            seen_headers=_tidied(whole),
            body=sent.body,
            chunked=sent.framing is Framing.CHUNKED,
            certificate=sent.certificate,
            gateway=gateway,
            place=case.place,
        )

    def documents(self, settings: Mapping[str, Any] = MappingProxyType({})) -> list[Json]:
        """Return everything that is in force, with settings besides those of the world."""
        found = [
            self._configuration(settings),
            *_secrets(),
            *_service("origin", 80, self.origin),
            *_service(SERVICE, PORT, self.external),
        ]
        for number, drafts in enumerate(gateways_of(self.world)):
            found.append(_gateway(number, self.gateways[number]))
            aim = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": f"g{number}"}
            names, ports = self._names(0), self.gateways[number]
            found += [_policy(draft, f"g{number}-{index}", aim, names, ports) for index, draft in enumerate(drafts)]
        for place, made in enumerate(self.world.sets):
            aim = {"group": _AGENTIC, "kind": "Backend", "name": f"s{place}"}
            gateway = self.gateway_of(place)
            names, ports = self._names(place), self.gateways[gateway]
            found += [*([] if made.service else [_backend(f"s{place}")]), _route(f"s{place}", gateway, made)]
            found += [_policy(each, f"s{place}-{index}", aim, names, ports) for index, each in enumerate(made.backend)]
        return found

    def _names(self, place: int) -> dict[str, str]:
        return {**self.issuers, HOST: f"s{place}.example", HOST.upper(): f"S{place}.EXAMPLE"}

    def _configuration(self, settings: Mapping[str, Any]) -> Json:
        reach = {"allowPrivateNetwork": True, "caSecret": {"name": "ca", "namespace": "default"}}
        workloads: dict[str, Json] = {
            SPIRE: {"jwtSvids": {"trustDomain": TRUST_DOMAIN, "audiences": ["shop"]}},
            CLUSTER: {"serviceAccounts": {"audiences": ["shop"], "verification": "Keys"}},
        }
        proves = workloads if self.world.workload_tokens else {}
        spec = {
            "gateway": {"address": "127.0.0.1"},
            "policyServer": {"address": f"unix:{self.root}/policy.sock", "timeout": "20s"},
            "issuers": [{"url": self.issuers[each], **reach, **proves.get(each, {})} for each in ISSUERS],
            **self.world.settings,
            **settings,
        }
        return _document("authplane.dev/v1alpha1", "AuthplaneConfiguration", "authplane", spec)


def gateways_of(world: World) -> list[tuple[Draft, ...]]:
    """Return the policies of each Gateway of a world."""
    found: list[tuple[Draft, ...]] = []
    for made in world.sets:
        if made.gateway not in found:
            found.append(made.gateway)
    return found


def fill(value: Any, names: Mapping[str, str]) -> Any:
    """Replace names by what they stand for, wherever they are."""
    if isinstance(value, str):
        for name, meaning in names.items():
            value = value.replace(name, meaning)
        return value
    if isinstance(value, dict):
        return {key: fill(each, names) for key, each in value.items()}
    return [fill(each, names) for each in value] if isinstance(value, list | tuple) else value


def text_of(documents: list[Json]) -> str:
    """Write documents in one file; JSON is YAML."""
    return "\n---\n".join(json.dumps(each) for each in documents)


def _tidied(headers: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Leave out what Envoy drops as it reads a request: what is for it alone, and an offer to go on with HTTP/2."""
    gone = {"transfer-encoding"}
    connection = ",".join(value.lower() for name, value in headers if name == "connection")
    if "upgrade" not in connection or "upgrade" not in {name for name, _ in headers}:
        gone |= {"upgrade", "connection"}
    elif ("upgrade", "h2c") in headers:
        gone |= {"upgrade", "http2-settings", "connection"}
    if "x-team" in connection:
        gone |= {"x-team", "connection"}
    return tuple(pair for pair in headers if pair[0].lower() not in gone)


def _framing(sent: Sent) -> tuple[tuple[str, str], ...]:
    if sent.framing is Framing.CHUNKED:
        return (("transfer-encoding", "chunked"),)
    told = bool(sent.body) or sent.method in _WITH_LENGTH
    return (("content-length", str(len(sent.body))),) if told else ()


def _document(version: str, kind: str, name: str, spec: Json) -> Json:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _policy(draft: Draft, name: str, aim: Json, names: Mapping[str, str], ports: Listeners) -> Json:
    spec = _with_ports(fill(dict(draft.spec), names), ports)
    return _document(f"{_AGENTIC}/{draft.version}", draft.kind, name, {"targetRefs": [aim], **spec})


def _with_ports(value: Any, ports: Listeners) -> Any:
    meant = {PLAIN_PORT: ports.plain, SECURE_PORT: ports.secure}
    if isinstance(value, dict):
        return {
            key: [meant.get(port, port) for port in each] if key == "ports" else _with_ports(each, ports)
            for key, each in value.items()
        }
    return [_with_ports(each, ports) for each in value] if isinstance(value, list) else value


def _backend(name: str) -> Json:
    spec = {"type": "MCP", "mcp": {"serviceName": "origin", "port": 80}}
    return _document(f"{_AGENTIC}/v1alpha1", "Backend", name, spec)


def _route(name: str, gateway: int, made: PolicySet) -> Json:
    to = {"name": "origin", "port": 80} if made.service else {"group": _AGENTIC, "kind": "Backend", "name": name}
    spec = {
        "parentRefs": [{"name": f"g{gateway}"}],
        "hostnames": [f"{name}.example", f"*.{name}.example"],
        "rules": [{"backendRefs": [to]}],
    }
    return _document("gateway.networking.k8s.io/v1", "HTTPRoute", name, spec)


def _gateway(number: int, ports: Listeners) -> Json:
    tls = {"certificateRefs": [{"name": "tls"}], "frontendValidation": {"caCertificateRefs": [{"name": "ca"}]}}
    spec = {
        "gatewayClassName": "authplane",
        "listeners": [
            {"name": "plain", "port": ports.plain, "protocol": "HTTP"},
            {"name": "secure", "port": ports.secure, "protocol": "HTTPS", "tls": tls},
        ],
    }
    return _document("gateway.networking.k8s.io/v1", "Gateway", f"g{number}", spec)


def _secrets() -> list[Json]:
    pair, ca = server("localhost"), authority()
    shown = {"tls.crt": pair.certificate.decode(), "tls.key": pair.key.reveal().decode()}
    trusted = {"ca.crt": ca.certificate.decode()}
    kinds: list[tuple[str, str, Json]] = [("tls", "kubernetes.io/tls", shown), ("ca", "Opaque", trusted)]
    return [
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": kind, "stringData": data}
        for name, kind, data in kinds
    ]


def _service(name: str, port: int, where: int) -> list[Json]:
    return [
        _document("v1", "Service", name, {"ports": [{"name": "main", "port": port}]}),
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": f"{name}-1", "labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["127.0.0.1"]}],
            "ports": [{"name": "main", "port": where}],
        },
    ]
