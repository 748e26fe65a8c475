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
"""Additions and changes are sent in this order: a resource is sent before those that refer to it.

Clients subscribe to extensions and routes once they have the listener that names them, and routes rely on extensions.
"""

BREAK_ORDER: Final = tuple(reversed(MAKE_ORDER))
"""Removals go out in this order."""

BY_NAME: Final = "grpc/"
"""Prefix of resources that are sent only to clients that subscribe to them by name.

A client with a wildcard subscription is a proxy. These resources are for programs, and a proxy would reject them.
"""

FULL_SETS: Final = frozenset({TypeUrl.LISTENER, TypeUrl.CLUSTER})
"""In the state-of-the-world variant a response of these types carries every resource that the client may keep.

An empty list of names in a client's first request means "all" for these types, and for these alone.
"""

LEFT_TO_CLIENTS: Final = frozenset({TypeUrl.EXTENSION})
"""Types of which nothing is removed from a client while it subscribes to it.

A proxy subscribes as long as any listener has the filter, even one that drains, and answers 500 if the configuration is
gone. It unsubscribes by itself.
"""
