"""Where a world runs: its documents, and requests as they are sent there."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from tests.differential.minting import sign
from tests.differential.model import (
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
    Rewrite,
    Sent,
    World,
)
from tests.support.authservers.external_answers import PORT, SERVICE
from tests.support.certificates import authority, server

from authplane.policy.rules.target_choices import PLACEMENT

_AGENTIC: Final = "agentic.networking.x-k8s.io"
_WITH_LENGTH: Final = frozenset({"POST", "PUT", "PATCH"})

_HOP_BY_HOP: Final = frozenset({"connection", "upgrade", "http2-settings", "transfer-encoding"})
"""Headers that HTTP/2 does not have."""
BEHIND: Final = "/behind"
BEHIND_HOST: Final = "behind.example"
"""What routes with a rewrite put into paths and hosts."""

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
    http2: bool
    other_host: str
    trailers: tuple[tuple[str, str], ...]
    pieces: int
    certificate: str
    gateway: int
    place: int


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
    proxies: Listeners
    """Of HTTPProxies."""
    now: datetime

    @property
    def folder(self) -> Path:
        """Where the documents are."""
        return self.root / "resources"

    def gateway_of(self, place: int) -> int:
        """Return which Gateway leads to a set; -1 is that of HTTPProxies."""
        made = self.world.sets[place]
        return -1 if made.proxy else gateways_of(self.world).index(made.gateway)

    def listeners(self, gateway: int) -> Listeners:
        """Return the ports of a Gateway, or of HTTPProxies."""
        return self.proxies if gateway < 0 else self.gateways[gateway]

    def shot(self, case: Case) -> Shot:
        """Fill in all that a request leaves open."""
        sent, gateway = case.sent, self.gateway_of(case.place)
        names = self._names(case.place)
        headers = [(name, fill(value, names)) for name, value in sent.headers]
        if sent.token is not None:
            issuer = fill(sent.token.issuer, names)
            token = sign(sent.token, int(self.now.timestamp()), fill(dict(sent.token.claims), names), issuer)
            headers.append(("authorization", f"{sent.token.scheme}{token}"))
        if sent.http2:
            headers = [(name.lower(), value) for name, value in headers if name.lower() not in _HOP_BY_HOP]
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
            http2=sent.http2,
            other_host=sent.other_host,
            trailers=sent.trailers if sent.http2 or sent.framing is Framing.CHUNKED else (),
            pieces=sent.pieces,
            certificate="" if self.world.sets[case.place].proxy else sent.certificate,
            gateway=gateway,
            place=case.place,
        )

    def rewritten(self, shot: Shot) -> tuple[str, str]:
        """Return the path and the host with which the route of a request forwards it."""
        path, mark, query = shot.seen_path.partition("?")
        match self.world.sets[shot.place].rewrite:
            case Rewrite.PREFIX:
                return f"{BEHIND}{path}{mark}{query}", shot.host
            case Rewrite.PATH:
                return f"{BEHIND}{mark}{query}", shot.host
            case Rewrite.HOST:
                return shot.seen_path, BEHIND_HOST
            case _:
                return shot.seen_path, shot.host

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
            found += [_policy(draft, f"g{number}-{index}", names, ports, aim) for index, draft in enumerate(drafts)]
        for place, made in enumerate(self.world.sets):
            if made.proxy:
                found.append(_proxy(f"s{place}"))
                continue
            backends = [] if made.service else [f"s{place}", *([f"s{place}w"] if made.weighted else ())]
            gateway = self.gateway_of(place)
            names, ports = self._names(place), self.gateways[gateway]
            found += [_backend(each, call_out=made.call_out) for each in backends]
            found.append(_route(f"s{place}", gateway, made))
            aims = [{"group": _AGENTIC, "kind": "Backend", "name": each} for each in backends]
            found += [
                _policy(each, f"s{place}-{index}", names, ports, *aims) for index, each in enumerate(made.backend)
            ]
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
            "listeners": {
                "http": {"address": "127.0.0.1", "port": self.proxies.plain},
                "https": {"address": "127.0.0.1", "port": self.proxies.secure},
            },
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
        if made.gateway not in found and not made.proxy:
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
    """Leave out what Envoy drops as it reads a request: what is for it alone, and an offer to go on with HTTP/2.

    It writes one header anew for authorization services. Of several content types it drops those without a value: the
    server behind gets the others only.
    """
    gone = {"transfer-encoding", "x-envoy-auth-partial-body"}
    connection = ",".join(value.lower() for name, value in headers if name == "connection")
    if "upgrade" not in connection or "upgrade" not in {name for name, _ in headers}:
        gone |= {"upgrade", "connection"}
    elif ("upgrade", "h2c") in headers:
        gone |= {"upgrade", "http2-settings", "connection"}
    if "x-team" in connection:
        gone |= {"x-team", "connection"}
    left = tuple(pair for pair in headers if pair[0].lower() not in gone)
    filled = any(name.lower() == "content-type" and value for name, value in left)
    return tuple(pair for pair in left if not (filled and pair[0].lower() == "content-type" and not pair[1]))


def _framing(sent: Sent) -> tuple[tuple[str, str], ...]:
    if sent.framing is Framing.CHUNKED:
        return () if sent.http2 else (("transfer-encoding", "chunked"),)
    told = bool(sent.body) or sent.method in _WITH_LENGTH
    return (("content-length", str(len(sent.body))),) if told else ()


def _document(version: str, kind: str, name: str, spec: Json) -> Json:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _policy(draft: Draft, name: str, names: Mapping[str, str], ports: Listeners, *aims: Json) -> Json:
    spec = _with_ports(fill(dict(draft.spec), names), ports)
    return _document(f"{_AGENTIC}/{draft.version}", draft.kind, name, {"targetRefs": list(aims), **spec})


def _with_ports(value: Any, ports: Listeners) -> Any:
    meant = {PLAIN_PORT: ports.plain, SECURE_PORT: ports.secure}
    if isinstance(value, dict):
        return {
            key: [meant.get(port, port) for port in each] if key == "ports" else _with_ports(each, ports)
            for key, each in value.items()
        }
    return [_with_ports(each, ports) for each in value] if isinstance(value, list) else value


def _backend(name: str, *, call_out: bool) -> Json:
    spec = {"type": "MCP", "mcp": {"serviceName": "origin", "port": 80}}
    made = _document(f"{_AGENTIC}/v1alpha1", "Backend", name, spec)
    if call_out:
        made["metadata"]["annotations"] = {PLACEMENT: "CallOut"}
    return made


def _route(name: str, gateway: int, made: PolicySet) -> Json:
    to = [{"group": _AGENTIC, "kind": "Backend", "name": name, "weight": 3}]
    if made.weighted:
        to.append({"group": _AGENTIC, "kind": "Backend", "name": f"{name}w", "weight": 2})
    if made.service:
        to = [{"name": "origin", "port": 80}]
    spec = {
        "parentRefs": [{"name": f"g{gateway}"}],
        "hostnames": [f"{name}.example", f"*.{name}.example"],
        "rules": [{"backendRefs": to, **_REWRITES[made.rewrite]}],
    }
    return _document("gateway.networking.k8s.io/v1", "HTTPRoute", name, spec)


def _rewriting(rewrite: Json) -> Json:
    return {
        "matches": [{"path": {"type": "PathPrefix", "value": "/"}}],
        "filters": [{"type": "URLRewrite", "urlRewrite": rewrite}],
    }


_REWRITES: Final[Mapping[Rewrite, Json]] = {
    Rewrite.NOTHING: {},
    Rewrite.PREFIX: _rewriting({"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": BEHIND}}),
    Rewrite.PATH: _rewriting({"path": {"type": "ReplaceFullPath", "replaceFullPath": BEHIND}}),
    Rewrite.HOST: _rewriting({"hostname": BEHIND_HOST}),
}


def _proxy(name: str) -> Json:
    spec = {
        "virtualhost": {"fqdn": f"{name}.example"},
        "routes": [{"services": [{"name": "origin", "port": 80}]}],
    }
    return _document("projectcontour.io/v1", "HTTPProxy", name, spec)


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
