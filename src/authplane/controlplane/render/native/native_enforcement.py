"""What Envoy decides by itself for a target, and the settings of its filters."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from envoy.config.rbac.v3.rbac_pb2 import RBAC
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2
from google.protobuf.any_pb2 import Any

from authplane.cel.envoy.translate import Condition
from authplane.controlplane.graph.gateway.route_entries import GATEWAY, TARGET
from authplane.controlplane.graph.model.route_authorization import Enforced
from authplane.controlplane.graph.model.target_placements import Placing
from authplane.controlplane.render.envoy_pieces import pack
from authplane.controlplane.render.native.rbac_policies import policies_of, render_rules, render_together, slot_prefix
from authplane.controlplane.render.native.shadow_rules import render_shadow
from authplane.core.envoy_releases import Release
from authplane.core.memo import Held, Same
from authplane.core.values import dataclass
from authplane.policy.identity.tokens.issuer_url import IssuerUrl
from authplane.policy.placement.placement_model import Choices, Decider, PlacedEntry, Plan, Sender, Token
from authplane.policy.placement.plan_cache import Plans
from authplane.policy.rules.access_settings import Settings, issuer_settings
from authplane.policy.rules.rule_model import Oidc


@dataclass(frozen=True, slots=True, order=True)
class Provider:
    """An issuer whose tokens Envoy verifies."""

    url: str
    skew: int
    """Seconds by which clocks may differ."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Placed:
    """A target before which Envoy decides something. The same policies give the same object."""

    plan: Plan
    providers: tuple[Provider, ...]
    """Whose tokens are looked at, sorted."""
    tokens: tuple[Token, ...]
    """What good tokens of those are, sorted, where no reader of MCP messages reads them."""
    wants_tokens: bool
    """A sender without a token learns where to get one."""
    reads_mcp: bool
    arguments: tuple[str, ...]
    """The tool arguments that rules read, sorted."""
    certificates: bool
    """Some rule is for workloads with certificates."""
    slots: tuple[Any, ...] = field(repr=False)
    """The settings of each policy's filter; empty if there is one policy, which the last filter has."""
    decide: Any | None = field(repr=False)
    """None if no policy is enforced, and only those in shadow are evaluated."""
    shadows: tuple[Any, ...] = field(default=(), repr=False)
    """The settings of the filters of policies in shadow."""

    @property
    def policies(self) -> tuple[str, ...]:
        """The policies of the target, for logs."""
        return tuple(str(each.ref.object_name) for each in policies_of(self.plan))


def requirement_name(authorization: Enforced) -> str:
    """Name what the filter that verifies tokens has to look for before a target.

    The name is the target's, whatever issuers there are: while those change, routes name nothing that is not there.
    """
    context = dict(authorization.context)
    return f"{context.get(GATEWAY, '')} {context.get(TARGET, '')}"


def placed_of(placing: Placing | None, envoy: Release | None) -> Placed | None:
    """Return what an Envoy decides before a target; None if it asks about everything."""
    return None if placing is None or envoy is None else _recall(placing, _Asked(envoy, with_all_keys=False))


def possible_of(placing: Placing | None, envoy: Release | None) -> Placed | None:
    """Return what it would decide if the keys of all issuers were there."""
    return None if placing is None or envoy is None else _recall(placing, _Asked(envoy, with_all_keys=True))


class _Asked(NamedTuple):
    envoy: Release
    with_all_keys: bool


class _Answer(NamedTuple):
    held: tuple[Plan, ...]
    """The enforced plan, and those in shadow."""
    placed: Placed | None


def _recall(placing: Placing, asked: _Asked) -> Placed | None:
    answer: _Answer | None = placing.answers.get(asked)
    if answer is None:
        answer = _answer(placing.with_all_keys() if asked.with_all_keys else placing, asked.envoy)
        placing.answers[asked] = answer
    return answer.placed


def _answer(placing: Placing, envoy: Release) -> _Answer:
    choices, settings = Choices(envoy=envoy, keys=placing.keys), placing.settings
    chains = (placing.chain, *placing.chain.shadows)
    plans = Plans(placing.shared.plans)
    plan, *shadows = held = tuple(plans.ensure(each, settings, choices) for each in chains)
    if plan.decider is Decider.SERVER or any(each.decider is not Decider.ENVOY for each in shadows):
        return _Answer(held, None)
    # The same plans were made with the same settings.
    return _Answer(held, placing.shared.rendered.ensure(Same(*held), partial(_place, plan, shadows, placing)))


def _place(plan: Plan, shadows: Sequence[Plan], placing: Placing) -> Placed:
    policies = policies_of(plan)
    enforced, native = bool(policies), [entry for each in (plan, *shadows) for entry in _native(each)]
    unread = [entry for each in (plan, *shadows) if not each.front.reads_mcp for entry in _native(each)]
    issuers = {entry.source.issuer for entry in native if isinstance(entry.source, Oidc)}
    # A sender without a token may be known to a rule that the policy server decides.
    wants_tokens = any(isinstance(entry.source, Oidc) for policy in policies for entry in policy.entries)
    rules = [render_rules(policy, plan, tells_apart=wants_tokens) for policy in policies]
    return Placed(
        plan=plan,
        providers=tuple(sorted(_provider(each, placing.settings) for each in issuers)),
        tokens=tuple(sorted(set(_tokens(unread, placing.shared.tokens)), key=attrgetter("issuer"))),
        wants_tokens=wants_tokens,
        reads_mcp=any(each.front.reads_mcp for each in (plan, *shadows)),
        arguments=tuple(sorted({name for each in (plan, *shadows) for name in each.arguments})),
        certificates=any(isinstance(entry.sender, Sender) and entry.sender.ids for entry in native),
        slots=() if len(rules) == 1 else tuple(_slot(number, each) for number, each in enumerate(rules)),
        decide=_decide(rules[0] if len(rules) == 1 else render_together(plan)) if enforced else None,
        shadows=tuple(render_shadow(each, shadow, among_granted=enforced) for each, shadow in enumerate(shadows)),
    )


def _native(plan: Plan) -> Iterator[PlacedEntry]:
    return (entry for policy in policies_of(plan) for entry in policy.native)


def _tokens(entries: Iterable[PlacedEntry], known: Held[tuple[str, Condition], Token]) -> Iterator[Token]:
    for each in entries:
        if isinstance(each.sender, Sender) and each.sender.token is not None:
            token = each.sender.token
            yield known.ensure((token.issuer, token.condition), partial(_itself, token))


def _itself(token: Token) -> Token:
    return token


def _provider(issuer: IssuerUrl, settings: Settings) -> Provider:
    return Provider(issuer.url, int(issuer_settings(settings, issuer).demands.times.skew))


def _slot(number: int, rules: RBAC) -> Any:
    """Render what a filter finds out about one policy, for the last one to decide by."""
    told = rbac_pb2.RBAC(shadow_rules=rules, shadow_rules_stat_prefix=slot_prefix(number), track_per_rule_stats=True)
    return pack(rbac_pb2.RBACPerRoute(rbac=told))


def _decide(rules: RBAC) -> Any:
    told = rbac_pb2.RBAC(rules=rules, track_per_rule_stats=True)
    return pack(rbac_pb2.RBACPerRoute(rbac=told))
