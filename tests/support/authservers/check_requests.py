"""CheckRequests for tests."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from envoy.service.auth.v3 import attribute_context_pb2
from envoy.service.auth.v3 import external_auth_pb2 as pb

NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


def check(
    path: str = "/",
    *,
    headers: Mapping[str, str] = MappingProxyType({"user-agent": "test"}),
    context: Mapping[str, str] = NOTHING,
) -> pb.CheckRequest:
    """Build what Envoy sends about a GET."""
    return pb.CheckRequest(
        attributes=attribute_context_pb2.AttributeContext(
            request=attribute_context_pb2.AttributeContext.Request(
                http=attribute_context_pb2.AttributeContext.HttpRequest(
                    id="7", method="GET", scheme="https", host="shop.example", path=path, headers=headers
                )
            ),
            context_extensions=context,
        )
    )
