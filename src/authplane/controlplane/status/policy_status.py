"""Adds the status of policies, and of their targets, to the other statuses."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple

from authplane.controlplane.status.access_policy_status import (
    NOT_SERVED,
    Ancestor,
    ancestor_ref,
    build_ancestors,
    build_target_conditions,
)
from authplane.controlplane.status.access_policy_status import Condition as PolicyCondition
from authplane.controlplane.status.enforced_condition import enforced_condition
from authplane.controlplane.status.remembered_enforcement import RememberedEnforcement
from authplane.controlplane.status.resource_status import (
    AncestorStatus,
    Condition,
    Status,
    outdated_condition,
    valid_condition,
)
from authplane.controlplane.status.tls_policy_status import tls_policy_statuses
from authplane.core.names import Ref
from authplane.core.problems import Problem
from authplane.policy.attached.attachments import RequestTarget
from authplane.policy.attached.unprotected import unprotected_backends
from authplane.policy.compile.compile_policies import Compiled, PolicyStanding, Standing
from authplane.policy.placement.target_routes import TargetRoutes
from authplane.policy.rules.policy_targets import BACKENDS, GROUPS
from authplane.resources.kinds.agentic import XAccessPolicyV0
from authplane.resources.loaded_resources import Loaded

_GROUP: Final = "agentic.networking.x-k8s.io"


class Observed(NamedTuple):
    """The state of policies besides the documents."""

    passages: Callable[[], TargetRoutes]
    """Finds the targets that requests reach, with their policies."""
    routed: tuple[RequestTarget, ...] = ()
    """The targets that requests reach, whether they are checked or not."""
    told: RememberedEnforcement | None = None
    """The conditions of the last generation: if it has them all, `passages` is not needed."""
    without_keys: Mapping[str, str] = MappingProxyType({})
    """The issuers whose keys could not be fetched, by address, and why."""


def with_policies(
    statuses: Iterable[Status], loaded: Loaded, compiled: Compiled, observed: Observed
) -> tuple[Status, ...]:
    """Add the status of every policy of either kind, and say of Backends how they are protected."""
    known = {status.ref: status for status in statuses}
    unprotected = frozenset(unprotected_backends(compiled.policies, observed.routed))
    for ref, status in known.items():
        if ref.kind in BACKENDS and ref not in loaded.resources.broken:
            known[ref] = _protected(status, loaded, compiled, unprotected)
    for ref, problems in compiled.problems.items():
        if ref.kind in GROUPS and ref in known:
            known[ref] = _with_problems(known[ref], problems)
    for ref, standing in compiled.standings.items():
        known[ref] = _policy(standing, known, loaded, compiled, observed)
    known |= {status.ref: status for status in tls_policy_statuses(loaded, compiled)}
    return tuple(known[ref] for ref in sorted(known))


def _with_problems(status: Status, problems: tuple[Problem, ...]) -> Status:
    """Report what is wrong with what a target chooses; a document that is not the newest has a condition already."""
    if any(each.type == "Valid" for each in status.conditions):
        return status
    return replace(status, conditions=(*status.conditions, valid_condition(status.ref, problems)))


def _protected(status: Status, loaded: Loaded, compiled: Compiled, unprotected: Collection[Ref]) -> Status:
    made = build_target_conditions(compiled, loaded.resources, status.ref, exposed=status.ref in unprotected)
    found = {each.type: each for each in made}
    conditions = tuple(
        _condition(found[each.type]) if each.type == "Protected" and each.type in found else each
        for each in status.conditions
    )
    return replace(status, conditions=conditions)


def _enforced(standing: PolicyStanding, compiled: Compiled, observed: Observed, at: Standing) -> PolicyCondition:
    def tell() -> PolicyCondition:
        return enforced_condition(standing, at, compiled.policies, observed.passages())

    return observed.told.ensure(standing, at, tell) if observed.told is not None else tell()


def _policy(
    standing: PolicyStanding, known: Mapping[Ref, Status], loaded: Loaded, compiled: Compiled, observed: Observed
) -> Status:
    ref = standing.ref
    ancestors = tuple(
        AncestorStatus(ref=tuple(ancestor_ref(each.aim).items()), conditions=tuple(map(_condition, each.conditions)))
        for each in _ancestors(standing, known, compiled, observed)
    )
    return Status(
        ref=ref,
        api_version=f"{_GROUP}/{_version(ref, loaded)}",
        generation=standing.generation,
        conditions=(outdated_condition(),) if ref in loaded.last_good else (),
        ancestors=ancestors,
        stored=loaded.resources.stored_ancestors.get(ref, ()),
    )


def _ancestors(
    standing: PolicyStanding, known: Mapping[Ref, Status], compiled: Compiled, observed: Observed
) -> Iterator[Ancestor]:
    """Return the entries of a policy: it is programmed where its target is."""
    enforced = partial(_enforced, standing, compiled, observed)
    for target in standing.targets:
        status = known.get(target.aim.ref)
        conditions = status.conditions if status is not None else ()
        programmed = next((_told(each) for each in conditions if each.type == "Programmed"), NOT_SERVED)
        yield from build_ancestors(
            replace(standing, targets=(target,)),
            programmed=programmed,
            enforced=enforced,
            without_keys=observed.without_keys,
        )


def _version(ref: Ref, loaded: Loaded) -> str:
    written = loaded.resources.x_access_policies.get(ref.object_name) if ref.kind == "XAccessPolicy" else None
    return "v0alpha0" if isinstance(written, XAccessPolicyV0) else "v1alpha1"


def _condition(made: PolicyCondition) -> Condition:
    return Condition(type=made.type, status=made.status, reason=made.reason, message=made.message)


def _told(known: Condition) -> PolicyCondition:
    return PolicyCondition(type=known.type, status=known.status, reason=known.reason, message=known.message)
