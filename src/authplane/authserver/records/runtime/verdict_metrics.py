"""Metrics of decisions by policies, and of the issuers that they need."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from authplane.authserver.engine.check_engine import Answer
from authplane.policy.check.decision import Allow, Decision, Deny
from authplane.policy.verdicts.verdict import Verdict, Would
from authplane.runtime.issuers.issuer_metrics import Followed, issuer_metrics

_MOST_POLICIES: Final = 1000
"""Of how many policies failures are counted by name; they come and go while a server runs."""
_MOST_DECISIONS: Final = 10_000
"""Of how many rules decisions are counted by name; those beyond are counted together."""
_MOST_SHADOWS: Final = 9 * _MOST_POLICIES
"""The same for policies in shadow, each with what it would do and what was done."""

_Decided: TypeAlias = tuple[str, str, str, type[Decision]]
"""Policy, rule, entry and the kind of decision: every check makes one, so it is nothing more."""


class VerdictCounts:
    """Counts verdicts by what they rest on; every table has a limit."""

    def __init__(self) -> None:
        self.failures: Counter[tuple[str, str]] = Counter()
        """Expressions that failed, by policy and by how."""
        self.decided: dict[_Decided, int] = {}
        """Decisions, by what they rest on and what they are."""
        self.shadows: Counter[tuple[str, Would, str]] = Counter()
        """What policies in shadow would have done, by policy and by what was decided."""

    def record(self, _made: Answer, verdict: Verdict) -> None:
        """Count a verdict."""
        grounds = verdict.grounds
        self._count((grounds[0], grounds[1], grounds[2], verdict.decision.__class__))
        for failure in grounds.failures:
            policy, _, rest = failure.partition(" ")
            code = rest.rpartition(" ")[2]
            known = (policy, code) in self.failures or len(self.failures) < _MOST_POLICIES
            self.failures[policy if known else "", code] += 1
        for shadow in verdict.shadows:
            key = (shadow.policy, shadow.would, _word(type(verdict.decision)))
            known = key in self.shadows or len(self.shadows) < _MOST_SHADOWS
            self.shadows[key if known else ("", *key[1:])] += 1

    def _count(self, decided: _Decided) -> None:
        counts = self.decided
        before = counts.get(decided)
        if before is None and len(counts) >= _MOST_DECISIONS:
            decided = ("", "", "", decided[3])
            before = counts.get(decided)
        counts[decided] = 1 if before is None else before + 1


class AccessMetrics(Collector):
    """Decisions, failed expressions and issuers, as Prometheus reads them."""

    def __init__(self, backend: str, counts: VerdictCounts, issuers: Followed, policies: Callable[[], int]) -> None:
        self._backend = backend
        self._counts = counts
        self._issuers = issuers
        self._policies = policies

    def collect(self) -> Iterable[Metric]:
        """Return the numbers of this moment."""
        failures = CounterMetricFamily(
            "authplane_cel_failures",
            "Evaluations of CEL expressions that failed, and so granted nothing.",
            labels=("backend", "policy", "code"),
        )
        for (policy, code), count in sorted(self._counts.failures.items()):
            failures.add_metric((self._backend, policy, code), count)
        targets = GaugeMetricFamily("authplane_policy_targets", "Targets with a policy.", labels=("backend",))
        targets.add_metric((self._backend,), self._policies())
        issuers = issuer_metrics("authplane", self._issuers, {"backend": self._backend})
        return (failures, self._of_decisions(), self._of_shadows(), targets, *issuers)

    def _of_decisions(self) -> Metric:
        decisions = CounterMetricFamily(
            "authplane_policy_decisions",
            "Decisions by policy, rule and entry.",
            labels=("backend", "policy", "rule", "entry", "decision"),
        )
        totals: Counter[tuple[str, str, str, str]] = Counter()
        for (policy, rule, entry, kind), count in self._counts.decided.items():
            totals[policy, rule, entry, _word(kind)] += count
        for labels, count in sorted(totals.items()):
            decisions.add_metric((self._backend, *labels), count)
        return decisions

    def _of_shadows(self) -> Metric:
        shadows = CounterMetricFamily(
            "authplane_shadow_decisions",
            "Outcomes of policies in shadow mode, by the decision of the enforced policies.",
            labels=("backend", "policy", "outcome", "decision"),
        )
        for (policy, would, decision), count in sorted(self._counts.shadows.items()):
            shadows.add_metric((self._backend, policy, would.value, decision), count)
        return shadows


def _word(kind: type[Decision]) -> str:
    if issubclass(kind, Allow):
        return "allow"
    return "deny" if issubclass(kind, Deny) else "unavailable"
