"""Which namespaces may use a Secret of another namespace."""

from typing import Final

from authplane.core.names import ObjectName
from authplane.resources.documents import Resources

_ALL: Final = "*"


def may_use(resources: Resources, secret: ObjectName, namespace: str) -> bool:
    """Tell whether objects of a namespace may use a Secret: it is theirs, or its own namespace delegates it to them."""
    return secret.namespace == namespace or any(
        delegation.secret_name == secret.name and not {namespace, _ALL}.isdisjoint(delegation.target_namespaces)
        for name, each in resources.delegations.items()
        if name.namespace == secret.namespace
        for delegation in each.spec.delegations
    )
