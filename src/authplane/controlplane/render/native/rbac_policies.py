"""Placed policies as rules of Envoy's RBAC filter.

Envoy tries the rules of a filter in the order of their names, and the first that matches counts. A name with a slash is
that of an entry, and allows. Others mean that Envoy must call out, and come before or after those. The last mean that
the sender is known: the request is denied either way, but with another reply.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from envoy.config.core.v3 import cel_pb2, extension_pb2
from envoy.config.rbac.v3 import rbac_pb2 as pb
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2 as filter_pb2
from envoy.extensions.rbac.principals.mtls_authenticated.v3 import mtls_authenticated_pb2
from envoy.extensions.transport_sockets.tls.v3 import common_pb2
from envoy.type.matcher.v3 import metadata_pb2, string_pb2, value_pb2

from authplane.cel.envoy.request_checks import ALWAYS, Not
from authplane.cel.envoy.translate import Condition
from authplane.cel.envoy.wire import render_policy
from authplane.controlplane.render.envoy_pieces import pack
from authplane.controlplane.render.native.request_classification import RBAC_METADATA, recognised
from authplane.policy.placement.placement_model import NO_IDS, Native, PlacedAttachment, PlacedPolicy, Plan, Sender
from authplane.policy.rules.access_settings import Composition
from authplane.policy.rules.rule_model import AnySource

DECIDED_BY: Final = "enforced_effective_policy_id"
FOUND: Final = "shadow_effective_policy_id"
"""The metadata key of the matching rule, in a filter that enforces nothing."""
ALLOWS: Final = "/"
"""A text that the names of rules that allow contain, and others do not."""
TOGETHER: Final = "native/all"
"""The rule that matches if every policy has granted the request."""

REFUSED: Final = "known"

_ASK: Final = "ask"
_ASK_FIRST: Final = f"!{_ASK}"
_ASK_LAST: Final = f"~{_ASK}"
_KNOWN: Final = "~known"
_ALLOW: Final = pb.RBAC.Action.ALLOW
_EVERY: Final = Condition()
_ANYBODY: Final = pb.Principal(any=True)
_URI: Final = common_pb2.SubjectAltNameMatcher.SanType.URI


def render_rules(policy: PlacedPolicy, plan: Plan, *, tells_apart: bool) -> pb.RBAC:
    """Render the rules of one policy: requests that Envoy may not judge, its grants, and the senders to call out for.

    With ``tells_apart``, known senders without a grant are distinguished from unknown ones.
    """
    rules, reads_mcp = pb.RBAC(action=_ALLOW), plan.front.reads_mcp
    if plan.front.check != ALWAYS:
        _add(rules, _ASK_FIRST, Condition(check=Not(plan.front.check)))
    for entry in policy.native:
        if isinstance(entry.sender, Sender) and isinstance(entry.place, Native):
            granted = entry.place.condition.and_then(recognised(entry.sender, reads_mcp=reads_mcp))
            _add(rules, _free(rules, policy.key(entry)), granted, entry.sender.ids)
    for each, ids in _asked_about(policy, plan):
        _add(rules, _free(rules, _ASK_LAST), each, ids)
    if tells_apart:
        # A rule for every source identifies no sender.
        told = [entry.sender for entry in policy.native if not isinstance(entry.source, AnySource)]
        known = [each for each in told if isinstance(each, Sender)]
        for sender in dict.fromkeys((recognised(each, reads_mcp=reads_mcp), each.ids) for each in known):
            _add(rules, _free(rules, _KNOWN), *sender)
    _share_options(rules)
    return rules


def render_together(plan: Plan) -> pb.RBAC:
    """Render what several policies come to, each of which a filter has looked at already."""
    rules = pb.RBAC(action=_ALLOW)
    numbers = {id(policy): number for number, policy in enumerate(policies_of(plan))}
    for name, texts in ((TOGETHER, (ALLOWS,)), (_ASK_LAST, (ALLOWS, _ASK)), (_KNOWN, (ALLOWS, _ASK, _KNOWN))):
        permissions = [_attachment(each, numbers, texts) for each in plan.attachments]
        rules.policies[name].permissions.append(_every(permissions))
        rules.policies[name].principals.append(_ANYBODY)
    return rules


def policies_of(plan: Plan) -> list[PlacedPolicy]:
    """Return all policies, in the order of their filters."""
    return [policy for each in plan.attachments for policy in each.policies]


def slot_prefix(number: int) -> str:
    """Return the prefix of what the filter of a policy writes into the metadata."""
    return f"policy_{number}_"


def granted_matcher(*, otherwise: bool = False) -> metadata_pb2.MetadataMatcher:
    """Return a matcher of requests that Envoy has granted; ``otherwise`` inverts it."""
    return _matcher(DECIDED_BY, (ALLOWS,), invert=otherwise)


def refuse_the_known() -> filter_pb2.RBAC:
    """Render the filter that denies senders that the filter before marked as known only; otherwise Envoy calls out.

    Envoy reports which filter denied, and so local replies can distinguish unknown senders.
    """
    permission = pb.Permission(sourced_metadata=pb.SourcedMetadata(metadata_matcher=_matcher(DECIDED_BY, (_KNOWN,))))
    rules = pb.RBAC(action=pb.RBAC.Action.DENY)
    rules.policies[REFUSED].permissions.append(permission)
    rules.policies[REFUSED].principals.append(_ANYBODY)
    return filter_pb2.RBAC(rules=rules)


def deny_everything() -> filter_pb2.RBAC:
    """Render the filter for routes that say nothing of it: there are none, and they would be closed."""
    return filter_pb2.RBAC(rules=pb.RBAC(action=_ALLOW))


def workload(spiffe_id: str) -> pb.Principal:
    """Name a workload by a URI of its certificate, which a trusted CA has signed."""
    san = common_pb2.SubjectAltNameMatcher(san_type=_URI, matcher=string_pb2.StringMatcher(exact=spiffe_id))
    config = mtls_authenticated_pb2.Config(san_matcher=san)
    name = "envoy.rbac.principals.mtls_authenticated"
    return pb.Principal(custom=extension_pb2.TypedExtensionConfig(name=name, typed_config=pack(config)))


def _asked_about(policy: PlacedPolicy, plan: Plan) -> Iterable[tuple[Condition, frozenset[str]]]:
    """Return the senders without a native grant that Envoy calls out for."""
    # If a denial has words of its own, only the policy server knows them.
    found = {(_EVERY, NO_IDS): None} if plan.worded else dict.fromkeys(each.reached() for each in policy.asked)
    if (_EVERY, NO_IDS) in found:
        return [(_EVERY, NO_IDS)]
    senders = (entry.sender for entry in policy.native if isinstance(entry.sender, Sender))
    return found | {(each.unsure, NO_IDS): None for each in senders if each.unsure is not None}


# --- Several policies


def _attachment(attachment: PlacedAttachment, numbers: Mapping[int, int], texts: Sequence[str]) -> pb.Permission:
    every = attachment.composition is Composition.ALL
    required: list[pb.Permission] = []
    optional: list[pb.Permission] = []
    for policy in attachment.policies:
        matcher = _matcher(f"{slot_prefix(numbers[id(policy)])}{FOUND}", texts)
        found = pb.Permission(sourced_metadata=pb.SourcedMetadata(metadata_matcher=matcher))
        (required if every or policy.required else optional).append(found)
    return _every([*required, *([_some(optional)] if optional else [])])


def _every(permissions: Iterable[pb.Permission]) -> pb.Permission:
    return pb.Permission(and_rules=pb.Permission.Set(rules=permissions))


def _some(permissions: Iterable[pb.Permission]) -> pb.Permission:
    return pb.Permission(or_rules=pb.Permission.Set(rules=permissions))


# --- Parts of rules


def _matcher(key: str, texts: Sequence[str], *, invert: bool = False) -> metadata_pb2.MetadataMatcher:
    """Return a matcher: a filter has found a rule whose name contains one of these texts."""
    each = [value_pb2.ValueMatcher(string_match=string_pb2.StringMatcher(contains=text)) for text in texts]
    value = each[0] if len(each) == 1 else value_pb2.ValueMatcher(or_match=value_pb2.OrMatcher(value_matchers=each))
    return metadata_pb2.MetadataMatcher(
        filter=RBAC_METADATA,
        path=[metadata_pb2.MetadataMatcher.PathSegment(key=key)],
        value=value,
        invert=invert,
    )


def _add(rules: pb.RBAC, name: str, condition: Condition, ids: frozenset[str] = NO_IDS) -> None:
    made = rules.policies[name]
    made.CopyFrom(render_policy(condition))
    made.principals.extend([workload(each) for each in sorted(ids)] or [_ANYBODY])


def _share_options(rules: pb.RBAC) -> None:
    """Give all rules the options that one of them needs: Envoy heeds no others."""
    shared = cel_pb2.CelExpressionConfig()
    for each in rules.policies.values():
        shared.MergeFrom(each.cel_config)
    if shared.ByteSize():
        for each in rules.policies.values():
            each.cel_config.CopyFrom(shared)


def _free(rules: pb.RBAC, name: str) -> str:
    """Return a name that is not taken: one rule must never take the place of another."""
    tried, number = name, 1
    while tried in rules.policies:
        number += 1
        tried = f"{name}#{number}"
    return tried
