"""Reads JSON-RPC messages to MCP servers; an ambiguous message is rejected."""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from authplane.core.strict_json import REPEATED, NotStrict, parse_json, spelling
from authplane.policy.mcp.header_front import Front
from authplane.policy.mcp.lookalikes import MEMBERS, has_lookalike
from authplane.policy.mcp.mcp_calls import (
    TOOLS_CALL,
    ClientResponse,
    McpCall,
    MethodCall,
    Notification,
    RpcId,
    build_tool_call,
)
from authplane.policy.mcp.mcp_refusal import Fault, McpRefusal, refuse
from authplane.policy.mcp.mcp_versions import ProtocolVersion, parse_version
from authplane.policy.mcp.message_limits import LONGEST_ID, McpLimits
from authplane.policy.mcp.methods import DISCOVER, NOTIFICATIONS, fit_method, subject_of
from authplane.policy.mcp.mirrored_headers import fault_in_mirrors

_NO_PARAMS: Final[Mapping[str, Any]] = {}
_LONGEST_VERSION: Final = 64
_VERSION: Final = re.compile(r"[0-9A-Za-z._-]{1,64}")


def read_message(body: bytes, front: Front, limits: McpLimits) -> McpCall | McpRefusal:
    """Return the call of a message, or why it is refused. Never raises, whatever the sender wrote."""
    message = parse_json(body, limits.json)
    if not isinstance(message, dict):
        return refuse(_fault_of(message))
    id_ = _id_text(message["id"], body) if "id" in message else None
    fault = _fault_in_envelope(message, id_)
    if fault is not None:
        return refuse(fault)
    named = front.get("mcp-protocol-version")
    version = parse_version(named)
    if version is None and message.get("method") == DISCOVER and _VERSION.fullmatch(named or "") is not None:
        # Only the server knows which versions it speaks. In the newest version, this message requests nothing else.
        version = ProtocolVersion.V2026_07_28
    if version is None:
        return refuse(Fault.VERSION, id_, _versions(named or ""))
    if "method" in message:
        return _call(message, front, version, id_)
    return _response(message, front, version, id_)


def id_in(body: bytes, limits: McpLimits) -> RpcId | None:
    """Return the id of a request that is rejected for another reason than its message; None if it has no valid id.

    The client can then tell which of its requests was rejected.
    """
    message = parse_json(body, limits.json)
    if not isinstance(message, dict) or "method" not in message or "id" not in message:
        return None
    id_ = _id_text(message["id"], body)
    return id_ if _fault_in_envelope(message, id_) is None else None


def _fault_of(value: object) -> Fault:
    """Say why something is no message."""
    if isinstance(value, NotStrict):
        return Fault.DUPLICATE_MEMBER if value.why == REPEATED else Fault.NOT_JSON
    return Fault.BATCH if isinstance(value, list) else Fault.NOT_A_MESSAGE


def _fault_in_envelope(message: Mapping[str, Any], id_: RpcId | None) -> Fault | None:
    """Say why nothing in a message can be believed, its id included."""
    # Nearly always all are members that we know, and this is fast.
    if not MEMBERS.issuperset(message) and has_lookalike(message):
        return Fault.LOOKALIKE
    if message.get("jsonrpc") != "2.0":
        return Fault.JSONRPC
    if "id" in message and id_ is None:
        return Fault.ID
    answers = "result" in message or "error" in message
    if "method" in message:
        return Fault.METHOD_WITH_RESULT if answers else None
    return None if answers else Fault.METHOD


def _id_text(value: object, body: bytes) -> RpcId | None:
    """Return an id as it is written in a message, byte for byte; None if no id can be so."""
    if type(value) is int:
        # There is a -0, and every other whole number has one spelling.
        return str(value) if value else spelling(body, "id")
    if isinstance(value, str):
        if len(value) > LONGEST_ID:
            return None
        # Where nothing is escaped there is one spelling.
        return f'"{value}"' if b"\\" not in body else spelling(body, "id")
    return spelling(body, "id") if value is None or isinstance(value, float) else None


def _versions(requested: str) -> str:
    """Tell a client which versions can be judged here."""
    known = {"supported": [version.value for version in ProtocolVersion]}
    fit = requested.isascii() and requested.isprintable() and len(requested) <= _LONGEST_VERSION
    return json.dumps({**known, "requested": requested if fit else ""})


def _response(
    message: Mapping[str, Any], front: Front, version: ProtocolVersion, id_: RpcId | None
) -> ClientResponse | McpRefusal:
    both = "result" in message and "error" in message
    if both or id_ is None or "params" in message or version is ProtocolVersion.V2026_07_28:
        return refuse(Fault.RESPONSE)
    # Headers that name a method belong to a call, and this is none.
    if front.get("mcp-method") is not None or front.get("mcp-name") is not None:
        return refuse(Fault.HEADER_MISMATCH)
    return ClientResponse(version=version, session=front.get("mcp-session-id") or "")


def _call(
    message: Mapping[str, Any], front: Front, version: ProtocolVersion, id_: RpcId | None
) -> McpCall | McpRefusal:
    method, params = message["method"], message.get("params", _NO_PARAMS)
    fault = _fault_in_call(method, params)
    if fault is not None:
        return refuse(fault, id_)
    subject = subject_of(method, params, version)
    fault = Fault.SUBJECT if subject is None else fault_in_mirrors(front, version, method, subject, params)
    if subject is None or fault is not None:
        return refuse(fault or Fault.SUBJECT, id_)
    session = front.get("mcp-session-id") or ""
    if method == TOOLS_CALL:
        arguments = params.get("arguments") or _NO_PARAMS
        return build_tool_call(id_, subject, arguments, version, session)
    if id_ is None and method.startswith(NOTIFICATIONS):
        return Notification(method=method, params=params, version=version, session=session)
    return MethodCall(id=id_, method=method, subject=subject, params=params, version=version, session=session)


def _fault_in_call(method: object, params: object) -> Fault | None:
    if not fit_method(method):
        return Fault.METHOD
    if not isinstance(params, dict):
        return Fault.PARAMS
    if not MEMBERS.issuperset(params) and has_lookalike(params):
        return Fault.LOOKALIKE
    arguments = params.get("arguments")
    # A null is how some clients write that there are none; other methods have arguments of other kinds, if any.
    unfit = arguments is not None and not isinstance(arguments, dict)
    return Fault.ARGUMENTS if unfit and method == TOOLS_CALL else None
