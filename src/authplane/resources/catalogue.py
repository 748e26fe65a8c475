"""Which documents we read: API version and kind to type."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from authplane.resources.kinds.agentic import Backend
from authplane.resources.kinds.authplane import AuthplaneConfiguration
from authplane.resources.kinds.contour import ExtensionService, HTTPProxy
from authplane.resources.kinds.core import EndpointSlice, Secret, Service

Resource: TypeAlias = Service | Secret | EndpointSlice | HTTPProxy | ExtensionService | Backend | AuthplaneConfiguration

KINDS: Final[Mapping[tuple[str, str], type[Resource]]] = MappingProxyType(
    {
        ("v1", "Service"): Service,
        ("v1", "Secret"): Secret,
        ("discovery.k8s.io/v1", "EndpointSlice"): EndpointSlice,
        ("projectcontour.io/v1", "HTTPProxy"): HTTPProxy,
        ("projectcontour.io/v1alpha1", "ExtensionService"): ExtensionService,
        ("agentic.networking.x-k8s.io/v1alpha1", "Backend"): Backend,
        ("authplane.dev/v1alpha1", "AuthplaneConfiguration"): AuthplaneConfiguration,
    }
)

OWNED_GROUPS: Final = frozenset({"authplane.dev", "projectcontour.io", "agentic.networking.x-k8s.io"})
"""In these groups a kind or version that is not in `KINDS` is an error: it might have been meant to protect."""
