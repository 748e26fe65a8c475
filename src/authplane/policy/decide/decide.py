"""Decides a request by all policies of its target, in order, until one denies."""

from collections.abc import Generator, Sequence
from datetime import datetime
from typing import Final, assert_never

from authplane.cel.evaluate.evaluation import evaluate
from authplane.core.header_edits import HeaderEdits
from authplane.policy.attached.attachments import Attachment, Policies, PolicyChain, RequestTarget
from authplane.policy.check.answer_headers import may_send
from authplane.policy.check.decision import Allow, Decision, Deny, Unavailable
from authplane.policy.check.request import Request
from authplane.policy.decide.denials import build_denial, build_refusal
from authplane.policy.decide.evaluate_rules import judge, screen
from authplane.policy.decide.request_case import Case, Means
from authplane.policy.decide.step_up import with_all_scopes
from authplane.policy.identity.evidence import Evidence, evidence_for_shadows
from authplane.policy.identity.tokens.token_outcome import Verified
from authplane.policy.identity.workload_identity.identity_headers import headers_to_strip
from authplane.policy.mcp.mcp_calls import TOOLS_CALL, MethodCall, ToolCall, method_of
from authplane.policy.mcp.mcp_refusal import Fault, McpRefusal, refuse
from authplane.policy.rules.access_settings import Composition
from authplane.policy.rules.policy_targets import BACKENDS
from authplane.policy.rules.rule_model import AnyPolicy, Policy, Screen, Unusable
from authplane.policy.verdicts.allowed_memory import Proof, Question
from authplane.policy.verdicts.effects import Effect, Outcome
from authplane.policy.verdicts.verdict import Grounds, NotPassed, Passed, Result, Shadowed, Verdict, VerdictFlow, Would

MEANS: Final = Means(evaluate=evaluate)
EXPLAINING: Final = Means(evaluate=evaluate, explain=True)

UNPROTECTED: Final = "Access denied. No policy protects this server."
"""The message to clients of a Backend that no policy protects."""

_UPGRADES: Final = ("upgrade", ":protocol", "http2-settings")
_JUDGED: Final = frozenset(
    {
        "accept", "content-encoding", "content-type", "http2-settings", "last-event-id", "mcp-method", "mcp-name",
        "mcp-protocol-version", "mcp-session-id", "origin", "x-http-method", "x-http-method-override",
        "x-method-override",
    }
)  # fmt: skip
"""The headers that policies read. An external service that grants a request must not change them."""


def decide(  # noqa: PLR0913 (a decision has as many parts)
    policies: Policies,
    target: RequestTarget,
    request: Request,
    evidence: Evidence,
    now: datetime,
    *,
    means: Means = MEANS,
) -> Verdict | VerdictFlow:
    """Decide a request to a target: at once, or in a flow if an external service must be called.

    A request that some policy does not grant is denied. If there is no decision the outcome is unavailable, which never
    allows the request.
    """
    chain = None if policies.closed else policies.chain(target)
    if chain is None:
        why = policies.closed or "the target of the request is not known"
        return Verdict(Unavailable(cause=why), Grounds(reason=why))
    case = Case(policies.settings, chain, request, evidence, now, means)
    question = None if means.explain else _question(chain, case)
    known = None if question is None else chain.memory.recall(question)
    if known is not None:
        return known if not chain.shadows else _with_shadows(known, chain, case)
    flow = _decide(chain, case)
    try:
        effect = next(flow)
    except StopIteration as finished:
        verdict: Verdict = finished.value
        if question is not None:
            chain.memory.keep(question, verdict)
        return verdict if not chain.shadows else _with_shadows(verdict, chain, case)
    return _continue(flow, effect, chain, case)


def _question(chain: PolicyChain, case: Case) -> Question | None:
    """Return the key of a remembered decision; None if the decision depends on more than the key."""
    proof = chain.proof
    if proof is None or case.request.odd_names:
        return None
    who: tuple[str, ...] = ()
    verified = None
    if proof is Proof.CERTIFICATE:
        who = case.evidence.spiffe_ids()
    elif proof is Proof.TOKEN:
        token = case.evidence.token()
        if not isinstance(token, Verified):
            return None
        verified = token
    call = case.call()
    if isinstance(call, ToolCall):
        key = (who, id(verified), "", call.name)
    elif isinstance(call, MethodCall):
        key = (who, id(verified), call.version, call.method)
    else:
        return None
    # What `Question(...)` does, in half the time.
    return _new_tuple(Question, (key, verified))


_new_tuple: Final = tuple.__new__


def _continue(flow: VerdictFlow, effect: Effect, chain: PolicyChain, case: Case) -> VerdictFlow:
    """Continue a flow that has yielded its first effect."""
    try:
        while True:
            outcome = yield effect
            effect = flow.send(outcome)
    except StopIteration as finished:
        verdict: Verdict = finished.value
        return verdict if not chain.shadows else _with_shadows(verdict, chain, case)
    finally:
        flow.close()


def _with_shadows(verdict: Verdict, chain: PolicyChain, case: Case) -> Verdict:
    """Add to a verdict what policies in shadow mode would decide; the rest of it does not change."""
    evidence = evidence_for_shadows(case.evidence)
    return verdict._replace(shadows=tuple(_shadowed(each, case, evidence) for each in chain.shadows))


def _shadowed(chain: PolicyChain, case: Case, evidence: Evidence) -> Shadowed:
    """Decide by one policy in shadow mode, without calling any service."""
    [attachment] = chain.attachments
    [policy] = attachment.policies
    case.turn_to(chain, evidence)
    flow = _decide(chain, case)
    try:
        next(flow)
    except StopIteration as finished:
        verdict: Verdict = finished.value
        _, rule, entry, identity, _, _, reason, _ = verdict.grounds
        rules = tuple(rule for each in verdict.trace.policies for rule in each.rules) if verdict.trace else ()
        would = _would(verdict.decision)
    except Exception as error:  # noqa: BLE001 (the request is decided; a bug in shadow mode must not change that)
        rule = entry = identity = ""
        would, reason, rules = Would.UNKNOWN, f"failed:{type(error).__name__}", ()
    else:
        rule = entry = identity = ""
        would, reason, rules = Would.UNKNOWN, "external:not_asked", ()
    finally:
        flow.close()
    return Shadowed(str(policy.ref), str(attachment.aim), would, rule, entry, identity, reason, rules)


def _would(decision: Decision) -> Would:
    match decision:
        case Allow():
            return Would.ALLOW
        case Unavailable() | Deny(http_status=429):
            # Shadow mode calls no service. 429 means that the token was not verified.
            return Would.UNKNOWN
        case Deny():
            return Would.DENY
        case _:
            assert_never(decision)


def _decide(chain: PolicyChain, case: Case) -> VerdictFlow:
    if not chain.guarded:
        return _unprotected(chain, case)
    if chain.is_mcp and not chain.reads_mcp and any(case.request.values(name) for name in _UPGRADES):
        # A proxy does not buffer the body of an upgrade, so no policy could read it.
        return _refused(refuse(Fault.UPGRADE), "", case)
    passes: list[Passed] = []
    for attachment in chain.attachments:
        result = yield from _ask_attachment(attachment, case, passes)
        if result is not None:
            return _denied(with_all_scopes(result, case) if result.scopes else result, case)
    call = case.call() if chain.reads_mcp else None
    if isinstance(call, McpRefusal):
        # A sender that may do everything must still send an unambiguous message: the server may read another one.
        return _refused(call, passes[-1].policy, case)
    return _allowed(passes, case)


def _ask_attachment(
    attachment: Attachment, case: Case, passes: list[Passed]
) -> Generator[Effect, Outcome, NotPassed | None]:
    """Evaluate the policies of one target; None means that they grant the request."""
    any_ = case.settings.composition is Composition.ANY
    failed: list[NotPassed] = []
    for policy in attachment.policies:
        begun = _begin(policy, case)
        result = begun if isinstance(begun, Passed | NotPassed) else (yield from begun)
        if case.tracer is not None:
            passed = isinstance(result, Passed)
            case.tracer.policy(str(policy.ref), str(attachment.aim), passed=passed, reason=result.reason)
        choice = any_ and isinstance(policy, Policy)
        if isinstance(result, Passed):
            passes.append(result)
            if choice:
                # The policies that must all grant come before those of which one suffices.
                return None
        elif choice:
            failed.append(result)
        else:
            return result
    return max(failed, key=_weight) if failed else None


def _begin(policy: AnyPolicy, case: Case) -> Result | Generator[Effect, Outcome, Result]:
    match policy:
        case Policy():
            return judge(policy, case)
        case Screen():
            return screen(policy, case)
        case Unusable(ref=ref, reason=reason):
            return NotPassed(policy=str(ref), reason=f"policy_unusable:{reason}")


def _weight(result: NotPassed) -> tuple[bool, bool, bool, bool]:
    """Rank denials by how much they help: first those that may still be granted, then those the client can fix."""
    return bool(result.unavailable), bool(result.scopes), result.recognised, result.wants_token


def _unprotected(chain: PolicyChain, case: Case) -> Verdict:
    """Decide where no policy applies: a Backend denies unless the settings open it, a Service allows."""
    if case.settings.allow_unprotected or chain.attachments[-1].aim.ref.kind not in BACKENDS:
        return _verdict(Allow(edits=_strip((), tokens=False)), Passed(reason="unprotected"), case)
    result = NotPassed(policy="", reason="unprotected", message=UNPROTECTED)
    return _verdict(build_denial(result, case, chain.attachments), result, case)


def _denied(result: NotPassed, case: Case) -> Verdict:
    return _verdict(build_denial(result, case, case.chain.attachments), result, case)


def _refused(refusal: McpRefusal, policy: str, case: Case) -> Verdict:
    return _verdict(
        build_refusal(refusal, policy, case.request), NotPassed(policy=policy, reason=f"mcp:{refusal.fault}"), case
    )


def _allowed(passes: Sequence[Passed], case: Case) -> Verdict:
    # A policy that does not select the request has no entry, and explains nothing.
    telling = passes[-1]
    if not telling.entry:
        telling = next((each for each in reversed(passes) if each.entry), telling)
    identity = telling.identity or next((each.identity for each in reversed(passes) if each.identity), "")
    edits = _edits(passes, case.request, tokens=case.chain.uses_tokens)
    added = tuple(pair for each in passes for pair in each.response_headers if may_send(*pair))
    return _verdict(Allow(edits=edits, response_headers=added, identity=identity), telling, case, identity)


def _verdict(decision: Decision, result: Result, case: Case, identity: str = "") -> Verdict:
    call = case.seen_call()
    method = tool = ""
    if isinstance(call, ToolCall):
        method, tool = TOOLS_CALL, call.name
    elif call is not None and not isinstance(call, McpRefusal):
        method = method_of(call)
    grounds = Grounds(
        result.policy,
        result.rule,
        result.entry,
        identity or result.identity,
        method,
        tool,
        result.reason,
        tuple(case.failures),
    )
    return Verdict(decision, grounds, None if case.tracer is None else case.tracer.trace())


def _edits(passes: Sequence[Passed], request: Request, *, tokens: bool) -> HeaderEdits:
    """Return the edits of all grants, and remove headers that only authplane may set or read.

    The client's token is removed, unless an external service replaced it.
    """
    odd = request.odd_names
    if not any(each.edits.set or each.edits.remove for each in passes):
        return _strip(odd, tokens=tokens)
    wanted: dict[str, str] = {}
    removed: set[str] = set()
    for each in passes:
        for name in each.edits.remove:
            # A later service has seen the edits of the earlier ones.
            wanted.pop(name.lower(), None)
            removed.add(name.lower())
        for name, value in each.edits.set:
            if _may_edit(name, value):
                wanted[name.lower()] = value
            else:
                # Remove the client's value as well: the service meant to replace it.
                wanted.pop(name.lower(), None)
                removed.add(name.lower())
    strip = _strip(odd, tokens=tokens).remove
    kept = {name for name in strip if name != "authorization"}
    settled = {name: value for name, value in wanted.items() if name not in kept}
    gone = {name for name in removed if _may_edit(name, "")} | set(strip)
    return HeaderEdits(set=tuple(sorted(settled.items())), remove=tuple(sorted(gone - settled.keys())))


def _may_edit(name: str, value: str) -> bool:
    """Reject edits of message framing, of headers that policies read, and of invalid headers."""
    return may_send(name, value) and name.lower().replace("_", "-") not in _JUDGED


def _strip(odd: tuple[str, ...], *, tokens: bool) -> HeaderEdits:
    # Clients choose odd names, so they are not cached; most requests have none.
    return _stripping(odd, tokens=tokens) if odd else _USUAL[tokens]


def _stripping(odd: tuple[str, ...], *, tokens: bool) -> HeaderEdits:
    names = headers_to_strip(odd)
    return HeaderEdits(remove=tuple(sorted({*names, "authorization"})) if tokens else names)


_USUAL: Final = {tokens: _stripping((), tokens=tokens) for tokens in (False, True)}
