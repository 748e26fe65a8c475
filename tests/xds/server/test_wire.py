"""Discovery messages, both ways."""

from envoy.config.core.v3.base_pb2 import BuildVersion, Node
from envoy.service.discovery.v3 import discovery_pb2 as pb
from envoy.type.v3.semantic_version_pb2 import SemanticVersion
from google.protobuf.any_pb2 import Any
from google.rpc.status_pb2 import Status

from authplane.core.envoy_releases import Release
from authplane.xds.server.served_types import TypeUrl
from authplane.xds.server.snapshot import Versioned
from authplane.xds.server.stream_messages import DeltaRequest, DeltaResponse, SotwRequest, SotwResponse
from authplane.xds.server.wire import (
    parse_delta_request,
    parse_sotw_request,
    render_delta_response,
    render_sotw_response,
)

URL = TypeUrl.CLUSTER.value


def envoy_node() -> Node:
    version = BuildVersion(version=SemanticVersion(major_number=1, minor_number=38, patch=2))
    return Node(id="edge", user_agent_name="envoy", user_agent_build_version=version)


def test_every_field_of_a_state_of_the_world_request_is_read() -> None:
    message = pb.DiscoveryRequest(
        version_info="v",
        node=envoy_node(),
        resource_names=["a", "b"],
        type_url=URL,
        response_nonce="7",
        error_detail=Status(message="no"),
    )
    assert parse_sotw_request(message.SerializeToString()) == SotwRequest(
        type_url=URL, node="edge", edition=Release(1, 38), names=("a", "b"), version="v", nonce="7", error="no"
    )


def test_every_field_of_a_delta_request_is_read() -> None:
    message = pb.DeltaDiscoveryRequest(
        node=envoy_node(),
        type_url=URL,
        resource_names_subscribe=["a"],
        resource_names_unsubscribe=["b"],
        initial_resource_versions={"c": "1"},
        response_nonce="7",
        error_detail=Status(message="no"),
    )
    assert parse_delta_request(message.SerializeToString()) == DeltaRequest(
        type_url=URL,
        node="edge",
        edition=Release(1, 38),
        subscribe=("a",),
        unsubscribe=("b",),
        initial_versions={"c": "1"},
        nonce="7",
        error="no",
    )


def test_a_refusal_without_a_text_is_a_refusal() -> None:
    assert parse_sotw_request(pb.DiscoveryRequest(error_detail=Status()).SerializeToString()) == SotwRequest(
        type_url="", error=""
    )


def test_an_absent_refusal_is_none() -> None:
    assert parse_sotw_request(b"") == SotwRequest(type_url="")
    assert parse_delta_request(b"") == DeltaRequest(type_url="")


def test_bytes_that_are_no_message_give_none() -> None:
    assert parse_sotw_request(b"\xff\xff") is None
    assert parse_delta_request(b"\xff\xff") is None


def test_a_resource_travels_as_an_any_of_its_type() -> None:
    item = Versioned.of(b"body")
    sotw = SotwResponse(type_url=TypeUrl.CLUSTER, version="v", nonce="1", resources=(("a", item),))
    delta = DeltaResponse(type_url=TypeUrl.CLUSTER, version="v", nonce="1", resources=(("a", item),), removed=("b",))
    wrapped = Any(type_url=URL, value=b"body")
    assert pb.DiscoveryResponse.FromString(render_sotw_response(sotw)) == pb.DiscoveryResponse(
        version_info="v", type_url=URL, nonce="1", resources=[wrapped]
    )
    assert pb.DeltaDiscoveryResponse.FromString(render_delta_response(delta)) == pb.DeltaDiscoveryResponse(
        system_version_info="v",
        type_url=URL,
        nonce="1",
        resources=[pb.Resource(name="a", version=item.version, resource=wrapped)],
        removed_resources=["b"],
    )
