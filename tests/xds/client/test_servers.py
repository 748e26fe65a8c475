"""Several servers: fallback and federation."""

from dataclasses import replace

import pytest
from tests.xds.client.driven_session import LISTENER, SIGNED, World, server

from authplane.xds.bootstrap.xds_bootstrap import Authority, Feature
from authplane.xds.client.watch_events import Ambient, Changed, Failed, Fault, Trouble

ONE, TWO, THREE = server("one"), server("two"), server("three")
KIND = "envoy.config.listener.v3.Listener"


def unreachable(uri: str) -> Fault:
    return Fault(Trouble.UNREACHABLE, f"xDS server {uri}: broken {SIGNED}")


def authority(*servers: object, **more: object) -> Authority:
    return replace(Authority(listener_template="%s", servers=servers), **more)  # type: ignore[arg-type]


@pytest.mark.requirement("XC-8")
def test_the_next_server_is_used_where_one_cannot_be_reached_and_something_is_missing() -> None:
    world = World(ONE, TWO, THREE)
    watcher = world.watch("a")
    assert world.attempts == ["one"]
    world.end("one")
    assert (world.attempts, world.heard(watcher)) == (["one", "two"], [])
    world.end("two")
    assert (world.attempts, world.heard(watcher)) == (["one", "two", "three"], [])
    world.end("three")
    assert world.heard(watcher) == [Failed(unreachable("three"))]


@pytest.mark.requirement("XC-8")
def test_the_next_server_is_not_used_while_nothing_is_missing() -> None:
    world = World(ONE, TWO)
    watcher = world.watch("a")
    missing = world.watch("b")
    world.open("one")
    world.respond("a=1")
    world.pass_time(15)
    world.heard(missing)
    world.end("one")
    world.pass_time(0)
    world.end("one")
    assert "two" not in world.attempts
    assert world.heard(watcher) == [Changed("1@one"), Ambient(unreachable("one"))]
    new = world.watch("c")
    assert world.attempts[-1] == "two"
    assert (world.heard(new), world.heard(watcher)) == ([], [Ambient(None)])


@pytest.mark.requirement("XC-8")
def test_everything_is_asked_of_the_next_server_and_what_it_sends_is_used() -> None:
    world = World(ONE, TWO)
    watcher = world.watch("a")
    world.open("one")
    world.respond("a=1")
    world.pass_time(5)
    world.end("one")
    world.pass_time(0)
    world.end("one")
    second = world.watch("b")
    world.unread.clear()
    world.open("two")
    assert [(uri, request.names) for uri, request in world.unread] == [("two", ("a", "b"))]
    world.respond("a=1", "b=1", uri="two")
    assert world.heard(watcher)[-1] == Changed("1@two")
    assert world.heard(second) == [Changed("1@two")]


@pytest.mark.requirement("XC-8")
def test_a_server_that_answers_again_takes_the_place_of_those_behind_it() -> None:
    world = World(ONE, TWO, THREE)
    watcher = world.watch("a")
    world.end("one")
    world.end("two")
    world.open("three")
    world.respond("a=3", uri="three")
    world.pass_time(2)
    world.open("one")
    assert sorted(world.links) == ["one", "three", "two"]
    world.respond("a=1", uri="one")
    assert sorted(world.links) == ["one"]
    assert world.heard(watcher) == [Changed("3@three"), Changed("1@one")]


@pytest.mark.requirement("XC-8")
def test_what_a_server_that_answers_again_does_not_have_counts_as_deleted() -> None:
    world = World(server("one", Feature.FAIL_ON_DATA_ERRORS), TWO)
    watcher = world.watch("a")
    world.end("one")
    world.open("two")
    world.respond("a=2", uri="two")
    world.pass_time(2)
    world.open("one")
    world.respond(uri="one")
    deleted = Fault(Trouble.NOT_FOUND, f"Listener 'a' was deleted on the server {SIGNED}")
    assert world.heard(watcher) == [Changed("2@two"), Failed(deleted)]


@pytest.mark.requirement("XC-8")
def test_a_server_that_comes_back_and_is_silent_takes_nothing_away_that_another_sent() -> None:
    world = World(ONE, TWO)
    watcher = world.watch("a")
    world.end("one")
    world.pass_time(2)
    world.open("one")
    world.open("two")
    world.respond("a=2", uri="two")
    world.pass_time(60)
    assert world.heard(watcher) == [Changed("2@two")]


@pytest.mark.requirement("XC-8")
def test_an_authority_may_ask_for_the_next_server_whenever_one_cannot_be_reached() -> None:
    world = World(ONE, authorities={"x": authority(ONE, TWO, fallback_on_reachability_only=True)})
    world.watch(f"xdstp://x/{KIND}/a")
    world.open("one")
    world.respond(f"xdstp://x/{KIND}/a=1")
    world.pass_time(5)
    world.end("one")
    world.pass_time(0)
    world.end("one")
    assert world.attempts == ["one", "one", "two"]


@pytest.mark.requirement("XC-8")
def test_a_server_that_is_named_twice_is_tried_once() -> None:
    world = World(ONE, ONE)
    watcher = world.watch("a")
    world.end("one")
    assert world.heard(watcher) == [Failed(unreachable("one"))]


@pytest.mark.requirement("XC-1")
def test_authorities_with_the_same_server_share_its_stream_and_others_have_their_own() -> None:
    world = World(ONE, authorities={"x": authority(), "y": authority(ONE), "z": authority(TWO)})
    for name in ("a", f"xdstp://x/{KIND}/a", f"xdstp://y/{KIND}/a", f"xdstp://z/{KIND}/a"):
        world.watch(name)
    assert world.attempts == ["one", "two"]
    world.open("one")
    world.open("two")
    assert [(uri, request.names) for uri, request in world.unread] == [
        ("one", ("a", f"xdstp://x/{KIND}/a", f"xdstp://y/{KIND}/a")),
        ("two", (f"xdstp://z/{KIND}/a",)),
    ]


@pytest.mark.requirement("XC-8")
def test_servers_with_other_credentials_or_features_are_other_servers() -> None:
    strict = server("one", Feature.FAIL_ON_DATA_ERRORS)
    world = World(ONE, authorities={"x": authority(strict)})
    world.session.watch(LISTENER.type_url, "a", 1)
    effects = world.session.watch(LISTENER.type_url, f"xdstp://x/{KIND}/a", 2)
    assert [effect.link.server for effect in effects] == [strict]  # type: ignore[union-attr]


def test_names_that_mean_the_same_are_one_resource() -> None:
    world = World(ONE, authorities={"x": authority()})
    first = world.watch(f"xdstp://x/{KIND}/a?p=1&q=2")
    second = world.watch(f"xdstp://x/{KIND}/%61?q=2&p=1")
    world.open()
    world.respond(f"xdstp://x/{KIND}/a?q=2&p=1=1")
    assert [len(world.heard(each)) for each in (first, second)] == [1, 1]
    assert [each.key.name for each in world.session.dump()] == [f"xdstp://x/{KIND}/a?p=1&q=2"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (f"xdstp://nobody/{KIND}/a", "has an authority that is not in the bootstrap"),
        ("xdstp://x/envoy.config.cluster.v3.Cluster/a", "is malformed"),
    ],
)
def test_a_name_that_no_server_can_have_fails_at_once(name: str, words: str) -> None:
    world = World(ONE, authorities={"x": authority()})
    watcher = world.watch(name)
    assert world.heard(watcher) == [Failed(Fault(Trouble.NAME, f"Listener '{name}' {words} {SIGNED}"))]
    world.unwatch(watcher)
    assert (world.attempts, world.session.dump()) == ([], ())


def test_a_response_that_another_authority_asked_for_deletes_nothing_of_a_newcomer() -> None:
    # The server is a stranger to what has just been asked of it: its next answer may be to an earlier request.
    two = server("two", Feature.FAIL_ON_DATA_ERRORS)
    world = World(two, authorities={"x": authority(ONE, two)})
    world.watch("b")
    world.open("two")
    world.respond("b=1", uri="two")
    name = f"xdstp://x/{KIND}/a"
    watcher = world.watch(name)
    world.open("one")
    world.respond(f"{name}=", uri="one")
    world.pass_time(5)
    world.end("one")
    world.pass_time(0)
    world.end("one")
    world.watch(f"xdstp://x/{KIND}/c")
    world.respond("b=2", uri="two")
    assert not any(isinstance(event, Failed) for event in world.heard(watcher))
