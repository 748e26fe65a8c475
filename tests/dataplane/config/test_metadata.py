"""Metadata of clusters and routes."""

from collections.abc import Callable
from typing import Final

import pytest
from envoy.config.core.v3 import base_pb2
from envoy.extensions.filters.http.gcp_authn.v3 import gcp_authn_pb2
from google.protobuf import any_pb2, struct_pb2
from google.protobuf.json_format import ParseDict
from tests.support.dataplane.cluster_messages import eds_cluster
from tests.support.dataplane.filter_messages import packed
from tests.support.dataplane.plain_filters import CLIENT
from tests.support.dataplane.route_messages import host, route_config, to_cluster
from xds.type.v3 import typed_struct_pb2 as xds_pb

from authplane.cel.check.admissible_data import Admitted
from authplane.dataplane.config.frozen import FrozenMap
from authplane.dataplane.config.metadata import NO_METADATA, Audience, JsonObject, ResourceMetadata, shown_to_filters
from authplane.dataplane.config.read.decode_resource import decode_cluster, decode_routes
from authplane.xds.client.watched_types import Invalid

AUDIENCE: Final = packed(gcp_authn_pb2.Audience(url="https://a"))
UNKNOWN: Final = any_pb2.Any(type_url="type.googleapis.com/test.Unknown", value=b"x")


def struct(**members: object) -> struct_pb2.Struct:
    return ParseDict(members, struct_pb2.Struct())


def of_cluster(message: base_pb2.Metadata) -> ResourceMetadata | list[str]:
    got = decode_cluster(eds_cluster(metadata=message).SerializeToString(), CLIENT)
    return [str(each) for each in got.problems] if isinstance(got, Invalid) else got.metadata


def of_route(message: base_pb2.Metadata) -> ResourceMetadata | list[str]:
    got = decode_routes(route_config(host(to_cluster("c", metadata=message))).SerializeToString(), CLIENT)
    if isinstance(got, Invalid):
        return [str(each).removeprefix("virtual_hosts[0].routes[0].") for each in got.problems]
    return got.virtual_hosts[0].routes[0].metadata


BOTH: Final = pytest.mark.parametrize("read", [of_cluster, of_route], ids=["cluster", "route"])


@pytest.mark.requirement("MD-1")
@pytest.mark.requirement("MD-2")
@BOTH
def test_what_has_a_type_comes_first_and_the_rest_fills_the_gaps(read: type) -> None:
    message = base_pb2.Metadata(
        typed_filter_metadata={"a": AUDIENCE, "unknown": UNKNOWN},
        filter_metadata={"a": struct(lost=1), "b": struct(x="y", n=[1, {"z": None}], t=True), "unknown": struct(k="v")},
    )
    assert read(message) == FrozenMap(
        {
            "a": Audience("https://a"),
            "b": JsonObject(FrozenMap({"x": "y", "n": (1.0, FrozenMap({"z": None})), "t": True})),
            "unknown": JsonObject(FrozenMap({"k": "v"})),
        }
    )


@pytest.mark.requirement("MD-2")
@BOTH
def test_no_metadata_is_an_empty_mapping(read: type) -> None:
    assert read(base_pb2.Metadata()) == NO_METADATA


@pytest.mark.requirement("MD-1")
@BOTH
@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (
            packed(gcp_authn_pb2.Audience()),
            "metadata.typed_filter_metadata.a.url: This field is required. Add it. [Missing]",
        ),
        (
            any_pb2.Any(type_url=AUDIENCE.type_url, value=b"\xff"),
            "metadata.typed_filter_metadata.a: Cannot decode the bytes. Expected"
            " envoy.extensions.filters.http.gcp_authn.v3.Audience. "
            "[Unreadable]",
        ),
        (
            packed(xds_pb.TypedStruct(type_url=AUDIENCE.type_url)),
            "metadata.typed_filter_metadata.a: envoy.extensions.filters.http.gcp_authn.v3.Audience as a "
            "TypedStruct is not supported. Use the message itself. [Unreadable]",
        ),
        (any_pb2.Any(), "metadata.typed_filter_metadata.a.type_url: This field is required. Add it. [Missing]"),
    ],
)
def test_a_known_type_must_be_readable(read: type, value: any_pb2.Any, problem: str) -> None:
    assert read(base_pb2.Metadata(typed_filter_metadata={"a": value})) == [problem]


@pytest.mark.requirement("MD-2")
@BOTH
def test_what_is_no_json_is_refused(read: type) -> None:
    bad = struct_pb2.Struct(fields={"n": struct_pb2.Value(number_value=float("inf")), "v": struct_pb2.Value()})
    assert read(base_pb2.Metadata(filter_metadata={"a": bad})) == [
        "metadata.filter_metadata.a.n: The number is not finite. Use a finite number. [NotJson]",
        "metadata.filter_metadata.a.v: The value is missing. Set it. [NotJson]",
    ]


@pytest.mark.requirement("CEL-10")
@BOTH
def test_filters_see_json_objects_and_nothing_that_has_a_type(read: Callable[..., ResourceMetadata]) -> None:
    told = read(
        base_pb2.Metadata(
            typed_filter_metadata={"a": AUDIENCE},
            filter_metadata={"a": struct(b="hidden"), "c": struct(d=[1, {"e": None}])},
        )
    )
    assert shown_to_filters(told).fact == Admitted({"c": {"d": [1, {"e": None}]}}, 75)
