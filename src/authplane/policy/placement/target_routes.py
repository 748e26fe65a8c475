"""Every target that requests reach, and its placement."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from authplane.core.envoy_releases import CURRENT, Release
from authplane.core.memo import Same
from authplane.core.names import Ref
from authplane.core.values import dataclass
from authplane.policy.attached.attachments import Policies, PolicyChain, RequestTarget
from authplane.policy.placement.grpc_plan import place_grpc, plan_in_server
from authplane.policy.placement.placement_model import CallOut, Choices, Decider, Native, PlacedPolicy, Plan
from authplane.policy.placement.plan_cache import Plans
from authplane.policy.rules.policy_targets import BACKENDS, PolicyTarget

UNTOLD: Final = "is served by an Envoy that is older than 1.36 or reports no release"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRoute:
    """One route: the target of a request, its policies, and how they are enforced."""

    target: RequestTarget
    chain: PolicyChain
    plan: Plan


class TargetRoutes:
    """Finds the request targets of a policy's target. ``reached`` are the targets that requests reach.

    ``reached`` has for each target the addresses of the issuers whose keys Envoy has there; None means all. Without a
    release of ``envoy``, proxies get no native rules. Plans in ``plans`` are not made again.
    """

    def __init__(
        self,
        policies: Policies,
        reached: Mapping[RequestTarget, frozenset[str] | None],
        envoy: Release | None = CURRENT,
        plans: Plans | None = None,
    ) -> None:
        self._policies = policies
        self._reached = reached
        self._envoy = envoy
        self._plans = plans or Plans()
        self._made: dict[tuple[RequestTarget, Same], Plan] = {}
        self._past: dict[tuple[Ref, str], list[RequestTarget]] = defaultdict(list)
        for target in reached:
            for aim in _aims(target):
                self._past[aim.ref, aim.section].append(target)

    def __iter__(self) -> Iterator[TargetRoute]:
        """Yield all targets that requests reach."""
        return self._found(self._reached)

    def evaluates_shadows(self, passage: TargetRoute) -> bool:
        """Tell whether Envoy, or a policy server that is called anyway, evaluates the shadow policies of a route."""
        chain, target = passage.chain, passage.target
        if chain.guarded or not chain.attachments[-1].mcp:
            return chain.guarded
        asked = target.backend is not None and not self._policies.settings.allow_unprotected
        if asked or (self._envoy is not None and self._envoy.tries_checks_out):
            return True
        return all(self.plan(target, each).decider is Decider.ENVOY for each in chain.shadows)

    def past(self, aim: PolicyTarget) -> tuple[TargetRoute, ...]:
        """Return the request targets of a policy's target; if requests reach none, the one that they would reach."""
        alone = (
            RequestTarget(backend=aim.ref)
            if aim.ref.kind in BACKENDS
            else RequestTarget(gateway=aim.ref, section=aim.section)
        )
        return tuple(self._found(self._past.get((aim.ref, aim.section), [alone])))

    def _found(self, targets: Mapping[RequestTarget, object] | list[RequestTarget]) -> Iterator[TargetRoute]:
        for target in targets:
            chain = self._policies.chain(target)
            if chain is not None:
                yield TargetRoute(target=target, chain=chain, plan=self.plan(target, chain))

    def plan(self, target: RequestTarget, chain: PolicyChain) -> Plan:
        """Return the placement of a target with this chain of policies."""
        known = (target, Same(chain))
        plan = self._made.get(known) or self._place(target, chain)
        self._made[known] = plan
        if not chain.attachments[-1].mcp:
            return plan_in_server(plan, place_grpc(chain, self._policies.settings)) if chain.guarded else plan
        return plan if self._envoy is not None else _asked(plan, UNTOLD)

    def _place(self, target: RequestTarget, chain: PolicyChain) -> Plan:
        choices = Choices(envoy=self._envoy or CURRENT, keys=self._reached.get(target))
        return self._plans.ensure(chain, self._policies.settings, choices)


def _aims(target: RequestTarget) -> Iterator[PolicyTarget]:
    if target.backend is not None:
        yield PolicyTarget(target.backend)
    if target.gateway is not None:
        yield PolicyTarget(target.gateway)
        if target.section:
            yield PolicyTarget(target.gateway, target.section)


def _asked(plan: Plan, reason: str) -> Plan:
    """Return a plan of which nothing is native, for this reason; others that there are stay."""
    attachments = tuple(
        replace(attachment, policies=tuple(_asked_policy(each, reason) for each in attachment.policies))
        for attachment in plan.attachments
    )
    return replace(
        plan, attachments=attachments, decider=Decider.SERVER if plan.decider is not Decider.NOBODY else plan.decider
    )


def _asked_policy(policy: PlacedPolicy, reason: str) -> PlacedPolicy:
    entries = tuple(
        replace(each, place=CallOut(reason)) if isinstance(each.place, Native) else each for each in policy.entries
    )
    return replace(policy, entries=entries)
