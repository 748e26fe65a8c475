"""Routes of a root HTTPProxy and of those that it includes."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, TypeAlias, assert_never

from authplane.base.names import ObjectName, Ref
from authplane.base.problems import Problems
from authplane.graph.actions import build_action
from authplane.graph.around import Around
from authplane.graph.authorization import route_authorization
from authplane.graph.conditions import Conditions, match_of, route_match
from authplane.graph.guards import Enforced, Guarded, HostAuthorization, RouteAuthorization
from authplane.graph.headers import ROUTE_REQUEST, ROUTE_RESPONSE, read_headers
from authplane.graph.includes import Place, walk
from authplane.graph.model import (
    Exact,
    Forward,
    HeaderMatch,
    Match,
    PathMatch,
    Prefix,
    QueryMatch,
    Regex,
    Respond,
    Route,
)
from authplane.graph.rewrites import read_replacement, with_slashes
from authplane.graph.words import match_words
from authplane.resources.kinds import contour
from authplane.resources.kinds.contour_policies import AuthPolicy

LEADS_NOWHERE: Final = frozenset(
    {
        "IncludeCreatesCycle",
        "IncludeNotFound",
        "IncludesTooMany",
        "RootIncludesRoot",
        "ServiceUnresolvedReference",
        "UnsupportedServiceType",
    }
)
"""What leads nowhere costs its route or include, which answers by itself; every other error costs the HTTPProxy."""

_CHECKED: Final = AuthPolicy()
_UNREAD: Final = Match(path=Prefix("/"))
_NO_INCLUDE: Final = 502
_BROKEN: Final = 503


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltRoute:
    """A route, and whether its author lets it be served without TLS."""

    route: Route
    permit_insecure: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltRoutes:
    """The routes of a root in the order of precedence, and the HTTPProxies that it includes."""

    routes: tuple[BuiltRoute, ...]
    included: frozenset[ObjectName] = frozenset()


def build_routes(root: contour.HTTPProxy, guard: HostAuthorization, around: Around) -> BuiltRoutes:
    """Build every route of a root, the most specific match first; the root's report stands at ``spec`` meanwhile.

    An included HTTPProxy with an error answers 503 wherever it would have been asked, and its own report says why.
    """
    problems = around.reports.of(_ref(root.metadata.object_name))
    if not (root.spec.routes or root.spec.includes or root.spec.tcpproxy):
        problems.add("NothingDefined", "HTTPProxy.Spec must have at least one Route, Include, or a TCPProxy")
    tree = walk(root, around.resources, problems)
    table = _Table(root.metadata.object_name, guard, around)
    for place in tree.places:
        table.add(place)
    return BuiltRoutes(routes=table.sorted(), included=tree.included)


class _Table:
    """The routes of a root so far. Of two with the same match the first is kept: the root's own come first."""

    def __init__(self, root: ObjectName, guard: HostAuthorization, around: Around) -> None:
        self._root = root
        self._guard = guard
        self._around = around
        self._owners: dict[Match, ObjectName] = {}
        self._routes: list[BuiltRoute] = []
        self._closed: list[tuple[ObjectName, Conditions, int]] = []
        """What answers by itself unless a route takes the same requests: whose it is, which, and how."""

    def add(self, place: Place) -> None:
        """Add what an HTTPProxy has at one place."""
        problems, is_root = place.problems, place.name == self._root
        with problems.at(*(() if is_root else ("spec",))):
            if place.proxy.spec.tcpproxy is not None and not is_root:
                problems.warn("IgnoredField", 'ignoring field "spec.tcpproxy"; Spec.TCPProxy is not supported')
            own = [
                each for index, route in enumerate(place.proxy.spec.routes) for each in self._add(index, route, place)
            ]
        if not is_root:
            self._around.reports.of(_ref(place.name)).extend(problems)
            if any(problem.reason not in LEADS_NOWHERE for problem in problems.errors):
                own = [BuiltRoute(route=self._answer(place.name, each.route.match, _BROKEN)) for each in own]
                self._closed.append((place.name, place.above, _BROKEN))
        self._routes += own
        self._closed += [(place.name, conditions, _NO_INCLUDE) for conditions in place.dead_ends]

    def sorted(self) -> tuple[BuiltRoute, ...]:
        """Return everything in the order of precedence."""
        found = [
            BuiltRoute(route=route, permit_insecure=each.permit_insecure)
            for each in self._routes
            for route in with_slashes(each.route, self._owners)
        ]
        taken = {each.route.match for each in found}
        for proxy, conditions, status in self._closed:
            match = match_of(conditions)
            if match not in taken:
                taken.add(match)
                found.append(BuiltRoute(route=self._answer(proxy, match, status)))
        return tuple(sorted(found, key=lambda each: _precedence(each.route.match)))

    def _add(self, index: int, written: contour.Route, place: Place) -> Iterator[BuiltRoute]:
        """Yield a route unless its conditions cannot be read, or another has the same ones."""
        problems = place.problems
        with problems.at("routes", index):
            match = route_match(place.above, written.conditions, problems)
            built = self._build(written, match, place)
            if match is None:
                return
            owner = self._owners.get(match)
            if owner is None:
                self._owners[match] = place.name
                yield built
            else:
                whose = "another route of this HTTPProxy" if owner == place.name else f"a route of HTTPProxy {owner}"
                problems.add("DuplicateMatchConditions", f"{whose} matches {match_words(match)!r} too")

    def _build(self, written: contour.Route, match: Match | None, place: Place) -> BuiltRoute:
        """Build a route; without a match only to say what else is wrong with it."""
        problems, around = place.problems, self._around
        authorization = route_authorization(
            self._guard, written.auth_policy, root=self._root, proxy=place.name, around=around, problems=problems
        )
        permit_insecure = self._permit_insecure(written, authorization, problems)
        request = read_headers(written.request_headers_policy, ROUTE_REQUEST, problems)
        response = read_headers(written.response_headers_policy, ROUTE_RESPONSE, problems)
        action = build_action(written, place.name.namespace, request.host, around.clusters, problems)
        if isinstance(action, Forward) and written.path_rewrite_policy is not None:
            path = match.path if match is not None else None
            replacement = read_replacement(written.path_rewrite_policy, path, problems)
            action = replace(action, replace_prefix=replacement)
        route = Route(
            proxy=place.name,
            match=match or _UNREAD,
            action=action,
            authorization=authorization,
            request_headers=request.edits,
            response_headers=response.edits,
        )
        return BuiltRoute(route=route, permit_insecure=permit_insecure)

    def _permit_insecure(self, written: contour.Route, authorization: RouteAuthorization, problems: Problems) -> bool:
        """Tell whether a route may be served without TLS; a checked one only where checks are made there as well."""
        if not written.permit_insecure:
            return False
        checked_everywhere = isinstance(self._guard, Guarded) and self._guard.anywhere
        with problems.at("permitInsecure"):
            if not self._around.settings.permit_insecure:
                problems.warn("IgnoredField", "permitInsecure is switched off for the whole gateway")
                return False
            if isinstance(authorization, Enforced) and not checked_everywhere:
                problems.add(
                    "AuthPermitInsecureConflict",
                    "Spec.Routes permitInsecure would serve this route over HTTP without authorization; "
                    "disable authorization on the route or remove permitInsecure",
                )
        return True

    def _answer(self, proxy: ObjectName, match: Match, status: int) -> Route:
        """Return a route that answers by itself, to those whom the virtual host lets in."""
        authorization = route_authorization(
            self._guard, _CHECKED, root=self._root, proxy=proxy, around=self._around, problems=Problems()
        )
        if isinstance(authorization, Enforced):
            authorization = replace(authorization, context=())
        return Route(proxy=proxy, match=match, action=Respond(status=status), authorization=authorization)


_Precedence: TypeAlias = tuple[int, int, str, int, int, tuple[HeaderMatch, ...], tuple[QueryMatch, ...]]


def _precedence(match: Match) -> _Precedence:
    """Sort exact paths first, then patterns, then prefixes; longer ones and more conditions before others."""
    path, headers, query = match.path.path, match.headers, match.query
    return (_rank(match.path), -len(path), path, -len(headers), -len(query), headers, query)


def _rank(path: PathMatch) -> int:
    match path:
        case Exact():
            return 0
        case Regex():
            return 1
        case Prefix():
            return 2
        case _:
            assert_never(path)


def _ref(name: ObjectName) -> Ref:
    return Ref("HTTPProxy", name.namespace, name.name)
