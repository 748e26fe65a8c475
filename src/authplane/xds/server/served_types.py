"""The resource types that we serve and the order in which they reach a client."""

from enum import StrEnum
from typing import Final, TypeAlias


class TypeUrl(StrEnum):
    """A resource type by the URL that it has on the wire."""

    LISTENER = "type.googleapis.com/envoy.config.listener.v3.Listener"
    ROUTE = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
    CLUSTER = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
    ENDPOINT = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
    SECRET = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"  # noqa: S105 - a type, no password
    EXTENSION = "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig"
    """The configuration of a filter that a listener names but does not contain."""


XdsName: TypeAlias = tuple[TypeUrl, str]
"""A type and the name of a resource of that type."""

MAKE_ORDER: Final = (
    TypeUrl.CLUSTER,
    TypeUrl.ENDPOINT,
    TypeUrl.SECRET,
    TypeUrl.LISTENER,
    TypeUrl.EXTENSION,
    TypeUrl.ROUTE,
)
"""Additions and changes go out in this order: what is referred to comes before what refers to it.

Clients ask for extensions and routes once they have the listener that names them, and routes rely on extensions.
"""

BREAK_ORDER: Final = tuple(reversed(MAKE_ORDER))
"""Removals go out in this order."""

BY_NAME: Final = "grpc/"
"""What the names of those resources begin with that only clients get who ask for them by name.

A client that asks for everything is a proxy, and they are for programs: it would refuse them.
"""

FULL_SETS: Final = frozenset({TypeUrl.LISTENER, TypeUrl.CLUSTER})
"""In the state-of-the-world variant a response of these types carries every resource that the client may keep.

An empty list of names in a client's first request means "all" for these types, and for these alone.
"""

LEFT_TO_CLIENTS: Final = frozenset({TypeUrl.EXTENSION})
"""Types of which nothing is taken from a client that still asks for it.

A proxy asks as long as any listener has the filter, one that drains too, and answers 500 where its configuration is
gone. It stops asking by itself.
"""
