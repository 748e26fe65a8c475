"""The answers to requests that policies do not allow."""

from typing import Final

from authplane.core.values import dataclass
from authplane.policy.attached.attachments import Attachment
from authplane.policy.check.answer_headers import may_send
from authplane.policy.check.basic import LONGEST_REALM
from authplane.policy.check.decision import Decision, Deny, Unavailable
from authplane.policy.check.decision_id import decision_id
from authplane.policy.check.request import Request
from authplane.policy.decide.match_rules import Miss
from authplane.policy.decide.request_case import Case
from authplane.policy.decide.token_faults import cut, listed
from authplane.policy.identity.tokens.token_outcome import Refused
from authplane.policy.mcp.challenge import BadToken, Challenge, NoToken
from authplane.policy.mcp.mcp_answers import (
    ACCESS_DENIED,
    AUTHENTICATION_REQUIRED,
    DenialFormat,
    McpAnswer,
    not_granted,
    render_denial,
    render_insufficient_scope,
    render_refusal,
    render_too_many,
    render_unauthenticated,
    render_unavailable,
    scope_message,
    too_many_message,
)
from authplane.policy.mcp.mcp_calls import McpCall, RpcId, ToolCall, id_of, method_of
from authplane.policy.mcp.mcp_refusal import Fault, McpRefusal, refuse
from authplane.policy.mcp.resource_metadata import metadata_url
from authplane.policy.verdicts.effects import Declined
from authplane.policy.verdicts.verdict import NotPassed

RESOURCE: Final = "authplane.resource"
"""The key of a route's context with the path under which clients know the backend."""
_TEXT: Final = ("content-type", "text/plain; charset=utf-8")


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcDenial(Deny):
    """A denial inside the body: HTTP 200 with a JSON-RPC error, for `denialFormat: jsonrpc200`.

    Only a JSON-RPC error may have this status, so that no client takes it for an answer of the server.
    """

    def __post_init__(self) -> None:
        if self.http_status != 200 or not self.body.startswith('{"jsonrpc":"2.0","id":') or '"error":' not in self.body:
            raise ValueError("only a JSON-RPC error may be denied with the HTTP status 200")


def build_denial(result: NotPassed, case: Case, attachments: tuple[Attachment, ...]) -> Decision:
    """Build the answer to a request that a policy does not grant.

    Without a decision it is 503, or 429 if the client must slow down. If only scopes are missing, it is 403 with their
    names. If no rule recognises the sender and a token could help, it is 401 with a challenge. An ambiguous message
    gets the error that the protocol defines. Everything else is 403.
    """
    id_ = decision_id(case.request)
    if result.retry_after:
        answer = render_too_many(_id(case.call()), result.retry_after, id_)
    elif result.unavailable:
        answer = _unavailable(result, case, id_)
    else:
        answer = _answer(result, case, attachments, id_)
    message = ""
    if not attachments[-1].mcp:
        answer, message = _without_body(answer), _text(_message(result), id_).rstrip()
    if result.unavailable and not result.retry_after:
        cause = f"{result.policy} {result.unavailable}"
        return Unavailable(cause=cause, headers=answer.headers, body=answer.body)
    return _denied(answer, result, id_, message)


def build_refusal(refusal: McpRefusal, policy: str, request: Request) -> Decision:
    """Deny a message that is ambiguous, for every sender."""
    result = NotPassed(policy=policy, reason=f"mcp:{refusal.fault}")
    id_ = decision_id(request)
    return _denied(render_refusal(refusal, id_), result, id_)


def _unavailable(result: NotPassed, case: Case, decision: str) -> McpAnswer:
    """Say why there is no decision, as far as that concerns the client: which issuer its token is from, and no more."""
    call = case.call()
    said = f"No decision: {_obstacle(result.unavailable, case)}. Retry later."
    if call is None:
        return McpAnswer(http_status=503, headers=(_TEXT,), body=_text(said, decision))
    return render_unavailable(_id(call), said, decision)


def _obstacle(unavailable: str, case: Case) -> str:
    match unavailable:
        case Miss.NOT_READY:
            token = case.evidence.token()
            issuer = token.issuer if isinstance(token, Refused) else ""
            return f"the keys of issuer {listed([issuer])} are not loaded"
        case Miss.NOT_REVIEWED:
            return "the cluster did not review the token"
        case _:
            return "an external authorization service did not answer"


def _answer(result: NotPassed, case: Case, attachments: tuple[Attachment, ...], decision: str) -> McpAnswer:
    call = case.call()
    if result.scopes:
        return render_insufficient_scope(_id(call), _challenge(case, attachments, result.scopes), decision)
    if result.wants_token:
        cause = BadToken(result.token_fault) if result.bad_token else NoToken()
        challenge = _challenge(case, attachments, scopes_of(attachments))
        return render_unauthenticated(_id(call), challenge, cause, decision)
    if isinstance(call, McpRefusal):
        return render_refusal(call, decision)
    if result.too_large and call is None:
        return McpAnswer(http_status=413)
    if result.too_large and call is not None:
        return render_refusal(refuse(Fault.BODY_TOO_LARGE, id_of(call)), decision)
    message = result.message or ("" if result.declined else _not_granted(call, case))
    forbidden = _forbidden(call, case, message, decision)
    return forbidden if result.declined is None else _passed_on(result.declined, forbidden)


def _id(call: McpCall | McpRefusal | None) -> RpcId | None:
    if call is None:
        return None
    # The id could not be read, and the client still waits for an answer.
    return call.id or "null" if isinstance(call, McpRefusal) else id_of(call)


def _challenge(case: Case, attachments: tuple[Attachment, ...], scopes: tuple[str, ...]) -> Challenge:
    request = case.request
    # Clients do not get workload tokens from an OAuth authorization server, so no metadata is published.
    published = any(attachment.issuers for attachment in attachments)
    where = metadata_url(request.scheme, request.host, request.context.get(RESOURCE, request.path)) if published else ""
    return Challenge(realm=realm_of(attachments), resource_metadata=where or "", scopes=scopes)


def realm_of(attachments: tuple[Attachment, ...]) -> str:
    """Return the realm of a challenge: the protected target."""
    return str(attachments[-1].aim.ref.object_name)[:LONGEST_REALM]


def scopes_of(attachments: tuple[Attachment, ...]) -> tuple[str, ...]:
    """Return the scopes that some rule requires."""
    return tuple(dict.fromkeys(scope for attachment in attachments for scope in attachment.scopes))


def _forbidden(call: McpCall | None, case: Case, message: str, decision: str) -> McpAnswer:
    if call is None:
        return McpAnswer(http_status=403, headers=(_TEXT,), body=_text(message or ACCESS_DENIED, decision))
    return render_denial(call, case.settings.denial_format, message, decision)


def _not_granted(call: McpCall | None, case: Case) -> str:
    """Say what is not granted, in the client's own words: its method and its tool. It tells nothing about policies."""
    method = "" if call is None else method_of(call)
    if not method or case.settings.denial_format is DenialFormat.JSONRPC200:
        return ""
    tool = cut(call.name) if isinstance(call, ToolCall) else ""
    return not_granted(cut(method), tool)


def _text(message: str, decision: str) -> str:
    """Write a denial for clients that do not speak JSON-RPC."""
    return f"{message} (decision id {decision})\n" if decision else f"{message}\n"


def _passed_on(declined: Declined, ours: McpAnswer) -> McpAnswer:
    """Pass on the answer of an external service if its status is a denial; an empty body is replaced by ours."""
    status = declined.http_status
    kept = tuple((name, value) for name, value in declined.headers if may_send(name, value))
    names = {name.lower() for name, _ in kept}
    if not 400 <= status < 500 and not (300 <= status < 400 and "location" in names):
        return ours
    bare = tuple((name, value) for name, value in kept if not name.lower().startswith("content-"))
    if ours.http_status == 200:
        if status == 403 and "www-authenticate" not in names:
            # denialFormat: jsonrpc200 applies to denials of external services too.
            return McpAnswer(http_status=200, headers=(*bare, *ours.headers), body=ours.body)
        return McpAnswer(http_status=status, headers=kept if declined.body else bare, body=declined.body)
    if declined.body:
        return McpAnswer(http_status=status, headers=kept, body=declined.body)
    return McpAnswer(http_status=status, headers=(*bare, *ours.headers), body=ours.body)


def _without_body(answer: McpAnswer) -> McpAnswer:
    """Remove what a gRPC server cannot send: its answer has no body and its own content type."""
    kept = tuple((name, value) for name, value in answer.headers if not name.lower().startswith("content-"))
    return McpAnswer(http_status=answer.http_status, headers=kept)


def _message(result: NotPassed) -> str:
    """Tell a client of a gRPC server why its call is denied, in the words of the other denials."""
    if result.retry_after:
        return too_many_message(result.retry_after)
    if result.scopes:
        return scope_message(result.scopes)
    if result.wants_token:
        return (result.token_fault if result.bad_token else "") or AUTHENTICATION_REQUIRED
    return result.message or ACCESS_DENIED


def _denied(answer: McpAnswer, result: NotPassed, decision: str, message: str = "") -> Deny:
    rule = " ".join(part for part in (result.policy, result.rule, result.entry, result.reason) if part)
    kind = RpcDenial if answer.http_status == 200 else Deny
    return kind(
        http_status=answer.http_status,
        body=answer.body,
        headers=answer.headers,
        message=message,
        rule=rule,
        identity=result.identity,
        decision_id=decision if answer.body or message else "",
    )
