"""The state-of-the-world variant, request by request."""

import pytest

from authplane.xds.server.request_limits import MOST_NAMES
from authplane.xds.server.served_types import TypeUrl
from authplane.xds.server.snapshot import Snapshot, Versioned
from authplane.xds.server.sotw import SotwSession
from authplane.xds.server.stream_messages import Acked, Nacked, Output, Refused, SotwRequest, SotwResponse

LISTENER, ROUTE, CLUSTER = TypeUrl.LISTENER, TypeUrl.ROUTE, TypeUrl.CLUSTER
ENDPOINT, SECRET = TypeUrl.ENDPOINT, TypeUrl.SECRET
NOTHING: Output[SotwResponse] = Output()


def snapshot(**contents: dict[str, bytes]) -> Snapshot:
    return Snapshot.of({TypeUrl[kind.upper()]: bodies for kind, bodies in contents.items()})


def ask(url: TypeUrl, *names: str, nonce: str = "", version: str = "", error: str | None = None) -> SotwRequest:
    return SotwRequest(type_url=url, node="edge", names=names, nonce=nonce, version=version, error=error)


def sent(session_output: Output[SotwResponse]) -> list[tuple[TypeUrl, dict[str, bytes]]]:
    return [
        (response.type_url, {name: item.body for name, item in response.resources})
        for response in session_output.responses
    ]


def ready(**contents: dict[str, bytes]) -> SotwSession:
    session = SotwSession()
    assert session.publish(snapshot(**contents), 0) == NOTHING
    return session


@pytest.mark.requirement("X07")
@pytest.mark.requirement("EN-12")
def test_nothing_is_sent_before_the_first_snapshot() -> None:
    session = SotwSession()
    assert session.received(ask(LISTENER), 0) == NOTHING
    assert session.due() is None
    published = snapshot(listener={"l": b"1"})
    assert session.publish(published, 1) == Output(
        (
            SotwResponse(
                type_url=LISTENER,
                version=published.version(LISTENER),
                nonce="1",
                resources=(("l", Versioned.of(b"1")),),
            ),
        )
    )


@pytest.mark.requirement("EN-11")
def test_resources_are_in_name_order() -> None:
    output = ready(cluster=dict.fromkeys(("b", "c", "a"), b"1")).received(ask(CLUSTER), 0)
    assert [name for name, _ in output.responses[0].resources] == ["a", "b", "c"]


def test_a_full_set_is_sent_when_one_of_it_changes() -> None:
    session = ready(cluster={"a": b"1", "b": b"1"})
    session.received(ask(CLUSTER), 0)
    session.received(ask(CLUSTER, nonce="1"), 0)
    assert sent(session.publish(snapshot(cluster={"a": b"1", "b": b"2"}), 1)) == [(CLUSTER, {"a": b"1", "b": b"2"})]


@pytest.mark.parametrize("url", [ROUTE, ENDPOINT, SECRET])
def test_only_what_changed_is_sent_of_the_other_types(url: TypeUrl) -> None:
    session = SotwSession()
    session.publish(Snapshot.of({url: {"a": b"1", "b": b"1"}}), 0)
    assert sent(session.received(ask(url, "a", "b"), 0)) == [(url, {"a": b"1", "b": b"1"})]
    session.received(ask(url, "a", "b", nonce="1"), 0)
    assert sent(session.publish(Snapshot.of({url: {"a": b"1", "b": b"2"}}), 1)) == [(url, {"b": b"2"})]


def test_an_unchanged_snapshot_sends_nothing() -> None:
    session = ready(cluster={"a": b"1"})
    session.received(ask(CLUSTER), 0)
    session.received(ask(CLUSTER, nonce="1"), 0)
    assert session.publish(snapshot(cluster={"a": b"1"}, listener={"l": b"1"}), 1) == NOTHING


def test_an_accepted_response_is_reported_and_not_answered() -> None:
    session = ready(cluster={"a": b"1"})
    version = session.received(ask(CLUSTER), 0).responses[0].version
    assert session.received(ask(CLUSTER, nonce="1", version=version), 0) == Output(
        events=(Acked(node="edge", type_url=CLUSTER, version=version),)
    )
    assert session.received(ask(CLUSTER, nonce="1", version=version), 0) == NOTHING


@pytest.mark.parametrize("url", TypeUrl)
def test_who_comes_back_with_the_present_version_gets_nothing(url: TypeUrl) -> None:
    current = Snapshot.of({url: {"a": b"1", "b": b"1"}})
    session = SotwSession()
    session.publish(current, 0)
    assert session.received(ask(url, "a", "gone", version=current.version(url, ["a"])), 0) == NOTHING
    assert sent(session.publish(Snapshot.of({url: {"a": b"2"}}), 1)) == [(url, {"a": b"2"})]


def test_who_comes_back_before_the_first_snapshot_is_compared_with_it() -> None:
    current = snapshot(cluster={"a": b"1"})
    session = SotwSession()
    session.received(ask(CLUSTER, version=current.version(CLUSTER)), 0)
    assert session.publish(current, 1) == NOTHING


@pytest.mark.parametrize("url", TypeUrl)
def test_who_comes_back_with_another_version_gets_an_answer(url: TypeUrl) -> None:
    session = SotwSession()
    session.publish(Snapshot.of({url: {"a": b"1"}}), 0)
    assert sent(session.received(ask(url, "a", version="old"), 0)) == [(url, {"a": b"1"})]


def test_who_comes_back_to_nothing_gets_an_empty_answer() -> None:
    assert sent(ready().received(ask(ROUTE, "r", version="old"), 0)) == [(ROUTE, {})]


@pytest.mark.parametrize("url", [LISTENER, CLUSTER])
def test_an_empty_full_set_is_answered_once(url: TypeUrl) -> None:
    session = ready()
    assert sent(session.received(ask(url), 0)) == [(url, {})]
    session.received(ask(url, nonce="1"), 0)
    assert session.publish(snapshot(), 1) == NOTHING


def test_a_listener_that_does_not_exist_is_answered_with_an_empty_set() -> None:
    assert sent(ready(listener={"other": b"1"}).received(ask(LISTENER, "l"), 0)) == [(LISTENER, {})]


@pytest.mark.parametrize("url", [ROUTE, ENDPOINT, SECRET])
def test_a_name_that_does_not_exist_is_answered_when_it_appears(url: TypeUrl) -> None:
    session = ready()
    assert session.received(ask(url, "later"), 0) == NOTHING
    assert sent(session.publish(Snapshot.of({url: {"later": b"1", "other": b"1"}}), 1)) == [(url, {"later": b"1"})]


def test_an_added_name_alone_is_sent() -> None:
    session = ready(endpoint={"a": b"1", "b": b"1"})
    session.received(ask(ENDPOINT, "a"), 0)
    session.received(ask(ENDPOINT, "a", nonce="1"), 0)
    assert sent(session.received(ask(ENDPOINT, "a", "b", nonce="1"), 0)) == [(ENDPOINT, {"b": b"1"})]


def test_a_name_that_was_left_out_is_sent_when_it_is_added_again() -> None:
    session = ready(endpoint={"a": b"1", "b": b"1"})
    session.received(ask(ENDPOINT, "a", "b"), 0)
    session.received(ask(ENDPOINT, "a", "b", nonce="1"), 0)
    assert session.received(ask(ENDPOINT, "a", nonce="1"), 0) == NOTHING
    assert sent(session.received(ask(ENDPOINT, "a", "b", nonce="1"), 0)) == [(ENDPOINT, {"b": b"1"})]


def test_a_name_added_with_an_acceptance_is_sent() -> None:
    session = ready(endpoint={"a": b"1", "b": b"1"})
    session.received(ask(ENDPOINT, "a"), 0)
    assert sent(session.received(ask(ENDPOINT, "a", "b", nonce="1"), 0)) == [(ENDPOINT, {"b": b"1"})]


def test_a_stale_request_is_ignored_with_its_names_until_the_client_repeats_them() -> None:
    session = ready(endpoint={"a": b"1", "b": b"1"})
    version = session.received(ask(ENDPOINT, "a"), 0).responses[0].version
    assert session.received(ask(ENDPOINT, "a", "b"), 0) == NOTHING
    output = session.received(ask(ENDPOINT, "a", "b", nonce="1"), 0)
    assert sent(output) == [(ENDPOINT, {"b": b"1"})]
    assert output.events == (Acked(node="edge", type_url=ENDPOINT, version=version),)


def test_a_name_that_was_dropped_and_asked_for_again_across_a_response_is_sent_again() -> None:
    session = ready(secret={"a": b"1", "b": b"1"})
    session.received(ask(SECRET, "a", "b"), 0)
    session.received(ask(SECRET, "a", "b", nonce="1"), 0)
    session.publish(snapshot(secret={"a": b"1", "b": b"2"}), 1)
    assert session.received(ask(SECRET, "b", nonce="1"), 1) == NOTHING
    assert session.received(ask(SECRET, "a", "b", nonce="1"), 1) == NOTHING
    assert sent(session.received(ask(SECRET, "a", "b", nonce="2"), 1)) == [(SECRET, {"a": b"1"})]


def test_no_names_mean_all_until_a_name_is_given() -> None:
    session = ready(cluster={"a": b"1", "b": b"1"})
    assert sent(session.received(ask(CLUSTER), 0)) == [(CLUSTER, {"a": b"1", "b": b"1"})]
    session.received(ask(CLUSTER, nonce="1"), 0)
    assert session.received(ask(CLUSTER, "a", nonce="1"), 0) == NOTHING
    assert session.received(ask(CLUSTER, nonce="1"), 0) == NOTHING
    assert session.publish(snapshot(cluster={"a": b"2", "b": b"2"}), 1) == NOTHING


def test_no_names_mean_nothing_for_the_other_types() -> None:
    assert ready(secret={"s": b"1"}).received(ask(SECRET), 0) == NOTHING


@pytest.mark.parametrize("url", TypeUrl)
def test_a_star_means_all_until_it_is_left_out(url: TypeUrl) -> None:
    session = SotwSession()
    session.publish(Snapshot.of({url: {"a": b"1", "b": b"1"}}), 0)
    assert sent(session.received(ask(url, "*", "a"), 0)) == [(url, {"a": b"1", "b": b"1"})]
    session.received(ask(url, "a", nonce="1"), 0)
    assert sent(session.publish(Snapshot.of({url: {"a": b"2", "b": b"2"}}), 1)) == [(url, {"a": b"2"})]


def test_a_star_that_is_left_out_for_nothing_ends_the_subscription() -> None:
    session = ready(cluster={"a": b"1"})
    session.received(ask(CLUSTER, "*"), 0)
    session.received(ask(CLUSTER, nonce="1"), 0)
    assert session.publish(snapshot(cluster={"a": b"2"}), 1) == NOTHING


def test_a_refused_response_is_reported_and_never_sent_again() -> None:
    session = ready(listener={"bad": b"1", "good": b"1"})
    version = session.received(ask(LISTENER), 0).responses[0].version
    error = "Error adding/updating listener(s) bad: \x1b[1mno"
    assert session.received(ask(LISTENER, nonce="1", error=error), 0) == Output(
        events=(
            Nacked(
                node="edge",
                type_url=LISTENER,
                version=version,
                names=("bad",),
                message="Error adding/updating listener(s) bad: \\x1b[1mno",
            ),
        )
    )
    assert session.publish(snapshot(listener={"bad": b"1", "good": b"1"}), 1) == NOTHING


def test_a_refusal_that_names_nothing_is_of_all_that_was_sent() -> None:
    session = ready(route={"a": b"1", "b": b"1"})
    session.received(ask(ROUTE, "a", "b"), 0)
    (event,) = session.received(ask(ROUTE, "a", "b", nonce="1", error=""), 0).events
    assert isinstance(event, Nacked)
    assert event.names == ("a", "b")


def test_after_a_refusal_the_next_content_and_the_old_one_are_sent() -> None:
    session = ready(cluster={"a": b"1"})
    session.received(ask(CLUSTER), 0)
    session.received(ask(CLUSTER, nonce="1"), 0)
    assert sent(session.publish(snapshot(cluster={"a": b"bad"}), 1)) == [(CLUSTER, {"a": b"bad"})]
    session.received(ask(CLUSTER, nonce="2", error="no"), 1)
    assert sent(session.publish(snapshot(cluster={"a": b"1"}), 2)) == [(CLUSTER, {"a": b"1"})]
    session.received(ask(CLUSTER, nonce="3"), 2)
    assert sent(session.publish(snapshot(cluster={"a": b"2"}), 3)) == [(CLUSTER, {"a": b"2"})]


def test_a_refused_resource_that_is_gone_is_not_sent_with_the_others() -> None:
    session = ready(listener={"bad": b"1"})
    session.received(ask(LISTENER), 0)
    session.received(ask(LISTENER, nonce="1", error="bad: no"), 0)
    assert sent(session.publish(snapshot(listener={"new": b"1"}), 1)) == [(LISTENER, {"new": b"1"})]


def test_who_refused_a_route_and_comes_back_is_sent_it_again() -> None:
    session = ready(route={"a": b"1", "b": b"1"})
    session.received(ask(ROUTE, "a", "b"), 0)
    session.received(ask(ROUTE, "a", "b", nonce="1", error="a: no"), 0)
    latest = snapshot(route={"a": b"1", "b": b"2"})
    version = session.publish(latest, 1).responses[0].version
    again = SotwSession()
    again.publish(latest, 2)
    assert sent(again.received(ask(ROUTE, "a", "b", version=version), 2)) == [(ROUTE, {"a": b"1", "b": b"2"})]


REFUSALS = {
    "an unknown type": (SotwRequest(type_url="type\n"), "type URL 'type\\n' is not supported"),
    "too many names": (
        SotwRequest(type_url=CLUSTER, names=tuple(map(str, range(MOST_NAMES + 1)))),
        "100001 resource names exceed the limit of 100000",
    ),
}


@pytest.mark.requirement("X16")
@pytest.mark.parametrize("case", REFUSALS.values(), ids=REFUSALS.keys())
def test_a_request_beyond_the_limits_ends_the_session(case: tuple[SotwRequest, str]) -> None:
    request, reason = case
    session = ready(cluster={"a": b"1"})
    assert session.received(request, 0) == Output(events=(Refused(reason=reason),))
    assert session.received(ask(CLUSTER), 0) == NOTHING
    assert session.publish(snapshot(cluster={"a": b"2"}), 1) == NOTHING
    assert session.elapsed(9) == NOTHING
    assert session.due() is None


def test_the_node_of_the_first_request_is_the_node_of_the_stream() -> None:
    session = ready(cluster={"a": b"1"})
    version = session.received(ask(CLUSTER), 0).responses[0].version
    assert session.received(SotwRequest(type_url=CLUSTER, nonce="1"), 0).events == (
        Acked(node="edge", type_url=CLUSTER, version=version),
    )
    assert session.node == "edge"
