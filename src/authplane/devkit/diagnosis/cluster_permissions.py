"""What each part of authplane asks of an API server, as the verbs and resources of roles."""

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final

from authplane.core.values import dataclass
from authplane.sources.kubernetes.api_kinds import ApiKind, api_kinds
from authplane.sources.kubernetes.object_classes import GATEWAY_CLASSES

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
    found = [permission for kind in kinds for permission in _of_kind(component, kind, places)]
    found += (Permission(verb=verb, group=GATEWAY_CLASSES.group, resource=GATEWAY_CLASSES.plural) for verb in _READ)
    match component:
        case Component.CONTROL:
            return (*found, *_written(places, lease_namespace))
        case Component.POLICY:
            return (*found, Permission(verb="create", group="authentication.k8s.io", resource="tokenreviews"))


def _of_kind(component: Component, kind: ApiKind, places: tuple[str, ...]) -> Iterator[Permission]:
    for place in places:
        for verb in _READ:
            yield Permission(verb=verb, group=kind.group, resource=kind.plural, namespace=place)
        if component is Component.CONTROL and kind.kind not in _WITHOUT_STATUS:
            yield Permission(verb="patch", group=kind.group, resource=f"{kind.plural}/status", namespace=place)


def _written(places: tuple[str, ...], lease_namespace: str) -> Iterator[Permission]:
    """Return what the control plane needs for Events and Leases."""
    for place in places:
        for verb in ("create", "get", "patch"):
            yield Permission(verb=verb, group="events.k8s.io", resource="events", namespace=place)
    for verb in ("create", "delete", "get", "list", "update"):
        yield Permission(verb=verb, group="coordination.k8s.io", resource="leases", namespace=lease_namespace)
