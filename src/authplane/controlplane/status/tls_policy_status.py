"""The status of BackendTLSPolicies."""

from collections.abc import Iterator
from typing import Final

from authplane.controlplane.status.resource_status import AncestorStatus, Condition, Status, outdated_condition
from authplane.core.names import ObjectName
from authplane.policy.compile.compile_policies import Compiled
from authplane.policy.rules.backend_tls import TlsPolicyStanding, TlsStanding
from authplane.resources.loaded_resources import Loaded

_VERSION: Final = "gateway.networking.k8s.io/v1"


def tls_policy_statuses(loaded: Loaded, compiled: Compiled) -> Iterator[Status]:
    """Return the status of every policy: an entry for each Service that it names."""
    for standing in compiled.tls.standings:
        outdated = (outdated_condition(),) if standing.ref in loaded.last_good else ()
        yield Status(
            ref=standing.ref,
            api_version=_VERSION,
            generation=standing.generation,
            conditions=outdated,
            ancestors=tuple(_ancestor(each, standing) for each in standing.targets),
            stored=loaded.resources.stored_ancestors.get(standing.ref, ()),
        )
    named = ((ref, targets) for ref, targets in loaded.resources.broken_tls_policies.items() if ref.namespace)
    for ref, targets in named:
        ancestors = tuple(
            AncestorStatus(ref=_reference(each.object_name, ""), conditions=(_UNREADABLE,)) for each in targets or ()
        )
        yield Status(ref=ref, api_version=_VERSION, generation=1, conditions=(), ancestors=ancestors)


_UNREADABLE: Final = Condition(
    type="Accepted", status="False", reason="Invalid", message="The policy cannot be read. Correct its document."
)


def _ancestor(target: TlsStanding, standing: TlsPolicyStanding) -> AncestorStatus:
    accepted = Condition(
        type="Accepted",
        status=str(target.reason == "Accepted"),
        reason=target.reason,
        message=target.message,
    )
    unresolved = standing.unresolved
    resolved = Condition(
        type="ResolvedRefs",
        status=str(not unresolved),
        reason=unresolved[0].reason if unresolved else "ResolvedRefs",
        message="; ".join(map(str, unresolved)) or "All references of the policy are resolved.",
    )
    return AncestorStatus(ref=_reference(target.service, target.section), conditions=(accepted, resolved))


def _reference(service: ObjectName, section: str) -> tuple[tuple[str, str | int], ...]:
    whole = (("group", ""), ("kind", "Service"), ("namespace", service.namespace), ("name", service.name))
    return (*whole, ("sectionName", section)) if section else whole
