"""A client against scripted servers that publish, delete, spoil, dawdle, refuse connections and close streams.

The model knows what the servers say and what the protocol is; it never looks into the client.
"""

from collections import deque
from dataclasses import dataclass, field

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.xds.client.driven_session import LISTENER, NODE, ROUTE, server

from authplane.xds.bootstrap.xds_bootstrap import Bootstrap, Feature, XdsServer
from authplane.xds.client.client_messages import (
    Connect,
    Disconnect,
    Effect,
    Item,
    Link,
    Notify,
    Request,
    Response,
    Send,
)
from authplane.xds.client.session import ClientSession
from authplane.xds.client.watch_events import Ambient, Changed, Event, Failed, Trouble, View

pytestmark = pytest.mark.slow

TYPES = [LISTENER.type_url, ROUTE.type_url]
NAMES = ["a", "b"]
KEYS = st.tuples(st.sampled_from(TYPES), st.sampled_from(NAMES))
SIDES = st.sampled_from([0, 1])
Key = tuple[str, str]


@dataclass
class Topic:
    """What was said about a type on one stream."""

    names: tuple[str, ...]
    nonce: str = ""
    """Of the latest response that the client has read."""
    unsaid: bool = False
    """Whether the client has yet to refuse that response."""


@dataclass
class Server:
    """A scripted server with at most one stream; it holds every request to the protocol."""

    settings: XdsServer
    up: bool = True
    content: dict[Key, str] = field(default_factory=dict)
    link: Link | None = None
    topics: dict[str, Topic] | None = None
    """None while there is no stream."""
    waiting: deque[Response] = field(default_factory=deque)
    accepted: dict[str, str] = field(default_factory=dict)
    nonces: int = 0

    def begin(self, link: Link) -> None:
        assert self.link is None, "one stream for each server"
        self.link = link

    def end(self) -> None:
        self.link, self.topics = None, None
        self.waiting.clear()

    def take(self, request: Request) -> None:
        assert self.topics is not None, "nothing is sent before there is a stream"
        assert request.node == (None if self.topics else NODE)
        topic = self.topics.get(request.type_url)
        assert request.names == tuple(sorted(set(request.names)))
        if topic is None:
            assert request.names, "would mean all there are"
            topic = self.topics[request.type_url] = Topic(request.names)
        topic.names = request.names
        assert request.nonce == topic.nonce
        if request.error is None or not topic.nonce:
            assert request.version == (self.accepted.get(request.type_url, "") if topic.nonce else "")
        else:  # what was accepted is forgotten where nothing was wanted for a while
            assert request.version in {"", self.accepted.get(request.type_url, "")}
        assert (request.error is not None) == topic.unsaid, "every refusal is said, once"
        topic.unsaid = False

    def answer(self, type_url: str) -> None:
        """Put a response with all that is wanted on its way."""
        assert self.topics is not None
        self.nonces += 1
        bodies = [
            f"{name}={self.content[type_url, name]}"
            for name in self.topics[type_url].names
            if (type_url, name) in self.content
        ]
        items = tuple(Item(type_url=type_url, body=body.encode()) for body in bodies)
        name = f"{self.settings.uri}{self.nonces}"
        self.waiting.append(Response(type_url=type_url, version=f"v{name}", nonce=f"n{name}", items=items))

    def read(self, response: Response, watched: set[Key]) -> None:
        """Take note that the client is about to read a response: it must refuse it if something it wants is bad."""
        assert self.topics is not None
        topic = self.topics[response.type_url]
        names = {item.body.decode().partition("=")[0] for item in response.items if b"!" in item.body}
        topic.nonce, topic.unsaid = response.nonce, any((response.type_url, name) in watched for name in names)
        if not topic.unsaid:
            self.accepted[response.type_url] = response.version


@dataclass
class Watcher:
    """Learns from events what it may rely on, and holds them to their order."""

    key: Key
    view: View = field(default_factory=View)

    @property
    def known(self) -> View:
        """What still holds: where nothing is in use, nobody is told that a server can be reached again."""
        fault = self.view.fault
        over = self.view.value is None and fault is not None and fault.trouble is Trouble.UNREACHABLE
        return View() if over else self.view

    def hear(self, event: Event[object]) -> None:
        match event:
            case Changed(value):
                assert self.view.value != value, "nothing has changed"
                self.view = View(value=value)
            case Failed(fault):
                assert self.known != View(fault=fault)
                self.view = View(fault=fault)
            case Ambient(fault):
                assert self.view.value is not None, "nothing is in use"
                assert self.view.fault != fault
                self.view = View(value=self.view.value, fault=fault)


class Machine(RuleBasedStateMachine):
    """A client, two servers and the time."""

    @initialize(strict=st.booleans(), transient=st.booleans())
    def begin(self, strict: bool, transient: bool) -> None:
        features = [Feature.FAIL_ON_DATA_ERRORS] * strict + [Feature.RESOURCE_TIMER_IS_TRANSIENT_ERROR] * transient
        self.strict = strict
        self.servers = [Server(server("one", *features)), Server(server("two", *features))]
        self.session = ClientSession(
            Bootstrap(servers=tuple(each.settings for each in self.servers), node=NODE), [LISTENER, ROUTE]
        )
        self.watchers: dict[int, Watcher] = {}
        self.count = 0
        self.now = 0.0

    @rule(key=KEYS)
    def watch(self, key: Key) -> None:
        self.count += 1
        self.watchers[self.count] = Watcher(key)
        self.do(self.session.watch(*key, self.count))

    @precondition(lambda self: self.watchers)
    @rule(data=st.data())
    def unwatch(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.watchers)))
        del self.watchers[number]
        self.do(self.session.unwatch(number))

    @rule(side=SIDES, key=KEYS, value=st.sampled_from(["1", "2", "3", "!", "!!", None]))
    def publish(self, side: int, key: Key, value: str | None) -> None:
        self.servers[side].content.pop(key, None)
        if value is not None:
            self.servers[side].content[key] = value

    @rule(side=SIDES, type_url=st.sampled_from(TYPES))
    def answer(self, side: int, type_url: str) -> None:
        if type_url in (self.servers[side].topics or {}):
            self.servers[side].answer(type_url)

    @rule(side=SIDES)
    def deliver(self, side: int) -> None:
        server = self.servers[side]
        if server.waiting and server.link is not None:
            response = server.waiting.popleft()
            server.read(response, self.watched)
            self.do(self.session.received(server.link, response, self.now))

    @rule(side=SIDES)
    def connect(self, side: int) -> None:
        server = self.servers[side]
        if server.link is not None and server.topics is None and server.up:
            server.topics = {}
            self.do(self.session.connected(server.link, self.now))

    @rule(side=SIDES, draw=st.floats(0, 1, exclude_max=True))
    def fail(self, side: int, draw: float) -> None:
        server = self.servers[side]
        if (link := server.link) is not None:
            server.end()
            self.do(self.session.ended(link, "broken", self.now, draw))

    @rule(side=SIDES, up=st.booleans())
    def turn(self, side: int, up: bool) -> None:
        self.servers[side].up = up
        if not up:
            self.fail(side, 0.5)

    @rule(seconds=st.sampled_from([0.1, 1.0, 5.0, 15.0, 30.0]))
    def wait(self, seconds: float) -> None:
        end = self.now + seconds
        while (due := self.session.due()) is not None and due <= end:
            assert due >= self.now or self.now == end - seconds
            self.now = max(self.now, due)
            self.do(self.session.elapsed(self.now))
        self.now = end

    @rule(up=st.tuples(st.booleans(), st.booleans()))
    def settle(self, up: tuple[bool, bool]) -> None:
        """Let everything happen that must happen, and compare with what the servers have."""
        for side in (0, 1):
            self.turn(side, up[side])
        before = {number: watcher.view for number, watcher in self.watchers.items()}
        first, second = self.servers
        for _ in range(6):
            for side, each in enumerate(self.servers):
                if not each.up:
                    self.fail(side, 0.5)
                self.connect(side)
                for type_url in each.topics or {}:
                    each.answer(type_url)
                while each.waiting:
                    self.deliver(side)
            self.wait(150)
        links = [server for server in self.servers if server.link is not None]
        if first.up:
            assert links == ([first] if self.watchers else [])
        for number, watcher in self.watchers.items():
            if first.up:
                self.compare(first, watcher, before[number])
            else:
                self.compare_fallback(second, watcher, before[number])

    def compare(self, server: Server, watcher: Watcher, before: View) -> None:
        value, view = server.content.get(watcher.key), watcher.view
        if value is None:
            assert view.value in {None, before.value} or watcher.key not in server.content
            if watcher.key[0] == LISTENER.type_url:
                assert view.fault is not None
                assert view.value is None or not self.strict
            assert view.value is not None or view.fault is not None, "nobody waits for ever"
        elif "!" in value:
            assert view.fault is not None
            assert view.fault.trouble is Trouble.INVALID
            assert view.value is None or not self.strict
            assert before.value is None or self.strict or view.value is not None, "what was good stays in use"
        else:
            assert view == View(value=f"{value}@{server.settings.uri}")

    def compare_fallback(self, server: Server, watcher: Watcher, before: View) -> None:
        view = watcher.view
        assert view.value is not None or view.fault is not None, "nobody waits for ever"
        if not server.up:
            assert view.fault is not None
            assert view.value == before.value
        value = server.content.get(watcher.key, "!")
        unknown = before.value is None and (before.fault is None or before.fault.trouble is Trouble.UNREACHABLE)
        if server.up and unknown and "!" not in value:
            assert view == View(value=f"{value}@{server.settings.uri}")

    @invariant()
    def watchers_of_one_resource_know_the_same(self) -> None:
        known: dict[Key, View] = {}
        for watcher in getattr(self, "watchers", {}).values():
            assert known.setdefault(watcher.key, watcher.known) == watcher.known

    @invariant()
    def nothing_is_left_behind(self) -> None:
        if not getattr(self, "watchers", True):
            assert (self.session.dump(), self.session.due()) == ((), None)
            assert all(server.link is None for server in self.servers)

    @property
    def watched(self) -> set[Key]:
        return {watcher.key for watcher in self.watchers.values()}

    def do(self, effects: tuple[Effect, ...]) -> None:
        self.perform(effects)
        self.perform(self.session.flush())

    def perform(self, effects: tuple[Effect, ...]) -> None:
        for effect in effects:
            match effect:
                case Connect(link):
                    self.of(link).begin(link)
                case Disconnect(link):
                    assert self.of(link).link == link
                    self.of(link).end()
                case Send(link, request):
                    self.of(link).take(request)
                    self.perform(self.session.sent(link, request, self.now))
                case Notify(watcher, event):
                    self.watchers[watcher].hear(event)

    def of(self, link: Link) -> Server:
        return next(each for each in self.servers if each.settings == link.server)


Machine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestClientAgainstScriptedServers = Machine.TestCase
