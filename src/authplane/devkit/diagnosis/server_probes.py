"""Probes that connect to servers: the policy server, authorization services and origins."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, assert_never

from authplane.authserver.backends.runtime.external_endpoints import asked_endpoints
from authplane.controlplane.graph.model.port_model import Certificate
from authplane.controlplane.graph.model.upstreams import (
    CaFile,
    CertificateFiles,
    Cluster,
    EndpointGroup,
    ExtensionCluster,
    ExternalName,
    HttpVersion,
    Plaintext,
    SocketFile,
    UnverifiedTls,
    VerifiedTls,
)
from authplane.controlplane.graph.upstreams.policy_connection import POLICY_CLUSTER
from authplane.controlplane.serving.runtime.handshake import (
    Accepted,
    Cause,
    ClientTls,
    Greeting,
    NotTried,
    Refused,
    Speaks,
    Trust,
)
from authplane.controlplane.serving.runtime.policy_server_probe import REMEDIES, dialled, dialled_with, shown_as
from authplane.core.names import ObjectName
from authplane.core.values import dataclass
from authplane.devkit.diagnosis.attempts import TOTAL, reach, try_all
from authplane.devkit.diagnosis.examination import Examined, Outcome, Row
from authplane.policy.rules.backend_tls import SystemTrust
from authplane.runtime.servers.listen import Address, TcpAddress, UnixAddress

_POLICY_SERVER: Final = "policy-server"
_OR_NAME_IT: Final = (
    "Alternatively, start 'authplane authserver policy' at this address, or set spec.policyServer to"
    " the address of your policy server."
)
_SERVICES: Final[Mapping[Cause, str]] = {
    Cause.UNREACHABLE: "Start the authorization service, or correct the endpoints of its Service.",
    Cause.SERVER_CERTIFICATE: "Set spec.validation of the ExtensionService or of the BackendTLSPolicy to the"
    " server's CA and to a name in the server's certificate.",
    Cause.HANDSHAKE: "Use a server that speaks TLS on this port and accepts Envoy's client certificate"
    " (spec.envoy.clientCertificate of the ContourConfiguration), or set spec.protocol of the ExtensionService to h2c.",
    Cause.PROTOCOL: "Set spec.protocol of the ExtensionService to the protocol of the server: h2, h2c or http/1.1.",
}
_ORIGINS: Final[Mapping[Cause, str]] = {
    Cause.UNREACHABLE: "Start the origin, or correct its address in the Backend or in the endpoints of its Service.",
    Cause.SERVER_CERTIFICATE: "Set validation of the route's service, or spec.validation of the BackendTLSPolicy, to"
    " the origin's CA and to a name in the origin's certificate.",
    Cause.HANDSHAKE: "Set protocol of the route's service to the protocol of the origin, or configure the origin to"
    " accept Envoy's client certificate.",
    Cause.PROTOCOL: "Set protocol of the route's service to the protocol of the origin: h2, h2c or tls. For HTTP/1.1"
    " without TLS, remove protocol.",
}
_ELSEWHERE: Final = "Run 'authplane doctor' on Envoy's machine."


@dataclass(frozen=True, slots=True)
class _Server:
    """A server to try, and what the row says about it."""

    subject: str
    address: Address
    tls: ClientTls | None
    speaks: Speaks
    in_cluster: bool = False
    """Only machines of the cluster can resolve its name."""


# --- The policy server


async def probe_policy_server(examined: Examined) -> Sequence[Row]:
    """Connect to every address of the policy server, if something uses it."""
    server = examined.generation.built.policy_server
    if server is None:
        return ()
    if examined.given:
        return [_inside(greeting) for _, greeting in await _greet(examined.given, None)]
    configuration = examined.generation.loaded.resources.configuration
    named = configuration is not None and configuration.spec.policy_server is not None
    rows = []
    for address, greeting in await _greet(dialled(server), dialled_with(server)):
        outcome, message, remedy = _told(greeting) if named else _told_by_default(greeting)
        rows.append(Row(probe=_POLICY_SERVER, subject=str(address), outcome=outcome, message=message, remedy=remedy))
    return rows


async def _greet(addresses: Iterable[Address], tls: ClientTls | None) -> list[tuple[Address, Greeting]]:
    tried = tuple(addresses)
    greetings = await try_all([partial(reach, each, tls) for each in tried])
    return [(address, greeting or _LATE) for address, greeting in zip(tried, greetings, strict=True)]


def _inside(greeting: Greeting) -> Row:
    message = "authplane run decides checks in its own process."
    if isinstance(greeting, Accepted):
        return Row(probe=_POLICY_SERVER, subject="authplane run", outcome=Outcome.OK, message=message)
    return Row(
        probe=_POLICY_SERVER,
        subject="authplane run",
        outcome=Outcome.FINDING,
        message=f"{message} It does not answer: {greeting.why}.",
        remedy="Restart 'authplane run'.",
    )


def _told(greeting: Greeting) -> tuple[Outcome, str, str]:
    match greeting:
        case Accepted():
            return Outcome.OK, "The server accepts connections.", ""
        case NotTried(why):
            remedy = "Run 'authplane doctor' on Envoy's machine, which has the TLS files of spec.policyServer."
            return Outcome.UNKNOWN, f"authplane did not connect from this machine: {why}.", remedy
        case Refused(cause=cause, why=why):
            return Outcome.FINDING, f"Cannot connect: {why}.", REMEDIES[cause]
        case _:
            assert_never(greeting)


def _told_by_default(greeting: Greeting) -> tuple[Outcome, str, str]:
    """Say that the address is the default, and that `authplane run` needs none."""
    outcome, message, remedy = _told(greeting)
    message = f"{message} This is the default address, because spec.policyServer is not set."
    if outcome is Outcome.OK:
        return outcome, message, remedy
    return outcome, message, f"Start 'authplane run', which decides checks in its own process. {_OR_NAME_IT}"


# --- Authorization services and origins


async def probe_extension_services(examined: Examined) -> Sequence[Row]:
    """Connect to every endpoint of every ExtensionService, as Envoy does."""
    clusters = examined.generation.built.graph.clusters
    found = [each for each in clusters if isinstance(each, ExtensionCluster) and each.name != POLICY_CLUSTER]
    return await _probe_clusters(examined, "authorization-service", found, _SERVICES)


async def probe_origins(examined: Examined) -> Sequence[Row]:
    """Connect to every endpoint of every Service and Backend that routes lead to, as Envoy does."""
    found = [each for each in examined.generation.built.graph.clusters if not isinstance(each, ExtensionCluster)]
    return await _probe_clusters(examined, "origin", found, _ORIGINS)


async def probe_external_services(examined: Examined) -> Sequence[Row]:
    """Connect to every service that ExternalAuth policies name, as the policy server does."""
    generation = examined.generation
    found = asked_endpoints(generation.compiled.policies, generation.loaded.resources)
    servers: list[_Server] = []
    rows: list[Row] = []
    for where in sorted(found, key=lambda each: (each.service, each.port)):
        tls = None
        if where.tls is not None:
            ca = Trust.SYSTEM if isinstance(where.tls.ca, SystemTrust) else where.tls.ca
            tls = ClientTls(ca=ca, server_name=where.tls.hostname)
        if not found[where]:
            rows.append(_no_endpoint("external-service", where.service))
        in_cluster = where.service not in generation.loaded.resources.endpoint_slices
        for each in found[where]:
            address = TcpAddress(host=each.host, port=each.port)
            servers.append(_Server(f"{where.service} {address}", address, tls, Speaks.ANYTHING, in_cluster))
    return [*rows, *await _probe_servers("external-service", servers, _SERVICES)]


async def _probe_clusters(
    examined: Examined, probe: str, clusters: Sequence[Cluster], remedies: Mapping[Cause, str]
) -> list[Row]:
    empty = {
        group.service: None
        for cluster in clusters
        for group in cluster.destinations
        if isinstance(group, EndpointGroup) and group.weight and not group.endpoints
    }
    servers = dict.fromkeys(server for each in clusters for server in _servers(each, examined))
    return [*(_no_endpoint(probe, name) for name in empty), *await _probe_servers(probe, list(servers), remedies)]


async def _probe_servers(probe: str, servers: Sequence[_Server], remedies: Mapping[Cause, str]) -> list[Row]:
    attempts: list[Callable[[], Awaitable[Greeting]]]
    attempts = [partial(reach, each.address, each.tls, each.speaks) for each in servers]
    return [
        _row(probe, server, greeting or _LATE, remedies)
        for server, greeting in zip(servers, await try_all(attempts), strict=True)
    ]


def _servers(cluster: Cluster, examined: Examined) -> Iterator[_Server]:
    """Return where a cluster's requests go."""
    tls = _client_tls(cluster, examined)
    speaks = Speaks.HTTP2 if cluster.version is HttpVersion.HTTP2 else Speaks.ANYTHING
    address: Address
    for destination in cluster.destinations:
        match destination:
            case EndpointGroup(service=service, endpoints=endpoints):
                for each in endpoints if destination.weight else ():
                    address = TcpAddress(host=each.address, port=each.port)
                    yield _Server(f"{service} {address}", address, tls, speaks)
            case ExternalName(service=service, host=host, port=port):
                address = TcpAddress(host=host, port=port)
                in_cluster = f".{service.namespace}.svc." in host
                yield _Server(f"{service} {address}", address, tls, speaks, in_cluster)
            case SocketFile(service=service, path=path):
                address = UnixAddress(path=path)
                yield _Server(f"{service} {address}", address, tls, speaks)
            case _:
                assert_never(destination)


def _client_tls(cluster: Cluster, examined: Examined) -> ClientTls | None:
    match cluster.tls:
        case Plaintext():
            return None
        case UnverifiedTls(server_name=name, client_certificate=client):
            return ClientTls(ca=Trust.ANYBODY, server_name=name, shown=shown_as(_certificate(client, examined)))
        case VerifiedTls(ca=ca, subject_names=names, server_name=name, client_certificate=client):
            return ClientTls(
                ca=ca.path if isinstance(ca, CaFile) else ca,
                server_name=name or names[0],
                shown=shown_as(_certificate(client, examined)),
            )
        case _:
            assert_never(cluster.tls)


def _certificate(name: ObjectName | None, examined: Examined) -> Certificate | CertificateFiles | None:
    return next((each for each in examined.generation.built.graph.certificates if each.name == name), None)


def _row(probe: str, server: _Server, greeting: Greeting, remedies: Mapping[Cause, str]) -> Row:
    match greeting:
        case Accepted():
            outcome, message, remedy = Outcome.OK, "The server accepts connections.", ""
        case NotTried(why):
            outcome, message, remedy = (
                Outcome.UNKNOWN,
                f"authplane did not connect from this machine: {why}.",
                _ELSEWHERE,
            )
        case Refused(cause=Cause.UNREACHABLE, why=why) if server.in_cluster:
            outcome, message, remedy = Outcome.UNKNOWN, f"Cannot connect from this machine: {why}.", _ELSEWHERE
        case Refused(cause=cause, why=why):
            outcome, message, remedy = Outcome.FINDING, f"Cannot connect: {why}.", remedies[cause]
        case _:
            assert_never(greeting)
    return Row(probe=probe, subject=server.subject, outcome=outcome, message=message, remedy=remedy)


def _no_endpoint(probe: str, service: ObjectName) -> Row:
    return Row(
        probe=probe,
        subject=f"{service}",
        outcome=Outcome.FINDING,
        message="The Service has no ready endpoint.",
        remedy="Run 'authplane validate' to see what the EndpointSlices lack.",
    )


_LATE: Final = NotTried(f"the attempt did not end within {TOTAL:g} s")
