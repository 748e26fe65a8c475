"""What follows if a kind may not be listed: what its objects could protect is denied, and the rest goes on."""

from collections.abc import Iterable
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from authplane.core.names import Ref
from authplane.core.problems import Problem
from authplane.core.values import dataclass
from authplane.resources.catalogue import POLICIES, TLS_POLICY
from authplane.resources.contour_files import BARE_REF
from authplane.resources.documents import Finding, Place, Resources, UnreadProxy
from authplane.resources.loaded_resources import Loaded
from authplane.sources.kubernetes.api_kinds import ApiKind

_SETTINGS: Final = frozenset({"AuthplaneConfiguration", "ContourConfiguration", "ContourDeployment"})
REASON: Final = "KindForbidden"


@dataclass(frozen=True, slots=True, order=True)
class Withheld:
    """A kind whose objects the API server does not show us."""

    resource: str
    kind: str
    verb: str
    namespace: str = ""

    @classmethod
    def of(cls, kind: ApiKind, verb: str, namespace: str) -> "Withheld":
        """Name a kind."""
        return cls(kind.resource, kind.kind, verb, namespace)

    @property
    def message(self) -> str:
        """What is wrong, and what to do."""
        where = f" in namespace {self.namespace}" if self.namespace else ""
        return (
            f"This program may not {self.verb} {self.resource}{where}, so it denies what such objects could protect. "
            f"Grant its ServiceAccount the verbs list and watch for {self.resource}."
        )


def withhold(loaded: Loaded, withheld: Iterable[Withheld]) -> Loaded:
    """Return what is in force if some kinds may not be listed.

    Without Services, Secrets, grants and the like, what refers to them is not served anyway. Policies and settings are
    what must not be missing unnoticed.
    """
    kinds = sorted(withheld)
    if not kinds:
        return loaded
    resources = loaded.resources
    for each in kinds:
        resources = _without(resources, each)
    findings = (Finding(Place(each.resource, 0, 0), None, Problem((), REASON, each.message)) for each in kinds)
    return replace(loaded, resources=resources, findings=(*findings, *loaded.findings))


def _without(resources: Resources, withheld: Withheld) -> Resources:
    kind, resource = withheld.kind, withheld.resource
    if kind in POLICIES:
        return replace(resources, doubt=resources.doubt or f"{resource} may not be listed")
    if kind in _SETTINGS:
        return replace(resources, broken=resources.broken | {Ref(kind, "", "")})
    if kind == "ConfigMap":
        return replace(resources, broken=resources.broken | {BARE_REF})
    if kind == TLS_POLICY:
        known = {**resources.broken_tls_policies, Ref(TLS_POLICY, "", resource): None}
        return replace(resources, broken_tls_policies=MappingProxyType(known))
    if kind == "HTTPProxy":
        return replace(resources, unread_proxies=(*resources.unread_proxies, UnreadProxy(resource, "", None)))
    return resources
