"""What the composite filter does with calls."""

from dataclasses import replace
from typing import Final

import pytest
from envoy.extensions.filters.http.ext_authz.v3 import ext_authz_pb2
from envoy.extensions.filters.http.fault.v3 import fault_pb2
from envoy.service.auth.v3 import external_auth_pb2
from google.protobuf.message import Message
from tests.dataplane.filters.composite.parts import CLIENT, SERVER, build, mark, read, read_override
from tests.support.dataplane.driven_calls import CALL, CLIENT_CALL, Watched, call, drive, no_effects

from authplane.dataplane.filters.calls import Answered, Ask, Change, Code, Effect, Mutation, Outcome, Proceed, Stop
from authplane.dataplane.filters.chain import run_chain
from authplane.dataplane.filters.composite.filter import NO_AUTHORITY, NO_MATCH, Composite
from authplane.dataplane.filters.registry import Kept
from authplane.grpc.matching import (
    Branch,
    all_of,
    any_of,
    by_header,
    by_prefix,
    cel,
    composite,
    composite_override,
    execute,
    first_match,
    header,
    not_,
    skip,
    when,
)

_INSECURE: Final = (
    "type.googleapis.com/envoy.extensions.grpc_service.channel_credentials.insecure.v3.InsecureCredentials"
)

IS_A: Final = header("x").is_("a")
IS_B: Final = header("x").is_("b")


def marked(verdict: object) -> list[str | bytes]:
    assert isinstance(verdict, Proceed)
    return [value for key, value in verdict.metadata if key == "mark"]


@pytest.mark.requirement("CF-11")
def test_the_tree_chooses_who_judges_a_call() -> None:
    running = build(
        composite(
            first_match(
                when(IS_A, then=skip()),
                when(IS_B, then=execute(mark("b"))),
                when(cel("size(request.headers['x']) > 1"), then=execute(mark("one"), mark("two"))),
            )
        )
    )
    assert no_effects(running.run(call(("x", "a")))) == Proceed(metadata=(("x", "a"),))
    assert marked(no_effects(running.run(call(("x", "b"))))) == ["b1"]
    assert marked(no_effects(running.run(call(("x", "long"))))) == ["one1", "two1"]
    assert no_effects(running.run(call())) == NO_MATCH
    assert Stop(code=Code.UNAVAILABLE, message="no match found in composite filter") == NO_MATCH


@pytest.mark.requirement("CF-3")
def test_without_a_tree_every_call_goes_on() -> None:
    assert no_effects(Composite().build(Watched().state, None).run(CALL)) == Proceed(metadata=CALL.metadata)


ASKING = {
    "a header": when(not_(header(":authority").is_("a")), then=skip()),
    "another name of it": when(all_of(IS_A, any_of(header("host").is_("a"), IS_B)), then=skip()),
    "a map": when(IS_A, then=by_header("host", {"a": skip()}, otherwise=skip())),
    "a map of prefixes at the end": when(
        IS_A, then=by_header("x", {"a": skip()}, otherwise=by_prefix("host", {"a": skip()}))
    ),
    "an expression": when(cel('request.host != "a"'), then=skip()),
    "a header in an expression": when(cel('!("HOST" in request.headers)'), then=skip()),
    "all headers": when(cel("size(request.headers) > 0"), then=skip()),
}


@pytest.mark.parametrize("branch", ASKING.values(), ids=ASKING.keys())
def test_a_tree_that_asks_for_an_authority_that_is_not_known_refuses(branch: Branch) -> None:
    unknown = replace(CALL, authority=None)
    asking = build(composite(first_match(branch, otherwise=skip())))
    assert no_effects(asking.run(unknown)) == NO_AUTHORITY
    assert no_effects(asking.run(CALL)) == Proceed(metadata=CALL.metadata)


def test_other_trees_do_not_need_the_authority() -> None:
    tree = first_match(when(cel('request.path == "/" || request.headers.a == "b"'), then=skip()), otherwise=skip())
    running = build(composite(tree))
    assert no_effects(running.run(replace(CALL, authority=None))) == Proceed(metadata=CALL.metadata)


@pytest.mark.requirement("CF-5")
@pytest.mark.requirement("CF-11")
def test_an_empty_chain_lets_calls_go_on_and_one_that_stops_ends_all() -> None:
    action = execute(mark("a"))
    action.ClearField("typed_config")
    action.filter_chain.SetInParent()
    tree = first_match(when(IS_A, then=action), otherwise=execute(mark("1"), mark("stop"), mark("2")))
    running = build(composite(tree))
    assert no_effects(running.run(call(("x", "a")))) == Proceed(metadata=(("x", "a"),))
    assert no_effects(running.run(call())) == Stop(code=Code.ABORTED, message="stopped")


@pytest.mark.requirement("CF-11")
def test_responses_pass_the_chosen_filters_and_their_neighbours_from_the_last_to_the_first() -> None:
    tree = first_match(when(IS_A, then=execute(mark("2"), mark("3"))))
    chain = [build(composite(first_match(when(IS_A, then=execute(mark(name)))))) for name in ("1", "4")]
    chain.insert(1, build(composite(tree)))
    verdict = no_effects(run_chain(chain, call(("x", "a"))))
    assert isinstance(verdict, Proceed)
    assert marked(verdict) == ["11", "21", "31", "41"]
    flat: list[tuple[str, str | bytes]] = [*verdict.response_metadata]
    flat += [(each.key, each.value) for each in verdict.response_mutations]
    assert flat == [(key, name) for name in "4321" for key in ("mark", "last")]
    assert verdict.response_mutations[-1] == Mutation("last", "1", Change.OVERWRITE_OR_ADD)


@pytest.mark.requirement("CF-7")
@pytest.mark.parametrize(("drawn", "marks"), [(0.0, ["a1"]), (0.249_999, ["a1"]), (0.25, []), (0.999, [])])
def test_a_sample_is_drawn_for_each_call(drawn: float, marks: list[str]) -> None:
    tree = first_match(when(IS_A, then=execute(mark("a"), sample=0.25)))
    running = build(composite(tree), watched=Watched(draws=iter([drawn])))
    assert marked(no_effects(running.run(call(("x", "a"))))) == marks


@pytest.mark.requirement("CF-7")
def test_without_a_sample_nothing_is_drawn() -> None:
    running = build(composite(first_match(when(IS_A, then=execute(mark("a"))))), watched=Watched())
    assert marked(no_effects(running.run(call(("x", "a"))))) == ["a1"]


@pytest.mark.requirement("CF-9")
def test_the_tree_of_a_route_replaces_the_other_completely() -> None:
    whole = read(composite(first_match(when(IS_A, then=execute(mark("a"))), otherwise=skip())))
    route = read_override(composite_override(first_match(when(IS_B, then=execute(mark("b"))))))
    assert isinstance(whole, Composite)
    running = whole.build(Watched().state, route)
    assert marked(no_effects(running.run(call(("x", "b"))))) == ["b1"]
    assert no_effects(running.run(call(("x", "a")))) == NO_MATCH


@pytest.mark.requirement("CF-10")
def test_filters_eight_deep_are_reached() -> None:
    made: Message = mark("deep")
    for _ in range(7):
        made = composite(first_match(when(IS_A, then=execute(made))))
    running = build(made)
    assert marked(no_effects(running.run(call(("x", "a"))))) == ["deep1"]
    assert no_effects(running.run(call())) == NO_MATCH


@pytest.mark.requirement("CF-12")
def test_a_call_that_leads_to_a_filter_of_the_other_side_fails() -> None:
    fault = fault_pb2.HTTPFault()
    tree = first_match(when(IS_A, then=execute(mark("a"), fault)), otherwise=skip())
    on_server, on_client = build(composite(tree)), build(composite(tree), CLIENT)
    want = "envoy.extensions.filters.http.fault.v3.HTTPFault filter not supported on servers"
    assert no_effects(on_server.run(call(("x", "a")))) == Stop(code=Code.UNAVAILABLE, message=want)
    assert no_effects(on_server.run(call())) == Proceed(metadata=())
    assert marked(no_effects(on_client.run(replace(CLIENT_CALL, metadata=(("x", "a"),))))) == ["a1"]


def runs(message: Message, kept: Kept, *headers: str) -> list[str | bytes]:
    running = build(message, watched=Watched(kept=kept))
    return [each for value in headers for each in marked(no_effects(running.run(call(("x", value)))))]


def named(name: str, label: str) -> Message:
    action = execute(mark(label))
    action.typed_config.name = name
    return action


@pytest.mark.requirement("CF-13")
def test_nested_filters_keep_what_is_theirs_when_the_tree_changes() -> None:
    kept = Kept()
    first = composite(by_header("x", {"a": named("one", "p"), "b": named("two", "p")}))
    assert runs(first, kept, "a", "a", "b") == ["p1", "p2", "p1"]
    kept = kept.next_generation()
    # Another branch comes before them, and one of the two is now configured in another way.
    second = composite(
        by_prefix("x", {"0": named("new", "p"), "a": named("one", "q"), "b": named("two", "p")}, otherwise=skip())
    )
    assert runs(second, kept, "a", "b", "0") == ["q3", "p2", "p1"]
    kept = kept.next_generation()
    assert runs(composite(by_header("x", {"b": named("two", "p")})), kept, "b") == ["p3"]
    kept = kept.next_generation()
    assert runs(first, kept, "a", "b") == ["p1", "p4"]


@pytest.mark.requirement("CF-13")
def test_filters_of_one_name_and_filters_of_nested_trees_are_kept_apart() -> None:
    kept = Kept()
    inner = composite(first_match(when(header("x").begins_with("a"), then=named("same", "i"))))
    action = execute(inner)
    action.typed_config.name = "same"
    tree = by_header("x", {"a": action, "b": named("same", "b"), "c": named("same", "c")})
    assert runs(composite(tree), kept, "a", "b", "c", "a") == ["i1", "b1", "c1", "i2"]
    assert runs(composite(tree), kept.next_generation(), "a", "b", "c") == ["i3", "b2", "c2"]


@pytest.mark.requirement("CF-11")
def test_a_nested_filter_may_ask_on_the_way() -> None:
    config = ext_authz_pb2.ExtAuthz()
    google = config.grpc_service.google_grpc
    google.target_uri = "authz.example:1"
    google.channel_credentials_plugin.add(type_url=_INSECURE)
    running = build(composite(first_match(when(IS_A, then=execute(config, mark("a"))), otherwise=skip())))
    asked: list[Ask] = []

    def answer(effect: Effect) -> Outcome:
        assert isinstance(effect, Ask)
        asked.append(effect)
        response = external_auth_pb2.CheckResponse()
        if len(asked) == 2:
            response.status.code = 7
        return Answered(response.SerializeToString())

    allowed, _ = drive(running.run(call(("x", "a"))), answer)
    assert marked(allowed) == ["a1"]
    denied, _ = drive(running.run(call(("x", "a"))), answer)
    assert isinstance(denied, Stop)
    assert denied.code is Code.PERMISSION_DENIED
    assert no_effects(running.run(call())) == Proceed(metadata=())
    assert len(asked) == 2


def test_the_depth_of_a_scope_counts() -> None:
    found = read(composite(first_match(when(IS_A, then=execute(mark("a"))))), replace(SERVER, depth=8))
    assert isinstance(found, list)
    assert "nested more than 8 levels deep" in found[0]
