"""Decides which new versions of files come into force.

A file comes into force whole or not at all. It does not while one of its documents has an error, while another file
declares one of its resources, and, for a time, while it would remove protection. Files of one unit come into force
together.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import field
from typing import NamedTuple

from authplane.core.names import Ref
from authplane.core.values import dataclass
from authplane.resources.catalogue import Resource
from authplane.resources.document_chunks import Chunk
from authplane.resources.document_keys import key_of
from authplane.resources.file_documents import NO_SOURCE, Source
from authplane.resources.loaded_resources import Claim
from authplane.sources.loosening import LooseningContext, loosening


@dataclass(frozen=True, slots=True, kw_only=True)
class InForce:
    """What is in force, as far as new versions are measured by it."""

    sources: Mapping[str, Source]
    claims: Mapping[Ref, tuple[Claim, ...]]
    good: Callable[[Ref], Resource | None]
    broken: Container[Ref]
    """Resources that are known to exist and of which no version was ever good."""
    units: Mapping[str, str]
    """The unit of each file that belongs to one."""
    around: LooseningContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """The newest versions of files that are not in force; None is a file that is gone."""

    versions: Mapping[str, Source | None]
    fresh: Container[str]
    """Files that changed a moment ago: what they take away stays for now."""
    lenient: Container[str] = frozenset()
    """Files of which no good version was ever known: one with errors is used as far as it can be."""
    moved: Mapping[str, str] = field(default_factory=dict)
    """Files that are gone, and the file with errors that each may have become."""


class Waiting(NamedTuple):
    """Why the newest version of a file is not in force."""

    why: str
    loosens: bool = False
    """There is nothing wrong with it: it waits for its time."""
    clashes: frozenset[Ref] = frozenset()
    """What it declares and another document declares too."""


class Admission(NamedTuple):
    """Which versions come into force now, and why the others do not."""

    versions: Mapping[str, Source | None]
    waiting: Mapping[str, Waiting]


def admit(arrived: Arrived, in_force: InForce) -> Admission:
    """Choose the versions that come into force; together they are what is in force next."""
    refused = {
        file: Waiting(why) for file, new in arrived.versions.items() if (why := _unfit(file, new, arrived, in_force))
    }
    deltas: dict[str, _Delta] = {}
    while True:
        _spread(refused, arrived, in_force)
        fit = {file: new for file, new in arrived.versions.items() if file not in refused}
        for file, new in fit.items():
            if file not in deltas:
                deltas[file] = _delta(file, in_force.sources.get(file, NO_SOURCE), new or NO_SOURCE)
        more = _Round(arrived, in_force, {file: deltas[file] for file in fit}, refused).refusals()
        if not more:
            return Admission(fit, refused)
        refused |= more


def difference(old: Source, new: Source) -> tuple[tuple[Chunk, ...], tuple[Chunk, ...]]:
    """Return the documents of both without those that are the same at the beginning and at the end."""
    first, last, shortest = 0, 0, min(len(old.chunks), len(new.chunks))
    while first < shortest and old.chunks[first] is new.chunks[first]:
        first += 1
    while last < shortest - first and old.chunks[-1 - last] is new.chunks[-1 - last]:
        last += 1
    return old.chunks[first : len(old.chunks) - last], new.chunks[first : len(new.chunks) - last]


def _unfit(file: str, new: Source | None, arrived: Arrived, in_force: InForce) -> str:
    """Say what is wrong with a version by itself."""
    before = in_force.sources.get(file)
    if new is None:
        return f"it may have moved to {arrived.moved[file]}" if file in arrived.moved else ""
    if new.blank:
        return "it is empty" if before is not None and (before.names or before.nameless) else ""
    if new.usable or (before is None and file in arrived.lenient):
        return ""
    return "it has errors"


def _spread(refused: dict[str, Waiting], arrived: Arrived, in_force: InForce) -> None:
    """Refuse the other files of the units of which a file is refused."""
    units = {in_force.units[file]: waiting for file, waiting in refused.items() if file in in_force.units}
    if units:
        for file in arrived.versions:
            waiting = units.get(in_force.units.get(file, ""))
            if waiting is not None and file not in refused:
                refused[file] = Waiting(waiting.why, waiting.loosens)


class _Delta(NamedTuple):
    """The documents by which two versions of a file differ, by resource."""

    gone: Mapping[Ref, list[Claim]]
    come: Mapping[Ref, list[Claim]]


def _delta(file: str, old: Source, new: Source) -> _Delta:
    found: tuple[dict[Ref, list[Claim]], dict[Ref, list[Claim]]] = ({}, {})
    for chunks, by_key in zip(difference(old, new), found, strict=True):
        for chunk in chunks:
            for doc in chunk.docs:
                by_key.setdefault(key_of(doc.ref), []).append(Claim(file, chunk, doc))
    return _Delta(*found)


class _Round:
    """Looks at versions together: which of them cannot come into force if all the others do."""

    def __init__(
        self, arrived: Arrived, in_force: InForce, deltas: Mapping[str, _Delta], refused: Mapping[str, Waiting]
    ) -> None:
        self._arrived = arrived
        self._in_force = in_force
        self._deltas = deltas
        self._waiting_names = frozenset[Ref]().union(
            *(new.names for file in refused if (new := arrived.versions[file]) is not None)
        )
        self._files: dict[Ref, list[str]] = {}
        for file, delta in deltas.items():
            for key in delta.gone.keys() | delta.come.keys():
                self._files.setdefault(key, []).append(file)

    def refusals(self) -> dict[str, Waiting]:
        """Say which versions are refused, and why."""
        found: dict[str, Waiting] = {}
        for file in self._deltas:
            if file in self._arrived.fresh and self._unreadable_goes(file):
                found[file] = Waiting("a document that cannot be read is removed", loosens=True)
        for key, files in self._files.items():
            for file, waiting in self._judged(key, files):
                known = found.get(file)
                found[file] = waiting._replace(clashes=waiting.clashes | (known.clashes if known else frozenset()))
        return found

    def _unreadable_goes(self, file: str) -> bool:
        before = self._in_force.sources.get(file)
        return self._arrived.versions[file] is None and before is not None and before.nameless

    def _judged(self, key: Ref, files: list[str]) -> Iterator[tuple[str, Waiting]]:
        claims = self._in_force.claims.get(key, ())
        gone = [claim for file in files for claim in self._deltas[file].gone.get(key, ())]
        come = [claim for file in files for claim in self._deltas[file].come.get(key, ())]
        total, name = len(claims) - len(gone) + len(come), (*come, *gone)[0].doc.ref
        if total > 1:
            more = [file for file in files if self._added(key, file) > 0]
            yield from ((file, Waiting(f"{name} is declared twice", clashes=frozenset({key}))) for file in more)
        elif total == 0 and key in self._waiting_names:
            yield from ((file, Waiting(f"{name} is in another file that is not in force")) for file in files)
        elif any(file in self._arrived.fresh for file in files):
            left = Counter(claims)
            left.subtract(gone)
            new = next((claim.doc.resource for claim in (*come, *left.elements())), None)
            why = self._loosens(key, new, removed=total == 0)
            if why:
                yield from ((file, Waiting(f"{name} {why}", loosens=True)) for file in files)

    def _added(self, key: Ref, file: str) -> int:
        delta = self._deltas[file]
        return len(delta.come.get(key, ())) - len(delta.gone.get(key, ()))

    def _loosens(self, key: Ref, new: Resource | None, *, removed: bool) -> str:
        if removed and key in self._in_force.broken:
            return "has errors and is removed"
        return loosening(self._in_force.good(key), new, self._in_force.around)
