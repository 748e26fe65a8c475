"""The client and our own server, over the bytes of the wire."""

from collections import deque
from collections.abc import Iterable

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from tests.xds.client.driven_session import LISTENER, NODE, ROUTE, server

from authplane.xds.bootstrap.xds_bootstrap import Bootstrap
from authplane.xds.client.client_messages import Connect, Disconnect, Effect, Link, Notify, Send
from authplane.xds.client.session import ClientSession
from authplane.xds.client.watch_events import Ambient, Changed, Event, Failed, View
from authplane.xds.client.wire import parse_response, render_request
from authplane.xds.server.served_types import TypeUrl
from authplane.xds.server.snapshot import Snapshot
from authplane.xds.server.sotw import SotwSession
from authplane.xds.server.stream_messages import Nacked, Output, SotwResponse
from authplane.xds.server.wire import parse_sotw_request, render_sotw_response

pytestmark = pytest.mark.slow

URLS = {LISTENER.type_url: TypeUrl.LISTENER, ROUTE.type_url: TypeUrl.ROUTE}
KEYS = st.tuples(st.sampled_from(list(URLS)), st.sampled_from(["a", "b"]))
Content = dict[tuple[str, str], str]


class Machine(RuleBasedStateMachine):
    """One client and one server; streams come and go, and requests and responses cross each other."""

    @initialize()
    def begin(self) -> None:
        self.client = ClientSession(Bootstrap(servers=(server(),), node=NODE), [LISTENER, ROUTE])
        self.server = SotwSession()
        self.link: Link | None = None
        self.open = False
        self.to_server: deque[bytes] = deque()
        self.to_client: deque[bytes] = deque()
        self.views: dict[int, View] = {}
        self.keys: dict[int, tuple[str, str]] = {}
        self.count = 0
        self.now = 0.0
        self.content: Content = {}
        self.snapshot = Snapshot.of({})
        self.refused: list[Nacked] = []

    @rule(key=KEYS)
    def watch(self, key: tuple[str, str]) -> None:
        self.count += 1
        self.keys[self.count], self.views[self.count] = key, View()
        self.do(self.client.watch(*key, self.count))

    @rule(which=st.integers(0, 20))
    def unwatch(self, which: int) -> None:
        if self.keys:
            number = sorted(self.keys)[which % len(self.keys)]
            del self.keys[number]
            self.do(self.client.unwatch(number))

    @rule(content=st.dictionaries(KEYS, st.sampled_from(["1", "2", "!"])))
    def publish(self, content: Content) -> None:
        self.content = content
        bodies: dict[TypeUrl, dict[str, bytes]] = {}
        for (type_url, name), value in content.items():
            bodies.setdefault(URLS[type_url], {})[name] = f"{name}={value}".encode()
        self.snapshot = Snapshot.of(bodies, self.snapshot)
        if self.open:
            self.put(self.server.publish(self.snapshot, self.now))

    @rule()
    def connect(self) -> None:
        if self.link is not None and not self.open:
            self.open = True
            self.server = SotwSession()
            self.put(self.server.publish(self.snapshot, self.now))
            self.do(self.client.connected(self.link, self.now))

    @rule()
    def lose(self) -> None:
        if self.link is not None:
            link = self.link
            self.drop()
            self.do(self.client.ended(link, "lost", self.now, 0.5))

    @rule()
    def serve(self) -> None:
        if self.to_server:
            request = parse_sotw_request(self.to_server.popleft())
            assert request is not None
            self.put(self.server.received(request, self.now))

    @rule()
    def read(self) -> None:
        if self.to_client and self.link is not None:
            response = parse_response(self.to_client.popleft())
            assert response is not None
            self.do(self.client.received(self.link, response, self.now))

    @rule()
    def settle(self) -> None:
        self.lose()
        for _ in range(40):
            self.connect()
            while self.to_server or self.to_client:
                self.serve()
                self.read()
            self.now += 20
            self.do(self.client.elapsed(self.now))
            if self.open:
                self.put(self.server.elapsed(self.now))
        for number, key in self.keys.items():
            value, view = self.content.get(key), self.views[number]
            # Our server keeps routes back from a client that has not taken the listeners there are.
            listeners = {name: other for (url, name), other in self.content.items() if url == LISTENER.type_url}
            asked = {name for url, name in self.keys.values() if url == LISTENER.type_url}
            untaken = any("!" in listeners.get(name, "") for name in asked)
            if key[0] == ROUTE.type_url and (untaken or (listeners and not asked)):
                continue
            if value is not None and "!" not in value:
                assert view == View(value=f"{value}@one")
            else:
                # What was there before stays in use; a route that is gone cannot be told from one that is unchanged.
                assert view.fault is not None or (value is None and key[0] == ROUTE.type_url)

    def drop(self) -> None:
        self.link, self.open = None, False
        self.to_client.clear()
        self.to_server.clear()

    def put(self, output: Output[SotwResponse]) -> None:
        self.to_client += [render_sotw_response(response) for response in output.responses]
        self.refused += [event for event in output.events if isinstance(event, Nacked)]

    def do(self, effects: Iterable[Effect]) -> None:
        for effect in (*effects, *self.client.flush()):
            match effect:
                case Connect(link):
                    self.link = link
                case Disconnect():
                    self.drop()
                case Send(link, request):
                    self.to_server.append(render_request(request))
                    assert self.client.sent(link, request, self.now) == ()
                case Notify(watcher, event):
                    self.hear(watcher, event)

    def hear(self, watcher: int, event: Event[object]) -> None:
        match event:
            case Changed(value):
                self.views[watcher] = View(value=value)
            case Failed(fault):
                self.views[watcher] = View(fault=fault)
            case Ambient(fault):
                self.views[watcher] = View(value=self.views[watcher].value, fault=fault)


Machine.TestCase.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
TestClientAndOurServer = pytest.mark.requirement("XC-1")(Machine.TestCase)
