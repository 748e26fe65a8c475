"""Load balancing policies of clusters (gRFC A52)."""

from typing import Final

from envoy.config.cluster.v3 import cluster_pb2
from envoy.extensions.load_balancing_policies.client_side_weighted_round_robin.v3 import (
    client_side_weighted_round_robin_pb2 as weighted_pb,
)
from envoy.extensions.load_balancing_policies.pick_first.v3 import pick_first_pb2
from envoy.extensions.load_balancing_policies.ring_hash.v3 import ring_hash_pb2
from envoy.extensions.load_balancing_policies.round_robin.v3 import round_robin_pb2
from envoy.extensions.load_balancing_policies.wrr_locality.v3 import wrr_locality_pb2

from authplane.core.problems import Problems
from authplane.dataplane.config.clusters import Balancing
from authplane.dataplane.config.read.common_parts import parse_duration
from authplane.dataplane.filters.extensions.wire import parse_extension, parse_message
from authplane.dataplane.filters.registry import Packed

_MOST_DEPTH: Final = 16
_LARGEST_RING: Final = 8_388_608
_WEIGHTED_DURATIONS: Final = frozenset(
    {"oob_reporting_period", "blackout_period", "weight_update_period", "weight_expiration_period"}
)

_ROUND_ROBIN: Final = round_robin_pb2.RoundRobin.DESCRIPTOR.full_name
_PICK_FIRST: Final = pick_first_pb2.PickFirst.DESCRIPTOR.full_name
_RING_HASH: Final = ring_hash_pb2.RingHash.DESCRIPTOR.full_name
_WEIGHTED: Final = weighted_pb.ClientSideWeightedRoundRobin.DESCRIPTOR.full_name
_LOCALITIES: Final = wrr_locality_pb2.WrrLocality.DESCRIPTOR.full_name
_SUPPORTED: Final = frozenset({_ROUND_ROBIN, _PICK_FIRST, _RING_HASH, _WEIGHTED, _LOCALITIES})


def parse_balancing(message: cluster_pb2.Cluster, problems: Problems) -> Balancing:
    """Read how a cluster spreads calls; ``load_balancing_policy`` counts before ``lb_policy``."""
    if message.HasField("load_balancing_policy"):
        with problems.at("load_balancing_policy"):
            return _parse_policies(message.load_balancing_policy, problems, 0)
    match message.lb_policy:
        case cluster_pb2.Cluster.ROUND_ROBIN:
            return Balancing.ROUND_ROBIN
        case cluster_pb2.Cluster.RING_HASH:
            with problems.at("ring_hash_lb_config"):
                ring = message.ring_hash_lb_config
                _check_ring(ring, problems)
                if ring.hash_function != cluster_pb2.Cluster.RingHashLbConfig.XX_HASH:
                    with problems.at("hash_function"):
                        problems.add("Unsupported", "The hash function is not supported. Supported: XX_HASH.")
            return Balancing.RING_HASH
        case _:
            with problems.at("lb_policy"):
                problems.add(
                    "BalancingUnsupported",
                    "The load balancing policy is not supported. Supported: ROUND_ROBIN, RING_HASH.",
                )
            return Balancing.ROUND_ROBIN


def _parse_policies(message: cluster_pb2.LoadBalancingPolicy, problems: Problems, depth: int) -> Balancing:
    """Take the first policy that is supported; the result counts only if there is no problem."""
    if depth >= _MOST_DEPTH:
        problems.add("TooDeep", f"Policies are nested more than {_MOST_DEPTH} levels deep. Use fewer levels.")
        return Balancing.ROUND_ROBIN
    for index, policy in enumerate(message.policies):
        with problems.at("policies", index, "typed_extension_config", "typed_config"):
            raw = parse_extension(policy.typed_extension_config.typed_config, problems)
            if raw is None:
                return Balancing.ROUND_ROBIN
            if isinstance(raw, Packed) and raw.type_name in _SUPPORTED:
                return _parse_policy(raw, problems, depth)
    problems.add("BalancingUnsupported", "No policy in the list is supported. Add a supported one, such as RoundRobin.")
    return Balancing.ROUND_ROBIN


def _parse_policy(raw: Packed, problems: Problems, depth: int) -> Balancing:
    match raw.type_name:
        case name if name == _PICK_FIRST:
            parse_message(pick_first_pb2.PickFirst, raw.value, problems)
            return Balancing.PICK_FIRST
        case name if name == _RING_HASH:
            _check_ring_hash(raw, problems)
            return Balancing.RING_HASH
        case name if name == _WEIGHTED:
            _check_weighted(raw, problems)
            return Balancing.WEIGHTED_ROUND_ROBIN
        case name if name == _LOCALITIES:
            localities = parse_message(wrr_locality_pb2.WrrLocality, raw.value, problems)
            if localities is None:
                return Balancing.ROUND_ROBIN
            with problems.at("endpoint_picking_policy"):
                return _parse_policies(localities.endpoint_picking_policy, problems, depth + 1)
        case _:
            parse_message(round_robin_pb2.RoundRobin, raw.value, problems)
            return Balancing.ROUND_ROBIN


def _check_ring_hash(raw: Packed, problems: Problems) -> None:
    ring = parse_message(ring_hash_pb2.RingHash, raw.value, problems)
    if ring is None:
        return
    _check_ring(ring, problems)
    if ring.hash_function not in {ring_hash_pb2.RingHash.DEFAULT_HASH, ring_hash_pb2.RingHash.XX_HASH}:
        with problems.at("hash_function"):
            problems.add("Unsupported", "The hash function is not supported. Supported: XX_HASH.")


def _check_ring(message: ring_hash_pb2.RingHash | cluster_pb2.Cluster.RingHashLbConfig, problems: Problems) -> None:
    largest = message.maximum_ring_size.value if message.HasField("maximum_ring_size") else _LARGEST_RING
    smallest = message.minimum_ring_size.value if message.HasField("minimum_ring_size") else min(1024, largest)
    for name, size in (("maximum_ring_size", largest), ("minimum_ring_size", smallest)):
        if not 1 <= size <= _LARGEST_RING:
            with problems.at(name):
                problems.add("OutOfRange", f"{size} is out of range. Use a number from 1 to {_LARGEST_RING}.")
    if smallest > largest:
        with problems.at("minimum_ring_size"):
            problems.add("OutOfRange", "minimum_ring_size is greater than maximum_ring_size. Reduce it.")


def _check_weighted(raw: Packed, problems: Problems) -> None:
    message = parse_message(weighted_pb.ClientSideWeightedRoundRobin, raw.value, problems)
    if message is None:
        return
    for field, value in message.ListFields():
        if field.name in _WEIGHTED_DURATIONS:
            with problems.at(field.name):
                parse_duration(value, problems)
    if not message.error_utilization_penalty.value >= 0:
        with problems.at("error_utilization_penalty"):
            problems.add("OutOfRange", "The penalty is negative. Use 0 or more.")
