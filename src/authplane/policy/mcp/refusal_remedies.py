"""What the sender of a refused request has to change."""

from collections.abc import Mapping
from typing import Final

from authplane.policy.mcp.mcp_refusal import Fault

REMEDIES: Final[Mapping[Fault, str]] = {
    Fault.PATH: "use a path without empty or dot segments, backslashes, semicolons and needless escapes",
    Fault.HTTP_METHOD: "use POST, GET or DELETE",
    Fault.SESSIONLESS: "use POST: MCP 2026-07-28 has no sessions",
    Fault.METHOD_OVERRIDE: "remove headers that override the HTTP method",
    Fault.UPGRADE: "do not upgrade the connection",
    Fault.HEADER_REPEATED: "send each MCP and HTTP header once",
    Fault.HEADER_MISSPELT: "use hyphens, not underscores, in header names",
    Fault.CONTENT_TYPE: "send content-type: application/json",
    Fault.ENCODED_BODY: "send the body without content-encoding",
    Fault.BODY_MISSING: "send a JSON-RPC message as the body",
    Fault.BODY_UNEXPECTED: "send GET and DELETE without a body",
    Fault.BODY_TRUNCATED: "send the whole body, with its length",
    Fault.BODY_TOO_LARGE: "send a smaller body, or raise maxRequestBody",
    Fault.NOT_ACCEPTABLE: "accept text/event-stream",
    Fault.SESSION: "send one Mcp-Session-Id of visible ASCII",
    Fault.NOT_JSON: "send UTF-8 JSON within the limits of size and depth",
    Fault.DUPLICATE_MEMBER: "write each member of the message once; servers differ in which duplicate they read",
    Fault.BATCH: "send one message, not a batch",
    Fault.NOT_A_MESSAGE: "send a JSON object as the message",
    Fault.LOOKALIKE: "rename the member whose name differs from another or from one of MCP only in case or by a NUL",
    Fault.JSONRPC: 'send "jsonrpc": "2.0"',
    Fault.ID: "send a string, a number or null as the id",
    Fault.METHOD: "send the method in visible ASCII and in the letter case that MCP defines",
    Fault.METHOD_WITH_RESULT: "send either a method, or a result or an error",
    Fault.RESPONSE: "send a response with an id and either result or error",
    Fault.PARAMS: "send an object as params",
    Fault.SUBJECT: "set the name or uri that the method requires in params, in printable characters",
    Fault.ARGUMENTS: "send an object as the arguments of the tool",
    Fault.VERSION: "send a supported MCP-Protocol-Version",
    Fault.ENVELOPE: "send an object as _meta, with the members that the protocol version requires",
    Fault.HEADER_MISMATCH: "send MCP headers that match the message",
}
"""Continues a sentence that begins with "to change that"."""
