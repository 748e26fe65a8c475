"""What Envoy's conditions say for the variables of our expressions.

A variable that a request may lack is here an expression that fails then, as reading it does in the policy engine.
"""

from collections.abc import Mapping
from typing import Final

from authplane.cel.envoy import condition_nodes
from authplane.cel.envoy.plain_paths import CANONICAL_PATH, IS_CANONICAL
from authplane.cel.syntax.tree import Node

JWT_METADATA: Final = "envoy.filters.http.jwt_authn"
TOOLS_CALL: Final = "tools/call"
MESSAGE: Final = ("authplane.mcp", "message")
"""Where the reader inside Envoy writes what a plain MCP message says: metadata namespace and key."""
METHOD: Final = (*MESSAGE, "method")
SUBJECT: Final = (*MESSAGE, "subject")
ID: Final = (*MESSAGE, "id")
VERSION: Final = (*MESSAGE, "version")
TOKEN_AGE: Final = (*MESSAGE, "age")
"""How many seconds ago the token was issued, if its text meets the policy server's demands; the reader verifies
nothing."""
TOKEN_TYPE: Final = (*MESSAGE, "token_type")
"""The ``typ`` of such a token, in lower case and without ``application/``; empty if there is none."""
TOKEN_ISSUER: Final = (*MESSAGE, "issuer")
"""The ``iss`` of such a token."""

_TRUE: Final = condition_nodes.literal(value=True)
_QUERY: Final = condition_nodes.name("request.query")


def variables() -> Mapping[str, Node]:
    """Return the replacements of variables that can be read as a whole."""
    method = mcp_method()
    return {
        "request.path": CANONICAL_PATH,
        "request.url_path": CANONICAL_PATH,
        **{each: condition_nodes.name(each) for each in ("request.method", "request.host", "request.time")},
        "request.query": condition_nodes.only_if(is_unicode(_QUERY), _QUERY),
        "request.mcp.method": method,
        "request.mcp.tool_name": condition_nodes.only_if(
            condition_nodes.equal(method, TOOLS_CALL), _message("subject")
        ),
    }


def presence(*, knows_method: bool) -> Mapping[str, Node]:
    """Return the replacements of ``has()`` of those variables.

    Without a method there is no ``request.mcp`` to look into, and if an expression reads the tool alone, there is none
    without a tool either: that is an error, not false.
    """
    is_call = condition_nodes.equal(mcp_method(), TOOLS_CALL)
    return {
        "request.path": IS_CANONICAL,
        "request.url_path": IS_CANONICAL,
        **dict.fromkeys(("request.method", "request.host", "request.query", "request.time"), _TRUE),
        "request.mcp.method": condition_nodes.call("_!=_", mcp_method(), condition_nodes.literal("")),
        "request.mcp.tool_name": is_call if knows_method else condition_nodes.only_if(is_call, _TRUE),
    }


def mcp_method() -> Node:
    """Return the JSON-RPC method that a plain message calls; an error if there is none."""
    return _message("method")


def mcp_params() -> Node:
    """Return the arguments of a tool, those that rules read."""
    return _message("params")


def _message(member: str) -> Node:
    return condition_nodes.member(condition_nodes.METADATA, *MESSAGE, member)


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
