"""Keeps what files say, and the last good version of each resource.

A document with an error does not replace or remove what was in force before it: the last good version of its resource
stays. Where a file is so broken that it cannot be said which resource the broken part is, whatever the file declared
before and declares no more stays as well.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from weakref import WeakValueDictionary

from authplane.base.names import Ref
from authplane.resources.catalogue import POLICIES, TLS_POLICY, Resource
from authplane.resources.chunks import Chunk, is_error
from authplane.resources.documents import Finding
from authplane.resources.doubts import doubt_in, lost_files, lost_settings, unread_proxies, unread_tls_policies
from authplane.resources.findings import FileState, build_clashes, build_findings
from authplane.resources.loaded import Claim, Loaded, Origins, key_of
from authplane.resources.source import NO_SOURCE, Source, parse_source, unreadable_source
from authplane.resources.stencils import Stencils
from authplane.resources.tables import Tables

__all__ = ["Library", "Loaded"]


@dataclass(frozen=True, slots=True)
class _Good:
    """The version of a resource in force and the files that declared it last."""

    ref: Ref
    resource: Resource
    files: tuple[str, ...]


class Library:
    """A session over a changing set of files: tell it what changed, then ask for what is in force."""

    def __init__(self) -> None:
        self._chunks: WeakValueDictionary[str, Chunk] = WeakValueDictionary()
        self._stencils = Stencils()
        self._pending: dict[str, Source | None] = {}
        self._sources: dict[str, Source] = {}
        self._claims: dict[Ref, tuple[Claim, ...]] = {}
        self._good: dict[Ref, _Good] = {}
        self._orphans: dict[Ref, str] = {}
        """Resources that no document declares now and that stay because of a broken file."""
        self._orphans_of: dict[str, set[Ref]] = {}
        self._stale: set[Ref] = set()
        self._broken: dict[Ref, tuple[Ref, ...]] = {}
        self._controllers: dict[Ref, tuple[str, ...]] = {}
        self._shared_in: dict[str, set[Ref]] = {}
        """By file: resources that it and another document declare."""
        self._findings: dict[str, tuple[Finding, ...]] = {}
        self._ignored: Counter[str] = Counter()
        self._tables = Tables()
        self._loaded = Loaded()

    def changed(self, file: str, content: bytes) -> None:
        """Take the new content of a file."""
        self._pending[file] = parse_source(content, self._chunks, self._stencils)

    def unreadable(self, file: str, why: str) -> None:
        """Note that a file is there and cannot be read."""
        self._pending[file] = unreadable_source(why)

    def removed(self, file: str) -> None:
        """Forget a file and what it declared."""
        self._pending[file] = None

    def current(self) -> Loaded:
        """Return what is in force after all that was told; the changes since the last call count as one."""
        if self._pending:
            pending, self._pending = self._pending, {}
            touched = [file for file in pending if file in self._sources or pending[file] is not None]
            affected = set(touched)
            keys = self._declare(pending)
            for file in touched:
                keys |= self._orphans_of.get(file, set())
            before = [self._claims_files(key) for key in keys]
            for key in keys:
                self._settle(key)
            for key in keys:
                if key not in self._claims:
                    self._keep_or_drop(key)
            affected.update(*before)
            shared = {key for file in touched for key in self._shared_in.get(file, ())}
            affected.update(*map(self._claims_files, shared))
            self._explain(affected)
            self._loaded = self._snapshot()
        return self._loaded

    def _claims_files(self, key: Ref) -> tuple[str, ...]:
        good = self._good.get(key)
        return (*(claim.file for claim in self._claims.get(key, ())), *(good.files if good else ()))

    def _declare(self, pending: dict[str, Source | None]) -> set[Ref]:
        """Replace sources; return the keys whose declarations changed."""
        gone: dict[Ref, Counter[Claim]] = {}
        come: dict[Ref, list[Claim]] = {}
        for file, new in pending.items():
            old_chunks, new_chunks = _difference(self._sources.get(file, NO_SOURCE), new or NO_SOURCE)
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
            if new is None:
                self._sources.pop(file, None)
            else:
                self._sources[file] = new
        for key in gone.keys() | come.keys():
            self._redeclare(key, gone.get(key), come.get(key, ()))
        return gone.keys() | come.keys()

    def _redeclare(self, key: Ref, gone: Counter[Claim] | None, come: Iterable[Claim]) -> None:
        claims: list[Claim] = []
        old = self._claims.pop(key, ())
        for claim in old:
            if gone and gone[claim] > 0:
                gone[claim] -= 1
            else:
                claims.append(claim)
        claims.extend(come)
        if claims:
            self._claims[key] = tuple(claims)
        for claim in old if len(old) > 1 else ():
            self._shared_in.get(claim.file, set()).discard(key)
        for claim in claims if len(claims) > 1 else ():
            self._shared_in.setdefault(claim.file, set()).add(key)

    def _settle(self, key: Ref) -> None:
        """Decide which version of a declared resource is in force."""
        self._stale.discard(key)
        self._broken.pop(key, None)
        self._adopt(key)
        claims, good = self._claims.get(key), self._good.get(key)
        if claims is None:
            return
        files = tuple(dict.fromkeys(claim.file for claim in claims))
        resource = claims[0].doc.resource if len(claims) == 1 else None
        if resource is not None:
            self._controllers.pop(key, None)
            if claims[0].doc.controllers:
                self._controllers[key] = claims[0].doc.controllers
            self._enforce(key, _Good(claims[0].doc.ref, resource, files))
        elif good is not None:
            self._good[key] = _Good(good.ref, good.resource, files)
            self._stale.add(key)
        else:
            self._broken[key] = tuple(dict.fromkeys(claim.doc.ref for claim in claims))

    def _enforce(self, key: Ref, new: _Good) -> None:
        old = self._good.get(key)
        if old is not None and old.resource == new.resource:
            # The same object, so that what was built from it is known to be up to date.
            self._good[key] = _Good(new.ref, old.resource, new.files)
            return
        if old is not None and (old.ref != new.ref or type(old.resource) is not type(new.resource)):
            self._tables.drop(old.resource)
        self._tables.put(new.resource)
        self._good[key] = new

    def _keep_or_drop(self, key: Ref) -> None:
        """Decide on a resource that no document declares any more."""
        good = self._good.get(key)
        if good is None:
            return
        holder = next((file for file in good.files if self._doubtful(file)), None)
        if holder is None:
            del self._good[key]
            self._controllers.pop(key, None)
            self._tables.drop(good.resource)
            return
        self._stale.add(key)
        self._orphans[key] = holder
        self._orphans_of.setdefault(holder, set()).add(key)

    def _adopt(self, key: Ref) -> None:
        holder = self._orphans.pop(key, None)
        if holder is not None:
            self._orphans_of[holder].discard(key)

    def _doubtful(self, file: str) -> bool:
        """Tell whether a broken part of the file may be a resource that seems to be gone."""
        source = self._sources.get(file)
        if source is None:
            return False
        return (
            source.damage is not None
            or source.blank
            or any(
                any(map(is_error, chunk.spots))
                or any(doc.resource is None and key_of(doc.ref) in self._broken for doc in chunk.docs)
                for chunk, _ in source.faulty
            )
        )

    def _explain(self, files: set[str]) -> None:
        """Write the findings of files anew."""
        origins = Origins(self._sources, self._claims)
        shared = {key for file in files for key in self._shared_in.get(file, ())}
        clashes = build_clashes({key: origins.places(key, ("metadata", "name")) for key in shared})
        for file in files:
            self._findings.pop(file, None)
            source = self._sources.get(file)
            if source is None:
                self._shared_in.pop(file, None)
                continue
            if source.sound and file not in clashes:
                continue
            state = FileState(
                file=file,
                source=source,
                stale=self._stale,
                kept=len(self._orphans_of.get(file, ())),
                clashes=clashes.get(file, ()),
            )
            found = build_findings(state)
            if found:
                self._findings[file] = found

    def _broken_policies(self, kinds: Collection[str]) -> Mapping[Ref, tuple[Ref, ...] | None]:
        """Return what the policies without any good version were meant to protect."""
        targets: dict[Ref, tuple[Ref, ...] | None] = {}
        for claim in (claim for key in self._broken if key.kind in kinds for claim in self._claims[key]):
            known = targets.get(claim.doc.ref, ())
            more = claim.doc.protects
            targets[claim.doc.ref] = None if known is None or more is None else tuple(dict.fromkeys((*known, *more)))
        return MappingProxyType(targets)

    def _snapshot(self) -> Loaded:
        broken = frozenset(ref for refs in self._broken.values() for ref in refs)
        ignored = {kind: count for kind, count in sorted(self._ignored.items()) if count > 0}
        holders = set(self._orphans.values())
        broken |= lost_settings(self._sources, self._good.keys() | self._broken.keys())
        broken |= lost_files(self._sources, holders)
        resources = self._tables.resources(
            broken,
            self._broken_policies(POLICIES),
            MappingProxyType({**self._broken_policies({TLS_POLICY}), **unread_tls_policies(self._sources, holders)}),
            MappingProxyType(dict(self._controllers)),
            doubt_in(self._sources, holders),
        )
        docs = (claim.doc for key in self._broken for claim in self._claims[key])
        return Loaded(
            resources=replace(resources, unread_proxies=unread_proxies(docs, self._sources, holders)),
            findings=tuple(finding for file in sorted(self._findings) for finding in self._findings[file]),
            ignored=MappingProxyType(ignored),
            last_good=frozenset(self._good[key].ref for key in self._stale),
            origins=Origins(
                MappingProxyType(dict(self._sources)),
                MappingProxyType(dict(self._claims)),
                MappingProxyType(dict(self._orphans)),
            ),
        )


def _difference(old: Source, new: Source) -> tuple[tuple[Chunk, ...], tuple[Chunk, ...]]:
    """Return the documents of both without those that are the same at the beginning and at the end."""
    first, last, shortest = 0, 0, min(len(old.chunks), len(new.chunks))
    while first < shortest and old.chunks[first] is new.chunks[first]:
        first += 1
    while last < shortest - first and old.chunks[-1 - last] is new.chunks[-1 - last]:
        last += 1
    return old.chunks[first : len(old.chunks) - last], new.chunks[first : len(new.chunks) - last]
