"""Attaches policies to targets one by one, the oldest first."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field

from authplane.core.values import dataclass
from authplane.policy.rules.access_settings import Options
from authplane.policy.rules.policy_targets import PolicyTarget
from authplane.policy.rules.rule_model import AnyPolicy, Screen, Unusable


@dataclass(slots=True)
class Stands:
    """The policies attached so far: those that are enforced, and those in shadow."""

    options: Options
    enforced: dict[PolicyTarget, list[AnyPolicy]] = field(default_factory=dict)
    shadows: dict[PolicyTarget, list[AnyPolicy]] = field(default_factory=dict)
    _taken: Counter[PolicyTarget] = field(default_factory=Counter)
    _screens: Counter[PolicyTarget] = field(default_factory=Counter)

    def put(self, aims: Iterable[PolicyTarget], policy: AnyPolicy, *, shadow: bool) -> None:
        """Attach a policy to its targets; a shadow policy only up to the limit, as each costs time in every check."""
        for aim in dict.fromkeys(aims):
            if shadow:
                found = self.shadows.setdefault(aim, [])
                if len(found) < self.options.most_per_target and all(each.ref != policy.ref for each in found):
                    found.append(policy)
            else:
                self.enforced.setdefault(aim, []).append(policy)
                self._taken[aim] += not isinstance(policy, Unusable)
                self._screens[aim] += isinstance(policy, Screen)

    def crowd(self, aims: Sequence[PolicyTarget], *, shadow: bool, screen: bool) -> str:
        """Say which target has too many policies; empty if none has. Shadow policies count separately."""
        for counted, most, what in self._limits(aims, shadow=shadow, screen=screen):
            crowded = next((aim for aim in aims if counted.get(aim, 0) >= most), None)
            if crowded is not None:
                effect = "is not evaluated" if shadow else "denies all requests"
                return (
                    f"{crowded} already has {most} {what}, which is the maximum, so this policy {effect}. Remove or "
                    "merge policies."
                )
        return ""

    def _limits(
        self, aims: Sequence[PolicyTarget], *, shadow: bool, screen: bool
    ) -> Iterator[tuple[Mapping[PolicyTarget, int], int, str]]:
        most = self.options.most_per_target
        if shadow:
            yield {aim: len(self.shadows.get(aim, ())) for aim in aims}, most, "policies in shadow mode"
            return
        yield self._taken, most, "policies"
        if screen:
            yield self._screens, self.options.most_screens_per_target, "policies with action ExternalAuth"


def each_once(policies: Iterable[AnyPolicy]) -> list[AnyPolicy]:
    """Leave out what comes again."""
    # By identity: to compare whole policies would take as long as to read them.
    return list({id(policy): policy for policy in policies}.values())
