"""What routes override of filters, and which level wins."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NamedTuple

import pytest
from envoy.config.route.v3 import route_components_pb2 as pb
from envoy.extensions.filters.http.fault.v3 import fault_pb2
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2
from envoy.extensions.filters.http.router.v3 import router_pb2
from google.protobuf import any_pb2
from google.protobuf.message import Message
from tests.support.dataplane.filter_messages import packed
from tests.support.dataplane.plain_filters import CLIENT, FAULT, RBAC, SERVER, Config, OverrideConfig
from tests.support.dataplane.route_messages import host, route_config, to_cluster
from xds.type.v3 import typed_struct_pb2 as xds_pb

from authplane.dataplane.config.frozen import FrozenMap
from authplane.dataplane.config.listeners import ConnectionManager, HttpFilter
from authplane.dataplane.config.read.decode_resource import decode_routes
from authplane.dataplane.config.routes import NO_OVERRIDES, Override, Overrides
from authplane.dataplane.filters.calls import Side
from authplane.dataplane.filters.registry import State
from authplane.dataplane.filters.standard_filters import standard_registry
from authplane.dataplane.routing.call_routing import build_route_table
from authplane.dataplane.routing.overrides import Effective, Mismatch, effective_chain
from authplane.xds.client.watched_types import Invalid

UNKNOWN: Final = any_pb2.Any(type_url="type.googleapis.com/test.Unknown")
FAULT_BYTES: Final = fault_pb2.HTTPFault(upstream_cluster="x").SerializeToString()
FAULT_MESSAGE: Final = fault_pb2.HTTPFault(upstream_cluster="x")
READ: Final = Override(kind=FAULT, config=OverrideConfig(FAULT_BYTES))
WHERE: Final = "virtual_hosts[0].routes[0].typed_per_filter_config"


def decode(overrides: Mapping[str, Message]) -> Overrides | list[str]:
    """Return the overrides of a route, or its problems."""
    configs = {name: each if isinstance(each, any_pb2.Any) else packed(each) for name, each in overrides.items()}
    made = route_config(host(to_cluster("c", typed_per_filter_config=configs)))
    got = decode_routes(made.SerializeToString(), CLIENT)
    if isinstance(got, Invalid):
        return [str(each) for each in got.problems]
    return got.virtual_hosts[0].routes[0].overrides


@pytest.mark.requirement("HF-11")
def test_hosts_routes_and_weighted_clusters_have_overrides() -> None:
    configs = {"fault": packed(FAULT_MESSAGE)}
    weight = pb.WeightedCluster.ClusterWeight(name="c", typed_per_filter_config=configs)
    weight.weight.value = 1
    made = pb.Route(
        match=pb.RouteMatch(prefix=""),
        route=pb.RouteAction(weighted_clusters=pb.WeightedCluster(clusters=[weight])),
        typed_per_filter_config=configs,
    )
    got = decode_routes(route_config(host(made, typed_per_filter_config=configs)).SerializeToString(), CLIENT)
    assert not isinstance(got, Invalid)
    virtual_host = got.virtual_hosts[0]
    route = virtual_host.routes[0]
    want = FrozenMap({"fault": READ})
    assert (virtual_host.overrides, route.overrides, route.action.clusters[0].overrides) == (want, want, want)  # type: ignore[union-attr]


@pytest.mark.requirement("HF-11")
def test_an_override_names_its_filter() -> None:
    assert decode({"": FAULT_MESSAGE}) == [f"{WHERE}.: The filter name is empty. Set a name. [NameMissing]"]


@pytest.mark.requirement("HF-12")
@pytest.mark.parametrize(
    ("message", "want"),
    [
        (FAULT_MESSAGE, READ),
        (pb.FilterConfig(config=packed(FAULT_MESSAGE)), READ),
        (
            pb.FilterConfig(config=packed(FAULT_MESSAGE), disabled=True),
            Override(kind=FAULT, config=OverrideConfig(FAULT_BYTES), disabled=True),
        ),
    ],
    ids=["as it is", "wrapped", "wrapped and disabled"],
)
def test_an_override_may_be_wrapped(message: Message, want: Override) -> None:
    assert decode({"x": message}) == FrozenMap({"x": want})


@pytest.mark.requirement("HF-12")
@pytest.mark.parametrize("wrap", [False, True])
def test_a_typed_struct_is_unwrapped_too_and_then_refused_by_who_needs_the_message(*, wrap: bool) -> None:
    name = "envoy.extensions.filters.http.rbac.v3.RBACPerRoute"
    struct = xds_pb.TypedStruct(type_url=f"x/{name}")
    message = pb.FilterConfig(config=packed(struct)) if wrap else struct
    where = f"{WHERE}.x.config" if wrap else f"{WHERE}.x"
    assert decode({"x": message}) == [
        f"{where}: {name} as a TypedStruct is not supported here. Use the message itself. [FormUnsupported]"
    ]


@pytest.mark.requirement("HF-13")
def test_an_unknown_override_is_refused_unless_its_wrapper_is_optional() -> None:
    problem = (
        "Override type test.Unknown is not supported. Remove the override, or set is_optional. [FilterUnsupported]"
    )
    assert decode({"x": UNKNOWN}) == [f"{WHERE}.x: {problem}"]
    assert decode({"x": pb.FilterConfig(config=UNKNOWN)}) == [f"{WHERE}.x.config: {problem}"]
    assert decode({"x": pb.FilterConfig(config=UNKNOWN, is_optional=True)}) == NO_OVERRIDES


@pytest.mark.requirement("HF-14")
@pytest.mark.parametrize(
    ("message", "name"),
    [
        (rbac_pb2.RBAC(), "envoy.extensions.filters.http.rbac.v3.RBAC"),
        (router_pb2.Router(), "envoy.extensions.filters.http.router.v3.Router"),
    ],
    ids=["a filter with another override type", "a filter without overrides"],
)
@pytest.mark.parametrize("optional", [False, True])
def test_a_configuration_is_no_override(message: Message, name: str, *, optional: bool) -> None:
    assert decode({"x": pb.FilterConfig(config=packed(message), is_optional=optional)}) == [
        f"{WHERE}.x.config: {name} configures a filter, but is not an override. Use the override type of the filter."
        " [FilterUnsupported]"
    ]


@pytest.mark.requirement("HF-15")
def test_overrides_may_be_for_absent_filters_or_those_of_the_other_side() -> None:
    got = decode({"nobody": FAULT_MESSAGE, "rbac": rbac_pb2.RBACPerRoute()})
    assert got == FrozenMap({"nobody": READ, "rbac": Override(kind=RBAC, config=OverrideConfig(b""))})


@pytest.mark.requirement("HF-19")
def test_a_wrapper_without_configuration_disables_and_does_nothing_else() -> None:
    assert decode({"x": pb.FilterConfig(disabled=True)}) == FrozenMap({"x": Override(disabled=True)})
    assert decode({"x": pb.FilterConfig()}) == [
        f"{WHERE}.x.config: This field is required. Add it, or set disabled. [Missing]"
    ]


def test_problems_of_an_override_have_its_path() -> None:
    bad = any_pb2.Any(type_url="x/envoy.extensions.filters.http.rbac.v3.RBACPerRoute", value=b"\xff")
    assert decode({"x": pb.FilterConfig(config=bad)}) == [f"{WHERE}.x.config.inside: cannot be read [Unreadable]"]


def override(value: str, *, disabled: bool = False) -> Overrides:
    return FrozenMap({"f": Override(kind=FAULT, config=OverrideConfig(value.encode()), disabled=disabled)})


OFF: Final[Overrides] = FrozenMap({"f": Override(disabled=True)})
NONE: Final = NO_OVERRIDES


class Level(NamedTuple):
    cluster: Overrides
    route: Overrides
    host: Overrides
    want: str | None
    """Which override is used; "" for none; None if the filter does not run."""
    disabled: bool = False


LEVELS: Final = {
    "nothing overrides": Level(NONE, NONE, NONE, ""),
    "the host": Level(NONE, NONE, override("host"), "host"),
    "the route over the host": Level(NONE, override("route"), override("host"), "route"),
    "the cluster over all": Level(override("cluster"), override("route"), override("host"), "cluster"),
    "the cluster alone": Level(override("cluster"), NONE, NONE, "cluster"),
    "disabled by the manager": Level(NONE, NONE, NONE, None, disabled=True),
    "disabled by the host": Level(NONE, NONE, OFF, None),
    "disabled by the route": Level(NONE, OFF, override("host"), None),
    "disabled by the cluster": Level(OFF, override("route"), NONE, None),
    "disabled with a configuration": Level(NONE, override("route", disabled=True), NONE, None),
    "enabled by the route though the host disables": Level(NONE, override("route"), OFF, "route"),
    "enabled by the cluster though the route disables": Level(override("cluster"), OFF, NONE, "cluster"),
    "enabled by the host though the manager disables": Level(NONE, NONE, override("host"), "host", disabled=True),
    "disabled by the host, the manager too": Level(NONE, NONE, OFF, None, disabled=True),
}


@pytest.mark.requirement("HF-16")
@pytest.mark.requirement("HF-17")
@pytest.mark.parametrize("level", LEVELS.values(), ids=LEVELS.keys())
def test_the_most_specific_level_decides_alone(level: Level) -> None:
    held = HttpFilter(name="f", kind=FAULT, config=Config("x", b"", Side.CLIENT), disabled=level.disabled)
    got = effective_chain((held,), level.cluster, level.route, level.host)
    if level.want is None:
        assert got == ()
    elif level.want:
        assert got == (Effective(held, Override(kind=FAULT, config=OverrideConfig(level.want.encode()))),)
    else:
        assert got == (Effective(held),)


def test_an_override_of_another_kind_of_filter_is_not_handed_to_a_filter() -> None:
    held = HttpFilter(name="f", kind=RBAC, config=Config("x", b""))
    assert effective_chain((held,), override("route")) == Mismatch("f")


class Large:
    """An override that takes long to compare, and so counts how often that is done."""

    compared = 0

    def __hash__(self) -> int:
        self.compared += 1
        return 1


def test_an_override_that_many_routes_share_is_compared_once() -> None:
    large = Large()
    made = [to_cluster("c", match=pb.RouteMatch(path=f"/a.B/{number}")) for number in range(20)]
    got = decode_routes(route_config(host(*made)).SerializeToString(), CLIENT)
    assert not isinstance(got, Invalid)
    overrides = FrozenMap({"fault": Override(kind=FAULT, config=large)})
    routes = replace(got, virtual_hosts=(replace(got.virtual_hosts[0], overrides=overrides),))
    fault = HttpFilter(name="fault", kind=FAULT, config=Config("fault", b"", Side.CLIENT))
    held = ConnectionManager(filters=(fault,), routes=routes)
    table = build_route_table(held, routes, Side.CLIENT, State(random=lambda: 0.0, monotonic=lambda: 0.0))
    assert {id(each.choices[0].routed.filters[0]) for each in table.routes[0]} == {
        id(table.routes[0][0].choices[0].routed.filters[0])
    }
    assert large.compared <= 3


def test_an_override_of_rbac_that_cannot_be_read_refuses_the_routes() -> None:
    url = "type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBACPerRoute"
    made = route_config(
        host(to_cluster("c", typed_per_filter_config={"rbac": any_pb2.Any(type_url=url, value=b"\xff")}))
    )
    got = decode_routes(made.SerializeToString(), replace(SERVER, registry=standard_registry()))
    assert isinstance(got, Invalid)
    [problem] = map(str, got.problems)
    assert problem.startswith(f"{WHERE}.rbac")
    assert problem.endswith(
        "Cannot decode the bytes. Expected envoy.extensions.filters.http.rbac.v3.RBACPerRoute. [Unreadable]"
    )
