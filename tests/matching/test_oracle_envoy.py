"""Envoy's composite filter takes the branches that we take, over trees at random.

Every action is a fault with a status of its own, so that the status of a response tells which branch was taken.
"""

import json
import tempfile
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import httpx2
import pytest
from envoy.extensions.filters.http.fault.v3 import fault_pb2
from google.protobuf import json_format, wrappers_pb2
from google.protobuf.message import Message
from tests.matching.test_oracle_grpcio import ours
from tests.support.eventually import START_LIMIT
from tests.support.matching.native_composite import outcomes
from tests.support.matching.trees import PACKAGES, TEXTS, Request, Trees
from xds.type.matcher.v3 import matcher_pb2

from authplane.grpc.matching import (
    Tree,
    composite,
    composite_override,
    execute,
    first_match,
    skip,
    when,
)
from authplane.grpc.matching import header as asked_header
from authplane.runtime.child_processes import Line
from authplane.runtime.envoy_process import EnvoySettings, run_envoy

NAMES: Final = ("x-a", "x-b", "x-c", ":path", ":authority", ":method")
PLAIN: Final = tuple(text for text in TEXTS if text.isascii())
TREES: Final = 120
REQUESTS: Final = 12
NO_MATCH: Final = 299
"""What the route answers by itself: Envoy lets requests pass that lead nowhere."""
_EXTENSIONS: Final = "type.googleapis.com/envoy.extensions"


class Sent(NamedTuple):
    """A request for a tree."""

    tree: int
    request: Request


def status(action: str | None) -> int:
    """Return the status that stands for an action."""
    return NO_MATCH if action is None else 400 + int(action) % 200


def failing(message: Any) -> Tree:
    """Return the tree with actions that fail, each with its status."""
    made = matcher_pb2.Matcher()
    made.CopyFrom(message)
    for outcome in outcomes(made):
        name = wrappers_pb2.StringValue.FromString(outcome.action.typed_config.value).value
        fault = fault_pb2.HTTPFault()
        fault.abort.http_status = status(name)
        fault.abort.percentage.numerator = 100
        outcome.action.typed_config.Pack(execute(fault))
    return made


def typed(message: Message) -> dict[str, Any]:
    """Return a message as it stands in an ``Any``."""
    fields = json_format.MessageToDict(message, preserving_proto_field_name=True)
    return {"@type": f"type.googleapis.com/{message.DESCRIPTOR.full_name}", **fields}


def bootstrap(trees: list[Tree], socket: Path) -> str:
    routes = [
        {
            "match": {"prefix": "/", "headers": [{"name": "x-tree", "string_match": {"exact": str(number)}}]},
            "direct_response": {"status": NO_MATCH},
            "typed_per_filter_config": {"composite": typed(composite_override(tree))},
        }
        for number, tree in enumerate(trees)
    ]
    otherwise = composite(first_match(when(asked_header(":path").is_there(), then=skip())))
    manager = {
        "@type": f"{_EXTENSIONS}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "oracle",
        "route_config": {"virtual_hosts": [{"name": "oracle", "domains": ["*"], "routes": routes}]},
        "http_filters": [
            {"name": "composite", "typed_config": typed(otherwise)},
            {"name": "router", "typed_config": {"@type": f"{_EXTENSIONS}.filters.http.router.v3.Router"}},
        ],
    }
    listener = {
        "name": "oracle",
        "address": {"pipe": {"path": str(socket)}},
        "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
    }
    return json.dumps({"static_resources": {"listeners": [listener]}})


async def _ignore(_line: Line) -> None:
    pass


async def branches(trees: list[Tree], sent: list[Sent]) -> list[int]:
    """Send requests through Envoy; return the status of each response."""
    with tempfile.TemporaryDirectory() as folder:
        socket = Path(folder) / "s"
        transport = httpx2.AsyncHTTPTransport(uds=str(socket))
        settings = EnvoySettings(concurrency=1, log_level="error")
        async with (
            run_envoy(bootstrap(trees, socket), sink=_ignore, settings=settings) as envoy,
            httpx2.AsyncClient(transport=transport, base_url="http://shop.test", timeout=20) as client,
        ):
            await envoy.ready(limit=START_LIMIT)
            found = []
            for number, request in sent:
                headers = [("x-tree", str(number)), ("host", request.authority or "")]
                headers += [(key, str(value)) for key, value in request.metadata]
                found.append((await client.post(request.path, headers=headers)).status_code)
            return found


def requests(seed: int) -> list[Sent]:
    chance = Random(seed)  # noqa: S311 (the same cases every time)
    found = []
    for number in range(TREES * REQUESTS):
        names = chance.choices(("x-a", "x-b", "x-c"), k=chance.randrange(4))
        metadata = tuple((name, chance.choice(PLAIN)) for name in names)
        path = chance.choice(("/s/m", "/s/n", "/t/m"))
        authority = chance.choice(("a", "ab", "abc"))
        found.append(Sent(number % TREES, Request(path=path, authority=authority, metadata=metadata)))
    return found


@pytest.mark.real
@pytest.mark.requirement("UM-9")
@pytest.mark.requirement("UM-12")
@pytest.mark.requirement("UM-13")
@pytest.mark.requirement("UM-14")
async def test_envoy_takes_the_same_branches() -> None:
    made = Trees(31, keep_matching=False, names=NAMES)
    trees = [made.tree(PACKAGES[0].Matcher()) for _ in range(TREES)]
    sent = requests(37)
    got = await branches([failing(tree) for tree in trees], sent)
    assert got == [status(ours(trees[call.tree], call.request)) for call in sent]
    assert 0.1 < got.count(NO_MATCH) / len(got) < 0.9, "the cases are of one sort"
