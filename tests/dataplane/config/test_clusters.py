"""Clusters and endpoints read to values, and what grpcio is given of them."""

from typing import Any, Final

import pytest
from envoy.config.cluster.v3 import circuit_breaker_pb2, cluster_pb2
from envoy.config.core.v3 import base_pb2, extension_pb2
from envoy.config.endpoint.v3 import endpoint_components_pb2, endpoint_pb2
from envoy.extensions.clusters.aggregate.v3 import cluster_pb2 as aggregate_pb
from envoy.extensions.load_balancing_policies.client_side_weighted_round_robin.v3 import (
    client_side_weighted_round_robin_pb2 as weighted_pb,
)
from envoy.extensions.load_balancing_policies.pick_first.v3 import pick_first_pb2
from envoy.extensions.load_balancing_policies.ring_hash.v3 import ring_hash_pb2
from envoy.extensions.load_balancing_policies.round_robin.v3 import round_robin_pb2
from envoy.extensions.load_balancing_policies.wrr_locality.v3 import wrr_locality_pb2
from envoy.extensions.transport_sockets.tls.v3 import common_pb2, tls_pb2
from google.protobuf import duration_pb2, wrappers_pb2
from google.protobuf.message import Message
from tests.support.dataplane.cluster_messages import assignment, eds_cluster, lb_endpoint, locality
from tests.support.dataplane.filter_messages import packed
from tests.support.dataplane.listener_messages import address, ads
from tests.support.dataplane.plain_filters import CLIENT

from authplane.dataplane.config.clusters import (
    AggregateOf,
    Balancing,
    Cluster,
    ClusterEndpoints,
    DnsEndpoint,
    Drop,
    EdsEndpoints,
    LocalityEndpoints,
    WeightedEndpoint,
)
from authplane.dataplane.config.read.decode_resource import decode_cluster, decode_endpoints
from authplane.dataplane.config.security import ClientTls, Provider, SystemRoots
from authplane.dataplane.filters.calls import Endpoint
from authplane.dataplane.routing.channel_targets import Group, dns_group, drop_category, endpoint_groups, ip_target
from authplane.matching.fractions import Fraction
from authplane.matching.string_matchers import Exact
from authplane.xds.client.watched_types import Invalid

EDS: Final = Cluster(name="cluster", discovery=EdsEndpoints("cluster"))


def decode(message: cluster_pb2.Cluster) -> Cluster | list[str]:
    got = decode_cluster(message.SerializeToString(), CLIENT)
    return [str(each) for each in got.problems] if isinstance(got, Invalid) else got


def policies(*configs: Message) -> cluster_pb2.LoadBalancingPolicy:
    made = cluster_pb2.LoadBalancingPolicy()
    for config in configs:
        extension = extension_pb2.TypedExtensionConfig(name="x", typed_config=packed(config))
        made.policies.add(typed_extension_config=extension)
    return made


def nested(depth: int) -> cluster_pb2.LoadBalancingPolicy:
    made = policies(round_robin_pb2.RoundRobin())
    for _ in range(depth):
        made = policies(wrr_locality_pb2.WrrLocality(endpoint_picking_policy=made))
    return made


def test_a_cluster_names_its_endpoints_or_bears_their_name() -> None:
    other = cluster_pb2.Cluster.EdsClusterConfig(eds_config=ads(), service_name="other")
    assert decode(eds_cluster()) == EDS
    assert decode(eds_cluster(eds_cluster_config=other)) == Cluster(name="cluster", discovery=EdsEndpoints("other"))


def test_a_cluster_with_a_name_of_another_authority_names_its_endpoints() -> None:
    assert decode(eds_cluster("xdstp://a/b")) == [
        "eds_cluster_config.service_name: service_name has no default for a cluster with an xdstp name."
        " Set service_name. [NameMissing]"
    ]


@pytest.mark.parametrize(("name", "want"), [("a.example", "a.example:80"), ("::1", "[::1]:80")])
def test_a_cluster_may_be_a_name_of_dns(name: str, want: str) -> None:
    message = cluster_pb2.Cluster(
        name="c", type=cluster_pb2.Cluster.LOGICAL_DNS, load_assignment=assignment(locality(lb_endpoint(name)))
    )
    assert decode(message) == Cluster(name="c", discovery=DnsEndpoint(want))


def test_a_name_of_dns_is_whole() -> None:
    endpoint = endpoint_components_pb2.LbEndpoint(endpoint=endpoint_components_pb2.Endpoint(address=address("")))
    endpoint.endpoint.address.socket_address.ClearField("port_value")
    endpoint.endpoint.address.socket_address.resolver_name = "x"
    message = cluster_pb2.Cluster(type=cluster_pb2.Cluster.LOGICAL_DNS, load_assignment=assignment(locality(endpoint)))
    where = "load_assignment.endpoints[0].lb_endpoints[0].endpoint.address.socket_address"
    assert decode(message) == [
        f"{where}.resolver_name: resolver_name is not supported. Remove it. [Unsupported]",
        f"{where}.address: This field is required. Add it. [Missing]",
        f"{where}.port_value: This field is required. Add it. [Missing]",
    ]


def test_a_cluster_may_aggregate_others() -> None:
    config = packed(aggregate_pb.ClusterConfig(clusters=["a", "b"]))
    kind = cluster_pb2.Cluster.CustomClusterType(name="x", typed_config=config)
    assert decode(cluster_pb2.Cluster(name="c", cluster_type=kind)) == Cluster(
        name="c", discovery=AggregateOf(("a", "b"))
    )


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        ({}, Balancing.ROUND_ROBIN),
        ({"lb_policy": cluster_pb2.Cluster.RING_HASH}, Balancing.RING_HASH),
        ({"load_balancing_policy": policies(round_robin_pb2.RoundRobin())}, Balancing.ROUND_ROBIN),
        ({"load_balancing_policy": policies(pick_first_pb2.PickFirst())}, Balancing.PICK_FIRST),
        ({"load_balancing_policy": policies(ring_hash_pb2.RingHash())}, Balancing.RING_HASH),
        (
            {"load_balancing_policy": policies(weighted_pb.ClientSideWeightedRoundRobin())},
            Balancing.WEIGHTED_ROUND_ROBIN,
        ),
        ({"load_balancing_policy": nested(15)}, Balancing.ROUND_ROBIN),
        (
            {
                "lb_policy": cluster_pb2.Cluster.RANDOM,
                "load_balancing_policy": policies(aggregate_pb.ClusterConfig(), pick_first_pb2.PickFirst()),
            },
            Balancing.PICK_FIRST,
        ),
    ],
)
def test_a_cluster_says_how_calls_are_spread(fields: dict[str, Any], want: Balancing) -> None:
    assert decode(eds_cluster(**fields)) == Cluster(name="cluster", discovery=EdsEndpoints("cluster"), balancing=want)


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        (
            {"lb_policy": cluster_pb2.Cluster.RANDOM},
            [
                "lb_policy: The load balancing policy is not supported. Supported: ROUND_ROBIN, RING_HASH."
                " [BalancingUnsupported]"
            ],
        ),
        (
            {"load_balancing_policy": policies(aggregate_pb.ClusterConfig())},
            [
                "load_balancing_policy: No policy in the list is supported. Add a supported one, such as RoundRobin."
                " [BalancingUnsupported]"
            ],
        ),
        (
            {
                "load_balancing_policy": policies(
                    ring_hash_pb2.RingHash(
                        hash_function=ring_hash_pb2.RingHash.MURMUR_HASH_2,
                        minimum_ring_size=wrappers_pb2.UInt64Value(value=9),
                        maximum_ring_size=wrappers_pb2.UInt64Value(value=8),
                    )
                )
            },
            [
                "load_balancing_policy.policies[0].typed_extension_config.typed_config.minimum_ring_size: "
                "minimum_ring_size is greater than maximum_ring_size. Reduce it. [OutOfRange]",
                "load_balancing_policy.policies[0].typed_extension_config.typed_config.hash_function: "
                "The hash function is not supported. Supported: XX_HASH. [Unsupported]",
            ],
        ),
        (
            {
                "load_balancing_policy": policies(
                    weighted_pb.ClientSideWeightedRoundRobin(
                        blackout_period=duration_pb2.Duration(seconds=-1),
                        error_utilization_penalty=wrappers_pb2.FloatValue(value=-1),
                    )
                )
            },
            [
                "load_balancing_policy.policies[0].typed_extension_config.typed_config.blackout_period.seconds: -1 is "
                "out of range. Use a number from 0 to 315576000000. [DurationInvalid]",
                "load_balancing_policy.policies[0].typed_extension_config.typed_config.error_utilization_penalty: "
                "The penalty is negative. Use 0 or more. [OutOfRange]",
            ],
        ),
    ],
)
def test_balancing_is_refused(fields: dict[str, Any], want: list[str]) -> None:
    assert decode(eds_cluster(**fields)) == want


def test_policies_nest_only_so_deep() -> None:
    got = decode(eds_cluster(load_balancing_policy=nested(16)))
    assert isinstance(got, list)
    assert [each.rpartition(": ")[2] for each in got] == [
        "Policies are nested more than 16 levels deep. Use fewer levels. [TooDeep]"
    ]


def test_a_cluster_limits_calls() -> None:
    thresholds = [
        circuit_breaker_pb2.CircuitBreakers.Thresholds(
            priority=base_pb2.HIGH, max_requests=wrappers_pb2.UInt32Value(value=1)
        ),
        circuit_breaker_pb2.CircuitBreakers.Thresholds(max_requests=wrappers_pb2.UInt32Value(value=2)),
    ]
    message = eds_cluster(circuit_breakers=circuit_breaker_pb2.CircuitBreakers(thresholds=thresholds))
    assert decode(message) == Cluster(name="cluster", discovery=EdsEndpoints("cluster"), most_requests=2)


@pytest.mark.parametrize(
    ("context", "want"),
    [
        (
            {"ca_certificate_provider_instance": {"instance_name": "own"}, "match_subject_alt_names": [{"exact": "a"}]},
            ClientTls(roots=Provider(instance="own"), names=(Exact("a"),)),
        ),
        ({"system_root_certs": {}}, ClientTls(roots=SystemRoots())),
    ],
)
def test_client_tls_names_the_trusted_ca(context: dict[str, Any], want: ClientTls) -> None:
    common = tls_pb2.CommonTlsContext(validation_context=common_pb2.CertificateValidationContext(**context))
    socket = base_pb2.TransportSocket(typed_config=packed(tls_pb2.UpstreamTlsContext(common_tls_context=common)))
    assert decode(eds_cluster(transport_socket=socket)) == Cluster(
        name="cluster", discovery=EdsEndpoints("cluster"), tls=want
    )


def endpoints(message: endpoint_pb2.ClusterLoadAssignment) -> ClusterEndpoints | list[str]:
    got = decode_endpoints(message.SerializeToString(), CLIENT)
    return [str(each) for each in got.problems] if isinstance(got, Invalid) else got


def at(host: str, port: int = 80) -> WeightedEndpoint:
    return WeightedEndpoint(addresses=(Endpoint(address=host, port=port),))


def test_endpoints_have_priorities_localities_and_weights() -> None:
    heavy = lb_endpoint("10.0.0.3", load_balancing_weight=wrappers_pb2.UInt32Value(value=7))
    heavy.endpoint.additional_addresses.add().address.CopyFrom(address("::3", 80))
    heavy.endpoint.hostname = "three"
    message = assignment(
        locality(lb_endpoint("10.0.0.9"), priority=1),
        locality(lb_endpoint("10.0.0.1"), lb_endpoint("10.0.0.2", health_status="UNHEALTHY"), weight=5),
        locality(heavy, zone="b"),
        locality(lb_endpoint("not read"), zone="c", weight=0),
    )
    drop = endpoint_pb2.ClusterLoadAssignment.Policy.DropOverload(category="much")
    drop.drop_percentage.numerator = 50
    message.policy.drop_overloads.append(drop)
    assert endpoints(message) == ClusterEndpoints(
        name="cluster",
        priorities=(
            (
                LocalityEndpoints(zone="a", weight=5, endpoints=(at("10.0.0.1"),)),
                LocalityEndpoints(
                    zone="b",
                    weight=1,
                    endpoints=(
                        WeightedEndpoint(
                            addresses=(Endpoint(address="10.0.0.3", port=80), Endpoint(address="::3", port=80)),
                            weight=7,
                            hostname="three",
                        ),
                    ),
                ),
            ),
            (LocalityEndpoints(zone="a", weight=1, endpoints=(at("10.0.0.9"),)),),
        ),
        drops=(Drop(category="much", fraction=Fraction(500_000)),),
    )


def test_every_problem_of_endpoints_is_reported() -> None:
    message = assignment(
        locality(lb_endpoint("a.example"), lb_endpoint("10.0.0.1"), lb_endpoint("10.0.0.1")),
        locality(lb_endpoint(port=70000)),
        locality(priority=2),
    )
    assert endpoints(message) == [
        "endpoints[0].lb_endpoints[0].endpoint.address.socket_address.address: 'a.example' is not an IP address. Use"
        " an IPv4 or IPv6 address. "
        "[AddressInvalid]",
        "endpoints[0].lb_endpoints[2]: Address 10.0.0.1 with port 80 occurs twice. Remove one of them."
        " [AddressDuplicate]",
        "endpoints[1].lb_endpoints[0].endpoint.address.socket_address.port_value: 70000 is not a port. Use a number"
        " from 0 to 65535. [PortInvalid]",
        "endpoints[1]: The locality occurs twice in priority 0. Remove one of them. [LocalityDuplicate]",
        "endpoints: Priority 2 is set, but priority 1 is missing. Use consecutive priorities from 0. [PriorityMissing]",
    ]


@pytest.mark.parametrize(
    ("addresses", "want"),
    [
        (["10.0.0.1"], "ipv4:10.0.0.1:80"),
        (["10.0.0.1", "10.0.0.2"], "ipv4:10.0.0.1:80,10.0.0.2:80"),
        (["::1", "::2"], "ipv6:[::1]:80,[::2]:80"),
        (["10.0.0.1", "::2"], "ipv6:[::ffff:10.0.0.1]:80,[::2]:80"),
    ],
)
def test_addresses_are_one_target(addresses: list[str], want: str) -> None:
    assert ip_target(Endpoint(address=each, port=80) for each in addresses) == want


def test_each_priority_with_endpoints_is_a_group() -> None:
    found = ClusterEndpoints(
        name="cluster",
        priorities=(
            (LocalityEndpoints(zone="a", weight=1),),
            (
                LocalityEndpoints(zone="a", weight=1, endpoints=(at("10.0.0.1"), at("10.0.0.2"))),
                LocalityEndpoints(zone="b", weight=1, endpoints=(at("10.0.0.3"),)),
            ),
            (LocalityEndpoints(zone="a", weight=1, endpoints=(at("10.0.0.4"),)),),
        ),
    )
    assert endpoint_groups(EDS, found) == (
        Group(target="ipv4:10.0.0.1:80,10.0.0.2:80,10.0.0.3:80", policy="round_robin", cluster=EDS),
        Group(target="ipv4:10.0.0.4:80", policy="round_robin", cluster=EDS),
    )
    assert len({*endpoint_groups(EDS, found), *endpoint_groups(EDS, found)}) == 2


@pytest.mark.parametrize(
    ("balancing", "policy"),
    [
        (Balancing.ROUND_ROBIN, "round_robin"),
        (Balancing.PICK_FIRST, "pick_first"),
        (Balancing.WEIGHTED_ROUND_ROBIN, "weighted_round_robin"),
        (Balancing.RING_HASH, "round_robin"),
    ],
)
def test_balancing_is_a_policy_of_grpcio(balancing: Balancing, policy: str) -> None:
    cluster = Cluster(name="c", discovery=DnsEndpoint("a:1"), balancing=balancing)
    assert dns_group(cluster, "a:1") == Group(target="dns:///a:1", policy=policy, cluster=cluster)


@pytest.mark.requirement("HF-21")
def test_each_drop_has_a_number_of_its_own() -> None:
    drops = (Drop(category="a", fraction=Fraction(500_000)), Drop(category="b", fraction=Fraction(500_000)))
    numbers = [(0.4, 0.4), (0.6, 0.4), (0.6, 0.6)]
    assert [drop_category(drops, each) for each in numbers] == ["a", "b", None]
