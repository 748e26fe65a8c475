"""The kinds that a cluster has, and which of their fields it drops."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from authplane.core.values import dataclass
from authplane.resources.catalogue import KINDS
from authplane.resources.pruned_fields import pruned_fields, published_schema
from authplane.sources.kubernetes.api_kinds import ApiKind, api_kinds

_BUILT_IN: Final = frozenset({"", "discovery.k8s.io"})
"""Groups whose kinds every cluster has, with all fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledKind:
    """A kind that we read, as one cluster has it."""

    resource: str
    """Such as ``httpproxies.projectcontour.io``."""
    version: str
    """The version that we read; empty if the cluster does not have the kind in any of ours."""
    served: tuple[str, ...] = ()
    """The versions of the group that the cluster has."""
    pruned: tuple[str, ...] = ()
    """Fields that we read and the API server drops."""


def group_versions(index: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Return group, version and path of each schema that concerns us, from the index of ``/openapi/v3``.

    The index has addresses with a hash, which redirect if the schema has changed since; those without always answer.
    """
    wanted = {each.group for each in api_kinds()} - _BUILT_IN
    for name in index.get("paths", {}):
        top, _, rest = name.partition("/")
        group, _, version = rest.partition("/")
        if top == "apis" and group in wanted and version:
            yield group, version, f"/openapi/v3/{name}"


def installed_kinds(published: Mapping[tuple[str, str], Mapping[str, Any]]) -> tuple[InstalledKind, ...]:
    """Compare what a cluster publishes, by group and version, with the kinds that we read."""
    return tuple(_installed(each, published) for each in api_kinds() if each.group not in _BUILT_IN)


def _installed(kind: ApiKind, published: Mapping[tuple[str, str], Mapping[str, Any]]) -> InstalledKind:
    served = tuple(sorted(version for group, version in published if group == kind.group))
    for version in kind.versions:
        schema = published_schema(published.get((kind.group, version), {}), kind.group, version, kind.kind)
        if schema is not None:
            pruned = pruned_fields(KINDS[f"{kind.group}/{version}", kind.kind], schema)
            return InstalledKind(resource=kind.resource, version=version, served=served, pruned=pruned)
    return InstalledKind(resource=kind.resource, version="", served=served)
