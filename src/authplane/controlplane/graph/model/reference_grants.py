"""ReferenceGrants: which objects may refer to objects of another namespace."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from authplane.core.names import Ref
from authplane.resources.documents import Resources
from authplane.resources.kinds.gateway import GrantFrom, GrantTo

_GATEWAY: Final = ("gateway.networking.k8s.io",)
_AGENTIC: Final = ("agentic.networking.x-k8s.io", "agentic.prototype.x-k8s.io")
_GROUPS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "Backend": _AGENTIC,
        "ConfigMap": ("",),
        "ExtensionService": ("projectcontour.io",),
        "Gateway": _GATEWAY,
        "HTTPProxy": ("projectcontour.io",),
        "HTTPRoute": _GATEWAY,
        "Secret": ("",),
        "Service": ("",),
        "XBackend": _AGENTIC,
    }
)
"""The groups under which a kind is known."""


def may_refer(resources: Resources, origin: Ref, target: Ref) -> bool:
    """Tell whether one object may refer to another: in its own namespace, or by a ReferenceGrant of the other."""
    if origin.namespace == target.namespace:
        return True
    return any(
        name.namespace == target.namespace
        and any(_is_from(each, origin) for each in grant.spec.origins)
        and any(_is_to(each, target) for each in grant.spec.targets)
        for name, grant in resources.grants.items()
    )


def _is_from(written: GrantFrom, origin: Ref) -> bool:
    same = (written.kind, written.namespace) == (origin.kind, origin.namespace)
    return same and written.group in _GROUPS[origin.kind]


def _is_to(written: GrantTo, target: Ref) -> bool:
    same = written.kind == target.kind and written.group in _GROUPS[target.kind]
    return same and written.name in {"", target.name}
