"""Backends that no policy protects, and what is said of them."""

from collections.abc import Iterable, Iterator
from typing import Final

from authplane.base.names import Ref
from authplane.base.problems import Problem, Severity
from authplane.policy.access.guards import Policies, Target
from authplane.policy.access.targets import BACKENDS, Aim

UNPROTECTED: Final = "Unprotected"
SHADOW_ONLY: Final = "ShadowOnly"
_DENIED: Final = "every request is denied. Add an AccessPolicy that names it, or set unprotectedBackends: Allow"
_ALLOWED: Final = "every request is allowed (unprotectedBackends: Allow). Add an AccessPolicy that names it"


def unprotected_backends(policies: Policies, routed: Iterable[Target]) -> tuple[Ref, ...]:
    """Return the Backends that some request reaches without a policy, neither theirs nor one of the Gateway, sorted.

    ``routed`` are the targets that requests come to. One that nothing leads to counts if it has no policy itself.
    """
    bare = {aim.ref for aim, guard in policies.guards.items() if aim.ref.kind in BACKENDS and not guard.policies}
    ways: dict[Ref, list[Target]] = {ref: [] for ref in bare}
    for target in routed:
        if target.backend in ways:
            ways[target.backend].append(target)
    return tuple(sorted(ref for ref, targets in ways.items() if not targets or not _all_guarded(targets, policies)))


def unprotected_problems(policies: Policies, routed: Iterable[Target]) -> Iterator[tuple[Ref, Problem]]:
    """Yield a warning about every such Backend; where nothing at all is allowed there is no need to warn."""
    effect = _ALLOWED if policies.settings.allow_unprotected else _DENIED
    for ref in () if policies.closed else unprotected_backends(policies, routed):
        shadows = policies.guards[Aim(ref)].shadows
        names = ", ".join(str(policy.ref) for policy in shadows)
        who = f"only policies in shadow name it ({names})" if shadows else "no policy protects it"
        reason = SHADOW_ONLY if shadows else UNPROTECTED
        yield ref, Problem((), reason, f"{who}: {effect}", Severity.WARNING)


def _all_guarded(targets: Iterable[Target], policies: Policies) -> bool:
    ways = (policies.way(target) for target in targets)
    # What is not known is denied, whatever the settings say.
    return all(way is None or way.guarded for way in ways)
