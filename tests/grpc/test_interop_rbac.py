"""Rules of rbac end calls alike on servers of grpcio, grpc-go and ours.

docs/reference/grpc-differences.md has the exceptions.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import grpc
import pytest
from envoy.config.rbac.v3 import rbac_pb2 as pb
from envoy.config.route.v3 import route_components_pb2
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2 as filter_pb
from google.protobuf import json_format
from tests.support import certificates
from tests.support.grpc.judged_servers import judging
from tests.support.grpc.peers import GRPC_GO, GRPCIO, peer_argv
from tests.support.grpc.xds_resources import packed

from authplane.devkit.identities.throwaway_certificates import KeyPair, Leaf, Usage, issue

Metadata: TypeAlias = tuple[tuple[str, str | bytes], ...]

TEXTS: Final = (
    {"exact": ""},
    {"exact": "a"},
    {"exact": "A", "ignoreCase": True},
    {"prefix": "a"},
    {"suffix": "b"},
    {"contains": ","},
    {"safeRegex": {"regex": "a"}},
    {"safeRegex": {"regex": ".*"}},
    {"safeRegex": {"regex": "a|ab"}},
)
HEADERS: Final = ("x", ":path", ":method", ":authority", "host", "content-type", "te", "user-agent")
NETWORKS: Final = (("127.0.0.1", 32), ("127.0.0.0", 8), ("10.0.0.0", 8), ("0.0.0.0", 0), ("::", 0), ("::1", 128))
WHO: Final = ({"exact": "spiffe://a/b"}, {"exact": "e.example"}, {"prefix": "spiffe://"}, {"suffix": "CN=cli"})
SENT: Final[tuple[Metadata, ...]] = (
    (),
    (("x", "a"),),
    (("x", "A"),),
    (("x", "ab"),),
    (("x", "a"), ("x", "b")),
    (("x", "3"),),
)


def _permissions() -> Iterator[dict[str, Any]]:
    for name in HEADERS:
        for invert in (False, True):
            yield from ({"header": {"name": name, "stringMatch": text, "invertMatch": invert}} for text in TEXTS)
            yield {"header": {"name": name, "presentMatch": True, "invertMatch": invert}}
            yield {"header": {"name": name, "presentMatch": False, "invertMatch": invert}}
            yield {"header": {"name": name, "rangeMatch": {"start": 1, "end": 5}, "invertMatch": invert}}
    yield from ({"urlPath": {"path": text}} for text in ({"prefix": "/rule."}, {"safeRegex": {"regex": "/rule"}}))
    yield from ({"requestedServerName": text} for text in TEXTS)
    yield from ({"destinationIp": _network(*each)} for each in NETWORKS)
    yield {"destinationPort": 1}
    yield {"metadata": {"filter": "x"}}
    yield {"metadata": {"filter": "x", "invert": True}}
    absent = {"header": {"name": "x", "stringMatch": {"exact": "a"}}}
    yield {"notRule": absent}
    yield {"andRules": {"rules": [{"any": True}, {"notRule": absent}]}}
    yield {"orRules": {"rules": [absent, {"notRule": {"any": True}}]}}


def _principals() -> Iterator[dict[str, Any]]:
    for kind in ("sourceIp", "directRemoteIp", "remoteIp"):
        yield from ({kind: _network(*each)} for each in NETWORKS)
    yield {"authenticated": {}}
    yield from ({"authenticated": {"principalName": text}} for text in (*TEXTS, *WHO))
    yield {"notId": {"authenticated": {}}}


def _network(prefix: str, length: int) -> dict[str, Any]:
    return {"addressPrefix": prefix, "prefixLen": length}


RULES: Final = [
    *({"permissions": [each], "principals": [{"any": True}]} for each in _permissions()),
    *({"permissions": [{"any": True}], "principals": [each]} for each in _principals()),
]


class Caller(NamedTuple):
    """A client: without a certificate it talks in plain text."""

    pair: KeyPair | None
    sent: tuple[Metadata, ...]


def _leaf(**names: Any) -> KeyPair:
    leaf = Leaf(name="cli", usage=Usage.CLIENT, **names)
    return issue(certificates.authority(), leaf, now=datetime.now(UTC), lifetime=timedelta(days=1))


PLAIN: Final = {"plain text": Caller(None, SENT)}
NAMED: Final = {
    "a URI name": Caller(_leaf(uris=("spiffe://a/b",)), SENT[:1]),
    "DNS names": Caller(_leaf(dns=("d.example", "e.example")), SENT[:1]),
    "a subject": Caller(_leaf(), SENT[:1]),
}
DIFFERS: Final = {
    # To grpcio each name of a certificate counts, to the others only those of the first kind.
    ("a URI name", GRPCIO): ({"suffix": "CN=cli"}, {"contains": ","}),
    ("DNS names", GRPCIO): ({"suffix": "CN=cli"}, {"contains": ","}),
}


def _path(index: int) -> str:
    return f"/rule.{index}/Call"


def _host(action: int) -> route_components_pb2.VirtualHost:
    """Return a virtual host with a route for each rule."""
    made = route_components_pb2.VirtualHost(name="all", domains=["*"])
    for index, each in enumerate(RULES):
        override = filter_pb.RBACPerRoute()
        json_format.ParseDict({"rbac": {"rules": {"policies": {"p": each}}}}, override)
        override.rbac.rules.action = action  # type: ignore[assignment]
        route = made.routes.add()
        route.match.path = _path(index)
        route.non_forwarding_action.SetInParent()
        route.typed_per_filter_config["rbac"].CopyFrom(packed(override))
    return made


def passed(port: int, caller: Caller) -> dict[tuple[int, Metadata], bool]:
    """Make every call to a server; returns which were permitted."""
    target = f"127.0.0.1:{port}"
    options = (("grpc.default_authority", "localhost"), ("grpc.initial_reconnect_backoff_ms", 100))
    if caller.pair is None:
        channel = grpc.insecure_channel(target, options)
    else:
        root = certificates.authority().certificate
        own = grpc.ssl_channel_credentials(root, caller.pair.key.reveal(), caller.pair.certificate)
        channel = grpc.secure_channel(target, own, (*options, ("grpc.ssl_target_name_override", "localhost")))
    found = {}
    with channel:
        for index in range(len(RULES)):
            say: Any = channel.unary_unary(_path(index))
            for metadata in caller.sent:
                found[index, metadata] = _is_permitted(say, metadata)
    return found


def _is_permitted(say: Any, metadata: Metadata) -> bool:
    try:
        say(b"", metadata=metadata, timeout=20, wait_for_ready=True)
    except grpc.RpcError as error:
        failed: Any = error
        assert failed.code() is grpc.StatusCode.PERMISSION_DENIED, failed.details()
        return False
    return True


@pytest.mark.real
@pytest.mark.parametrize("action", [pb.RBAC.ALLOW, pb.RBAC.DENY], ids=["allow", "deny"])
@pytest.mark.parametrize("secure", [False, True], ids=["plain text", "TLS"])
@pytest.mark.parametrize("peer", [GRPCIO, GRPC_GO])
def test_calls_end_as_on_a_server_of_theirs(
    peer: str, secure: bool, action: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    callers = NAMED if secure else PLAIN
    pair = certificates.server("localhost") if secure else None
    with judging(peer_argv(peer, request.config), [_host(action)], pair, tmp_path) as ports:
        for name, caller in callers.items():
            ours, theirs = passed(ports["ours"], caller), passed(ports["theirs"], caller)
            known = DIFFERS.get((name, peer), ())
            different = [
                (name, RULES[index], metadata, f"ours: {ours[index, metadata]}")
                for index, metadata in ours
                if ours[index, metadata] is not theirs[index, metadata] and _principal_name(RULES[index]) not in known
            ]
            assert different == []
            assert 0 < sum(ours.values()) < len(ours)


def _principal_name(rule: dict[str, Any]) -> Any:
    return rule["principals"][0].get("authenticated", {}).get("principalName")
