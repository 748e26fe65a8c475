"""A client session with everything around it, driven by hand."""

from collections.abc import Iterable

from authplane.core.problems import Problem
from authplane.xds.bootstrap.credentials import Insecure
from authplane.xds.bootstrap.xds_bootstrap import Authority, Bootstrap, Feature, Node, XdsServer
from authplane.xds.client.client_messages import (
    Connect,
    Disconnect,
    Effect,
    Item,
    Link,
    Notify,
    Report,
    Request,
    Response,
    Send,
)
from authplane.xds.client.session import ClientSession
from authplane.xds.client.watch_events import Event
from authplane.xds.client.watched_types import Decoded, Invalid, ResourceType, Source
from authplane.xds.server.served_types import TypeUrl

NODE = Node(id="node")
SIGNED = "(xDS node 'node')"


def decode(body: bytes, source: Source) -> Decoded[str] | Invalid:
    """Read ``name=value``; a value with ``!`` has a problem for each, and ``?`` has not even a name."""
    name, _, value = body.decode().rpartition("=")
    if "!" in value:
        problems = tuple(Problem(("field", place), "Bad", "is bad") for place in range(value.count("!")))
        return Invalid(name=None if value.startswith("?") else name, problems=problems)
    return Decoded(name=name, value=f"{value}@{source.uri}")


LISTENER = ResourceType(type_url=TypeUrl.LISTENER.value, decode=decode, full_set=True)
ROUTE = ResourceType(type_url=TypeUrl.ROUTE.value, decode=decode)


def server(uri: str = "one", *features: Feature) -> XdsServer:
    return XdsServer(uri=uri, channel_creds=Insecure(), features=frozenset(features))


class World:
    """Performs effects by writing them down."""

    def __init__(self, *servers: XdsServer, authorities: dict[str, Authority] | None = None) -> None:
        bootstrap = Bootstrap(servers=servers or (server(),), node=NODE, authorities=authorities or {})
        self.session = ClientSession(bootstrap, [LISTENER, ROUTE])
        self.now = 100.0
        self.links: dict[str, Link] = {}
        """Attempts and streams that nobody has ended."""
        self.attempts: list[str] = []
        self.unread: list[tuple[str, Request]] = []
        self._heard: dict[int, list[Event[object]]] = {}
        self._watchers = 0
        self._nonces = 0

    def watch(self, name: str, kind: ResourceType[str] = LISTENER) -> int:
        self._watchers += 1
        self._heard[self._watchers] = []
        self.do(self.session.watch(kind.type_url, name, self._watchers))
        return self._watchers

    def unwatch(self, watcher: int) -> None:
        self.do(self.session.unwatch(watcher))

    def heard(self, watcher: int) -> list[Event[object]]:
        """Return what a watcher was told since it was last asked."""
        told, self._heard[watcher] = self._heard[watcher], []
        return told

    def requests(self) -> list[Request]:
        """Return what was sent since last asked; with one server there is no doubt to whom."""
        sent, self.unread = [request for _, request in self.unread], []
        return sent

    def open(self, uri: str = "one") -> None:
        self.do(self.session.connected(self.links[uri], self.now))

    def end(self, uri: str = "one", why: str = "broken", draw: float = 0.5) -> None:
        self.do(self.session.ended(self.links.pop(uri), why, self.now, draw))

    def respond(
        self,
        *bodies: str,
        uri: str = "one",
        kind: ResourceType[str] = LISTENER,
        version: str = "v",
        reports: Iterable[Report] = (),
    ) -> str:
        """Send a response; returns its nonce."""
        self._nonces += 1
        nonce = f"n{self._nonces}"
        items = tuple(Item(type_url=kind.type_url, body=body.encode()) for body in bodies)
        self.receive(
            Response(type_url=kind.type_url, version=version, nonce=nonce, items=items, reports=tuple(reports)), uri
        )
        return nonce

    def receive(self, response: Response, uri: str = "one") -> None:
        self.do(self.session.received(self.links[uri], response, self.now))

    def pass_time(self, seconds: float) -> None:
        """Let time pass, stopping wherever something is due."""
        end = self.now + seconds
        while (due := self.session.due()) is not None and due <= end:
            self.now = max(due, self.now)
            self.do(self.session.elapsed(self.now))
        self.now = end

    def do(self, effects: Iterable[Effect]) -> None:
        self._perform(effects)
        self._perform(self.session.flush())

    def _perform(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Connect(link):
                    assert link.server.uri not in self.links
                    self.links[link.server.uri] = link
                    self.attempts.append(link.server.uri)
                case Disconnect(link):
                    assert self.links.pop(link.server.uri) == link
                case Send(link, request):
                    assert self.links[link.server.uri] == link
                    self.unread.append((link.server.uri, request))
                    self._perform(self.session.sent(link, request, self.now))
                case Notify(watcher, event):
                    self._heard[watcher].append(event)
