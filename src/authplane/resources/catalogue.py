"""Which documents we read: API version and kind to type."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from authplane.resources.kinds.agentic import Backend
from authplane.resources.kinds.authplane import AuthplaneConfiguration
from authplane.resources.kinds.authserver import AuthorizationServer
from authplane.resources.kinds.contour import HTTPProxy, TLSCertificateDelegation
from authplane.resources.kinds.contour_settings import ContourConfiguration
from authplane.resources.kinds.core import EndpointSlice, Secret, Service
from authplane.resources.kinds.extension_service import ExtensionService
from authplane.resources.kinds.gateway import ReferenceGrant

Resource: TypeAlias = (
    Service
    | Secret
    | EndpointSlice
    | HTTPProxy
    | TLSCertificateDelegation
    | ExtensionService
    | ReferenceGrant
    | Backend
    | ContourConfiguration
    | AuthplaneConfiguration
    | AuthorizationServer
)

KINDS: Final[Mapping[tuple[str, str], type[Resource]]] = MappingProxyType(
    {
        ("v1", "Service"): Service,
        ("v1", "Secret"): Secret,
        ("discovery.k8s.io/v1", "EndpointSlice"): EndpointSlice,
        ("projectcontour.io/v1", "HTTPProxy"): HTTPProxy,
        ("projectcontour.io/v1", "TLSCertificateDelegation"): TLSCertificateDelegation,
        ("projectcontour.io/v1alpha1", "ContourConfiguration"): ContourConfiguration,
        ("projectcontour.io/v1alpha1", "ExtensionService"): ExtensionService,
        ("gateway.networking.k8s.io/v1beta1", "ReferenceGrant"): ReferenceGrant,
        ("gateway.networking.k8s.io/v1", "ReferenceGrant"): ReferenceGrant,
        ("agentic.networking.x-k8s.io/v1alpha1", "Backend"): Backend,
        ("authplane.dev/v1alpha1", "AuthplaneConfiguration"): AuthplaneConfiguration,
        ("authplane.dev/v1alpha1", "AuthorizationServer"): AuthorizationServer,
    }
)

OWNED_GROUPS: Final = frozenset({"authplane.dev", "projectcontour.io", "agentic.networking.x-k8s.io"})
"""In these groups a kind or version that is not in `KINDS` is an error: it might have been meant to protect."""
