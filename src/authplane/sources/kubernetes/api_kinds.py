"""The kinds that we read from a cluster, and where an API server has them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from authplane.core.values import dataclass
from authplane.resources.catalogue import KINDS


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKind:
    """A kind of an API group."""

    group: str
    """Empty for Kubernetes' own first group."""
    versions: tuple[str, ...]
    """Those that we read, the best first."""
    plural: str
    kind: str

    @property
    def resource(self) -> str:
        """The name by which people and roles call the kind: ``httpproxies.projectcontour.io``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def group_path(self, version: str) -> str:
        """Return the path of everything in a version of the group."""
        return f"/apis/{self.group}/{version}" if self.group else f"/api/{version}"

    def path(self, version: str, namespace: str = "") -> str:
        """Return the path of all objects, or of those in a namespace."""
        within = f"/namespaces/{namespace}" if namespace else ""
        return f"{self.group_path(version)}{within}/{self.plural}"


PLURALS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Service": "services",
        "Secret": "secrets",
        "ConfigMap": "configmaps",
        "EndpointSlice": "endpointslices",
        "HTTPProxy": "httpproxies",
        "TLSCertificateDelegation": "tlscertificatedelegations",
        "ContourConfiguration": "contourconfigurations",
        "ContourDeployment": "contourdeployments",
        "ExtensionService": "extensionservices",
        "Gateway": "gateways",
        "HTTPRoute": "httproutes",
        "ReferenceGrant": "referencegrants",
        "BackendTLSPolicy": "backendtlspolicies",
        "AccessPolicy": "accesspolicies",
        "Backend": "backends",
        "XAccessPolicy": "xaccesspolicies",
        "XBackend": "xbackends",
        "AuthplaneConfiguration": "authplaneconfigurations",
        "AuthorizationService": "authorizationservices",
    }
)

SELECTED: Final = frozenset({"HTTPProxy", "Gateway", "HTTPRoute", "GRPCRoute"})
"""The kinds that ``--selector`` applies to: it never hides a policy, a Backend or a grant."""

UNUSABLE_SECRETS: Final = ",".join(
    f"type!={each}"
    for each in (
        "helm.sh/release.v1",
        "kubernetes.io/service-account-token",
        "kubernetes.io/dockercfg",
        "kubernetes.io/dockerconfigjson",
        "kubernetes.io/ssh-auth",
        "bootstrap.kubernetes.io/token",
    )
)
"""A field selector: no resource can refer to Secrets of these types, so the API server need not send them."""


def api_kinds() -> tuple[ApiKind, ...]:
    """Return every kind that we read, each with its versions, in a fixed order."""
    found: dict[tuple[str, str], list[str]] = {}
    for api_version, kind in KINDS:
        group, _, version = api_version.rpartition("/")
        found.setdefault((group, kind), []).append(version)
    return tuple(
        ApiKind(group=group, versions=tuple(versions), plural=PLURALS[kind], kind=kind)
        for (group, kind), versions in found.items()
    )
