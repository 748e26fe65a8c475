"""RouteConfigurations: virtual hosts and routes (gRFC A28)."""

from collections.abc import Mapping
from typing import Final

from envoy.config.route.v3 import route_components_pb2 as pb
from envoy.config.route.v3 import route_pb2

from authplane.core.problems import Problems
from authplane.dataplane.config.read.http_filters import parse_overrides
from authplane.dataplane.config.read.read_metadata import parse_metadata
from authplane.dataplane.config.read.route_actions import parse_action, parse_retry_policy
from authplane.dataplane.config.routes import Route, RouteConfiguration, RouteMatch, VirtualHost
from authplane.dataplane.filters.extensions.wire import parse_extension
from authplane.dataplane.filters.registry import Scope
from authplane.dataplane.filters.wire import check_missing_header
from authplane.matching.string_matchers import Exact, Prefix, StringMatcher, lower
from authplane.matching.wire import parse_header_matcher, parse_regex, parse_runtime_fraction

_UNCHECKABLE: Final = frozenset({"tls_context", "dynamic_metadata", "filter_state"})


def parse_route_configuration(
    message: route_pb2.RouteConfiguration, scope: Scope, problems: Problems
) -> RouteConfiguration:
    """Read a RouteConfiguration; what has problems is left out."""
    plugins = _parse_plugins(message, problems)
    hosts = []
    for index, host in enumerate(message.virtual_hosts):
        with problems.at("virtual_hosts", index):
            hosts.append(_parse_host(host, plugins, scope, problems))
    return RouteConfiguration(name=message.name, virtual_hosts=tuple(hosts))


def _parse_plugins(message: route_pb2.RouteConfiguration, problems: Problems) -> Mapping[str, bool]:
    """Return the plugins that choose clusters, each with whether it is optional; we support none of them."""
    found: dict[str, bool] = {}
    for index, plugin in enumerate(message.cluster_specifier_plugins):
        with problems.at("cluster_specifier_plugins", index, "extension"):
            if not plugin.HasField("extension"):
                problems.add("Missing", "This field is required. Add it.")
                continue
            if plugin.extension.name in found:
                with problems.at("name"):
                    problems.add(
                        "NameDuplicate", f"Another plugin has the name '{plugin.extension.name}'. Rename one of them."
                    )
            found[plugin.extension.name] = plugin.is_optional
            with problems.at("typed_config"):
                if not plugin.extension.HasField("typed_config"):
                    problems.add("Missing", "This field is required. Add it.")
                elif parse_extension(plugin.extension.typed_config, problems) and not plugin.is_optional:
                    problems.add(
                        "PluginUnsupported",
                        "The cluster specifier plugin is not supported. Remove it, or set is_optional.",
                    )
    return found


def _parse_host(message: pb.VirtualHost, plugins: Mapping[str, bool], scope: Scope, problems: Problems) -> VirtualHost:
    if message.HasField("retry_policy"):
        parse_retry_policy(message.retry_policy, problems)
    routes = []
    for index, each in enumerate(message.routes):
        with problems.at("routes", index):
            routes.append(_parse_route(each, plugins, scope, problems))
    return VirtualHost(
        name=message.name,
        domains=_parse_domains(message, problems),
        routes=tuple(route for route in routes if route is not None),
        overrides=parse_overrides(message.typed_per_filter_config, scope, problems),
    )


def _parse_domains(message: pb.VirtualHost, problems: Problems) -> tuple[str, ...]:
    with problems.at("domains"):
        if not message.domains:
            problems.add("Missing", "The list of domains is empty. Add a domain.")
        for index, domain in enumerate(message.domains):
            if not domain or domain.count("*") > 1 or "*" in domain[1:-1]:
                with problems.at(index):
                    problems.add(
                        "DomainInvalid",
                        f"'{domain}' is not a domain. Use a domain with at most one wildcard, at its start or its end.",
                    )
    return tuple(lower(domain) for domain in message.domains)


def _parse_route(message: pb.Route, plugins: Mapping[str, bool], scope: Scope, problems: Problems) -> Route | None:
    """Read a route; None means that no call of gRPC can match it, or that it has problems."""
    with problems.at("match"):
        if not message.HasField("match"):
            problems.add("Missing", "This field is required. Add it.")
            return None
        match = _parse_match(message.match, problems)
    if match is None:
        return None
    action = parse_action(message, plugins, scope, problems)
    overrides = parse_overrides(message.typed_per_filter_config, scope, problems)
    with problems.at("metadata"):
        metadata = parse_metadata(message.metadata, problems)
    if action is None:
        return None
    return Route(name=message.name, match=match, action=action, overrides=overrides, metadata=metadata)


def _parse_match(message: pb.RouteMatch, problems: Problems) -> RouteMatch | None:
    # A path of gRPC has no query.
    path = None if message.query_parameters else _parse_path(message, problems)
    if path is None:
        return None
    headers = []
    for index, each in enumerate(message.headers):
        with problems.at("headers", index):
            check_missing_header(each, problems)
            headers.append(parse_header_matcher(each, problems))
    fraction = None
    if message.HasField("runtime_fraction"):
        with problems.at("runtime_fraction"):
            fraction = parse_runtime_fraction(message.runtime_fraction, problems)
    _check_conditions(message, problems)
    return RouteMatch(path=path, headers=tuple(each for each in headers if each is not None), fraction=fraction)


def _check_conditions(message: pb.RouteMatch, problems: Problems) -> None:
    """Refuse conditions that we cannot check: without them the route would match calls that it is not meant for."""
    for field, _ in message.ListFields():
        if field.name in _UNCHECKABLE:
            with problems.at(field.name):
                problems.add("MatchUnsupported", "gRPC does not support this condition. Remove it.")


def _parse_path(message: pb.RouteMatch, problems: Problems) -> StringMatcher | None:
    ignore_case = message.HasField("case_sensitive") and not message.case_sensitive.value
    match message.WhichOneof("path_specifier"):
        case "prefix":
            return Prefix(message.prefix, ignore_case) if _can_begin_path(message.prefix) else None
        case "path":
            return Exact(message.path, ignore_case) if is_path(message.path) else None
        case "safe_regex":
            # case_sensitive does not apply to expressions, which have a flag for it.
            with problems.at("safe_regex"):
                return parse_regex(message.safe_regex, problems)
        case _:
            problems.add(
                "MatchUnsupported", "The path condition is missing or not supported. Set prefix, path or safe_regex."
            )
            return None


def is_path(path: str) -> bool:
    """Tell whether a path is of the form ``/service/method``."""
    parts = path.split("/")
    return len(parts) == 3 and not parts[0] and bool(parts[1]) and bool(parts[2])


def _can_begin_path(prefix: str) -> bool:
    if not prefix:
        return True
    parts = prefix.split("/")
    return not parts[0] and (len(parts) == 2 or (len(parts) == 3 and bool(parts[1])))
