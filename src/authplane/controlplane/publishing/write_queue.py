"""Which statuses are to be written next, as a session without I/O: the newest status of each object counts."""

from collections.abc import Container, Iterable
from typing import Final

from authplane.controlplane.status.kubernetes.status_writes import awaits_proxies, differs_while_waiting
from authplane.controlplane.status.kubernetes.stored_objects import StoredObject, StoredObjects
from authplane.controlplane.status.resource_status import Status
from authplane.core.names import Ref

PATIENCE: Final = 10.0
"""Seconds in which proxies may answer, or reconnect after a restart, before a status says that they have not."""


class WriteQueue:
    """The wanted statuses, and which objects may have another."""

    def __init__(self, objects: StoredObjects) -> None:
        self._objects = objects
        self._wanted: dict[Ref, Status] = {}
        self._done: dict[Ref, tuple[Status, str]] = {}
        """The status that an object has, and the version of the object."""
        self._waiting: dict[Ref, None] = {}
        self._busy: set[Ref] = set()
        self._unanswered: dict[Ref, float] = {}
        """Since when the status of an object depends on proxies that have not answered."""
        self._overdue: set[Ref] = set()
        """Those of them whose proxies have had their time."""
        self._leaving: set[Ref] = set()
        """Objects that still exist and are not ours any more, such as those that got another class."""
        self._written: dict[Ref, tuple[StoredObject, frozenset[str]]] = {}
        """What we wrote, and the versions before it: what was seen of an object may be older than that."""

    def __contains__(self, ref: Ref) -> bool:
        return ref in self._wanted or ref in self._leaving

    def __len__(self) -> int:
        return len(self._waiting) + len(self._busy)

    def offer(self, statuses: Iterable[Status], now: float) -> None:
        """Take the statuses of all objects."""
        before, self._wanted = self._wanted, {each.ref: each for each in statuses}
        self._leave(before.keys() - self._wanted.keys())
        for known in (self._done, self._unanswered, self._written):
            for ref in [ref for ref in known if ref not in self._wanted]:
                del known[ref]
        self._overdue &= self._wanted.keys()
        for ref, status in self._wanted.items():
            if awaits_proxies(status):
                self._unanswered.setdefault(ref, now)
            else:
                self._unanswered.pop(ref, None)
                self._overdue.discard(ref)
            self._mark(ref, status, patient=self.patient(ref, now))
        self.revise(now)

    def _leave(self, refs: Iterable[Ref]) -> None:
        self._leaving = {
            ref for ref in (*self._leaving, *refs) if ref not in self._wanted and self._objects.version(ref)
        }
        self._waiting |= dict.fromkeys(self._leaving)

    def leaves(self, ref: Ref) -> bool:
        """Tell whether our status must be withdrawn from an object."""
        return ref in self._leaving

    def left(self, ref: Ref) -> None:
        """Note that an object has nothing of ours any more."""
        self._leaving.discard(ref)

    def seen(self, ref: Ref) -> None:
        """Note that the API server has another version of an object."""
        status = self._wanted.get(ref)
        if status is not None:
            self._mark(ref, status)

    def revise(self, now: float) -> None:
        """Put objects back into the queue whose proxies have had their time."""
        for ref, since in self._unanswered.items():
            if now >= since + PATIENCE and ref not in self._overdue:
                self._overdue.add(ref)
                self._waiting[ref] = None

    def due(self) -> float | None:
        """Return when to `revise` next; None if nothing waits for proxies."""
        waiting = (since for ref, since in self._unanswered.items() if ref not in self._overdue)
        return min((since + PATIENCE for since in waiting), default=None)

    def start_again(self, now: float) -> None:
        """Look at every object anew, since another replica may have written; proxies get their time again."""
        self._done.clear()
        self._written.clear()
        self._overdue.clear()
        self._unanswered = dict.fromkeys(self._unanswered, now)
        self._waiting = dict.fromkeys(self._wanted)

    def _mark(self, ref: Ref, status: Status, *, patient: bool = False) -> None:
        known = self._done.get(ref)
        stored = self._written.get(ref)
        version = self._objects.version(ref)
        if stored is not None and version in stored[1]:
            version = stored[0].resource_version
        if (
            known is None
            or known[1] != version
            or (differs_while_waiting(known[0], status) if patient else known[0] != status)
        ):
            self._waiting[ref] = None

    def take(self) -> Ref | None:
        """Return the next object to look at; `finish` must follow. None if there is none at the moment."""
        for ref in self._waiting:
            if ref not in self._busy:
                del self._waiting[ref]
                self._busy.add(ref)
                return ref
        return None

    def finish(self, ref: Ref) -> None:
        """Note that nothing is done about an object any more."""
        self._busy.discard(ref)

    def again(self, ref: Ref) -> None:
        """Put an object back into the queue, as far as there is something to do about it."""
        if ref in self:
            self._waiting[ref] = None

    def wanted(self, ref: Ref) -> Status | None:
        """Return the newest status of an object."""
        return self._wanted.get(ref)

    def known(self) -> Container[Ref]:
        """Return all objects with a status."""
        return self._wanted.keys()

    def patient(self, ref: Ref, now: float) -> bool:
        """Tell whether proxies may still answer about an object."""
        since = self._unanswered.get(ref)
        return since is not None and now < since + PATIENCE

    def stored(self, ref: Ref) -> StoredObject | None:
        """Return the newest known version of an object: what we wrote, until something newer is seen."""
        found = self._written.get(ref)
        if found is not None and self._objects.version(ref) in found[1]:
            return found[0]
        self._written.pop(ref, None)
        return self._objects.find(ref)

    def seen_version(self, ref: Ref) -> str:
        """Return the version of an object that was seen last."""
        return self._objects.version(ref)

    def wrote(self, status: Status, before: StoredObject, after: StoredObject, seen: str) -> None:
        """Take what the API server made of a write; ``seen`` is the version that was seen last when the write began.

        A version that was seen while the write was on its way may be newer than the write.
        """
        ref = status.ref
        known = self._written.get(ref)
        earlier = {before.resource_version, seen, *(known[1] if known else ())}
        self._written[ref] = (after, frozenset(earlier))
        self._done[ref] = (status, after.resource_version)

    def has(self, status: Status, stored: StoredObject) -> None:
        """Note that an object has the status that it should have."""
        self._done[status.ref] = (status, stored.resource_version)
