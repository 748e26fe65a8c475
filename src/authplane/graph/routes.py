"""Routes of an HTTPProxy."""

from dataclasses import dataclass
from typing import Final, assert_never

from authplane.base.names import ObjectName, Ref
from authplane.base.problems import Problems
from authplane.graph.around import Around
from authplane.graph.authorization import route_authorization
from authplane.graph.guards import Enforced, HostAuthorization
from authplane.graph.model import Action, Exact, Forward, Match, PathMatch, Prefix, Regex, Respond, Route, Target
from authplane.graph.paths import path_problem
from authplane.graph.service_clusters import ServiceClusters
from authplane.graph.services import Unresolved
from authplane.graph.upstreams import HttpVersion
from authplane.resources.kinds import contour

_MOST_WEIGHT: Final = 2**32 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltRoute:
    """A route, and whether its author lets it be served without TLS."""

    route: Route
    permit_insecure: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltRoutes:
    """The routes of a root in the order of precedence, and the HTTPProxies that it includes."""

    routes: tuple[BuiltRoute, ...]
    included: frozenset[ObjectName] = frozenset()


def build_routes(root: contour.HTTPProxy, guard: HostAuthorization, around: Around) -> BuiltRoutes:
    """Build every route of a root, the most specific match first."""
    name = root.metadata.object_name
    problems = around.reports.of(Ref("HTTPProxy", name.namespace, name.name))
    routes = _routes(root, guard, around, problems)
    return BuiltRoutes(
        routes=tuple(BuiltRoute(route=built, permit_insecure=written.permit_insecure) for written, built in routes)
    )


def _routes(
    proxy: contour.HTTPProxy, host: HostAuthorization, around: Around, problems: Problems
) -> tuple[tuple[contour.Route, Route], ...]:
    name = proxy.metadata.object_name
    if not proxy.spec.routes:
        problems.add("NoRoutesPresent", "HTTPProxy.Spec must have at least one Route")
    built: list[tuple[contour.Route, Route]] = []
    seen: set[PathMatch] = set()
    for index, route in enumerate(proxy.spec.routes):
        with problems.at("routes", index):
            match = _path_match(route, problems)
            if match in seen:
                problems.add("DuplicateMatchConditions", f"another route of this HTTPProxy matches {match.path!r} too")
            seen.add(match)
            authorization = route_authorization(
                host, route.auth_policy, root=name, proxy=name, around=around, problems=problems
            )
            if route.permit_insecure and isinstance(authorization, Enforced):
                with problems.at("permitInsecure"):
                    problems.add(
                        "AuthPermitInsecureConflict",
                        "Spec.Routes permitInsecure would serve this route over HTTP without authorization; "
                        "disable authorization on the route or remove permitInsecure",
                    )
            action = _action(route, proxy.metadata.namespace, around.clusters, problems)
        built.append((route, Route(proxy=name, match=Match(path=match), action=action, authorization=authorization)))
    return tuple(sorted(built, key=lambda pair: _precedence(pair[1].match.path)))


def _path_match(route: contour.Route, problems: Problems) -> PathMatch:
    written: list[PathMatch] = []
    for condition in route.conditions:
        if condition.prefix is not None:
            written.append(Prefix(condition.prefix))
        if condition.exact is not None:
            written.append(Exact(condition.exact))
    with problems.at("conditions"):
        if len(written) > 1:
            problems.add("PathMatchConditionsNotValid", "route: more than one prefix or exact condition on the path")
        for match in written:
            wrong = path_problem(match.path)
            if wrong:
                problems.add("PathMatchConditionsNotValid", f"route: the path {match.path!r} {wrong}")
    return written[0] if written else Prefix("/")


def _action(route: contour.Route, namespace: str, clusters: ServiceClusters, problems: Problems) -> Action:
    if not route.services:
        problems.add("NoServicesPresent", "route.services must have at least one entry")
    equal = all(service.weight == 0 for service in route.services)
    targets = []
    for index, service in enumerate(route.services):
        version = HttpVersion.HTTP2 if service.protocol == "h2c" else HttpVersion.HTTP1
        found = clusters.ensure(ObjectName(namespace, service.name), service.port, version)
        if isinstance(found, Unresolved):
            with problems.at("services", index):
                problems.add(found.reason, f"Spec.Routes unresolved service reference: {found.message}")
            continue
        targets.append(Target(cluster=found.name, weight=1 if equal else service.weight))
    if sum(target.weight for target in targets) > _MOST_WEIGHT:
        problems.add("WeightsNotValid", f"the weights of a route's services together must be at most {_MOST_WEIGHT}")
    if not any(target.weight for target in targets):
        return Respond(status=503)
    return Forward(targets=tuple(targets))


def _precedence(match: PathMatch) -> tuple[int, int, str]:
    match match:
        case Exact(path):
            return (0, -len(path), path)
        case Regex(path):
            return (1, -len(path), path)
        case Prefix(path):
            return (2, -len(path), path)
        case _:
            assert_never(match)
