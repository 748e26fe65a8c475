"""How an MCP client is told that its request goes no further."""

from enum import StrEnum
from json.encoder import encode_basestring_ascii
from typing import Final, assert_never

from authplane.core.values import dataclass
from authplane.policy.mcp.challenge import BadToken, Challenge, MoreScope, NoToken, render_challenge
from authplane.policy.mcp.mcp_calls import McpCall, RpcId, id_of
from authplane.policy.mcp.mcp_refusal import Fault, McpRefusal

FORBIDDEN: Final = -32003
UNAUTHENTICATED: Final = -32004
TOO_MANY: Final = -32005
"""All are in the range that MCP leaves to implementations, and none is one that its SDKs use for themselves."""
UPSTREAM_FORBIDDEN: Final = 403
"""The code that the upstream project's conformance tests expect inside a body with the HTTP status 200."""
UPSTREAM_MESSAGE: Final = "Access to this tool is forbidden."

_JSON: Final = ("content-type", "application/json")
_ALLOW: Final = {
    Fault.HTTP_METHOD: (("allow", "POST, GET, DELETE"),),
    Fault.SESSIONLESS: (("allow", "POST"),),
}
_LONGEST_MESSAGE: Final = 1024


class DenialFormat(StrEnum):
    """How a denial of a policy is told to a client that waits for an answer."""

    HTTP403 = "http403"
    """HTTP 403 with a JSON-RPC error."""
    JSONRPC200 = "jsonrpc200"
    """HTTP 200 with a JSON-RPC error, as the upstream project's conformance tests have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpAnswer:
    """A whole HTTP response."""

    http_status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: str = ""


def render_denial(call: McpCall, denial_format: DenialFormat, message: str = "") -> McpAnswer:
    """Tell a client that no policy allows its call; ``message`` is what the policy's author has to say to it.

    Who waits for no answer, or not for one of JSON-RPC, gets a bare 403 in either format: a success would hide it.
    """
    id_ = id_of(call)
    if id_ is None:
        return McpAnswer(http_status=403)
    match denial_format:
        case DenialFormat.HTTP403:
            body = render_error(id_, FORBIDDEN, message or "access denied")
            return McpAnswer(http_status=403, headers=(_JSON,), body=body)
        case DenialFormat.JSONRPC200:
            body = render_error(id_, UPSTREAM_FORBIDDEN, message or UPSTREAM_MESSAGE)
            return McpAnswer(http_status=200, headers=(_JSON,), body=body)
        case _:
            assert_never(denial_format)


def render_unauthenticated(id_: RpcId | None, challenge: Challenge, cause: NoToken | BadToken) -> McpAnswer:
    """Tell a client to come back with a token: 401 with a challenge, whatever the format of denials."""
    challenged = ("www-authenticate", render_challenge(challenge, cause))
    if id_ is None:
        return McpAnswer(http_status=401, headers=(challenged,))
    body = render_error(id_, UNAUTHENTICATED, "authentication required")
    return McpAnswer(http_status=401, headers=(challenged, _JSON), body=body)


def render_insufficient_scope(id_: RpcId | None, challenge: Challenge) -> McpAnswer:
    """Tell a client to come back with a token of more scope: 403 that names every scope it needs."""
    challenged = ("www-authenticate", render_challenge(challenge, MoreScope()))
    if id_ is None:
        return McpAnswer(http_status=403, headers=(challenged,))
    body = render_error(id_, FORBIDDEN, "insufficient scope")
    return McpAnswer(http_status=403, headers=(challenged, _JSON), body=body)


def render_too_many(id_: RpcId | None, retry_after: int) -> McpAnswer:
    """Tell a client that its token was not verified, and when to come again: nothing is said about the token."""
    later = ("retry-after", str(retry_after))
    if id_ is None:
        return McpAnswer(http_status=429, headers=(later,))
    body = render_error(id_, TOO_MANY, f"too many invalid tokens from this address; retry in {retry_after} s")
    return McpAnswer(http_status=429, headers=(later, _JSON), body=body)


def render_refusal(refusal: McpRefusal) -> McpAnswer:
    """Tell a client why its request was not even judged; in either format, since no policy was asked."""
    body = render_error(refusal.id or "null", refusal.code, refusal.fault.value.replace("_", " "), refusal.data)
    headers = (*_ALLOW.get(refusal.fault, ()), _JSON)
    return McpAnswer(http_status=refusal.http_status, headers=headers, body=body)


def render_error(id_: RpcId, code: int, message: str, data: str = "") -> str:
    """Write a JSON-RPC error in ASCII; ``id_`` and ``data`` are JSON already, and ``data`` may be empty."""
    said = encode_basestring_ascii(message[:_LONGEST_MESSAGE])
    more = f',"data":{data}' if data else ""
    return f'{{"jsonrpc":"2.0","id":{id_},"error":{{"code":{code},"message":{said}{more}}}}}'
