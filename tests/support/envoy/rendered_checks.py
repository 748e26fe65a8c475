"""What Envoy would ask about a request, read from the rendered messages as Envoy reads them."""

from collections.abc import Iterator
from dataclasses import dataclass

from envoy.config.route.v3 import route_components_pb2 as route_pb
from envoy.extensions.filters.http.ext_authz.v3 import ext_authz_pb2 as pb
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb
from google.protobuf.any_pb2 import Any
from google.protobuf.unknown_fields import UnknownFieldSet

from authplane.controlplane.render.rendered import Rendered
from authplane.controlplane.render.stripped_headers import STRIP


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One question about a request, and what no answer means."""

    cluster: str
    protocol: str
    without_answer: str
    context: tuple[tuple[str, str], ...] = ()
    seconds: float = 0.2
    body: tuple[int, bool, bool] | None = None
    clears: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Manager:
    """A connection manager: its filters that ask, and its hosts."""

    routes: str
    """The name of its route configuration."""
    filters: dict[str, pb.ExtAuthz]
    hosts: dict[str, route_pb.VirtualHost]
    """By domain."""

    def checks(self, route: route_pb.Route) -> list[Check]:
        """Return every question that is asked about a request of this route."""
        return [
            found
            for name, message in self.filters.items()
            if (found := _check(message, route.typed_per_filter_config.get(name))) is not None
        ]

    def route(self, host: str, path: str) -> route_pb.Route | None:
        """Return the route that takes a path."""
        matching = (each for each in self.hosts[host].routes if _matches(each.match, path))
        return next(matching, None)


def managers(rendered: Rendered) -> Iterator[Manager]:
    """Read every connection manager."""
    tables = {message.name: message for message in rendered.routes}
    for listener in rendered.listeners:
        for chain in listener.filter_chains:
            manager = hcm_pb.HttpConnectionManager()
            assert chain.filters[0].typed_config.Unpack(manager)
            name = manager.rds.route_config_name
            filters: dict[str, pb.ExtAuthz] = {}
            for each in manager.http_filters:
                message = pb.ExtAuthz()
                if each.typed_config.Unpack(message):
                    assert not each.disabled
                    assert each.name not in filters
                    filters[each.name] = message
            hosts = {domain: host for host in tables[name].virtual_hosts for domain in host.domains}
            for host in tables[name].virtual_hosts:
                assert set(host.typed_per_filter_config) <= {STRIP}
            yield Manager(routes=name.partition("#")[0], filters=filters, hosts=hosts)


def _check(message: pb.ExtAuthz, packed: Any | None) -> Check | None:
    own = pb.ExtAuthzPerRoute()
    assert packed is None or packed.Unpack(own)
    if own.disabled:
        return None
    settings = own.check_settings
    asked: pb.ExtAuthz | pb.CheckSettings = message
    if settings.HasField("grpc_service") or settings.HasField("http_service"):
        asked = settings
    if asked.HasField("grpc_service"):
        cluster, protocol = asked.grpc_service.envoy_grpc.cluster_name, asked.grpc_service.envoy_grpc.authority
        timeout, is_set = asked.grpc_service.timeout, asked.grpc_service.HasField("timeout")
    else:
        cluster, protocol = asked.http_service.server_uri.cluster, f"http {asked.http_service.path_prefix}"
        timeout, is_set = asked.http_service.server_uri.timeout, asked.http_service.server_uri.HasField("timeout")
        protocol += "".join(f" {each.exact}" for each in message.allowed_headers.patterns)
    body = message.with_request_body
    return Check(
        cluster=cluster,
        protocol=protocol,
        without_answer=_without_answer(message),
        context=tuple(sorted(settings.context_extensions.items())),
        seconds=timeout.ToTimedelta().total_seconds() if is_set else 0.2,
        body=(body.max_request_bytes, body.allow_partial_message, body.pack_as_bytes)
        if message.HasField("with_request_body")
        else None,
        clears=message.clear_route_cache,
    )


def _without_answer(message: pb.ExtAuthz) -> str:
    unknown = UnknownFieldSet(message)
    shadow = any(unknown[at].field_number == 32 and unknown[at].data == 1 for at in range(len(unknown)))
    return "shadow" if shadow else "open" if message.failure_mode_allow else "closed"


def _matches(match: route_pb.RouteMatch, path: str) -> bool:
    match match.WhichOneof("path_specifier"):
        case "prefix":
            return path.startswith(match.prefix)
        case "path":
            return path == match.path
        case "path_separated_prefix":
            return path == match.path_separated_prefix or path.startswith(f"{match.path_separated_prefix}/")
        case other:
            raise AssertionError(other)
