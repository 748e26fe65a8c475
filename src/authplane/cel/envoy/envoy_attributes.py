"""What Envoy's conditions say for the variables of our expressions.

A variable that a request may lack is here an expression that fails then, as reading it does in the policy engine.
"""

from collections.abc import Mapping
from typing import Final

from authplane.cel.envoy import condition_nodes
from authplane.cel.envoy.plain_paths import CANONICAL_PATH, IS_CANONICAL
from authplane.cel.syntax.tree import Node
from authplane.core.envoy_releases import Release

JWT_METADATA: Final = "envoy.filters.http.jwt_authn"
TOOLS_CALL: Final = "tools/call"
RESPONSE: Final = "__jsonrpc_response"
"""The method that Envoy's mcp filter makes up for a message that has a result."""

_TRUE: Final = condition_nodes.literal(value=True)
_QUERY: Final = condition_nodes.name("request.query")


def variables(envoy: Release) -> Mapping[str, Node]:
    """Return what stands for the variables that can be read as a whole."""
    return {
        "request.path": CANONICAL_PATH,
        "request.url_path": CANONICAL_PATH,
        **{each: condition_nodes.name(each) for each in ("request.method", "request.host", "request.time")},
        "request.query": condition_nodes.only_if(is_unicode(_QUERY), _QUERY),
        "request.mcp.method": mcp_method(envoy),
        "request.mcp.tool_name": condition_nodes.only_if(is_method(envoy, TOOLS_CALL), mcp_param(envoy, "name")),
    }


def presence(envoy: Release, *, knows_method: bool) -> Mapping[str, Node]:
    """Return what stands for ``has()`` of those variables.

    Without a method there is no ``request.mcp`` to look into, and if an expression reads the tool alone, there is none
    without a tool either: that is an error, not false.
    """
    is_call = condition_nodes.equal(mcp_method(envoy), TOOLS_CALL)
    return {
        "request.path": IS_CANONICAL,
        "request.url_path": IS_CANONICAL,
        **dict.fromkeys(("request.method", "request.host", "request.query", "request.time"), _TRUE),
        "request.mcp.method": condition_nodes.call("_!=_", mcp_method(envoy), condition_nodes.literal("")),
        "request.mcp.tool_name": is_call if knows_method else condition_nodes.only_if(is_call, _TRUE),
    }


def mcp_method(envoy: Release) -> Node:
    """Return the JSON-RPC method that a request calls; an error if it calls none."""
    method = condition_nodes.member(condition_nodes.METADATA, envoy.mcp_metadata, "method")
    return condition_nodes.only_if(condition_nodes.call("_!=_", method, condition_nodes.literal(RESPONSE)), method)


def is_method(envoy: Release, method: str) -> Node:
    """Return the condition that a request calls a method; an error if it calls none."""
    return condition_nodes.equal(condition_nodes.member(condition_nodes.METADATA, envoy.mcp_metadata, "method"), method)


def mcp_param(envoy: Release, param: str) -> Node:
    """Return a parameter that the mcp filter keeps."""
    return condition_nodes.member(condition_nodes.METADATA, envoy.mcp_metadata, "params", param)


def claims(key: str) -> Node:
    """Return the claims of the token that the jwt_authn filter keeps under a key."""
    return condition_nodes.member(condition_nodes.METADATA, JWT_METADATA, key)


def is_unicode(text: Node) -> Node:
    """Return the condition that a text is UTF-8: what is not is no value for us, and RE2 finds no character in it.

    The text must be there: see `safe_match`.
    """
    return condition_nodes.matches(text, "^(?s:.)*$")


def safe_match(text: Node, match: Node) -> Node:
    """Return a ``matches()`` that fails like any other function where the text is none.

    Envoy compiles patterns beforehand; what it does with them ends the whole evaluation if the text is missing or
    something else, so that not even ``|| true`` would help.
    """
    is_text = condition_nodes.call("_==_", condition_nodes.call("type", text), condition_nodes.name("string"))
    return condition_nodes.only_if(is_text, match)
