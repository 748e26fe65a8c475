"""Actions of routes: forward requests, redirect them or answer them."""

import re
from dataclasses import replace
from typing import Final

from authplane.controlplane.graph.httpproxy.header_policies import SERVICE_REQUEST, SERVICE_RESPONSE, read_headers
from authplane.controlplane.graph.model.canonical_paths import target_problem
from authplane.controlplane.graph.model.route_model import Action, Forward, Redirect, Respond, Target
from authplane.controlplane.graph.model.upstreams import Balancing, Mirror
from authplane.controlplane.graph.upstreams.service_clusters import Clusters, Wanted, ensure_cluster
from authplane.core.names import ObjectName
from authplane.core.problems import Problems
from authplane.core.timeouts import Timeout, UseDefault, parse_schema_timeout
from authplane.core.values import dataclass
from authplane.resources.kinds import contour
from authplane.resources.kinds.contour_policies import TimeoutPolicy

_MOST_WEIGHT: Final = 2**32 - 1
_LONGEST_BODY: Final = 4096
_ALL: Final = 100
_BALANCING: Final = {"": Balancing.ROUND_ROBIN} | {strategy.value: strategy for strategy in Balancing}
_HOSTNAME: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")


def build_action(route: contour.Route, namespace: str, host: str, clusters: Clusters, problems: Problems) -> Action:
    """Build the action of a route; exactly one, or an error. ``host`` is the host that origins get."""
    given = [bool(route.services), route.request_redirect_policy is not None, route.direct_response_policy is not None]
    if sum(given) != 1:
        problems.add(
            "RouteActionCountNotValid",
            "must set exactly one of route.services or route.requestRedirectPolicy or "
            "route.directResponsePolicy. Set one.",
        )
    if route.services:
        return _forward(route, namespace, host, clusters, problems)
    _warn_of_no_effect(route, problems)
    if route.request_redirect_policy is not None:
        return _redirect(route.request_redirect_policy, problems)
    if route.direct_response_policy is not None:
        return _respond(route.direct_response_policy, problems)
    return Respond(status=503)


# --- Sending on


@dataclass(frozen=True, slots=True, kw_only=True)
class _Timeouts:
    """How long a route waits."""

    response: Timeout = UseDefault()
    idle: Timeout = UseDefault()
    idle_connection: Timeout = UseDefault()


_NO_TIMEOUTS: Final = _Timeouts()


def _forward(
    route: contour.Route, namespace: str, host: str, clusters: Clusters, problems: Problems
) -> Forward | Respond:
    timeouts = _timeouts(route.timeout_policy, problems) if route.timeout_policy is not None else _NO_TIMEOUTS
    balancing = _balancing(route, problems)
    equal = all(service.weight == 0 for service in route.services if not service.mirror)
    targets: list[Target] = []
    mirror: Mirror | None = None
    _refuse_second_mirror(route, problems)
    for index, service in enumerate(route.services):
        with problems.at("services", index):
            wanted = Wanted(
                service=ObjectName(namespace, service.name),
                port=service.port,
                protocol=service.protocol,
                validation=service.validation,
                host=host,
                balancing=balancing,
                idle_connection_timeout=timeouts.idle_connection,
            )
            if service.mirror:
                mirror = _mirror(service, wanted, clusters, problems)
                continue
            target = _target(service, wanted, 1 if equal else service.weight, clusters, problems)
            if target is not None:
                targets.append(target)
    if sum(target.weight for target in targets) > _MOST_WEIGHT:
        problems.add("WeightsNotValid", f"The sum of the weights exceeds {_MOST_WEIGHT}. Lower the weights.")
    if not any(target.weight for target in targets):
        return Respond(status=503)
    return Forward(
        targets=tuple(targets),
        mirror=mirror,
        response_timeout=timeouts.response,
        idle_timeout=timeouts.idle,
        host=host,
        websockets=route.enable_websockets,
    )


def _target(
    service: contour.RouteService, wanted: Wanted, weight: int, clusters: Clusters, problems: Problems
) -> Target | None:
    request = read_headers(service.request_headers_policy, SERVICE_REQUEST, problems)
    response = read_headers(service.response_headers_policy, SERVICE_RESPONSE, problems)
    cluster = ensure_cluster(clusters, replace(wanted, host=request.host or wanted.host), problems, idle=not weight)
    if cluster is None:
        return None
    return Target(
        cluster=cluster,
        weight=weight,
        host=request.host or None,
        request_headers=request.edits,
        response_headers=response.edits,
    )


def _refuse_second_mirror(route: contour.Route, problems: Problems) -> None:
    if sum(service.mirror for service in route.services) > 1:
        with problems.at("services"):
            problems.add("OnlyOneMirror", "only one service per route may be nominated as mirror. Remove the others.")


def _mirror(service: contour.RouteService, wanted: Wanted, clusters: Clusters, problems: Problems) -> Mirror | None:
    """Read where requests are copied to; Contour takes the weight as a percentage, and 0 as all."""
    given = {
        "requestHeadersPolicy": service.request_headers_policy is not None,
        "responseHeadersPolicy": service.response_headers_policy is not None,
    }
    for field in (field for field, is_given in given.items() if is_given):
        with problems.at(field):
            problems.warn("IgnoredField", f'ignoring field "{field}", which has no effect on a mirror. Remove it.')
    if service.weight > _ALL:
        with problems.at("weight"):
            problems.warn(
                "IgnoredField",
                f"The weight of a mirror is a percentage, so Envoy uses {_ALL} instead of {service.weight}. Lower it.",
            )
    cluster = ensure_cluster(clusters, wanted, problems)
    return None if cluster is None else Mirror(cluster=cluster, percent=min(service.weight or _ALL, _ALL))


def _timeouts(policy: TimeoutPolicy, problems: Problems) -> _Timeouts:
    with problems.at("timeoutPolicy"):
        return _Timeouts(
            response=_timeout(policy.response, "response", "response", problems),
            idle=_timeout(policy.idle, "idle", "idle", problems),
            idle_connection=_timeout(policy.idle_connection, "idleConnection", "idle connection", problems),
        )


def _timeout(text: str, field: str, spoken: str, problems: Problems) -> Timeout:
    timeout = parse_schema_timeout(text)
    if timeout is not None:
        return timeout
    with problems.at(field):
        problems.add(
            "TimeoutPolicyNotValid",
            f"route.timeoutPolicy failed to parse: error parsing {spoken} timeout: "
            f'unable to parse timeout string "{text}": time: invalid duration "{text}". Use one such as "10s".',
        )
    return UseDefault()


def _balancing(route: contour.Route, problems: Problems) -> Balancing:
    strategy = route.load_balancer_policy.strategy if route.load_balancer_policy is not None else ""
    if strategy not in _BALANCING:
        with problems.at("loadBalancerPolicy", "strategy"):
            problems.warn(
                "IgnoredField",
                f'ignoring field "Spec.Routes.LoadBalancerPolicy"; {strategy} load balancer policy is not supported. '
                "Use RoundRobin, WeightedLeastRequest or Random.",
            )
    return _BALANCING.get(strategy, Balancing.ROUND_ROBIN)


# --- Answering


def _warn_of_no_effect(route: contour.Route, problems: Problems) -> None:
    """Name what counts only where a request is sent on."""
    given = {
        "enableWebsockets": route.enable_websockets,
        "loadBalancerPolicy": route.load_balancer_policy is not None,
        "pathRewritePolicy": route.path_rewrite_policy is not None,
        "requestHeadersPolicy": route.request_headers_policy is not None,
        "timeoutPolicy": route.timeout_policy is not None,
    }
    for field in (field for field, is_given in given.items() if is_given):
        with problems.at(field):
            problems.warn("IgnoredField", f'ignoring field "{field}", which has no effect without services. Remove it.')


def _redirect(policy: contour.RequestRedirectPolicy, problems: Problems) -> Redirect:
    with problems.at("requestRedirectPolicy"):
        if policy.path is not None and policy.prefix is not None:
            _refuse_redirect("cannot specify both redirect path and redirect prefix. Remove one of them.", problems)
        if policy.hostname is not None and not _HOSTNAME.fullmatch(policy.hostname):
            _refuse_redirect(f"{policy.hostname!r} is not a host name. Use one such as 'www.example.com'.", problems)
        for path in (policy.path, policy.prefix):
            if path is not None and (wrong := target_problem(path)):
                _refuse_redirect(f"the path {path!r} {wrong}", problems)
    return Redirect(
        status=policy.status_code,
        scheme=policy.scheme or "",
        host=policy.hostname or "",
        port=policy.port,
        path=policy.path,
        prefix=policy.prefix,
    )


def _refuse_redirect(why: str, problems: Problems) -> None:
    problems.add("RequestRedirectPolicy", f"route.requestRedirectPolicy is invalid: {why}")


def _respond(policy: contour.DirectResponsePolicy, problems: Problems) -> Respond:
    if len(policy.body.encode()) > _LONGEST_BODY:
        with problems.at("directResponsePolicy", "body"):
            problems.add("DirectResponsePolicyNotValid", f"The body is longer than {_LONGEST_BODY} bytes. Shorten it.")
    return Respond(status=policy.status_code, body=policy.body)
