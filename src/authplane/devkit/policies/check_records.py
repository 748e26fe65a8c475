"""Explains decisions: as JSON for programs, as a tree for people."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, assert_never

from authplane.cel.check.expression_outcome import Failed
from authplane.cel.explain.explain_expression import Explanation, Hidden, Part, Shown
from authplane.core.problems import printable
from authplane.devkit.policies.checking import Checked, would_words
from authplane.policy.check.decision import Allow, Decision, Deny, Unavailable
from authplane.policy.explain.trace import EntryTrace, PolicyTrace, RuleTrace
from authplane.policy.verdicts.verdict import Shadowed

_NO_ANSWER: Final = "external:no_answer"
_NOT_ASKED: Final = "external:not_asked"
_UNAVAILABLE: Final = 503


class Branch(NamedTuple):
    """A line of a tree and the branches below it."""

    text: str
    below: tuple["Branch", ...] = ()


def decision_word(decision: Decision) -> str:
    """Name a decision."""
    match decision:
        case Allow():
            return "allow"
        case Deny():
            return "deny"
        case Unavailable():
            return "unavailable"
        case _:
            assert_never(decision)


def http_status(decision: Decision) -> int | None:
    """Return the HTTP status of a denial; None if the request is allowed."""
    match decision:
        case Allow():
            return None
        case Deny(http_status=status):
            return status
        case Unavailable():
            return _UNAVAILABLE
        case _:
            assert_never(decision)


def reason_of(reason: str, *, asked: bool) -> str:
    """Return the reason; a service that was not called has another reason than one that did not answer."""
    return _NOT_ASKED if reason == _NO_ANSWER and not asked else reason


def check_record(checked: Checked, *, asked: bool) -> dict[str, Any]:
    """Describe a decision; ``asked`` is true if external services were called."""
    verdict = checked.verdict
    grounds = verdict.grounds
    policies = verdict.trace.policies if verdict.trace is not None else ()
    return {
        "decision": decision_word(verdict.decision),
        "httpStatus": http_status(verdict.decision),
        "policy": grounds.policy,
        "rule": grounds.rule,
        "entry": grounds.entry,
        "reason": reason_of(grounds.reason, asked=asked),
        "identity": grounds.identity,
        "mcpMethod": grounds.mcp_method,
        "tool": grounds.tool,
        "notes": list(checked.notes),
        "trace": [_policy_record(each, asked=asked) for each in policies],
        "shadow": [_shadow_record(each, asked=asked) for each in verdict.shadows],
    }


def _policy_record(policy: PolicyTrace, *, asked: bool) -> dict[str, Any]:
    return {
        "policy": policy.policy,
        "target": policy.target,
        "passed": policy.passed,
        "reason": reason_of(policy.reason, asked=asked),
        "rules": [_rule_record(each, asked=asked) for each in policy.rules],
    }


def _shadow_record(shadow: Shadowed, *, asked: bool) -> dict[str, Any]:
    return {
        "policy": shadow.policy,
        "target": shadow.target,
        "outcome": shadow.would.value,
        "rule": shadow.rule,
        "entry": shadow.entry,
        "reason": shadow.reason,
        "rules": [_rule_record(each, asked=asked) for each in shadow.rules],
    }


def _rule_record(rule: RuleTrace, *, asked: bool) -> dict[str, Any]:
    return {
        "rule": rule.rule,
        "source": rule.source,
        "matched": rule.matched,
        "identity": rule.identity,
        "reason": rule.reason,
        "hint": rule.hint,
        "entries": [_entry_record(each, asked=asked) for each in rule.entries],
    }


def _entry_record(entry: EntryTrace, *, asked: bool) -> dict[str, Any]:
    record: dict[str, Any] = {
        "entry": entry.entry,
        "granted": entry.granted,
        "reason": reason_of(entry.reason, asked=asked),
        "hints": list(_hints(entry)),
    }
    if entry.explanation is not None:
        record["expression"] = _part_record(entry.explanation.root)
    return record


def _part_record(part: Part) -> dict[str, Any]:
    record: dict[str, Any] = {"text": part.text, "line": part.line, "column": part.column}
    match part.value:
        case Shown(text):
            record["value"] = text
        case Hidden():
            record["hidden"] = True
        case Failed(code):
            record["error"] = code.value
        case _:
            assert_never(part.value)
    return record | {"parts": [_part_record(each) for each in part.parts]}


def check_tree(checked: Checked, *, asked: bool) -> tuple[Branch, ...]:
    """Describe every evaluated policy, rule and entry in order, with fixes."""
    trace = checked.verdict.trace
    verdict = checked.verdict
    undecided = verdict.grounds.reason if isinstance(verdict.decision, Unavailable) else None
    traces = trace.policies if trace is not None else ()
    policies = tuple(_policy_branch(each, undecided, asked=asked) for each in traces)
    shadows = tuple(_shadow_branch(each, asked=asked) for each in checked.verdict.shadows)
    return (*(policies or (Branch("no policy was evaluated"),)), *shadows)


def _policy_branch(policy: PolicyTrace, undecided: str | None, *, asked: bool) -> Branch:
    """Describe a policy; ``undecided`` is the reason why the request has no decision."""
    denies = "makes no decision" if policy.reason == undecided else "denies the request"
    said = "grants the request" if policy.passed else denies
    reason = reason_of(policy.reason, asked=asked)
    rules = tuple(_rule_branch(each, asked=asked) for each in policy.rules)
    return Branch(f"{policy.policy} at {policy.target}: {said} ({reason})", rules)


def _shadow_branch(shadow: Shadowed, *, asked: bool) -> Branch:
    rules = tuple(_rule_branch(each, asked=asked) for each in shadow.rules)
    said = f"shadow mode, {would_words(shadow.would)} ({shadow.reason})"
    return Branch(f"{shadow.policy} at {shadow.target}: {said}", rules)


def _rule_branch(rule: RuleTrace, *, asked: bool) -> Branch:
    who = f" as {rule.identity}" if rule.identity else ""
    said = f"matches{who}" if rule.matched else f"does not match ({rule.reason})"
    below = [_entry_branch(each, asked=asked) for each in rule.entries]
    below += [Branch(f"fix: {rule.hint}")] if rule.hint else []
    return Branch(f"rule {rule.rule}: {rule.source} {said}", tuple(below))


def _entry_branch(entry: EntryTrace, *, asked: bool) -> Branch:
    said = "grants" if entry.granted else f"does not grant ({reason_of(entry.reason, asked=asked)})"
    below = [_part_branch(entry.explanation.root)] if entry.explanation is not None else []
    below += [Branch(f"fix: {hint}") for hint in _hints(entry)]
    return Branch(f"entry {entry.entry} {said}", tuple(below))


def _hints(entry: EntryTrace) -> Iterator[str]:
    explanation: Explanation | None = entry.explanation
    if entry.hint:
        yield entry.hint
    if explanation is not None and not entry.granted:
        yield from explanation.hints


def _part_branch(part: Part) -> Branch:
    match part.value:
        case Shown(text):
            said = f"= {text}"
        case Hidden():
            said = "= (hidden)"
        case Failed() as failed:
            said = f"fails: {failed.message}"
        case _:
            assert_never(part.value)
    return Branch(f"{part.text} {said}", tuple(_part_branch(each) for each in part.parts))


def tree_lines(branches: tuple[Branch, ...], before: str = "") -> Iterator[str]:
    """Yield the lines of a tree; control characters are escaped."""
    for index, (text, below) in enumerate(branches):
        last = index == len(branches) - 1
        yield f"{before}{'└─' if last else '├─'} {printable(text)}"
        yield from tree_lines(below, f"{before}{'   ' if last else '│  '}")
