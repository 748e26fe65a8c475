"""Lines of Envoy's access log, for people."""

import json
from typing import Any, Final

from rich.markup import escape

_WORDS: Final = {
    "enforced": "[green]allowed[/] by the authorization server",
    "disabled": "[yellow]not checked[/]: authorization is disabled on this route",
    "fails-open": "[yellow]allowed[/] by the authorization server, or by failOpen if it did not answer",
    "shadow": "[yellow]not enforced[/]: authorization is only tried out here",
    "unprotected": "[yellow]unprotected[/]",
}
"""What held for a request that was let through, by what the access log says of its route."""
_NOT_MCP: Final = {
    "mcp_reject_no_mcp": "since its method, Content-Type or Accept is not one of MCP",
    "mcp_parse_error": "since its body is too large or no JSON",
    "mcp_body_too_large": "since its body is too large",
    "mcp_not_jsonrpc": "since its body is not one JSON-RPC message",
    "mcp_duplicate_keys": "since its body says something twice",
}
"""Why Envoy's filter for MCP refuses a request, by the word that it leaves in the access log."""
_DECIDED: Final = "enforced_effective_policy_id"
_ONE_OF_SEVERAL: Final = "shadow_effective_policy_id"
_UNAUTHENTICATED: Final = 401
_TOO_LARGE: Final = 413


def access_line(text: str) -> str | None:
    """Say in one line what became of a request; None if the text is not from the access log."""
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
    """Return the object that a text is; an empty one if it is none."""
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
        return f"[green]allowed[/] in Envoy by {escape(granted)}"
    if status.startswith("3") and details == "direct_response":
        return "redirected to https"
    words = _WORDS.get(str(record.get("authorization")), f"[dim]{escape(details)}[/]")
    return f"{words}{_not_envoys(record)}"


def _refused(record: dict[str, Any], details: str) -> str:
    """Say who refused a request; empty if nobody did."""
    if details.startswith("ext_authz_error"):
        return "[red]refused: no decision of the authorization server[/]"
    if details.startswith("ext_authz"):
        return f"[red]denied[/] by the authorization server{_not_envoys(record)}"
    if details.startswith("rbac_access_denied"):
        return f"[red]denied[/] in Envoy: {escape(_unmoved(record))}"
    if details == "direct_response" and record.get("status") == _TOO_LARGE:
        return "[red]refused[/] in Envoy before any policy: its body is larger than maxRequestBody"
    if details.startswith(("jwt_authn_", "mcp_")):
        words = ", ".join(filter(None, (details, _NOT_MCP.get(details))))
        return f"[red]refused[/] in Envoy before any policy: {escape(words)}"
    return ""


def _granted(decided: object) -> str:
    """Name the rules by which Envoy let a request pass without asking anybody; empty if it did not."""
    if not isinstance(decided, dict) or "/" not in str(decided.get(_DECIDED, "")):
        return ""
    several = [str(rule) for key, rule in sorted(decided.items()) if key.endswith(_ONE_OF_SEVERAL) and "/" in str(rule)]
    return " and ".join(several or [str(decided[_DECIDED])])


def _not_envoys(record: dict[str, Any]) -> str:
    """Say that somebody had to be asked whatever the rules are; empty if it was on account of the rules."""
    decided = record.get("decided")
    never = isinstance(decided, dict) and str(decided.get(_DECIDED, "")).startswith("!ask")
    return ", since Envoy does not judge such requests" if never else ""


def _unmoved(record: dict[str, Any]) -> str:
    """Say which policies stand before the target: none of their rules holds, so none can be named."""
    policies = str(record.get("policies") or "").split()
    denied = f"no rule of {' or '.join(policies)} grants it" if policies else "no rule grants it"
    return f"{denied}, and the sender is not known" if record.get("status") == _UNAUTHENTICATED else denied
