"""Headers that repeat parts of a message: they must be equal.

An intermediary may act by the headers and the server by the message. So if both are present they must be equal, in
every version, and since 2026-07-28 the headers are required.
"""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, Final

from authplane.policy.mcp.header_front import Front
from authplane.policy.mcp.lookalikes import fold
from authplane.policy.mcp.mcp_refusal import Fault
from authplane.policy.mcp.mcp_versions import ProtocolVersion
from authplane.policy.mcp.methods import NAMED_IN_HEADERS, NOTIFICATIONS

VERSION_MEMBER: Final = "io.modelcontextprotocol/protocolVersion"

_FOLDED: Final = fold(VERSION_MEMBER)
_OPENING: Final = "=?base64?"
_CLOSING: Final = "?="


def fault_in_mirrors(
    front: Front, version: ProtocolVersion, method: str, subject: str, params: Mapping[str, Any]
) -> Fault | None:
    """Say why headers and message do not go together; None means that they do."""
    meta = params.get("_meta")
    fault = None if meta is None else _fault_in_meta(front, meta)
    if fault is not None:
        return fault
    if front.get("mcp-method") not in (None, method):
        return Fault.HEADER_MISMATCH
    name = front.get("mcp-name")
    if name is not None and not _same_name(name, method, subject, params):
        return Fault.HEADER_MISMATCH
    # The core protocol demands nothing of the headers of notifications.
    if version is not ProtocolVersion.V2026_07_28 or method.startswith(NOTIFICATIONS):
        return None
    if meta is None or VERSION_MEMBER not in meta:
        return Fault.ENVELOPE
    unnamed = method in NAMED_IN_HEADERS and name is None
    return Fault.HEADER_MISMATCH if unnamed or front.get("mcp-method") is None else None


def decode_value(value: str) -> str | None:
    """Decode a header as MCP 2026-07-28 encodes it; None if its encoding is not valid."""
    if not (value.startswith(_OPENING) and value.endswith(_CLOSING) and len(value) >= len(_OPENING + _CLOSING)):
        return value
    text = value[len(_OPENING) : -len(_CLOSING)]
    try:
        content = b64decode(text, validate=True)
        # The decoder ignores bits that belong to nothing; only the one right spelling comes out again.
        return content.decode() if b64encode(content).decode() == text else None
    except ValueError:
        return None


def _fault_in_meta(front: Front, meta: object) -> Fault | None:
    if not isinstance(meta, dict):
        return Fault.ENVELOPE
    for name in meta:
        if name != VERSION_MEMBER and ("\0" in name or fold(name) == _FOLDED):
            return Fault.LOOKALIKE
    same = VERSION_MEMBER not in meta or meta[VERSION_MEMBER] == front.get("mcp-protocol-version")
    # A null would be the same as a header that is not there.
    return None if same and meta.get(VERSION_MEMBER, "") is not None else Fault.HEADER_MISMATCH


def _same_name(header: str, method: str, subject: str, params: Mapping[str, Any]) -> bool:
    name = decode_value(header)
    if name is None:
        return False
    if method in NAMED_IN_HEADERS:
        return name == subject
    # Extensions choose which of their parameters it repeats.
    return any(isinstance(value, str) and value == name for value in params.values())
