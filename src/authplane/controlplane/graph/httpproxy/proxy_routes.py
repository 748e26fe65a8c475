"""Routes of a root HTTPProxy and of those that it includes."""

from dataclasses import replace
from typing import Final

from authplane.controlplane.graph.httpproxy.build_context import BuildContext
from authplane.controlplane.graph.httpproxy.header_policies import ROUTE_REQUEST, ROUTE_RESPONSE, read_headers
from authplane.controlplane.graph.httpproxy.includes import Place, walk
from authplane.controlplane.graph.httpproxy.prefix_rewrites import (
    prefix_groups,
    read_replacement,
    with_slashes,
    without_slash,
)
from authplane.controlplane.graph.httpproxy.proxy_actions import build_action
from authplane.controlplane.graph.httpproxy.proxy_authorization import MODE, route_authorization
from authplane.controlplane.graph.httpproxy.route_conditions import Conditions, match_of, route_match
from authplane.controlplane.graph.httpproxy.unused_fields import refuse_in_route
from authplane.controlplane.graph.model.match_model import Match, Prefix
from authplane.controlplane.graph.model.match_words import match_words
from authplane.controlplane.graph.model.precedence import proxy_precedence
from authplane.controlplane.graph.model.route_authorization import (
    Enforced,
    Guarded,
    HostAuthorization,
    RouteAuthorization,
)
from authplane.controlplane.graph.model.route_model import Forward, Respond, Route
from authplane.core.names import ObjectName, Ref
from authplane.core.problems import Problems
from authplane.core.values import dataclass
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
"""Errors that disable one route or include, which answers by itself; every other error disables the HTTPProxy."""

_CHECKED: Final = AuthPolicy()
_UNREAD: Final = Match(path=Prefix("/"))
_NO_INCLUDE: Final = 502
_BROKEN: Final = 503


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltRoute:
    """A route, and whether it may be served without TLS."""

    route: Route
    permit_insecure: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltRoutes:
    """The routes of a root in the order of precedence, and the HTTPProxies that it includes."""

    routes: tuple[BuiltRoute, ...]
    included: frozenset[ObjectName] = frozenset()


def build_routes(root: contour.HTTPProxy, guard: HostAuthorization, shared: BuildContext) -> BuiltRoutes:
    """Build every route of a root, the most specific match first; problems are reported below the root's ``spec``.

    If an included HTTPProxy has an error, its routes answer 503 and its own report says why. Of two routes with one
    match the last one wins, as in Contour, and the other gets a warning: an HTTPProxy comes after those that it
    includes, a later include after an earlier one.
    """
    problems = shared.reports.of(_ref(root.metadata.object_name))
    if not (root.spec.routes or root.spec.includes or root.spec.tcpproxy):
        problems.add(
            "NothingDefined", "HTTPProxy.Spec must have at least one Route, Include, or a TCPProxy. Add a route."
        )
    tree = walk(root, shared.resources, problems)
    table = _Table(root.metadata.object_name, guard, shared)
    for place in reversed(tree.places):
        table.add(place)
    return BuiltRoutes(routes=table.sorted(), included=tree.included)


class _Table:
    """The routes of a root so far. Of two with the same match the one that is added first is kept."""

    def __init__(self, root: ObjectName, guard: HostAuthorization, shared: BuildContext) -> None:
        self._root = root
        self._guard = guard
        self._around = shared
        self._routes: dict[Match, BuiltRoute] = {}
        self._closed: list[tuple[ObjectName, Conditions, int]] = []
        """What answers by itself unless a route has the same match: the HTTPProxy, the conditions and the status."""

    def add(self, place: Place) -> None:
        """Add what an HTTPProxy has at one place."""
        problems, is_root = place.problems, place.name == self._root
        with problems.at(*(() if is_root else ("spec",))):
            if place.proxy.spec.tcpproxy is not None and not is_root:
                problems.warn(
                    "IgnoredField", 'ignoring field "spec.tcpproxy"; Spec.TCPProxy is not supported. Remove it.'
                )
            if MODE in place.proxy.metadata.annotations and not is_root:
                problems.warn("IgnoredField", f"Annotation {MODE} has an effect only on a root HTTPProxy. Remove it.")
            own = self._own_routes(place)
            if not is_root and any(problem.reason not in LEADS_NOWHERE for problem in problems.errors):
                own = {index: self._closed_route(place.name, built) for index, built in own.items()}
                self._closed.append((place.name, place.above, _BROKEN))
            for index, built in own.items():
                self._claim(index, built, problems)
        self._closed += [(place.name, conditions, _NO_INCLUDE) for conditions in place.dead_ends]
        if not is_root:
            self._around.reports.of(_ref(place.name)).extend(problems)

    def sorted(self) -> tuple[BuiltRoute, ...]:
        """Return everything in the order of precedence."""
        closed: dict[Match, BuiltRoute] = {}
        for proxy, conditions, status in self._closed:
            match = match_of(conditions)
            if match not in self._routes and match not in closed:
                closed[match] = BuiltRoute(route=self._answer(proxy, match, status))
        taken = self._routes.keys() | closed.keys()
        groups = prefix_groups(taken)
        ranked: list[tuple[Match, tuple[BuiltRoute, ...]]] = [(match, (each,)) for match, each in closed.items()]
        for match, each in self._routes.items():
            # An added route is beside the written one: it never takes precedence over another written route.
            ranked.append((match, tuple(replace(each, route=route) for route in with_slashes(each.route, taken))))
            bare = without_slash(each.route, groups)
            ranked += [(bare.match, (replace(each, route=bare),))] if bare is not None else []
        ranked.sort(key=lambda found: proxy_precedence(found[0]))
        return tuple(each for _, beside in ranked for each in beside)

    def _own_routes(self, place: Place) -> dict[int, BuiltRoute]:
        """Build the routes of an HTTPProxy, by their index; those whose conditions cannot be read are left out."""
        own: dict[int, BuiltRoute] = {}
        for index, written in enumerate(place.proxy.spec.routes):
            with place.problems.at("routes", index):
                match = route_match(place.above, written.conditions, place.problems)
                built = self._build(written, match, place)
                if match is not None:
                    own[index] = built
        last = {built.route.match: index for index, built in own.items()}
        for index, built in own.items():
            winner = last[built.route.match]
            if winner != index:
                _report_duplicate(f"routes[{winner}]", index, built, place.problems)
        return {index: own[index] for index in sorted(last.values())}

    def _claim(self, index: int, built: BuiltRoute, problems: Problems) -> None:
        """Add a route unless another takes its requests."""
        known = self._routes.setdefault(built.route.match, built)
        if known != built:  # an HTTPProxy that is included twice has its routes twice
            _report_duplicate(f"a route of HTTPProxy {known.route.holder}", index, built, problems)

    def _build(self, written: contour.Route, match: Match | None, place: Place) -> BuiltRoute:
        """Build a route; without a match only to say what else is wrong with it."""
        problems, shared = place.problems, self._around
        authorization = route_authorization(
            self._guard, written.auth_policy, root=self._root, proxy=place.name, shared=shared, problems=problems
        )
        refuse_in_route(written, problems)
        permit_insecure = self._permit_insecure(written, authorization, problems)
        request = read_headers(written.request_headers_policy, ROUTE_REQUEST, problems)
        response = read_headers(written.response_headers_policy, ROUTE_RESPONSE, problems)
        action = build_action(written, place.name.namespace, request.host, shared.clusters, problems)
        if isinstance(action, Forward) and written.path_rewrite_policy is not None:
            path = match.path if match is not None else None
            replacement = read_replacement(written.path_rewrite_policy, path, problems)
            action = replace(action, rewrite=replacement)
        route = Route(
            holder=str(place.name),
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
                problems.warn(
                    "IgnoredField", "The configuration disables permitInsecure, so this field has no effect. Remove it."
                )
                return False
            if isinstance(authorization, Enforced) and not checked_everywhere:
                problems.add(
                    "AuthPermitInsecureConflict",
                    "Spec.Routes permitInsecure would serve this route over HTTP without authorization. "
                    "Remove permitInsecure, or disable authorization on the route.",
                )
        return True

    def _closed_route(self, proxy: ObjectName, built: BuiltRoute) -> BuiltRoute:
        return BuiltRoute(route=self._answer(proxy, built.route.match, _BROKEN))

    def _answer(self, proxy: ObjectName, match: Match, status: int) -> Route:
        """Return a route that answers by itself, after the authorization of the virtual host."""
        authorization = route_authorization(
            self._guard, _CHECKED, root=self._root, proxy=proxy, shared=self._around, problems=Problems()
        )
        if isinstance(authorization, Enforced):
            authorization = replace(authorization, context=())
        return Route(holder=str(proxy), match=match, action=Respond(status=status), authorization=authorization)


def _report_duplicate(winner: str, index: int, loser: BuiltRoute, problems: Problems) -> None:
    with problems.at("routes", index):
        words = match_words(loser.route.match)
        problems.warn(
            "DuplicateMatchConditions",
            f"This route gets no requests: {winner} has the same conditions ({words}) and comes later, and the last "
            "route wins. Remove one of the routes.",
        )


def _ref(name: ObjectName) -> Ref:
    return Ref("HTTPProxy", name.namespace, name.name)
