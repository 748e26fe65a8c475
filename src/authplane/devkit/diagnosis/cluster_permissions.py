"""What each part of authplane asks of an API server, as the verbs and resources of roles."""

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final

from authplane.core.values import dataclass
from authplane.sources.kubernetes.api_kinds import ApiKind, api_kinds

_READ: Final = ("get", "list", "watch")
_WITHOUT_STATUS: Final = frozenset(
    {"AuthorizationService", "ConfigMap", "ContourDeployment", "EndpointSlice", "ReferenceGrant", "Secret", "Service"}
)
"""The kinds whose status the control plane does not write."""


class Component(Enum):
    """A program that connects to an API server."""

    CONTROL = "control plane"
    POLICY = "policy server"


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """A verb on a resource."""

    verb: str
    group: str
    resource: str
    """With its subresource, such as ``httpproxies/status``."""
    namespace: str = ""
    """Empty for all namespaces, or for resources without one."""

    def __str__(self) -> str:
        name, _, sub = self.resource.partition("/")
        whole = f"{name}.{self.group}" if self.group else name
        within = f" in {self.namespace}" if self.namespace else ""
        return f"{self.verb} {whole}{'/' if sub else ''}{sub}{within}"


def needed_permissions(
    component: Component, installed: Iterable[str], namespaces: Iterable[str], lease_namespace: str
) -> tuple[Permission, ...]:
    """Return what a component needs in a cluster that has these kinds (``httpproxies.projectcontour.io``)."""
    there = frozenset(installed)
    kinds = [each for each in api_kinds() if each.resource in there]
    places = tuple(namespaces) or ("",)
    return tuple(_needed(component, kinds, places, lease_namespace))


def _needed(
    component: Component, kinds: Iterable[ApiKind], places: tuple[str, ...], lease_namespace: str
) -> Iterator[Permission]:
    for kind in kinds:
        for place in places:
            for verb in _READ:
                yield Permission(verb=verb, group=kind.group, resource=kind.plural, namespace=place)
            if component is Component.CONTROL and kind.kind not in _WITHOUT_STATUS:
                yield Permission(verb="patch", group=kind.group, resource=f"{kind.plural}/status", namespace=place)
    match component:
        case Component.CONTROL:
            for place in places:
                for verb in ("create", "get", "patch"):
                    yield Permission(verb=verb, group="events.k8s.io", resource="events", namespace=place)
            for verb in ("create", "delete", "get", "list", "update"):
                yield Permission(verb=verb, group="coordination.k8s.io", resource="leases", namespace=lease_namespace)
        case Component.POLICY:
            yield Permission(verb="create", group="authentication.k8s.io", resource="tokenreviews")
