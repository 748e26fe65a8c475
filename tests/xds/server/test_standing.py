"""What a client says of the present snapshot, for the status of resources."""

import pytest

from authplane.xds.server.delta import DeltaSession
from authplane.xds.server.served_types import TypeUrl
from authplane.xds.server.snapshot import Snapshot
from authplane.xds.server.sotw import SotwSession
from authplane.xds.server.stream_messages import DeltaRequest, SotwRequest, Standing

A, B = (TypeUrl.CLUSTER, "a"), (TypeUrl.CLUSTER, "b")
ROUTE = (TypeUrl.ROUTE, "r")
NOTHING = Standing(pending=frozenset(), refused={})


def snapshot(**clusters: str) -> Snapshot:
    return Snapshot.of({TypeUrl.CLUSTER: {name: text.encode() for name, text in clusters.items()}})


@pytest.fixture(params=["sotw", "delta"])
def session(request: pytest.FixtureRequest) -> "Session":
    return Session(delta=request.param == "delta")


class Session:
    """Either variant, asked in one way."""

    def __init__(self, *, delta: bool) -> None:
        self._session = DeltaSession() if delta else SotwSession()
        self._nonce = ""

    @property
    def standing(self) -> Standing:
        return self._session.standing

    def publish(self, made: Snapshot) -> None:
        self._remember(self._session.publish(made, 0).responses)

    def say(self, error: str | None = None) -> None:
        """Ask for clusters, or answer the latest response."""
        if isinstance(self._session, DeltaSession):
            request = DeltaRequest(type_url=TypeUrl.CLUSTER, node="n", nonce=self._nonce, error=error)
            self._remember(self._session.received(request, 0).responses)
        else:
            asked = SotwRequest(type_url=TypeUrl.CLUSTER, node="n", nonce=self._nonce, error=error)
            self._remember(self._session.received(asked, 0).responses)

    def _remember(self, responses: object) -> None:
        for response in responses if isinstance(responses, tuple) else ():
            self._nonce = response.nonce


def test_what_is_not_answered_is_pending(session: Session) -> None:
    session.publish(snapshot(a="1", b="1"))
    assert session.standing == Standing(pending=frozenset({A, B}), refused={})
    session.say()
    assert session.standing == Standing(pending=frozenset({A, B}), refused={})
    session.say()
    assert session.standing == NOTHING


def test_a_change_is_pending_until_it_is_answered(session: Session) -> None:
    session.publish(snapshot(a="1", b="1"))
    session.say()
    session.say()
    session.publish(snapshot(a="1", b="2"))
    assert session.standing == Standing(pending=frozenset({B}), refused={})
    session.say()
    assert session.standing == NOTHING


def test_what_is_refused_is_known_with_the_clients_words_until_it_changes(session: Session) -> None:
    session.publish(snapshot(a="1", b="1"))
    session.say()
    session.say(error="cluster b: no")
    assert session.standing == Standing(pending=frozenset(), refused={B: "cluster b: no"})
    session.publish(snapshot(a="1", b="2"))
    assert session.standing == Standing(pending=frozenset({B}), refused={})
    session.say()
    assert session.standing == NOTHING


def test_what_is_refused_and_then_removed_is_forgotten(session: Session) -> None:
    session.publish(snapshot(a="1", b="1"))
    session.say()
    session.say(error="cluster b: no")
    session.publish(snapshot(a="1"))
    assert session.standing.refused == {}


def test_a_type_that_was_never_asked_for_is_pending(session: Session) -> None:
    session.publish(Snapshot.of({TypeUrl.CLUSTER: {"a": b"1"}, TypeUrl.ROUTE: {"r": b"1"}}))
    session.say()
    session.say()
    assert session.standing == Standing(pending=frozenset({ROUTE}), refused={})
