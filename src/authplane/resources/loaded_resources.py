"""One generation of everything that was read."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from types import MappingProxyType
from typing import Final, NamedTuple

from authplane.core.names import Ref
from authplane.core.problems import Inside, Path, Problem
from authplane.core.values import dataclass
from authplane.resources.document_chunks import Chunk, Doc
from authplane.resources.document_keys import key_of
from authplane.resources.documents import Finding, Place, Resources
from authplane.resources.file_documents import NO_SOURCE, Source
from authplane.resources.yaml.locate import locate, locate_inside
from authplane.resources.yaml.nodes import Node, parse_nodes

_NOTHING: Final = Resources()
_MOST_ROOTS: Final = 8


class Claim(NamedTuple):
    """A document of a file that declares a resource."""

    file: str
    chunk: Chunk
    doc: Doc


class Held(NamedTuple):
    """A new version of a file that is not in force yet, because it takes away something that protects."""

    file: str
    why: str


@dataclass(frozen=True, slots=True)
class Origins:
    """Which documents declare which resource."""

    sources: Mapping[str, Source] = field(default_factory=lambda: MappingProxyType({}))
    """What files say now."""
    claims: Mapping[Ref, tuple[Claim, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """The documents that are in force."""
    _roots: dict[Chunk, Node | None] = field(default_factory=dict, init=False, repr=False, compare=False)
    """The documents that were parsed last, since a document with many problems is searched once for each."""

    def places(
        self, key: Ref, path: Path, more: Iterable[str] = (), inside: Inside | None = None
    ) -> Iterator[tuple[Place, Ref]]:
        """Return the place of the field in each document that declares the resource now, in ``more`` files as well.

        With ``inside``, documents in which that character cannot be found are left out.
        """
        claims: dict[str, list[Claim]] = {file: [] for file in more}
        for claim in self.claims.get(key, ()):
            claims.setdefault(claim.file, []).append(claim)
        for file, known in claims.items():
            source = self.sources.get(file, NO_SOURCE)
            chunks = {claim.chunk for claim in known if claim.chunk in source.starts}
            docs = [(chunk, doc) for chunk in chunks or source.starts for doc in chunk.docs if key_of(doc.ref) == key]
            for chunk, doc in docs:
                found = self._locate(chunk, (*doc.root, *path), inside)
                if found is not None:
                    line, column = found
                    yield from ((Place(file, before + line, column), doc.ref) for before in source.starts[chunk])
            if known and not docs and inside is None:
                yield Place(file, 0, 0), known[0].doc.ref

    def _locate(self, chunk: Chunk, path: Path, inside: Inside | None) -> tuple[int, int] | None:
        if not chunk.lines:
            return (0, 0) if inside is None else None
        if chunk not in self._roots:
            if len(self._roots) >= _MOST_ROOTS:
                self._roots.clear()
            self._roots[chunk] = parse_nodes(chunk.text).root
        root = self._roots[chunk]
        if inside is not None:
            return None if root is None else locate_inside(chunk.text, root, path, inside)
        return locate(root, path) if root is not None else (1, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The resources in force, their problems, and the place of each field."""

    resources: Resources = _NOTHING
    findings: tuple[Finding, ...] = ()
    """By place."""
    ignored: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """How many documents of other kinds there are, by kind."""
    last_good: frozenset[Ref] = frozenset()
    """Resources whose last good version is in force instead of what their file says now."""
    held: tuple[Held, ...] = ()
    """Changes that loosen and wait until their files have been quiet for long enough, by file."""
    origins: Origins = field(default_factory=Origins, repr=False, compare=False)

    def place(self, ref: Ref, path: Path = ()) -> Place:
        """Return the place of a field, or of the nearest parent that exists."""
        return self._first(ref, path) or Place("", 0, 0)

    def finding(self, ref: Ref, problem: Problem) -> Finding:
        """Add the place of a problem: that of the field, or of the character in its expression.

        If the file writes the expression in a way that hides the character, the message says where it is.
        """
        if problem.inside is None:
            return Finding(self.place(ref, problem.path), ref, problem)
        exact = self._first(ref, problem.path, problem.inside)
        said = replace(problem, message=problem.words if exact is None else problem.message, inside=None)
        return Finding(exact or self.place(ref, problem.path), ref, said)

    def _first(self, ref: Ref, path: Path, inside: Inside | None = None) -> Place | None:
        found = self.origins.places(key_of(ref), path, inside=inside)
        return min(found, key=lambda each: (each[1] != ref, each[0]), default=(None, ref))[0]
