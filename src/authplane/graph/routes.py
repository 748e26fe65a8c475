"""Routes of an HTTPProxy."""

from typing import Final, assert_never

from authplane.base.names import ObjectName
from authplane.base.problems import Problems
from authplane.graph.authorization import HostAuthorization, route_authorization
from authplane.graph.model import (
    Action,
    EndpointGroup,
    Enforced,
    Exact,
    Forward,
    PathMatch,
    Prefix,
    Respond,
    Route,
    ServiceCluster,
    Target,
)
from authplane.graph.paths import path_problem
from authplane.graph.services import Unresolved, resolve
from authplane.resources.documents import Resources
from authplane.resources.kinds import contour

_MOST_WEIGHT: Final = 2**32 - 1


class ServiceClusters:
    """The clusters that routes have asked for so far, each once."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._known: dict[tuple[ObjectName, int, bool], ServiceCluster | Unresolved] = {}

    def ensure(self, service: ObjectName, port: int, *, http2: bool) -> ServiceCluster | Unresolved:
        """Return the cluster of a Service's port, or why there can be none."""
        key = (service, port, http2)
        if key not in self._known:
            self._known[key] = self._build(service, port, http2=http2)
        return self._known[key]

    def built(self) -> list[ServiceCluster]:
        """Return every cluster that was asked for and exists."""
        return [cluster for cluster in self._known.values() if isinstance(cluster, ServiceCluster)]

    def _build(self, service: ObjectName, port: int, *, http2: bool) -> ServiceCluster | Unresolved:
        endpoints = resolve(self._resources, service, port)
        if isinstance(endpoints, Unresolved):
            return endpoints
        name = f"service/{service}/{port}/h2c" if http2 else f"service/{service}/{port}"
        return ServiceCluster(
            name=name, http2=http2, group=EndpointGroup(service=service, weight=1, endpoints=endpoints)
        )


def build_routes(
    proxy: contour.HTTPProxy, host: HostAuthorization, clusters: ServiceClusters, problems: Problems
) -> tuple[tuple[contour.Route, Route], ...]:
    """Return each route as written and as built, the most specific match first."""
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
            authorization = route_authorization(host, route.auth_policy, problems)
            if route.permit_insecure and isinstance(authorization, Enforced):
                with problems.at("permitInsecure"):
                    problems.add(
                        "AuthPermitInsecureConflict",
                        "Spec.Routes permitInsecure would serve this route over HTTP without authorization; "
                        "disable authorization on the route or remove permitInsecure",
                    )
            action = _action(route, proxy.metadata.namespace, clusters, problems)
        built.append((route, Route(match=match, action=action, authorization=authorization)))
    return tuple(sorted(built, key=lambda pair: _precedence(pair[1].match)))


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
        found = clusters.ensure(ObjectName(namespace, service.name), service.port, http2=service.protocol == "h2c")
        if isinstance(found, Unresolved):
            with problems.at("services", index):
                problems.add(found.reason, f"Spec.Routes unresolved service reference: {found.message}")
            continue
        targets.append(Target(found.name, 1 if equal else service.weight))
    if sum(target.weight for target in targets) > _MOST_WEIGHT:
        problems.add("WeightsNotValid", f"the weights of a route's services together must be at most {_MOST_WEIGHT}")
    if not any(target.weight for target in targets):
        return Respond(503)
    return Forward(tuple(targets))


def _precedence(match: PathMatch) -> tuple[int, int, str]:
    match match:
        case Exact(path):
            return (0, -len(path), path)
        case Prefix(path):
            return (1, -len(path), path)
        case _:
            assert_never(match)
