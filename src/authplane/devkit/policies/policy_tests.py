"""Tests of policies: requests, each with the decision that is expected."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from authplane.core.names import Ref
from authplane.core.problems import Problem
from authplane.core.values import dataclass
from authplane.devkit.policies.check_records import check_record
from authplane.devkit.policies.checking import Circumstances, Enforced, check, enforce
from authplane.devkit.policies.policy_folders import load_paths, match_paths
from authplane.devkit.policies.request_files import AskedRequest, parse_request
from authplane.devkit.policies.request_routes import find_way
from authplane.devkit.strict_files import Text, located, read_as, take
from authplane.policy.attached.attachments import rules_of
from authplane.policy.rules.rule_model import AnyPolicy, Policy
from authplane.resources.documents import Finding, Place
from authplane.resources.typed.schema import Length, OneOf, OneOrMany, Range
from authplane.resources.typed.shapes import Report
from authplane.resources.yaml.nodes import Items, Node
from authplane.sources.runtime.listing import shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """The expected decision for a request; a field that is left out matches anything."""

    decision: Annotated[str, OneOf(("allow", "deny", "unavailable"))]
    http_status: Annotated[int, Range(200, 599)] | None = None
    policy: str | None = None
    """The name of the policy, or its last parts: ``AccessPolicy/shop/tools``, ``shop/tools`` or ``tools``."""
    rule: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _WrittenCase:
    name: Annotated[str, Length(1, 256)]
    request: str
    """`parse_request` reads it."""
    expect: Expectation


@dataclass(frozen=True, slots=True, kw_only=True)
class _WrittenTests:
    policies: Annotated[tuple[Annotated[str, Length(1)], ...], OneOrMany()] = ()
    cases: str
    """`_parse_cases` reads them."""


class PolicyCase(NamedTuple):
    """A request and the expected decision."""

    name: str
    asked: AskedRequest
    expect: Expectation
    place: Place


class CaseFile(NamedTuple):
    """The cases of a file and the policies under test; or the errors of the file."""

    text: Text
    policies: tuple[str, ...]
    """Files, folders and patterns; empty means all resources of the tested folder."""
    cases: tuple[PolicyCase, ...]
    findings: tuple[Finding, ...]


class Result(NamedTuple):
    """The result of a case."""

    case: PolicyCase
    record: dict[str, Any]
    differences: tuple[str, ...]
    """How the decision differs from the expected one; empty if the case passed."""


@dataclass(frozen=True, slots=True, order=True)
class RuleName:
    """A rule and its place in a file."""

    place: Place
    policy: str
    rule: str
    grants: bool
    """Whether the policies alone can grant a request by it: no external service decides."""


class Outcome(NamedTuple):
    """The results of all cases of a file."""

    results: tuple[Result, ...]
    rules: frozenset[RuleName]
    exercised: frozenset[RuleName]
    """The rules that granted some request. Of one that cannot grant any by itself, a sender of its source suffices."""


def parse_tests(text: Text) -> CaseFile:
    """Read a test file and report every problem."""
    if text.root is None:
        return CaseFile(text, (), (), text.findings)
    report = Report()
    root, cases = take(text.root, "cases")
    written = read_as(_WrittenTests, root, (), report)
    read = tuple(_parse_cases(cases, text, report)) if cases is not None else ()
    findings = located(text, report.problems)
    return CaseFile(text, written.policies if written is not None else (), () if findings else read, findings)


def _parse_cases(node: Node, text: Text, report: Report) -> Iterator[PolicyCase]:
    if not isinstance(node, Items) or not node.items:
        report.error(
            ("cases",), "FieldInvalid", "The field is empty or is not a list. Add a list with at least one case."
        )
        return
    names: set[str] = set()
    for index, each in enumerate(node.items):
        path = ("cases", index)
        outer, request = take(each, "request")
        written = read_as(_WrittenCase, outer, path, report)
        asked = None if request is None else parse_request(request, (*path, "request"), text, report)
        if written is None:
            continue
        if written.name in names:
            report.error(
                (*path, "name"),
                "DuplicateName",
                f'Another case has the name "{written.name}". Use a different name for each case.',
            )
        names.add(written.name)
        if asked is not None:
            yield PolicyCase(written.name, asked, written.expect, text.place(path))


class PolicySets:
    """Compiles the policies under test, each set once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known: dict[tuple[Path, ...], Enforced] = {}

    def of(self, file: CaseFile, base: Path) -> Enforced | tuple[Finding, ...]:
        """Return the policies that a test file in ``base`` names, or an error for each name that matches nothing.

        Raises `FolderError` if a folder cannot be read.
        """
        paths: list[Path] = []
        missing: list[Finding] = []
        for index, pattern in enumerate(file.policies):
            found = match_paths(base, pattern)
            paths += found
            if not found:
                path = ("policies", index) if len(file.policies) > 1 else ("policies",)
                message = f'"{pattern}" matches no file or folder in {shown(str(base))}. Correct the path.'
                missing.append(file.text.finding(Problem(path, "FileNotFound", message)))
        if missing:
            return tuple(missing)
        key = tuple(paths) if file.policies else (self._root,)
        if key not in self._known:
            self._known[key] = enforce(load_paths(key))
        return self._known[key]

    def all(self) -> tuple[Enforced, ...]:
        """Return every compiled set."""
        return tuple(self._known.values())


def find_ways(file: CaseFile, enforced: Enforced) -> CaseFile:
    """Add to each case the listener of its request; report the cases that must name one."""
    ways = [(case, find_way(case.asked, enforced, file.text)) for case in file.cases]
    return file._replace(
        cases=tuple(case._replace(asked=way) for case, way in ways if isinstance(way, AskedRequest)),
        findings=tuple(way for _, way in ways if isinstance(way, Finding)),
    )


def run_tests(cases: Iterable[PolicyCase], enforced: Enforced, given: Circumstances) -> Outcome:
    """Decide the requests of all cases and compare the decisions with the expected ones."""
    results: list[Result] = []
    touched: dict[tuple[str, str], bool] = {}
    for case in cases:
        checked = check(enforced.policies, case.asked, given)
        record = check_record(checked, asked=given.answer is not None)
        results.append(Result(case, record, tuple(_differences(case.expect, record))))
        trace = checked.verdict.trace
        found = [(each.policy, each.rules) for each in (trace.policies if trace is not None else ())]
        found += [(each.policy, each.rules) for each in checked.verdict.shadows]
        for policy, rule in ((policy, rule) for policy, rules in found for rule in rules if rule.matched):
            key = (policy, rule.rule)
            touched[key] = touched.get(key, False) or any(entry.granted for entry in rule.entries)
    rules = frozenset(_rules(enforced))
    return Outcome(tuple(results), rules, frozenset(each for each in rules if _is_exercised(each, touched)))


def _is_exercised(rule: RuleName, touched: Mapping[tuple[str, str], bool]) -> bool:
    """Tell whether some case shows what a rule does; ``touched`` has the rules whose source matched, if they granted.

    That a source matches shows little: if expressions read the groups, every token of the issuer matches every rule.
    """
    granted = touched.get((rule.policy, rule.rule))
    return granted is not None and (granted or not rule.grants)


def unexercised(outcomes: Sequence[Outcome]) -> tuple[RuleName, ...]:
    """Return the rules that no case of any file exercised, by place."""
    every = frozenset[RuleName]().union(*(each.rules for each in outcomes))
    return tuple(sorted(every.difference(*(each.exercised for each in outcomes))))


def _differences(expect: Expectation, record: dict[str, Any]) -> Iterator[str]:
    wanted = {
        "decision": expect.decision,
        "httpStatus": expect.http_status,
        "rule": expect.rule,
        "reason": expect.reason,
    }
    for name, value in wanted.items():
        if value is not None and record[name] != value:
            yield f"expected {name} {value}, got {record[name] or 'none'}"
    if expect.policy is not None and not f"/{record['policy']}".endswith(f"/{expect.policy}"):
        yield f"expected policy {expect.policy}, got {record['policy'] or 'none'}"


def _rules(enforced: Enforced) -> Iterator[RuleName]:
    policies: dict[Ref, AnyPolicy] = {
        policy.ref: policy
        for attachment in enforced.policies.attachments.values()
        for policy in (*attachment.policies, *attachment.shadows)
    }
    for ref, policy in policies.items():
        for index, rule in enumerate(rules_of(policy)):
            place = enforced.loaded.place(ref, ("spec", "rules", index))
            grants = isinstance(policy, Policy) and bool(rule.cheap) and not rule.asked
            yield RuleName(place, str(ref), rule.name, grants)
