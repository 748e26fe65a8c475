"""A server of ours lets the same calls pass as grpcio's own under routes that were made at random."""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

import grpc
import pytest
from envoy.config.rbac.v3 import rbac_pb2 as pb
from envoy.config.route.v3 import route_components_pb2
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2 as filter_pb
from google.protobuf import json_format
from tests.support.grpc.judged_servers import judging
from tests.support.grpc.peers import GRPCIO, peer_argv
from tests.support.grpc.xds_resources import packed

DOMAINS: Final = (
    "*", "a.example", "*.example", "*example", "a.*", "a*", "b.example:80", "*.A.example", "x.a.example", "*:80",
)  # fmt: skip
AUTHORITIES: Final = (
    "a.example", "A.EXAMPLE", "b.example", "b.example:80", "x.a.example", "y.a.example", "example", "a.", "a.b",
    "zzz", "zzz:80",
)  # fmt: skip
CALLED: Final = ("/s.A/M", "/s.A/N", "/S.a/m", "/s.AB/M", "/t.A/M")
PREFIXES: Final = ("", "/", "/s", "/s.A", "/s.A/", "/s.A/M", "/s.A/M/x", "/t", "//", "s", "/S.A/")
PATHS: Final = (*CALLED, "/s.A", "s.A/M", "/s.A/M/", "//M")
PATTERNS: Final = ("/s.*", "/s[.]A/M", "/s", "/.*/M", ".*")
HEADERS: Final = ("x", "x", "x", "user-agent", "content-type", ":path", ":method", ":authority", "host")
SENT: Final[tuple[tuple[str, ...], ...]] = ((), ("a",), ("ab",), ("a", "b"), ("5",), ("",))
ACTIONS: Final[tuple[dict[str, Any], ...]] = ({"nonForwardingAction": {}},) * 6 + (
    {"route": {"cluster": "c"}},
    {"redirect": {}},
    {},
)


def _override(action: int) -> dict[str, Any]:
    everybody = {"permissions": [{"any": True}], "principals": [{"any": True}]}
    made = filter_pb.RBACPerRoute()
    json_format.ParseDict({"rbac": {"rules": {"policies": {"p": everybody}}}}, made)
    made.rbac.rules.action = action  # type: ignore[assignment]
    found: dict[str, Any] = json_format.MessageToDict(packed(made))
    return {"rbac": found}


OVERRIDES: Final[tuple[dict[str, Any], ...]] = (_override(pb.RBAC.ALLOW), _override(pb.RBAC.DENY), {})


def _header(random: Random) -> dict[str, Any]:
    texts = ({"exact": "a"}, {"exact": ""}, {"prefix": "a"}, {"suffix": "B", "ignoreCase": True})
    specifiers: tuple[dict[str, Any], ...] = (
        {"stringMatch": random.choice(texts)},
        {"exactMatch": random.choice(("a,b", "/s.A/M", "application/grpc", "POST"))},
        {"rangeMatch": {"start": 1, "end": 10}},
        {"presentMatch": random.random() < 0.5},
        {"safeRegexMatch": {"regex": random.choice(("a", "a.*", ".*", "[0-9]+"))}},
    )
    return {"name": random.choice(HEADERS), "invertMatch": random.random() < 0.3, **random.choice(specifiers)}


def _route(random: Random) -> dict[str, Any]:
    specifiers: tuple[dict[str, Any], ...] = (
        {"prefix": random.choice(PREFIXES)},
        {"path": random.choice(PATHS)},
        {"safeRegex": {"regex": random.choice(PATTERNS)}},
    )
    match: dict[str, Any] = {
        **random.choice(specifiers),
        "headers": [_header(random) for _ in range(random.choice((0, 0, 1, 2)))],
    }
    if random.random() < 0.3:
        match["caseSensitive"] = random.random() < 0.5
    if random.random() < 0.1:
        match["queryParameters"] = [{"name": "q"}]
    return {"match": match, **random.choice(ACTIONS), "typedPerFilterConfig": random.choice(OVERRIDES)}


def _hosts(random: Random) -> Iterator[route_components_pb2.VirtualHost]:
    """Yield virtual hosts that share the domains."""
    domains = random.sample(DOMAINS, 8)
    for index in range(4):
        made = {
            "name": str(index),
            "domains": domains[index::4],
            "routes": [_route(random) for _ in range(random.randint(1, 4))],
            "typedPerFilterConfig": random.choice(OVERRIDES),
        }
        yield json_format.ParseDict(made, route_components_pb2.VirtualHost())


def _passed(port: int) -> dict[tuple[str, str, tuple[str, ...]], bool]:
    found = {}
    for authority in AUTHORITIES:
        with grpc.insecure_channel(f"127.0.0.1:{port}", (("grpc.default_authority", authority),)) as channel:
            for path in CALLED:
                say: Any = channel.unary_unary(path)
                for values in SENT:
                    found[authority, path, values] = _passes(say, values)
    return found


def _passes(say: Any, values: tuple[str, ...]) -> bool:
    try:
        # To watch a channel until it is ready takes as long as all the calls: grpcio looks five times a second.
        say(b"", metadata=[("x", value) for value in values], timeout=20, wait_for_ready=True)
    except grpc.RpcError as error:
        failed: Any = error
        assert failed.code() in {grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAVAILABLE}, failed.details()
        return False
    return True


@pytest.mark.real
@pytest.mark.requirement("RT-1", "RT-2", "RT-3", "HF-16")
@pytest.mark.parametrize("seed", range(4))
def test_the_same_calls_pass(seed: int, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    hosts = list(_hosts(Random(seed)))  # noqa: S311 (the same routes every time)
    with judging(peer_argv(GRPCIO, request.config), hosts, None, tmp_path) as ports:
        ours, theirs = _passed(ports["ours"]), _passed(ports["theirs"])
    assert [(key, ours[key]) for key in ours if ours[key] is not theirs[key]] == []
