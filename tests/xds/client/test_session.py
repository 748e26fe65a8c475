"""One server and its client: requests, answers, faults and time."""

from dataclasses import replace

import pytest
from tests.xds.client.driven_session import LISTENER, NODE, ROUTE, SIGNED, World, server

from authplane.xds.bootstrap.xds_bootstrap import Authority, Feature
from authplane.xds.client.client_messages import Item, Report, Request, Response
from authplane.xds.client.resource_cache import Standing
from authplane.xds.client.watch_events import Ambient, Changed, Failed, Fault, Trouble

DELETED = Fault(Trouble.NOT_FOUND, f"Listener 'a' was deleted on the server {SIGNED}")
MISSING = Fault(Trouble.NOT_FOUND, f"Listener 'a' does not exist {SIGNED}")
INVALID = Fault(Trouble.INVALID, f"Listener 'a' is invalid: field[0]: is bad [Bad] {SIGNED}")
BROKEN = Fault(Trouble.UNREACHABLE, f"xDS server one: broken {SIGNED}")


def ask(*names: str, **more: object) -> Request:
    return replace(Request(type_url=LISTENER.type_url, names=names), **more)  # type: ignore[arg-type]


def opened(*features: Feature) -> tuple[World, int]:
    """Return a world with an open stream and a watcher of ``a``, whose first request is read."""
    world = World(server("one", *features))
    watcher = world.watch("a")
    world.open()
    world.requests()
    return world, watcher


# --- Requests


@pytest.mark.requirement("XC-1")
def test_the_first_request_of_a_stream_says_who_asks_and_the_others_do_not() -> None:
    world = World()
    world.watch("a")
    world.watch("r", ROUTE)
    assert world.requests() == []
    world.open()
    assert world.requests() == [ask("a", node=NODE), replace(ask("r"), type_url=ROUTE.type_url)]


@pytest.mark.requirement("XC-1")
def test_an_accepted_response_is_answered_with_its_version_and_nonce() -> None:
    world, watcher = opened()
    nonce = world.respond("a=1", version="v1")
    assert world.requests() == [ask("a", version="v1", nonce=nonce)]
    assert world.heard(watcher) == [Changed("1@one")]


@pytest.mark.requirement("XC-1")
def test_a_refusal_has_every_problem_and_the_last_good_version() -> None:
    world, _ = opened()
    world.watch("b")
    world.respond("a=1", version="v1")
    world.requests()
    nonce = world.respond("a=!!", "b=!", "b=2", version="v2")
    text = (
        "a: field[0]: is bad [Bad]; a: field[1]: is bad [Bad]; b: field[0]: is bad [Bad]; "
        "b: occurs twice in one response [Duplicate]"
    )
    assert world.requests() == [ask("a", "b", version="v1", nonce=nonce, error=text)]


@pytest.mark.requirement("XC-1")
def test_a_refusal_is_said_once() -> None:
    world, _ = opened()
    nonce = world.respond("a=!", version="v1")
    assert world.requests() == [ask("a", nonce=nonce, error="a: field[0]: is bad [Bad]")]
    world.watch("b")
    assert world.requests() == [ask("a", "b", nonce=nonce)]


def test_what_happens_at_one_time_goes_out_in_one_request() -> None:
    world = World()
    session = world.session
    effects = [*session.watch(LISTENER.type_url, "a", 1), *session.watch(LISTENER.type_url, "b", 2)]
    world.do(effects)
    world.open()
    assert world.requests() == [ask("a", "b", node=NODE)]


def test_who_leaves_and_comes_back_at_one_time_finds_the_resource_still_there() -> None:
    world, watcher = opened()
    nonce = world.respond("a=1")
    world.requests()
    effects = [*world.session.unwatch(watcher), *world.session.watch(LISTENER.type_url, "a", watcher)]
    world.do(effects)
    assert world.heard(watcher) == [Changed("1@one"), Changed("1@one")]
    assert world.requests() == []
    world.watch("b")
    assert world.requests() == [ask("a", "b", version="v", nonce=nonce)]


def test_what_nobody_watches_is_asked_for_no_longer() -> None:
    world, watcher = opened()
    world.watch("b")
    nonce = world.respond("a=1", "b=1")
    world.requests()
    world.unwatch(watcher)
    assert world.requests() == [ask("b", version="v", nonce=nonce)]


def test_a_type_that_nobody_watches_is_given_up_and_never_asked_for_as_a_whole() -> None:
    world, watcher = opened()
    world.watch("r", ROUTE)
    world.unwatch(watcher)
    world.requests()
    world.end()
    world.pass_time(1)
    world.open()
    assert world.requests() == [Request(type_url=ROUTE.type_url, names=("r",), node=NODE)]


def test_a_connection_ends_with_the_last_watcher() -> None:
    world, watcher = opened()
    second = world.watch("a")
    world.unwatch(watcher)
    assert list(world.links) == ["one"]
    world.unwatch(second)
    assert (world.links, world.session.due(), world.session.dump()) == ({}, None, ())


@pytest.mark.requirement("XC-2")
def test_what_was_not_asked_for_is_ignored_valid_or_not() -> None:
    world, watcher = opened()
    nonce = world.respond("other=1", "a=1", "worse=!")
    assert world.heard(watcher) == [Changed("1@one")]
    assert world.requests() == [ask("a", version="v", nonce=nonce)]
    assert [each.key.name for each in world.session.dump()] == ["a"]


@pytest.mark.requirement("XC-2")
def test_a_type_that_was_not_asked_for_is_not_answered() -> None:
    world, _ = opened()
    world.respond("r=1", kind=ROUTE)
    world.receive(Response(type_url="type.googleapis.com/unknown", version="v", nonce="n"))
    assert world.requests() == []


def test_a_resource_of_another_type_and_one_without_a_name_are_refused_and_the_rest_is_used() -> None:
    world, watcher = opened()
    items = (
        Item(type_url=ROUTE.type_url, body=b"a=0"),
        Item(type_url=LISTENER.type_url, body=b"a=?!"),
        Item(type_url=LISTENER.type_url, body=b"xdstp:nonsense=1"),
        Item(type_url=LISTENER.type_url, body=b"a=1"),
    )
    world.receive(Response(type_url=LISTENER.type_url, version="v", nonce="n", items=items))
    text = (
        f"resources[0]: has another type, '{ROUTE.type_url}' [TypeMismatch]; resources[1]: field[0]: is bad [Bad]; "
        "resources[2]: 'xdstp:nonsense' is not a resource name of this type [NameInvalid]"
    )
    assert world.requests() == [ask("a", nonce="n", error=text)]
    assert world.heard(watcher) == [Changed("1@one")]


def test_the_name_around_a_resource_counts_where_the_resource_has_none() -> None:
    world, watcher = opened()
    items = (Item(type_url=LISTENER.type_url, body=b"a=?!", name="a"),)
    world.receive(Response(type_url=LISTENER.type_url, version="v", nonce="n", items=items))
    assert world.heard(watcher) == [Failed(INVALID)]


def test_a_refusal_of_thousands_of_problems_is_cut() -> None:
    world, _ = opened()
    world.respond("a=" + "!" * 20_000)
    (request,) = world.requests()
    assert request.error is not None
    assert len(request.error) < 300_000


# --- Streams


@pytest.mark.requirement("XC-3")
def test_a_stream_that_ends_without_an_answer_is_a_failure() -> None:
    world, watcher = opened()
    world.end()
    assert world.heard(watcher) == [Failed(BROKEN)]


@pytest.mark.requirement("XC-3")
def test_a_stream_that_ends_after_an_answer_is_no_failure_and_everything_is_asked_for_anew() -> None:
    world, watcher = opened()
    world.respond("a=1", version="v1")
    world.pass_time(10)
    world.end()
    world.pass_time(0)
    world.requests()
    world.open()
    assert world.requests() == [ask("a", node=NODE)]
    nonce = world.respond("a=1", version="v1")
    assert world.requests() == [ask("a", version="v1", nonce=nonce)]
    assert world.heard(watcher) == [Changed("1@one")]


@pytest.mark.requirement("XC-3")
def test_a_server_that_answers_and_ends_the_stream_at_once_is_not_stormed() -> None:
    world, _ = opened()
    world.respond("a=1")
    world.end()
    world.pass_time(0.99)
    assert world.attempts == ["one"]
    world.pass_time(0.01)
    assert world.attempts == ["one", "one"]


@pytest.mark.requirement("XC-3")
@pytest.mark.parametrize(("draw", "factor"), [(0.5, 1), (0, 0.8), (0.999999999999, 1.2)])
def test_attempts_are_at_most_two_seconds_apart_until_the_server_answers(draw: float, factor: float) -> None:
    world = World()
    watcher = world.watch("a")
    delays = []
    for _ in range(13):
        world.end(draw=draw)
        due = world.session.due()
        assert due is not None
        delays.append(due - world.now)
        world.pass_time(delays[-1] + 0.001)
    want = [1.0 * factor, *[1.6 * factor] * 12]
    assert max(want) < 2
    assert delays == pytest.approx(want, abs=0.01)
    world.open()
    world.respond("a=1")
    world.end()
    world.pass_time(1.3)
    world.end()
    assert world.session.due() == pytest.approx(world.now + 1, abs=0.3)
    assert world.heard(watcher) == [Failed(BROKEN), Changed("1@one"), Ambient(BROKEN)]


def test_what_an_ended_stream_still_says_is_ignored() -> None:
    world, watcher = opened()
    late = world.links["one"]
    world.end()
    world.heard(watcher)
    world.pass_time(2)
    response = Response(
        type_url=LISTENER.type_url, version="v", nonce="n", items=(Item(type_url=LISTENER.type_url, body=b"a=1"),)
    )
    world.do(world.session.received(late, response, world.now))
    world.do(world.session.ended(late, "again", world.now, 0.5))
    world.do(world.session.connected(late, world.now))
    assert world.heard(watcher) == []
    assert world.attempts == ["one", "one"]


@pytest.mark.requirement("XC-3")
def test_a_lost_connection_leaves_the_resource_in_use_and_its_return_clears_the_fault() -> None:
    world, watcher = opened()
    world.respond("a=1")
    world.pass_time(5)
    world.end()
    world.pass_time(0)
    world.end()
    assert world.heard(watcher) == [Changed("1@one"), Ambient(BROKEN)]
    world.pass_time(2)
    world.open()
    assert world.heard(watcher) == []
    world.respond("a=1")
    assert world.heard(watcher) == [Ambient(None)]


# --- Time limits


@pytest.mark.requirement("XC-4")
def test_a_resource_that_does_not_come_in_15_seconds_does_not_exist() -> None:
    world, watcher = opened()
    world.pass_time(14.9)
    assert world.heard(watcher) == []
    world.pass_time(0.1)
    assert world.heard(watcher) == [Failed(MISSING)]
    assert [each.standing for each in world.session.dump()] == [Standing.DOES_NOT_EXIST]
    world.respond("a=1")
    assert world.heard(watcher) == [Changed("1@one")]


@pytest.mark.requirement("XC-4")
def test_a_server_that_would_say_so_has_30_seconds_and_is_only_slow() -> None:
    world, watcher = opened(Feature.RESOURCE_TIMER_IS_TRANSIENT_ERROR)
    world.pass_time(29.9)
    assert world.heard(watcher) == []
    world.pass_time(0.1)
    assert world.heard(watcher) == [Failed(Fault(Trouble.SLOW, f"Listener 'a' was not sent in time {SIGNED}"))]
    assert [each.standing for each in world.session.dump()] == [Standing.TIMEOUT]


@pytest.mark.requirement("XC-4")
def test_no_time_runs_before_the_request_is_written() -> None:
    world = World()
    watcher = world.watch("a")
    world.pass_time(60)
    link = world.links["one"]
    session = world.session
    session.connected(link, world.now)
    (send,) = session.flush()
    world.pass_time(60)
    assert world.heard(watcher) == []
    session.sent(link, send.request, world.now)  # type: ignore[union-attr]
    assert session.due() == world.now + 15


@pytest.mark.requirement("XC-4")
def test_no_time_runs_while_the_server_is_not_connected() -> None:
    world, watcher = opened()
    world.pass_time(10)
    world.end()
    world.pass_time(1)
    assert world.heard(watcher) == [Failed(BROKEN)]
    world.pass_time(60)
    world.open()
    world.pass_time(14.9)
    assert world.heard(watcher) == []
    world.pass_time(0.1)
    assert world.heard(watcher) == [Failed(MISSING)]


@pytest.mark.requirement("XC-4")
def test_no_time_runs_for_what_is_in_use() -> None:
    world, watcher = opened()
    world.respond("a=1")
    world.pass_time(10)
    world.end()
    world.pass_time(0)
    world.open()
    world.pass_time(60)
    assert world.heard(watcher) == [Changed("1@one")]


@pytest.mark.requirement("XC-4")
def test_a_refused_resource_has_come() -> None:
    world, watcher = opened()
    world.respond("a=!")
    world.pass_time(60)
    assert world.heard(watcher) == [Failed(INVALID)]


@pytest.mark.requirement("XC-4")
def test_each_name_has_its_own_time() -> None:
    world, first = opened()
    world.pass_time(10)
    second = world.watch("b")
    world.pass_time(5)
    assert (world.heard(first), world.heard(second)) == ([Failed(MISSING)], [])
    world.pass_time(10)
    assert len(world.heard(second)) == 1


# --- Deletion and data that is at fault


@pytest.mark.requirement("XC-5")
@pytest.mark.parametrize("features", [(), (Feature.IGNORE_RESOURCE_DELETION,)])
def test_a_deleted_listener_stays_in_use_with_a_fault_and_comes_back_without(features: tuple[Feature, ...]) -> None:
    world, watcher = opened(*features)
    world.respond("a=1")
    world.respond()
    world.respond()
    assert world.heard(watcher) == [Changed("1@one"), Ambient(DELETED)]
    assert [(each.standing, each.held is not None) for each in world.session.dump()] == [
        (Standing.DOES_NOT_EXIST, True)
    ]
    world.respond("a=1")
    assert world.heard(watcher) == [Ambient(None)]
    world.respond("a=2")
    assert world.heard(watcher) == [Changed("2@one")]


@pytest.mark.requirement("XC-5")
@pytest.mark.parametrize("features", [(), (Feature.IGNORE_RESOURCE_DELETION,)])
def test_a_deleted_listener_is_dropped_where_data_errors_are_to_fail(features: tuple[Feature, ...]) -> None:
    world, watcher = opened(Feature.FAIL_ON_DATA_ERRORS, *features)
    world.respond("a=1")
    world.respond()
    assert world.heard(watcher) == [Changed("1@one"), Failed(DELETED)]
    world.respond("a=1")
    assert world.heard(watcher) == [Changed("1@one")]


@pytest.mark.requirement("XC-5")
def test_a_listener_that_was_never_there_is_not_deleted() -> None:
    world, watcher = opened(Feature.FAIL_ON_DATA_ERRORS)
    world.respond()
    assert world.heard(watcher) == []
    world.pass_time(15)
    assert world.heard(watcher) == [Failed(MISSING)]


@pytest.mark.requirement("XC-5")
def test_a_route_that_a_response_leaves_out_is_not_deleted() -> None:
    world = World(server("one", Feature.FAIL_ON_DATA_ERRORS))
    watcher = world.watch("r", ROUTE)
    world.open()
    world.respond("r=1", kind=ROUTE)
    world.respond(kind=ROUTE)
    assert world.heard(watcher) == [Changed("1@one")]


@pytest.mark.requirement("XC-6")
def test_a_refused_update_leaves_the_last_good_version_in_use() -> None:
    world, watcher = opened()
    world.respond("a=1", version="v1")
    world.respond("a=!", version="v2")
    assert world.heard(watcher) == [Changed("1@one"), Ambient(INVALID)]
    (entry,) = world.session.dump()
    assert entry.standing is Standing.NACKED
    assert entry.held is not None
    assert entry.setback is not None
    assert (entry.held.version, entry.setback.version) == ("v1", "v2")
    world.respond("a=1", version="v3")
    assert world.heard(watcher) == [Ambient(None)]


@pytest.mark.requirement("XC-6")
def test_a_refused_update_drops_the_last_good_version_where_data_errors_are_to_fail() -> None:
    world, watcher = opened(Feature.FAIL_ON_DATA_ERRORS)
    world.respond("a=1")
    world.respond("a=!")
    assert world.heard(watcher) == [Changed("1@one"), Failed(INVALID)]


REPORTED = Fault(Trouble.REPORTED, f"Listener 'a' cannot be sent by the server: no\\x1b {SIGNED}")
REPORTS = {
    "not found, and data errors fail": (5, True, Failed(REPORTED)),
    "denied, and data errors fail": (7, True, Failed(REPORTED)),
    "overloaded, and data errors fail": (8, True, Ambient(REPORTED)),
    "not found": (5, False, Ambient(REPORTED)),
}


@pytest.mark.requirement("XC-9")
@pytest.mark.parametrize(("code", "strict", "want"), REPORTS.values(), ids=REPORTS.keys())
def test_a_server_that_cannot_send_a_resource_is_heard_and_its_code_goes_nowhere(
    code: int, strict: bool, want: object
) -> None:
    world, watcher = opened(*((Feature.FAIL_ON_DATA_ERRORS,) if strict else ()))
    world.respond("a=1")
    world.respond(reports=[Report(name="a", code=code, message="no\x1b"), Report(name="z", code=5, message="")])
    assert world.heard(watcher) == [Changed("1@one"), want]
    assert [each.standing for each in world.session.dump()] == [Standing.RECEIVED_ERROR]


def test_a_resource_that_was_sent_counts_more_than_the_word_that_it_cannot_be() -> None:
    world, watcher = opened()
    world.respond("a=1", reports=[Report(name="a", code=5, message="no")])
    assert world.heard(watcher) == [Changed("1@one")]
    assert [each.standing for each in world.session.dump()] == [Standing.ACKED]


def test_a_report_is_of_the_resource_however_its_name_is_spelled_and_of_none_if_that_is_malformed() -> None:
    world = World(authorities={"x": Authority(listener_template="%s")})
    watcher = world.watch("xdstp://x/envoy.config.listener.v3.Listener/a?k=1&l=2")
    world.open()
    malformed = Report(name="xdstp:nonsense", code=5, message="no")
    other_spelling = "xdstp://x/envoy.config.listener.v3.Listener/%61?l=2&k=1"
    world.respond(reports=[malformed])
    assert world.heard(watcher) == []
    world.respond(reports=[malformed, Report(name=other_spelling, code=5, message="no")])
    (event,) = world.heard(watcher)
    assert isinstance(event, Failed)
    assert event.fault.trouble is Trouble.REPORTED


def test_a_server_that_says_at_once_that_it_cannot_send_needs_no_time_limit() -> None:
    world, watcher = opened()
    nonce = world.respond(reports=[Report(name="a", code=5, message="no\x1b")])
    world.pass_time(60)
    assert world.heard(watcher) == [Failed(REPORTED)]
    assert world.requests() == [ask("a", version="v", nonce=nonce)]


@pytest.mark.requirement("XC-9")
def test_faults_have_words_and_no_status_code_of_the_server() -> None:
    world, watcher = opened()
    world.end(why="PERMISSION_DENIED: who are you\r\n")
    (event,) = world.heard(watcher)
    text = f"xDS server one: PERMISSION_DENIED: who are you\\r\\n {SIGNED}"
    assert event == Failed(Fault(Trouble.UNREACHABLE, text))
    assert Fault.__slots__ == ("trouble", "message")


@pytest.mark.requirement("XC-1")
def test_the_server_hears_when_nothing_of_a_type_is_wanted_any_more() -> None:
    world, _ = opened()
    watcher = world.watch("r", ROUTE)
    world.requests()
    nonce = world.respond("r=1", kind=ROUTE)
    world.requests()
    world.unwatch(watcher)
    assert world.requests() == [ask(type_url=ROUTE.type_url, version="v", nonce=nonce)]


# --- Watchers


@pytest.mark.requirement("XC-7")
def test_a_new_watcher_hears_of_the_resource_and_then_of_its_fault() -> None:
    world, _ = opened()
    world.respond("a=1")
    world.respond("a=!")
    assert world.heard(world.watch("a")) == [Changed("1@one"), Ambient(INVALID)]


@pytest.mark.requirement("XC-7")
def test_a_new_watcher_hears_why_there_is_no_resource() -> None:
    world, _ = opened()
    world.respond("a=!")
    assert world.heard(world.watch("a")) == [Failed(INVALID)]


@pytest.mark.requirement("XC-7")
def test_a_new_watcher_of_another_resource_hears_that_the_server_is_not_there() -> None:
    world, _ = opened()
    world.end()
    assert world.heard(world.watch("b")) == [Failed(BROKEN)]


@pytest.mark.requirement("XC-7")
def test_what_has_not_changed_is_not_told_again() -> None:
    world, watcher = opened()
    second = world.watch("b")
    world.respond("a=1", "b=1", version="v1")
    world.respond("a=1", "b=2", version="v2")
    assert world.heard(watcher) == [Changed("1@one")]
    assert world.heard(second) == [Changed("1@one"), Changed("2@one")]
    assert [each.held and each.held.version for each in world.session.dump()] == ["v2", "v2"]


@pytest.mark.requirement("XC-7")
def test_who_has_left_hears_nothing_more() -> None:
    world, watcher = opened()
    world.watch("a")
    world.unwatch(watcher)
    world.unwatch(watcher)
    world.respond("a=1")
    assert world.heard(watcher) == []


def test_a_type_that_is_not_known_is_a_bug_of_the_caller() -> None:
    with pytest.raises(KeyError):
        World().session.watch("type.googleapis.com/unknown", "a", 1)
