"""The state of a client's exchange with one server, on the current stream and before it."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from typing import Final

from authplane.core.backoff import backoff_delay
from authplane.core.values import dataclass
from authplane.xds.bootstrap.xds_bootstrap import Node, XdsServer
from authplane.xds.client.client_messages import Link, Request
from authplane.xds.client.resource_cache import Key
from authplane.xds.client.watch_events import Fault

_LONGEST_PAUSE: Final = 1.6
"""Seconds between attempts to reach a server, less than 2 with the jitter.

gRPC's own clients wait up to 120. What is tightened while a server is away would wait as long after its return.
"""


@dataclass(slots=True)
class Topic:
    """The subscription to one type."""

    names: set[str] = field(default_factory=set)
    """What we want."""
    version: str = ""
    """What we accepted last, on this stream or an earlier one."""
    nonce: str = ""
    error: str | None = None
    """Why the latest response is rejected, until the server has received it."""
    asked: bool = False
    """Whether a request went out on this stream."""
    news: bool = False
    """Whether a request is due."""
    answerable: set[str] = field(default_factory=set)
    """What every response on this stream knows that we want: what it leaves out is gone."""
    awaited: dict[str, float | None] = field(default_factory=dict)
    """What was not there yet, and until when the server has time; None before the request is written."""

    def compose(self, type_url: str, node: Node | None) -> Request:
        """Return the request that is due."""
        request = Request(
            type_url=type_url,
            names=tuple(sorted(self.names)),
            # On a new stream a version would claim that we have its resources. A server that counts its versions from 1
            # again, or another one behind the same name, would believe it and never send what is new.
            version=self.version if self.nonce else "",
            nonce=self.nonce,
            error=self.error,
            node=node,
        )
        if not self.asked:
            self.answerable = set(self.names)
        self.asked, self.news, self.error = True, False, None
        return request


class Conversation:
    """The state of one server: its stream, or when to try again."""

    def __init__(self, server: XdsServer, node: Node) -> None:
        self.server = server
        self.link: Link | None = None
        """The present attempt or stream."""
        self.fault: Fault | None = None
        """Why the server cannot be reached; from the first failure until it answers."""
        self.retry_at: float | None = None
        self.topics: dict[str, Topic] = {}
        self._node = node
        self._introduced = False
        self._opened: float | None = None
        self._heard = False
        self._failures = 0

    @property
    def wanted(self) -> bool:
        """Whether anything is wanted of this server."""
        return any(topic.names for topic in self.topics.values())

    def want(self, key: Key, *, cached: bool) -> None:
        """Subscribe to a resource."""
        topic = self.topics.setdefault(key.type_url, Topic())
        if key.name in topic.names:
            return
        topic.names.add(key.name)
        topic.news = True
        if not cached:
            topic.awaited[key.name] = None

    def leave(self, key: Key) -> None:
        """Ask no longer for a resource."""
        topic = self.topics.get(key.type_url)
        if topic is None or key.name not in topic.names:
            return
        topic.names.discard(key.name)
        topic.answerable.discard(key.name)
        topic.awaited.pop(key.name, None)
        topic.news = True

    def begin(self, link: Link) -> None:
        """Start an attempt."""
        self.link, self.retry_at = link, None

    def opened(self, now: float, cached: Callable[[Key], bool]) -> None:
        """Record a new stream: everything is requested again."""
        self._opened, self._heard, self._introduced = now, False, False
        for type_url, topic in self.topics.items():
            topic.nonce, topic.error, topic.asked = "", None, False
            topic.news = bool(topic.names)
            topic.awaited = dict.fromkeys(name for name in topic.names if not cached(Key(type_url, name)))

    def requests(self) -> Iterator[Request]:
        """Yield the requests that are due, if there is a stream."""
        if self._opened is None:
            return
        for type_url, topic in self.topics.items():
            # No names in the first request of a stream would mean all there are.
            if topic.news and (topic.names or topic.asked):
                node = None if self._introduced else self._node
                self._introduced = True
                yield topic.compose(type_url, node)

    def written(self, request: Request, now: float, patience: float) -> None:
        """Start the server's time to answer a request."""
        topic = self.topics.get(request.type_url)
        if topic is None:
            return
        for name in request.names:
            if name in topic.awaited and topic.awaited[name] is None:
                topic.awaited[name] = now + patience

    def heard(self) -> None:
        """Record an answer: the server works."""
        self._heard, self._failures, self.fault = True, 0, None

    def answer(self, topic: Topic, nonce: str, refusal: str | None, version: str) -> None:
        """Accept or refuse a response."""
        topic.nonce, topic.error, topic.news = nonce, refusal, True
        if refusal is None:
            topic.version = version

    def ended(self, now: float, draw: float) -> bool:
        """Record the end of a stream or an attempt; tell whether that is a failure.

        It is none if the server has answered: servers close streams now and then. The next attempt is then due at
        once, but not sooner than a second after the last.
        """
        opened, heard = self._opened, self._heard
        self.link, self._opened, self._heard = None, None, False
        for topic in self.topics.values():
            topic.awaited.clear()
        if heard and opened is not None:
            self.retry_at = max(now, opened + backoff_delay(1, draw))
            return False
        self._failures += 1
        self.retry_at = now + backoff_delay(self._failures, draw, _LONGEST_PAUSE)
        return True

    def overdue(self, now: float) -> list[Key]:
        """Return what the server has not sent in time, each once."""
        late = [
            Key(type_url, name)
            for type_url, topic in self.topics.items()
            for name, limit in topic.awaited.items()
            if limit is not None and limit <= now
        ]
        for key in late:
            del self.topics[key.type_url].awaited[key.name]
        return late

    def due(self) -> Iterable[float]:
        """Return the times at which something is to be done."""
        if self.retry_at is not None:
            yield self.retry_at
        for topic in self.topics.values():
            yield from (limit for limit in topic.awaited.values() if limit is not None)
