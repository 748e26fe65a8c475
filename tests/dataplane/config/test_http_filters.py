"""The filters of a connection manager: order, names, types, sides, and what is optional."""

from typing import Any, Final

import pytest
from envoy.extensions.filters.http.fault.v3 import fault_pb2
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb
from google.protobuf import any_pb2, struct_pb2
from google.protobuf.message import Message
from tests.support.dataplane.filter_messages import http_filter, packed, router
from tests.support.dataplane.listener_messages import api_listener, chain, manager, server_listener, serving
from tests.support.dataplane.plain_filters import CLIENT, CUSTOM, FAULT, RBAC, ROUTER, SERVER, Config
from udpa.type.v1 import typed_struct_pb2 as udpa_pb
from xds.type.v3 import typed_struct_pb2 as xds_pb

from authplane.dataplane.config.listeners import ApiListener, HttpFilter, Listener, ServerListener
from authplane.dataplane.config.read.decode_resource import decode_listener
from authplane.dataplane.filters.calls import Side
from authplane.xds.client.watched_types import Invalid

ROUTER_NAME: Final = "envoy.extensions.filters.http.router.v3.Router"
FAULT_NAME: Final = "envoy.extensions.filters.http.fault.v3.HTTPFault"
RBAC_NAME: Final = "envoy.extensions.filters.http.rbac.v3.RBAC"
WHERE: Final = "api_listener.api_listener.http_filters"
UNKNOWN: Final = any_pb2.Any(type_url="type.googleapis.com/test.Unknown")


def on_client(*filters: hcm_pb.HttpFilter, **kwargs: Any) -> Listener | Invalid:
    return decode_listener(api_listener(manager(*filters, **kwargs)).SerializeToString(), CLIENT)


def on_server(*filters: hcm_pb.HttpFilter) -> Listener | Invalid:
    return decode_listener(server_listener(chain(serving(*filters))).SerializeToString(), SERVER)


def filters_of(listener: Listener | Invalid) -> tuple[HttpFilter, ...]:
    match listener:
        case ApiListener(manager=held):
            return held.filters
        case ServerListener(chains=chains):
            return chains[0].manager.filters
        case Invalid(problems=problems):
            raise AssertionError([str(each) for each in problems])


def problems_of(listener: Listener | Invalid) -> list[str]:
    assert isinstance(listener, Invalid)
    return [str(each) for each in listener.problems]


def end(side: Side = Side.CLIENT) -> HttpFilter:
    return HttpFilter(name="router", kind=ROUTER, config=Config(ROUTER_NAME, b"", side))


@pytest.mark.requirement("HF-1")
@pytest.mark.requirement("HF-2")
def test_a_filter_is_read_by_the_kind_that_its_message_belongs_to() -> None:
    fault = fault_pb2.HTTPFault(upstream_cluster="x")
    got = filters_of(on_client(http_filter("one", fault, disabled=True), router()))
    config = Config(FAULT_NAME, fault.SerializeToString(), Side.CLIENT)
    assert got == (HttpFilter(name="one", kind=FAULT, config=config, disabled=True), end())


@pytest.mark.requirement("HF-3")
@pytest.mark.parametrize(
    "filters", [(), (http_filter("x", UNKNOWN, is_optional=True),)], ids=["none at all", "none that is left"]
)
def test_a_manager_needs_a_filter(filters: tuple[hcm_pb.HttpFilter, ...]) -> None:
    held = manager(router())
    del held.http_filters[:]
    held.http_filters.extend(filters)
    got = decode_listener(api_listener(held).SerializeToString(), CLIENT)
    assert problems_of(got) == [f"{WHERE}: The list of filters is empty. Add a filter. [FiltersMissing]"]


@pytest.mark.requirement("HF-4")
def test_names_are_there_and_differ_and_all_problems_are_told_at_once() -> None:
    fault = fault_pb2.HTTPFault()
    got = on_client(http_filter("", fault), http_filter("x", fault), http_filter("x", fault), router())
    assert problems_of(got) == [
        f"{WHERE}[0].name: The name is empty. Set a name. [NameMissing]",
        f"{WHERE}[2].name: Another filter has the name 'x'. Rename one of them. [NameDuplicate]",
    ]


@pytest.mark.requirement("HF-5")
@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (None, "typed_config: This field is required. Add it. [Missing]"),
        (any_pb2.Any(), "typed_config.type_url: This field is required. Add it. [Missing]"),
        (
            any_pb2.Any(type_url="x"),
            "typed_config.type_url: 'x' is not a type URL. Use a prefix, a slash and a message name. [TypeUrlInvalid]",
        ),
        (
            any_pb2.Any(type_url="x/"),
            "typed_config.type_url: 'x/' is not a type URL. Use a prefix, a slash and a message name. [TypeUrlInvalid]",
        ),
    ],
)
def test_a_filter_has_a_configuration_of_a_named_type(config: any_pb2.Any | None, problem: str) -> None:
    bad = hcm_pb.HttpFilter(name="x", typed_config=config, is_optional=True)
    assert problems_of(on_client(bad, router())) == [f"{WHERE}[0].{problem}"]


@pytest.mark.requirement("HF-6")
@pytest.mark.parametrize("package", [xds_pb, udpa_pb], ids=["xds", "udpa"])
def test_a_typed_struct_replaces_the_message_that_it_names(package: Any) -> None:
    fields = struct_pb2.Struct(fields={"b": struct_pb2.Value(bool_value=True), "a": struct_pb2.Value(number_value=1)})
    full = package.TypedStruct(type_url="example.com/test.Custom", value=fields)
    empty = package.TypedStruct(type_url="example.com/test.Custom")
    assert filters_of(on_client(http_filter("full", full), http_filter("empty", empty), router())) == (
        HttpFilter(name="full", kind=CUSTOM, config=Config("test.Custom", '{"a": 1.0, "b": true}', Side.CLIENT)),
        HttpFilter(name="empty", kind=CUSTOM, config=Config("test.Custom", "{}", Side.CLIENT)),
        end(),
    )


@pytest.mark.requirement("HF-6")
def test_a_filter_that_needs_its_message_refuses_a_typed_struct() -> None:
    struct = xds_pb.TypedStruct(type_url=f"type.googleapis.com/{FAULT_NAME}")
    assert problems_of(on_client(http_filter("x", struct), router())) == [
        f"{WHERE}[0].typed_config: {FAULT_NAME} as a TypedStruct is not supported here. Use the message itself."
        " [FormUnsupported]"
    ]


@pytest.mark.requirement("HF-7")
def test_an_unknown_filter_is_refused_unless_it_is_optional() -> None:
    assert problems_of(on_client(http_filter("x", UNKNOWN), router())) == [
        f"{WHERE}[0].typed_config: Filter type test.Unknown is not supported. Remove the filter, or set is_optional."
        " [FilterUnsupported]"
    ]
    assert filters_of(on_client(http_filter("x", UNKNOWN, is_optional=True), router())) == (end(),)


@pytest.mark.requirement("HF-8")
@pytest.mark.parametrize(
    ("decode", "message", "side", "name"),
    [
        (on_client, rbac_pb2.RBAC(), Side.CLIENT, RBAC_NAME),
        (on_server, fault_pb2.HTTPFault(), Side.SERVER, FAULT_NAME),
    ],
    ids=["client", "server"],
)
def test_a_filter_of_the_other_side_is_refused_unless_it_is_optional(
    decode: Any, message: Message, side: Side, name: str
) -> None:
    where = WHERE if side is Side.CLIENT else "filter_chains[0].filters[0].typed_config.http_filters"
    assert problems_of(decode(http_filter("x", message), router())) == [
        f"{where}[0].typed_config: Filter type {name} is not supported on {side.value}s. Remove the filter, or set"
        " is_optional. [FilterUnsupported]"
    ]
    assert filters_of(decode(http_filter("x", message, is_optional=True), router())) == (end(side),)


def test_a_server_has_the_filters_of_servers() -> None:
    got = filters_of(on_server(http_filter("rbac", rbac_pb2.RBAC()), router()))
    assert got == (HttpFilter(name="rbac", kind=RBAC, config=Config(RBAC_NAME, b"", Side.SERVER)), end(Side.SERVER))


@pytest.mark.requirement("HF-9")
@pytest.mark.parametrize("optional", [False, True])
def test_bad_configuration_of_a_known_filter_is_refused(*, optional: bool) -> None:
    bad = any_pb2.Any(type_url=f"type.googleapis.com/{FAULT_NAME}", value=b"\xff")
    assert problems_of(on_client(http_filter("x", bad, is_optional=optional), router())) == [
        f"{WHERE}[0].typed_config.inside: cannot be read [Unreadable]"
    ]


@pytest.mark.requirement("HF-10")
@pytest.mark.parametrize(
    ("filters", "problems"),
    [
        (
            (router("a"), router("b")),
            ["[0]: The filter ends the chain, but other filters follow. Move this filter to the end. [FilterOrder]"],
        ),
        (
            (http_filter("a", fault_pb2.HTTPFault()),),
            ["[0]: The last filter does not end the chain. Add the router as the last filter. [FilterOrder]"],
        ),
        (
            (router("a"), http_filter("b", fault_pb2.HTTPFault())),
            [
                "[0]: The filter ends the chain, but other filters follow. Move this filter to the end. [FilterOrder]",
                "[1]: The last filter does not end the chain. Add the router as the last filter. [FilterOrder]",
            ],
        ),
    ],
    ids=["two that end it", "none that ends it", "the wrong order"],
)
def test_the_last_filter_alone_ends_the_chain(filters: tuple[hcm_pb.HttpFilter, ...], problems: list[str]) -> None:
    assert problems_of(on_client(*filters)) == [f"{WHERE}{each}" for each in problems]


@pytest.mark.requirement("HF-10")
def test_a_router_is_last_if_only_what_is_dropped_comes_after_it() -> None:
    assert filters_of(on_client(router(), http_filter("x", UNKNOWN, is_optional=True))) == (end(),)


@pytest.mark.requirement("HF-22")
def test_the_address_of_a_peer_is_never_taken_from_headers() -> None:
    detection = {"name": "x", "typed_config": packed(rbac_pb2.RBAC())}
    got = on_client(router(), xff_num_trusted_hops=1, original_ip_detection_extensions=[detection])
    assert problems_of(got) == [
        "api_listener.api_listener.xff_num_trusted_hops: xff_num_trusted_hops is not supported. Set it to 0."
        " [Unsupported]",
        "api_listener.api_listener.original_ip_detection_extensions: original_ip_detection_extensions is not"
        " supported. Remove it. [Unsupported]",
    ]
