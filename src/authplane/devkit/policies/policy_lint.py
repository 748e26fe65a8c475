"""Finds errors and probably unintended grants in policies."""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from authplane.core.names import Ref
from authplane.core.problems import Path, Problem, Severity
from authplane.devkit.policies.checking import Enforced
from authplane.policy.attached.attachments import rules_of
from authplane.policy.attached.unprotected import SHADOW_ONLY, unprotected_problems
from authplane.policy.rules.access_settings import Composition
from authplane.policy.rules.rule_model import (
    Account,
    AllTools,
    AnyPolicy,
    AnySource,
    Asked,
    Entry,
    Everything,
    Expression,
    Inline,
    Oidc,
    Policy,
    Rule,
    Source,
    Spiffe,
    Tools,
)
from authplane.resources.catalogue import POLICIES, TLS_POLICY
from authplane.resources.documents import Finding, Place

KINDS: Final = POLICIES | {"Backend", "XBackend", "AuthplaneConfiguration", TLS_POLICY}
"""Kinds that policies consist of; `validate` reports problems of other kinds."""


class _Remark(NamedTuple):
    ref: Ref
    path: Path
    reason: str
    message: str


def lint_policies(enforced: Enforced) -> tuple[Finding, ...]:
    """Return the problems of policies and warnings about probably unintended grants, sorted by place."""
    loaded, compiled = enforced.loaded, enforced.compiled
    found = [finding for finding in loaded.findings if finding.ref is None or finding.ref.kind in KINDS]
    found += [loaded.finding(ref, problem) for ref, problems in compiled.problems.items() for problem in problems]
    closed = compiled.policies.closed
    if closed:
        found.append(
            Finding(
                Place(".", 0, 0),
                None,
                Problem(
                    (),
                    "NothingAllowed",
                    f"authplane denies all requests: {closed.rstrip('.')}. Fix the errors that authplane"
                    " validate lists.",
                ),
            )
        )
    found += (
        Finding(loaded.place(ref), ref, problem)
        for ref, problem in unprotected_problems(compiled.policies, enforced.routed)
    )
    for remark in _remarks(enforced):
        problem = Problem(remark.path, remark.reason, remark.message, Severity.WARNING)
        found.append(Finding(loaded.place(remark.ref, remark.path), remark.ref, problem))
    return tuple(sorted(dict.fromkeys(found), key=lambda each: (each.place, each.problem.reason, each.problem.message)))


def _remarks(enforced: Enforced) -> Iterator[_Remark]:
    policies: dict[Ref, AnyPolicy] = {
        policy.ref: policy
        for attachment in enforced.policies.attachments.values()
        for policy in (*attachment.policies, *attachment.shadows)
    }
    for policy in policies.values():
        yield from _policy_remarks(policy)
    yield from _target_remarks(enforced)
    yield from _setting_remarks(enforced)


def _policy_remarks(policy: AnyPolicy) -> Iterator[_Remark]:
    rules = rules_of(policy)
    grants = isinstance(policy, Policy)
    for index, rule in enumerate(rules):
        path: Path = ("spec", "rules", index)
        if grants and isinstance(rule.source, AnySource) and any(not isinstance(each, Asked) for each in rule.entries):
            said = (
                "This rule has no source and grants access to everyone, including unauthenticated clients. Add a"
                " source, or ignore this if intended."
            )
            yield _Remark(policy.ref, path, "AnybodyMay", said)
        covering = next((each for each in rules[:index] if rule.entries and _covers_rule(each, rule)), None)
        if covering is not None:
            said = (
                f"Rule {covering.name!r} already grants everything that this rule grants. Remove one of the two rules."
            )
            yield _Remark(policy.ref, path, "RuleUnreachable", said)
        for later in _repeated(rule):
            said = (
                f"Another entry of rule {rule.name!r} already grants everything that this entry grants. Remove one"
                " of them."
            )
            yield _Remark(policy.ref, (*path, "authorization", later), "EntryUnreachable", said)


def _repeated(rule: Rule) -> Iterator[int]:
    for later, entry in enumerate(rule.entries):
        if any(_covers_entry(each, entry, same_source=True) for each in rule.entries[:later]):
            yield later


def _covers_rule(earlier: Rule, later: Rule) -> bool:
    """Tell whether an earlier rule grants everything that a later one grants, to the same identities."""
    if later.base and not earlier.base:
        return False
    same = earlier.source == later.source
    return _covers_source(earlier.source, later.source) and all(
        any(_covers_entry(one, other, same_source=same) for one in earlier.entries) for other in later.entries
    )


def _covers_source(wider: Source, other: Source) -> bool:
    match wider, other:
        case AnySource(), _:
            return True
        case Spiffe(ids), Spiffe(others):
            return others <= ids
        case Account(), Account():
            return wider == other
        case Oidc(), Oidc():
            return (
                other.names <= wider.names
                and _covers_choice(wider.audiences, other.audiences)
                and _covers_choice(wider.scopes, other.scopes)
            )
        case _:
            return False


def _covers_choice(wider: Iterable[str], other: Iterable[str]) -> bool:
    """Compare choices; an empty one requires nothing."""
    some, fewer = set(wider), set(other)
    return not some or (bool(fewer) and fewer <= some)


def _covers_entry(wider: Entry, other: Entry, *, same_source: bool) -> bool:
    match wider, other:
        case Everything(), _:
            return not isinstance(other, Asked)
        case Tools() | AllTools(), Tools() | AllTools():
            return isinstance(wider, AllTools) or (isinstance(other, Tools) and other.names <= wider.names)
        case Expression(program=program), Expression(program=another):
            # Another source means another identity.
            return program.text == another.text and (same_source or "identity" not in program.variables)
        case Inline(), Inline():
            return wider == other
        case Asked(), Asked():
            return same_source and wider == other
        case _:
            return False


def _target_remarks(enforced: Enforced) -> Iterator[_Remark]:
    settings = enforced.policies.settings
    for aim, attachment in enforced.policies.attachments.items():
        if attachment.shadows and not attachment.policies and not aim.section and aim.ref.kind == "Gateway":
            names = ", ".join(str(policy.ref) for policy in attachment.shadows)
            yield _Remark(
                aim.ref,
                (),
                SHADOW_ONLY,
                f"Only policies in shadow mode target this resource ({names}), so none of them denies a"
                " request. Set mode: Enforce in one of them.",
            )
        granting = [policy for policy in attachment.policies if isinstance(policy, Policy)]
        if settings.composition is Composition.ANY and len(granting) > 1 and not aim.section:
            said = (
                f"{len(granting)} policies protect this target. With policyComposition: Any, it is enough if"
                " one of them grants a request. Set policyComposition: All, or ignore this if intended."
            )
            yield _Remark(aim.ref, (), "AnyPolicySuffices", said)


def _setting_remarks(enforced: Enforced) -> Iterator[_Remark]:
    configuration = enforced.loaded.resources.configuration
    for index, issuer in enumerate(configuration.spec.issuers if configuration is not None else ()):
        if configuration is not None and issuer.allow_private_network:
            ref = Ref("AuthplaneConfiguration", configuration.metadata.namespace, configuration.metadata.name)
            said = (
                f"allowPrivateNetwork lets authplane fetch keys of issuer {issuer.url} from private addresses. An"
                " attacker who controls the DNS records of the issuer can supply keys. Remove this field in production."
            )
            yield _Remark(ref, ("spec", "issuers", index, "allowPrivateNetwork"), "PrivateIssuer", said)
