"""HTTPRoutes: which listeners they attach to, and the hosts that come of it."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from authplane.controlplane.graph.gateway.gateway_hosts import Attachment, Entry, ListenerMemory, serve
from authplane.controlplane.graph.gateway.gateway_listeners import Fault, Listener
from authplane.controlplane.graph.gateway.protection import NO_TOKENS, Protection, Tokens
from authplane.controlplane.graph.gateway.route_matches import precedence, rewrite_at
from authplane.controlplane.graph.gateway.route_rules import Beside, ReadRoute, Rule, RuleBackend, read_route
from authplane.controlplane.graph.model.host_model import Host
from authplane.controlplane.graph.model.hostnames import ANY, closest, common_name, hostname_problem
from authplane.controlplane.graph.model.match_model import Match, Regex
from authplane.controlplane.graph.model.route_authorization import (
    AuthorizationService,
    ByTarget,
    Enforced,
    RouteAuthorization,
    Shadow,
    Unprotected,
)
from authplane.controlplane.graph.model.route_model import Forward, Route
from authplane.controlplane.graph.model.route_model import Target as RouteTarget
from authplane.controlplane.graph.model.target_placements import Placing, Placings
from authplane.core.memo import Memo, Tables, Watched
from authplane.core.names import ObjectName
from authplane.core.problems import Problem, Problems
from authplane.policy.attached.attachments import Target
from authplane.policy.attached.request_target import parse_target
from authplane.policy.check.client_address import TRUSTED_HOPS
from authplane.resources.kinds.gateway import HTTPRoute, ParentRef

TARGET: Final = "authplane.target"
"""In the context of a check: the Backend that the request is for, as ``Backend/<namespace>/<name>``."""
GATEWAY: Final = "authplane.gateway"
"""In the context of a check: where it came in, as ``Gateway/<namespace>/<name>/<listener>``."""
ROUTE: Final = "authplane.route"
"""In the context of a check: the HTTPRoute, as ``HTTPRoute/<namespace>/<name>``."""
RESOURCE: Final = "authplane.resource"
"""In the context of a check: the path under which clients know the Backend; its RFC 9728 document is below that."""

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
    ways: tuple[Target, ...]
    """Which listeners it leads from to which backends, whether those listeners are served or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """The hosts of each listener that is served, by its name, and what became of the routes."""

    hosts: Mapping[str, tuple[Host, ...]]
    routes: tuple[RouteOutcome, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checks:
    """Who checks requests, and whether those for Backends without policies are checked as well."""

    service: AuthorizationService
    placings: Placings
    unprotected_backends: bool
    trusted_hops: int = 0
    """How many proxies stand before this one."""

    @property
    def shadow_service(self) -> AuthorizationService:
        """Who is asked where only policies in shadow stand: the same, and whatever it says the request goes on."""
        body = self.service.body
        partial = replace(body, partial=True) if body is not None else None
        return replace(self.service, on_failure=Shadow(), body=partial)


@dataclass(frozen=True, slots=True)
class _Front:
    """A listener, and what the policies of its own ask for."""

    listener: Listener
    tokens: Tokens | None
    shadowed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltRoute:
    """What one HTTPRoute comes to, and what there is to say about it."""

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
    beside: Beside,
    checks: Checks,
    report: Callable[[ObjectName], Problems],
    memory: RouteMemory | None = None,
) -> Attached:
    """Attach every route to the listeners that it names and that admit it.

    With the memory of an earlier build the result is the same, and what has not changed is the same object.
    """
    memory = memory or RouteMemory()
    fronts = {each.name: _front(each, protection) for each in listeners if each.served}
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


def _front(listener: Listener, protection: Protection) -> _Front:
    tokens = protection.listener(listener.gateway, listener.section)
    return _Front(listener, tokens, protection.shadows_listener(listener.gateway, listener.section))


def _tables(routes: Mapping[ObjectName, HTTPRoute], beside: Beside, checks: Checks) -> Tables:
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
    """Builds what one route comes to, with eyes for nothing but the tables."""

    def __init__(self, fronts: Mapping[str, _Front], ports: "_Ports", beside: Beside, checks: Checks) -> None:
        self._fronts = fronts
        self._ports = ports
        self._beside = beside
        self._checks = checks

    def route(self, name: ObjectName, tables: Tables) -> BuiltRoute:
        """Build a route."""
        beside = Beside(
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
            (listener.name, (host, tuple(_Entries(self._fronts[listener.name], checks).of(read))))
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


def _ways(listeners: Iterable[Listener], rules: Sequence[Rule]) -> Iterator[Target]:
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
        """Tell whether requests for a host come to this listener and not to a narrower one."""
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
            return self._fault("NoMatchingParent", f"Gateway {gateway} has no such listener, or is not there")
        admitting = [each for each in named if each.admits(namespace)]
        if not admitting:
            return self._fault("NotAllowedByListeners", f"Gateway {gateway} does not admit routes of this namespace")
        places = [
            (listener, host) for listener in admitting for host in self._hosts(listener) if self._owns(listener, host)
        ]
        if not places:
            return self._fault(
                "NoMatchingListenerHostname", f"no listener of Gateway {gateway} has a host of the route"
            )
        self.listeners += (listener for listener, _ in places)
        served = [place for place in places if place[0].served]
        if not served:
            return self._fault("NoReadyListeners", f"the listeners of Gateway {gateway} that admit it are not valid")
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


# --- Entries


class _Entries:
    """Makes the entries of a route at one listener."""

    def __init__(self, front: _Front, checks: Checks) -> None:
        self._listener = front.listener
        self._tokens = front.tokens
        self._shadowed = front.shadowed
        self._checks = checks

    def of(self, route: ReadRoute) -> Iterator[Entry]:
        """Yield an entry for every match, in the order in which they are written."""
        for rule in route.rules:
            for match in rule.matches:
                yield self._entry(route.name, rule, match)

    def _entry(self, route: ObjectName, rule: Rule, match: Match) -> Entry:
        tokens = self._tokens or NO_TOKENS
        for backend in rule.backends:
            tokens |= backend.tokens or NO_TOKENS
        described = bool(tokens.issuers) and not isinstance(match.path, Regex)
        resource = match.path.path if described else ""
        each = tuple(self._authorization(backend, route, resource) for backend in rule.backends)
        alone = len(each) == 1
        made = Route(
            holder=str(route),
            match=match,
            authorization=each[0] if alone else ByTarget(each),
            action=Forward(
                targets=tuple(_target(backend, host=None if alone else backend.host) for backend in rule.backends),
                response_timeout=rule.timeout,
                idle_timeout=rule.idle,
                rewrite=rewrite_at(match.path, rule.rewrite),
                host=rule.backends[0].host if alone else "",
            ),
        )
        return Entry(precedence(match), made, tokens if described else NO_TOKENS)

    def _authorization(self, backend: RuleBackend, route: ObjectName, resource: str) -> RouteAuthorization:
        demanded = backend.target is not None and self._checks.unprotected_backends
        checked = self._tokens is not None or backend.tokens is not None or demanded
        if not checked and not self._shadowed and not backend.shadowed:
            return Unprotected()
        context = {GATEWAY: f"Gateway/{self._listener.name}", ROUTE: f"HTTPRoute/{route}"}
        if backend.target is not None:
            context[TARGET] = str(backend.target)
        if resource:
            context[RESOURCE] = resource
        if self._checks.trusted_hops:
            context[TRUSTED_HOPS] = str(self._checks.trusted_hops)
        return Enforced(
            service=self._checks.service if checked else self._checks.shadow_service,
            context=tuple(sorted(context.items())),
            placing=self._placing(context, checked=checked),
        )

    def _placing(self, context: Mapping[str, str], *, checked: bool) -> Placing | None:
        """Return what a proxy may decide by itself; what is to be checked is left to it only where there are rules."""
        placing = self._checks.placings[context.get(TARGET), context[GATEWAY]]
        if placing is None or placing.chain.guarded is not checked:
            return None
        # Only documents at known paths can be named to those who need a token.
        return placing if RESOURCE in context or not placing.chain.uses_tokens else None


def _target(backend: RuleBackend, host: str | None) -> RouteTarget:
    return RouteTarget(cluster=backend.cluster, weight=backend.weight, host=host, mcp=backend.target is not None)
