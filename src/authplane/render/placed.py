"""What Envoy decides by itself before a target, and what its filters are told for that."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import Final

from envoy.config.rbac.v3.rbac_pb2 import RBAC
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2
from google.protobuf.any_pb2 import Any

from authplane.cel.envoy.release import Release
from authplane.graph.placements import Placing
from authplane.policy.access.denials import realm_of, scopes_of
from authplane.policy.access.model import AnyPolicy, Oidc
from authplane.policy.access.settings import issuer_settings
from authplane.policy.placement.model import Choices, Decider, PlacedEntry, Plan, Sender
from authplane.policy.placement.plan import place_way
from authplane.policy.tokens.issuer_url import IssuerUrl
from authplane.render.rules import policies_of, render_rules, render_together, slot_prefix
from authplane.render.shadows import render_shadow
from authplane.render.wrap import pack

_KNOWN: Final = 1 << 14


@dataclass(frozen=True, slots=True, order=True)
class Provider:
    """An issuer whose tokens Envoy verifies."""

    url: str
    skew: int
    """Seconds by which clocks may differ."""


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """A target before which Envoy decides something. The same policies give the same object."""

    plan: Plan
    providers: tuple[Provider, ...]
    """Whose tokens are looked at, sorted."""
    reads_mcp: bool
    certificates: bool
    """Some rule is for workloads with certificates."""
    uses_tokens: bool
    """The client's token goes no further."""
    realm: str
    """What those are told is protected who show no token."""
    scopes: tuple[str, ...]
    """What they may need."""
    slots: tuple[Any, ...] = field(repr=False)
    """What the filter of each policy is told; empty if there is one policy, which the last filter has."""
    decide: Any | None = field(repr=False)
    """None if no policy is enforced, and only those in shadow are evaluated."""
    shadows: tuple[Any, ...] = field(default=(), repr=False)
    """What the filters of policies in shadow are told."""

    @property
    def policies(self) -> tuple[str, ...]:
        """The policies that stand before the target, for logs."""
        return tuple(str(each.ref.object_name) for each in policies_of(self.plan))

    @property
    def requirement(self) -> str:
        """What the filter that verifies tokens calls them together."""
        return requirement_name(self.providers)


def requirement_name(providers: tuple[Provider, ...]) -> str:
    """Name a set of issuers."""
    return sha256("\n".join(each.url for each in providers).encode()).hexdigest()[:16]


def placed_of(placing: Placing | None, envoy: Release | None) -> Placed | None:
    """Return what an Envoy decides before a target; None if it asks about everything."""
    return None if placing is None or envoy is None else _known(_Key(placing, envoy))


class _Key:
    """What placement depends on. Policies are compared by identity: to compare them whole would take too long."""

    __slots__ = ("_hash", "_policies", "_rest", "envoy", "placing")

    def __init__(self, placing: Placing, envoy: Release) -> None:
        way = placing.way
        self.placing, self.envoy = placing, envoy
        ways = (way, *way.shadows)
        self._policies: tuple[AnyPolicy, ...] = tuple(
            policy for each in ways for guard in each.guards for policy in guard.policies
        )
        counts = tuple(len(guard.policies) for each in ways for guard in each.guards)
        self._rest = (counts, way.is_mcp, way.placement, way.body_inspection, placing.keys, envoy)
        self._hash = hash((*map(id, self._policies), self._rest))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _Key)
            and len(self._policies) == len(other._policies)
            and all(mine is theirs for mine, theirs in zip(self._policies, other._policies, strict=True))
            and self._rest == other._rest
            and self.placing.settings == other.placing.settings
        )


@lru_cache(maxsize=_KNOWN)
def _known(key: _Key) -> Placed | None:
    placing = key.placing
    choices = Choices(envoy=key.envoy, keys=placing.keys)
    plan, *shadows = (place_way(each, placing.settings, choices) for each in (placing.way, *placing.way.shadows))
    if plan.decider is Decider.SERVER or any(each.decider is not Decider.ENVOY for each in shadows):
        return None
    policies = policies_of(plan)
    enforced, native = bool(policies), [entry for each in (plan, *shadows) for entry in _native(each)]
    issuers = {entry.source.issuer for entry in native if isinstance(entry.source, Oidc)}
    rules = [render_rules(policy, plan, tells_apart=bool(issuers)) for policy in policies]
    return Placed(
        plan=plan,
        providers=tuple(sorted(_provider(each, placing) for each in issuers)),
        reads_mcp=any(each.front.reads_mcp for each in (plan, *shadows)),
        certificates=any(isinstance(entry.sender, Sender) and entry.sender.ids for entry in native),
        uses_tokens=placing.way.uses_tokens,
        realm=realm_of(placing.way.guards),
        scopes=scopes_of(placing.way.guards),
        slots=() if len(rules) == 1 else tuple(_slot(number, each) for number, each in enumerate(rules)),
        decide=_decide(rules[0] if len(rules) == 1 else render_together(plan)) if enforced else None,
        shadows=tuple(render_shadow(each, shadow, among_granted=enforced) for each, shadow in enumerate(shadows)),
    )


def _native(plan: Plan) -> Iterator[PlacedEntry]:
    return (entry for policy in policies_of(plan) for entry in policy.native)


def _provider(issuer: IssuerUrl, placing: Placing) -> Provider:
    return Provider(issuer.url, int(issuer_settings(placing.settings, issuer).demands.times.skew))


def _slot(number: int, rules: RBAC) -> Any:
    """Render what a filter finds out about one policy, for the last one to decide by."""
    told = rbac_pb2.RBAC(shadow_rules=rules, shadow_rules_stat_prefix=slot_prefix(number), track_per_rule_stats=True)
    return pack(rbac_pb2.RBACPerRoute(rbac=told))


def _decide(rules: RBAC) -> Any:
    told = rbac_pb2.RBAC(rules=rules, track_per_rule_stats=True)
    return pack(rbac_pb2.RBACPerRoute(rbac=told))
