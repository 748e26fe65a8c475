"""Discovery messages of a client."""

from envoy.service.discovery.v3 import discovery_pb2 as pb
from google.protobuf.any_pb2 import Any
from hypothesis import given, settings
from hypothesis import strategies as st

from authplane.xds.bootstrap.xds_bootstrap import Locality, Node
from authplane.xds.client.client_messages import Item, Report, Request, Response
from authplane.xds.client.wire import parse_response, render_request


def test_the_first_request_tells_all_about_the_node() -> None:
    node = Node(
        id="n", cluster="c", locality=Locality(region="r", zone="z", sub_zone="s"), metadata='{"a":{"b":[1,true]}}'
    )
    got = pb.DiscoveryRequest.FromString(render_request(Request(type_url="t", names=("a", "b"), node=node), "1.2"))
    want = pb.DiscoveryRequest(type_url="t", resource_names=["a", "b"])
    want.node.id, want.node.cluster = "n", "c"
    want.node.locality.region, want.node.locality.zone, want.node.locality.sub_zone = "r", "z", "s"
    want.node.metadata.update({"a": {"b": [1, True]}})
    want.node.user_agent_name, want.node.user_agent_version = "authplane", "1.2"
    want.node.client_features.extend(["envoy.lb.does_not_support_overprovisioning", "xds.config.resource-in-sotw"])
    assert got == want


def test_a_refusal_has_its_words() -> None:
    request = Request(type_url="t", names=("a",), version="1", nonce="2", error="no")
    want = pb.DiscoveryRequest(type_url="t", resource_names=["a"], version_info="1", response_nonce="2")
    want.error_detail.code, want.error_detail.message = 3, "no"
    assert pb.DiscoveryRequest.FromString(render_request(request)) == want


def test_a_response_is_read_whole_with_wrapped_resources_and_errors() -> None:
    message = pb.DiscoveryResponse(version_info="1", type_url="t", nonce="2")
    message.resources.add(type_url="t", value=b"x")
    message.resources.add().Pack(pb.Resource(name="w", resource=Any(type_url="t", value=b"y")))
    broken = message.resources.add(type_url="type.googleapis.com/envoy.service.discovery.v3.Resource", value=b"\xff")
    error = message.resource_errors.add()
    error.resource_name.name, error.error_detail.code, error.error_detail.message = "e", 5, "gone"
    assert parse_response(message.SerializeToString()) == Response(
        type_url="t",
        version="1",
        nonce="2",
        items=(
            Item(type_url="t", body=b"x"),
            Item(type_url="t", body=b"y", name="w"),
            Item(type_url=broken.type_url, body=b"\xff"),
        ),
        reports=(Report(name="e", code=5, message="gone"),),
    )


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_bytes_of_any_kind_are_read_or_refused(data: bytes) -> None:
    assert parse_response(data) is None or isinstance(parse_response(data), Response)
