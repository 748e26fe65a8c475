"""Who enforces policies, as it was told the last time: of most policies the same is told again."""

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
    """Conditions that were told, with what stood on the ways that they speak of."""

    def __init__(self) -> None:
        self._told: Memo[tuple[Ref, PolicyTarget], Condition] = Memo()
        self._ways: Mapping[Ref, _Ways] = {}

    def next_generation(self, reached: Mapping[RequestTarget, Placing | None], envoy: Release | None) -> None:
        """Forget what is told no longer; ``reached`` is what stands before the targets that something leads to.

        What was told of proxies of another release of Envoy is told no longer.
        """
        self._told.start(envoy)
        ways: dict[Ref, list[Placing | None]] = defaultdict(list)
        for target, placing in reached.items():
            for ref in (target.backend, target.gateway):
                if ref is not None:
                    ways[ref].append(placing)
        self._ways = ways

    def ensure(self, standing: PolicyStanding, at: Standing, tell: Callable[[], Condition]) -> Condition:
        """Return what is to be told of a policy at a target; the same ways past it have the same to tell."""
        ways = self._ways.get(at.aim.ref, ())
        # What is not placed depends on more than is known here.
        if not ways or None in ways or standing.shadow or not at.accepted:
            return tell()
        # What stands on a way has no equality but its identity.
        return self._told.ensure((standing.ref, at.aim), ways, tell)
