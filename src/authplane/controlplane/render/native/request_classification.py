"""Identifies the issuer of a request's token: one filter does it once for all rules of a route table.

The filter comes before the filters of policies and records the issuer whose token is valid. If it finds none, or
evaluation fails, it records nothing, and no rule for senders with tokens grants anything. Targets whose MCP messages
are read do without: the reader has read the token too.
"""

from collections.abc import Iterable
from typing import Final

from envoy.config.rbac.v3 import rbac_pb2 as pb
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2 as filter_pb2

from authplane.cel.envoy.request_checks import Equals, Metadata
from authplane.cel.envoy.translate import Condition
from authplane.cel.envoy.wire import render_policy
from authplane.policy.placement.placement_model import Sender, Token

RBAC_METADATA: Final = "envoy.filters.http.rbac"
_PREFIX: Final = "front_"
VALID_TOKEN: Final = f"{_PREFIX}shadow_effective_policy_id"
"""The metadata key of the issuer whose token is valid. No filter takes this key for that of a policy's rule."""


def render_front(tokens: Iterable[Token]) -> filter_pb2.RBACPerRoute:
    """Render what is looked for: good tokens of these issuers."""
    rules = pb.RBAC(action=pb.RBAC.Action.ALLOW)
    for each in tokens:
        rules.policies[each.issuer].CopyFrom(render_policy(each.condition))
        rules.policies[each.issuer].principals.append(pb.Principal(any=True))
    return filter_pb2.RBACPerRoute(rbac=filter_pb2.RBAC(shadow_rules=rules, shadow_rules_stat_prefix=_PREFIX))


def find_nothing() -> filter_pb2.RBAC:
    """Render the filter for tables without settings of it: Envoy calls the policy server for every request."""
    return filter_pb2.RBAC(shadow_rules_stat_prefix=_PREFIX)


def recognised(sender: Sender, *, reads_mcp: bool) -> Condition:
    """Return the condition of a rule's senders, besides what its ids require.

    With ``reads_mcp``, the reader of MCP messages has read their tokens, and the filter here is switched off.
    """
    if sender.token is None:
        return sender.condition
    if reads_mcp:
        return sender.token.read.and_then(sender.condition)
    valid = Metadata((RBAC_METADATA, VALID_TOKEN), (Equals(sender.token.issuer),))
    return Condition(check=valid).and_then(sender.condition)
