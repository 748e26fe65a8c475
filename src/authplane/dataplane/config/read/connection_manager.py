"""HttpConnectionManagers: filters and where the routes are."""

from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as pb

from authplane.core.problems import Problems
from authplane.dataplane.config.listeners import ConnectionManager, RouteName
from authplane.dataplane.config.read.common_parts import parse_ads_source, parse_duration
from authplane.dataplane.config.read.http_filters import parse_http_filters
from authplane.dataplane.config.read.read_routes import parse_route_configuration
from authplane.dataplane.config.routes import RouteConfiguration
from authplane.dataplane.filters.registry import Scope


def parse_connection_manager(message: pb.HttpConnectionManager, scope: Scope, problems: Problems) -> ConnectionManager:
    """Read a connection manager; what has problems is left out."""
    _check_addresses(message, problems)
    longest = None
    if message.common_http_protocol_options.HasField("max_stream_duration"):
        with problems.at("common_http_protocol_options", "max_stream_duration"):
            longest = parse_duration(message.common_http_protocol_options.max_stream_duration, problems)
    with problems.at("http_filters"):
        filters = parse_http_filters(message.http_filters, scope, problems)
    return ConnectionManager(filters=filters, routes=_parse_routes(message, scope, problems), longest=longest)


def _check_addresses(message: pb.HttpConnectionManager, problems: Problems) -> None:
    """Require that the peer's address is that of the connection (gRFC A41)."""
    if message.xff_num_trusted_hops:
        with problems.at("xff_num_trusted_hops"):
            problems.add("Unsupported", "xff_num_trusted_hops is not supported. Set it to 0.")
    if message.original_ip_detection_extensions:
        with problems.at("original_ip_detection_extensions"):
            problems.add("Unsupported", "original_ip_detection_extensions is not supported. Remove it.")


def _parse_routes(
    message: pb.HttpConnectionManager, scope: Scope, problems: Problems
) -> RouteConfiguration | RouteName:
    match message.WhichOneof("route_specifier"):
        case "route_config":
            with problems.at("route_config"):
                return parse_route_configuration(message.route_config, scope, problems)
        case "rds":
            with problems.at("rds"):
                with problems.at("config_source"):
                    parse_ads_source(message.rds.config_source, problems)
                if not message.rds.route_config_name:
                    with problems.at("route_config_name"):
                        problems.add("NameMissing", "The name is empty. Set a name.")
            return RouteName(message.rds.route_config_name)
        case _:
            problems.add("RoutesMissing", "The routes are missing. Set route_config or rds.")
            return RouteConfiguration()
