"""Backends: the destinations of requests to MCP servers."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias, assert_never

from authplane.controlplane.graph.gateway.backend_urls import build_url_cluster
from authplane.controlplane.graph.model.canonical_paths import target_problem
from authplane.controlplane.graph.model.upstreams import (
    CaFile,
    ExternalName,
    HttpVersion,
    Plaintext,
    ServiceCluster,
    VerifiedTls,
)
from authplane.controlplane.graph.reports import Reports
from authplane.controlplane.graph.settings.gateway_settings import ExternalNames, NameRules, Settings
from authplane.controlplane.graph.upstreams.external_names import external_host, external_name_problem
from authplane.controlplane.graph.upstreams.service_clusters import Clusters, Wanted
from authplane.controlplane.graph.upstreams.service_tls import ServiceTls, read_service_tls
from authplane.controlplane.graph.watched_tables import tables_of, with_tables
from authplane.core.addresses import parse_ip_address
from authplane.core.memo import Tables, Watched
from authplane.core.names import ObjectName, Ref
from authplane.core.problems import Problem, Problems, Severity
from authplane.core.timeouts import Disabled, Timeout, UseDefault, parse_timeout
from authplane.core.values import dataclass
from authplane.policy.rules.backend_tls import TlsRefused
from authplane.policy.rules.target_choices import IDLE_TIMEOUT
from authplane.resources.documents import Resources
from authplane.resources.kinds.agentic import Backend, XBackend
from authplane.resources.mcp_places import McpHost, McpPlace, McpService, McpUrl, mcp_place

_HTTPS: Final = 443
_ANYWHERE: Final = NameRules(allowed=ExternalNames.ANYWHERE)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendTarget:
    """What a Backend is for routes."""

    ref: Ref
    cluster: str | None
    """None if it cannot be reached: what is wrong with it is in its report."""
    own: ServiceCluster | None = None
    """The cluster, if it is for this Backend alone; otherwise it is that of a Service."""
    host: str = ""
    """The host that the server gets; empty keeps the client's."""
    path: str
    idle: Timeout = UseDefault()
    """How long a request or its response may be idle; by default the timeout of the installation."""


Backends: TypeAlias = Mapping[Ref, BackendTarget]


@dataclass(frozen=True, slots=True)
class BuiltBackend:
    """The target of a Backend and its problems; a gRPC server is no target of a Gateway."""

    target: BackendTarget | None
    found: tuple[Problem, ...]


BackendMemo: TypeAlias = Watched[Ref, BuiltBackend]


def build_backends(  # noqa: PLR0913, PLR0917 (each of them decides something)
    resources: Resources,
    settings: Settings,
    ca_file: str,
    clusters: Clusters,
    reports: Reports,
    memo: BackendMemo | None = None,
) -> Backends:
    """Resolve every Backend and XBackend that is an MCP server, whether a route leads there or not."""
    memo = memo if memo is not None else Watched()
    tls = read_service_tls(resources)
    # What is not among the tables; of it, a change is a change for every Backend.
    memo.start((settings, ca_file, tls, resources.broken))
    written = {"Backend": resources.backends, "XBackend": resources.x_backends}
    tables = {**tables_of(resources), **written, "clusters": clusters}
    found = {}
    for kind, documents in written.items():
        for name in documents:
            ref = Ref(kind, name.namespace, name.name)
            made = memo.ensure(ref, tables, partial(_build, ref, resources, settings, CaFile(ca_file), tls))
            if made.found:
                reports.of(ref).extend(made.found)
            if made.target is not None:
                found[ref] = made.target
    return found


def backend_ref(backend: Backend | XBackend) -> Ref:
    """Name a Backend."""
    return Ref(type(backend).__name__, backend.metadata.namespace, backend.metadata.name)


def _build(  # noqa: PLR0913, PLR0917 (all that it may look at)
    ref: Ref, resources: Resources, settings: Settings, ca: CaFile, tls: ServiceTls, tables: Tables
) -> BuiltBackend:
    written: Backend | XBackend = tables[ref.kind][ref.object_name]
    problems = Problems()
    if written.spec.mcp is None:
        return BuiltBackend(None, ())
    build = _Build(with_tables(resources, tables), settings, ca, tables["clusters"], tls)
    with problems.at("spec", "mcp"):
        target = build.target(ref, mcp_place(written.spec.mcp), problems)
    idle = _idle(written.metadata.annotations, settings, problems)
    return BuiltBackend(replace(target, idle=idle), tuple(problems))


def _idle(annotations: Mapping[str, str], settings: Settings, problems: Problems) -> Timeout:
    """Read how long a server may be silent: without limit by default, since tools may take long."""
    text = annotations.get(IDLE_TIMEOUT)
    if text is None:
        return Disabled() if isinstance(settings.connections.stream_idle, UseDefault) else UseDefault()
    parsed = parse_timeout(text)
    if parsed is None or isinstance(parsed, UseDefault):
        with problems.at("metadata", "annotations", IDLE_TIMEOUT):
            wrong = f"{text!r} is not a duration, so streamIdleTimeout applies. Use one such as '10m', or 'infinity'."
            problems.add("AnnotationInvalid", wrong)
        return UseDefault()
    return parsed


class _Build:
    """What Backends are built from."""

    def __init__(
        self, resources: Resources, settings: Settings, ca: CaFile, clusters: Clusters, tls: ServiceTls
    ) -> None:
        self._resources = resources
        self._settings = settings
        self._ca = ca
        self._clusters = clusters
        self._tls = tls

    def target(self, ref: Ref, place: McpPlace, problems: Problems) -> BackendTarget:
        """Find out where a Backend leads."""
        before = problems.error_count
        wrong = target_problem(place.path)
        if wrong:
            with problems.at("url" if isinstance(place, McpUrl) else "path"):
                problems.add("PathNotValid", f"{place.path!r} {wrong}")
        match place:
            case McpService():
                found = self._service(ref, place, problems)
            case McpHost():
                found = self._outside(ref, place, problems)
            case McpUrl():
                found = self._by_url(ref, place, problems)
            case _:
                assert_never(place)
        unusable = found is None or problems.error_count > before
        return BackendTarget(ref=ref, cluster=None, path=place.path) if unusable or found is None else found

    def _by_url(self, ref: Ref, url: McpUrl, problems: Problems) -> BackendTarget | None:
        with problems.at("url"):
            cluster = build_url_cluster(ref, url, self._settings, self._ca, problems)
        if cluster is None:
            return None
        return BackendTarget(ref=ref, cluster=cluster.name, own=cluster, host=url.authority, path=url.path)

    def _service(self, ref: Ref, mcp: McpService, problems: Problems) -> BackendTarget | None:
        name = ObjectName(ref.namespace, mcp.name)
        service = self._resources.services.get(name)
        told = name in self._resources.endpoint_slices
        if service is not None and not told and service.spec.type != "ExternalName":
            return self._by_name(ref, name, mcp, problems)
        found = self._clusters[Wanted(service=name, port=mcp.port)]
        with problems.at("serviceName"):
            for each in found.problems:
                _add(each, problems)
        return BackendTarget(ref=ref, cluster=found.name, path=mcp.path) if found.name is not None else None

    def _by_name(self, ref: Ref, name: ObjectName, mcp: McpService, problems: Problems) -> BackendTarget | None:
        """Let the proxy look up a Service of which no endpoints are known, as pods of its cluster do."""
        service = self._resources.services[name]
        if all(each.port != mcp.port or each.protocol != "TCP" for each in service.spec.ports):
            with problems.at("port"):
                problems.add("ServiceUnresolvedReference", f'port "{mcp.port}" on service "{name}" not matched')
            return None
        tls = self._tls.find(service, mcp.port, self._resources, self._settings, problems)
        if isinstance(tls, TlsRefused):
            with problems.at("serviceName"):
                problems.add(
                    "TLSUpstreamValidation", f"The control plane cannot apply the BackendTLSPolicy. {tls.message}"
                )
            return None
        cluster = ServiceCluster(
            name=f"backend/{ref}",
            version=HttpVersion.HTTP1,
            tls=tls or Plaintext(),
            destinations=(
                ExternalName(
                    service=name,
                    weight=1,
                    host=f"{name.name}.{name.namespace}.svc.{self._settings.names.cluster_domain}",
                    port=mcp.port,
                    ipv4_first=True,
                ),
            ),
            connect_timeout=self._settings.connect_timeout,
        )
        return BackendTarget(ref=ref, cluster=cluster.name, own=cluster, path=mcp.path)

    def _outside(self, ref: Ref, mcp: McpHost, problems: Problems) -> BackendTarget | None:
        written = mcp.hostname
        host = external_host(written)
        rules = self._settings.names
        with problems.at("hostname"):
            if rules.allowed is ExternalNames.NOWHERE:
                said = "spec.contour.enableExternalNameService is false, so a Backend cannot use an external host."
                problems.add("HostnameNotPermitted", f"{said} Use serviceName.")
                return None
            if parse_ip_address(host) is not None or external_name_problem(host, _ANYWHERE):
                problems.add(
                    "HostnameNotPermitted", f"{written!r} is not a DNS name. Use one such as 'mcp.example.com'."
                )
                return None
            if external_name_problem(host, rules):
                problems.add(
                    "HostnameNotPermitted",
                    f"{written!r} is a loopback or metadata address, which is not allowed here. Use "
                    "serviceName with an EndpointSlice.",
                )
                return None
        cluster = ServiceCluster(
            name=f"backend/{ref}",
            version=HttpVersion.HTTP1,
            tls=VerifiedTls(ca=self._ca, subject_names=(host,), server_name=host, limits=self._settings.upstream_tls),
            # Many machines have no route to IPv6 addresses, and many hosts have one.
            destinations=(ExternalName(service=ref.object_name, weight=1, host=host, port=mcp.port, ipv4_first=True),),
            connect_timeout=self._settings.connect_timeout,
        )
        told = host if mcp.port == _HTTPS else f"{host}:{mcp.port}"
        return BackendTarget(ref=ref, cluster=cluster.name, own=cluster, host=told, path=mcp.path)


def _add(problem: Problem, problems: Problems) -> None:
    """Say what Services have to say, without the words for HTTPProxies."""
    message = problem.message.removeprefix("Spec.Routes unresolved service reference: ")
    with problems.at(*problem.path):
        (problems.add if problem.severity is Severity.ERROR else problems.warn)(problem.reason, message)
