"""The clusters that routes use."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from typing import Final, TypeAlias, assert_never

from authplane.controlplane.graph.model.upstreams import (
    Balancing,
    Destinations,
    EndpointGroup,
    ExternalName,
    HttpVersion,
    Plaintext,
    ServiceCluster,
    UpstreamTls,
    VerifiedTls,
)
from authplane.controlplane.graph.settings.gateway_settings import Settings
from authplane.controlplane.graph.tls.upstream_tls import upstream_tls
from authplane.controlplane.graph.upstreams.resolved_services import ExternalAddress, Resolved, resolve
from authplane.controlplane.graph.upstreams.service_annotations import annotated_breakers, annotated_protocol
from authplane.controlplane.graph.upstreams.service_tls import ServiceTls
from authplane.controlplane.graph.watched_tables import tables_of, with_tables
from authplane.core.addresses import parse_ip_address
from authplane.core.memo import Tables, Watched
from authplane.core.names import ObjectName
from authplane.core.problems import Problem, Problems, Severity
from authplane.core.timeouts import Timeout, UseDefault
from authplane.core.values import dataclass
from authplane.policy.rules.backend_tls import TlsRefused
from authplane.resources.documents import Resources
from authplane.resources.kinds.contour_policies import UpstreamValidation
from authplane.resources.kinds.core import Service
from authplane.resources.service_endpoints import NO_ENDPOINTS, Unresolved, no_endpoints_message

_TLS: Final = frozenset({"h2", "tls"})
_VERSIONS: Final = {"": HttpVersion.HTTP1, "tls": HttpVersion.HTTP1, "h2": HttpVersion.HTTP2, "h2c": HttpVersion.HTTP2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A Service's port, and the settings of a route for it."""

    service: ObjectName
    port: int
    protocol: str | None = None
    """``h2``, ``h2c``, ``tls``; None means that of the Service's annotations, or else HTTP/1.1."""
    validation: UpstreamValidation | None = None
    host: str = ""
    """The host that the route sends to the origin, and the server name of TLS; empty keeps the client's."""
    balancing: Balancing = Balancing.ROUND_ROBIN
    idle_connection_timeout: Timeout = UseDefault()


@dataclass(frozen=True, slots=True)
class Found:
    """The result for a route: the name of a cluster or none, and its problems.

    It does not contain endpoints, only a warning if there is none: no route changes when endpoints come and go.
    """

    name: str | None
    problems: tuple[Problem, ...]


Clusters: TypeAlias = Mapping[Wanted, Found]
"""Has an answer to every wish."""


def ensure_cluster(clusters: Clusters, wanted: Wanted, problems: Problems, *, idle: bool = False) -> str | None:
    """Return the name of the cluster for what is wanted; None if there can be none, which is an error.

    One that is ``idle`` gets no requests, so it needs no endpoints.
    """
    found = clusters[wanted]
    for each in found.problems:
        if idle and each.reason == NO_ENDPOINTS:
            continue
        with problems.at(*each.path):
            (problems.add if each.severity is Severity.ERROR else problems.warn)(each.reason, each.message)
    return found.name


ClusterMemo: TypeAlias = Watched[Wanted, tuple[ServiceCluster | None, Found]]


class ServiceClusters(Clusters):
    """The clusters that routes have used so far, each once."""

    def __init__(self, resources: Resources, settings: Settings, tls: ServiceTls, memo: ClusterMemo) -> None:
        self._resources = resources
        self._settings = settings
        self._tls = tls
        self._memo = memo
        memo.start((settings, resources.broken, tls))
        self._tables = tables_of(resources)
        self._known: dict[Wanted, tuple[ServiceCluster | None, Found]] = {}

    def __getitem__(self, wanted: Wanted) -> Found:
        known = self._known.get(wanted)
        if known is None:
            known = self._known[wanted] = self._memo.ensure(wanted, self._tables, partial(self._found, wanted))
        return known[1]

    def __iter__(self) -> Iterator[Wanted]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def built(self) -> Mapping[str, ServiceCluster]:
        """Return every cluster that is used and exists, by name."""
        return {cluster.name: cluster for cluster, _ in self._known.values() if cluster is not None}

    def _found(self, wanted: Wanted, tables: Tables) -> tuple[ServiceCluster | None, Found]:
        problems = Problems()
        build = _Build(with_tables(self._resources, tables), self._settings, self._tls)
        cluster = build.cluster(wanted, problems)
        return cluster, Found(cluster.name if cluster is not None else None, tuple(problems))


class _Build:
    """Builds one cluster."""

    def __init__(self, resources: Resources, settings: Settings, service_tls: ServiceTls) -> None:
        self._resources = resources
        self._settings = settings
        self._service_tls = service_tls

    def cluster(self, wanted: Wanted, problems: Problems) -> ServiceCluster | None:
        """Return the cluster, or None after an error."""
        found = resolve(self._resources, wanted.service, wanted.port, self._settings.route_names)
        if isinstance(found, Unresolved):
            reason, message = found.reason, found.message
            if reason == "UnsupportedServiceType":
                reason = "ServiceUnresolvedReference"
                message = (
                    f"{wanted.service} is an ExternalName service, which is not allowed. Set "
                    "enableExternalNameService: true."
                )
            problems.add(reason, f"Spec.Routes unresolved service reference: {message}")
            return None
        if not found:
            problems.warn(NO_ENDPOINTS, no_endpoints_message(self._resources, wanted.service, wanted.port))
        service = self._resources.services[wanted.service]
        protocol = wanted.protocol if wanted.protocol is not None else annotated_protocol(service, wanted.port)
        server_name = _server_name(wanted, found) if protocol in _TLS else ""
        tls = self._by_policy(wanted, service, problems) or self._tls(wanted, protocol, server_name, problems)
        cluster = ServiceCluster(
            name=_name(wanted, protocol, server_name),
            version=_VERSIONS[protocol],
            tls=tls,
            destinations=_destinations(wanted.service, found),
            balancing=wanted.balancing,
            breakers=annotated_breakers(service, self._settings.breakers, problems),
            connect_timeout=self._settings.connect_timeout,
            idle_connection_timeout=wanted.idle_connection_timeout,
        )
        return None if problems.errors else cluster

    def _by_policy(self, wanted: Wanted, service: Service, problems: Problems) -> VerifiedTls | None:
        """Return TLS by a BackendTLSPolicy; a route's own validation takes precedence."""
        if wanted.validation is not None:
            return None
        found = self._service_tls.find(service, wanted.port, self._resources, self._settings, problems)
        if not isinstance(found, TlsRefused):
            return found
        why = (
            f"Service [{wanted.service.name}:{wanted.port}]: the control plane cannot apply the BackendTLSPolicy. "
            f"{found.message}"
        )
        problems.add("TLSUpstreamValidation", why)
        return None

    def _tls(self, wanted: Wanted, protocol: str, server_name: str, problems: Problems) -> UpstreamTls:
        if protocol not in _TLS:
            if wanted.validation is not None:
                problems.add(
                    "InconsistentProtocol",
                    f'upstream TLS validation not supported for "{protocol or "http/1.1"}" protocol',
                )
            return Plaintext()
        namespace = wanted.service.namespace
        found = Problems()
        tls = upstream_tls(self._resources, self._settings, namespace, wanted.validation, server_name, found)
        for each in found:
            with problems.at(*each.path):
                _add(each, wanted, problems)
        return tls


def _add(problem: Problem, wanted: Wanted, problems: Problems) -> None:
    """Name the Service where Contour does."""
    if problem.severity is Severity.WARNING:
        problems.warn(problem.reason, problem.message)
    elif problem.reason == "TLSUpstreamValidation":
        problems.add(problem.reason, f"Service [{wanted.service.name}:{wanted.port}] {problem.message}")
    else:
        problems.add(problem.reason, problem.message)


def _server_name(wanted: Wanted, found: Resolved) -> str:
    """Return the server name (SNI) for TLS: the host that the origin gets, or the external name; empty for none.

    An address is never a server name (RFC 6066, 3).
    """
    outside = found.host if isinstance(found, ExternalAddress) else ""
    host = wanted.host or outside
    is_address = host.startswith("[") or parse_ip_address(host.partition(":")[0] or host) is not None
    return "" if is_address or ":" in outside else host.partition(":")[0]


def _destinations(service: ObjectName, found: Resolved) -> Destinations:
    match found:
        case ExternalAddress(host, port):
            return (ExternalName(service=service, weight=1, host=host, port=port),)
        case tuple():
            return (EndpointGroup(service=service, weight=1, endpoints=found),)
        case _:
            assert_never(found)


def _name(wanted: Wanted, protocol: str, server_name: str) -> str:
    """Name a cluster after its Service; what else differs is a hash, so a name stays as long as it means the same."""
    plain = f"service/{wanted.service}/{wanted.port}"
    name = f"{plain}/{protocol}" if protocol else plain
    differs: dict[str, object] = {}
    if wanted.validation is not None:
        differs["validation"] = asdict(wanted.validation)
    if server_name:
        differs["server name"] = server_name
    if wanted.balancing is not Balancing.ROUND_ROBIN:
        differs["balancing"] = wanted.balancing.value
    if wanted.idle_connection_timeout != UseDefault():
        differs["idle connection timeout"] = repr(wanted.idle_connection_timeout)
    return f"{name}/{_short_hash(sorted(differs.items()))}" if differs else name


def _short_hash(values: Iterable[tuple[str, object]]) -> str:
    return hashlib.sha256(json.dumps(list(values), sort_keys=True).encode()).hexdigest()[:10]
