"""One generation of everything that was read."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple

from authplane.base.names import Ref
from authplane.base.problems import Path
from authplane.resources.chunks import Chunk, Doc
from authplane.resources.documents import Finding, Place, Resources
from authplane.resources.locate import locate
from authplane.resources.nodes import Node, parse_nodes
from authplane.resources.source import NO_SOURCE, Source

_SINGLE: Final = frozenset({"AuthplaneConfiguration", "ContourConfiguration", "ContourDeployment"})
"""Kinds of which there is at most one object, whatever its name."""

_NOTHING: Final = Resources()


class Claim(NamedTuple):
    """A document of a file that declares a resource."""

    file: str
    chunk: Chunk
    doc: Doc


@dataclass(frozen=True, slots=True)
class Origins:
    """Which documents declare which resource."""

    sources: Mapping[str, Source] = field(default_factory=lambda: MappingProxyType({}))
    claims: Mapping[Ref, tuple[Claim, ...]] = field(default_factory=lambda: MappingProxyType({}))
    holders: Mapping[Ref, str] = field(default_factory=lambda: MappingProxyType({}))
    """The file that last declared a resource which no document declares now."""

    def places(self, key: Ref, path: Path) -> Iterator[tuple[Place, Ref]]:
        """Return where the field stands in each document that declares the resource."""
        for file, chunk, doc in dict.fromkeys(self.claims.get(key, ())):
            root = _root(chunk.text)
            line, column = locate(root, (*doc.root, *path)) if root is not None else (1, 1)
            for before in self.sources.get(file, NO_SOURCE).starts.get(chunk, ()):
                yield Place(file, before + line, column), doc.ref


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The resources in force, what is wrong, and where everything stands."""

    resources: Resources = _NOTHING
    findings: tuple[Finding, ...] = ()
    """By place."""
    ignored: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """How many documents of other kinds there are, by kind."""
    last_good: frozenset[Ref] = frozenset()
    """Resources whose last good version is in force instead of what their file says now."""
    origins: Origins = field(default_factory=Origins, repr=False, compare=False)

    def place(self, ref: Ref, path: Path = ()) -> Place:
        """Return where a field of a resource stands, or the nearest thing around it that exists."""
        key = key_of(ref)
        places = sorted(self.origins.places(key, path), key=lambda found: (found[1] != ref, found[0]))
        return places[0][0] if places else Place(self.origins.holders.get(key, ""), 0, 0)


# A document with many problems is asked for the place of each, one after another.
@lru_cache(maxsize=8)
def _root(text: str) -> Node | None:
    return parse_nodes(text).root


def key_of(ref: Ref) -> Ref:
    """Return what two documents must not share."""
    return Ref(ref.kind, "", "") if ref.kind in _SINGLE else ref
