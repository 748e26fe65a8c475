"""Route configurations."""

from functools import lru_cache
from typing import Final, assert_never

from envoy.config.core.v3 import base_pb2
from envoy.config.route.v3 import route_components_pb2 as pb
from envoy.config.route.v3 import route_pb2
from google.protobuf.struct_pb2 import Struct, Value
from google.protobuf.wrappers_pb2 import UInt32Value

from authplane.graph.guards import Disabled, Enforced, FailOpen, RouteAuthorization, Unprotected
from authplane.graph.model import (
    Exact,
    Fallback,
    Forward,
    Graph,
    Host,
    PathMatch,
    Prefix,
    Redirect,
    RedirectToHttps,
    Regex,
    Respond,
    Route,
    SecureHost,
)
from authplane.graph.programming import FALLBACK_ROUTES, HTTP_LISTENER, route_name
from authplane.render.filters import Chain, chain_of, per_route
from authplane.render.wrap import REMEMBERED_HOSTS

METADATA: Final = "authplane"
_MISDIRECTED: Final = 421
_WITHDRAWN: Final = 503


def render_plain_routes(graph: Graph) -> route_pb2.RouteConfiguration:
    """Render the routes of the HTTP listener: every host in one table."""
    chain = chain_of(graph.plain_hosts)
    hosts = [_virtual_host(host, chain) for host in graph.plain_hosts]
    hosts += [_answering(fqdn, [fqdn], _WITHDRAWN, chain) for fqdn in graph.refused]
    return route_pb2.RouteConfiguration(name=HTTP_LISTENER, virtual_hosts=hosts, ignore_port_in_host_matching=True)


@lru_cache(maxsize=REMEMBERED_HOSTS)
def render_secure_routes(secure: SecureHost) -> route_pb2.RouteConfiguration:
    """Render the routes of a virtual host behind TLS; a request for another host is misdirected (RFC 9110, 15.5.20)."""
    chain = chain_of([secure.host])
    return route_pb2.RouteConfiguration(
        name=route_name(secure.host.fqdn),
        virtual_hosts=[
            _virtual_host(secure.host, chain),
            _answering("misdirected", ["*", *secure.elsewhere], _MISDIRECTED, chain),
        ],
        ignore_port_in_host_matching=True,
    )


def render_fallback_routes(fallback: Fallback) -> route_pb2.RouteConfiguration:
    """Render the routes of those that clients may ask for without naming them in TLS."""
    chain = chain_of(fallback.hosts)
    return route_pb2.RouteConfiguration(
        name=FALLBACK_ROUTES,
        virtual_hosts=[
            *(_virtual_host(host, chain) for host in fallback.hosts),
            _answering("misdirected", ["*", *fallback.elsewhere], _MISDIRECTED, chain),
        ],
        ignore_port_in_host_matching=True,
    )


@lru_cache(maxsize=REMEMBERED_HOSTS)
def _virtual_host(host: Host, chain: Chain) -> pb.VirtualHost:
    return pb.VirtualHost(
        name=host.fqdn, domains=[host.fqdn], routes=[_route(host, route, chain) for route in host.routes]
    )


def _answering(name: str, domains: list[str], status: int, chain: Chain) -> pb.VirtualHost:
    """Answer every request by ourselves: nothing behind is reached."""
    return pb.VirtualHost(
        name=name,
        domains=domains,
        routes=[
            pb.Route(
                match=pb.RouteMatch(prefix="/"),
                direct_response=pb.DirectResponseAction(status=status),
                typed_per_filter_config=per_route(chain, Unprotected()),
            )
        ],
    )


def _route(host: Host, route: Route, chain: Chain) -> pb.Route:
    message = pb.Route(
        name=f"{host.proxy}{route.match.path.path}",
        match=_match(route.match.path),
        metadata=_metadata(route.authorization),
        typed_per_filter_config=per_route(chain, route.authorization),
    )
    match route.action:
        case Forward(targets=targets):
            message.route.CopyFrom(_forward([(target.cluster, target.weight) for target in targets]))
        case RedirectToHttps(port):
            # Named only if it is not what https means anyway: otherwise it would stand in every address.
            message.redirect.CopyFrom(pb.RedirectAction(https_redirect=True, port_redirect=port if port != 443 else 0))
        case Redirect():
            raise NotImplementedError
        case Respond(status=status):
            message.direct_response.CopyFrom(pb.DirectResponseAction(status=status))
        case _:
            assert_never(route.action)
    return message


def _match(match: PathMatch) -> pb.RouteMatch:
    match match:
        case Exact(path):
            return pb.RouteMatch(path=path)
        case Prefix(path):
            return pb.RouteMatch(prefix=path)
        case Regex(path):
            raise NotImplementedError(path)
        case _:
            assert_never(match)


def _forward(targets: list[tuple[str, int]]) -> pb.RouteAction:
    if len(targets) == 1:
        return pb.RouteAction(cluster=targets[0][0])
    weighted = [
        pb.WeightedCluster.ClusterWeight(name=cluster, weight=UInt32Value(value=weight)) for cluster, weight in targets
    ]
    return pb.RouteAction(weighted_clusters=pb.WeightedCluster(clusters=weighted))


def _metadata(authorization: RouteAuthorization) -> base_pb2.Metadata:
    """Let the access log say what held for the request."""
    fields = Struct(fields={"authorization": Value(string_value=authorization_word(authorization))})
    return base_pb2.Metadata(filter_metadata={METADATA: fields})


def authorization_word(authorization: RouteAuthorization) -> str:
    """Name the state of a route for people."""
    match authorization:
        case Unprotected():
            return "unprotected"
        case Disabled():
            return "disabled"
        case Enforced(service=service):
            return "fails-open" if isinstance(service.on_failure, FailOpen) else "enforced"
        case _:
            assert_never(authorization)
