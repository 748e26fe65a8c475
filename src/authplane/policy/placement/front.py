"""Requests that Envoy may judge by itself: about all others the policy server is asked."""

from functools import lru_cache
from typing import Final

from authplane.cel.envoy import nodes
from authplane.cel.envoy.attributes import RESPONSE
from authplane.cel.envoy.paths import IS_CANONICAL
from authplane.cel.envoy.release import Release
from authplane.cel.envoy.translate import Condition
from authplane.cel.tree import Node
from authplane.policy.mcp.versions import ProtocolVersion

_HEADERS: Final = nodes.name("request.headers")
_METHOD: Final = nodes.name("request.method")
_UPGRADES: Final = ("http2-settings", "upgrade")
_NEVER: Final = ("content-encoding", "mcp-name", "x-http-method", "x-http-method-override", "x-method-override")
"""What is never there in plain MCP before 2026-07-28, or turns a request into another one."""
_SINGLE: Final = (
    "mcp-protocol-version", "mcp-session-id", "x-envoy-auth-partial-body",
)  # fmt: skip
_SESSIONS: Final = tuple(each.value for each in ProtocolVersion if each is not ProtocolVersion.V2026_07_28)
_JSON: Final = r'^application/json(?:; ?(?i:charset)=(?i:utf-8|"utf-8"))?$'


@lru_cache(maxsize=16)
def build_front(envoy: Release, *, is_mcp: bool, reads_mcp: bool) -> Condition:
    """Return what holds for the requests that Envoy may judge; it never fails."""
    if not is_mcp:
        return Condition(tree=nodes.literal(value=True))
    # A proxy does not wait for the body of an upgrade: nobody could judge it.
    plain = [nodes.call("_!=_", _METHOD, nodes.literal("CONNECT")), *(_without(each) for each in _UPGRADES)]
    if not reads_mcp:
        return Condition(tree=nodes.every(plain))
    return Condition(tree=nodes.every((*plain, *_message(envoy))), reads_mcp=True)


def _message(envoy: Release) -> list[Node]:
    """Return what holds for a message whose method and subject the mcp filter finds."""
    namespace = envoy.mcp_metadata
    found = nodes.member(nodes.METADATA, namespace)
    known = nodes.call("@in", nodes.literal(namespace), nodes.METADATA)
    method = nodes.member(found, "method")
    spoken = nodes.every((nodes.call("@in", nodes.literal("method"), found),
                          nodes.call("_!=_", method, nodes.literal(RESPONSE))))  # fmt: skip
    return [
        nodes.equal(_METHOD, "POST"),
        IS_CANONICAL,
        *(_without(each) for each in _NEVER),
        *(_once(each) for each in _SINGLE),
        _if_there("mcp-protocol-version", nodes.one_of(_header("mcp-protocol-version"), _SESSIONS), otherwise=True),
        _if_there("mcp-session-id", nodes.matches(_header("mcp-session-id"), "^[!-~]+$"), otherwise=True),
        _if_there("content-type", nodes.matches(_header("content-type"), _JSON), otherwise=False),
        nodes.call("_?_:_", known, spoken, nodes.literal(value=False)),
        _mirrors(known, spoken, method),
    ]


def _mirrors(known: Node, spoken: Node, method: Node) -> Node:
    """Return what holds if a header that repeats the method says the same."""
    same = nodes.every((known, spoken, nodes.call("_==_", _header("mcp-method"), method)))
    return _if_there("mcp-method", same, otherwise=True)


def _header(name: str) -> Node:
    return nodes.member(_HEADERS, name)


def _without(name: str) -> Node:
    """Neither the header nor one that an origin may take for it."""
    return nodes.every(nodes.negated(_there(each)) for each in dict.fromkeys((name, name.replace("-", "_"))))


def _once(name: str) -> Node:
    odd = nodes.negated(_there(name.replace("-", "_")))
    single = nodes.negated(nodes.matches(_header(name), ","))
    return nodes.every((odd, _if_there(name, single, otherwise=True)))


def _if_there(name: str, condition: Node, *, otherwise: bool) -> Node:
    return nodes.call("_?_:_", _there(name), condition, nodes.literal(otherwise))


def _there(name: str) -> Node:
    return nodes.call("@in", nodes.literal(name), _HEADERS)
