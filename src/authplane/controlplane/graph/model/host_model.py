"""Hosts, and their routes in the order of precedence."""

from dataclasses import dataclass

from authplane.controlplane.graph.model.route_authorization import HeaderNames
from authplane.controlplane.graph.model.route_model import GatewayRoute, Route
from authplane.core.names import ObjectName


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A virtual host as one listener serves it; routes are in the order of precedence."""

    fqdn: str
    proxy: ObjectName
    """The root."""
    included: tuple[ObjectName, ...] = ()
    """The HTTPProxies that the root includes, at any depth, sorted."""
    routes: tuple[Route, ...]
    promised: tuple[HeaderNames, ...] | None = None
    """What the authorization service may set beside ``Auth-*``; None if the host has no authorization."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayHost:
    """A host name of a listener: one name, ``*.`` and a name, or ``*``; routes are in the order of precedence."""

    name: str
    routes: tuple[GatewayRoute, ...]
