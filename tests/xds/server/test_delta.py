"""The incremental variant, request by request."""

import pytest

from authplane.xds.server.delta import DeltaSession
from authplane.xds.server.request_limits import MOST_NAMES
from authplane.xds.server.served_types import TypeUrl
from authplane.xds.server.snapshot import Snapshot, Versioned
from authplane.xds.server.stream_messages import Acked, DeltaRequest, DeltaResponse, Nacked, Output, Refused

LISTENER, ROUTE, CLUSTER = TypeUrl.LISTENER, TypeUrl.ROUTE, TypeUrl.CLUSTER
ENDPOINT, SECRET, EXTENSION = TypeUrl.ENDPOINT, TypeUrl.SECRET, TypeUrl.EXTENSION
NOTHING: Output[DeltaResponse] = Output()


def snapshot(**contents: dict[str, bytes]) -> Snapshot:
    return Snapshot.of({TypeUrl[kind.upper()]: bodies for kind, bodies in contents.items()})


def ask(url: TypeUrl, *names: str, leave: tuple[str, ...] = (), held: dict[str, bytes] | None = None) -> DeltaRequest:
    versions = {name: Versioned.of(body).version for name, body in (held or {}).items()}
    return DeltaRequest(type_url=url, node="edge", subscribe=names, unsubscribe=leave, initial_versions=versions)


def answer(url: TypeUrl, nonce: str, error: str | None = None) -> DeltaRequest:
    return DeltaRequest(type_url=url, nonce=nonce, error=error)


def sent(output: Output[DeltaResponse]) -> list[tuple[TypeUrl, dict[str, bytes], tuple[str, ...]]]:
    return [
        (response.type_url, {name: item.body for name, item in response.resources}, response.removed)
        for response in output.responses
    ]


def ready(**contents: dict[str, bytes]) -> DeltaSession:
    session = DeltaSession()
    assert session.publish(snapshot(**contents), 0) == NOTHING
    return session


@pytest.mark.requirement("X07")
@pytest.mark.requirement("EN-12")
def test_nothing_is_sent_before_the_first_snapshot() -> None:
    session = DeltaSession()
    assert session.received(ask(LISTENER), 0) == NOTHING
    published = snapshot(listener={"l": b"1"})
    assert session.publish(published, 1) == Output(
        (
            DeltaResponse(
                type_url=LISTENER,
                version=published.version(LISTENER),
                nonce="1",
                resources=(("l", Versioned.of(b"1")),),
                removed=(),
            ),
        )
    )


@pytest.mark.parametrize("url", [LISTENER, CLUSTER])
def test_only_what_changed_is_sent(url: TypeUrl) -> None:
    session = DeltaSession()
    session.publish(Snapshot.of({url: {"a": b"1", "b": b"1"}}), 0)
    session.received(ask(url), 0)
    session.received(answer(url, "1"), 0)
    after = Snapshot.of({url: {"a": b"1", "b": b"2"}})
    assert sent(session.publish(after, 1)) == [(url, {"b": b"2"}, ())]
    session.received(answer(url, "2"), 1)
    assert session.publish(after, 2) == NOTHING


@pytest.mark.parametrize("url", TypeUrl)
def test_who_comes_back_gets_only_what_it_lacks(url: TypeUrl) -> None:
    session = DeltaSession()
    session.publish(Snapshot.of({url: {"same": b"1", "changed": b"2", "new": b"1"}}), 0)
    held = {"same": b"1", "changed": b"1", "gone": b"1"}
    assert sent(session.received(ask(url, "*", held=held), 0)) == [(url, {"changed": b"2", "new": b"1"}, ())]
    gone: list[object] = [] if url is EXTENSION else [(url, {}, ("gone",))]
    assert sent(session.received(answer(url, "1"), 0)) == gone


def test_a_filter_configuration_is_not_removed_from_a_subscribed_client() -> None:
    session = ready(extension={"a": b"1", "b": b"1"})
    session.received(ask(EXTENSION, "a", "b"), 0)
    session.received(answer(EXTENSION, "1"), 0)
    assert session.publish(snapshot(extension={"b": b"1"}), 1) == NOTHING
    assert session.received(ask(EXTENSION, leave=("a",)), 1) == NOTHING
    assert sent(session.received(ask(EXTENSION, "a"), 1)) == [(EXTENSION, {}, ("a",))]


def test_a_filter_configuration_is_not_removed_from_a_client_that_reconnects_with_it() -> None:
    session = ready(extension={"b": b"1"})
    assert session.received(ask(EXTENSION, "a", "b", held={"a": b"1", "b": b"1"}), 0) == NOTHING
    assert session.due() is None


def test_a_client_that_subscribes_to_a_missing_filter_configuration_learns_that() -> None:
    session = ready(extension={})
    assert sent(session.received(ask(EXTENSION, "a"), 0)) == [(EXTENSION, {}, ("a",))]


@pytest.mark.parametrize("url", TypeUrl)
def test_who_comes_back_with_everything_gets_nothing(url: TypeUrl) -> None:
    session = DeltaSession()
    session.publish(Snapshot.of({url: {"a": b"1", "other": b"1"}}), 0)
    assert session.received(ask(url, "a", held={"a": b"1"}), 0) == NOTHING


def test_who_comes_back_before_the_first_snapshot_is_compared_with_it() -> None:
    session = DeltaSession()
    session.received(ask(CLUSTER, held={"a": b"1", "gone": b"1"}), 0)
    assert sent(session.publish(snapshot(cluster={"a": b"1"}), 1)) == [(CLUSTER, {}, ("gone",))]


def test_versions_count_in_the_first_request_only() -> None:
    session = ready(cluster={"a": b"1"})
    session.received(ask(CLUSTER), 0)
    session.received(answer(CLUSTER, "1"), 0)
    assert session.received(ask(CLUSTER, held={"a": b"0", "gone": b"1"}), 0) == NOTHING


@pytest.mark.parametrize("url", [LISTENER, CLUSTER])
def test_an_empty_set_is_answered_once(url: TypeUrl) -> None:
    session = ready()
    assert sent(session.received(ask(url), 0)) == [(url, {}, ())]
    session.received(answer(url, "1"), 0)
    assert session.publish(snapshot(), 1) == NOTHING


def test_a_name_that_does_not_exist_is_answered_as_removed_once_and_sent_when_it_appears() -> None:
    session = ready(secret={"a": b"1"})
    assert sent(session.received(ask(SECRET, "a", "later"), 0)) == [(SECRET, {"a": b"1"}, ("later",))]
    session.received(answer(SECRET, "1"), 0)
    assert session.publish(snapshot(secret={"a": b"1"}), 1) == NOTHING
    assert sent(session.publish(snapshot(secret={"a": b"1", "later": b"1"}), 2)) == [(SECRET, {"later": b"1"}, ())]


def test_a_name_that_is_subscribed_to_again_is_sent_again() -> None:
    # xDS protocol: the client may have forgotten a resource while it seems subscribed to it.
    session = ready(endpoint={"a": b"1"})
    session.received(ask(ENDPOINT, "a"), 0)
    session.received(answer(ENDPOINT, "1"), 0)
    assert sent(session.received(ask(ENDPOINT, "a"), 0)) == [(ENDPOINT, {"a": b"1"}, ())]


def test_a_name_that_was_left_is_not_sent_until_it_is_asked_for_again() -> None:
    session = ready(endpoint={"a": b"1"})
    session.received(ask(ENDPOINT, "a"), 0)
    session.received(answer(ENDPOINT, "1"), 0)
    assert session.received(ask(ENDPOINT, leave=("a",)), 0) == NOTHING
    assert session.publish(snapshot(endpoint={"a": b"2"}), 1) == NOTHING
    assert sent(session.received(ask(ENDPOINT, "a"), 1)) == [(ENDPOINT, {"a": b"2"}, ())]


def test_a_change_that_rides_on_a_stale_nonce_counts() -> None:
    session = ready(endpoint={"a": b"1", "b": b"1"})
    session.received(ask(ENDPOINT, "a"), 0)
    session.received(answer(ENDPOINT, "1"), 0)
    request = DeltaRequest(type_url=ENDPOINT, subscribe=("b",), nonce="none", error="ignored")
    output = session.received(request, 0)
    assert (sent(output), output.events) == ([(ENDPOINT, {"b": b"1"}, ())], ())


def test_no_names_mean_all_even_after_a_name_is_given() -> None:
    session = ready(cluster={"a": b"1"})
    session.received(ask(CLUSTER), 0)
    session.received(answer(CLUSTER, "1"), 0)
    session.received(ask(CLUSTER, "a"), 0)
    session.received(answer(CLUSTER, "2"), 0)
    assert sent(session.publish(snapshot(cluster={"a": b"1", "b": b"1"}), 1)) == [(CLUSTER, {"b": b"1"}, ())]


def test_no_names_mean_nothing_for_the_other_types() -> None:
    assert ready(secret={"s": b"1"}).received(ask(SECRET), 0) == NOTHING


def test_leaving_the_star_leaves_what_was_not_named() -> None:
    session = ready(cluster={"a": b"1", "b": b"1"})
    session.received(ask(CLUSTER, "*", "a"), 0)
    session.received(answer(CLUSTER, "1"), 0)
    assert session.received(ask(CLUSTER, leave=("*",)), 0) == NOTHING
    assert sent(session.publish(snapshot(cluster={"a": b"2", "b": b"2"}), 1)) == [(CLUSTER, {"a": b"2"}, ())]


def test_leaving_a_name_that_the_star_covers_is_answered_with_its_state() -> None:
    session = ready(cluster={"a": b"1"})
    session.received(ask(CLUSTER, "*", "a", "gone"), 0)
    session.received(answer(CLUSTER, "1"), 0)
    assert sent(session.received(ask(CLUSTER, leave=("a", "gone")), 0)) == [(CLUSTER, {"a": b"1"}, ("gone",))]


def test_a_star_added_later_brings_the_rest() -> None:
    session = ready(cluster={"a": b"1", "b": b"1"})
    session.received(ask(CLUSTER, "a"), 0)
    session.received(answer(CLUSTER, "1"), 0)
    assert sent(session.received(ask(CLUSTER, "*"), 0)) == [(CLUSTER, {"b": b"1"}, ())]


def test_a_second_question_waits_for_the_answer_to_the_first_response() -> None:
    session = ready(endpoint={"a": b"1", "b": b"1"})
    session.received(ask(ENDPOINT, "a"), 0)
    assert session.received(ask(ENDPOINT, "b"), 0) == NOTHING
    assert sent(session.received(answer(ENDPOINT, "1"), 0)) == [(ENDPOINT, {"b": b"1"}, ())]


def test_a_refused_response_is_reported_and_never_sent_again() -> None:
    session = ready(cluster={"bad": b"1", "good": b"1"})
    version = session.received(ask(CLUSTER), 0).responses[0].version
    assert session.received(answer(CLUSTER, "1", "bad: no"), 0) == Output(
        events=(Nacked(node="edge", type_url=CLUSTER, version=version, names=("bad",), message="bad: no"),)
    )
    assert session.publish(snapshot(cluster={"bad": b"1", "good": b"1"}), 1) == NOTHING
    assert sent(session.publish(snapshot(cluster={"bad": b"2", "good": b"1"}), 2)) == [(CLUSTER, {"bad": b"2"}, ())]
    session.received(answer(CLUSTER, "2", "bad: no"), 2)
    assert sent(session.publish(snapshot(cluster={"bad": b"1", "good": b"1"}), 3)) == [(CLUSTER, {"bad": b"1"}, ())]


def test_a_refused_removal_is_tried_again_with_the_next_snapshot() -> None:
    session = ready(cluster={"a": b"1"})
    session.received(ask(CLUSTER), 0)
    session.received(answer(CLUSTER, "1"), 0)
    assert sent(session.publish(snapshot(), 1)) == [(CLUSTER, {}, ("a",))]
    assert session.received(answer(CLUSTER, "2", "no"), 1).responses == ()
    assert sent(session.publish(snapshot(), 2)) == [(CLUSTER, {}, ("a",))]


def test_an_accepted_response_is_reported() -> None:
    session = ready(cluster={"a": b"1"})
    version = session.received(ask(CLUSTER), 0).responses[0].version
    accepted: Output[DeltaResponse] = Output(events=(Acked(node="edge", type_url=CLUSTER, version=version),))
    assert session.received(answer(CLUSTER, "1"), 0) == accepted
    assert session.received(answer(CLUSTER, "1"), 0) == NOTHING


MANY = tuple(map(str, range(MOST_NAMES + 1)))
REFUSALS = {
    "an unknown type": (DeltaRequest(type_url="x"), "type URL 'x' is not supported"),
    "too many names": (
        DeltaRequest(type_url=CLUSTER, subscribe=MANY),
        "100001 resource names exceed the limit of 100000",
    ),
    "too many names to leave": (
        DeltaRequest(type_url=CLUSTER, unsubscribe=MANY),
        "100001 resource names exceed the limit of 100000",
    ),
    "too many versions": (
        DeltaRequest(type_url=CLUSTER, initial_versions=dict.fromkeys(MANY, "1")),
        "100001 resource names exceed the limit of 100000",
    ),
    "too many names with those before": (
        DeltaRequest(type_url=ENDPOINT, subscribe=MANY[:MOST_NAMES]),
        "100001 resource names exceed the limit of 100000",
    ),
}


@pytest.mark.requirement("X16")
@pytest.mark.parametrize("case", REFUSALS.values(), ids=REFUSALS.keys())
def test_a_request_beyond_the_limits_ends_the_session(case: tuple[DeltaRequest, str]) -> None:
    request, reason = case
    session = ready()
    session.received(ask(ENDPOINT, "one more"), 0)
    assert session.received(request, 0) == Output(events=(Refused(reason=reason),))
    assert session.received(ask(CLUSTER), 0) == NOTHING
    assert session.publish(snapshot(cluster={"a": b"2"}), 1) == NOTHING
    assert (session.elapsed(9), session.due()) == (NOTHING, None)
