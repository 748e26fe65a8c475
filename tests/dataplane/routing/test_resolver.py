"""From the name of a Listener to a whole configuration."""

from collections.abc import Mapping
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.dataplane.cluster_messages import assignment, eds_cluster, lb_endpoint, locality
from tests.support.dataplane.listener_messages import (
    address,
    api_listener,
    chain,
    manager,
    rds,
    server_listener,
    serving,
)
from tests.support.dataplane.plain_filters import REGISTRY
from tests.support.dataplane.route_messages import host, route_config, routes_here, to_cluster, weighted

from authplane.dataplane.config.clusters import AggregateOf, Cluster, DnsEndpoint
from authplane.dataplane.config.listeners import ApiListener, ServerListener
from authplane.dataplane.config.routes import RouteConfiguration
from authplane.dataplane.filters.calls import Code, Endpoint, Side, Stop
from authplane.dataplane.routing.channel_targets import Group, dns_group
from authplane.dataplane.routing.resolver import (
    ClientConfiguration,
    Failed,
    Resource,
    ServerConfiguration,
    Waiting,
    resolve_client,
    resolve_server,
)
from authplane.dataplane.routing.resource_types import ResourceTypes, resource_types
from authplane.dataplane.runtime.channels.xds_targets import failure
from authplane.xds.bootstrap.credentials import Insecure
from authplane.xds.bootstrap.xds_bootstrap import Bootstrap, XdsServer
from authplane.xds.client.watched_types import Decoded
from authplane.xds.server.served_types import TypeUrl, XdsName

SOURCE: Final = XdsServer(uri="a", channel_creds=Insecure())
BOOTSTRAP: Final = Bootstrap(servers=(SOURCE,))
BOUND: Final = Endpoint(address="127.0.0.1", port=8080)
LISTENER: Final = (TypeUrl.LISTENER, "listener")
ROUTES: Final = (TypeUrl.ROUTE, "routes")
CLUSTER: Final = (TypeUrl.CLUSTER, "cluster")
ENDPOINTS: Final = (TypeUrl.ENDPOINT, "cluster")


def read(types: ResourceTypes, name: XdsName, data: bytes) -> Resource:
    got = types.of(name[0]).decode(data, SOURCE)
    assert isinstance(got, Decoded), got
    assert got.name == name[1]
    return got.value


SERVER_TYPES: Final = resource_types(Side.SERVER, REGISTRY, BOOTSTRAP)
CLIENT_TYPES: Final = resource_types(Side.CLIENT, REGISTRY, BOOTSTRAP)
SERVER: Final[Mapping[XdsName, Resource]] = {
    LISTENER: read(SERVER_TYPES, LISTENER, server_listener(chain(serving(rds=rds("routes")))).SerializeToString()),
    ROUTES: read(SERVER_TYPES, ROUTES, routes_here().SerializeToString()),
}
CLIENT: Final[Mapping[XdsName, Resource]] = {
    LISTENER: read(CLIENT_TYPES, LISTENER, api_listener(manager(rds=rds("routes"))).SerializeToString()),
    ROUTES: read(
        CLIENT_TYPES,
        ROUTES,
        route_config(
            host(to_cluster("other"), domains=("other",)), host(to_cluster("cluster"), domains=("a",))
        ).SerializeToString(),
    ),
    CLUSTER: read(CLIENT_TYPES, CLUSTER, eds_cluster().SerializeToString()),
    ENDPOINTS: read(
        CLIENT_TYPES,
        ENDPOINTS,
        assignment(
            locality(lb_endpoint("10.0.0.1")), locality(lb_endpoint("10.0.0.2"), priority=1)
        ).SerializeToString(),
    ),
}


def listener() -> ServerListener:
    found = SERVER[LISTENER]
    assert isinstance(found, ServerListener)
    return found


def cluster() -> Cluster:
    found = CLIENT[CLUSTER]
    assert isinstance(found, Cluster)
    return found


def test_a_server_watches_its_listener_then_its_routes() -> None:
    known: dict[XdsName, Resource | Failed] = {}
    steps = []
    for name in (LISTENER, ROUTES):
        got = resolve_server("listener", BOUND, known)
        steps.append((got.watch, got.outcome))
        known[name] = SERVER[name]
    assert steps == [(frozenset({LISTENER}), Waiting()), (frozenset({LISTENER, ROUTES}), Waiting())]
    done = resolve_server("listener", BOUND, known)
    assert (done.watch, done.outcome) == (
        frozenset({LISTENER, ROUTES}),
        ServerConfiguration(listener=listener(), routes={"routes": SERVER[ROUTES]}),  # type: ignore[dict-item]
    )


def test_routes_of_a_server_are_those_inside_or_those_of_the_name() -> None:
    inside = read(SERVER_TYPES, LISTENER, server_listener().SerializeToString())
    assert isinstance(inside, ServerListener)
    named = ServerConfiguration(listener=listener(), routes={"routes": Failed("gone")})
    plain = ServerConfiguration(listener=inside, routes={})
    assert named.routes_of(listener().chains[0].manager) == Failed("gone")
    assert plain.routes_of(inside.chains[0].manager) == inside.chains[0].manager.routes


@pytest.mark.requirement("SL-2")
@pytest.mark.parametrize(
    ("wanted", "bound", "serves"),
    [
        (("127.0.0.1", 8080), ("127.0.0.1", 8080), True),
        (("::", 8080), ("0:0:0:0:0:0:0:0", 8080), True),
        (("0.0.0.0", 8080), ("127.0.0.1", 8080), False),
        (("127.0.0.1", 8081), ("127.0.0.1", 8080), False),
        (("127.0.0.1", 0), ("127.0.0.1", 8080), False),
        (("localhost", 8080), ("127.0.0.1", 8080), False),
    ],
)
def test_a_listener_is_for_the_address_that_is_bound(
    wanted: tuple[str, int], bound: tuple[str, int], *, serves: bool
) -> None:
    found = read(SERVER_TYPES, LISTENER, server_listener(address=address(*wanted)).SerializeToString())
    got = resolve_server("listener", Endpoint(address=bound[0], port=bound[1]), {LISTENER: found})
    if serves:
        assert isinstance(got.outcome, ServerConfiguration)
    else:
        assert got.outcome == Failed(
            f"Listener listener is for {wanted[0]} port {wanted[1]}, not for {bound[0]} port {bound[1]}"
        )
    assert got.watch == frozenset({LISTENER})


def test_a_server_without_its_listener_has_failed_and_watches_on() -> None:
    got = resolve_server("listener", BOUND, {LISTENER: Failed("does not exist")})
    assert (got.watch, got.outcome) == (frozenset({LISTENER}), Failed("does not exist"))


def test_a_server_whose_listener_is_missing_says_which_address_to_use() -> None:
    got = resolve_server("listener", BOUND, {LISTENER: Failed("Listener 'listener' does not exist", missing=True)})
    assert isinstance(got.outcome, Failed)
    assert got.outcome.why.startswith("Listener 'listener' does not exist. Add it to the control plane, or listen on ")
    assert got.outcome.why.endswith(" use the values of spec.grpc.address and spec.grpc.port.")


@pytest.mark.requirement("SL-5")
def test_a_server_without_its_routes_serves_what_it_has() -> None:
    got = resolve_server("listener", BOUND, {LISTENER: SERVER[LISTENER], ROUTES: Failed("does not exist")})
    assert got.outcome == ServerConfiguration(listener=listener(), routes={"routes": Failed("does not exist")})


def test_a_listener_of_the_other_side_is_no_use() -> None:
    wrong = Failed("listener is a resource of another type")
    assert resolve_server("listener", BOUND, {LISTENER: CLIENT[LISTENER]}).outcome == wrong
    assert resolve_client("listener", "a", {LISTENER: SERVER[LISTENER]}).outcome == wrong


def test_a_client_watches_step_by_step_only_what_its_authority_needs() -> None:
    known: dict[XdsName, Resource | Failed] = {}
    watched: set[XdsName] = set()
    for name in (LISTENER, ROUTES, CLUSTER, ENDPOINTS):
        watched.add(name)
        got = resolve_client("listener", "a", known)
        assert (got.watch, got.outcome) == (frozenset(watched), Waiting())
        known[name] = CLIENT[name]
    done = resolve_client("listener", "a", known)
    held, routes = CLIENT[LISTENER], CLIENT[ROUTES]
    assert isinstance(held, ApiListener)
    assert isinstance(routes, RouteConfiguration)
    assert (done.watch, done.outcome) == (
        frozenset(watched),
        ClientConfiguration(
            manager=held.manager,
            routes=RouteConfiguration(name="routes", virtual_hosts=(routes.virtual_hosts[1],)),
            clusters={
                "cluster": (
                    Group(target="ipv4:10.0.0.1:80", policy="round_robin", cluster=cluster()),
                    Group(target="ipv4:10.0.0.2:80", policy="round_robin", cluster=cluster()),
                )
            },
        ),
    )


@pytest.mark.parametrize(
    ("name", "want"),
    [
        (LISTENER, Failed("gone")),
        (ROUTES, Failed("gone")),
    ],
)
def test_a_client_cannot_do_without_its_listener_and_routes(name: XdsName, want: Failed) -> None:
    assert resolve_client("listener", "a", {**CLIENT, name: Failed("gone")}).outcome == want


def test_a_client_needs_a_virtual_host() -> None:
    assert resolve_client("listener", "b", CLIENT).outcome == Failed("no virtual host of routes matches authority 'b'")


@pytest.mark.parametrize("name", [CLUSTER, ENDPOINTS])
def test_a_cluster_that_is_missing_fails_only_what_goes_to_it(name: XdsName) -> None:
    got = resolve_client("listener", "a", {**CLIENT, name: Failed("gone")}).outcome
    assert isinstance(got, ClientConfiguration)
    assert got.clusters == {"cluster": Failed("gone")}


def dns(name: str) -> Cluster:
    return Cluster(name=name, discovery=DnsEndpoint(f"{name}:1"))


def aggregate(name: str, *others: str) -> Cluster:
    return Cluster(name=name, discovery=AggregateOf(others))


def clusters(root: str, *found: Cluster) -> tuple[Group, ...] | Failed | Waiting:
    """Resolve a client whose only route goes to the root."""
    routes = read(CLIENT_TYPES, ROUTES, route_config(host(to_cluster(root))).SerializeToString())
    known = {LISTENER: CLIENT[LISTENER], ROUTES: routes, **{(TypeUrl.CLUSTER, each.name): each for each in found}}
    got = resolve_client("listener", "a", known).outcome
    return got.clusters[root] if isinstance(got, ClientConfiguration) else got


def group(name: str) -> Group:
    return dns_group(dns(name), f"{name}:1")


def test_a_cluster_of_clusters_is_flattened_and_each_counts_once() -> None:
    assert clusters("r", aggregate("r", "x", "c", "a"), aggregate("x", "a", "b"), dns("a"), dns("b"), dns("c")) == (
        group("a"),
        group("b"),
        group("c"),
    )


def test_a_cluster_of_clusters_waits_for_all() -> None:
    assert clusters("r", aggregate("r", "a", "b"), dns("a")) == Waiting()


def test_a_loop_of_clusters_ends() -> None:
    assert clusters("r", aggregate("r", "x"), aggregate("x", "r")) == Failed("cluster r has no usable endpoints")
    assert clusters("r", aggregate("r", "x", "a"), aggregate("x", "r"), dns("a")) == (group("a"),)


def test_clusters_nest_only_so_deep() -> None:
    deep = [aggregate(str(index), str(index + 1)) for index in range(15)]
    assert clusters("0", *deep, dns("15")) == (group("15"),)
    assert clusters("0", *deep, aggregate("15", "16"), dns("16")) == Failed(
        "aggregate clusters are nested more than 16 levels deep, at 16"
    )


def test_every_cluster_of_a_weighted_route_is_needed() -> None:
    routes = read(CLIENT_TYPES, ROUTES, route_config(host(weighted(("a", 1), ("b", 1)))).SerializeToString())
    known: dict[XdsName, Resource | Failed] = {LISTENER: CLIENT[LISTENER], ROUTES: routes}
    first = resolve_client("listener", "a", known)
    assert first.watch == {LISTENER, ROUTES, (TypeUrl.CLUSTER, "a"), (TypeUrl.CLUSTER, "b")}
    known |= {(TypeUrl.CLUSTER, "a"): dns("a"), (TypeUrl.CLUSTER, "b"): Failed("gone")}
    done = resolve_client("listener", "a", known).outcome
    assert isinstance(done, ClientConfiguration)
    assert done.clusters == {"a": (group("a"),), "b": Failed("gone")}


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from("rabcd"), st.lists(st.sampled_from("rabcdz"), min_size=1, max_size=3)))
def test_any_graph_of_clusters_ends_in_clusters_that_it_reaches(graph: dict[str, list[str]]) -> None:
    made = [aggregate(name, *others) for name, others in graph.items()] + [dns("z")]
    got = clusters("r", *made)
    reached: set[str] = set()
    left = ["r"]
    while left:
        name = left.pop()
        if name not in reached:
            reached.add(name)
            left += graph.get(name, [])
    if reached - graph.keys() - {"z"}:
        assert got == Waiting()
    else:
        assert got == ((group("z"),) if "z" in reached else Failed("cluster r has no usable endpoints"))


def test_only_types_that_resolvers_name_are_there() -> None:
    with pytest.raises(ValueError, match="resolvers use no resources"):
        CLIENT_TYPES.of(TypeUrl.SECRET)
    assert [CLIENT_TYPES.of(each).full_set for each in (TypeUrl.LISTENER, TypeUrl.ROUTE, TypeUrl.CLUSTER)] == [
        True,
        False,
        True,
    ]


@pytest.mark.parametrize(
    ("why", "want"),
    [
        ("", ""),
        ("x" * 512, "x" * 512),
        ("x" * 512 + "y", f"{'x' * 512}… (the log authplane.xds contains all 513 characters)"),
    ],
)
def test_a_call_gets_the_start_of_a_long_error(why: str, want: str) -> None:
    assert Failed(why).details == want
    assert failure(Failed(why)) == Stop(code=Code.UNAVAILABLE, message=want)
