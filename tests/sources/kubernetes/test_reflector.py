"""The reflector: whatever an API server does, what is known in the end is what there is."""

import json
from random import Random

import pytest
from tests.sources.kubernetes.model_server import Follower, ModelServer

from authplane.core.names import ObjectName
from authplane.resources.catalogue import KINDS
from authplane.sources.kubernetes.api_kinds import ApiKind, api_kinds
from authplane.sources.kubernetes.reflector import GRACE, Reflector, Scope
from authplane.sources.kubernetes.reflector_steps import (
    Absent,
    Discover,
    FetchPage,
    Forbidden,
    Gone,
    Listed,
    OpenWatch,
    Pause,
    Pending,
    Put,
    Standing,
)

THINGS = ApiKind(group="example.dev", versions=("v2", "v1"), plural="things", kind="Thing")
PATH = "/apis/example.dev/v2/things"


def _page(*names: str, version: str = "7", more: str = "") -> bytes:
    items = [{"metadata": {"namespace": "a", "name": name, "resourceVersion": version}} for name in names]
    meta = {"resourceVersion": version, "continue": more}
    return json.dumps({"apiVersion": "example.dev/v2", "metadata": meta, "items": items}).encode()


def _event(kind: str, name: str, version: str) -> bytes:
    meta = {"namespace": "a", "name": name, "resourceVersion": version}
    return json.dumps({"type": kind, "object": {"metadata": meta}}).encode()


def _standing(reflector: Reflector) -> Standing:
    return reflector.standing


def _listed(*names: str) -> Reflector:
    reflector = Reflector(THINGS, streaming=False)
    reflector.step(0, 0)
    reflector.page(_page(*names), 0, 0)
    return reflector


@pytest.mark.parametrize("seed", range(100))
def test_in_the_end_the_store_is_what_there_is(seed: int) -> None:
    random = Random(seed)  # noqa: S311 (no secret)
    server = ModelServer(random, streaming=random.random() < 0.5)
    follower = Follower(Reflector(THINGS, page=3, streaming=random.random() < 0.7), server, random)
    for _ in range(random.randrange(10)):
        server.change()
    for _ in range(4):
        follower.faults = True
        follower.run(random.randrange(40))
        follower.faults = server.forbidden = server.absent = False
        follower.run(60)
        assert follower.store == server.objects
        assert follower.reflector.standing == Listed()
        assert not follower.reflector.trouble


def test_a_list_has_pages_and_a_watch_begins_where_it_ended() -> None:
    reflector = Reflector(THINGS, Scope(namespace="a", labels="x=y", fields="type!=z"), page=2, streaming=False)
    path, query = "/apis/example.dev/v2/namespaces/a/things", {"labelSelector": "x=y", "fieldSelector": "type!=z"}
    assert reflector.step(0, 0) == FetchPage(path=path, query={**query, "limit": "2"})
    first = reflector.page(_page("one", "two", more="t"), 0, 0)
    assert [type(each) for each in first] == [Put, Put]
    assert _standing(reflector) == Pending()
    assert reflector.step(0, 0) == FetchPage(path=path, query={**query, "limit": "2", "continue": "t"})
    [last] = reflector.page(_page("three"), 0, 0)
    assert last == Put(
        ObjectName("a", "three"),
        {
            "apiVersion": "example.dev/v2",
            "kind": "Thing",
            "metadata": {"namespace": "a", "name": "three", "resourceVersion": "7"},
        },
    )
    assert _standing(reflector) == Listed()
    watch = {"resourceVersion": "7", "watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": "450"}
    assert reflector.step(0, 0.5) == OpenWatch(path=path, query={**query, **watch}, silence=480)


def test_a_streaming_list_is_complete_at_its_bookmark() -> None:
    reflector = Reflector(THINGS)
    asked = reflector.step(0, 0)
    assert isinstance(asked, OpenWatch)
    assert asked.query == {
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "watch": "1",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": "300",
    }
    reflector.opened(0)
    assert len(reflector.line(_event("ADDED", "one", "3"), 0, 0)) == 1
    assert _standing(reflector) == Pending()
    end = {"metadata": {"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}}}
    assert reflector.line(json.dumps({"type": "BOOKMARK", "object": end}).encode(), 0, 0) == ()
    assert (_standing(reflector), reflector.watching) == (Listed(), True)


def test_a_server_without_streaming_lists_gets_pages_and_is_not_asked_again() -> None:
    reflector = Reflector(THINGS)
    reflector.step(0, 0)
    reflector.refused(422, b"{}", 0, 0)
    assert reflector.step(0, 0) == FetchPage(path=PATH, query={"limit": "500"})


def test_a_streaming_list_that_does_not_end_is_replaced_by_pages() -> None:
    reflector = Reflector(THINGS)
    reflector.step(0, 0)
    reflector.opened(0)
    assert reflector.listing
    reflector.line(_event("ADDED", "one", "3"), 0, 0)
    reflector.stalled()
    assert (reflector.listing, reflector.watching) == (False, False)
    assert reflector.step(0, 0) == FetchPage(path=PATH, query={"limit": "500"})


def test_after_410_a_new_list_shows_what_was_deleted_all_at_once() -> None:
    reflector = _listed("kept", "gone")
    assert isinstance(reflector.step(0, 0), OpenWatch)
    reflector.opened(0)
    assert reflector.line(b'{"type": "ERROR", "object": {"kind": "Status", "code": 410}}', 0, 0) == ()
    assert not reflector.watching
    assert reflector.step(0, 0) == FetchPage(path=PATH, query={"limit": "500"})
    assert reflector.page(_page("kept", more="t"), 0, 0) == ()
    reflector.step(0, 0)
    changes = reflector.page(_page("new", version="8"), 0, 0)
    assert [(type(each), each.name.name) for each in changes] == [(Put, "new"), (Gone, "gone")]


def test_a_broken_watch_goes_on_from_the_last_event_after_growing_pauses() -> None:
    reflector = _listed("one")
    reflector.step(0, 0)
    reflector.opened(0)
    reflector.line(_event("MODIFIED", "one", "11"), 0, 0.5)
    reflector.failed("broken off", 0, 0.5)
    assert (reflector.step(0, 0), reflector.trouble) == (Pause(1.0), "broken off")
    again = reflector.step(1.0, 0)
    assert isinstance(again, OpenWatch)
    assert again.query["resourceVersion"] == "11"
    reflector.failed("refused", 1.0, 0.5)
    assert reflector.step(1.0, 0) == Pause(2.6)
    for _ in range(20):
        reflector.failed("refused", 0, 0.5)
    assert reflector.step(0, 0) == Pause(30.0)
    assert _standing(reflector) == Listed()


def test_the_server_says_how_long_to_wait() -> None:
    reflector = _listed()
    reflector.refused(429, b'{"message": "too many"}', 0, 0.5, wait=7)
    assert reflector.step(0, 0) == Pause(7)
    assert reflector.trouble == "The API server answered 429 (too many). Check its log."


def test_a_forbidden_kind_names_the_verb_and_is_tried_again() -> None:
    reflector = Reflector(THINGS)
    reflector.step(0, 0)
    reflector.refused(403, b"{}", 0, 0.5)  # no permission to watch
    assert isinstance(reflector.step(0, 0), FetchPage)
    reflector.refused(403, b"{}", 0, 0.5)
    assert reflector.step(0, 0) == Discover("/apis/example.dev/v2")
    reflector.discovered(200, b'{"resources": [{"name": "things"}]}', 0, 0.5)
    assert _standing(reflector) == Forbidden("list")
    assert reflector.trouble == "This program may not list things.example.dev. Grant it this permission."
    assert reflector.step(0, 0) == Pause(1.0)
    assert isinstance(reflector.step(1, 0), OpenWatch)


def test_what_may_be_listed_and_not_watched_is_forbidden() -> None:
    reflector = _listed("one")
    now = 0.0
    while _standing(reflector) == Listed():
        step = reflector.step(now, 0.5)
        match step:
            case Pause(until):
                now = until
            case Discover():
                reflector.discovered(200, b'{"resources": [{"name": "things"}]}', now, 0.5)
            case _:
                assert isinstance(step, OpenWatch)
                reflector.refused(403, b"{}", now, 0.5)
    assert _standing(reflector) == Forbidden("watch")
    assert now >= GRACE  # an API server that starts forbids everything


def test_a_kind_that_is_not_installed_is_absent_and_found_later() -> None:
    reflector = Reflector(THINGS, streaming=False)
    reflector.step(0, 0)
    reflector.refused(404, b"{}", 0, 0.5)
    assert reflector.step(0, 0) == FetchPage(path="/apis/example.dev/v1/things", query={"limit": "500"})
    reflector.refused(404, b"{}", 0, 0.5)
    assert _standing(reflector) == Absent()
    assert isinstance(reflector.step(0, 0), Pause)
    assert reflector.step(1, 0) == FetchPage(path=PATH, query={"limit": "500"})
    reflector.page(_page("one"), 1, 0)
    assert _standing(reflector) == Listed()


def test_a_kind_that_is_forbidden_and_not_installed_is_absent() -> None:
    reflector = Reflector(ApiKind(group="g", versions=("v1",), plural="things", kind="Thing"), streaming=False)
    reflector.step(0, 0)
    reflector.refused(403, b"{}", 0, 0.5)
    assert reflector.step(0, 0) == Discover("/apis/g/v1")
    reflector.discovered(404, b"{}", 0, 0.5)
    assert _standing(reflector) == Absent()


def test_a_removed_kind_takes_its_objects_along_after_a_while() -> None:
    reflector = _listed("one")
    now, gone = 0.0, tuple[object, ...]()
    while not gone:
        step = reflector.step(now, 0.5)
        if isinstance(step, Pause):
            now = step.until
        else:
            gone = reflector.refused(404, b"{}", now, 0.5)
    assert (gone, now >= GRACE) == ((Gone(ObjectName("a", "one")),), True)


def test_a_page_that_is_too_large_is_asked_for_in_parts() -> None:
    reflector = Reflector(THINGS, streaming=False)
    reflector.step(0, 0)
    reflector.failed("too large", 0, 0.5, too_large=True)
    assert reflector.step(2, 0) == FetchPage(path=PATH, query={"limit": "125"})


def test_every_kind_that_we_read_is_followed_in_its_versions() -> None:
    found = {
        (f"{each.group}/{version}".removeprefix("/"), each.kind) for each in api_kinds() for version in each.versions
    }
    assert found == set(KINDS)
