"""grpcio's own composite filter takes the branches that we take, and refuses the trees that we refuse.

Where it differs, docs/how-to/try-matcher-trees.md says so, and a test here would fail if it did not differ any more.
"""

import asyncio
from collections.abc import Mapping
from random import Random
from typing import Any, Final

import pytest
from envoy.config.listener.v3 import listener_pb2
from google.protobuf import json_format, wrappers_pb2
from google.protobuf.message import Message
from tests.matching.test_tree_wire import IS_A, READ, REFUSED, STRING, nested, when
from tests.support.dataplane.filter_messages import http_filter, router
from tests.support.dataplane.listener_messages import api_listener, manager
from tests.support.dataplane.route_messages import routes_to
from tests.support.grpc.native_client import native_verdicts
from tests.support.matching.native_composite import AUTHORITY, GUARD, NO_MATCH, Sent, aborting, code_of, native_branches
from tests.support.matching.trees import PACKAGES, TEXTS, Read, Request, Trees, header, kinds, verdict
from xds.type.matcher.v3 import matcher_pb2

from authplane.core.problems import Problems
from authplane.grpc.matching import Tree, by_header, by_prefix, composite, first_match, not_
from authplane.grpc.matching import header as asked_header
from authplane.grpc.matching import when as branch
from authplane.matching.tree_search import as_search
from authplane.matching.tree_wire import parse_tree

pytestmark = pytest.mark.real

NAMES: Final = ("x-a", "x-b", "x-c", ":path", "content-type")
"""Those that grpcio's filter has on the client."""
PLAIN: Final = tuple(text for text in TEXTS if text.isascii())
TREES: Final = 150
REQUESTS: Final = 12


def ours(message: Any, request: Request) -> str | None:
    problems = Problems()
    tree = parse_tree(message, kinds(keep_matching=False), problems)
    assert tree is not None, list(problems)
    return as_search(tree)(request)


def status(action: str | None) -> tuple[int, str]:
    return NO_MATCH if action is None else (code_of(action), "Fault injected")


def absent_is_empty(name: str, request: Request) -> str:
    """Read headers as grpcio does."""
    return header(name, request) or ""


def sent(seed: int, *, whole: bool) -> list[Sent]:
    """Return calls for the trees; if they are to be whole, they have every header."""
    chance = Random(seed)  # noqa: S311 (the same cases every time)
    found = []
    for number in range(TREES * REQUESTS):
        names = ("x-a", "x-b", "x-c") if whole else chance.choices(("x-a", "x-b", "x-c"), k=chance.randrange(4))
        metadata = tuple((name, chance.choice(PLAIN)) for name in names)
        path = chance.choice(("/s/m", "/s/n", "/t/m"))
        found.append(Sent(number % TREES, Request(path=path, authority=AUTHORITY, metadata=metadata)))
    return found


@pytest.mark.parametrize("whole", [True, False], ids=["every header is there", "some are missing"])
@pytest.mark.requirement("UM-12")
@pytest.mark.requirement("UM-13")
@pytest.mark.requirement("UM-14")
async def test_grpcio_takes_the_same_branches(whole: bool) -> None:
    made = Trees(23 + whole, keep_matching=False, names=NAMES, prefixes=TEXTS[1:])
    trees = [made.tree(PACKAGES[0].Matcher()) for _ in range(TREES)]
    calls = sent(29 + whole, whole=whole)
    native = await native_branches([aborting(tree) for tree in trees], calls)
    read: Read | None = None if whole else absent_is_empty
    assert len(native) == len(calls)
    for call, got in zip(calls, native, strict=True):
        want = verdict(trees[call.tree], call.request, read)
        assert got == status(want.actions[-1] if want.matched else None), f"{call.request}\n{trees[call.tree]}"
        if whole:
            assert got == status(ours(trees[call.tree], call.request))


def named(name: str) -> Message:
    return wrappers_pb2.StringValue(value=name)


CALL: Final = Request(path="/s/m", authority=AUTHORITY, metadata=(("x-a", "a"),))
DIFFERENT: Final[Mapping[str, tuple[Tree, str | None, str | None]]] = {
    "a header that is missing is the empty text": (
        by_header("x-none", {"": named("1")}, otherwise=named("2")), "2", "1",
    ),
    "what is missing and not": (
        first_match(branch(not_(asked_header("x-none").is_("")), then=named("1")), otherwise=named("2")), "1", "2",
    ),
    "an empty prefix is for no value": (
        by_prefix("x-a", {"": named("1")}, otherwise=named("2")), "1", "2",
    ),
    "clients have no method": (by_header(":method", {"POST": named("1")}, otherwise=named("2")), "1", "2"),
    "clients have no authority": (by_header(":authority", {AUTHORITY: named("1")}, otherwise=named("2")), "1", "2"),
    "clients have no host": (by_header("host", {AUTHORITY: named("1")}, otherwise=named("2")), "1", "2"),
}  # fmt: skip


@pytest.mark.requirement("UM-8")
@pytest.mark.requirement("UM-9")
async def test_where_grpcio_takes_another_branch_we_know_it() -> None:
    trees = [tree for tree, _, _ in DIFFERENT.values()]
    calls = [Sent(number, CALL) for number in range(len(trees))]
    native = await native_branches([aborting(tree) for tree in trees], calls)
    found = {name: (ours(tree, CALL), got) for (name, (tree, _, _)), got in zip(DIFFERENT.items(), native, strict=True)}
    assert found == {name: (our, status(theirs)) for name, (_, our, theirs) in DIFFERENT.items()}


# --- What is refused

TAKEN_BY_GRPCIO: Final = {
    "all of one",
    "a header without a name",
    "a header with capitals",
    "a header with a space",
    "a header with a name that is too long",
    "an empty prefix",
}
"""What we refuse and grpcio takes."""


def nots(times: int) -> dict[str, Any]:
    predicate: dict[str, Any] = IS_A
    for _ in range(times):
        predicate = {"not_matcher": predicate}
    return predicate


ACCEPTED: Final = {
    **{name: tree for name, (tree, _) in READ.items() if "elsewhere" not in name},
    **{f"sixteen levels by {how}": nested(16, how) for how in ("branch", "on_no_match", "exact_match_map")},
    "a predicate that is nested deeply": when(nots(20)),
}
REFUSED_BY_DEPTH: Final = {
    f"seventeen levels by {how}": nested(17, how) for how in ("branch", "on_no_match", "exact_match_map")
}
SKIP: Final = {
    "name": "skip",
    "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.common.matcher.action.v3.SkipFilter"},
}


def skipping(tree: Any) -> Any:
    """Return the tree with actions that a composite filter knows, where they were of the tests."""
    if isinstance(tree, list):
        return [skipping(each) for each in tree]
    if not isinstance(tree, dict):
        return tree
    return {
        key: SKIP
        if key == "action" and value.get("typed_config", {}).get("@type", "").endswith(STRING)
        else skipping(value)
        for key, value in tree.items()
    }


def listener(tree: Any, name: str) -> listener_pb2.Listener:
    message = json_format.ParseDict(skipping(tree), matcher_pb2.Matcher())
    config = composite(matcher_pb2.Matcher())
    config.xds_matcher.CopyFrom(message)
    return api_listener(manager(http_filter("composite", config), router(), route_config=routes_to("x")), name)


@pytest.fixture(scope="module")
def native() -> Mapping[str, str]:
    trees = {**{name: case.tree for name, case in REFUSED.items()}, **ACCEPTED, **REFUSED_BY_DEPTH}
    kind = "envoy.config.listener.v3.Listener"
    keys = {name: (kind, f"tree-{number}") for number, name in enumerate(trees)}
    resources = {keys[name]: listener(tree, keys[name][1]).SerializeToString() for name, tree in trees.items()}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in GUARD.items():
            patch.setenv(name, value)
        verdicts = asyncio.run(
            native_verdicts(resources, set(resources), targets=[name for _, name in keys.values()], addresses=[])
        )
    return {name: verdicts[key] for name, key in keys.items()}


@pytest.mark.parametrize("name", [*REFUSED, *REFUSED_BY_DEPTH])
def test_grpcio_refuses_what_we_refuse(native: Mapping[str, str], name: str) -> None:
    assert (native[name] == "") is (name in TAKEN_BY_GRPCIO), native[name]


@pytest.mark.parametrize("name", ACCEPTED)
def test_grpcio_takes_what_we_take(native: Mapping[str, str], name: str) -> None:
    assert native[name] == ""
