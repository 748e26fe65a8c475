"""One immutable generation of xDS resources."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from types import MappingProxyType
from typing import Final, Protocol, Self, assert_never

from authplane.core.envoy_releases import Release
from authplane.core.values import dataclass
from authplane.xds.server.node_identity import Role
from authplane.xds.server.served_types import BY_NAME, TypeUrl

_DIGITS: Final = 32
"""Hexadecimal digits of a version: 128 bits, so that no attacker can make two contents with the same version."""


@dataclass(frozen=True, slots=True)
class Versioned:
    """A serialized resource and the version its content has."""

    version: str
    body: bytes

    @classmethod
    def of(cls, body: bytes) -> Self:
        """Derive the version from the content: an unchanged resource is never pushed again."""
        return cls(hashlib.sha256(body).hexdigest()[:_DIGITS], body)


@dataclass(frozen=True, slots=True)
class Collection:
    """Every resource of one type, in name order, and the version of them all."""

    resources: Mapping[str, Versioned]
    version: str
    public: Mapping[str, Versioned] = field(init=False, repr=False, compare=False)
    """Those of them that a client with a wildcard subscription gets."""

    def __post_init__(self) -> None:
        shown = self.resources
        if any(name.startswith(BY_NAME) for name in shown):
            shown = {name: item for name, item in shown.items() if not name.startswith(BY_NAME)}
        object.__setattr__(self, "public", shown)

    @classmethod
    def of(cls, bodies: Mapping[str, bytes], before: Self | None = None) -> Self:
        """Version the bodies; what equals ``before`` is taken from it, so that only changes are hashed."""
        known = before.resources if before else {}
        resources = {}
        changed = len(known) != len(bodies)
        for name in sorted(bodies):
            item, body = known.get(name), bodies[name]
            if item is None or item.body != body:
                item, changed = Versioned.of(body), True
            resources[name] = item
        if before and not changed:
            return before
        return cls(MappingProxyType(resources), set_version(resources))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that clients may subscribe to, by type and name."""

    collections: Mapping[TypeUrl, Collection]
    _views: "dict[Role, Snapshot]" = field(default_factory=dict, init=False, repr=False, compare=False)
    """What was made for roles: every client of a role shares it."""

    @classmethod
    def of(cls, bodies: Mapping[TypeUrl, Mapping[str, bytes]], before: Self | None = None) -> Self:
        """Version every body; with the generation ``before``, what is equal is shared and not hashed again."""
        return cls(
            MappingProxyType(
                {
                    url: Collection.of(bodies.get(url, {}), before.collection(url) if before else NO_RESOURCES)
                    for url in TypeUrl
                }
            )
        )

    def edition(self, _envoy: Release | None) -> Self:
        """Return itself: proxies of every release get the same."""
        return self

    def seen_by(self, role: Role) -> "Snapshot":
        """Return what clients of a role may get."""
        found = self._views.get(role) or self._view(role)
        if found is not self:
            self._views[role] = found
        return found

    def _view(self, role: Role) -> "Snapshot":
        listeners = self.collection(TypeUrl.LISTENER)
        match role:
            case Role.LOCAL:
                return self
            case Role.ENVOY:
                if len(listeners.public) == len(listeners.resources):
                    return self
                own = Collection(listeners.public, set_version(listeners.public))
                return Snapshot(MappingProxyType({**self.collections, TypeUrl.LISTENER: own}))
            case Role.GRPC:
                named = {name: item for name, item in listeners.resources.items() if name not in listeners.public}
                own = Collection(MappingProxyType(named), set_version(named))
                return Snapshot(MappingProxyType({TypeUrl.LISTENER: own}))
            case _:
                assert_never(role)

    def sharing(self, other: Self) -> Self:
        """Return the same content, and what ``other`` has of it as the same objects."""
        shared = {
            url: known if (known := other.collection(url)).version == own.version else own
            for url, own in self.collections.items()
        }
        same_as_other = all(other.collections.get(url) is own for url, own in shared.items())
        return other if same_as_other else replace(self, collections=MappingProxyType(shared))

    def collection(self, type_url: TypeUrl) -> Collection:
        """Return the resources of one type; a type without any has an empty collection."""
        return self.collections.get(type_url, NO_RESOURCES)

    def resources(self, type_url: TypeUrl) -> Mapping[str, Versioned]:
        """Return the resources of one type by name, in name order."""
        return self.collection(type_url).resources

    def version(self, type_url: TypeUrl, names: Iterable[str] | None = None) -> str:
        """Return the version of those of these names that exist, or of the whole type."""
        collection = self.collection(type_url)
        if names is None:
            return collection.version
        present = {name: item for name in names if (item := collection.resources.get(name)) is not None}
        return collection.version if len(present) == len(collection.resources) else set_version(present)


class Editions(Protocol):
    """What proxies of different releases of Envoy get of one generation."""

    def edition(self, envoy: Release | None, /) -> Snapshot:
        """Return what those of one release get; None is for those that do not say it, and for old ones."""


def set_version(resources: Mapping[str, Versioned], refused: frozenset[str] = frozenset()) -> str:
    """Derive one version from the names and versions of a set of resources.

    A name in ``refused`` counts as another content: a client that refused a resource and comes back with this version
    does not have that resource.
    """
    names = sorted(resources)
    versions = [resources[name].version + ("!" if name in refused else "") for name in names]
    # The lengths keep names with line feeds apart.
    text = "\n".join([str(len(names)), *versions, *[str(len(name)) for name in names], *names])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]


@dataclass(frozen=True, slots=True)
class Change:
    """What differs between two generations of one resource type."""

    updated: tuple[str, ...]
    removed: tuple[str, ...]


def change(before: Mapping[str, Versioned], after: Mapping[str, Versioned]) -> Change:
    """Compare by content, in name order, so that pushes are reproducible."""
    if before is after:
        return Change((), ())
    return Change(
        updated=tuple(sorted(name for name, item in after.items() if not same(before.get(name), item))),
        removed=tuple(sorted(before.keys() - after.keys())),
    )


def same(held: Versioned | None, wanted: Versioned) -> bool:
    """Tell whether two resources have one content; the same object is the usual case and the quick one."""
    return held is wanted or (held is not None and held.version == wanted.version)


NO_RESOURCES: Final = Collection.of({})
