"""What a gRPC server grants by itself: calls that the policy engine would grant, told without asking it."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final, TypeAlias

from authplane.core.names import Ref
from authplane.core.values import dataclass
from authplane.policy.attached.attachments import Attachment, PolicyChain
from authplane.policy.identity.workload_identity.identity_headers import IDENTITY_HEADERS
from authplane.policy.placement.entry_placement import CHOSEN
from authplane.policy.placement.grpc_entries import Grant, grant_of
from authplane.policy.placement.grpc_reach import Reach, build_reach
from authplane.policy.placement.placement_model import (
    CallOut,
    Decider,
    Native,
    PlacedAttachment,
    PlacedEntry,
    PlacedPolicy,
    Plan,
)
from authplane.policy.placement.placement_plan import SCREENED
from authplane.policy.placement.source_placement import ANYBODY
from authplane.policy.rules.access_settings import Composition, Placement, Settings
from authplane.policy.rules.rule_model import AnyPolicy, Policy, Screen, Source, Unusable, entry_words, issuers_of

MANY: Final = "exceeds the number of rules that a gRPC server gets"
BESIDE: Final = "shares the target with a policy that only the policy server can decide"
SHADOWED: Final = "shares the target with a shadow policy, which the policy server evaluates for every call"
_MOST_TESTS: Final = 5_000
"""Each is some 250 bytes of a Listener, and gRPC takes messages of 4 MiB."""
_LENGTH: Final = 250
"""So many characters of one text count as one test more."""


@dataclass(frozen=True, slots=True)
class ByServer:
    """The server decides by the grant; None grants nothing."""

    grant: Grant | None


CallPlace: TypeAlias = ByServer | CallOut


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEntry:
    """One entry of a rule, and who decides it."""

    rule: str
    entry: str
    """Its place and its type, as in logs."""
    source: Source
    place: CallPlace


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPolicy:
    """One policy; without entries it denies everything, unless it only calls an external service."""

    ref: Ref
    entries: tuple[CallEntry, ...] = ()


Groups: TypeAlias = tuple[tuple[Grant, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grants:
    """The calls that a server grants natively.

    It may judge only calls whose path every server reads in the same way, with none of the headers in ``absent`` in any
    spelling, and with those in ``single`` once at most, and none spelled almost so: the policy engine removes the
    former, and checks the latter for ambiguity. The server calls out for all other calls.
    """

    groups: Groups
    """A call is granted if it has a grant of every group. For some caller no group is empty."""
    absent: tuple[str, ...]
    single: tuple[str, ...]
    asked: Reach
    """The callers that the policy server may still grant calls that the server may judge and does not grant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcPlan:
    """How the policies of a gRPC server are enforced."""

    policies: tuple[CallPolicy, ...]
    reach: Reach
    """The callers that may be granted calls, natively or by the policy server."""
    grants: Grants | None
    """None leaves every caller in reach to the policy server."""


def place_grpc(chain: PolicyChain, settings: Settings) -> GrpcPlan:
    """Return what a gRPC server grants natively, and why not the rest; it has at least one policy.

    The policy engine would grant the same calls, and the handler of a call gets the same headers.
    """
    attachment = chain.attachments[-1]
    obstacle = _obstacle(chain)
    policies = tuple(_policy(policy, obstacle) for policy in attachment.policies)
    grants = None if obstacle else _grants(policies, attachment, settings)
    if grants is not None and _tests(grants) > _MOST_TESTS:
        obstacle, grants = MANY, None
    elif settings.composition is Composition.ALL and not obstacle and any(map(_is_left, policies)):
        obstacle = BESIDE
    if obstacle:
        policies = tuple(_policy(policy, obstacle) for policy in attachment.policies)
    return GrpcPlan(policies=policies, reach=build_reach(attachment, settings.composition), grants=grants)


def plan_in_server(plan: Plan, found: GrpcPlan) -> Plan:
    """Return a plan of the same policies in which the gRPC server takes Envoy's place."""
    [attachment] = plan.attachments or (PlacedAttachment(),)
    policies = tuple(map(_placed, attachment.policies, found.policies))
    if plan.decider is Decider.NOBODY:
        return plan
    asked = any(each.asked or each.required for each in policies)
    decider = Decider.GRPC if not asked else Decider.GRPC_AND_SERVER if found.grants is not None else Decider.SERVER
    return replace(plan, attachments=(replace(attachment, policies=policies),), decider=decider)


def _placed(policy: PlacedPolicy, found: CallPolicy) -> PlacedPolicy:
    if not found.entries:
        return policy
    entries = (_placed_entry(*each) for each in zip(policy.entries, found.entries, strict=True))
    return replace(policy, entries=tuple(entries))


def _placed_entry(entry: PlacedEntry, found: CallEntry) -> PlacedEntry:
    if isinstance(found.place, CallOut):
        return replace(entry, place=found.place)
    return replace(entry, sender=ANYBODY, place=Native(ANYBODY.condition))


def grants_to(workload: str | None, groups: Groups) -> Groups:
    """Return what of each group is for a workload; None is for somebody who is none of those that are named."""
    return tuple(
        tuple(grant for grant in group if grant.ids is None or (workload is not None and workload in grant.ids))
        for group in groups
    )


def _obstacle(chain: PolicyChain) -> str:
    """Say why the server decides nothing, whatever the rules are."""
    attachment = chain.attachments[-1]
    if chain.placement is Placement.CALL_OUT:
        return CHOSEN
    if attachment.shadows:
        return SHADOWED
    return SCREENED if any(isinstance(policy, Screen) for policy in attachment.policies) else ""


def _is_left(policy: CallPolicy) -> bool:
    """Tell whether only the policy server can grant anything by a policy."""
    return bool(policy.entries) and not any(isinstance(each.place, ByServer) for each in policy.entries)


def _policy(policy: AnyPolicy, obstacle: str) -> CallPolicy:
    if not isinstance(policy, Policy):
        return CallPolicy(ref=policy.ref)
    return CallPolicy(ref=policy.ref, entries=tuple(_entries(policy, obstacle)))


def _entries(policy: Policy, obstacle: str) -> Iterator[CallEntry]:
    for rule in policy.rules:
        for index, entry in enumerate(rule.entries):
            found = grant_of(rule.source, entry)
            place: CallPlace = found if isinstance(found, CallOut) else ByServer(found)
            if obstacle and isinstance(place, ByServer):
                place = CallOut(obstacle)
            yield CallEntry(rule=rule.name, entry=entry_words(entry, index), source=rule.source, place=place)


def _grants(policies: tuple[CallPolicy, ...], attachment: Attachment, settings: Settings) -> Grants | None:
    if any(isinstance(policy, Unusable) for policy in attachment.policies):
        return None
    groups = tuple(tuple(_granted(policy)) for policy in policies)
    if settings.composition is Composition.ANY:
        groups = (tuple(grant for group in groups for grant in group),)
    if not any(all(grants_to(each, groups)) for each in (None, *_ids(groups))):
        return None
    # A token may be needed to tell who asks, and goes no further: either is the policy server's to do.
    tokens = attachment.uses_tokens or bool(settings.workloads.authorities)
    names = {name for group in groups for grant in group for name, _ in grant.headers}
    left = tuple(map(_left, policies, attachment.policies))
    return Grants(
        groups=groups,
        absent=("authorization", *IDENTITY_HEADERS) if tokens else IDENTITY_HEADERS,
        single=tuple(sorted(names)),
        asked=build_reach(attachment, settings.composition, left=tuple(each for each in left if each is not None)),
    )


def _granted(policy: CallPolicy) -> Iterator[Grant]:
    for entry in policy.entries:
        if isinstance(entry.place, ByServer) and entry.place.grant is not None:
            yield entry.place.grant


def _left(placed: CallPolicy, policy: AnyPolicy) -> Policy | None:
    """Return what of a policy may grant something that the server has not granted.

    Where a token could prove what a certificate does not, only the policy server can ask for it.
    """
    if not isinstance(policy, Policy):
        return None
    places = iter(placed.entries)
    rules = []
    for rule in policy.rules:
        asked = bool(issuers_of(rule.source))
        entries = tuple(each for each in rule.entries if isinstance(next(places).place, CallOut) or asked)
        rules.append(replace(rule, entries=entries))
    return replace(policy, rules=tuple(rules))


def _tests(grants: Grants) -> int:
    """Count the rules that a server would get: a rule for every sender counts for each workload."""
    ids = _ids(grants.groups)
    every = (grant for group in grants.groups for grant in group)
    return _excess(ids) + sum((len(ids) + 1 if grant.ids is None else len(grant.ids)) * _size(grant) for grant in every)


def _size(grant: Grant) -> int:
    texts = [*grant.paths, *(value for _, value in grant.headers)]
    # An expression says much besides what people write.
    return 1 + len(texts) + _excess(texts) + len(grant.expression) // 4


def _excess(texts: Iterable[str]) -> int:
    return sum(len(each) // _LENGTH for each in texts)


def _ids(groups: Groups) -> frozenset[str]:
    return frozenset(each for group in groups for grant in group for each in grant.ids or ())
