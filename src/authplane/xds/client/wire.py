"""Discovery messages, as a client writes and reads them."""

from typing import Final

from envoy.config.core.v3 import base_pb2
from envoy.service.discovery.v3 import discovery_pb2 as pb
from google.protobuf import any_pb2, json_format
from google.protobuf.message import DecodeError

from authplane.xds.bootstrap.xds_bootstrap import Node
from authplane.xds.client.client_messages import Item, Report, Request, Response

_WRAPPER: Final = "envoy.service.discovery.v3.Resource"
_INVALID_ARGUMENT: Final = 3
_AGENT: Final = "authplane"
_FEATURES: Final = ("envoy.lb.does_not_support_overprovisioning", "xds.config.resource-in-sotw")


def render_request(request: Request, agent_version: str = "") -> bytes:
    """Write a ``DiscoveryRequest``; ``agent_version`` is our own."""
    message = pb.DiscoveryRequest(
        type_url=request.type_url,
        resource_names=request.names,
        version_info=request.version,
        response_nonce=request.nonce,
    )
    if request.node is not None:
        message.node.CopyFrom(render_node(request.node, agent_version))
    if request.error is not None:
        message.error_detail.code = _INVALID_ARGUMENT
        message.error_detail.message = request.error
    return message.SerializeToString(deterministic=True)


def render_node(node: Node, agent_version: str = "") -> base_pb2.Node:
    """Write who we are, and what we can do."""
    message = base_pb2.Node(id=node.id, cluster=node.cluster, user_agent_name=_AGENT, client_features=_FEATURES)
    if agent_version:
        message.user_agent_version = agent_version
    place = node.locality
    if place.region or place.zone or place.sub_zone:
        message.locality.CopyFrom(base_pb2.Locality(region=place.region, zone=place.zone, sub_zone=place.sub_zone))
    if node.metadata != "{}":
        json_format.Parse(node.metadata, message.metadata)
    return message


def parse_response(data: bytes) -> Response | None:
    """Read a ``DiscoveryResponse``; None means that the bytes are none."""
    try:
        message = pb.DiscoveryResponse.FromString(data)
    except DecodeError:
        return None
    return Response(
        type_url=message.type_url,
        version=message.version_info,
        nonce=message.nonce,
        items=tuple(map(_parse_item, message.resources)),
        reports=tuple(
            Report(name=each.resource_name.name, code=each.error_detail.code, message=each.error_detail.message)
            for each in message.resource_errors
        ),
    )


def _parse_item(packed: any_pb2.Any) -> Item:
    bare = Item(type_url=packed.type_url, body=packed.value)
    if packed.type_url.rpartition("/")[2] != _WRAPPER:
        return bare
    try:
        wrapper = pb.Resource.FromString(packed.value)
    except DecodeError:
        # A wrapper is never subscribed to: this one is rejected, the others are read.
        return bare
    inner = wrapper.resource
    return Item(type_url=inner.type_url, body=inner.value, name=wrapper.name or wrapper.resource_name.name)
