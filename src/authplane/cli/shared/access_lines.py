"""Lines of Envoy's access log in readable form."""

import json
from typing import Any, Final

from rich.markup import escape

_WORDS: Final = {
    "enforced": "[green]allowed[/] by the authorization service",
    "disabled": "[yellow]not checked[/]: authorization is disabled on this route",
    "fails-open": "[yellow]allowed[/] by the authorization service, or by failOpen if it did not answer",
    "shadow": "[yellow]not enforced[/]: authorization is in shadow mode on this route",
    "unprotected": "[yellow]unprotected[/]",
}
"""What authorized a granted request, by the route's authorization in the access log."""
_NOT_MCP: Final = {
    "mcp_reject_no_mcp": "method, Content-Type or Accept is not valid in MCP",
    "mcp_parse_error": "body is too large or not JSON",
    "mcp_body_too_large": "body is too large",
    "mcp_not_jsonrpc": "body is not a single JSON-RPC message",
    "mcp_duplicate_keys": "body has duplicate keys",
}
"""Why Envoy's MCP filter rejects a request, by the response detail in the access log."""
_DECIDED: Final = "enforced_effective_policy_id"
_ONE_OF_SEVERAL: Final = "shadow_effective_policy_id"
_UNAUTHENTICATED: Final = 401
_TOO_LARGE: Final = 413


def access_line(text: str) -> str | None:
    """Describe the outcome of a request in one line; return None if the text is not from the access log."""
    record = json_record(text)
    if "method" not in record:
        return None
    status = str(record.get("status", ""))
    colour = "green" if status.startswith("2") else "yellow" if status.startswith("3") else "red"
    time = str(record.get("time", ""))[11:19]
    words = (record.get("method"), record.get("host"), record.get("path"))
    request = " ".join(str(word) for word in words if word is not None)
    return f"[dim]{time}[/] [{colour}]{status}[/] {escape(request)}  {_why(record)} [dim]{record.get('duration')} ms[/]"


def json_record(text: str) -> dict[str, Any]:
    """Parse a JSON object; return an empty one if the text is not a JSON object."""
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def _why(record: dict[str, Any]) -> str:
    status = str(record.get("status", ""))
    details = str(record.get("details") or "")
    if refused := _refused(record, details):
        return refused
    if granted := _granted(record.get("decided")):
        return f"[green]allowed[/] by Envoy with {escape(granted)}"
    if status.startswith("3") and details == "direct_response":
        return "redirected to HTTPS"
    words = _WORDS.get(str(record.get("authorization")), f"[dim]{escape(details)}[/]")
    return f"{words}{_not_envoys(record)}"


def _refused(record: dict[str, Any], details: str) -> str:
    """Describe the component that rejected a request; empty if the request was not rejected."""
    if details.startswith("ext_authz_error"):
        return "[red]rejected[/]: the authorization service made no decision"
    if details.startswith("ext_authz"):
        return f"[red]denied[/] by the authorization service{_not_envoys(record)}"
    if details.startswith("rbac_access_denied"):
        return f"[red]denied[/] by Envoy: {escape(_unmoved(record))}"
    if details == "direct_response" and record.get("status") == _TOO_LARGE:
        return "[red]rejected[/] by Envoy before any policy: body is larger than maxRequestBody"
    if details.startswith(("jwt_authn_", "mcp_")):
        words = ", ".join(filter(None, (details, _NOT_MCP.get(details))))
        return f"[red]rejected[/] by Envoy before any policy: {escape(words)}"
    return ""


def _granted(decided: object) -> str:
    """Name the rules by which Envoy granted a request without a call-out; empty if it did not."""
    if not isinstance(decided, dict) or "/" not in str(decided.get(_DECIDED, "")):
        return ""
    several = [str(rule) for key, rule in sorted(decided.items()) if key.endswith(_ONE_OF_SEVERAL) and "/" in str(rule)]
    return " and ".join(several or [str(decided[_DECIDED])])


def _not_envoys(record: dict[str, Any]) -> str:
    """Say that the request needed a call-out independent of the rules; empty if a rule needed it."""
    decided = record.get("decided")
    never = isinstance(decided, dict) and str(decided.get(_DECIDED, "")).startswith("!ask")
    return ", because Envoy does not decide such requests" if never else ""


def _unmoved(record: dict[str, Any]) -> str:
    """Name the policies of the target; no rule granted the request, so there is no rule to name."""
    policies = str(record.get("policies") or "").split()
    denied = f"no rule of {' or '.join(policies)} grants it" if policies else "no rule grants it"
    return f"{denied}, and the request has no valid identity" if record.get("status") == _UNAUTHENTICATED else denied
