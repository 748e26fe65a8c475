"""Discovery messages to our values and back."""

from types import MappingProxyType
from typing import Final

from envoy.config.core.v3 import base_pb2
from envoy.service.discovery.v3 import discovery_pb2 as pb
from google.protobuf.message import DecodeError

from authplane.core.envoy_releases import CURRENT, Release, known_release
from authplane.xds.server.stream_messages import DeltaRequest, DeltaResponse, SotwRequest, SotwResponse

ENVOY: Final = "envoy"
_PROGRAMS: Final = ("gRPC", "authplane")
"""What the user agents of gRPC clients and servers begin with."""


def parse_sotw_request(data: bytes) -> SotwRequest | None:
    """Read a ``DiscoveryRequest``; None means that the bytes are none."""
    try:
        message = pb.DiscoveryRequest.FromString(data)
    except DecodeError:
        return None
    return SotwRequest(
        type_url=message.type_url,
        node=message.node.id,
        edition=_parse_edition(message.node),
        names=tuple(message.resource_names),
        version=message.version_info,
        nonce=message.response_nonce,
        error=message.error_detail.message if message.HasField("error_detail") else None,
    )


def parse_delta_request(data: bytes) -> DeltaRequest | None:
    """Read a ``DeltaDiscoveryRequest``; None means that the bytes are none."""
    try:
        message = pb.DeltaDiscoveryRequest.FromString(data)
    except DecodeError:
        return None
    return DeltaRequest(
        type_url=message.type_url,
        node=message.node.id,
        edition=_parse_edition(message.node),
        subscribe=tuple(message.resource_names_subscribe),
        unsubscribe=tuple(message.resource_names_unsubscribe),
        initial_versions=MappingProxyType(dict(message.initial_resource_versions)),
        nonce=message.response_nonce,
        error=message.error_detail.message if message.HasField("error_detail") else None,
    )


def render_sotw_response(response: SotwResponse) -> bytes:
    """Write a ``DiscoveryResponse``."""
    message = pb.DiscoveryResponse(
        version_info=response.version, type_url=response.type_url.value, nonce=response.nonce
    )
    url = response.type_url.value
    for _, item in response.resources:
        message.resources.add(type_url=url, value=item.body)
    return message.SerializeToString(deterministic=True)


def render_delta_response(response: DeltaResponse) -> bytes:
    """Write a ``DeltaDiscoveryResponse``."""
    url = response.type_url.value
    message = pb.DeltaDiscoveryResponse(
        system_version_info=response.version,
        type_url=url,
        nonce=response.nonce,
        removed_resources=response.removed,
    )
    for name, item in response.resources:
        entry = message.resources.add(name=name, version=item.version)
        entry.resource.type_url = url
        entry.resource.value = item.body
    return message.SerializeToString(deterministic=True)


def _parse_edition(node: base_pb2.Node) -> Release | None:
    agent = node.user_agent_name
    if agent == ENVOY:
        version = node.user_agent_build_version.version
        return known_release(Release(version.major_number, version.minor_number))
    # Programs get nothing that depends on a release. They share the edition that always exists.
    return CURRENT if agent.startswith(_PROGRAMS) else None
