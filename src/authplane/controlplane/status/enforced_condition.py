"""The condition ``Enforced`` of policies: their placement, and the reasons."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from authplane.controlplane.status.access_policy_status import Condition
from authplane.core.names import Ref
from authplane.policy.attached.attachments import Policies
from authplane.policy.compile.compile_policies import PolicyStanding, Standing
from authplane.policy.placement.placement_model import CallOut, Decider, Place, PlacedPolicy
from authplane.policy.placement.target_routes import TargetRoutes
from authplane.policy.rules.policy_targets import PolicyTarget
from authplane.policy.rules.rule_model import Unusable

LONGEST_MESSAGE: Final = 1024
_ROOM: Final = 48
"""Space for saying that there is more."""

_UNASKED: Final = "gRPC servers, and Envoy before 1.38, do not evaluate policies in shadow mode"

_Entry: TypeAlias = tuple[str, str]


def enforced_condition(standing: PolicyStanding, at: Standing, policies: Policies, passages: TargetRoutes) -> Condition:
    """Return the placement of a policy at one of its targets; if it is not accepted, it denies or has no effect."""
    if standing.shadow:
        return _condition("Enforced", False, "Shadow", _shadowed(at, passages))
    if policies.closed:
        return _condition(
            "Enforced", True, "Denies", f"authplane denies every request, because {policies.closed}. Correct it."
        )
    if not at.accepted:
        return _refused(standing.ref, at, policies)
    found = [
        (passage.plan.decider, placed)
        for passage in passages.past(at.aim)
        for attachment in passage.plan.attachments
        for placed in attachment.policies
        if placed.ref == standing.ref
    ]
    deciders = {decider for decider, _ in found}
    where = "decided in the gRPC server" if deciders & {Decider.GRPC, Decider.GRPC_AND_SERVER} else "decided in Envoy"
    return _placed([placed for _, placed in found], where, by_server=deciders <= {Decider.SERVER})


def _shadowed(at: Standing, passages: TargetRoutes) -> str:
    if not at.accepted:
        return "The policy is not enforced."
    found = passages.past(at.aim)
    if found and not any(map(passages.evaluates_shadows, found)):
        return f"The policy is neither enforced nor evaluated: {_UNASKED}."
    return "The policy is evaluated but not enforced."


def _refused(ref: Ref, at: Standing, policies: Policies) -> Condition:
    attachments = (policies.attachments.get(aim) for aim in (at.aim, PolicyTarget(at.aim.ref)))
    denying = (
        each for attachment in attachments if attachment is not None for each in attachment.policies if each.ref == ref
    )
    if any(isinstance(each, Unusable) for each in denying):
        return _condition(
            "Enforced",
            True,
            "Denies",
            "authplane denies every request until the policy is accepted. Correct the policy.",
        )
    return _condition("Enforced", False, "TargetNotFound", "The target does not exist. Add it, or correct targetRefs.")


def _placed(found: Sequence[PlacedPolicy], where: str, *, by_server: bool) -> Condition:
    places: dict[_Entry, list[Place]] = {}
    for placed in found:
        for entry in placed.entries:
            places.setdefault((entry.rule, entry.entry), []).append(entry.place)
    asked = [isinstance(place, CallOut) for each in places.values() for place in each]
    message = bounded(_sentences(places, where)) or "The policy grants nothing, so authplane denies every request."
    if all(asked) and (asked or by_server):
        return _condition("Enforced", True, "CallOut", message)
    if any(asked):
        return _condition("Enforced", True, "Mixed", message)
    return _condition("Enforced", True, "Native", message)


def _sentences(places: Mapping[_Entry, Sequence[Place]], where: str) -> Iterator[str]:
    """Yield a sentence for each rule: entries with the same placement and the same reasons are listed together."""
    alike: dict[tuple[str, str], list[str]] = {}
    for (rule, entry), found in places.items():
        alike.setdefault((rule, _words(found, where)), []).append(entry)
    for (rule, words), entries in alike.items():
        noun = "entry" if len(entries) == 1 else "entries"
        names = ", ".join(entries)
        yield f"rule {rule}, {noun} {names}: {words}" if rule else f"{names}: {words}"


def _words(places: Sequence[Place], where: str) -> str:
    reasons = dict.fromkeys(each.reason for each in places if isinstance(each, CallOut))
    why = " and ".join(f"it {reason}" for reason in reasons)
    native = sum(not isinstance(each, CallOut) for each in places)
    if not reasons:
        return where
    if not native:
        return f"decided by the policy server, because {why}"
    return f"{where} on {native} of {len(places)} routes, otherwise by the policy server, because {why}"


def bounded(parts: Iterable[str]) -> str:
    """Join sentences, as far as a condition has room for them."""
    said, length, left = [], 0, 0
    for part in parts:
        length += len(part) + 2
        if left or length > LONGEST_MESSAGE - _ROOM:
            left += 1
        else:
            said.append(part)
    return "; ".join([*said, *([f"and {left} more: see authplane explain"] if left else [])])


def _condition(kind: str, holds: bool, reason: str, message: str) -> Condition:
    return Condition(type=kind, status=str(holds), reason=reason, message=message[:LONGEST_MESSAGE])
