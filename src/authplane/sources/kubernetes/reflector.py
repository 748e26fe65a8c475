"""Follows the objects of one kind: a list, then a watch from there, for ever.

A session without I/O. Its owner performs `step`, passes on what comes of it, and gets changes of objects. After a gap,
when the API server has forgotten the changes since (410), all objects are listed again and compared with those known,
so that deletions are noticed. Time and chance are arguments.
"""

import json
from collections.abc import Mapping
from enum import Enum, auto
from http import HTTPStatus
from sys import intern
from typing import Any, Final, TypeAlias

from authplane.core.backoff import backoff_delay
from authplane.core.names import ObjectName
from authplane.core.problems import printable
from authplane.core.text import shorten
from authplane.core.values import dataclass
from authplane.sources.kubernetes.api_kinds import ApiKind
from authplane.sources.kubernetes.reflector_steps import (
    Absent,
    Change,
    Discover,
    FetchPage,
    Forbidden,
    Gone,
    Listed,
    OpenWatch,
    Pause,
    Pending,
    Put,
    Standing,
    Step,
)

PAGE: Final = 500
"""Objects in one page of a list."""
LONGEST_PAUSE: Final = 30.0
GRACE: Final = 30.0
"""So many seconds a kind that was listed may be forbidden or absent: an API server that starts says so of any kind."""
_WATCH: Final = 300.0
"""A watch ends after so many seconds, or up to twice as many."""
_SLACK: Final = 30.0
_AT_ONCE: Final = 1.0
"""A watch that ends sooner, and without an event, is a fault."""
_PATIENCE: Final = 3
"""After so many refusals in a row a watch begins with a new list."""
_SHOWN: Final = 200
_INITIAL_END: Final = "k8s.io/initial-events-end"
_NO_STREAMING: Final = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY})

Changes: TypeAlias = tuple[Change, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Which objects of a kind."""

    namespace: str = ""
    """Empty for all."""
    labels: str = ""
    fields: str = ""

    def query(self) -> dict[str, str]:
        """Return the parameters of a list or watch."""
        return {name: text for name, text in (("labelSelector", self.labels), ("fieldSelector", self.fields)) if text}


class _Phase(Enum):
    STREAM = auto()
    """A watch that begins with all objects."""
    LIST = auto()
    WATCH = auto()
    DISCOVER = auto()
    """Is it forbidden, or not installed?"""


class Reflector:
    """The objects of one kind, as an API server reports them."""

    def __init__(self, kind: ApiKind, scope: Scope | None = None, *, page: int = PAGE, streaming: bool = True) -> None:
        self.kind = kind
        self.scope = scope or Scope()
        self.standing: Standing = Pending()
        self.trouble = ""
        """What is wrong with the connection or the permissions at the moment; empty if nothing is."""
        self._streaming = streaming
        self._phase = _Phase.STREAM if streaming else _Phase.LIST
        self._after_discovery = self._phase
        self._verb = "list"
        self._version = 0
        self._missing = 0
        """In how many versions in a row the kind was not found."""
        self._page, self._continue = page, ""
        self._resource_version = ""
        self._known: dict[ObjectName, str] = {}
        self._seen: set[ObjectName] = set()
        self._held: dict[ObjectName, Change] = {}
        """Changes that a new list has shown so far: they count when it is complete."""
        self._complete = False
        self._failures = 0
        self._relists = 0
        """How often a list has begun anew since the last complete one."""
        self._not_before = 0.0
        self._refused_since: float | None = None
        self._open = False
        self._opened_at = 0.0
        self._heard = False

    def __len__(self) -> int:
        return len(self._known)

    @property
    def version(self) -> str:
        """The API version in which objects are read."""
        return self.kind.versions[self._version]

    @property
    def listing(self) -> bool:
        """Tell whether the open watch still has to send all objects."""
        return self._open and self._phase is _Phase.STREAM

    @property
    def watching(self) -> bool:
        """Tell whether more lines of the open watch are wanted."""
        return self._open

    def step(self, now: float, draw: float) -> Step:
        """Return what to do next; ``draw`` is random, from 0 up to 1."""
        if now < self._not_before:
            return Pause(self._not_before)
        path, query = self.kind.path(self.version, self.scope.namespace), self.scope.query()
        match self._phase:
            case _Phase.DISCOVER:
                return Discover(self.kind.group_path(self.version))
            case _Phase.LIST:
                query |= {"limit": str(self._page)} if self._page else {}
                return FetchPage(path=path, query=query | ({"continue": self._continue} if self._continue else {}))
            case _Phase.STREAM:
                self._begin_list()
                query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
            case _Phase.WATCH:
                query |= {"resourceVersion": self._resource_version}
        seconds = _WATCH * (1 + draw)
        query |= {"watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": str(int(seconds))}
        return OpenWatch(path=path, query=query, silence=seconds + _SLACK)

    def page(self, body: bytes, now: float, draw: float) -> Changes:
        """Take a page of a list."""
        answer = _decoded(body)
        items, meta = answer.get("items") or [], answer.get("metadata")
        if not isinstance(items, list) or not isinstance(meta, dict):
            return self.failed("The API server sent no list. Check that its address is correct.", now, draw)
        if not self._continue:
            self._begin_list()
        found: list[Change] = []
        for item in items:
            # Items of a list do not repeat what all of them have in common.
            whole = {"apiVersion": answer.get("apiVersion"), "kind": self.kind.kind, **item}
            found += self._put(whole)
        self._continue = str(meta.get("continue") or "")
        if self._continue:
            return tuple(found)
        return (*found, *self._finish(str(meta.get("resourceVersion") or "")))

    def opened(self, now: float) -> None:
        """Note that a watch has begun."""
        self._open, self._opened_at, self._heard = True, now, False
        self.trouble = ""
        if self._phase is _Phase.WATCH:
            self.standing, self._refused_since = Listed(), None

    def line(self, line: bytes, now: float, draw: float) -> Changes:
        """Take an event of the watch."""
        event = _decoded(line)
        kind, thing = event.get("type"), event.get("object")
        if not isinstance(thing, dict):
            return self.failed("The API server sent no event of a watch. Check that its address is correct.", now, draw)
        if kind == "ERROR":
            code = thing.get("code")
            return self.refused(code if isinstance(code, int) else 500, thing, now, draw)
        self._progress(thing)
        match kind:
            case "ADDED" | "MODIFIED":
                return self._put(thing)
            case "DELETED":
                return self._gone(_name(thing))
            case "BOOKMARK" if self._phase is _Phase.STREAM and _ends_list(thing):
                return self._finish(self._resource_version)
            case _:
                return ()

    def ended(self, now: float, draw: float) -> Changes:
        """Note that a watch has ended, as each does after a while."""
        if not self._open:
            return ()  # we ended it
        self._open = False
        if self._phase is _Phase.STREAM or not (self._heard or now - self._opened_at >= _AT_ONCE):
            return self.failed("The API server ended a watch immediately. Check its log.", now, draw)
        return ()

    def stalled(self) -> Changes:
        """Note that a streaming list does not end, as with a server that does not know them: pages do."""
        self._open, self._streaming = False, False
        self._phase = self._first_phase()
        return ()

    def failed(self, why: str, now: float, draw: float, *, too_large: bool = False) -> Changes:
        """Note that there was no usable answer; what is known stays known."""
        self._open, self.trouble = False, why
        self._failures += 1
        self._not_before = now + backoff_delay(self._failures, draw, LONGEST_PAUSE)
        if too_large and self._phase is _Phase.LIST:
            self._page = max(1, (self._page or PAGE) // 4)
        return ()

    def refused(
        self, status: int, answer: Mapping[str, Any] | bytes, now: float, draw: float, *, wait: float = 0.0
    ) -> Changes:
        """Take an answer other than 200, or an event that says the same; the server wants us to ``wait`` so long."""
        self._open = False
        said = _decoded(answer) if isinstance(answer, bytes) else answer
        if status == HTTPStatus.GONE or said.get("reason") in {"Expired", "Gone"}:
            return self._relist(now, draw)
        if status == HTTPStatus.FORBIDDEN:
            return self._forbidden(now, draw)
        if status == HTTPStatus.NOT_FOUND:
            return self._not_found(now, draw)
        if self._phase is _Phase.STREAM and status in _NO_STREAMING:
            self._streaming = False
            self._phase = _Phase.LIST
            return ()
        message = shorten(printable(str(said.get("message") or "no reason")), _SHOWN)
        self.failed(f"The API server answered {status} ({message}). Check its log.", now, draw)
        self._not_before = max(self._not_before, now + wait)
        if self._phase is _Phase.WATCH and self._failures >= _PATIENCE:
            self._phase = self._first_phase()
        return ()

    def discovered(self, status: int, body: bytes, now: float, draw: float) -> Changes:
        """Take the answer to `Discover`: to who may not list it, a kind that is not installed looks forbidden."""
        self._phase = self._after_discovery
        resources = _decoded(body).get("resources") if status == HTTPStatus.OK else None
        names = (
            {each.get("name") for each in resources if isinstance(each, dict)} if isinstance(resources, list) else None
        )
        if status == HTTPStatus.NOT_FOUND or (names is not None and self.kind.plural not in names):
            return self._not_found(now, draw)
        self.standing = Forbidden(self._verb)
        self._not_before = now + backoff_delay(self._failures, draw, LONGEST_PAUSE)
        return ()

    def _first_phase(self) -> _Phase:
        self._continue = ""
        return _Phase.STREAM if self._streaming else _Phase.LIST

    def _begin_list(self) -> None:
        self._seen = set()

    def _progress(self, thing: Mapping[str, Any]) -> None:
        version = _meta(thing).get("resourceVersion")
        if isinstance(version, str) and version:
            self._resource_version = version
        self._heard, self._failures = True, 0

    def _put(self, thing: Mapping[str, Any]) -> Changes:
        name, version = _name(thing), str(_meta(thing).get("resourceVersion") or "")
        self._seen.add(name)
        if self._known.get(name) == version and version:
            return ()
        self._known[name] = version
        return self._tell(Put(name, thing))

    def _gone(self, name: ObjectName) -> Changes:
        self._seen.discard(name)
        return self._tell(Gone(name)) if self._known.pop(name, None) is not None else ()

    def _tell(self, change: Change) -> Changes:
        """Hold changes of a repeated list until it is complete: half of one would mix two times."""
        if self._complete and self._phase is not _Phase.WATCH:
            self._held[change.name] = change
            return ()
        return (change,)

    def _finish(self, resource_version: str) -> Changes:
        """End a list: what it did not have is gone."""
        for name in self._known.keys() - self._seen:
            del self._known[name]
            self._held[name] = Gone(name)
        held, self._held, self._seen = tuple(self._held.values()), {}, set()
        self._resource_version = resource_version
        self._phase, self._complete, self.standing = _Phase.WATCH, True, Listed()
        self._failures, self._relists, self._missing, self._refused_since, self.trouble = 0, 0, 0, None, ""
        return held

    def _relist(self, now: float, draw: float) -> Changes:
        """Begin again. A list that is too slow for the server's memory gets larger pages, in the end only one."""
        if self._phase is _Phase.LIST and self._continue:
            self._page = self._page * 4 if self._page < 16 * PAGE else 0
        self._phase = self._first_phase()
        self._relists += 1
        # The first time at once: what has changed meanwhile is unknown.
        self._not_before = now + (backoff_delay(self._relists - 1, draw, LONGEST_PAUSE) if self._relists > 1 else 0)
        return ()

    def _forbidden(self, now: float, draw: float) -> Changes:
        if self._phase is _Phase.STREAM:
            # A stream needs the permission to watch; without it, a list may still be permitted.
            self._phase = _Phase.LIST
            return ()
        self._verb = "watch" if self._phase is _Phase.WATCH else "list"
        self.failed(f"This program may not {self._verb} {self.kind.resource}. Grant it this permission.", now, draw)
        if self._overdue(now):
            self._after_discovery, self._phase = self._phase, _Phase.DISCOVER
            if self._after_discovery is _Phase.LIST:
                self._after_discovery = self._first_phase()
            self._not_before = 0.0 if isinstance(self.standing, Pending) else self._not_before
        elif self._phase is _Phase.LIST:
            self._phase = self._first_phase()
        return ()

    def _not_found(self, now: float, draw: float) -> Changes:
        self._phase = self._first_phase()
        self._version = (self._version + 1) % len(self.kind.versions)
        self._missing += 1
        if self._missing < len(self.kind.versions):
            return ()
        said = f"The cluster has no {self.kind.resource}. Install their CustomResourceDefinition if you need them."
        self.failed(said, now, draw)
        if not self._overdue(now):
            return ()
        self.standing, self._complete = Absent(), False
        gone = tuple(Gone(name) for name in self._known)
        self._known, self._held = {}, {}
        return gone

    def _overdue(self, now: float) -> bool:
        """Tell whether a refusal is to be believed: at once, or after a while if the kind was listed before."""
        if self._refused_since is None:
            self._refused_since = now
        return not isinstance(self.standing, Listed) or now - self._refused_since >= GRACE


def _decoded(text: bytes) -> Mapping[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _meta(thing: Mapping[str, Any]) -> Mapping[str, Any]:
    found = thing.get("metadata")
    return found if isinstance(found, dict) else {}


def _ends_list(bookmark: Mapping[str, Any]) -> bool:
    annotations = _meta(bookmark).get("annotations")
    return isinstance(annotations, dict) and annotations.get(_INITIAL_END) == "true"


def _name(thing: Mapping[str, Any]) -> ObjectName:
    meta = _meta(thing)
    # Thousands of objects share few namespaces.
    return ObjectName(intern(str(meta.get("namespace") or "")), str(meta.get("name") or ""))
