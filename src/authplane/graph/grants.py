"""Who may refer to objects of another namespace: ReferenceGrants."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from authplane.base.names import Ref
from authplane.resources.documents import Resources
from authplane.resources.kinds.gateway import GrantFrom, GrantTo

_GROUPS: Final[Mapping[str, str]] = MappingProxyType(
    {"HTTPProxy": "projectcontour.io", "ExtensionService": "projectcontour.io"}
)


def may_refer(resources: Resources, origin: Ref, target: Ref) -> bool:
    """Tell whether one object may refer to another: in its own namespace, or where a ReferenceGrant there lets it."""
    if origin.namespace == target.namespace:
        return True
    return any(
        name.namespace == target.namespace
        and any(_is_from(each, origin) for each in grant.spec.origins)
        and any(_is_to(each, target) for each in grant.spec.targets)
        for name, grant in resources.grants.items()
    )


def _is_from(written: GrantFrom, origin: Ref) -> bool:
    return (written.group, written.kind, written.namespace) == (_GROUPS[origin.kind], origin.kind, origin.namespace)


def _is_to(written: GrantTo, target: Ref) -> bool:
    return (written.group, written.kind) == (_GROUPS[target.kind], target.kind) and written.name in {"", target.name}
