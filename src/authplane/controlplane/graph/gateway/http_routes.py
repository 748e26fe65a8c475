"""HTTPRoutes: the listeners that they attach to, and the resulting hosts."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Final

from authplane.controlplane.graph.gateway.gateway_hosts import Attachment, ListenerMemory, serve
from authplane.controlplane.graph.gateway.gateway_listeners import Fault, Listener
from authplane.controlplane.graph.gateway.protection import Protection
from authplane.controlplane.graph.gateway.route_entries import Checks, Entries, Front, front_of
from authplane.controlplane.graph.gateway.route_rules import ReadRoute, RouteContext, Rule, read_route
from authplane.controlplane.graph.model.host_model import Host
from authplane.controlplane.graph.model.hostnames import ANY, closest, common_name, hostname_problem
from authplane.core.memo import Memo, Tables, Watched
from authplane.core.names import ObjectName
from authplane.core.problems import Problem, Problems
from authplane.core.values import dataclass
from authplane.policy.attached.attachments import RequestTarget
from authplane.policy.attached.request_target import parse_target
from authplane.resources.kinds.gateway import HTTPRoute, ParentRef

_GATEWAY_KIND: Final = ("gateway.networking.k8s.io", "Gateway")
_UNDATED: Final = "9999"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parent:
    """What became of one ``parentRef``."""

    ref: ParentRef
    not_accepted: Fault | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteOutcome:
    """What became of an HTTPRoute."""

    name: ObjectName
    parents: tuple[Parent, ...]
    unresolved: Fault | None
    listeners: tuple[str, ...]
    """Where it is attached, sorted."""
    backends: frozenset[str]
    """The clusters that it sends requests to."""
    ways: tuple[RequestTarget, ...]
    """Which listeners it leads from to which backends, whether those listeners are served or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """The hosts of each listener that is served, by its name, and what became of the routes."""

    hosts: Mapping[str, tuple[Host, ...]]
    routes: tuple[RouteOutcome, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltRoute:
    """The outcome of one HTTPRoute and its problems."""

    outcome: RouteOutcome
    attached: tuple[tuple[str, Attachment], ...]
    """With the name of the listener."""
    found: tuple[Problem, ...]


@dataclass(slots=True)
class RouteMemory:
    """What routes came to in the last build."""

    routes: Watched[ObjectName, BuiltRoute] = field(default_factory=Watched)
    listeners: Memo[str, ListenerMemory] = field(default_factory=Memo)
    """By the name of the listener."""


def attach_routes(  # noqa: PLR0913, PLR0917 (each of them decides something)
    routes: Mapping[ObjectName, HTTPRoute],
    listeners: Sequence[Listener],
    protection: Protection,
    beside: RouteContext,
    checks: Checks,
    report: Callable[[ObjectName], Problems],
    memory: RouteMemory | None = None,
) -> Attached:
    """Attach every route to the listeners that it names and that admit it.

    With the memory of an earlier build the result is the same, and what has not changed is the same object.
    """
    memory = memory or RouteMemory()
    fronts = {each.name: front_of(each, protection) for each in listeners if each.served}
    build = _Build(fronts, _Ports(listeners), beside, checks)
    memory.routes.start(
        (tuple(listeners), tuple(fronts.values()), checks.service, checks.unprotected_backends, beside.resources.broken)
    )
    tables = _tables(routes, beside, checks)
    outcomes: list[RouteOutcome] = []
    attached: dict[str, list[Attachment]] = {name: [] for name in fronts}
    for route in sorted(routes.values(), key=_seniority):
        name = route.metadata.object_name
        made = memory.routes.ensure(name, tables, partial(build.route, name))
        if made.found:
            report(name).extend(made.found)
        for listener, attachment in made.attached:
            attached[listener].append(attachment)
        outcomes.append(made.outcome)
    memory.listeners.start()
    return Attached(
        hosts={
            name: serve(fronts[name].listener, found, memory.listeners.ensure(name, None, ListenerMemory))
            for name, found in attached.items()
        },
        routes=tuple(sorted(outcomes, key=_by_name)),
    )


def _seniority(route: HTTPRoute) -> tuple[str, str, str]:
    meta = route.metadata
    return (meta.creation_timestamp or _UNDATED, meta.namespace, meta.name)


def _by_name(outcome: RouteOutcome) -> tuple[str, str]:
    return (outcome.name.namespace, outcome.name.name)


def _tables(routes: Mapping[ObjectName, HTTPRoute], beside: RouteContext, checks: Checks) -> Tables:
    """Return what the build of a route may look at; of all else, a change is a change for every route."""
    return {
        "routes": routes,
        "grants": beside.resources.grants,
        "documents": beside.resources.backends,
        "backends": beside.backends,
        "clusters": beside.clusters,
        "covers": beside.covers,
        "placings": checks.placings,
    }


class _Build:
    """Builds one route; it reads nothing but the tables."""

    def __init__(self, fronts: Mapping[str, Front], ports: "_Ports", beside: RouteContext, checks: Checks) -> None:
        self._fronts = fronts
        self._ports = ports
        self._beside = beside
        self._checks = checks

    def route(self, name: ObjectName, tables: Tables) -> BuiltRoute:
        """Build a route."""
        beside = RouteContext(
            resources=replace(self._beside.resources, grants=tables["grants"], backends=tables["documents"]),
            clusters=tables["clusters"],
            backends=tables["backends"],
            covers=tables["covers"],
        )
        route, problems = tables["routes"][name], Problems()
        read = read_route(route, _hostnames(route, problems), beside, problems)
        attachment = _Attachment(route, read, self._ports, problems)
        parents = tuple(attachment.parents())
        checks = replace(self._checks, placings=tables["placings"])
        attached = tuple(
            (listener.name, (host, tuple(Entries(self._fronts[listener.name], checks).of(read))))
            for listener, host in dict.fromkeys(attachment.places)
        )
        clusters = (each.cluster for rule in read.rules for each in rule.backends)
        outcome = RouteOutcome(
            name=name,
            parents=parents,
            unresolved=read.unresolved,
            listeners=tuple(sorted({listener for listener, _ in attached})),
            backends=frozenset(each for each in clusters if each is not None),
            ways=tuple(_ways(attachment.listeners, read.rules)),
        )
        return BuiltRoute(outcome=outcome, attached=attached, found=tuple(problems))


def _ways(listeners: Iterable[Listener], rules: Sequence[Rule]) -> Iterator[RequestTarget]:
    backends = dict.fromkeys(backend.target for rule in rules for backend in rule.backends)
    for listener in dict.fromkeys(listeners):
        for target in backends:
            yield parse_target(None if target is None else str(target), f"Gateway/{listener.name}")


def _hostnames(route: HTTPRoute, problems: Problems) -> tuple[str, ...]:
    names = []
    for index, written in enumerate(route.spec.hostnames):
        wrong = hostname_problem(written.lower())
        if wrong:
            with problems.at("spec", "hostnames", index):
                problems.add("UnsupportedValue", f"{written!r} {wrong}")
        names.append(written.lower())
    return tuple(names)


# --- Listeners


class _Ports:
    """Which listener a name belongs to, on every port; those that are not served keep theirs."""

    def __init__(self, listeners: Sequence[Listener]) -> None:
        self._of_gateway: dict[ObjectName, list[Listener]] = defaultdict(list)
        self._claims: dict[int, dict[str, Listener]] = defaultdict(dict)
        for each in listeners:
            self._of_gateway[each.gateway].append(each)
            if each.conflicted is None:
                self._claims[each.port].setdefault(each.hostname, each)

    def of(self, gateway: ObjectName) -> Sequence[Listener]:
        """Return the listeners of a Gateway."""
        return self._of_gateway.get(gateway, ())

    def owns(self, listener: Listener, host: str) -> bool:
        """Tell whether requests for a host reach this listener and not a narrower one."""
        claims = self._claims[listener.port]
        narrowest = closest(claims, host)
        return narrowest is not None and claims[narrowest] is listener


class _Attachment:
    """Finds the listeners of one route."""

    def __init__(self, route: HTTPRoute, read: ReadRoute, ports: _Ports, problems: Problems) -> None:
        self._route = route
        self._read = read
        self._ports = ports
        self._problems = problems
        self.places: list[tuple[Listener, str]] = []
        """Where the route is served: a listener and one of its hosts."""
        self.listeners: list[Listener] = []
        """Those that admit the route, be they served or not."""

    def parents(self) -> Iterable[Parent]:
        """Attach to each parent that is a Gateway; others are for others."""
        for index, ref in enumerate(self._route.spec.parent_refs):
            if (ref.group, ref.kind) == _GATEWAY_KIND:
                with self._problems.at("spec", "parentRefs", index):
                    yield Parent(ref=ref, not_accepted=self._read.not_accepted or self._attach(ref))

    def _attach(self, ref: ParentRef) -> Fault | None:
        namespace = self._route.metadata.namespace
        gateway = ObjectName(ref.namespace or namespace, ref.name)
        named = [
            each
            for each in self._ports.of(gateway)
            if ref.section_name in {"", each.section} and ref.port in {None, each.port}
        ]
        if not named:
            return self._fault(
                "NoMatchingParent",
                f"Gateway {gateway} does not exist, or has no listener that parentRefs names. Correct parentRefs, or "
                "add the Gateway or the listener.",
            )
        admitting = [each for each in named if each.admits(namespace)]
        if not admitting:
            return self._fault(
                "NotAllowedByListeners",
                f"Gateway {gateway} does not accept routes from this namespace. Change allowedRoutes of its listeners.",
            )
        places = [
            (listener, host) for listener in admitting for host in self._hosts(listener) if self._owns(listener, host)
        ]
        if not places:
            return self._fault(
                "NoMatchingListenerHostname",
                f"No listener of Gateway {gateway} serves a host name of this route. Change spec.hostnames of the "
                "route, or hostname of the listener.",
            )
        self.listeners += (listener for listener, _ in places)
        served = [place for place in places if place[0].served]
        if not served:
            return self._fault(
                "NoReadyListeners",
                f"The listeners of Gateway {gateway} for this route are not valid. Correct the Gateway.",
            )
        self.places += served
        return None

    def _owns(self, listener: Listener, host: str) -> bool:
        return self._ports.owns(listener, host) or not listener.served

    def _hosts(self, listener: Listener) -> list[str]:
        wanted = self._read.hostnames or (ANY,)
        common = (common_name(listener.hostname, each) for each in wanted)
        return [each for each in common if each is not None]

    def _fault(self, reason: str, message: str) -> Fault:
        self._problems.add(reason, message)
        return Fault(reason, message)
