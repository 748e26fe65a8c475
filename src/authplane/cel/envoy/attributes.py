"""What Envoy's conditions say for the variables of our expressions.

A variable that a request may lack is here an expression that fails then, as reading it does in the policy engine.
"""

from collections.abc import Mapping
from typing import Final

from authplane.cel.envoy import nodes
from authplane.cel.envoy.paths import CANONICAL_PATH, IS_CANONICAL
from authplane.cel.envoy.release import Release
from authplane.cel.tree import Node

JWT_METADATA: Final = "envoy.filters.http.jwt_authn"
TOOLS_CALL: Final = "tools/call"
RESPONSE: Final = "__jsonrpc_response"
"""The method that Envoy's mcp filter makes up for a message that has a result."""

_TRUE: Final = nodes.literal(value=True)
_QUERY: Final = nodes.name("request.query")


def variables(envoy: Release) -> Mapping[str, Node]:
    """Return what stands for the variables that can be read as a whole."""
    return {
        "request.path": CANONICAL_PATH,
        "request.url_path": CANONICAL_PATH,
        **{each: nodes.name(each) for each in ("request.method", "request.host", "request.time")},
        "request.query": nodes.only_if(is_unicode(_QUERY), _QUERY),
        "request.mcp.method": mcp_method(envoy),
        "request.mcp.tool_name": nodes.only_if(is_method(envoy, TOOLS_CALL), mcp_param(envoy, "name")),
    }


def presence(envoy: Release, *, knows_method: bool) -> Mapping[str, Node]:
    """Return what stands for ``has()`` of those variables.

    Without a method there is no ``request.mcp`` to look into, and if an expression reads the tool alone, there is none
    without a tool either: that is an error, not false.
    """
    is_call = nodes.equal(mcp_method(envoy), TOOLS_CALL)
    return {
        "request.path": IS_CANONICAL,
        "request.url_path": IS_CANONICAL,
        **dict.fromkeys(("request.method", "request.host", "request.query", "request.time"), _TRUE),
        "request.mcp.method": nodes.call("_!=_", mcp_method(envoy), nodes.literal("")),
        "request.mcp.tool_name": is_call if knows_method else nodes.only_if(is_call, _TRUE),
    }


def mcp_method(envoy: Release) -> Node:
    """Return the JSON-RPC method that a request calls; an error if it calls none."""
    method = nodes.member(nodes.METADATA, envoy.mcp_metadata, "method")
    return nodes.only_if(nodes.call("_!=_", method, nodes.literal(RESPONSE)), method)


def is_method(envoy: Release, method: str) -> Node:
    """Return the condition that a request calls a method; an error if it calls none."""
    return nodes.equal(nodes.member(nodes.METADATA, envoy.mcp_metadata, "method"), method)


def mcp_param(envoy: Release, param: str) -> Node:
    """Return a parameter that the mcp filter keeps."""
    return nodes.member(nodes.METADATA, envoy.mcp_metadata, "params", param)


def claims(key: str) -> Node:
    """Return the claims of the token that the jwt_authn filter keeps under a key."""
    return nodes.member(nodes.METADATA, JWT_METADATA, key)


def is_unicode(text: Node) -> Node:
    """Return the condition that a text is UTF-8: what is not is no value for us, and RE2 finds no character in it.

    The text must be there: see `safe_match`.
    """
    return nodes.matches(text, "^(?s:.)*$")


def safe_match(text: Node, match: Node) -> Node:
    """Return a ``matches()`` that fails like any other function where the text is none.

    Envoy compiles patterns beforehand; what it does with them ends the whole evaluation if the text is missing or
    something else, so that not even ``|| true`` would help.
    """
    is_text = nodes.call("_==_", nodes.call("type", text), nodes.name("string"))
    return nodes.only_if(is_text, match)
