"""An API server as a model: objects of one kind, their history, and every fault that a real one has."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from authplane.core.names import ObjectName
from authplane.sources.kubernetes.reflector import Reflector
from authplane.sources.kubernetes.reflector_steps import Change, Discover, FetchPage, Gone, OpenWatch, Pause, Put


@dataclass
class ModelServer:
    random: Random
    streaming: bool = True
    objects: dict[ObjectName, dict[str, Any]] = field(default_factory=dict)
    history: list[tuple[int, str, dict[str, Any]]] = field(default_factory=list)
    revision: int = 100
    oldest: int = 0
    """Changes up to this revision are forgotten."""
    forbidden: bool = False
    absent: bool = False
    snapshots: dict[str, tuple[int, list[dict[str, Any]]]] = field(default_factory=dict)

    def change(self) -> None:
        """Create, change or delete some object."""
        name = ObjectName("ns", f"o{self.random.randrange(8)}")
        self.revision += 1
        if name in self.objects and self.random.random() < 0.5:
            gone = {**self.objects.pop(name), "metadata": self._meta(name)}
            self.history.append((self.revision, "DELETED", gone))
        else:
            kind = "MODIFIED" if name in self.objects else "ADDED"
            made = {"metadata": self._meta(name), "spec": {"n": self.revision}}
            self.objects[name] = made
            self.history.append((self.revision, kind, made))

    def compact(self) -> None:
        """Forget the history, and the snapshots of lists that are being read."""
        self.oldest = self.revision
        self.snapshots.clear()

    def _meta(self, name: ObjectName) -> dict[str, str]:
        return {"namespace": name.namespace, "name": name.name, "resourceVersion": str(self.revision)}

    def list(self, query: dict[str, str]) -> tuple[int, bytes]:
        token = query.get("continue", "")
        if token and token.split("/")[0] not in self.snapshots:
            return 410, b'{"kind": "Status", "code": 410, "reason": "Expired"}'
        if token:
            key, start = token.split("/")[0], int(token.split("/")[1])
        else:
            key, start = str(self.revision), 0
            self.snapshots[key] = (self.revision, [self.objects[name] for name in sorted(self.objects)])
        revision, items = self.snapshots[key]
        limit = int(query.get("limit") or "0") or len(items)
        rest = f"{key}/{start + limit}" if start + limit < len(items) else ""
        meta = {"resourceVersion": str(revision), "continue": rest}
        return 200, json.dumps({"apiVersion": "v1", "metadata": meta, "items": items[start : start + limit]}).encode()

    def watch(self, query: dict[str, str]) -> tuple[int, Iterator[bytes]]:
        if "sendInitialEvents" in query:
            return (200, self._stream()) if self.streaming else (422, iter(()))
        since = int(query["resourceVersion"])
        if since < self.oldest and self.random.random() < 0.5:
            return 410, iter(())
        return 200, self._events(since)

    def _stream(self) -> Iterator[bytes]:
        start = self.revision
        for made in [self.objects[name] for name in sorted(self.objects)]:
            yield _line("ADDED", made)
        annotations = {"k8s.io/initial-events-end": "true"}
        yield _line("BOOKMARK", {"metadata": {"resourceVersion": str(start), "annotations": annotations}})
        yield from self._events(start)

    def _events(self, since: int) -> Iterator[bytes]:
        while True:
            if since < self.oldest:
                yield _line("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"})
                return
            later = [each for each in self.history if each[0] > since]
            if not later:
                if self.random.random() < 0.5:
                    yield _line("BOOKMARK", {"metadata": {"resourceVersion": str(self.revision)}})
                return
            since, kind, made = later[0]
            yield _line(kind, made)


def _line(kind: str, thing: object) -> bytes:
    return json.dumps({"type": kind, "object": thing}).encode()


@dataclass
class Follower:
    """Performs the steps of a reflector against the model, and keeps what it says."""

    reflector: Reflector
    server: ModelServer
    random: Random
    faults: bool = True
    now: float = 0.0
    store: dict[ObjectName, dict[str, Any]] = field(default_factory=dict)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self._mischief()
            self._step()

    def _mischief(self) -> None:
        if not self.faults:
            return
        for _ in range(self.random.randrange(3)):
            self.server.change()
        if self.random.random() < 0.2:
            self.server.compact()
        self.server.forbidden = self.random.random() < 0.1
        self.server.absent = self.random.random() < 0.1

    def _step(self) -> None:
        match self.reflector.step(self.now, self.random.random()):
            case Pause(until):
                assert until > self.now
                self.now = until
            case Discover():
                self._take(self.reflector.discovered(200, b'{"resources": [{"name": "things"}]}', self.now, 0.5))
            case FetchPage(query=query):
                self._fetch(dict(query))
            case OpenWatch(query=query):
                self._watch(dict(query))

    def _refusal(self) -> int:
        if self.faults and self.random.random() < 0.1:
            return 500
        return 403 if self.server.forbidden else 404 if self.server.absent else 0

    def _fetch(self, query: dict[str, str]) -> None:
        status = self._refusal()
        if not status:
            status, body = self.server.list(query)
            if status == 200:
                self._take(self.reflector.page(body, self.now, 0.5))
                return
        self._take(self.reflector.refused(status, b"{}", self.now, 0.5))

    def _watch(self, query: dict[str, str]) -> None:
        status = self._refusal()
        events: Iterator[bytes] = iter(())
        if not status:
            status, events = self.server.watch(query)
        if status != 200:
            self._take(self.reflector.refused(status, b"{}", self.now, 0.5))
            return
        self.reflector.opened(self.now)
        for line in events:
            self._take(self.reflector.line(line, self.now, 0.5))
            if not self.reflector.watching:
                return
            if self.faults and self.random.random() < 0.3:
                self.server.change()
            if self.faults and self.random.random() < 0.1:
                self._take(self.reflector.failed("broken off", self.now, 0.5))
                return
        self.now += 2
        self._take(self.reflector.ended(self.now, 0.5))

    def _take(self, changes: tuple[Change, ...]) -> None:
        for change in changes:
            match change:
                case Put(name, thing):
                    self.store[name] = {"metadata": thing["metadata"], "spec": thing["spec"]}
                case Gone(name):
                    self.store.pop(name, None)
