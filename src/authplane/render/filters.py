"""HTTP filters: one order for every listener."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias, assert_never

from envoy.config.common.mutation_rules.v3 import mutation_rules_pb2
from envoy.config.core.v3 import config_source_pb2, grpc_service_pb2
from envoy.extensions.filters.http.ext_authz.v3 import ext_authz_pb2
from envoy.extensions.filters.http.router.v3 import router_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from envoy.type.matcher.v3 import regex_pb2
from envoy.type.v3 import http_status_pb2
from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.wrappers_pb2 import BoolValue

from authplane.base.timeouts import After, Disabled, Timeout, UseDefault
from authplane.graph.guards import AuthorizationService, Enforced, FailOpen, OverGrpc, RouteAuthorization
from authplane.graph.model import Host
from authplane.render.wrap import duration, pack

EXT_AUTHZ: Final = "envoy.filters.http.ext_authz"
_ROUTER: Final = "envoy.filters.http.router"

# What an authorization service may never rewrite: the rest of the request would mean something else.
_KEPT_HEADERS: Final = "^(:path|content-length|transfer-encoding|connection|te|upgrade)$"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """Who authorizes the requests of a connection manager."""

    service: AuthorizationService
    every_route: bool
    """No route of the connection manager goes without a check."""


Chain: TypeAlias = Guard | None
"""What a connection manager knows when its filters are chosen."""


def chain_of(hosts: Iterable[Host]) -> Chain:
    """Return what a connection manager that serves these hosts knows."""
    held = [route.authorization for host in hosts for route in host.routes]
    services = {authorization.service for authorization in held if isinstance(authorization, Enforced)}
    if not services:
        return None
    if len(services) > 1:
        raise ValueError(f"there are {len(services)} authorization services")
    [service] = services
    return Guard(service=service, every_route=all(isinstance(authorization, Enforced) for authorization in held))


def http_filters(chain: Chain) -> list[hcm_pb2.HttpFilter]:
    """Render the filters of a connection manager, in the order of the table."""
    rendered = ((name, render(chain)) for name, render in _ORDER)
    return [hcm_pb2.HttpFilter(name=name, typed_config=pack(message)) for name, message in rendered if message]


def per_route(chain: Chain, authorization: RouteAuthorization) -> dict[str, Any]:
    """Render what a route changes about the filters of its connection manager."""
    if chain is None:
        return {}
    if not isinstance(authorization, Enforced):
        return {EXT_AUTHZ: pack(ext_authz_pb2.ExtAuthzPerRoute(disabled=True))}
    if not authorization.context:
        return {}
    settings = ext_authz_pb2.CheckSettings(context_extensions=dict(authorization.context))
    return {EXT_AUTHZ: pack(ext_authz_pb2.ExtAuthzPerRoute(check_settings=settings))}


def _ext_authz(chain: Chain) -> ext_authz_pb2.ExtAuthz | None:
    if chain is None:
        return None
    service = chain.service
    if not isinstance(service.protocol, OverGrpc):
        raise NotImplementedError
    return ext_authz_pb2.ExtAuthz(
        grpc_service=grpc_service_pb2.GrpcService(
            envoy_grpc=grpc_service_pb2.GrpcService.EnvoyGrpc(
                cluster_name=service.cluster, authority=service.protocol.authority
            ),
            timeout=_timeout(service.timeout),
        ),
        transport_api_version=config_source_pb2.ApiVersion.V3,
        failure_mode_allow=isinstance(service.on_failure, FailOpen),
        status_on_error=http_status_pb2.HttpStatus(code=http_status_pb2.StatusCode.Forbidden),
        # Headers that the service adds may choose another route, but never one that goes unchecked.
        clear_route_cache=chain.every_route,
        include_peer_certificate=True,
        validate_mutations=True,
        decoder_header_mutation_rules=mutation_rules_pb2.HeaderMutationRules(
            disallow_expression=regex_pb2.RegexMatcher(regex=_KEPT_HEADERS),
            disallow_is_error=BoolValue(value=True),
        ),
    )


def _timeout(timeout: Timeout) -> Duration | None:
    match timeout:
        case UseDefault():
            return None  # Envoy waits 200 ms
        case Disabled():
            return Duration()
        case After(after):
            return duration(after)
        case _:
            assert_never(timeout)


def _router(_: Chain) -> router_pb2.Router:
    return router_pb2.Router()


_ORDER: Final[tuple[tuple[str, Callable[[Chain], Message | None]], ...]] = (
    (EXT_AUTHZ, _ext_authz),
    (_ROUTER, _router),
)
