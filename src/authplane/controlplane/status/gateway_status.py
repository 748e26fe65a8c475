"""Status of Gateways, HTTPRoutes and Backends, in the shapes of their API groups."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from authplane.controlplane.graph.build import Built
from authplane.controlplane.graph.gateway.gateway_api import Gateways
from authplane.controlplane.graph.gateway.gateway_listeners import Fault, Listener
from authplane.controlplane.graph.gateway.http_routes import Parent, RouteOutcome
from authplane.controlplane.graph.gateway.mcp_backends import BackendTarget, backend_ref
from authplane.controlplane.graph.model.grpc_servers import Closed, GrpcServer
from authplane.controlplane.graph.model.host_model import checks_of
from authplane.controlplane.graph.model.port_model import Port, hosts_of
from authplane.controlplane.graph.model.programming import TOKENS, Programming, gateway_listener, gateway_routes
from authplane.controlplane.status.resource_status import (
    Condition,
    ListenerStatus,
    ParentStatus,
    Status,
    outdated_condition,
    problems_by_ref,
    programmed_condition,
    server_condition,
    valid_condition,
)
from authplane.core.names import ObjectName, Ref
from authplane.core.problems import Problem, Severity, dotted
from authplane.core.values import dataclass
from authplane.resources.documents import Finding, Resources
from authplane.resources.kinds.agentic import Backend, XBackend
from authplane.resources.kinds.gateway import ParentRef
from authplane.resources.service_endpoints import NO_ENDPOINTS
from authplane.xds.server.served_types import TypeUrl, XdsName

CONTROLLER: Final = "authplane.dev/controller"
"""Our controller name in statuses of the Gateway API."""
_VERSIONS: Final = {
    "Backend": "agentic.networking.x-k8s.io/v1alpha1",
    "Gateway": "gateway.networking.k8s.io/v1",
    "HTTPRoute": "gateway.networking.k8s.io/v1",
    "XBackend": "agentic.networking.x-k8s.io/v0alpha0",
}


def build_gateway_status(
    resources: Resources,
    findings: Iterable[Finding],
    last_good: frozenset[Ref],
    built: Built,
    programming: Programming,
) -> tuple[Status, ...]:
    """Return the status of every Gateway, HTTPRoute and Backend, in name order."""
    problems = problems_by_ref(findings, built.problems)
    verifying = frozenset(port.where.port for port in built.graph.gateways if _verifies_tokens(port))
    build = _Build(resources, built.gateways, built.graph.grpc_servers, problems, last_good, programming, verifying)
    return tuple(sorted(build.statuses(), key=lambda status: status.ref))


@dataclass(frozen=True, slots=True)
class _Build:
    """The input of statuses."""

    resources: Resources
    gateways: Gateways
    grpc_servers: tuple[GrpcServer, ...]
    problems: Mapping[Ref, tuple[Problem, ...]]
    last_good: frozenset[Ref]
    programming: Programming
    verifying: frozenset[int]
    """The ports that depend on the filter that verifies tokens."""

    def statuses(self) -> Iterator[Status]:
        """Return everything, in no order."""
        attached = Counter(name for route in self.gateways.routes for name in route.listeners)
        listeners: dict[ObjectName, list[Listener]] = {name: [] for name in self.resources.gateways}
        for each in self.gateways.listeners:
            listeners[each.gateway].append(each)
        for name, own in listeners.items():
            yield self._gateway(name, own, attached)
        for route in self.gateways.routes:
            yield self._route(route)
        backends: list[Backend | XBackend] = [
            *self.resources.backends.values(),
            *self.resources.x_backends.values(),
        ]
        for backend in backends:
            yield self._backend(backend)
        for ref in self.resources.broken:
            if ref.kind in _VERSIONS:
                valid = valid_condition(ref, self.problems.get(ref, ()))
                yield Status(ref=ref, api_version=_VERSIONS[ref.kind], generation=1, conditions=(valid,))

    def _gateway(self, name: ObjectName, listeners: list[Listener], attached: Mapping[str, int]) -> Status:
        ref = Ref("Gateway", name.namespace, name.name)
        served = [each for each in listeners if each.served]
        wrong = ", ".join(repr(each.section) for each in listeners if not each.served)
        accepted = Condition(
            type="Accepted",
            status="True" if served else "False",
            reason="ListenersNotValid" if wrong else "Accepted",
            message=f"These listeners are not valid: {wrong}. Correct the listeners."
            if wrong
            else "All listeners are valid.",
        )
        names = frozenset(each for listener in served for each in self._listener_names(listener))
        return Status(
            ref=ref,
            api_version=_VERSIONS["Gateway"],
            generation=self.resources.gateways[name].metadata.generation,
            conditions=(accepted, self._programmed(names, "ListenersNotValid"), *self._outdated(ref)),
            listeners=tuple(self._listener(each, attached.get(each.name, 0)) for each in listeners),
        )

    def _listener(self, listener: Listener, attached: int) -> ListenerStatus:
        conflict = listener.conflicted
        conflicted = Condition(
            type="Conflicted",
            status="False" if conflict is None else "True",
            reason="NoConflicts" if conflict is None else conflict.reason,
            message="" if conflict is None else conflict.message,
        )
        names = frozenset(self._listener_names(listener)) if listener.served else frozenset()
        return ListenerStatus(
            name=listener.section,
            attached_routes=attached if listener.served else 0,
            conditions=(
                _unless("Accepted", listener.not_accepted or conflict),
                conflicted,
                _unless("ResolvedRefs", listener.unresolved),
                self._programmed(names, "Invalid"),
            ),
        )

    def _route(self, route: RouteOutcome) -> Status:
        ref = Ref("HTTPRoute", route.name.namespace, route.name.name)
        served = {each.name: each for each in self.gateways.listeners if each.served}
        names = {name for each in route.listeners for name in self._listener_names(served[each])}
        names |= {name for cluster in route.backends for name in _cluster_names(cluster)}
        programmed = self._programmed(frozenset(names) if route.listeners else frozenset(), "NotAttached")
        fault = route.unresolved
        resolved = self._resolved_refs(ref) if fault is None else _unless("ResolvedRefs", fault)
        return Status(
            ref=ref,
            api_version=_VERSIONS["HTTPRoute"],
            generation=self.resources.http_routes[route.name].metadata.generation,
            conditions=self._outdated(ref),
            parents=tuple(_parent(each, resolved, programmed) for each in route.parents),
        )

    def _backend(self, backend: Backend | XBackend) -> Status:
        ref = backend_ref(backend)
        if backend.spec.mcp is None:
            return self._grpc_server(ref, backend.metadata.generation)
        target = self.gateways.backends[ref]
        used = target.cluster is not None and target.cluster in self._clusters()
        names = _cluster_names(target.cluster) if target.cluster is not None and used else frozenset()
        return Status(
            ref=ref,
            api_version=_VERSIONS[ref.kind],
            generation=backend.metadata.generation,
            conditions=(
                self._resolved(target),
                self._protected(ref),
                self._programmed(names, "NoRoute"),
                *self._outdated(ref),
            ),
        )

    def _grpc_server(self, ref: Ref, generation: int) -> Status:
        found = next((each for each in self.grpc_servers if each.ref == ref), None)
        served = None if found is None or isinstance(found.authorization, Closed) else found
        programmed = (
            self._programmed(frozenset(), "NotValid")
            if served is None
            else server_condition((TypeUrl.LISTENER, served.listener), self.programming)
        )
        resolved = self._resolved_as(ref, resolved=served is not None or not self.gateways.usable)
        return Status(
            ref=ref,
            api_version=_VERSIONS[ref.kind],
            generation=generation,
            conditions=(resolved, self._protected(ref), programmed, *self._outdated(ref)),
        )

    def _resolved(self, target: BackendTarget) -> Condition:
        return self._resolved_as(target.ref, resolved=target.cluster is not None)

    def _resolved_as(self, ref: Ref, *, resolved: bool) -> Condition:
        errors = [each for each in self.problems.get(ref, ()) if each.severity is Severity.ERROR]
        if resolved:
            return self._resolved_refs(ref)
        words = "; ".join(f"{dotted(each.path)}: {each.words}" for each in errors)
        return _unless("ResolvedRefs", Fault(errors[0].reason, words))

    def _resolved_refs(self, ref: Ref) -> Condition:
        """Report that all references were found, and in the message whether one leads to a Service without endpoints.

        Conditions of the Gateway API have no list of warnings.
        """
        warnings = [each for each in self.problems.get(ref, ()) if each.reason == NO_ENDPOINTS]
        words = "; ".join(f"{dotted(each.path)}: {each.words}" for each in warnings)
        return Condition(type="ResolvedRefs", status="True", reason="ResolvedRefs", message=words)

    def _protected(self, ref: Ref) -> Condition:
        if self.gateways.protection.backend(ref.object_name) is not None:
            return Condition(
                type="Protected", status="True", reason="PolicyAttached", message="A policy protects the Backend."
            )
        return Condition(
            type="Protected",
            status="False",
            reason="NoPolicy",
            message="No policy protects the Backend. Add an AccessPolicy.",
        )

    def _clusters(self) -> frozenset[str]:
        return self.gateways.services | {each.name for each in self.gateways.clusters}

    def _listener_names(self, listener: Listener) -> Iterator[XdsName]:
        name = gateway_listener(listener.port)
        yield TypeUrl.LISTENER, name
        yield TypeUrl.ROUTE, gateway_routes(listener.port, listener.name) if listener.secure else name
        for certificate in listener.certificates:
            yield TypeUrl.SECRET, str(certificate.name)
        if listener.port in self.verifying:
            yield TypeUrl.EXTENSION, TOKENS

    def _programmed(self, names: frozenset[XdsName], otherwise: str) -> Condition:
        if not self.gateways.usable:
            otherwise = "ConfigurationNotValid"
        elif names:
            return programmed_condition(names, self.programming)
        return Condition(
            type="Programmed",
            status="False",
            reason=otherwise,
            message="The control plane does not send this resource to proxies. Correct the errors.",
        )

    def _outdated(self, ref: Ref) -> tuple[Condition, ...]:
        return (outdated_condition(),) if ref in self.last_good else ()


def _unless(kind: str, fault: Fault | None) -> Condition:
    if fault is None:
        return Condition(type=kind, status="True", reason=kind, message="")
    return Condition(type=kind, status="False", reason=fault.reason, message=fault.message)


def _parent(parent: Parent, resolved: Condition, programmed: Condition) -> ParentStatus:
    return ParentStatus(
        ref=tuple(_written(parent.ref)),
        conditions=(_unless("Accepted", parent.not_accepted), resolved, programmed),
    )


def _written(ref: ParentRef) -> Iterator[tuple[str, str | int]]:
    yield "group", ref.group
    yield "kind", ref.kind
    if ref.namespace:
        yield "namespace", ref.namespace
    yield "name", ref.name
    if ref.section_name:
        yield "sectionName", ref.section_name
    if ref.port is not None:
        yield "port", ref.port


def _verifies_tokens(port: Port) -> bool:
    """Tell whether proxies may verify tokens for some target of a port."""
    placings = (check.placing for check in checks_of(hosts_of([port])))
    return any(each is not None and each.keys and each.chain.uses_tokens for each in placings)


def _cluster_names(cluster: str) -> frozenset[XdsName]:
    return frozenset({(TypeUrl.CLUSTER, cluster), (TypeUrl.ENDPOINT, cluster)})
