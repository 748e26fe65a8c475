"""One line for each request: Envoy's access log and the policies' decision in readable form."""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final, assert_never

from rich.markup import escape

from authplane.authserver.records.decision_record import shown
from authplane.devkit.local.joined_requests import JoinedRequest
from authplane.devkit.policies.checking import shadow_note
from authplane.policy.check.decision import Allow, Deny, Unavailable
from authplane.policy.check.decision_id import decision_id
from authplane.policy.verdicts.verdict import Verdict

_WORDS: Final = {
    "enforced": "[green]allowed[/] by the authorization service",
    "disabled": "[yellow]not checked[/]: authorization is disabled on this route",
    "fails-open": "[yellow]allowed[/] by the authorization service, or by failOpen if it did not answer",
    "shadow": "[yellow]not enforced[/]: authorization is in shadow mode on this route",
    "unprotected": "[yellow]unprotected[/]",
}
"""What authorized a granted request, by the route's authorization in the access log."""
_DECIDED: Final = "enforced_effective_policy_id"
_ONE_OF_SEVERAL: Final = "shadow_effective_policy_id"
_ID: Final = 8
"""Characters of a decision id that tell the requests of one terminal apart."""
_UNAUTHENTICATED: Final = 401
_NATIVE_DENIAL: Final = "rbac_access_denied"


def is_access(record: Mapping[str, Any]) -> bool:
    """Tell whether a JSON object is a line of the access log."""
    return "method" in record


def request_line(joined: JoinedRequest, now: datetime) -> tuple[str, str]:
    """Describe a request in one line: time and status, then everything else.

    A request that is still open has ``...`` instead of the status.
    """
    record, request, verdict = joined.record, joined.request, joined.verdict
    if record is None:
        method, host, path = ("", "", "") if request is None else (request.method, request.host, request.path)
        lead, end = f"[dim]{now:%H:%M:%S}[/] [yellow]...[/] ", "[dim]still open[/]"
    else:
        method, host, path = (str(record.get(name) or "") for name in ("method", "host", "path"))
        # The access log has the host that Envoy sends to the backend, which a route may rewrite.
        host = request.host if request is not None and request.host else host
        status = str(record.get("status", ""))
        colour = "green" if status.startswith("2") else "yellow" if status.startswith("3") else "red"
        lead = f"[dim]{_ended(record)}[/] [{colour}]{status}[/] "
        end = f"[dim]{record.get('duration')}ms[/]"
    what = [method, f"{host}{path}", *_message(record or {}, verdict)]
    said = _decision(verdict) if verdict is not None else _why(record or {})
    words = " ".join(escape(shown(word)) for word in what if word)
    return lead, f"{words}: {said}{_failure(record or {})} {end}{_id(joined)}"


def _message(record: Mapping[str, Any], verdict: Verdict | None) -> tuple[str, str]:
    """Return the MCP method and what it names; the access log has both for requests that Envoy denies natively."""
    if verdict is not None:
        return verdict.grounds.mcp_method, verdict.grounds.tool
    return str(record.get("mcp_method") or ""), str(record.get("mcp_name") or "")


def _ended(record: Mapping[str, Any]) -> str:
    """Return the time of a request's end: the access log has its start and its duration."""
    start, duration = str(record.get("time", "")), record.get("duration")
    try:
        ended = datetime.fromisoformat(start) + timedelta(milliseconds=int(duration or 0))
    except (ValueError, TypeError, OverflowError):
        return start[11:19]
    return f"{ended:%H:%M:%S}"


def _id(joined: JoinedRequest) -> str:
    """Return the start of the decision id that the client got; empty for a request that was granted."""
    record, verdict = joined.record or {}, joined.verdict
    # A denial in the body of a response has the status 200.
    native = str(record.get("details") or "").startswith(_NATIVE_DENIAL)
    failed = native or str(record.get("status", "")).startswith(("4", "5"))
    if not failed if verdict is None else isinstance(verdict.decision, Allow):
        return ""
    id_ = decision_id(joined.request) if joined.request is not None else str(record.get("request_id") or "")
    return f" [dim]id {escape(shown(id_[:_ID]))}[/]" if id_ else ""


def json_record(text: str) -> dict[str, Any]:
    """Parse a JSON object; return an empty one if the text is not a JSON object."""
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def _decision(verdict: Verdict) -> str:
    """Describe what policies decided and why, and what policies in shadow mode would decide."""
    grounds = verdict.grounds
    rule = "".join(f", {noun} {name}" for noun, name in (("rule", grounds.rule), ("entry", grounds.entry)) if name)
    policy = escape(shown(f"{grounds.policy}{rule}"))
    to = f" to {escape(shown(grounds.identity))}" if grounds.identity else ""
    why = f"{escape(shown(grounds.reason))}{f' ({policy})' if policy else ''}"
    match verdict.decision:
        case Allow():
            said = f"[green]granted[/]{to} by {policy}" if policy else f"[green]granted[/]{to}"
        case Deny():
            said = f"[red]denied[/]{to}: {why}"
        case Unavailable():
            said = f"[red]no decision[/]: {why}"
        case _:
            assert_never(verdict.decision)
    return "; ".join([said, *(escape(shown(shadow_note(each))) for each in verdict.shadows)])


def _failure(record: Mapping[str, Any]) -> str:
    """Describe why Envoy got no response from the backend; empty if it did."""
    details = str(record.get("details") or "")
    failed = str(record.get("status", "")).startswith("5") and details.startswith(("upstream", "no_healthy", "cluster"))
    return f"; [red]no response from the backend[/] ({escape(shown(details))})" if failed else ""


def _why(record: Mapping[str, Any]) -> str:
    status = str(record.get("status", ""))
    details = str(record.get("details") or "")
    if refused := _refused(record, details):
        return refused
    if granted := _granted(record.get("decided")):
        return f"[green]allowed[/] by Envoy with {escape(granted)}"
    if details == "route_not_found":
        return "[yellow]not found[/]: no route of Envoy has this host and path"
    if status.startswith("3") and details == "direct_response":
        return "redirected to HTTPS"
    words = _WORDS.get(str(record.get("authorization")), f"[dim]{escape(details)}[/]")
    return f"{words}{_not_envoys(record)}"


def _refused(record: Mapping[str, Any], details: str) -> str:
    """Describe the component that rejected a request; empty if the request was not rejected."""
    if details.startswith("ext_authz_error"):
        return "[red]rejected[/]: the authorization service made no decision"
    if details.startswith("ext_authz"):
        return f"[red]denied[/] by the authorization service{_not_envoys(record)}"
    if details.startswith(_NATIVE_DENIAL):
        sender = _sender(record)
        to = f" to {escape(shown(sender))}" if sender else ""
        return f"[red]denied[/]{to} by Envoy: {escape(_unmoved(record))}"
    if details == "request_payload_too_large":
        return "[red]rejected[/] by Envoy before it evaluated policies: the body is too large"
    if details.startswith("jwt_authn_"):
        return f"[red]rejected[/] by Envoy before it evaluated policies: {escape(details)}"
    return ""


def _sender(record: Mapping[str, Any]) -> str:
    """Return the identity that a rule knows, as the policy server names it; empty if there is none."""
    if record.get("status") == _UNAUTHENTICATED:
        return ""
    issuer, subject = (str(record.get(name) or "") for name in ("issuer", "subject"))
    return f"{issuer}#{subject}" if issuer else str(record.get("spiffe_id") or "")


def _granted(decided: object) -> str:
    """Name the rules by which Envoy granted a request without a call-out; empty if it did not."""
    if not isinstance(decided, dict) or "/" not in str(decided.get(_DECIDED, "")):
        return ""
    several = [str(rule) for key, rule in sorted(decided.items()) if key.endswith(_ONE_OF_SEVERAL) and "/" in str(rule)]
    return " and ".join(several or [str(decided[_DECIDED])])


def _not_envoys(record: Mapping[str, Any]) -> str:
    """Say that the request needed a call-out independent of the rules; empty if a rule needed it."""
    decided = record.get("decided")
    never = isinstance(decided, dict) and str(decided.get(_DECIDED, "")).startswith("!ask")
    return "; Envoy does not decide this kind of request itself" if never else ""


def _unmoved(record: Mapping[str, Any]) -> str:
    """Name the policies of the target; no rule granted the request, so there is no rule to name."""
    policies = str(record.get("policies") or "").split()
    denied = f"no rule of {' or '.join(policies)} grants the request" if policies else "no rule grants the request"
    return f"{denied}, which has no valid identity" if record.get("status") == _UNAUTHENTICATED else denied
