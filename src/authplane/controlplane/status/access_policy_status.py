"""The status of policies and of their targets, as Kubernetes stores it."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from authplane.core.names import Ref
from authplane.core.problems import Problem
from authplane.core.values import dataclass
from authplane.policy.attached.attachments import Attachment
from authplane.policy.compile.compile_policies import (
    STATUS_FULL,
    Compiled,
    PolicyStanding,
    Standing,
)
from authplane.policy.rules.policy_targets import BACKENDS, GROUPS, PolicyTarget
from authplane.policy.rules.rule_model import Unusable
from authplane.resources.documents import Resources
from authplane.resources.kinds.agentic import Backend, XBackend
from authplane.resources.mcp_places import McpHost, McpUrl, mcp_place

_LONGEST_MESSAGE: Final = 32_768
_GATEWAY: Final = "gateway.networking.k8s.io"
_AGENTIC: Final = "agentic.networking.x-k8s.io"


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One thing that is true, false or unknown."""

    type: str
    status: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ancestor:
    """The conditions of a policy at one target."""

    aim: PolicyTarget
    conditions: tuple[Condition, ...]


_IN_SHADOW: Final = "The policy is in shadow mode and denies nothing. Correct the policy."
_DENIES: Final = "authplane denies every request to the target until the policy is accepted. Correct the policy."

NOT_SERVED: Final = Condition(
    type="Programmed",
    status="Unknown",
    reason="NotServed",
    message="No control plane serves this folder. Run 'authplane control' with this folder.",
)


def build_ancestors(
    standing: PolicyStanding,
    *,
    programmed: Condition = NOT_SERVED,
    enforced: Callable[[Standing], Condition] | None = None,
    without_keys: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Ancestor, ...]:
    """Return the entries of a policy's status, one for each target.

    ``programmed`` says whether proxies accept it, ``enforced`` its placement at a target (no condition without it);
    ``without_keys`` are the issuers whose keys could not be fetched, by address, and why.
    """
    return tuple(
        Ancestor(
            aim=each.aim,
            conditions=(
                *_conditions(each, standing, programmed, without_keys),
                *((enforced(each),) if enforced is not None else ()),
            ),
        )
        for each in standing.targets
    )


def build_target_conditions(
    compiled: Compiled, resources: Resources, ref: Ref, *, exposed: bool = True
) -> tuple[Condition, ...]:
    """Return the conditions of a backend or Gateway that is a target of policies.

    Unless it is ``exposed``, policies of Gateways apply to every route to a backend that has none of its own.
    """
    attachment = compiled.policies.attachments.get(PolicyTarget(ref))
    open_ = compiled.policies.settings.allow_unprotected or ref.kind not in BACKENDS
    protected = (_protected(attachment, exposed=exposed, allow=open_),) if attachment is not None else ()
    table: Mapping[Any, Backend | XBackend]
    table = resources.backends if ref.kind == "Backend" else resources.x_backends
    backend = table.get(ref.object_name) if ref.kind in BACKENDS else None
    return protected if backend is None else (*protected, _resolved_backend(backend, resources))


def _conditions(
    at: Standing, standing: PolicyStanding, programmed: Condition, without_keys: Mapping[str, str]
) -> tuple[Condition, ...]:
    accepted = _condition("Accepted", at.accepted, at.reason, _with_warnings(at.message, standing.warnings))
    resolved = _resolved(at, standing, without_keys)
    if not at.accepted:
        return accepted, resolved, _condition("Programmed", False, "NotAccepted", _effect(at, standing))
    return accepted, resolved, programmed


def _effect(at: Standing, standing: PolicyStanding) -> str:
    """Describe the effect of a policy that is not accepted."""
    if at.reason == "TargetNotFound":
        return "The target does not exist. Add it, or correct targetRefs."
    return _IN_SHADOW if standing.shadow else _DENIES


def _resolved(at: Standing, standing: PolicyStanding, without_keys: Mapping[str, str]) -> Condition:
    if at.reason == "TargetNotFound":
        return _condition("ResolvedRefs", False, at.reason, at.message)
    if standing.unresolved:
        first = standing.unresolved[0]
        return _condition("ResolvedRefs", False, first.reason, "; ".join(str(each) for each in standing.unresolved))
    missing = [f"{issuer}: {without_keys[issuer]}" for issuer in standing.issuers if issuer in without_keys]
    if missing:
        message = (
            f"The control plane has no keys of {'; '.join(missing)}. It retries automatically. "
            "Check that the control plane can connect to each issuer, and that each issuer serves valid keys."
        )
        return _condition("ResolvedRefs", False, "IssuerUnreachable", message)
    return _condition("ResolvedRefs", True, "ResolvedRefs", "All references of the policy are resolved.")


def _protected(attachment: Attachment, *, exposed: bool, allow: bool) -> Condition:
    unusable = [policy for policy in attachment.policies if isinstance(policy, Unusable)]
    if unusable:
        full = any(policy.reason == STATUS_FULL for policy in unusable)
        names = " ".join(f"{policy.ref}: {policy.message}" for policy in unusable)
        reason = "PolicyStatusFull" if full else "PolicyNotAccepted"
        return _condition("Protected", True, reason, f"authplane denies every request. {names}")
    if attachment.policies:
        names = ", ".join(str(policy.ref) for policy in attachment.policies)
        return _condition("Protected", True, "Protected", f"The target is protected by {names}.")
    if not exposed:
        return _condition(
            "Protected", True, "ProtectedByGateway", "The target is protected by the policies of its Gateways."
        )
    rest = f"authplane {'allows' if allow else 'denies'} requests that no policy of a Gateway covers."
    if allow and attachment.shadows:
        names = ", ".join(str(policy.ref) for policy in attachment.shadows)
        return _condition(
            "Protected",
            False,
            "Shadow",
            f"All policies of the target are in shadow mode: {names}. {rest} Set spec.mode of one of them to Enforce.",
        )
    if allow:
        return _condition("Protected", False, "NoPolicy", f"No policy protects the target. {rest} Add an AccessPolicy.")
    return _condition(
        "Protected", False, "DeniedByDefault", f"No policy protects the target. {rest} Add an AccessPolicy."
    )


def _resolved_backend(backend: Backend | XBackend, resources: Resources) -> Condition:
    mcp, namespace = backend.spec.mcp, backend.metadata.namespace
    if mcp is None:
        return _condition("ResolvedRefs", True, "ResolvedRefs", "A gRPC server has no references.")
    place = mcp_place(mcp)
    if isinstance(place, McpUrl):
        return _condition("ResolvedRefs", True, "ResolvedRefs", f"{place.text} is a URL and does not need a Service.")
    if isinstance(place, McpHost):
        return _condition("ResolvedRefs", True, "ResolvedRefs", f"{place.hostname}:{place.port} is an external host.")
    ref = Ref("Service", namespace, place.name)
    service = resources.services.get(ref.object_name)
    if service is None:
        why = "cannot be read. Correct it." if ref in resources.broken else "not found. Add it."
        return _condition("ResolvedRefs", False, "BackendNotFound", f'Service "{ref.object_name}" {why}')
    if not any(port.port == place.port and port.protocol == "TCP" for port in service.spec.ports):
        message = (
            f'Service "{ref.object_name}" has no TCP port {place.port}. Add the port to the Service, or correct the '
            "port of the Backend."
        )
        return _condition("ResolvedRefs", False, "BackendNotFound", message)
    return _condition("ResolvedRefs", True, "ResolvedRefs", f'Service "{ref.object_name}" has port {place.port}.')


def _condition(kind: str, holds: bool, reason: str, message: str) -> Condition:
    return Condition(type=kind, status=str(holds), reason=reason, message=message[:_LONGEST_MESSAGE])


def _with_warnings(message: str, warnings: tuple[Problem, ...]) -> str:
    return f"{message} Warnings: {'; '.join(str(each) for each in warnings)}" if warnings else message


def ancestor_ref(aim: PolicyTarget) -> dict[str, str]:
    """Return how a target is referred to in a status."""
    usual = _AGENTIC if aim.ref.kind in BACKENDS else _GATEWAY if aim.ref.kind == "Gateway" else ""
    group = usual if aim.group is None or aim.group in GROUPS.get(aim.ref.kind, ()) else aim.group
    whole = {"group": group, "kind": aim.ref.kind, "namespace": aim.ref.namespace, "name": aim.ref.name}
    return whole | ({"sectionName": aim.section} if aim.section else {})
