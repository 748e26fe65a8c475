"""Collects the trace of a decision while it is made."""

from dataclasses import replace
from typing import Final

from authplane.cel.explain.explain_expression import Explanation
from authplane.policy.explain.trace import EntryTrace, PolicyTrace, RuleTrace, Trace
from authplane.policy.rules.rule_model import Account, AnySource, Oidc, Source, Spiffe

_SECRET: Final = ("authorization", "cookie", "token", "secret", "password", "api-key", "apikey")


class Tracer:
    """Collects the trace of one decision."""

    def __init__(self) -> None:
        self._policies: list[PolicyTrace] = []
        self._rules: list[RuleTrace] = []

    def rule(self, name: str, source: Source, *, identity: str | None, reason: str = "", hint: str = "") -> None:
        """Add whether the source of a rule matches; ``identity`` is None if it does not."""
        matched = identity is not None
        self._rules.append(
            RuleTrace(
                rule=name,
                source=source_words(source),
                matched=matched,
                identity=identity or "",
                reason=reason,
                hint=hint,
            )
        )

    def entry(
        self, rule: str, entry: str, *, reason: str = "", hint: str = "", explanation: Explanation | None = None
    ) -> None:
        """Add the outcome of an entry of a rule that was added; without a reason it grants."""
        made = EntryTrace(entry=entry, granted=not reason, reason=reason, hint=hint, explanation=explanation)
        for index in reversed(range(len(self._rules))):
            if self._rules[index].rule == rule:
                self._rules[index] = replace(self._rules[index], entries=(*self._rules[index].entries, made))
                return

    def policy(self, policy: str, target: str, *, passed: bool, reason: str) -> None:
        """Add the outcome of a policy, with the rules added since the last one."""
        rules = tuple(self._rules)
        self._rules.clear()
        self._policies.append(PolicyTrace(policy=policy, target=target, passed=passed, reason=reason, rules=rules))

    def trace(self) -> Trace:
        """Return the trace."""
        return Trace(policies=tuple(self._policies))


def source_words(source: Source) -> str:
    """Describe a source in short."""
    match source:
        case AnySource():
            return "any source"
        case Spiffe(ids):
            return f"SPIFFE {', '.join(sorted(ids))}"
        case Account(account, _):
            return f"ServiceAccount {account}"
        case Oidc(issuer=issuer, audiences=audiences, scopes=scopes):
            wanted = f" for {', '.join(sorted(audiences))}" if audiences else ""
            scoped = f" with any scope of {' '.join(scopes)}" if scopes else ""
            return f"OIDC {issuer.url}{wanted}{scoped}"


def is_secret(path: str) -> bool:
    """Tell by its path whether a value must not be shown in an explanation."""
    lowered = path.lower()
    return any(word in lowered for word in _SECRET)
