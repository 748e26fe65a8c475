"""Which documents we read: API version and kind to type."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from authplane.resources.kinds.agentic import AccessPolicy, Backend, XAccessPolicy, XAccessPolicyV0, XBackend
from authplane.resources.kinds.authorization_service_kind import AuthorizationService
from authplane.resources.kinds.backend_tls_policy import BackendTLSPolicy
from authplane.resources.kinds.configuration import AuthplaneConfiguration
from authplane.resources.kinds.contour import HTTPProxy, TLSCertificateDelegation
from authplane.resources.kinds.contour_file import ContourFile
from authplane.resources.kinds.contour_settings import ContourConfiguration, ContourDeployment
from authplane.resources.kinds.core import ConfigMap, EndpointSlice, Secret, Service
from authplane.resources.kinds.extension_service import ExtensionService
from authplane.resources.kinds.gateway import Gateway, HTTPRoute, ReferenceGrant

Resource: TypeAlias = (
    Service
    | Secret
    | ConfigMap
    | EndpointSlice
    | HTTPProxy
    | TLSCertificateDelegation
    | ExtensionService
    | Gateway
    | HTTPRoute
    | ReferenceGrant
    | BackendTLSPolicy
    | Backend
    | XBackend
    | AccessPolicy
    | XAccessPolicyV0
    | XAccessPolicy
    | ContourConfiguration
    | ContourDeployment
    | ContourFile
    | AuthplaneConfiguration
    | AuthorizationService
)

KINDS: Final[Mapping[tuple[str, str], type[Resource]]] = MappingProxyType(
    {
        ("v1", "Service"): Service,
        ("v1", "Secret"): Secret,
        ("v1", "ConfigMap"): ConfigMap,
        ("discovery.k8s.io/v1", "EndpointSlice"): EndpointSlice,
        ("projectcontour.io/v1", "HTTPProxy"): HTTPProxy,
        ("projectcontour.io/v1", "TLSCertificateDelegation"): TLSCertificateDelegation,
        ("projectcontour.io/v1alpha1", "ContourConfiguration"): ContourConfiguration,
        ("projectcontour.io/v1alpha1", "ContourDeployment"): ContourDeployment,
        ("projectcontour.io/v1alpha1", "ExtensionService"): ExtensionService,
        ("gateway.networking.k8s.io/v1", "Gateway"): Gateway,
        ("gateway.networking.k8s.io/v1beta1", "Gateway"): Gateway,
        ("gateway.networking.k8s.io/v1", "HTTPRoute"): HTTPRoute,
        ("gateway.networking.k8s.io/v1beta1", "HTTPRoute"): HTTPRoute,
        ("gateway.networking.k8s.io/v1", "ReferenceGrant"): ReferenceGrant,
        ("gateway.networking.k8s.io/v1beta1", "ReferenceGrant"): ReferenceGrant,
        ("gateway.networking.k8s.io/v1", "BackendTLSPolicy"): BackendTLSPolicy,
        ("gateway.networking.k8s.io/v1alpha3", "BackendTLSPolicy"): BackendTLSPolicy,
        ("agentic.networking.x-k8s.io/v1alpha1", "AccessPolicy"): AccessPolicy,
        ("agentic.networking.x-k8s.io/v1alpha1", "Backend"): Backend,
        ("agentic.networking.x-k8s.io/v1alpha1", "XAccessPolicy"): XAccessPolicy,
        ("agentic.networking.x-k8s.io/v0alpha0", "XAccessPolicy"): XAccessPolicyV0,
        ("agentic.networking.x-k8s.io/v0alpha0", "XBackend"): XBackend,
        ("agentic.prototype.x-k8s.io/v0alpha0", "XAccessPolicy"): XAccessPolicyV0,
        ("agentic.prototype.x-k8s.io/v0alpha0", "XBackend"): XBackend,
        ("authplane.dev/v1alpha1", "AuthplaneConfiguration"): AuthplaneConfiguration,
        ("authplane.dev/v1alpha1", "AuthorizationService"): AuthorizationService,
    }
)

RENAMED: Final[Mapping[tuple[str, str], str]] = MappingProxyType(
    {("authplane.dev/v1alpha1", "AuthorizationServer"): "AuthorizationService"}
)
"""Former names of kinds. A document with one is read as the kind that it is called now, with a warning."""

OWNED_GROUPS: Final = frozenset(
    {"authplane.dev", "projectcontour.io", "agentic.networking.x-k8s.io", "agentic.prototype.x-k8s.io"}
)
"""In these groups a kind or version that is not in `KINDS` is an error: it might have been meant to protect."""

OWNED_KINDS: Final = frozenset({("gateway.networking.k8s.io", "BackendTLSPolicy")})
"""Of these kinds of other groups, a version that is not in `KINDS` is an error too."""

TLS_POLICY: Final = "BackendTLSPolicy"
"""The kind without which a Service would be reached in plaintext."""

POLICIES: Final = frozenset({"AccessPolicy", "XAccessPolicy"})
"""Kinds that protect what they name: one that cannot be read must not leave it open."""
