"""The default Gateway, without a Gateway document: every Backend under ``/<namespace>/<name>``."""

from collections.abc import Mapping
from typing import Final

from authplane.controlplane.graph.model.canonical_paths import target_problem
from authplane.core.names import ObjectName
from authplane.policy.rules.policy_targets import mcp_servers
from authplane.resources.documents import Resources
from authplane.resources.kinds.agentic import Backend, McpBackend, XBackend
from authplane.resources.kinds.configuration import GatewaySettings
from authplane.resources.kinds.contour_policies import NamespacedName
from authplane.resources.kinds.gateway import (
    AllowedRoutes,
    FrontendValidation,
    Gateway,
    GatewayListener,
    GatewaySpec,
    HTTPBackendRef,
    HTTPPathMatch,
    HTTPRoute,
    HTTPRouteFilter,
    HTTPRouteMatch,
    HTTPRouteRule,
    HTTPRouteSpec,
    ListenerTls,
    ParentRef,
    PathModifier,
    RouteNamespaces,
    SecretRef,
    UrlRewrite,
)
from authplane.resources.kinds.meta import Meta
from authplane.resources.mcp_places import mcp_place

DEFAULT: Final = ObjectName("default", "authplane")
_GROUP: Final = "agentic.networking.x-k8s.io"


def has_default_gateway(resources: Resources) -> bool:
    """Tell whether there are MCP servers and no Gateway; one that cannot be read might be meant to lead to them."""
    if resources.gateways or any(ref.kind == "Gateway" for ref in resources.broken):
        return False
    return mcp_servers(resources)


def default_gateway(settings: GatewaySettings) -> Gateway:
    """Return the Gateway that is used when no document declares one."""
    listener = GatewayListener(
        name="default",
        port=settings.port,
        protocol="HTTP" if settings.tls is None else "HTTPS",
        tls=_tls(settings),
        allowed_routes=AllowedRoutes(namespaces=RouteNamespaces(from_="All")),
    )
    return Gateway(
        metadata=Meta(name=DEFAULT.name, namespace=DEFAULT.namespace), spec=GatewaySpec(listeners=(listener,))
    )


def default_routes(resources: Resources) -> Mapping[ObjectName, HTTPRoute]:
    """Write a route to each Backend; of a Backend and an XBackend with one name, to the Backend."""
    written: list[Backend | XBackend] = [*resources.x_backends.values(), *resources.backends.values()]
    backends = {each.metadata.object_name: (each, each.spec.mcp) for each in written if each.spec.mcp is not None}
    return {name: _route(name, *backends[name]) for name in sorted(backends)}


def _tls(settings: GatewaySettings) -> ListenerTls | None:
    if settings.tls is None:
        return None
    clients = settings.tls.client_ca
    return ListenerTls(
        certificate_refs=(_secret(settings.tls.certificate),),
        frontend_validation=FrontendValidation(ca_certificate_refs=(_secret(clients),)) if clients else None,
    )


def _secret(name: NamespacedName) -> SecretRef:
    return SecretRef(name=name.name, namespace=name.namespace)


def _route(name: ObjectName, backend: Backend | XBackend, mcp: McpBackend) -> HTTPRoute:
    path = mcp_place(mcp).path
    rewrite = UrlRewrite(path=PathModifier(type="ReplacePrefixMatch", replace_prefix_match=path))
    rule = HTTPRouteRule(
        matches=(HTTPRouteMatch(path=HTTPPathMatch(value=f"/{name}")),),
        # A path that cannot be is reported with the Backend, which then cannot be reached anyway.
        filters=() if target_problem(path) else (HTTPRouteFilter(type="URLRewrite", url_rewrite=rewrite),),
        backend_refs=(HTTPBackendRef(group=_GROUP, kind=type(backend).__name__, name=name.name),),
    )
    return HTTPRoute(
        metadata=Meta(name=name.name, namespace=name.namespace),
        spec=HTTPRouteSpec(parent_refs=(ParentRef(name=DEFAULT.name, namespace=DEFAULT.namespace),), rules=(rule,)),
    )
