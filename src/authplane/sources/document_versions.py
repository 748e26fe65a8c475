"""Keeps the versions of files, and which of them are in force.

Each file is in force whole or not at all: if it has an error, its last good version stays in force, and a new file with
an error changes nothing. Only at the first start, when there is no good version, the valid parts of a file with errors
are used, and its invalid parts are known to be invalid.
"""

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final
from weakref import WeakValueDictionary

from authplane.core.names import Ref
from authplane.core.values import dataclass
from authplane.resources.catalogue import POLICIES, TLS_POLICY, Resource
from authplane.resources.document_chunks import Chunk
from authplane.resources.document_keys import key_of
from authplane.resources.documents import Finding, StoredAncestor
from authplane.resources.file_documents import NO_SOURCE, Source, parse_source, source_of, unreadable_source
from authplane.resources.file_findings import FileState, build_clashes, build_findings
from authplane.resources.kinds.configuration import AuthplaneConfiguration
from authplane.resources.loaded_resources import Claim, Held, Loaded, Origins
from authplane.resources.resource_tables import Tables
from authplane.resources.stencils import Stencils
from authplane.sources.admission import Admission, Arrived, InForce, Waiting, admit, difference
from authplane.sources.loosening import LooseningContext, exempts
from authplane.sources.unreadable_policies import (
    doubt_in,
    lost_files,
    lost_settings,
    unread_proxies,
    unread_tls_policies,
)

__all__ = ["Library", "Loaded"]

_SETTINGS: Final = Ref("AuthplaneConfiguration", "", "")


@dataclass(frozen=True, slots=True)
class _Good:
    """The version of a resource in force."""

    ref: Ref
    resource: Resource


class Library:
    """A session over a changing set of files: report what changed, then read what is in force.

    ``demand`` is the source's requirement of all documents together; it returns what is then in force. ``again`` reads
    a document that was in force before. With ``at_once``, `current` settles reported changes; otherwise only `settle`
    does.
    """

    def __init__(
        self,
        demand: Callable[[Loaded], Loaded] = lambda loaded: loaded,
        again: Callable[[str], Source] | None = None,
        *,
        at_once: bool = True,
    ) -> None:
        self._at_once = at_once
        self._demand = demand
        self._again = again
        self._chunks: WeakValueDictionary[str, Chunk] = WeakValueDictionary()
        self._stencils = Stencils()
        self._pending: dict[str, Source | None] = {}
        self._started = False
        self._said: dict[str, Source] = {}
        """What files say now."""
        self._sources: dict[str, Source] = {}
        """What of it, or of what they said before, is in force."""
        self._faulty: set[str] = set()
        """Files with errors that are in force, since no version of them was ever good."""
        self._waiting: Mapping[str, Waiting] = {}
        """The files whose newest version is not in force."""
        self._moved: dict[str, str] = {}
        """Files that went when a file with errors came, which may be the same."""
        self._lenient: set[str] = set()
        """Files that were broken when last good versions were kept, and of which none is known."""
        self._unsaved: set[str] = set()
        """Files whose version in force has changed since the last call of `unsaved`."""
        self._units: dict[str, str] = {}
        self._claims: dict[Ref, tuple[Claim, ...]] = {}
        self._good: dict[Ref, _Good] = {}
        self._exempting: set[Ref] = set()
        self._broken: dict[Ref, tuple[Ref, ...]] = {}
        self._ancestors: dict[Ref, tuple[StoredAncestor, ...]] = {}
        self._shared: set[Ref] = set()
        """Resources that several documents in force declare."""
        self._clashing: frozenset[str] = frozenset()
        self._findings: dict[str, tuple[Finding, ...]] = {}
        self._ignored: Counter[str] = Counter()
        self._tables = Tables()
        self._loaded = Loaded()

    def restore(self, versions: Mapping[str, Iterable[tuple[int, str]] | None]) -> None:
        """Start with what was in force before; None means that no version of the file was ever good."""
        found = {file: self._read_again(pieces) for file, pieces in versions.items() if pieces is not None}
        # What another release of this program could use, and this one cannot, is no good version.
        usable = {file: source for file, source in found.items() if source.usable}
        self._lenient = {file for file in versions if file not in usable}
        self._started = True
        self._said.update(usable)
        for key in self._declare(usable):
            self._settle(key)
        self._unsaved = set()
        self._loaded = self._demand(self._snapshot())

    def _read_again(self, pieces: Iterable[tuple[int, str]]) -> Source:
        if self._again is None:
            return source_of(pieces, self._chunks, self._stencils)
        [(_, text)] = pieces
        return self._again(text)

    def unsaved(self) -> Mapping[str, Source | None]:
        """Return the files whose version in force has changed since the last call; None means that the file is gone."""
        files, self._unsaved = self._unsaved, set()
        return {file: self._sources.get(file) for file in files}

    def in_force(self) -> Mapping[str, Source | None]:
        """Return the version in force of every file."""
        self._unsaved = set()
        return dict(self._sources)

    def changed(self, file: str, content: bytes, unit: str = "") -> None:
        """Take the new content of a file; files of one ``unit`` come into force together."""
        self._tell(file, parse_source(content, self._chunks, self._stencils), unit)

    def replaced(self, file: str, source: Source) -> None:
        """Take the new content of a file that has been read."""
        self._tell(file, source, "")

    def unreadable(self, file: str, why: str, unit: str = "") -> None:
        """Note that a file is there and cannot be read."""
        self._tell(file, unreadable_source(why), unit)

    def removed(self, file: str, unit: str = "") -> None:
        """Forget a file and what it declared, together with what becomes of its unit."""
        self._pending[file] = None
        if unit:
            self._units[file] = unit

    def _tell(self, file: str, source: Source, unit: str) -> None:
        self._pending[file] = source
        self._units.pop(file, None)
        if unit:
            self._units[file] = unit

    def current(self) -> Loaded:
        """Return what is in force after all reported changes; the changes since the last call count as one."""
        if self._pending and self._at_once:
            self.settle()
        return self._loaded

    def said(self, file: str) -> Source | None:
        """Return what a file says now, in force or not."""
        return self._said.get(file)

    def reconsider(self) -> None:
        """Demand again what is demanded of all documents together."""
        self._loaded = self._demand(self._snapshot())

    def settle(self, fresh: Container[str] = frozenset()) -> bool:
        """Put into force what can be; tell whether anything is another now.

        What the ``fresh`` files take away that protects stays in force for now.
        """
        pending, self._pending = self._pending, {}
        touched = {file for file in pending if file in self._said or pending[file] is not None}
        for file, source in pending.items():
            if source is None:
                self._said.pop(file, None)
                if file in self._lenient:
                    self._lenient.discard(file)
                    self._unsaved.add(file)
            else:
                self._said[file] = source
        before = self._waiting
        arrived = {file: self._said.get(file) for file in (*before, *sorted(touched))}
        if not arrived:
            return False
        admitted, self._waiting = self._admit(arrived, touched, fresh)
        self._started = True
        keys = self._declare(admitted)
        for key in keys:
            self._settle(key)
        if not touched and not keys and self._waiting == before:
            return False
        self._explain(touched | admitted.keys() | before.keys() | self._waiting.keys())
        self._loaded = self._demand(self._snapshot())
        return True

    def _admit(
        self, arrived: Mapping[str, Source | None], touched: Collection[str], fresh: Container[str]
    ) -> Admission:
        if not self._started:
            # Nothing was ever good: what cannot be used counts as broken, and closes what it may protect.
            return Admission(arrived, {})
        self._note_moves(arrived, touched)
        configuration = self._resource(_SETTINGS)
        around = LooseningContext(
            exempts=bool(self._exempting),
            any_policy=isinstance(configuration, AuthplaneConfiguration)
            and configuration.spec.policy_composition == "Any",
        )
        in_force = InForce(
            sources=self._sources,
            claims=self._claims,
            good=self._resource,
            broken=self._broken,
            units=self._units,
            around=around,
        )
        return admit(Arrived(versions=arrived, fresh=fresh, lenient=self._lenient, moved=self._moved), in_force)

    def _resource(self, key: Ref) -> Resource | None:
        good = self._good.get(key)
        return good.resource if good else None

    def _note_moves(self, arrived: Mapping[str, Source | None], touched: Collection[str]) -> None:
        """Note which files may have been renamed to one that cannot be read."""

        def lost(file: str) -> bool:
            source = self._said.get(file)
            return source is not None and source.nameless and file not in self._sources

        self._moved = {file: into for file, into in self._moved.items() if file not in self._said and lost(into)}
        into = next((file for file in sorted(touched) if lost(file)), None)
        if into is not None:
            self._moved |= {file: into for file in touched if arrived[file] is None and file in self._sources}

    def _declare(self, admitted: Mapping[str, Source | None]) -> set[Ref]:
        """Put versions into force; return the keys whose declarations changed."""
        gone: dict[Ref, Counter[Claim]] = {}
        come: dict[Ref, list[Claim]] = {}
        self._unsaved |= admitted.keys()
        for file, new in admitted.items():
            old_chunks, new_chunks = difference(self._sources.get(file, NO_SOURCE), new or NO_SOURCE)
            for chunk in old_chunks:
                if chunk.ignored:
                    self._ignored.subtract(chunk.ignored)
                for doc in chunk.docs:
                    gone.setdefault(key_of(doc.ref), Counter())[Claim(file, chunk, doc)] += 1
            for chunk in new_chunks:
                if chunk.ignored:
                    self._ignored.update(chunk.ignored)
                for doc in chunk.docs:
                    come.setdefault(key_of(doc.ref), []).append(Claim(file, chunk, doc))
            self._take(file, new)
        for key in gone.keys() | come.keys():
            self._redeclare(key, gone.get(key), come.get(key, ()))
        return gone.keys() | come.keys()

    def _take(self, file: str, new: Source | None) -> None:
        self._faulty.discard(file)
        if new is None:
            self._sources.pop(file, None)
            self._units.pop(file, None)
        else:
            self._sources[file] = new
            if not new.usable:
                self._faulty.add(file)

    def _redeclare(self, key: Ref, gone: Counter[Claim] | None, come: Iterable[Claim]) -> None:
        claims: list[Claim] = []
        for claim in self._claims.pop(key, ()):
            if gone and gone[claim] > 0:
                gone[claim] -= 1
            else:
                claims.append(claim)
        claims.extend(come)
        if claims:
            self._claims[key] = tuple(claims)
        (self._shared.add if len(claims) > 1 else self._shared.discard)(key)

    def _settle(self, key: Ref) -> None:
        """Decide which version of a resource is in force."""
        self._broken.pop(key, None)
        claims = self._claims.get(key)
        if claims is None:
            self._drop(key)
            return
        resource = claims[0].doc.resource if len(claims) == 1 else None
        if resource is None:
            # This is so since the first start; a later version would have to be good.
            self._drop(key)
            self._broken[key] = tuple(dict.fromkeys(claim.doc.ref for claim in claims))
            return
        self._ancestors.pop(key, None)
        if claims[0].doc.ancestors:
            self._ancestors[key] = claims[0].doc.ancestors
        self._enforce(key, _Good(claims[0].doc.ref, resource))

    def _drop(self, key: Ref) -> None:
        good = self._good.pop(key, None)
        if good is not None:
            self._exempting.discard(key)
            self._ancestors.pop(key, None)
            self._tables.drop(good.resource)

    def _enforce(self, key: Ref, new: _Good) -> None:
        old = self._good.get(key)
        if old is not None and old.resource == new.resource:
            # The same object, so that what was built from it is known to be up to date.
            self._good[key] = _Good(new.ref, old.resource)
            return
        if old is not None and (old.ref != new.ref or type(old.resource) is not type(new.resource)):
            self._tables.drop(old.resource)
        (self._exempting.add if exempts(new.resource) else self._exempting.discard)(key)
        self._tables.put(new.resource)
        self._good[key] = new

    def _explain(self, files: set[str]) -> None:
        """Write the findings of files anew."""
        origins = Origins(self._said, self._claims)
        refused = {key: set[str]() for key in self._shared}
        for file, waiting in self._waiting.items():
            for key in waiting.clashes:
                refused.setdefault(key, set()).add(file)
        clashes = build_clashes(
            {key: origins.places(key, ("metadata", "name"), sorted(more)) for key, more in refused.items()}
        )
        concerned, self._clashing = files | self._clashing | clashes.keys(), frozenset(clashes)
        for file in concerned:
            self._findings.pop(file, None)
            source = self._said.get(file)
            if source is None or (source.sound and file not in clashes):
                continue
            state = FileState(
                file=file,
                source=source,
                good=self._good,
                waits=file in self._waiting,
                known=file in self._sources,
                clashes=clashes.get(file, ()),
            )
            found = build_findings(state)
            if found:
                self._findings[file] = found

    def _stale(self) -> frozenset[Ref]:
        """Return the resources in force of which a file with a mistake says something else now."""
        found: set[Ref] = set()
        for file, waiting in self._waiting.items():
            if not waiting.loosens:
                old, new = self._sources.get(file, NO_SOURCE), self._said.get(file, NO_SOURCE)
                changed = set(old.chunks) ^ set(new.chunks)
                found |= {key_of(doc.ref) for chunk in changed for doc in chunk.docs}
        return frozenset(self._good[key].ref for key in found if key in self._good)

    def _broken_policies(self, kinds: Collection[str]) -> Mapping[Ref, tuple[Ref, ...] | None]:
        """Return what the policies without any good version were meant to protect."""
        targets: dict[Ref, tuple[Ref, ...] | None] = {}
        for claim in (claim for key in self._broken if key.kind in kinds for claim in self._claims[key]):
            known = targets.get(claim.doc.ref, ())
            more = claim.doc.protects
            targets[claim.doc.ref] = None if known is None or more is None else tuple(dict.fromkeys((*known, *more)))
        return MappingProxyType(targets)

    def _snapshot(self) -> Loaded:
        faulty = {file: self._sources[file] for file in sorted(self._faulty)}
        broken = frozenset(ref for refs in self._broken.values() for ref in refs)
        ignored = {kind: count for kind, count in sorted(self._ignored.items()) if count > 0}
        broken |= lost_settings(faulty, self._good.keys() | self._broken.keys())
        broken |= lost_files(faulty)
        resources = self._tables.resources(
            broken,
            self._broken_policies(POLICIES),
            MappingProxyType({**self._broken_policies({TLS_POLICY}), **unread_tls_policies(faulty)}),
            MappingProxyType(dict(self._ancestors)),
            doubt_in(faulty),
        )
        docs = (claim.doc for key in self._broken for claim in self._claims[key])
        return Loaded(
            resources=replace(resources, unread_proxies=unread_proxies(docs, faulty)),
            findings=tuple(finding for file in sorted(self._findings) for finding in self._findings[file]),
            ignored=MappingProxyType(ignored),
            last_good=self._stale(),
            held=tuple(Held(file, each.why) for file, each in sorted(self._waiting.items()) if each.loosens),
            origins=Origins(MappingProxyType(dict(self._said)), MappingProxyType(dict(self._claims))),
        )
