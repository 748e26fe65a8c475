"""What is the same for all targets of a route table, and is looked at once: is a request Envoy's to judge, whose is it.

A filter before those of policies writes down the strongest that it finds. If it finds nothing, or looking fails, it
writes down nothing, and the policy server is asked.
"""

from collections.abc import Iterable
from hashlib import sha256
from typing import Final

from envoy.config.rbac.v3 import rbac_pb2 as pb
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2 as filter_pb2

from authplane.cel.envoy.request_checks import Begins, Check, Equals, Metadata
from authplane.cel.envoy.translate import Condition
from authplane.cel.envoy.wire import render_policy
from authplane.core.envoy_releases import Release
from authplane.policy.placement.native_requests import build_front
from authplane.policy.placement.placement_model import Sender, Token

RBAC_METADATA: Final = "envoy.filters.http.rbac"
_PREFIX: Final = "front_"
_FOUND: Final = (RBAC_METADATA, f"{_PREFIX}shadow_effective_policy_id")
_MESSAGE: Final = "message"
_ONLY_MESSAGE: Final = f"{_MESSAGE}~"
"""Comes after those of issuers: what says more is tried first."""
_TOKEN: Final = "token"  # noqa: S105 (a word)


def render_front(
    envoy: Release, most_bytes: int, tokens: Iterable[Token], *, reads_mcp: bool
) -> filter_pb2.RBACPerRoute:
    """Render what is looked for: messages of MCP that Envoy may judge, and good tokens of these issuers."""
    rules = pb.RBAC(action=pb.RBAC.Action.ALLOW)
    message = build_front(envoy, most_bytes, is_mcp=True, reads_mcp=True)
    for each in tokens:
        # Most tokens are of another issuer, which is told in one step.
        if reads_mcp:
            _add(rules, _named(_MESSAGE, each), each.condition.and_then(message))
        _add(rules, _named(_TOKEN, each), each.condition)
    if reads_mcp:
        _add(rules, _ONLY_MESSAGE, message)
    return filter_pb2.RBACPerRoute(rbac=filter_pb2.RBAC(shadow_rules=rules, shadow_rules_stat_prefix=_PREFIX))


def find_nothing() -> filter_pb2.RBAC:
    """Render the filter for tables that say nothing of it: about every request the policy server is asked."""
    return filter_pb2.RBAC(shadow_rules_stat_prefix=_PREFIX)


def fit_for_judging(front: Condition) -> Check:
    """Return what tells that a request is Envoy's to judge; it cannot fail."""
    return Metadata(_FOUND, (Begins(_MESSAGE),)) if front.reads_mcp else front.check


def recognised(sender: Sender) -> Condition:
    """Return what tells whom a rule is for, besides what its ids demand."""
    if sender.token is None:
        return sender.condition
    found = Metadata(_FOUND, tuple(Equals(_named(each, sender.token)) for each in (_MESSAGE, _TOKEN)))
    return Condition(check=found).and_then(sender.condition)


def _named(what: str, token: Token) -> str:
    """Name what is found without a slash, which only the names of entries have."""
    return f"{what} {sha256(token.issuer.encode()).hexdigest()[:32]}"


def _add(rules: pb.RBAC, name: str, condition: Condition) -> None:
    rules.policies[name].CopyFrom(render_policy(condition))
    rules.policies[name].principals.append(pb.Principal(any=True))
