"""Reads a request to an MCP server, once for all rules."""

from collections.abc import Iterable

from authplane.policy.mcp.header_front import Front, accepts_events, canonical_path, is_json, read_front
from authplane.policy.mcp.json_rpc import id_in, read_message
from authplane.policy.mcp.mcp_calls import EndSession, McpCall, OpenStream
from authplane.policy.mcp.mcp_refusal import Fault, McpRefusal, refuse
from authplane.policy.mcp.mcp_versions import ProtocolVersion, parse_version
from authplane.policy.mcp.message_limits import DEFAULT_LIMITS, McpLimits


def read_mcp(  # noqa: PLR0913 (a request has as many parts)
    method: str,
    headers: dict[str, str] | Iterable[tuple[str, str]],
    path: str,
    body: bytes,
    *,
    complete: bool,
    limits: McpLimits = DEFAULT_LIMITS,
) -> McpCall | McpRefusal:
    """Return the MCP call of an HTTP request, or why it is refused.

    ``headers`` has every value of each header, or those by name that `read_front` takes for all; ``path`` has no query;
    and ``complete`` tells whether ``body`` is all of the request's body, unless a header of the proxy says otherwise.
    What is accepted has one reading; what two readers could read differently is refused. Whatever the client sent, this
    raises nothing.
    """
    front = read_front(headers) if canonical_path(path) else Fault.PATH
    if isinstance(front, Fault):
        return refuse(front, id_in(body, limits))
    fault = _body_fault(front, body, limits, complete=complete)
    if fault is not None:
        return refuse(fault)
    match method:
        case "POST":
            fault = _post_fault(front, body)
            return read_message(body, front, limits) if fault is None else refuse(fault, id_in(body, limits))
        case "GET" | "DELETE":
            return _bodiless(method, front, body)
        case _:
            return refuse(Fault.HTTP_METHOD)


def _body_fault(front: Front, body: bytes, limits: McpLimits, *, complete: bool) -> Fault | None:
    """Tell whether all of the body is here and small enough."""
    length = front.get("content-length")
    if len(body) > limits.body:
        return Fault.BODY_TOO_LARGE
    if length is not None and length != str(len(body)):
        # A proxy with a limit for bodies may have sent none.
        too_large = length.isascii() and length.isdigit() and len(length) < 20 and int(length) > limits.body
        return Fault.BODY_TOO_LARGE if too_large else Fault.BODY_TRUNCATED
    # Envoy sets it, over HTTP/2 even where it is configured to send no partial body.
    part = front.get("x-envoy-auth-partial-body")
    return None if complete and (part is None or part.lower() == "false") else Fault.BODY_TRUNCATED


def _post_fault(front: Front, body: bytes) -> Fault | None:
    kind = front.get("content-type")
    if kind != "application/json" and not is_json(kind):
        return Fault.CONTENT_TYPE
    if front.get("content-encoding") is not None:
        return Fault.ENCODED_BODY
    return None if body else Fault.BODY_MISSING


def _bodiless(method: str, front: Front, body: bytes) -> OpenStream | EndSession | McpRefusal:
    version, session = parse_version(front.get("mcp-protocol-version")), front.get("mcp-session-id")
    fault = _bodiless_fault(front, body)
    if fault is not None or version is None:
        return refuse(fault or Fault.VERSION)
    if version is ProtocolVersion.V2026_07_28:
        return refuse(Fault.SESSIONLESS)
    if method == "DELETE":
        return refuse(Fault.SESSION) if session is None else EndSession(version=version, session=session)
    if not accepts_events(front.get("accept")):
        return refuse(Fault.NOT_ACCEPTABLE)
    return OpenStream(version=version, session=session or "")


def _bodiless_fault(front: Front, body: bytes) -> Fault | None:
    if body or front.get("transfer-encoding") is not None or front.get("content-encoding") is not None:
        return Fault.BODY_UNEXPECTED
    # Envoy joins several into one, and without a body no other check reads it.
    if "," in front.get("content-type", ""):
        return Fault.HEADER_REPEATED
    # They repeat a message, and here is none.
    repeats = front.get("mcp-method") is not None or front.get("mcp-name") is not None
    return Fault.HEADER_MISMATCH if repeats else None
