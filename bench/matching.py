"""Matcher trees: searches a second, and what it takes to read a tree of ten thousand actions."""

import time
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from google.protobuf.message import Message

from authplane.core.problems import Problems
from authplane.dataplane.filters.calls import Call, Endpoint, PeerCertificate, Side
from authplane.dataplane.filters.composite.filter import Action
from authplane.dataplane.filters.composite.wire import composite_kinds
from authplane.dataplane.filters.registry import Scope, Trust
from authplane.dataplane.filters.standard_filters import standard_registry
from authplane.grpc.matching import Tree, all_of, by_header, by_prefix, cel, first_match, header, skip, when
from authplane.matching.matcher_tree import Matcher
from authplane.matching.tree_search import as_search
from authplane.matching.tree_wire import Kinds, parse_tree

_SMALL: Final = 10
_LARGE: Final = 10_000
_SEARCHES: Final = 1_000
_ROUNDS: Final = 20


class _Connection:
    """A connection from a known address."""

    remote = Endpoint(address="10.0.0.7", port=4711)
    local = Endpoint(address="10.0.0.1", port=443)
    certificate: PeerCertificate | None = None
    own_principal = ""
    tls_version = "TLSv1.3"
    requested_server_name = "shop.example"


async def main() -> None:
    """Measure by processor time: other programs do not count."""
    call, kinds = _call(), _kinds()
    costs = {name: _cost(tree, kinds, call) for name, tree in _trees().items()}
    for name, cost in costs.items():
        print(f"  {name}: {1 / cost:,.0f} searches/s, {cost * 1e6:.2f} µs each", flush=True)
    for kind in ("map", "prefixes"):
        ratio = costs[f"{kind} of {_LARGE:,}"] / costs[f"{kind} of {_SMALL}"]
        print(f"  {kind} of {_LARGE:,} costs {ratio:.2f} times that of {_SMALL}", flush=True)
    for name, tree in {"map": by_header("x-key", _entries(_LARGE)), "list": _long_list()}.items():
        _print_reading(name, tree, kinds)


def _trees() -> dict[str, Tree]:
    """Return trees in which the call finds the last entry."""
    maps = {
        f"{kind} of {size:,}": build("x-key", _entries(size) | {"key-last": skip()})
        for kind, build in (("map", by_header), ("prefixes", by_prefix))
        for size in (_SMALL, _LARGE)
    }
    misses = [when(header("x-user").is_(f"user-{number}"), then=skip()) for number in range(_SMALL - 1)]
    hit = when(header("x-user").is_("alice"), then=skip())
    inner = first_match(when(all_of(header("x-user").is_("alice"), header("x-team").begins_with("o")), then=skip()))
    return {
        f"list of {_SMALL}": first_match(*misses, hit),
        **maps,
        "three levels": by_prefix(":path", {"/shop.": by_header("x-key", {"key-last": inner})}),
        "one expression": first_match(when(cel("request.headers['x-user'] == 'alice'"), then=skip())),
        "one expression about the connection": first_match(
            when(cel("source.port > 1024 && connection.tls_version == 'TLSv1.3'"), then=skip())
        ),
        "three levels with an expression": by_prefix(
            ":path",
            {
                "/shop.": by_header(
                    "x-key",
                    {"key-last": first_match(when(cel("request.headers['x-user'] == 'alice'"), then=skip()))},
                )
            },
        ),
    }


def _entries(size: int) -> dict[str, Message]:
    return {f"key-{number}": skip() for number in range(size)}


def _long_list() -> Tree:
    return first_match(*(when(header("x-user").is_(f"user-{number}"), then=skip()) for number in range(_LARGE)))


def _cost(tree: Tree, kinds: Kinds[Call, Action], call: Call) -> float:
    search = as_search(_parsed(tree, kinds))
    if search(call) is None:
        raise RuntimeError("the call should find something")
    return _quickest(lambda: [search(call) for _ in range(_SEARCHES)]) / _SEARCHES


def _print_reading(name: str, tree: Tree, kinds: Kinds[Call, Action]) -> None:
    data = tree.SerializeToString()
    messages = _quickest(lambda: Tree.FromString(data))
    taken = _quickest(lambda: _parsed(Tree.FromString(data), kinds))
    again = Tree.FromString(data)
    tracemalloc.start()
    parsed = _parsed(again, kinds)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    hashed = _quickest(lambda: hash(parsed))
    print(
        f"  a {name} of {_LARGE:,} actions ({len(data) / 1e6:.1f} MB): read in {taken * 1e3:.0f} ms, "
        f"{messages * 1e3:.0f} ms of it by protobuf; {kept / 1e6:.1f} MB; hashed in {hashed * 1e3:.1f} ms",
        flush=True,
    )


def _parsed(tree: Tree, kinds: Kinds[Call, Action]) -> Matcher[Call, Action]:
    problems = Problems()
    found = parse_tree(tree, kinds, problems)
    if found is None:
        raise RuntimeError("; ".join(map(str, problems)))
    return found


def _kinds() -> Kinds[Call, Action]:
    return composite_kinds(Scope(side=Side.SERVER, trust=Trust(), registry=standard_registry()))


def _call() -> Call:
    return Call(
        side=Side.SERVER,
        path="/shop.Cart/Add",
        authority="shop.example",
        metadata=(
            ("user-agent", "grpc-python/1.85"),
            ("x-request-id", "b2d3a1e0"),
            ("x-user", "alice"),
            ("x-team", "ops"),
            ("x-key", "key-last"),
        ),
        started=datetime.now(UTC),
        remaining=None,
        connection=_Connection(),
    )


def _quickest(call: Callable[[], object]) -> float:
    """Return the processor time of a call, the least of a few."""
    taken = []
    for _ in range(_ROUNDS):
        begun = time.process_time()
        call()
        taken.append(time.process_time() - begun)
    return min(taken)
