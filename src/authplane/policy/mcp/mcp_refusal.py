"""Why a request to an MCP server is rejected before any policy."""

from enum import StrEnum
from typing import Final

from authplane.core.values import dataclass
from authplane.policy.mcp.mcp_calls import RpcId

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
INVALID_PARAMS: Final = -32602
HEADER_MISMATCH: Final = -32020
UNSUPPORTED_VERSION: Final = -32022


class Fault(StrEnum):
    """What is wrong with a request, for the decision log."""

    PATH = "path_not_canonical"
    HTTP_METHOD = "http_method_unsupported"
    SESSIONLESS = "no_sessions_in_this_version"
    """GET or DELETE, which only versions with sessions have."""
    METHOD_OVERRIDE = "method_override"
    UPGRADE = "upgrade"
    HEADER_REPEATED = "header_repeated"
    HEADER_MISSPELT = "header_misspelt"
    """With underscores: an origin may read it as the header that it is not."""
    CONTENT_TYPE = "content_type"
    ENCODED_BODY = "encoded_body"
    BODY_MISSING = "body_missing"
    BODY_UNEXPECTED = "body_unexpected"
    BODY_TRUNCATED = "body_truncated"
    """Not all of it is here, by what the proxy or the length in the headers says."""
    BODY_TOO_LARGE = "body_too_large"
    NOT_ACCEPTABLE = "accept_without_event_stream"
    SESSION = "session_id"
    NOT_JSON = "not_json"
    DUPLICATE_MEMBER = "duplicate_member"
    BATCH = "batch_unsupported"
    NOT_A_MESSAGE = "not_a_message"
    LOOKALIKE = "member_lookalike"
    """A member that a lenient reader could take for another one."""
    JSONRPC = "jsonrpc_version"
    ID = "id"
    METHOD = "method"
    METHOD_WITH_RESULT = "method_with_result"
    RESPONSE = "response_unexpected"
    PARAMS = "params"
    SUBJECT = "subject"
    """The name, URI or id of the subject is missing or invalid."""
    ARGUMENTS = "arguments"
    VERSION = "protocol_version_unknown"
    ENVELOPE = "envelope"
    """``_meta`` lacks what the protocol version demands."""
    HEADER_MISMATCH = "header_mismatch"


@dataclass(frozen=True, slots=True, kw_only=True)
class McpRefusal:
    """The request has no single meaning, or none that MCP knows: it is denied, whatever policies say."""

    http_status: int
    code: int
    """Of the JSON-RPC error."""
    fault: Fault
    id: RpcId | None = None
    """None if there is none, or if nothing in the message can be believed."""
    data: str = ""
    """The ``data`` of the JSON-RPC error, as JSON; empty for none."""


_HTTP: Final = {
    Fault.HTTP_METHOD: 405,
    Fault.SESSIONLESS: 405,
    Fault.CONTENT_TYPE: 415,
    Fault.ENCODED_BODY: 415,
    Fault.BODY_TRUNCATED: 413,
    Fault.BODY_TOO_LARGE: 413,
    Fault.NOT_ACCEPTABLE: 406,
}
_CODES: Final = {
    Fault.NOT_JSON: PARSE_ERROR,
    Fault.PARAMS: INVALID_PARAMS,
    Fault.SUBJECT: INVALID_PARAMS,
    Fault.ARGUMENTS: INVALID_PARAMS,
    Fault.ENVELOPE: INVALID_PARAMS,
    Fault.HEADER_MISMATCH: HEADER_MISMATCH,
    Fault.VERSION: UNSUPPORTED_VERSION,
}


def refuse(fault: Fault, id_: RpcId | None = None, data: str = "") -> McpRefusal:
    """Build the refusal of a request with this fault."""
    return McpRefusal(
        http_status=_HTTP.get(fault, 400), code=_CODES.get(fault, INVALID_REQUEST), fault=fault, id=id_, data=data
    )
