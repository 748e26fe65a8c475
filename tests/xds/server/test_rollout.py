"""Make before break: the same steps in both variants."""

from typing import Any

import pytest

from authplane.xds.server.delta import DeltaSession
from authplane.xds.server.served_types import MAKE_ORDER, TypeUrl
from authplane.xds.server.snapshot import Snapshot
from authplane.xds.server.sotw import SotwSession
from authplane.xds.server.stream_messages import DeltaRequest, SotwRequest

LISTENER, ROUTE, CLUSTER = TypeUrl.LISTENER, TypeUrl.ROUTE, TypeUrl.CLUSTER
ENDPOINT, SECRET, EXTENSION = TypeUrl.ENDPOINT, TypeUrl.SECRET, TypeUrl.EXTENSION

OLD = {
    CLUSTER: {"c1": b"1"},
    ENDPOINT: {"c1": b"1"},
    SECRET: {"s": b"1"},
    LISTENER: {"l1": b"1"},
    EXTENSION: {"x1": b"1"},
    ROUTE: {"l1": b"1"},
}
NEW = {
    CLUSTER: {"c2": b"1"},
    ENDPOINT: {"c2": b"1"},
    SECRET: {"s": b"2"},
    LISTENER: {"l2": b"1"},
    EXTENSION: {"x2": b"1"},
    ROUTE: {"l2": b"1"},
}


class Peer:
    """A client that does what it is told."""

    def __init__(self, *, delta: bool) -> None:
        self.delta = delta
        self.session: Any = DeltaSession() if delta else SotwSession()
        self.names: dict[TypeUrl, set[str]] = {}
        self.nonce: dict[TypeUrl, str] = {}
        self.now = 0.0

    def ask(self, url: TypeUrl, *names: str) -> list[str]:
        """Subscribe to exactly these names."""
        added = set(names) - self.names.get(url, set())
        left = self.names.get(url, set()) - set(names)
        self.names[url] = set(names)
        request: Any = SotwRequest(type_url=url, names=names, nonce=self.nonce.get(url, ""))
        if self.delta:
            request = DeltaRequest(type_url=url, subscribe=tuple(sorted(added)), unsubscribe=tuple(sorted(left)))
        return self.log(self.session.received(request, self.now))

    def answer(self, url: TypeUrl, error: str | None = None) -> list[str]:
        names = tuple(sorted(self.names[url]))
        request: Any = SotwRequest(type_url=url, names=names, nonce=self.nonce[url], error=error)
        if self.delta:
            request = DeltaRequest(type_url=url, nonce=self.nonce[url], error=error)
        return self.log(self.session.received(request, self.now))

    def publish(self, contents: dict[TypeUrl, dict[str, bytes]]) -> list[str]:
        return self.log(self.session.publish(Snapshot.of(contents), self.now))

    def wait(self) -> list[str]:
        """Let the next time limit pass."""
        self.now = self.session.due()
        return self.log(self.session.elapsed(self.now))

    def log(self, output: Any) -> list[str]:
        """Write responses as ``TYPE name=body ... -removed``."""
        lines = []
        for response in output.responses:
            self.nonce[response.type_url] = response.nonce
            words = [f"{name}={item.body.decode()}" for name, item in response.resources]
            removed = [f"-{name}" for name in getattr(response, "removed", ())]
            lines.append(" ".join([response.type_url.name, *words, *removed]))
        return lines

    def settle_on_old(self) -> None:
        self.publish(OLD)
        for url in MAKE_ORDER:
            wildcard = url in {CLUSTER, LISTENER}
            assert self.ask(url, *(() if wildcard else OLD[url]))
            assert self.answer(url) == []
        assert self.session.due() is None


@pytest.fixture(params=[False, True], ids=["state of the world", "delta"])
def peer(request: pytest.FixtureRequest) -> Peer:
    return Peer(delta=request.param)


@pytest.mark.requirement("X06")
def test_additions_go_out_in_order_and_removals_after_all_of_them() -> None:
    peer = Peer(delta=False)
    peer.settle_on_old()
    assert peer.publish(NEW) == ["CLUSTER c1=1 c2=1"]
    assert peer.answer(CLUSTER) == []
    assert peer.ask(ENDPOINT, "c1", "c2") == ["ENDPOINT c2=1"]
    assert peer.answer(ENDPOINT) == ["SECRET s=2"]
    assert peer.answer(SECRET) == ["LISTENER l1=1 l2=1"]
    assert peer.answer(LISTENER) == []
    assert peer.ask(ROUTE, "l1", "l2") == []
    assert peer.ask(EXTENSION, "x1", "x2") == ["EXTENSION x2=1"]
    assert peer.answer(EXTENSION) == ["ROUTE l2=1"]
    assert peer.answer(ROUTE) == ["LISTENER l2=1"]
    assert peer.answer(LISTENER) == ["CLUSTER c2=1"]
    assert peer.answer(CLUSTER) == []
    assert peer.session.due() is None


@pytest.mark.requirement("X06")
def test_delta_removes_in_the_reverse_order() -> None:
    peer = Peer(delta=True)
    peer.settle_on_old()
    assert peer.publish(NEW) == ["CLUSTER c2=1"]
    assert peer.answer(CLUSTER) == []
    assert peer.ask(ENDPOINT, "c1", "c2") == ["ENDPOINT c2=1"]
    assert peer.answer(ENDPOINT) == ["SECRET s=2"]
    assert peer.answer(SECRET) == ["LISTENER l2=1"]
    assert peer.answer(LISTENER) == []
    assert peer.ask(ROUTE, "l1", "l2") == []
    assert peer.ask(EXTENSION, "x1", "x2") == ["EXTENSION x2=1"]
    assert peer.answer(EXTENSION) == ["ROUTE l2=1"]
    assert peer.answer(ROUTE) == ["ROUTE -l1"]
    assert peer.answer(ROUTE) == ["LISTENER -l1"]
    assert peer.answer(LISTENER) == ["ENDPOINT -c1"]
    assert peer.answer(ENDPOINT) == ["CLUSTER -c1"]
    assert peer.answer(CLUSTER) == []
    assert peer.session.due() is None


def test_endpoints_may_be_asked_for_before_the_clusters_are_accepted(peer: Peer) -> None:
    peer.settle_on_old()
    peer.publish(NEW)
    assert peer.ask(ENDPOINT, "c1", "c2") == ["ENDPOINT c2=1"]
    assert peer.answer(ENDPOINT) == []
    assert peer.answer(CLUSTER) == ["SECRET s=2"]


def test_a_step_with_nothing_to_send_is_skipped(peer: Peer) -> None:
    peer.settle_on_old()
    assert peer.publish({**OLD, ROUTE: {"l1": b"2"}}) == ["ROUTE l1=2"]


def test_every_wait_has_a_limit(peer: Peer) -> None:
    peer.settle_on_old()
    steps = [peer.publish(NEW)]
    while peer.session.due() is not None:
        steps.append(peer.wait())
    full = [["LISTENER l2=1"], ["CLUSTER c2=1"]]
    changes = [["ROUTE -l1"], ["LISTENER -l1"], ["ENDPOINT -c1"], ["CLUSTER -c1"]]
    first = [["CLUSTER c2=1"]] if peer.delta else [["CLUSTER c1=1 c2=1"]]
    listener = [["LISTENER l2=1"]] if peer.delta else [["LISTENER l1=1 l2=1"]]
    want = [*first, [], ["SECRET s=2"], *listener, [], [], *(changes if peer.delta else full), []]
    assert steps == want
    assert peer.now == 5.0 * (len(want) - 1)


def test_the_limit_is_five_seconds_from_when_the_response_went_out(peer: Peer) -> None:
    peer.settle_on_old()
    peer.now = 100.0
    peer.publish(NEW)
    assert peer.session.due() == 105.0
    assert peer.log(peer.session.elapsed(104.9)) == []
    assert peer.session.due() == 105.0


def test_a_refusal_keeps_what_the_old_listener_may_use() -> None:
    peer = Peer(delta=True)
    peer.settle_on_old()
    peer.publish({**OLD, CLUSTER: {"c2": b"1"}, LISTENER: {"l1": b"bad"}})
    assert peer.answer(CLUSTER) == ["LISTENER l1=bad"]
    assert peer.answer(LISTENER, "l1: no") == []
    assert peer.session.due() is None
    assert peer.publish({**OLD, CLUSTER: {"c2": b"1"}, LISTENER: {"l1": b"2"}}) == ["LISTENER l1=2"]
    assert peer.answer(LISTENER) == ["CLUSTER -c1"]


def test_a_refusal_of_what_is_no_longer_wanted_keeps_nothing() -> None:
    peer = Peer(delta=True)
    peer.settle_on_old()
    peer.publish({**OLD, LISTENER: {"l1": b"bad"}})
    assert peer.publish({**OLD, CLUSTER: {"c2": b"1"}, LISTENER: {"l1": b"2"}}) == ["CLUSTER c2=1"]
    assert peer.answer(LISTENER, "l1: no") == []
    assert peer.answer(CLUSTER) == ["LISTENER l1=2"]
    assert peer.answer(LISTENER) == ["CLUSTER -c1"]


def test_a_newer_snapshot_starts_again_from_what_the_client_holds() -> None:
    peer = Peer(delta=True)
    peer.settle_on_old()
    assert peer.publish(NEW) == ["CLUSTER c2=1"]
    assert peer.publish({**OLD, CLUSTER: {"c3": b"1"}}) == []
    assert peer.answer(CLUSTER) == ["CLUSTER c3=1"]
    assert peer.answer(CLUSTER) == ["CLUSTER -c1 -c2"]


def test_a_new_client_is_answered_at_once_for_each_type(peer: Peer) -> None:
    peer.publish(OLD)
    assert peer.ask(LISTENER) == ["LISTENER l1=1"]
    assert peer.ask(CLUSTER) == ["CLUSTER c1=1"]
    assert peer.ask(EXTENSION, "x1") == ["EXTENSION x1=1"]
    assert peer.ask(ROUTE, "l1") == ["ROUTE l1=1"]
    assert peer.ask(ENDPOINT, "c1") == ["ENDPOINT c1=1"]
    assert peer.ask(SECRET, "s") == ["SECRET s=1"]


def test_clients_that_wait_for_the_first_snapshot_get_clusters_before_listeners(peer: Peer) -> None:
    peer.ask(LISTENER)
    peer.ask(CLUSTER)
    assert peer.publish({**OLD, ENDPOINT: {}}) == ["CLUSTER c1=1"]
    assert peer.answer(CLUSTER) == ["LISTENER l1=1"]


def test_a_client_that_names_its_clusters_is_not_expected_to_ask_for_all_endpoints(peer: Peer) -> None:
    peer.ask(CLUSTER, "c1")
    peer.ask(LISTENER, "l1")
    assert peer.publish(OLD) == ["CLUSTER c1=1"]
    assert peer.answer(CLUSTER) == ["LISTENER l1=1"]


def test_a_late_answer_is_still_reported() -> None:
    session = SotwSession()
    session.publish(Snapshot.of(OLD), 0)
    version = session.received(SotwRequest(type_url=CLUSTER), 0).responses[0].version
    session.elapsed(5)
    (event,) = session.received(SotwRequest(type_url=CLUSTER, nonce="1", error="c1: no"), 6).events
    assert getattr(event, "version", None) == version


def test_a_listener_that_is_accepted_late_gets_its_extensions_meanwhile(peer: Peer) -> None:
    peer.settle_on_old()
    peer.publish({**OLD, LISTENER: {"l1": b"2"}, EXTENSION: {"x1": b"1", "x2": b"1"}, ROUTE: {"l1": b"2"}})
    assert peer.ask(EXTENSION, "x1", "x2") == ["EXTENSION x2=1"]
    assert peer.answer(EXTENSION) == []
    assert peer.answer(LISTENER) == ["ROUTE l1=2"]
    assert peer.answer(ROUTE) == []
    assert peer.session.due() is None


def test_extensions_wait_for_the_clusters_that_they_may_use(peer: Peer) -> None:
    peer.settle_on_old()
    peer.publish({**OLD, CLUSTER: {"c1": b"1", "c2": b"1"}, EXTENSION: {"x1": b"2", "x2": b"1"}})
    assert peer.ask(EXTENSION, "x1", "x2") == []
    assert peer.answer(CLUSTER) == ["EXTENSION x1=2 x2=1"]


def test_a_changed_extension_goes_out_alone_and_before_the_routes_that_rely_on_it(peer: Peer) -> None:
    peer.settle_on_old()
    assert peer.publish({**OLD, EXTENSION: {"x1": b"2"}, ROUTE: {"l1": b"2"}}) == ["EXTENSION x1=2"]
    assert peer.answer(EXTENSION) == ["ROUTE l1=2"]
    assert peer.answer(ROUTE) == []
    assert peer.session.due() is None


def test_a_refused_extension_holds_nothing_up_and_keeps_what_the_old_one_may_use() -> None:
    peer = Peer(delta=True)
    peer.settle_on_old()
    peer.publish({**OLD, CLUSTER: {"c2": b"1"}, EXTENSION: {"x1": b"bad"}, ROUTE: {"l1": b"2"}})
    assert peer.answer(CLUSTER) == ["EXTENSION x1=bad"]
    assert peer.answer(EXTENSION, "x1: no") == ["ROUTE l1=2"]
    assert peer.answer(ROUTE) == []
    assert peer.session.standing.refused == {(EXTENSION, "x1"): "x1: no"}
    assert peer.session.due() is None
    assert peer.publish({**OLD, CLUSTER: {"c2": b"1"}, EXTENSION: {"x1": b"3"}}) == ["EXTENSION x1=3"]
    assert peer.answer(EXTENSION) == ["ROUTE l1=1"]
    assert peer.answer(ROUTE) == ["CLUSTER -c1"]
    assert peer.session.standing.refused == {}


def test_nobody_is_expected_to_ask_for_what_a_refused_listener_names(peer: Peer) -> None:
    peer.settle_on_old()
    peer.publish({**OLD, LISTENER: {"l1": b"bad"}, EXTENSION: {"x2": b"1"}, ROUTE: {"l2": b"1"}})
    assert peer.answer(LISTENER, "l1: no") == []
    assert peer.session.due() is None


def test_the_endpoints_of_a_changed_cluster_are_sent_with_it(peer: Peer) -> None:
    peer.settle_on_old()
    assert peer.publish({**OLD, CLUSTER: {"c1": b"2"}}) == ["CLUSTER c1=2", "ENDPOINT c1=1"]
    assert peer.answer(ENDPOINT) == []
    assert peer.answer(CLUSTER) == []
    assert peer.session.due() is None


def test_the_endpoints_of_a_changed_cluster_are_sent_to_who_comes_back_with_them() -> None:
    latest = Snapshot.of({**OLD, CLUSTER: {"c1": b"2"}})
    sotw = SotwSession()
    sotw.publish(latest, 0)
    sotw.received(SotwRequest(type_url=CLUSTER, version="old"), 0)
    endpoints = SotwRequest(type_url=ENDPOINT, names=("c1",), version=latest.version(ENDPOINT))
    assert [response.type_url for response in sotw.received(endpoints, 0).responses] == [ENDPOINT]
    delta = DeltaSession()
    delta.publish(latest, 0)
    delta.received(DeltaRequest(type_url=CLUSTER, initial_versions={"c1": "old"}), 0)
    held = {"c1": latest.resources(ENDPOINT)["c1"].version}
    again = delta.received(DeltaRequest(type_url=ENDPOINT, subscribe=("c1",), initial_versions=held), 0)
    assert [response.type_url for response in again.responses] == [ENDPOINT]


def test_a_refusal_that_a_newer_response_overtook_is_reported(peer: Peer) -> None:
    peer.settle_on_old()
    peer.publish({**OLD, LISTENER: {"l1": b"bad"}})
    late = peer.nonce[LISTENER]
    peer.wait()
    assert peer.publish({**OLD, LISTENER: {"l1": b"2"}}) == ["LISTENER l1=2"]
    request: Any = SotwRequest(type_url=LISTENER, nonce=late, error="l1: no")
    if peer.delta:
        request = DeltaRequest(type_url=LISTENER, nonce=late, error="l1: no")
    output = peer.session.received(request, peer.now)
    assert [event.names for event in output.events] == [("l1",)]
    assert output.responses == ()
    assert peer.session.received(request, peer.now).events == ()
