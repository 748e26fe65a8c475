"""Actions of routes: clusters and their weights, timeouts, and the other fields that gRPC reads."""

from collections.abc import Mapping
from typing import Final

from envoy.config.route.v3 import route_components_pb2 as pb

from authplane.core.problems import Problems
from authplane.dataplane.config.read.common_parts import parse_duration
from authplane.dataplane.config.read.http_filters import parse_overrides
from authplane.dataplane.config.routes import Action, ClusterWeight, Forward, NonForwarding, UnsupportedAction
from authplane.dataplane.filters.calls import Side
from authplane.dataplane.filters.registry import Scope
from authplane.matching.wire import parse_regex

_MOST_WEIGHT: Final = 2**32 - 1


def parse_action(message: pb.Route, plugins: Mapping[str, bool], scope: Scope, problems: Problems) -> Action | None:
    """Read what a route does; None means that there is no such route for us. ``plugins`` tells which are optional."""
    match message.WhichOneof("action"):
        case "route":
            with problems.at("route"):
                return _parse_forward(message.route, plugins, scope, problems)
        case "non_forwarding_action":
            return NonForwarding()
        case _:
            return UnsupportedAction()


def parse_retry_policy(message: pb.RetryPolicy, problems: Problems) -> None:
    """Report what is wrong with a policy of retries (gRFC A44)."""
    with problems.at("retry_policy"):
        if message.HasField("num_retries") and message.num_retries.value == 0:
            with problems.at("num_retries"):
                problems.add("OutOfRange", "num_retries is 0. Use 1 or more.")
        if not message.HasField("retry_back_off"):
            return
        with problems.at("retry_back_off"):
            with problems.at("base_interval"):
                if message.retry_back_off.HasField("base_interval"):
                    parse_duration(message.retry_back_off.base_interval, problems)
                else:
                    problems.add("Missing", "This field is required. Add it.")
            with problems.at("max_interval"):
                parse_duration(message.retry_back_off.max_interval, problems)


def _parse_forward(
    message: pb.RouteAction, plugins: Mapping[str, bool], scope: Scope, problems: Problems
) -> Action | None:
    longest = _parse_longest(message, problems)
    _check_hash_policies(message, problems)
    if message.HasField("retry_policy"):
        parse_retry_policy(message.retry_policy, problems)
    match message.WhichOneof("cluster_specifier"):
        case "cluster":
            with problems.at("cluster"):
                if not message.cluster:
                    problems.add("NameMissing", "The name is empty. Set a name.")
            return Forward(clusters=(ClusterWeight(name=message.cluster),), longest=longest)
        case "weighted_clusters":
            with problems.at("weighted_clusters"):
                clusters = _parse_weighted(message.weighted_clusters, scope, problems)
            return Forward(clusters=clusters, longest=longest)
        case "cluster_specifier_plugin":
            with problems.at("cluster_specifier_plugin"):
                return _without_plugin(message.cluster_specifier_plugin, plugins, scope, problems)
        case _:
            return _without_cluster(scope)


def _without_cluster(scope: Scope) -> Action | None:
    """Let a client go on to the next route; a server must not, as that could be one with weaker filters."""
    return UnsupportedAction() if scope.side is Side.SERVER else None


def _without_plugin(name: str, plugins: Mapping[str, bool], scope: Scope, problems: Problems) -> Action | None:
    if name not in plugins:
        problems.add(
            "PluginUnknown", f"Cluster specifier plugin '{name}' does not exist. Add it to cluster_specifier_plugins."
        )
    return _without_cluster(scope)


def _parse_longest(message: pb.RouteAction, problems: Problems) -> float | None:
    if not message.HasField("max_stream_duration"):
        return None
    limits = message.max_stream_duration
    with problems.at("max_stream_duration"):
        if limits.HasField("grpc_timeout_header_max"):
            with problems.at("grpc_timeout_header_max"):
                return parse_duration(limits.grpc_timeout_header_max, problems)
        if limits.HasField("max_stream_duration"):
            with problems.at("max_stream_duration"):
                return parse_duration(limits.max_stream_duration, problems)
    return None


def _check_hash_policies(message: pb.RouteAction, problems: Problems) -> None:
    for index, policy in enumerate(message.hash_policy):
        if not policy.HasField("header"):
            continue
        with problems.at("hash_policy", index, "header"):
            if not policy.header.header_name:
                with problems.at("header_name"):
                    problems.add("NameMissing", "The name is empty. Set a name.")
            if policy.header.HasField("regex_rewrite"):
                with problems.at("regex_rewrite", "pattern"):
                    parse_regex(policy.header.regex_rewrite.pattern, problems)


def _parse_weighted(message: pb.WeightedCluster, scope: Scope, problems: Problems) -> tuple[ClusterWeight, ...]:
    before = problems.error_count
    found = []
    for index, each in enumerate(message.clusters):
        with problems.at("clusters", index):
            overrides = parse_overrides(each.typed_per_filter_config, scope, problems)
            if not each.name:
                with problems.at("name"):
                    problems.add("NameMissing", "The name is empty. Set a name.")
            if not each.HasField("weight"):
                with problems.at("weight"):
                    problems.add("Missing", "This field is required. Add it.")
            elif each.weight.value:
                found.append(ClusterWeight(name=each.name, weight=each.weight.value, overrides=overrides))
    if not found and problems.error_count == before:
        problems.add("WeightInvalid", "All weights are 0. Set a weight above 0.")
    elif sum(each.weight for each in found) > _MOST_WEIGHT:
        problems.add("WeightInvalid", f"The weights add up to more than {_MOST_WEIGHT}. Reduce them.")
    return tuple(found)
