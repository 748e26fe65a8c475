"""Backends that no policy protects, and the warnings about them."""

from collections.abc import Iterable, Iterator
from typing import Final

from authplane.core.names import Ref
from authplane.core.problems import Problem, Severity
from authplane.policy.attached.attachments import Policies, RequestTarget
from authplane.policy.rules.policy_targets import BACKENDS, PolicyTarget

UNPROTECTED: Final = "Unprotected"
SHADOW_ONLY: Final = "ShadowOnly"
_DENIED: Final = (
    "Add an AccessPolicy that names it, or set spec.unprotectedBackends of the AuthplaneConfiguration to Allow."
)
_ALLOWED: Final = "Add an AccessPolicy that names it."


def unprotected_backends(policies: Policies, routed: Iterable[RequestTarget]) -> tuple[Ref, ...]:
    """Return the Backends that some request reaches without a policy, neither theirs nor one of the Gateway, sorted.

    ``routed`` are the targets that requests reach. A Backend that no request reaches counts if it has no policy itself.
    """
    return tuple(_open_ways(policies, routed))


def unprotected_problems(policies: Policies, routed: Iterable[RequestTarget]) -> Iterator[tuple[Ref, Problem]]:
    """Yield a warning about every such Backend; where nothing at all is allowed there is no need to warn."""
    allowed = policies.settings.allow_unprotected
    verb, advice = ("allows", _ALLOWED) if allowed else ("denies", _DENIED)
    why = ", because unprotectedBackends is Allow" if allowed else ""
    for ref, ways in () if policies.closed else _open_ways(policies, routed).items():
        shadows = policies.attachments[PolicyTarget(ref)].shadows
        names = ", ".join(str(policy.ref) for policy in shadows)
        who = (
            f"Only policies in shadow mode name this target ({names})" if shadows else "No policy protects this target"
        )
        reason = SHADOW_ONLY if shadows else UNPROTECTED
        yield (
            ref,
            Problem((), reason, f"{who}, so authplane {verb} every request{ways}{why}. {advice}", Severity.WARNING),
        )


def _open_ways(policies: Policies, routed: Iterable[RequestTarget]) -> dict[Ref, str]:
    """Return the Backends, sorted, with the targets that have no policy, if other targets of the Backend have one."""
    bare = {
        aim.ref
        for aim, attachment in policies.attachments.items()
        if aim.ref.kind in BACKENDS and not attachment.policies
    }
    ways: dict[Ref, list[RequestTarget]] = {ref: [] for ref in sorted(bare)}
    for target in routed:
        if target.backend in ways:
            ways[target.backend].append(target)
    found: dict[Ref, str] = {}
    for ref, targets in ways.items():
        unguarded = [each for each in targets if not _is_guarded(each, policies)]
        if unguarded or not targets:
            names = sorted({str(PolicyTarget(each.gateway, each.section)) for each in unguarded if each.gateway})
            found[ref] = f" through {', '.join(names)}" if names and len(unguarded) < len(targets) else ""
    return found


def _is_guarded(target: RequestTarget, policies: Policies) -> bool:
    chain = policies.chain(target)
    # What is not known is denied, whatever the settings say.
    return chain is None or chain.guarded
