"""Who enforces policies, as it was told the last time: of most policies the same is told again."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from authplane.controlplane.graph.model.target_placements import Placing
from authplane.controlplane.status.access_policy_status import Condition
from authplane.core.envoy_releases import Release
from authplane.core.names import Ref
from authplane.policy.attached.attachments import Target
from authplane.policy.compile.compile_policies import PolicyStanding, Standing
from authplane.policy.rules.policy_targets import Aim

_Ways: TypeAlias = Sequence[Placing | None]
_Key: TypeAlias = tuple[Ref, Aim]


class RememberedEnforcement:
    """Conditions of this generation and of the one before it, with what stood on the ways that they speak of."""

    def __init__(self) -> None:
        self._before: Mapping[_Key, tuple[_Ways, Condition]] = {}
        self._now: dict[_Key, tuple[_Ways, Condition]] = {}
        self._ways: Mapping[Ref, _Ways] = {}
        self._envoy: Release | None = None

    def next_generation(self, reached: Mapping[Target, Placing | None], envoy: Release | None) -> None:
        """Forget what is told no longer; ``reached`` is what stands before the targets that something leads to.

        What was told of proxies of another release of Envoy is told no longer.
        """
        self._before, self._now = self._now if envoy == self._envoy else {}, {}
        self._envoy = envoy
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
        key = standing.ref, at.aim
        known = self._before.get(key)
        if known is None or known[0] != ways:
            known = ways, tell()
        self._now[key] = known
        return known[1]
