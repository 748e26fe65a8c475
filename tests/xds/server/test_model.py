"""Both sessions against a model client that subscribes, accepts, refuses, dawdles and comes back as it likes."""

from collections import deque
from typing import Any, ClassVar

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.xds.server.model import (
    CLUSTER,
    ENDPOINT,
    EXTENSION,
    LISTENER,
    ROUTE,
    SECRET,
    DeltaClient,
    SotwClient,
    refers_to,
)

from authplane.xds.server.delta import DeltaSession
from authplane.xds.server.served_types import TypeUrl
from authplane.xds.server.snapshot import Snapshot
from authplane.xds.server.sotw import SotwSession
from authplane.xds.server.stream_messages import Output

pytestmark = pytest.mark.slow

CLUSTERS = ["c0", "c1", "c2"]
REVISIONS = st.integers(0, 2)


@st.composite
def contents(draw: st.DrawFn) -> dict[TypeUrl, dict[str, bytes]]:
    """Draw a consistent generation: an extension and a route for each listener, an endpoint for each cluster."""
    clusters = draw(st.lists(st.sampled_from(CLUSTERS), unique=True))
    listeners = draw(st.lists(st.sampled_from(["l0", "l1"]), unique=True)) if clusters else []
    secrets = draw(st.lists(st.sampled_from(["s0", "s1"]), unique=True))

    def referring() -> bytes:
        return f"{draw(REVISIONS)}:{draw(st.sampled_from(clusters))}".encode()

    return {
        CLUSTER: {name: str(draw(REVISIONS)).encode() for name in clusters},
        ENDPOINT: {name: str(draw(REVISIONS)).encode() for name in clusters},
        SECRET: {name: str(draw(REVISIONS)).encode() for name in secrets},
        LISTENER: {name: referring() for name in listeners},
        EXTENSION: {name: referring() for name in listeners},
        ROUTE: {name: referring() for name in listeners},
    }


class Machine(RuleBasedStateMachine):
    """One client and one session, with a queue each way."""

    session_type: ClassVar[Any]
    client_type: ClassVar[Any]
    removes_named: ClassVar[bool]

    def __init__(self) -> None:
        super().__init__()
        self.client = self.client_type()
        self.session = self.session_type()
        self.to_client: deque[Any] = deque()
        self.snapshot: Snapshot | None = None
        self.now = 0.0
        self.revision = 10
        self.tainted = False
        """The client refused something since it was last seen to be right."""
        self.catching_up = False
        """The client came back and may hold what is no longer there."""

    def keep(self, output: Output[Any]) -> None:
        assert self.snapshot is not None or not output.responses
        self.to_client.extend(output.responses)

    @initialize()
    def start(self) -> None:
        self.client.open()

    @rule(content=contents())
    def publish(self, content: dict[TypeUrl, dict[str, bytes]]) -> None:
        self.snapshot = Snapshot.of(content, self.snapshot)
        self.keep(self.session.publish(self.snapshot, self.now))

    @precondition(lambda self: self.client.sent)
    @rule()
    def server_reads(self) -> None:
        self.keep(self.session.received(self.client.sent.popleft(), self.now))

    @precondition(lambda self: self.to_client)
    @rule()
    def client_accepts(self) -> None:
        self.client.take(self.to_client.popleft(), accept=True)

    @precondition(lambda self: self.to_client)
    @rule()
    def client_refuses(self) -> None:
        self.tainted = True
        self.client.take(self.to_client.popleft(), accept=False)

    @rule(names=st.sets(st.sampled_from(["s0", "s1", "gone"])))
    def subscribe_to_secrets(self, names: set[str]) -> None:
        self.client.subscribe(SECRET, names)

    @precondition(lambda self: self.session.due() is not None)
    @rule()
    def time_runs_out(self) -> None:
        self.now = max(self.now, self.session.due())
        self.keep(self.session.elapsed(self.now))

    @rule()
    def reconnect(self) -> None:
        self.session = self.session_type()
        self.to_client.clear()
        self.client.open()
        self.catching_up = True
        if self.snapshot is not None:
            self.keep(self.session.publish(self.snapshot, self.now))

    @precondition(lambda self: self.snapshot is not None)
    @rule()
    def settle(self) -> None:
        self.run_dry()
        if self.tainted:
            self.publish_everything_anew()
            self.run_dry()
        self.tainted = self.catching_up = False
        assert self.snapshot is not None
        for url in TypeUrl:
            existing = {name: item.body for name, item in self.snapshot.resources(url).items()}
            if url not in {CLUSTER, LISTENER}:
                existing = {name: body for name, body in existing.items() if name in self.client.names[url]}
            held = self.client.held[url]
            if not self.removes_named and url not in {CLUSTER, LISTENER}:
                held = {name: body for name, body in held.items() if name in self.snapshot.resources(url)}
            assert held == existing, url

    def run_dry(self) -> None:
        for _ in range(500):
            if self.client.sent:
                self.server_reads()
            elif self.to_client:
                self.client.take(self.to_client.popleft(), accept=True)
            elif self.session.due() is not None:
                self.time_runs_out()
            else:
                return
        raise AssertionError("the exchange does not come to rest")

    def publish_everything_anew(self) -> None:
        assert self.snapshot is not None
        self.revision += 1
        content = {
            url: {
                name: f"{self.revision}:{refers_to(item.body)}".encode()
                for name, item in self.snapshot.resources(url).items()
            }
            for url in TypeUrl
        }
        # A full set that was refused is sent again only when it is another: one more makes sure of that.
        content[CLUSTER]["more"] = content[ENDPOINT]["more"] = str(self.revision).encode()
        for url in (LISTENER, EXTENSION, ROUTE):
            content[url]["more"] = f"{self.revision}:more".encode()
        self.publish(content)

    @invariant()
    def nothing_refers_to_a_cluster_that_is_not_there(self) -> None:
        if self.tainted or self.catching_up:
            return
        for url in (LISTENER, EXTENSION, ROUTE):
            for name, body in self.client.held[url].items():
                assert refers_to(body) in self.client.held[CLUSTER], f"{url} {name}"

    @invariant()
    def nothing_accepted_comes_again(self) -> None:
        assert self.client.repeats == []


class SotwMachine(Machine):
    session_type = SotwSession
    client_type = SotwClient
    removes_named = False


class DeltaMachine(Machine):
    session_type = DeltaSession
    client_type = DeltaClient
    removes_named = True


_LIMITS = settings(
    max_examples=100,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
TestSotw = SotwMachine.TestCase
TestSotw.settings = _LIMITS
TestDelta = DeltaMachine.TestCase
TestDelta.settings = _LIMITS
