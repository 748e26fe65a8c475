"""Builds what proxies serve of Gateways, HTTPRoutes and Backends, and the outcome of each.

Without any Gateway there is a default one, on a port of this machine, which leads to every Backend under
``/<namespace>/<name>``.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import field, replace
from types import MappingProxyType
from typing import Final

from authplane.controlplane.graph.gateway.default_gateway import (
    DEFAULT,
    default_gateway,
    default_routes,
    has_default_gateway,
)
from authplane.controlplane.graph.gateway.gateway_listeners import Listener, gateway_ref, read_listeners
from authplane.controlplane.graph.gateway.gateway_ports import gateway_ports
from authplane.controlplane.graph.gateway.http_routes import Attached, RouteMemory, RouteOutcome, attach_routes
from authplane.controlplane.graph.gateway.mcp_backends import BackendMemo, Backends, build_backends
from authplane.controlplane.graph.gateway.protection import NOTHING_PROTECTED, Protection, read_protection
from authplane.controlplane.graph.gateway.route_entries import Checks
from authplane.controlplane.graph.gateway.route_rules import CoversOf, RouteContext
from authplane.controlplane.graph.model.host_model import checks_of, forwards_of
from authplane.controlplane.graph.model.port_model import Certificate, Port, PortMemory, hosts_of
from authplane.controlplane.graph.model.target_placements import PlacementMemory, Placements
from authplane.controlplane.graph.model.upstreams import Cluster, TlsLimits
from authplane.controlplane.graph.reports import Reports
from authplane.controlplane.graph.settings.gateway_settings import Settings
from authplane.controlplane.graph.settings.settings_places import configuration_ref
from authplane.controlplane.graph.upstreams.policy_connection import PolicyServer, policy_cluster, policy_service
from authplane.controlplane.graph.upstreams.service_clusters import Clusters
from authplane.core.memo import Memo, Watched
from authplane.core.names import ObjectName, Ref
from authplane.core.problems import Problems
from authplane.core.values import dataclass
from authplane.policy.attached.attachments import RequestTarget
from authplane.resources.documents import Resources
from authplane.resources.kinds.configuration import AuthplaneConfigurationSpec, GatewaySettings
from authplane.resources.kinds.gateway import HTTPRoute

_EVERYWHERE: Final = "0.0.0.0"  # noqa: S104 (a gateway is there to be reached)
_HERE: Final = "127.0.0.1"
_NO_SETTINGS: Final = AuthplaneConfigurationSpec()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateways:
    """What proxies get, and what became of the documents."""

    ports: tuple[Port, ...] = ()
    clusters: tuple[Cluster, ...] = ()
    """Those that are there for Gateways alone."""
    services: frozenset[str] = frozenset()
    """The names of the clusters of Services that routes lead to."""
    certificates: tuple[Certificate, ...] = ()
    listeners: tuple[Listener, ...] = ()
    routes: tuple[RouteOutcome, ...] = ()
    backends: Backends = field(default_factory=lambda: MappingProxyType({}))
    protection: Protection = NOTHING_PROTECTED
    ways: tuple[RequestTarget, ...] = ()
    """Which listeners lead to which backends, each once; a Gateway of our own is among them."""
    usable: bool = True
    """Otherwise the configuration is not, and nothing is served."""

    def withdrawn(self) -> "Gateways":
        """Return the same without anything for proxies."""
        return replace(self, ports=(), clusters=(), services=frozenset(), certificates=(), usable=False)


NO_GATEWAYS: Final = Gateways()


@dataclass(slots=True)
class GatewayMemory:
    """What one build leaves to the next."""

    backends: BackendMemo = field(default_factory=Watched)
    placements: PlacementMemory = field(default_factory=PlacementMemory)
    routes: RouteMemory = field(default_factory=RouteMemory)
    default_routes: RouteMemory = field(default_factory=RouteMemory)
    ports: PortMemory = field(default_factory=PortMemory)
    policy_server: Memo[str, Cluster] = field(default_factory=Memo)

    def forget(self) -> None:
        """Forget everything: there is nothing that could come again."""
        self.backends, self.placements, self.ports = Watched(), PlacementMemory(), PortMemory()
        self.routes, self.default_routes = RouteMemory(), RouteMemory()


def build_gateways(  # noqa: PLR0913, PLR0917 (each of them decides something)
    resources: Resources,
    settings: Settings,
    server: PolicyServer,
    placements: Placements,
    clusters: Clusters,
    taken: Collection[int],
    reports: Reports,
    memory: GatewayMemory | None = None,
) -> Gateways:
    """Build the ports of all Gateways; ``taken`` are those of others.

    With the memory of an earlier build the result is the same, and what has not changed is the same object.
    """
    memory = memory or GatewayMemory()
    if not (resources.gateways or resources.http_routes or resources.backends or resources.x_backends):
        memory.forget()
        return NO_GATEWAYS
    spec = resources.configuration.spec if resources.configuration is not None else _NO_SETTINGS
    protection = read_protection(resources)
    backends = build_backends(resources, settings, spec.gateway.ca_file, clusters, reports, memory.backends)
    build = _Build(
        beside=RouteContext(resources=resources, clusters=clusters, backends=backends, covers=CoversOf(protection)),
        protection=protection,
        checks=Checks(
            service=policy_service(server, spec.max_request_body),
            placings=placements,
            unprotected_backends=spec.unprotected_backends == "Deny",
            trusted_hops=settings.connections.trusted_hops,
        ),
        taken=taken,
        reports=reports,
        memory=memory,
    )
    made = build.gateways(spec.gateway, settings.downstream_tls)
    if not _asks(made.ports):
        return made
    return replace(made, clusters=(*made.clusters, memory.policy_server.share("", policy_cluster(server))))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Build:
    """What Gateways are built from."""

    beside: RouteContext
    protection: Protection
    checks: Checks
    taken: Collection[int]
    reports: Reports
    memory: GatewayMemory

    def gateways(self, settings: GatewaySettings, tls: TlsLimits) -> Gateways:
        """Build everything but the cluster of the policy server."""
        memory, backends = self.memory, self.beside.backends
        listeners, attached = self.written()
        served, leading, address = listeners, attached, _EVERYWHERE
        if has_default_gateway(self.beside.resources):
            served, leading = self.default(settings)
            address = _HERE
        else:
            memory.default_routes = RouteMemory()
        ports = gateway_ports(served, leading.hosts, settings.address or address, tls, memory.ports)
        used = {cluster for forward in forwards_of(hosts_of(ports)) for cluster in forward.clusters}
        own = [each.own for each in backends.values() if each.own is not None and each.own.name in used]
        return Gateways(
            ports=ports,
            clusters=tuple(own),
            services=frozenset(used - {each.name for each in own}),
            certificates=tuple(_certificates(served)),
            listeners=listeners,
            routes=attached.routes,
            backends=backends,
            protection=self.protection,
            ways=tuple(dict.fromkeys(way for route in leading.routes for way in route.ways)),
        )

    def written(self) -> tuple[tuple[Listener, ...], Attached]:
        """Build the Gateways and routes of the documents."""
        resources, reports = self.beside.resources, self.reports
        listeners = read_listeners(
            resources.gateways, resources, self.taken, lambda name: reports.of(gateway_ref(name))
        )
        report, memory = lambda name: reports.of(_route(name)), self.memory.routes
        return listeners, self._attached(resources.http_routes, listeners, report, memory)

    def default(self, settings: GatewaySettings) -> tuple[tuple[Listener, ...], Attached]:
        """Build the default Gateway; its problems are reported on the settings."""
        found, unheard = Problems(), Problems()
        resources = self.beside.resources
        gateways = {DEFAULT: default_gateway(settings)}
        listeners = read_listeners(gateways, resources, self.taken, lambda _: found, trusted=True)
        configuration = resources.configuration
        if configuration is not None:
            problems = self.reports.of(configuration_ref(configuration))
            with problems.at("spec", "gateway"):
                for each in found:
                    problems.warn(each.reason, f"The control plane does not serve the default Gateway. {each.message}")
        # What is wrong with a Backend is in its own report.
        routes = default_routes(resources)
        return listeners, self._attached(routes, listeners, lambda _: unheard, self.memory.default_routes)

    def _attached(
        self,
        routes: Mapping[ObjectName, HTTPRoute],
        listeners: tuple[Listener, ...],
        report: Callable[[ObjectName], Problems],
        memory: RouteMemory,
    ) -> Attached:
        return attach_routes(routes, listeners, self.protection, self.beside, self.checks, report, memory)


def _route(name: ObjectName) -> Ref:
    return Ref("HTTPRoute", name.namespace, name.name)


def _certificates(listeners: Iterable[Listener]) -> Iterable[Certificate]:
    shown = {each.name: each for listener in listeners if listener.served for each in listener.certificates}
    return (shown[name] for name in sorted(shown))


def _asks(ports: Iterable[Port]) -> bool:
    """Tell whether the policy server is called for any request."""
    return any(True for _ in checks_of(hosts_of(ports)))
