"""Policies with the objects that they refer to."""

from collections.abc import Mapping
from dataclasses import replace

from authplane.core.problems import Problems
from authplane.core.values import dataclass
from authplane.policy.compile.policy_drafts import Draft
from authplane.policy.compile.service_references import resolve
from authplane.policy.rules.backend_tls import BackendTlsPolicies
from authplane.policy.rules.external_service import Destination, ExternalService, Missing
from authplane.policy.rules.rule_model import Asked, Policy, Rule, Screen
from authplane.resources.documents import Resources


@dataclass(frozen=True, slots=True)
class Resolved:
    """A policy, and all that it was made of. While that is unchanged, the policy is the same object."""

    draft: Draft
    found: Mapping[ExternalService, Destination]
    policy: Policy | Screen


def resolve_draft(
    draft: Draft, before: Resolved | None, resources: Resources, tls: BackendTlsPolicies, problems: Problems
) -> Resolved:
    """Look up what a policy refers to; ``before`` is what it came to in the pass before."""
    found: dict[ExternalService, Destination] = {}
    for path, service in draft.asks:
        with problems.at(*path):
            found[service] = resolve(resources, tls, draft.ref, service, problems)
    if before is not None and before.draft is draft and before.found == found:
        return before
    return Resolved(draft, found, _policy(draft, found))


def _policy(draft: Draft, found: Mapping[ExternalService, Destination]) -> Policy | Screen:
    rules = tuple(_with_destinations(rule, found) for rule in draft.rules) if found else draft.rules
    if draft.screen is None:
        return Policy(ref=draft.ref, rules=rules, base=draft.base)
    return Screen(ref=draft.ref, rules=rules, destination=found.get(draft.screen, draft.screen))


def _with_destinations(rule: Rule, found: Mapping[ExternalService, Destination]) -> Rule:
    if not rule.asked:
        return rule
    entries = tuple(
        Asked(found.get(each.destination, each.destination))
        if isinstance(each, Asked) and not isinstance(each.destination, Missing)
        else each
        for each in rule.entries
    )
    return replace(rule, entries=entries)
