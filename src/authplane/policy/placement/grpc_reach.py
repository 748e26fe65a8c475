"""The callers that the policies of a gRPC server could grant calls, by paths and certificates alone.

Never fewer than the policies grant: a caller that is left out is denied, and another may still be denied. So a server
may deny callers that are left out at once, and must call out for the rest.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final, TypeAlias, assert_never

from authplane.core.values import dataclass
from authplane.policy.attached.attachments import Attachment
from authplane.policy.rules.access_settings import Composition
from authplane.policy.rules.rule_model import (
    Account,
    AnySource,
    Entry,
    Inline,
    Oidc,
    Policy,
    Rule,
    Source,
    Spiffe,
    Unusable,
    issuers_of,
)

_METHOD: Final = "POST"
"""That of every call of gRPC."""
_MOST_PATTERNS: Final = 256
_MOST_IDS: Final = 1000
_MOST_PAIRS: Final = 10_000
"""Of paths and IDs: a server gets each ID for each path."""


@dataclass(frozen=True, slots=True)
class Nobody:
    """The call is granted to no sender."""


@dataclass(frozen=True, slots=True)
class Anybody:
    """No known fact excludes a sender."""


@dataclass(frozen=True, slots=True)
class Workloads:
    """Only who has a certificate with one of these SPIFFE ids; there is at least one."""

    ids: frozenset[str]


Callers: TypeAlias = Nobody | Anybody | Workloads


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """Who may come into question: for the exact path of a call, else for its longest prefix, else for all others."""

    paths: tuple[tuple[str, Callers], ...] = ()
    """Sorted by path."""
    prefixes: tuple[tuple[str, Callers], ...] = ()
    """Sorted by prefix; none is empty."""
    others: Callers


ANYBODY_ANYWHERE: Final = Reach(others=Anybody())
NOBODY_ANYWHERE: Final = Reach(others=Nobody())


def build_reach(attachment: Attachment, composition: Composition, *, left: tuple[Policy, ...] | None = None) -> Reach:
    """Return the callers that the policies of a target could grant calls; there is at least one policy.

    With ``left``, the remaining policies, it covers calls that one of those must grant too.
    """
    if any(isinstance(policy, Unusable) for policy in attachment.policies):
        return NOBODY_ANYWHERE
    policies = [policy for policy in attachment.policies if isinstance(policy, Policy)]
    if not policies:
        # Policies that only call an external service allow what it does not deny.
        return ANYBODY_ANYWHERE
    patterns = {pattern for policy in policies for pattern in _patterns(policy)}
    join = _both if composition is Composition.ALL else _either

    def callers(covers: Callable[[str], bool]) -> Callers:
        found = _joined((_of_policy(policy, covers) for policy in policies), join)
        if left is not None:
            found = _both(found, _joined((_of_policy(policy, covers) for policy in left), _either, Nobody()))
        # Only the policy server can tell a caller that it needs a token.
        known = isinstance(found, Workloads) and not attachment.uses_tokens and len(found.ids) <= _MOST_IDS
        return found if known or isinstance(found, Nobody) else Anybody()

    ids = sum(len(each.by_id) for each in policies)
    if len(patterns) > _MOST_PATTERNS or len(patterns) * ids > _MOST_PAIRS:
        # A server would be told too much: who comes into question for one path does so for all.
        return Reach(others=callers(lambda _: True))
    exact = sorted(each for each in patterns if not each.endswith("*"))
    prefixes = sorted(each[:-1] for each in patterns if each.endswith("*"))
    return _without_repetition(
        Reach(
            paths=tuple((path, callers(partial(_is_covered, path))) for path in exact),
            prefixes=tuple((prefix, callers(partial(_is_all_covered, prefix))) for prefix in prefixes),
            others=callers(lambda _: False),
        )
    )


def _patterns(policy: Policy) -> Iterator[str]:
    for rule in policy.rules:
        for entry in rule.entries:
            yield from entry.paths if isinstance(entry, Inline) else ()


def _is_covered(path: str, pattern: str) -> bool:
    return path.startswith(pattern[:-1]) if pattern.endswith("*") else path == pattern


def _is_all_covered(prefix: str, pattern: str) -> bool:
    """Tell whether a pattern is for every path that begins so."""
    return pattern.endswith("*") and prefix.startswith(pattern[:-1])


def _of_policy(policy: Policy, covers: Callable[[str], bool]) -> Callers:
    granting = (rule for rule in policy.rules if any(_may_grant(entry, covers) for entry in rule.entries))
    return _joined((_of_source(rule) for rule in granting), _either, Nobody())


def _may_grant(entry: Entry, covers: Callable[[str], bool]) -> bool:
    if not isinstance(entry, Inline):
        return True
    if entry.methods and _METHOD not in entry.methods:
        return False
    return not entry.paths or any(map(covers, entry.paths))


def _of_source(rule: Rule) -> Callers:
    source: Source = rule.source
    match source:
        case AnySource() | Oidc():
            return Anybody()
        case Spiffe(ids=ids):
            return Anybody() if issuers_of(source) else _workloads(ids)
        case Account(spiffe_id=spiffe_id):
            return Anybody() if issuers_of(source) else _workloads(frozenset({spiffe_id}))
        case _:
            assert_never(source)


def _workloads(ids: frozenset[str]) -> Callers:
    return Workloads(ids) if ids else Nobody()


def _joined(
    found: Iterable[Callers], join: Callable[[Callers, Callers], Callers], empty: Callers | None = None
) -> Callers:
    joined = empty
    for each in found:
        joined = each if joined is None else join(joined, each)
    return Anybody() if joined is None else joined


def _either(these: Callers, those: Callers) -> Callers:
    match these, those:
        case (Nobody(), other) | (other, Nobody()):
            return other
        case Workloads(ids=some), Workloads(ids=more):
            return Workloads(some | more)
        case _:
            return Anybody()


def _both(these: Callers, those: Callers) -> Callers:
    match these, those:
        case (Anybody(), other) | (other, Anybody()):
            return other
        case Workloads(ids=some), Workloads(ids=more):
            return _workloads(some & more)
        case _:
            return Nobody()


def _without_repetition(reach: Reach) -> Reach:
    """Leave out what says nothing of its own: all that is in question is the same everywhere."""
    every = {callers for _, callers in (*reach.paths, *reach.prefixes)}
    return Reach(others=reach.others) if every <= {reach.others} else reach
