"""HTTPRoutes: which listeners they attach to, and the hosts that come of it."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from authplane.base.names import ObjectName
from authplane.base.problems import Problems
from authplane.graph.gateways import Fault, Listener
from authplane.graph.guards import AuthorizationService, Enforced, RouteAuthorization, Shadow, Unprotected
from authplane.graph.hostnames import ANY, breadth, closest, common_name, covers, hostname_problem
from authplane.graph.model import (
    Exact,
    GatewayHost,
    GatewayRoute,
    Match,
    Regex,
    ResourceMetadata,
    Share,
    Split,
)
from authplane.graph.placements import Placements, Placing
from authplane.graph.protection import NO_TOKENS, Tokens
from authplane.graph.route_matches import Precedence, precedence
from authplane.graph.route_rules import Beside, ReadRoute, Rule, RuleBackend, read_route
from authplane.graph.words import match_words
from authplane.policy.mcp.metadata import metadata_path
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """The hosts of each listener that is served, by its name, and what became of the routes."""

    hosts: Mapping[str, tuple[GatewayHost, ...]]
    routes: tuple[RouteOutcome, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checks:
    """Who checks requests, and whether those for Backends without policies are checked as well."""

    service: AuthorizationService
    placements: Placements
    unprotected_backends: bool

    @property
    def shadow_service(self) -> AuthorizationService:
        """Who is asked where only policies in shadow stand: the same, and whatever it says the request goes on."""
        body = self.service.body
        partial = replace(body, partial=True) if body is not None else None
        return replace(self.service, on_failure=Shadow(), body=partial)


def attach_routes(
    routes: Mapping[ObjectName, HTTPRoute],
    listeners: Sequence[Listener],
    beside: Beside,
    checks: Checks,
    report: Callable[[ObjectName], Problems],
) -> Attached:
    """Attach every route to the listeners that it names and that admit it."""
    tables = {each.name: _Table(each, beside, checks) for each in listeners if each.served}
    ports = _Ports(listeners)
    outcomes: list[RouteOutcome] = []
    for route in sorted(routes.values(), key=_seniority):
        name = route.metadata.object_name
        problems = report(name)
        read = read_route(route, _hostnames(route, problems), beside, problems)
        attachment = _Attachment(route, read, ports, problems)
        parents = tuple(attachment.parents())
        for listener, host in dict.fromkeys(attachment.places):
            tables[listener.name].add(read, host, order=len(outcomes))
        outcomes.append(
            RouteOutcome(
                name=name,
                parents=parents,
                unresolved=read.unresolved,
                listeners=tuple(sorted({listener.name for listener, _ in attachment.places})),
                backends=frozenset(
                    each.cluster for rule in read.rules for each in rule.backends if each.cluster is not None
                ),
            )
        )
    hosts = {name: table.hosts() for name, table in tables.items()}
    return Attached(hosts=hosts, routes=tuple(sorted(outcomes, key=lambda each: each.name)))


def _seniority(route: HTTPRoute) -> tuple[str, ObjectName]:
    return (route.metadata.creation_timestamp or _UNDATED, route.metadata.object_name)


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


# --- Hosts

_Order: TypeAlias = tuple[Precedence, int, int, int]


@dataclass(frozen=True, slots=True)
class _Entry:
    """A route of a host, where it stands, and which tokens it asks for."""

    order: _Order
    route: GatewayRoute
    tokens: Tokens


class _Table:
    """The routes of one listener, by host."""

    def __init__(self, listener: Listener, beside: Beside, checks: Checks) -> None:
        self._listener = listener
        self._tokens = beside.protection.listener(listener.gateway, listener.section)
        self._shadowed = beside.protection.shadows_listener(listener.gateway, listener.section)
        self._checks = checks
        self._entries: dict[str, list[_Entry]] = defaultdict(list, {listener.hostname: []})

    def add(self, route: ReadRoute, host: str, *, order: int) -> None:
        """Attach a route to one of the listener's hosts; ``order`` is its place among all routes."""
        for rule in route.rules:
            for index, match in enumerate(rule.matches):
                place = (precedence(match), order, rule.index, index)
                self._entries[host].append(self._entry(route.name, rule, match, place))

    def hosts(self) -> tuple[GatewayHost, ...]:
        """Return all hosts; a narrow one has the routes of the wider ones as well, after its own."""
        return tuple(self._host(name) for name in sorted(self._entries))

    def _host(self, name: str) -> GatewayHost:
        wider = sorted((each for each in self._entries if covers(each, name)), key=breadth)
        entries = [entry for each in wider for entry in sorted(self._entries[each], key=lambda entry: entry.order)]
        own = tuple(entry.route for entry in entries)
        return GatewayHost(name=name, routes=(*self._documents(entries), *own))

    def _entry(self, route: ObjectName, rule: Rule, match: Match, order: _Order) -> _Entry:
        tokens = self._tokens or NO_TOKENS
        for backend in rule.backends:
            tokens |= backend.tokens or NO_TOKENS
        described = bool(tokens.issuers) and not isinstance(match.path, Regex)
        resource = match.path.path if described else ""
        made = GatewayRoute(
            name=f"{route}#{match_words(match)}",
            match=match,
            action=Split(
                shares=tuple(self._share(each, route, resource) for each in rule.backends),
                timeout=rule.timeout,
                rewrite=rule.rewrite,
            ),
        )
        return _Entry(order, made, tokens if described else NO_TOKENS)

    def _share(self, backend: RuleBackend, route: ObjectName, resource: str) -> Share:
        return Share(
            cluster=backend.cluster,
            weight=backend.weight,
            authorization=self._authorization(backend, route, resource),
            host=backend.host,
        )

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
        return Enforced(
            service=self._checks.service if checked else self._checks.shadow_service,
            context=tuple(sorted(context.items())),
            placing=self._placing(context, checked=checked),
        )

    def _placing(self, context: Mapping[str, str], *, checked: bool) -> Placing | None:
        """Return what a proxy may decide by itself; what is to be checked is left to it only where there are rules."""
        placing = self._checks.placements.before(context.get(TARGET), context[GATEWAY])
        if placing is None or placing.way.guarded is not checked:
            return None
        # Only documents at known paths can be named to those who need a token.
        return placing if RESOURCE in context or not placing.way.uses_tokens else None

    def _documents(self, entries: Iterable[_Entry]) -> Iterable[GatewayRoute]:
        """Return the routes of the RFC 9728 documents, unless somebody serves one by an exact path."""
        by_path: dict[str, Tokens] = {}
        taken = set()
        for entry in entries:
            path = entry.route.match.path
            if isinstance(path, Exact):
                taken.add(path.path)
            if entry.tokens.issuers:
                by_path[path.path] = by_path.get(path.path, NO_TOKENS) | entry.tokens
        for resource, tokens in sorted(by_path.items()):
            where = metadata_path(resource)
            if where not in taken:
                yield GatewayRoute(
                    name=f"{self._listener.name}#={where}",
                    match=Match(path=Exact(where)),
                    action=ResourceMetadata(
                        scheme="https" if self._listener.secure else "http",
                        path=resource,
                        issuers=tokens.issuers,
                        scopes=tokens.scopes,
                    ),
                )
