"""What is for programs: only who asks for it by name gets it, and nothing else counts for who does."""

from typing import Protocol

import pytest

from authplane.xds.server.delta import DeltaSession
from authplane.xds.server.served_types import TypeUrl, XdsName
from authplane.xds.server.snapshot import Snapshot
from authplane.xds.server.sotw import SotwSession
from authplane.xds.server.stream_messages import DeltaRequest, SotwRequest, Standing

OURS = "grpc/shop/cart/0.0.0.0:1"
EDGE: XdsName = (TypeUrl.LISTENER, "edge")
CART: XdsName = (TypeUrl.LISTENER, OURS)
CLUSTER: XdsName = (TypeUrl.CLUSTER, "a")


def snapshot(edge: str = "1", cart: str | None = "1") -> Snapshot:
    listeners = {"edge": edge.encode()} | ({} if cart is None else {OURS: cart.encode()})
    return Snapshot.of({TypeUrl.LISTENER: listeners, TypeUrl.CLUSTER: {"a": b"1"}})


class Client(Protocol):
    """A client of either variant."""

    session: SotwSession | DeltaSession

    def ask(self, *names: str) -> None: ...
    def publish(self, made: Snapshot) -> None: ...
    def take(self) -> list[dict[str, bytes | None]]: ...


class Sotw:
    """Names everything each time."""

    def __init__(self) -> None:
        self.session = SotwSession()
        self._names: tuple[str, ...] = ()
        self._nonce = ""
        self._version = ""
        self._got: list[dict[str, bytes | None]] = []

    def ask(self, *names: str, version: str = "") -> None:
        self._names, self._version = names, version or self._version
        self._say()

    def publish(self, made: Snapshot) -> None:
        self._read(self.session.publish(made, 0).responses)

    def take(self) -> list[dict[str, bytes | None]]:
        got, self._got = self._got, []
        return got

    def _say(self, error: str | None = None) -> None:
        request = SotwRequest(
            type_url=TypeUrl.LISTENER, names=self._names, nonce=self._nonce, version=self._version, error=error
        )
        self._read(self.session.received(request, 0).responses)

    def _read(self, responses: object) -> None:
        for each in responses if isinstance(responses, tuple) else ():
            self._got.append({name: item.body for name, item in each.resources})
            self._nonce, self._version = each.nonce, each.version
            self._say()


class Delta:
    """Names what is new."""

    def __init__(self) -> None:
        self.session = DeltaSession()
        self._got: list[dict[str, bytes | None]] = []

    def ask(self, *names: str) -> None:
        self._read(self.session.received(DeltaRequest(type_url=TypeUrl.LISTENER, subscribe=names), 0).responses)

    def publish(self, made: Snapshot) -> None:
        self._read(self.session.publish(made, 0).responses)

    def take(self) -> list[dict[str, bytes | None]]:
        got, self._got = self._got, []
        return got

    def _read(self, responses: object) -> None:
        for each in responses if isinstance(responses, tuple) else ():
            removed: dict[str, bytes | None] = dict.fromkeys(each.removed)
            self._got.append(removed | {name: item.body for name, item in each.resources})
            answer = DeltaRequest(type_url=TypeUrl.LISTENER, nonce=each.nonce)
            self._read(self.session.received(answer, 0).responses)


@pytest.fixture(params=[Sotw, Delta], ids=["sotw", "delta"])
def client(request: pytest.FixtureRequest) -> Client:
    made: Client = request.param()
    made.publish(snapshot())
    return made


@pytest.mark.parametrize("names", [(), ("*",)], ids=["no names", "the wildcard"])
def test_who_asks_for_everything_does_not_get_it(client: Client, names: tuple[str, ...]) -> None:
    client.ask(*names)
    assert client.take() == [{"edge": b"1"}]
    client.publish(snapshot(cart="2"))
    assert client.take() == []
    client.publish(snapshot(cart=None))
    assert client.take() == []
    client.publish(snapshot(edge="2", cart="3"))
    assert client.take() == [{"edge": b"2"}]
    assert client.session.standing == Standing(pending=frozenset({CLUSTER}), refused={})


def test_who_asks_by_name_gets_it_and_its_changes(client: Client) -> None:
    client.ask(OURS)
    assert client.take() == [{OURS: b"1"}]
    client.publish(snapshot(edge="2"))
    assert client.take() == []
    client.publish(snapshot(edge="2", cart="2"))
    assert client.take() == [{OURS: b"2"}]
    client.publish(snapshot(edge="2", cart=None))
    assert client.take() in ([{}], [{OURS: None}])


def test_who_asks_for_everything_and_for_a_name_gets_both(client: Client) -> None:
    client.ask("*", OURS)
    assert client.take() == [{"edge": b"1", OURS: b"1"}]
    client.publish(snapshot(cart="2"))
    [got] = client.take()
    assert got[OURS] == b"2"


def test_only_what_it_names_counts_for_who_asks_by_name(client: Client) -> None:
    assert client.session.standing == Standing(pending=frozenset({EDGE, CLUSTER}), refused={})
    client.ask(OURS)
    assert client.session.standing == Standing(pending=frozenset(), refused={}, named=frozenset({CART}))


def test_a_proxy_that_comes_back_with_everything_is_sent_nothing() -> None:
    first = Sotw()
    first.publish(snapshot())
    first.ask()
    back = Sotw()
    back.publish(snapshot(cart="2"))
    back.ask(version=first._version)
    assert back.take() == []
