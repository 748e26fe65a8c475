"""Policies in shadow, where Envoy evaluates them: what they would deny is counted and nothing is denied."""

from dataclasses import replace
from typing import Final

from envoy.config.rbac.v3 import rbac_pb2 as pb
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2 as filter_pb2
from google.protobuf.any_pb2 import Any

from authplane.controlplane.render.envoy_pieces import pack
from authplane.controlplane.render.native.rbac_policies import granted_matcher, policies_of, render_rules
from authplane.policy.placement.placement_model import Plan

_COUNTED: Final = "shadow."
"""Stands in the names of counters."""


def render_shadow(number: int, plan: Plan, *, among_granted: bool) -> Any:
    """Render a single policy that is not enforced.

    With ``among_granted`` it evaluates what Envoy has granted natively: the policy server evaluates it with the rest.
    """
    [policy] = policies_of(plan)
    rules = render_rules(policy, replace(plan, worded=False), tells_apart=False)
    # Tried last: what nothing else was found for would be denied.
    rules.policies[f"~none/{policy.ref.object_name}"].CopyFrom(
        pb.Policy(permissions=[pb.Permission(any=True)], principals=[pb.Principal(any=True)])
    )
    if among_granted:
        granted = pb.Permission(sourced_metadata=pb.SourcedMetadata(metadata_matcher=granted_matcher()))
        for each in rules.policies.values():
            permissions = [pb.Permission(and_rules=pb.Permission.Set(rules=[granted, one])) for one in each.permissions]
            del each.permissions[:]
            each.permissions.extend(permissions)
    told = filter_pb2.RBAC(shadow_rules=rules, shadow_rules_stat_prefix=f"shadow_{number}_", track_per_rule_stats=True)
    return pack(filter_pb2.RBACPerRoute(rbac=told))


def count_only() -> filter_pb2.RBAC:
    """Render the filter for routes that say nothing of it: it never denies anything."""
    return filter_pb2.RBAC(shadow_rules_stat_prefix=_COUNTED)
