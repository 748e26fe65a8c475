"""Explains which part decides the requests to each target, and which settings change that."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from authplane.controlplane.serving.generation import Generation
from authplane.core.envoy_releases import CURRENT, Release, known_release
from authplane.core.names import Ref
from authplane.core.values import dataclass
from authplane.policy.attached.attachments import Attachment, Policies, PolicyChain, RequestTarget
from authplane.policy.placement.placement_model import CallOut, Decider, PlacedPolicy, Plan
from authplane.policy.placement.source_placement import SKEW, TWO_NAMES
from authplane.policy.placement.target_routes import UNTOLD, TargetRoute, TargetRoutes
from authplane.policy.rules.access_settings import Placement
from authplane.policy.rules.policy_targets import BACKENDS, PolicyTarget
from authplane.policy.rules.rule_model import Policy, Screen, Unusable
from authplane.policy.rules.target_choices import PLACEMENT

UNREACHED: Final = "no served route reaches this target"
EVALUATED: Final = "evaluated, not enforced (mode: Shadow)"
TOO_OLD: Final = "not evaluated: if the target has no enforced policy, this needs Envoy 1.38 or later (mode: Shadow)"
OPEN_SERVER: Final = "not evaluated: a gRPC server without an enforced policy sends no checks (mode: Shadow)"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedEntry:
    """One entry of a rule."""

    rule: str
    """Empty if the entry applies to every identity and belongs to no rule."""
    entry: str
    reason: str = ""
    """Why the policy server decides; empty if Envoy does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedPolicy:
    """One policy of a target."""

    ref: Ref
    entries: tuple[ExplainedEntry, ...]
    note: str = ""
    """A remark about the whole policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """One target, with the Gateway that requests come through."""

    gateway: str
    """The Gateway and listener; empty if no route reaches the target, or if it is a gRPC server."""
    backend: str
    """The Backend; empty if the route forwards to a Service."""
    decider: Decider
    placement: Placement
    policies: tuple[ExplainedPolicy, ...]
    note: str
    advice: tuple[str, ...]
    """Changes that make more rules native."""


def explain(generation: Generation, envoy: Release = CURRENT) -> tuple[Explained, ...]:
    """Explain every target for a release of Envoy, assuming that the keys of all issuers are available."""
    policies = generation.compiled.policies
    passages = generation.passages(known_release(envoy))
    reached = list(passages)
    others = _others(reached, policies, passages)
    return (
        *(_explained(each, policies, passages) for each in reached),
        *(_explained(each, policies, passages, reached=False) for each in others),
    )


def _others(reached: Iterable[TargetRoute], policies: Policies, passages: TargetRoutes) -> Iterator[TargetRoute]:
    """Yield targets without checks: no route reaches them, or no policy protects them."""
    seen = {ref for each in reached for ref in (each.target.backend, each.target.gateway)}
    for aim, attachment in sorted(policies.attachments.items(), key=lambda each: each[0]):
        if not aim.section and aim.ref not in seen and (aim.ref.kind in BACKENDS or attachment.policies):
            yield from passages.past(PolicyTarget(aim.ref))


def _explained(passage: TargetRoute, policies: Policies, passages: TargetRoutes, *, reached: bool = True) -> Explained:
    target, chain, plan = passage.target, passage.chain, passage.plan
    return Explained(
        gateway=_place(target),
        backend="" if target.backend is None else str(target.backend),
        decider=_decider(passage, policies),
        placement=chain.placement,
        policies=(*(_policy(each, chain) for each in _policies(plan)), *_shadows(passage, passages)),
        note=_note(passage, policies, reached=reached),
        advice=() if policies.closed else tuple(_advice(passage, passages)),
    )


def _place(target: RequestTarget) -> str:
    if target.gateway is None:
        return ""
    return f"{target.gateway}/{target.section}" if target.section else str(target.gateway)


def _decider(passage: TargetRoute, policies: Policies) -> Decider:
    denied = passage.target.backend is not None and not policies.settings.allow_unprotected
    if policies.closed or (passage.plan.decider is Decider.NOBODY and denied):
        return Decider.SERVER
    return passage.plan.decider


def _note(passage: TargetRoute, policies: Policies, *, reached: bool) -> str:
    if policies.closed:
        return f"authplane denies all requests: {policies.closed}"
    if passage.plan.decider is Decider.NOBODY:
        closed = passage.target.backend is not None and not policies.settings.allow_unprotected
        effect = "denied (unprotectedBackends: Deny)" if closed else "allowed"
        return f"no policy protects this target: all requests are {effect}"
    return "" if reached else UNREACHED


def _policy(placed: PlacedPolicy, chain: PolicyChain) -> ExplainedPolicy:
    return ExplainedPolicy(
        ref=placed.ref,
        entries=tuple(
            ExplainedEntry(
                rule=each.rule, entry=each.entry, reason=each.place.reason if isinstance(each.place, CallOut) else ""
            )
            for each in placed.entries
        ),
        note=_policy_note(placed, chain),
    )


def _shadows(passage: TargetRoute, passages: TargetRoutes) -> Iterator[ExplainedPolicy]:
    note = _shadow_note(passage, passages)
    for shadow in passage.chain.shadows:
        for attachment in shadow.attachments:
            for policy in attachment.policies:
                yield ExplainedPolicy(ref=policy.ref, entries=(), note=note)


def _shadow_note(passage: TargetRoute, passages: TargetRoutes) -> str:
    if passages.evaluates_shadows(passage):
        return EVALUATED
    return TOO_OLD if passage.chain.attachments[-1].mcp else OPEN_SERVER


def _policy_note(placed: PlacedPolicy, chain: PolicyChain) -> str:
    known = next(each for attachment in chain.attachments for each in attachment.policies if each.ref == placed.ref)
    match known:
        case Unusable(message=message):
            return f"denies all requests: {message}"
        case Screen():
            return ""
        case Policy():
            return "" if placed.entries else "grants nothing"


# --- Advice

_FOR_REASONS: Final = {
    TWO_NAMES: "write issuerUrl with https:// in the policy",
    SKEW: "set the issuer's clockSkew in AuthplaneConfiguration to whole seconds, at least 2s",
    UNTOLD: "use Envoy 1.39 or later",
}


def _advice(passage: TargetRoute, passages: TargetRoutes) -> Iterator[str]:
    if _helps(passage, passages):
        strict = [attachment for attachment in passage.chain.attachments if attachment.placement is Placement.CALL_OUT]
        yield _less_strict(f"{PLACEMENT}: {Placement.AUTO}", strict, passage)
    asked = [each.place for placed in _policies(passage.plan) for each in placed.asked]
    reasons = dict.fromkeys(each.reason for each in asked if isinstance(each, CallOut))
    yield from dict.fromkeys(_FOR_REASONS[each] for each in reasons if each in _FOR_REASONS)


def _helps(passage: TargetRoute, passages: TargetRoutes) -> bool:
    """Tell whether Envoy would decide more if it were allowed to."""
    return _natives(passages.plan(passage.target, _changed(passage.chain))) > _natives(passage.plan)


def _changed(chain: PolicyChain) -> PolicyChain:
    return replace(chain, placement=Placement.AUTO, shadows=tuple(map(_changed, chain.shadows)))


def _natives(plan: Plan) -> int:
    return sum(len(placed.native) for placed in _policies(plan))


def _policies(plan: Plan) -> Iterator[PlacedPolicy]:
    for attachment in plan.attachments:
        yield from attachment.policies


def _less_strict(wanted: str, strict: Sequence[Attachment], passage: TargetRoute) -> str:
    """Describe where to set something; it replaces stricter settings."""
    where = " and ".join(str(attachment.aim.ref) for attachment in strict)
    return f"set {wanted} on {where or passage.target.backend or passage.target.gateway}"


# --- For programs


def explanation_record(found: Iterable[Explained], envoy: Release) -> dict[str, Any]:
    """Return what ``authplane explain -o json`` prints."""
    targets = list(found)
    return {
        "envoy": str(envoy),
        "targets": [_target_record(each) for each in targets],
    }


def _target_record(found: Explained) -> dict[str, Any]:
    return {
        "gateway": found.gateway,
        "backend": found.backend,
        "decider": found.decider.value,
        "placement": found.placement.value,
        "note": found.note,
        "policies": [
            {
                "policy": str(policy.ref),
                "note": policy.note,
                "entries": [
                    {
                        "rule": entry.rule,
                        "entry": entry.entry,
                        "place": "call-out" if entry.reason else "native",
                        "reason": entry.reason,
                    }
                    for entry in policy.entries
                ],
            }
            for policy in found.policies
        ],
        "advice": list(found.advice),
    }
