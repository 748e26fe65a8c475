"""Evaluates one policy for a request."""

from collections.abc import Generator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from authplane.policy.decide.best_reason import CEL_ERROR, CEL_FALSE, GRANTS_NOTHING, MCP, Weight, weight_of
from authplane.policy.decide.match_rules import (
    AMBIGUOUS,
    RANKS,
    UNKNOWN,
    Miss,
    match_source,
    missed_workload,
    obstacle,
    token_identity,
    traced_obstacle,
)
from authplane.policy.decide.request_case import Case, Identity
from authplane.policy.decide.source_hints import source_hint
from authplane.policy.decide.token_faults import token_fault
from authplane.policy.identity.tokens.token_outcome import Refused, Verified
from authplane.policy.mcp.base_methods import BaseMode, is_base
from authplane.policy.mcp.mcp_calls import McpCall, ToolCall, method_of
from authplane.policy.mcp.mcp_refusal import McpRefusal
from authplane.policy.rules.external_service import Missing
from authplane.policy.rules.rule_model import (
    Account,
    AnySource,
    Asked,
    Expression,
    Oidc,
    Policy,
    Rule,
    Screen,
    Spiffe,
    issuers_of,
)
from authplane.policy.verdicts.effects import Ask, Declined, Effect, Granted, Outcome
from authplane.policy.verdicts.verdict import NotPassed, Passed, Result

BASE: Final = "base_protocol"
JWT_METADATA: Final = "envoy.filters.http.jwt_authn"
MCP_METADATA: Final = "envoy.filters.http.mcp"
_FEW: Final = 2
_PROVED_BY_TOKEN: Final = frozenset({Miss.SCOPE, Miss.AUDIENCE, Miss.OTHER_ISSUER})
"""The token is valid, and no rule accepts it."""


class _Question(NamedTuple):
    """An external service that may still grant the request."""

    rule: str
    identity: Identity
    entry: str
    asked: Asked


class _Findings:
    """What evaluating a policy found, if nothing grants the request."""

    __slots__ = ("base", "declined", "entry", "identity", "message", "miss", "questions", "reason", "rule", "short_of",
                 "too_large", "unavailable", "weight")  # fmt: skip

    def __init__(self) -> None:
        self.questions: list[_Question] = []
        self.identity: Identity | None = None
        self.rule = self.entry = self.reason = self.message = self.unavailable = ""
        self.weight: Weight | None = None
        self.miss: Miss | None = None
        self.base: Passed | None = None
        self.short_of: list[Rule] = []
        self.declined: Declined | None = None
        self.too_large = False

    def missed(self, miss: Miss, rule: Rule | None = None) -> None:
        if self.miss is None or RANKS[miss] > RANKS[self.miss]:
            self.miss = miss
        if miss in UNKNOWN:
            self.unavailable = miss.value
        elif miss is Miss.SCOPE and rule is not None:
            self.short_of.append(rule)

    def refused(self, rule: str, entry: str, reason: str, message: str = "") -> None:
        """Keep why an entry does not grant the request, unless what is known already explains a denial better.

        Of several that explain it equally well the last counts; of those with a message, the first.
        """
        weight = weight_of(reason, message)
        if self.weight is not None and (weight < self.weight or (weight is self.weight and self.message)):
            return
        self.rule, self.entry, self.reason, self.weight = rule, entry, reason, weight
        self.message = self.message or message


def judge(policy: Policy, case: Case) -> Result | Generator[Effect, Outcome, Result]:
    """Evaluate a policy: at once, or in a flow if external services must be called."""
    found = _Findings()
    for rule in _candidates(policy, case, found):
        identity = match_source(rule.source, case)
        if case.tracer is not None:
            _trace_source(rule, identity, case)
        if isinstance(identity, Miss):
            found.missed(identity, rule)
            continue
        passed = _try_rule(policy, rule, identity, case, found)
        if passed is not None:
            return passed
    base = _base(policy, case, found)
    if base is not None:
        return base
    if found.questions and _may_ask(case, found):
        return _ask(policy, case, found)
    return _not_passed(policy, case, found)


def _candidates(policy: Policy, case: Case, found: _Findings) -> Sequence[Rule]:
    """Skip the rules for other workloads: with many rules, trying each would take most of the time."""
    if case.tracer is not None or len(policy.rules) <= _FEW or not policy.by_id:
        return policy.rules
    ids = case.evidence.spiffe_ids()
    chosen = {*policy.others, *(index for each in ids for index in policy.by_id.get(each, ()))}
    if len(chosen) < len(policy.rules):
        found.missed(missed_workload(policy.issuers, case))
    return [policy.rules[index] for index in sorted(chosen)]


def _try_rule(policy: Policy, rule: Rule, identity: Identity, case: Case, found: _Findings) -> Passed | None:
    """Try the entries that need no external service; note the others."""
    if not isinstance(rule.source, AnySource):
        found.identity = identity
    if rule.base and found.base is None:
        found.base = Passed(policy.name, rule.name, BASE, identity.name, BASE)
    for words, entry in rule.cheap:
        if case.tracer is None:
            why = obstacle(entry, case, identity)
        else:
            why = traced_obstacle(rule.name, words, entry, case, identity)
        if not why:
            return Passed(policy.name, rule.name, words, identity.name)
        message = ""
        if isinstance(entry, Expression):
            if why.startswith(CEL_ERROR):
                case.failures.append(f"{policy.name} {rule.name} {words} {why.removeprefix(CEL_ERROR)}")
            elif why == CEL_FALSE:
                message = entry.message
        found.refused(rule.name, words, why, message)
    if not rule.entries:
        found.refused(rule.name, "", GRANTS_NOTHING)
    found.questions += [_Question(rule.name, identity, words, asked) for words, asked in rule.asked]
    return None


def _base(policy: Policy, case: Case, found: _Findings) -> Passed | None:
    """Return the grant of the base protocol, if the request belongs to it and it is granted."""
    match policy.base:
        case BaseMode.EXPLICIT:
            return None
        case BaseMode.ANY_SOURCE:
            # An external service for all senders decides about the base protocol too.
            asked = any(isinstance(rule.source, AnySource) and rule.asked for rule in policy.rules)
            granted = None if asked else Passed(str(policy.ref), "", BASE, reason=BASE)
        case BaseMode.MATCHED_SOURCE:
            granted = found.base
    return granted if granted is not None and _is_base(case) else None


def _is_base(case: Case) -> bool:
    call = case.call()
    return call is not None and not isinstance(call, McpRefusal) and is_base(call)


def _may_ask(case: Case, found: _Findings) -> bool:
    """Tell whether external services are called: an ambiguous message is denied anyway."""
    call = case.call() if case.strict else None
    if isinstance(call, McpRefusal):
        found.refused("", "", f"{MCP}{call.fault}")
    return not isinstance(call, McpRefusal)


def _ask(policy: Policy, case: Case, found: _Findings) -> Generator[Effect, Outcome, Result]:
    """Call the external services one after the other until one of them grants."""
    for rule, identity, entry, asked in found.questions:
        outcome = yield from _outcome(asked, identity, case, found)
        if isinstance(outcome, Granted):
            if case.tracer is not None:
                case.tracer.entry(rule, entry)
            said = (outcome.edits, outcome.response_headers)
            return Passed(str(policy.ref), rule, entry, identity.name, "granted", *said)
        found.refused(rule, entry, outcome)
        if case.tracer is not None:
            case.tracer.entry(rule, entry, reason=outcome)
    return _not_passed(policy, case, found)


def _outcome(
    asked: Asked, identity: Identity, case: Case, found: _Findings
) -> Generator[Effect, Outcome, Granted | str]:
    """Call one service; a text says why it does not grant."""
    service = asked.destination
    if isinstance(service, Missing):
        found.unavailable = f"external:{service.reason}"
        return found.unavailable
    if service.most_body and (len(case.request.body) > service.most_body or not case.complete()):
        found.too_large = True
        return "external:body_too_large"
    outcome = yield Ask(
        service=service, request=case.request, deadline=case.ask_until(), metadata=_metadata(identity, case)
    )
    match outcome:
        case Granted():
            return outcome
        case Declined():
            found.declined = outcome
            return "external:denied"
        case _:
            # Any other outcome, such as a truth value, is not an answer of the service.
            found.unavailable = "external:no_answer"
            return found.unavailable


def _metadata(identity: Identity, case: Case) -> Mapping[str, Mapping[str, Any]]:
    """Return the metadata that Envoy's filters would send to the service: the claims, and what is called."""
    found: dict[str, Mapping[str, Any]] = {}
    if isinstance(identity.members, Verified):
        found[JWT_METADATA] = {identity.members.issuer: identity.members.plain_claims()}
    call = case.call()
    if call is not None and not isinstance(call, McpRefusal):
        found[MCP_METADATA] = _called(call)
    return found


def _called(call: McpCall) -> Mapping[str, Any]:
    method = method_of(call)
    if isinstance(call, ToolCall):
        return {"method": method, "params": {"name": call.name}}
    return {"method": method} if method else {}


def screen(policy: Screen, case: Case) -> Result | Generator[Effect, Outcome, Result]:
    """Evaluate a policy that calls an external service for the requests that its rules select."""
    if policy.rules and not any(_selects(policy, rule, case) for rule in policy.rules):
        return Passed(str(policy.ref), reason="not_selected")
    found = _Findings()
    if not _may_ask(case, found):
        return NotPassed(policy=str(policy.ref), reason=found.reason)
    return _ask_screen(policy, case, found)


def _selects(policy: Screen, rule: Rule, case: Case) -> bool:
    """Tell whether a rule selects a request; an unclear one is selected, since that only adds a check."""
    identity = match_source(rule.source, case)
    if case.tracer is not None:
        _trace_source(rule, identity, case)
    if isinstance(identity, Miss):
        return identity in {Miss.BAD_TOKEN, Miss.BAD_WORKLOAD} | UNKNOWN
    for words, entry in rule.cheap:
        why = obstacle(entry, case, identity)
        if why.startswith(CEL_ERROR):
            case.failures.append(f"{policy.ref} {rule.name} {words} {why.removeprefix(CEL_ERROR)}")
        if not why or why.startswith((AMBIGUOUS, CEL_ERROR, MCP)):
            return True
    return not rule.entries


def _ask_screen(policy: Screen, case: Case, found: _Findings) -> Generator[Effect, Outcome, Result]:
    asked = Asked(policy.destination)
    outcome = yield from _outcome(asked, Identity("", {}), case, found)
    if isinstance(outcome, Granted):
        return Passed(
            str(policy.ref), entry="ExternalAuth", edits=outcome.edits, response_headers=outcome.response_headers
        )
    return NotPassed(
        policy=str(policy.ref),
        entry="ExternalAuth",
        reason=outcome,
        unavailable=found.unavailable,
        declined=found.declined,
        too_large=found.too_large,
    )


def _not_passed(policy: Policy, case: Case, found: _Findings) -> NotPassed:
    recognised = found.identity is not None or found.miss is Miss.SCOPE
    wants_token = not recognised and any(issuers_of(rule.source) for rule in policy.rules)
    scopes = _missing_scopes(case, found)
    rule, entry, reason = _explained(found, case, wants_token=wants_token, scopes=scopes)
    return NotPassed(
        policy=str(policy.ref),
        rule=rule,
        entry=entry,
        identity=_name(policy, found, case),
        recognised=recognised,
        reason=reason,
        unavailable=found.unavailable,
        retry_after=_retry_after(case, found),
        wants_token=wants_token,
        token_fault=_token_fault(found, policy, case) if wants_token else "",
        bad_token=found.miss in {Miss.BAD_TOKEN, Miss.BAD_WORKLOAD, Miss.OTHER_ISSUER, Miss.AUDIENCE},
        scopes=scopes,
        message=found.message,
        declined=found.declined,
        too_large=found.too_large,
    )


def _explained(found: _Findings, case: Case, *, wants_token: bool, scopes: tuple[str, ...]) -> tuple[str, str, str]:
    """Return the rule, the entry and the reason that explain a denial best; see `best_reason`."""
    if found.unavailable and found.reason != found.unavailable:
        return "", "", found.unavailable
    if scopes:
        return "", "", Miss.SCOPE.value
    unknown = found.identity is None and (found.weight is None or found.weight < Weight.SENDER)
    if found.miss is not None and (wants_token or unknown):
        return "", "", _missed(found.miss, case)
    return found.rule, found.entry, found.reason or GRANTS_NOTHING


def _retry_after(case: Case, found: _Findings) -> int:
    """Return in how many seconds the token may be verified, if that alone prevents a decision."""
    token = case.evidence.token() if found.unavailable == Miss.NOT_VERIFIED else None
    return token.retry_after if isinstance(token, Refused) else 0


def _name(policy: Policy, found: _Findings, case: Case) -> str:
    """Return who sends the request: as a rule sees it, or as a proof says that no rule accepts."""
    if found.identity is not None:
        return found.identity.name
    token = case.evidence.token() if found.miss in _PROVED_BY_TOKEN else None
    if isinstance(token, Verified):
        return token_identity(token).name
    # Only where rules name workloads: elsewhere nothing has read the certificate.
    if not any(isinstance(rule.source, Spiffe | Account) for rule in policy.rules):
        return ""
    account = case.evidence.account()
    return next(iter(case.evidence.spiffe_ids()), "") or (f"ServiceAccount {account}" if account is not None else "")


def _missing_scopes(case: Case, found: _Findings) -> tuple[str, ...]:
    """Return the scopes with which the request would be granted, as far as known without external services."""
    token = case.evidence.token() if found.short_of else None
    if not isinstance(token, Verified):
        return ()
    identity = token_identity(token)
    for rule in found.short_of:
        if (
            rule.asked
            or any(not obstacle(entry, case, identity) for _, entry in rule.cheap)
            or (rule.base and _is_base(case))
        ):
            return rule.source.scopes if isinstance(rule.source, Oidc) else ()
    return ()


def _token_fault(found: _Findings, policy: Policy, case: Case) -> str:
    if found.miss is None:
        return ""
    sources = [rule.source for rule in policy.rules if isinstance(rule.source, Oidc)]
    return token_fault(found.miss, case.evidence.token(), sources)


def _missed(miss: Miss, case: Case) -> str:
    if miss is Miss.BAD_WORKLOAD:
        return f"{miss}:{case.evidence.fault()}"
    if miss is not Miss.BAD_TOKEN:
        return miss.value
    token = case.evidence.token()
    return f"{miss}:{token.reason}" if isinstance(token, Refused) else miss.value


def _trace_source(rule: Rule, identity: Identity | Miss, case: Case) -> None:
    if case.tracer is None:
        return
    if isinstance(identity, Miss):
        case.tracer.rule(
            rule.name,
            rule.source,
            identity=None,
            reason=_missed(identity, case),
            hint=source_hint(rule.source, identity, case.evidence),
        )
    else:
        case.tracer.rule(rule.name, rule.source, identity=identity.name)
