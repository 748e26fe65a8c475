"""ClusterLoadAssignments: endpoints by priority and locality."""

from typing import Final

from envoy.config.core.v3 import health_check_pb2
from envoy.config.endpoint.v3 import endpoint_components_pb2 as components_pb
from envoy.config.endpoint.v3 import endpoint_pb2 as pb

from authplane.core.problems import Problems
from authplane.dataplane.config.clusters import ClusterEndpoints, Drop, LocalityEndpoints, WeightedEndpoint
from authplane.dataplane.config.read.common_parts import parse_ip_endpoint
from authplane.dataplane.filters.calls import Endpoint
from authplane.matching.wire import parse_fraction

_USABLE: Final = frozenset({health_check_pb2.UNKNOWN, health_check_pb2.HEALTHY})
_READ: Final = _USABLE | {health_check_pb2.DRAINING}
"""Of the others nothing is read, as they get no calls: as grpcio has it."""
_MOST_WEIGHT: Final = 2**32 - 1


def parse_cluster_endpoints(message: pb.ClusterLoadAssignment, problems: Problems) -> ClusterEndpoints:
    """Read the endpoints of a cluster; what has problems is left out."""
    priorities: dict[int, dict[tuple[str, str, str], LocalityEndpoints]] = {}
    seen: set[Endpoint] = set()
    with problems.at("endpoints"):
        for index, each in enumerate(message.endpoints):
            if not each.load_balancing_weight.value:
                # A locality without a weight gets no calls.
                continue
            with problems.at(index):
                locality = _parse_locality(each, seen, problems)
                place = (locality.region, locality.zone, locality.sub_zone)
                if priorities.setdefault(each.priority, {}).setdefault(place, locality) is not locality:
                    problems.add(
                        "LocalityDuplicate",
                        f"The locality occurs twice in priority {each.priority}. Remove one of them.",
                    )
        _check_priorities(priorities, problems)
    return ClusterEndpoints(
        name=message.cluster_name,
        priorities=tuple(tuple(priorities[each].values()) for each in sorted(priorities)),
        drops=_parse_drops(message.policy, problems),
    )


def _parse_locality(
    message: components_pb.LocalityLbEndpoints, seen: set[Endpoint], problems: Problems
) -> LocalityEndpoints:
    if not message.HasField("locality"):
        with problems.at("locality"):
            problems.add("Missing", "This field is required. Add it.")
    endpoints = []
    for index, each in enumerate(message.lb_endpoints):
        if each.health_status not in _READ:
            continue
        with problems.at("lb_endpoints", index):
            endpoint = _parse_endpoint(each, seen, problems)
        if endpoint is not None and each.health_status in _USABLE:
            endpoints.append(endpoint)
    return LocalityEndpoints(
        region=message.locality.region,
        zone=message.locality.zone,
        sub_zone=message.locality.sub_zone,
        weight=message.load_balancing_weight.value,
        endpoints=tuple(endpoints),
    )


def _parse_endpoint(
    message: components_pb.LbEndpoint, seen: set[Endpoint], problems: Problems
) -> WeightedEndpoint | None:
    if message.HasField("load_balancing_weight") and not message.load_balancing_weight.value:
        with problems.at("load_balancing_weight"):
            problems.add("OutOfRange", "The weight is 0. Use 1 or more.")
    found = []
    with problems.at("endpoint"):
        if not message.HasField("endpoint"):
            problems.add("Missing", "This field is required. Add it.")
            return None
        with problems.at("address"):
            found.append(parse_ip_endpoint(message.endpoint.address, problems))
        for index, each in enumerate(message.endpoint.additional_addresses):
            with problems.at("additional_addresses", index, "address"):
                found.append(parse_ip_endpoint(each.address, problems))
    addresses = tuple(each for each in found if each is not None)
    for address in addresses:
        if address in seen:
            problems.add(
                "AddressDuplicate",
                f"Address {address.address} with port {address.port} occurs twice. Remove one of them.",
            )
        seen.add(address)
    if not addresses:
        return None
    weight = message.load_balancing_weight.value or 1
    return WeightedEndpoint(addresses=addresses, weight=weight, hostname=message.endpoint.hostname)


def _check_priorities(priorities: dict[int, dict[tuple[str, str, str], LocalityEndpoints]], problems: Problems) -> None:
    for wanted, priority in enumerate(sorted(priorities)):
        if priority != wanted:
            problems.add(
                "PriorityMissing",
                f"Priority {priority} is set, but priority {wanted} is missing. Use consecutive priorities from 0.",
            )
            return
        if sum(each.weight for each in priorities[priority].values()) > _MOST_WEIGHT:
            problems.add(
                "WeightInvalid", f"The weights of priority {priority} add up to more than {_MOST_WEIGHT}. Reduce them."
            )


def _parse_drops(message: pb.ClusterLoadAssignment.Policy, problems: Problems) -> tuple[Drop, ...]:
    found = []
    for index, each in enumerate(message.drop_overloads):
        with problems.at("policy", "drop_overloads", index):
            if not each.category:
                with problems.at("category"):
                    problems.add("NameMissing", "The category is empty. Set a category.")
            with problems.at("drop_percentage"):
                if not each.HasField("drop_percentage"):
                    problems.add("Missing", "This field is required. Add it.")
                    continue
                fraction = parse_fraction(each.drop_percentage, problems)
            if fraction is not None:
                found.append(Drop(category=each.category, fraction=fraction))
    return tuple(found)
