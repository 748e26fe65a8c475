"""A ReferenceGrant lets those refer whom it names to what it names, and nobody else to nothing else."""

from typing import Final

import pytest

from authplane.controlplane.graph.model.reference_grants import may_refer
from authplane.core.names import Ref
from authplane.sources.document_versions import Library

ROUTE: Final = Ref("HTTPRoute", "web", "r")
BACKEND: Final = Ref("Backend", "tools", "mcp")
GRANT: Final = """
apiVersion: gateway.networking.k8s.io/v1
kind: ReferenceGrant
metadata: {name: g, namespace: tools}
spec:
  from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: web}]
  to: [{group: agentic.networking.x-k8s.io, kind: Backend, name: mcp}]
"""


def permits(grant: str, origin: Ref = ROUTE, target: Ref = BACKEND) -> bool:
    library = Library()
    library.changed("a.yaml", grant.encode())
    loaded = library.current()
    assert loaded.findings == ()
    return may_refer(loaded.resources, origin, target)


ALIKE: Final = {
    "as it is": ("name: g", "name: g"),
    "to all of a kind": (", name: mcp", ""),
    "to the earlier group": ("group: agentic.networking.x-k8s.io", "group: agentic.prototype.x-k8s.io"),
}
OTHERS: Final = {
    "for another namespace": ("namespace: web}", "namespace: other}"),
    "for another group": ("group: gateway.networking.k8s.io", "group: projectcontour.io"),
    "for another kind": ("kind: HTTPRoute", "kind: GRPCRoute"),
    "of another namespace": ("namespace: tools}", "namespace: web}"),
    "to another group": ("group: agentic.networking.x-k8s.io", 'group: ""'),
    "to another kind": ("kind: Backend", "kind: XBackend"),
    "to another name": ("name: mcp", "name: mcp2"),
}


@pytest.mark.parametrize("change", ALIKE.values(), ids=ALIKE.keys())
def test_a_grant_lets_refer(change: tuple[str, str]) -> None:
    assert permits(GRANT.replace(*change))


@pytest.mark.requirement("T01")
@pytest.mark.parametrize("change", OTHERS.values(), ids=OTHERS.keys())
def test_another_grant_does_not(change: tuple[str, str]) -> None:
    assert change[0] in GRANT
    assert not permits(GRANT.replace(*change))


def test_within_a_namespace_nobody_needs_a_grant() -> None:
    assert permits(GRANT, Ref("HTTPRoute", "other", "r"), Ref("Service", "other", "s"))
