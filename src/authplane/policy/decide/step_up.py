"""The scopes with which a request would be granted, where only scopes are missing.

A client that asks for a new token gets the scopes that it names, and perhaps no others. So a challenge names those of
all policies that the request needs, at once: the ones that are missing, and the ones that the token has.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeAlias

from authplane.policy.attached.attachments import Attachment
from authplane.policy.decide.evaluate_rules import judge
from authplane.policy.decide.request_case import Case
from authplane.policy.identity.tokens.check_claims import scopes_of
from authplane.policy.identity.tokens.token_outcome import Verified
from authplane.policy.rules.access_settings import Composition
from authplane.policy.rules.rule_model import Oidc, Policy
from authplane.policy.verdicts.verdict import NotPassed, Passed

_Needed: TypeAlias = tuple[str, ...] | None
"""The scopes that a policy requires; None if no scope helps."""


def with_all_scopes(result: NotPassed, case: Case) -> NotPassed:
    """Return a denial for missing scopes with those of all policies; with none if another policy denies anyway."""
    found: list[str] = []
    with _unnoted(case):
        for attachment in case.chain.attachments:
            needed = _of_guard(attachment, case)
            if needed is None:
                return replace(result, scopes=())
            found += needed
    return replace(result, scopes=tuple(dict.fromkeys(found)))


def _of_guard(attachment: Attachment, case: Case) -> _Needed:
    needs = [_of_policy(policy, case) for policy in attachment.policies if isinstance(policy, Policy)]
    known = [each for each in needs if each is not None]
    if needs and case.settings.composition is Composition.ANY:
        return known[0] if known else None
    return tuple(scope for each in known for scope in each) if len(known) == len(needs) else None


def _of_policy(policy: Policy, case: Case) -> _Needed:
    result = judge(policy, case)
    match result:
        case Passed(rule=rule):
            return _held(policy, rule, case)
        case NotPassed(scopes=scopes, unavailable=unavailable):
            return scopes if scopes or unavailable else None
        case _:
            # Only an external service knows.
            result.close()
            return ()


def _held(policy: Policy, rule: str, case: Case) -> tuple[str, ...]:
    """Return the scopes of a token that a rule requires."""
    token = case.evidence.token()
    if not isinstance(token, Verified):
        return ()
    asked = (each.source.scopes for each in policy.rules if each.name == rule and isinstance(each.source, Oidc))
    held = scopes_of(token.claims)
    return tuple(scope for scopes in asked for scope in scopes if scope in held)


@contextmanager
def _unnoted(case: Case) -> Iterator[None]:
    """Evaluate policies again without adding to traces and counts."""
    tracer, failures = case.tracer, list(case.failures)
    case.tracer = None
    try:
        yield
    finally:
        case.tracer, case.failures = tracer, failures
