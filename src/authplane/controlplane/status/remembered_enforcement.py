"""Remembers the placement conditions of policies: for most policies they do not change."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from authplane.controlplane.graph.model.target_placements import Placing
from authplane.controlplane.status.access_policy_status import Condition
from authplane.core.envoy_releases import Release
from authplane.core.memo import Memo
from authplane.core.names import Ref
from authplane.policy.attached.attachments import RequestTarget
from authplane.policy.compile.compile_policies import PolicyStanding, Standing
from authplane.policy.rules.policy_targets import PolicyTarget

_Ways: TypeAlias = Sequence[Placing | None]


class RememberedEnforcement:
    """Conditions of policies at targets, with the placings that they depend on."""

    def __init__(self) -> None:
        self._told: Memo[tuple[Ref, PolicyTarget], Condition] = Memo()
        self._ways: Mapping[Ref, _Ways] = {}

    def next_generation(self, reached: Mapping[RequestTarget, Placing | None], envoy: Release | None) -> None:
        """Drop outdated conditions; ``reached`` has the policies that apply to each target that requests can reach.

        Conditions for proxies of another release of Envoy are dropped too.
        """
        self._told.start(envoy)
        ways: dict[Ref, list[Placing | None]] = defaultdict(list)
        for target, placing in reached.items():
            for ref in (target.backend, target.gateway):
                if ref is not None:
                    ways[ref].append(placing)
        self._ways = ways

    def ensure(self, standing: PolicyStanding, at: Standing, tell: Callable[[], Condition]) -> Condition:
        """Return the condition of a policy at a target; the same placings have the same condition."""
        ways = self._ways.get(at.aim.ref, ())
        # What is not placed depends on more than is known here.
        if not ways or None in ways or standing.shadow or not at.accepted:
            return tell()
        # A placing has no equality but its identity.
        return self._told.ensure((standing.ref, at.aim), ways, tell)
