"""Matches a request with a rule: its source, and what the rule grants."""

import re
from enum import StrEnum
from typing import Final, assert_never

from authplane.cel.check.expression_outcome import Holds, HoldsNot
from authplane.cel.explain.explain_expression import explain
from authplane.policy.check.basic import Absent, Unfit
from authplane.policy.check.request import Request
from authplane.policy.decide.best_reason import CEL_ERROR, CEL_FALSE, MCP, NO_MCP, NOT_A_TOOL
from authplane.policy.decide.request_case import NOBODY, Case, Identity
from authplane.policy.explain.tracing import is_secret
from authplane.policy.identity.evidence import Token
from authplane.policy.identity.tokens.check_claims import audience_fits, scopes_fit
from authplane.policy.identity.tokens.token_outcome import Reason, Refused, Verified
from authplane.policy.identity.workload_identity.peer_outcome import Why
from authplane.policy.mcp.base_methods import UPSTREAM_BASE, is_base
from authplane.policy.mcp.header_front import canonical_path
from authplane.policy.mcp.mcp_calls import McpCall, MethodCall, ToolCall, method_of
from authplane.policy.mcp.mcp_refusal import McpRefusal
from authplane.policy.mcp.refusal_remedies import REMEDIES
from authplane.policy.rules.rule_model import (
    Account,
    AllTools,
    AnySource,
    Entry,
    Everything,
    Expression,
    Family,
    Inline,
    McpGrant,
    Method,
    Oidc,
    Source,
    Spiffe,
    Tools,
    reads_mcp,
)


class Miss(StrEnum):
    """Why a source does not match; the later ones say more about the sender."""

    NO_PEER = "no_peer_identity"
    NO_TOKEN = "no_token"  # noqa: S105 (a reason, no password)
    OTHER_PEER = "peer_not_listed"
    BAD_TOKEN = "bad_token"  # noqa: S105 (as above)
    BAD_WORKLOAD = "bad_workload_token"
    """A valid token, or a certificate with it, that does not prove the workload that it should."""
    OTHER_ISSUER = "other_issuer"
    AUDIENCE = "other_audience"
    SCOPE = "scope_missing"
    NOT_READY = "issuer_not_ready"
    """No decision: the keys of the issuer are not loaded."""
    NOT_REVIEWED = "token_not_reviewed"
    """No decision: the cluster did not review the token."""
    NOT_VERIFIED = "too_many_failures"
    """No decision: invalid tokens used up the budget, so this one was not verified."""


RANKS: Final = {miss: rank for rank, miss in enumerate(Miss)}
UNKNOWN: Final = frozenset({Miss.NOT_READY, Miss.NOT_REVIEWED, Miss.NOT_VERIFIED})
"""There is no decision whether the source matches."""

TOOL_NOT_LISTED: Final = "tool_not_listed"
AMBIGUOUS: Final = "ambiguous:"
"""The request can be read in two ways: it does not satisfy a rule that grants, and a rule that selects selects it."""

_PLAIN_HOST: Final = re.compile(r"(?:[a-z0-9_-]+(?:\.[a-z0-9_-]+)*\.?|\[[0-9a-f:.]+\])(?::[0-9]+)?")


def match_source(source: Source, case: Case) -> Identity | Miss:
    """Return the identity of the sender for a rule with this source, or why the source does not match."""
    match source:
        case AnySource():
            return NOBODY
        case Spiffe(ids, issuers):
            for each in case.evidence.spiffe_ids():
                if each in ids:
                    return Identity(each, {"spiffe_id": each})
            return missed_workload(issuers, case)
        case Account():
            return _match_account(source, case)
        case Oidc():
            return _match_token(source, case)


def _match_account(source: Account, case: Case) -> Identity | Miss:
    if source.spiffe_id in case.evidence.spiffe_ids() or case.evidence.account() == source.account:
        account = source.account
        members = {"service_account": account.name, "namespace": account.namespace}
        return Identity(f"ServiceAccount {account}", members)
    return missed_workload(source.issuers, case)


def missed_workload(issuers: frozenset[str], case: Case) -> Miss:
    """Say why neither a certificate nor a token of these issuers proves a workload that the rule names."""
    evidence = case.evidence
    if evidence.spiffe_ids() or evidence.account() is not None:
        return Miss.OTHER_PEER
    fault = evidence.fault()
    if fault is not None:
        return Miss.NOT_REVIEWED if fault is Why.NOT_REVIEWED else Miss.BAD_WORKLOAD
    if not issuers:
        return Miss.NO_PEER
    return _missed_by_token(evidence.token(), issuers)


def _missed_by_token(token: Token, issuers: frozenset[str]) -> Miss:
    match token:
        case Refused(reason=Reason.ISSUER_NOT_READY, issuer=issuer):
            return Miss.NOT_READY if issuer in issuers else Miss.NO_PEER
        case Refused(reason=Reason.TOO_MANY_FAILURES):
            return Miss.NOT_VERIFIED
        case Refused() | Unfit():
            return Miss.BAD_TOKEN
        case Verified() | Absent():
            return Miss.NO_PEER
        case _:
            assert_never(token)


def _match_token(source: Oidc, case: Case) -> Identity | Miss:
    token = case.evidence.token()
    match token:
        case Verified():
            return _match_claims(source, token)
        case Refused(reason=Reason.ISSUER_NOT_READY, issuer=issuer) if issuer == source.issuer.url:
            return Miss.NOT_READY
        case Refused(reason=Reason.TOO_MANY_FAILURES):
            return Miss.NOT_VERIFIED
        case Absent():
            return Miss.NO_TOKEN
        case _:
            return Miss.BAD_TOKEN


def _match_claims(source: Oidc, token: Verified) -> Identity | Miss:
    if token.issuer not in source.names:
        return Miss.OTHER_ISSUER
    if source.audiences and not audience_fits(token.claims, source.audiences):
        return Miss.AUDIENCE
    if source.scopes and not scopes_fit(token.claims, source.scopes):
        return Miss.SCOPE
    return token_identity(token)


def token_identity(token: Verified) -> Identity:
    """Return the identity that a token proves, for expressions and for the log."""
    return Identity(f"{token.issuer}#{token.subject}", token)


def obstacle(entry: Entry, case: Case, identity: Identity) -> str:
    """Say why an entry does not grant the request; empty means that it does. No external service is called here."""
    match entry:
        case Tools() | AllTools():
            call = case.call()
            if isinstance(call, ToolCall):
                return "" if isinstance(entry, AllTools) or call.name in entry.names else TOOL_NOT_LISTED
            return _no_call(call) or NOT_A_TOOL
        case Expression():
            return _cel_obstacle(entry, case, identity)
        case Inline():
            return _inline_obstacle(entry, case)
        case Everything():
            return ""
        case _:
            return "external"


def traced_obstacle(rule: str, words: str, entry: Entry, case: Case, identity: Identity) -> str:
    """Return the same as `obstacle`, and add it to the trace."""
    why = obstacle(entry, case, identity)
    if case.tracer is not None:
        call = case.seen_call()
        refused = call if isinstance(call, McpRefusal) and why == _no_call(call) else None
        explanation = None
        # The value of an expression for an ambiguous message would mislead.
        if isinstance(entry, Expression) and refused is None:
            explanation = explain(entry.program, case.lookup(identity), secret=is_secret)
        hint = "" if not why else _hint(entry, refused)
        case.tracer.entry(rule, words, reason=why, hint=hint, explanation=explanation)
    return why


def _hint(entry: Entry, refused: McpRefusal | None) -> str:
    if refused is not None:
        return REMEDIES[refused.fault]
    return f"call one of the tools {', '.join(sorted(entry.names))}" if isinstance(entry, Tools) else ""


def _no_call(call: McpCall | McpRefusal | None) -> str:
    if call is None:
        return NO_MCP
    return f"{MCP}{call.fault}" if isinstance(call, McpRefusal) else ""


def _cel_obstacle(entry: Expression, case: Case, identity: Identity) -> str:
    outcome = case.evaluate(entry.program, case.lookup(identity))
    if isinstance(outcome, Holds):
        return ""
    if reads_mcp(entry) and isinstance(case.call(), McpRefusal):
        # The message is ambiguous; the expression is not the reason.
        return _no_call(case.call())
    return CEL_FALSE if isinstance(outcome, HoldsNot) else f"{CEL_ERROR}{outcome.code}"


def _inline_obstacle(entry: Inline, case: Case) -> str:
    request = case.request
    if entry.methods and request.method not in entry.methods:
        return "method_not_listed"
    why = (
        (_port_obstacle(request.destination.port, entry.ports) if entry.ports else "")
        or (_host_obstacle(request.host.lower(), entry.hosts) if entry.hosts else "")
        or (_path_obstacle(request.path, entry.paths) if entry.paths else "")
    )
    for name, value in () if why else entry.headers:
        why = why or _header_obstacle(request, name, value)
    return why or ("" if entry.mcp is None else _mcp_obstacle(entry.mcp, case))


def _port_obstacle(port: int, wanted: frozenset[int]) -> str:
    if not port:
        return f"{AMBIGUOUS}port"
    return "" if port in wanted else "port_not_listed"


def _host_obstacle(host: str, wanted: tuple[str, ...]) -> str:
    if not _PLAIN_HOST.fullmatch(host):
        return f"{AMBIGUOUS}host"
    name, colon, port = host.rpartition(":")
    bare = (name if colon and port.isdecimal() else host).removesuffix(".")
    fits = any(bare == each or (each.startswith("*.") and bare.endswith(each[1:])) for each in wanted)
    return "" if fits else "host_not_listed"


def _path_obstacle(path: str, wanted: tuple[str, ...]) -> str:
    if not canonical_path(path):
        return f"{AMBIGUOUS}path"
    fits = any(path.startswith(each[:-1]) if each.endswith("*") else path == each for each in wanted)
    return "" if fits else "path_not_listed"


def _header_obstacle(request: Request, name: str, value: str) -> str:
    found = request.values(name)
    odd = any(each.replace("_", "-") == name for each in request.odd_names)
    if found and not odd and all(each == value for each in found):
        return ""
    # A server that reads one of several values, or reads an underscore as a hyphen, may read another value.
    parts = {part.strip() for each in found for part in each.split(",")}
    return f"{AMBIGUOUS}header" if odd or value in parts else "header_differs"


def _mcp_obstacle(grant: McpGrant, case: Case) -> str:
    call = case.call()
    if call is None or isinstance(call, McpRefusal):
        return _no_call(call)
    if grant.base and is_base(call, UPSTREAM_BASE):
        return ""
    method = method_of(call)
    for each in grant.methods:
        match each:
            case Family(prefix) if method.startswith(prefix):
                return ""
            case Method(name, subjects) if method == name and (subjects is None or _subject(call) in subjects):
                return ""
            case _:
                continue
    return "mcp_method_not_listed"


def _subject(call: McpCall) -> str:
    match call:
        case ToolCall(name=name):
            return name
        case MethodCall(subject=subject):
            return subject
        case _:
            return ""
