"""The answers that MCP clients get to requests that are not allowed."""

from enum import StrEnum
from json.encoder import encode_basestring_ascii
from typing import Final, assert_never

from authplane.core.values import dataclass
from authplane.policy.mcp.challenge import BadToken, Challenge, MoreScope, NoToken, render_challenge
from authplane.policy.mcp.mcp_calls import McpCall, RpcId, id_of
from authplane.policy.mcp.mcp_refusal import Fault, McpRefusal
from authplane.policy.mcp.refusal_remedies import REMEDIES

FORBIDDEN: Final = -32003
UNAUTHENTICATED: Final = -32004
TOO_MANY: Final = -32005
UNAVAILABLE: Final = -32006
"""All are in the range that MCP leaves to implementations, and none is one that its SDKs use for themselves."""
UPSTREAM_FORBIDDEN: Final = 403
"""The code that the upstream project's conformance tests expect inside a body with the HTTP status 200."""
UPSTREAM_MESSAGE: Final = "Access to this tool is forbidden."
ACCESS_DENIED: Final = "Access denied."
AUTHENTICATION_REQUIRED: Final = "Authentication required. Send a bearer token."
NO_DECISION: Final = "No decision: the policy server did not decide. Retry later."
DECISION_ID: Final = "decisionId"
"""The member of an error's ``data`` that names the decision, as the decision log and the access log do."""

_JSON: Final = ("content-type", "application/json")
_ALLOW: Final = {
    Fault.HTTP_METHOD: (("allow", "POST, GET, DELETE"),),
    Fault.SESSIONLESS: (("allow", "POST"),),
}
_LONGEST_MESSAGE: Final = 1024


class DenialFormat(StrEnum):
    """How a client that waits for a response gets a denial."""

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


def render_denial(call: McpCall, denial_format: DenialFormat, message: str = "", decision_id: str = "") -> McpAnswer:
    """Tell a client that no policy allows its call; ``message`` is what the policy's author has to say to it.

    A client that waits for no answer, or for none of JSON-RPC, gets a bare 403 in either format: a success would hide
    the denial.
    """
    id_ = id_of(call)
    if id_ is None:
        return McpAnswer(http_status=403)
    data = render_data(decision_id)
    match denial_format:
        case DenialFormat.HTTP403:
            body = render_error(id_, FORBIDDEN, message or ACCESS_DENIED, data)
            return McpAnswer(http_status=403, headers=(_JSON,), body=body)
        case DenialFormat.JSONRPC200:
            body = render_error(id_, UPSTREAM_FORBIDDEN, message or UPSTREAM_MESSAGE, data)
            return McpAnswer(http_status=200, headers=(_JSON,), body=body)
        case _:
            assert_never(denial_format)


def render_unauthenticated(
    id_: RpcId | None, challenge: Challenge, cause: NoToken | BadToken, decision_id: str = ""
) -> McpAnswer:
    """Tell a client to send another token: 401 with a challenge, in either format of denials."""
    challenged = ("www-authenticate", render_challenge(challenge, cause))
    if id_ is None:
        return McpAnswer(http_status=401, headers=(challenged,))
    message = (cause.why if isinstance(cause, BadToken) else "") or AUTHENTICATION_REQUIRED
    body = render_error(id_, UNAUTHENTICATED, message, render_data(decision_id))
    return McpAnswer(http_status=401, headers=(challenged, _JSON), body=body)


def render_insufficient_scope(id_: RpcId | None, challenge: Challenge, decision_id: str = "") -> McpAnswer:
    """Tell a client to send a token of more scope: 403 that names every scope it needs."""
    challenged = ("www-authenticate", render_challenge(challenge, MoreScope()))
    if id_ is None:
        return McpAnswer(http_status=403, headers=(challenged,))
    body = render_error(id_, FORBIDDEN, scope_message(challenge.scopes), render_data(decision_id))
    return McpAnswer(http_status=403, headers=(challenged, _JSON), body=body)


def render_too_many(id_: RpcId | None, retry_after: int, decision_id: str = "") -> McpAnswer:
    """Say that the token was not verified, and when to retry, without details of the token."""
    later = ("retry-after", str(retry_after))
    if id_ is None:
        return McpAnswer(http_status=429, headers=(later,))
    body = render_error(id_, TOO_MANY, too_many_message(retry_after), render_data(decision_id))
    return McpAnswer(http_status=429, headers=(later, _JSON), body=body)


def render_unavailable(id_: RpcId | None, why: str, decision_id: str = "") -> McpAnswer:
    """Tell a client that there is no decision about its request: 503 in either format of denials."""
    if id_ is None:
        return McpAnswer(http_status=503)
    body = render_error(id_, UNAVAILABLE, why, render_data(decision_id))
    return McpAnswer(http_status=503, headers=(_JSON,), body=body)


def render_refusal(refusal: McpRefusal, decision_id: str = "") -> McpAnswer:
    """Tell a client what is wrong with its request, in either format of denials: no policy was evaluated."""
    data = render_data(decision_id, refusal.data)
    body = render_error(refusal.id or "null", refusal.code, refusal_message(refusal.fault), data)
    headers = (*_ALLOW.get(refusal.fault, ()), _JSON)
    return McpAnswer(http_status=refusal.http_status, headers=headers, body=body)


def render_error(id_: RpcId, code: int, message: str, data: str = "") -> str:
    """Write a JSON-RPC error in ASCII; ``id_`` and ``data`` are JSON already, and ``data`` may be empty."""
    said = encode_basestring_ascii(message[:_LONGEST_MESSAGE])
    more = f',"data":{data}' if data else ""
    return f'{{"jsonrpc":"2.0","id":{id_},"error":{{"code":{code},"message":{said}{more}}}}}'


def render_data(decision_id: str, data: str = "") -> str:
    """Add the id of the decision to the ``data`` of an error, which is a JSON object or empty."""
    if not decision_id:
        return data
    named = f'"{DECISION_ID}":{encode_basestring_ascii(decision_id)}'
    return f"{data.removesuffix('}')},{named}}}" if data else f"{{{named}}}"


def not_granted(method: str, tool: str) -> str:
    """Say what no rule grants, in the client's own words; ``tool`` is empty for other methods than ``tools/call``."""
    about = f' "{tool}"' if tool else ""
    return f"{ACCESS_DENIED} No rule grants {method}{about} to this caller."


def scope_message(scopes: tuple[str, ...]) -> str:
    """Say which scopes a token needs."""
    return f'Insufficient scope. Get a token with the scope "{" ".join(scopes)}".'


def too_many_message(retry_after: int) -> str:
    """Say when a client may retry whose tokens are not verified for now."""
    return f"Too many invalid tokens from this address. Retry in {retry_after} s."


def refusal_message(fault: Fault) -> str:
    """Say what is wrong with a request, and what to do."""
    remedy = REMEDIES[fault]
    return f"Invalid request ({fault.value.replace('_', ' ')}). {remedy[0].upper()}{remedy[1:]}."
