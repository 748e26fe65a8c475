"""The status of each resource, as Kubernetes stores it, from the reports of the passes."""

from collections.abc import Iterable, Mapping
from typing import Final, assert_never

from authplane.controlplane.graph.build import Built
from authplane.controlplane.graph.model.programming import Answered, NoProxy, NotServed, Programming, xds_names
from authplane.controlplane.graph.model.upstreams import ExtensionCluster
from authplane.controlplane.graph.reports import condition_type, in_contours_words
from authplane.core.names import Ref
from authplane.core.problems import Problem, Severity, dotted
from authplane.core.values import dataclass
from authplane.resources.documents import Finding, Resources, StoredAncestor
from authplane.xds.server.served_types import XdsName

_LONGEST_MESSAGE: Final = 32760
_KINDS: Final = {
    "AuthplaneConfiguration": "authplane.dev/v1alpha1",
    "ContourConfiguration": "projectcontour.io/v1alpha1",
    "ExtensionService": "projectcontour.io/v1alpha1",
    "HTTPProxy": "projectcontour.io/v1",
    "TLSCertificateDelegation": "projectcontour.io/v1",
}
"""The kinds that have a status, and their API versions."""
_SENT: Final = frozenset({"ExtensionService", "HTTPProxy"})
"""The kinds that become something for proxies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubCondition:
    """One error or warning of a condition."""

    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One thing that is true, false or unknown of a resource."""

    type: str
    status: str
    reason: str
    message: str
    errors: tuple[SubCondition, ...] = ()
    warnings: tuple[SubCondition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerStatus:
    """The status of a listener of a Gateway."""

    name: str
    attached_routes: int
    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParentStatus:
    """The status of a route at one of its Gateways."""

    ref: tuple[tuple[str, str | int], ...]
    """The ``parentRef`` as it was written, field by field."""
    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AncestorStatus:
    """The status of a policy at one of its targets."""

    ref: tuple[tuple[str, str | int], ...]
    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The status of one resource."""

    ref: Ref
    api_version: str
    generation: int
    conditions: tuple[Condition, ...]
    listeners: tuple[ListenerStatus, ...] = ()
    parents: tuple[ParentStatus, ...] = ()
    ancestors: tuple[AncestorStatus, ...] = ()
    stored: tuple[StoredAncestor, ...] = ()
    """The stored ancestors of the document, in which entries of other controllers must stay."""


def build_status(
    resources: Resources,
    findings: Iterable[Finding],
    last_good: frozenset[Ref],
    built: Built,
    programming: Programming,
) -> tuple[Status, ...]:
    """Return the status of every resource that has one, in name order."""
    problems = problems_by_ref(findings, built.problems)
    names = xds_names(built.graph)
    clusters = {each.object_name: each for each in built.graph.clusters if isinstance(each, ExtensionCluster)}
    generations = _generations(resources)
    statuses = []
    for ref in sorted(generations):
        found = problems.get(ref, ())
        valid = _left_to_others(found) or valid_condition(ref, found)
        conditions = [valid]
        if ref.kind == "ExtensionService":
            conditions.append(_ready(clusters.get(ref.object_name)))
        if ref.kind in _SENT:
            conditions.append(_programmed(names.get(ref), programming, valid))
        if ref in last_good:
            conditions.append(outdated_condition())
        statuses.append(
            Status(
                ref=ref,
                api_version=_KINDS[ref.kind],
                generation=generations[ref],
                conditions=tuple(conditions),
            )
        )
    return tuple(statuses)


def _generations(resources: Resources) -> Mapping[Ref, int]:
    known = {
        Ref(type(each).__name__, each.metadata.namespace, each.metadata.name): each.metadata.generation
        for each in (
            *resources.proxies.values(),
            *resources.extension_services.values(),
            *resources.delegations.values(),
            resources.configuration,
            resources.contour_configuration,
        )
        if each is not None
    }
    return {ref: 1 for ref in resources.broken if ref.kind in _KINDS and ref.name} | known


def problems_by_ref(
    findings: Iterable[Finding], found: Mapping[Ref, tuple[Problem, ...]]
) -> Mapping[Ref, tuple[Problem, ...]]:
    """Join the problems of reading the documents and of building the graph."""
    problems: dict[Ref, tuple[Problem, ...]] = {}
    for finding in findings:
        if finding.ref is not None:
            problems[finding.ref] = (*problems.get(finding.ref, ()), finding.problem)
    for ref, more in found.items():
        problems[ref] = (*problems.get(ref, ()), *more)
    return problems


def valid_condition(ref: Ref, problems: tuple[Problem, ...]) -> Condition:
    """Say whether a document has errors, and list them."""
    errors = tuple(_sub(each) for each in problems if each.severity is Severity.ERROR)
    warnings = tuple(_sub(each) for each in problems if each.severity is Severity.WARNING)
    if errors:
        return Condition(
            type="Valid",
            status="False",
            reason="ErrorPresent",
            message="At least one error present, see Errors for details",
            errors=errors,
            warnings=warnings,
        )
    return Condition(type="Valid", status="True", reason="Valid", message=f"Valid {ref.kind}", warnings=warnings)


def _left_to_others(problems: tuple[Problem, ...]) -> Condition | None:
    """Say that a document was not judged here, if it is of another ingress class."""
    message = next((each.message for each in problems if each.reason == "OtherIngressClass"), "")
    return Condition(type="Valid", status="Unknown", reason="OtherIngressClass", message=message) if message else None


def _sub(problem: Problem) -> SubCondition:
    kind = condition_type(problem.reason, problem.path)
    says_where = kind != "SpecError" or not problem.path or in_contours_words(problem)
    message = problem.message if says_where else f"{dotted(problem.path)}: {problem.message}"
    return SubCondition(type=kind, reason=problem.reason, message=message[:_LONGEST_MESSAGE])


def _ready(cluster: ExtensionCluster | None) -> Condition:
    if cluster is None:
        return Condition(
            type="Ready",
            status="False",
            reason="NotValid",
            message="The ExtensionService is invalid, so Envoy gets no cluster for it. Correct its errors.",
        )
    count = cluster.ready_endpoints
    message = f'{count} ready endpoint{"" if count == 1 else "s"}; Envoy cluster "{cluster.name}"'
    if count:
        return Condition(type="Ready", status="True", reason="EndpointsReady", message=message)
    return Condition(type="Ready", status="False", reason="NoReadyEndpoints", message=message)


def _programmed(names: frozenset[XdsName] | None, programming: Programming, valid: Condition) -> Condition:
    return _not_sent(valid) if names is None else programmed_condition(names, programming)


def programmed_condition(names: frozenset[XdsName], programming: Programming) -> Condition:
    """Say whether proxies accepted what a resource became."""
    match programming:
        case NotServed():
            return _programmed_as(
                "Unknown", "NotServed", "No control plane serves this folder. Run 'authplane control' with this folder."
            )
        case NoProxy():
            return _programmed_as(
                "Unknown",
                "NoProxyConnected",
                "No proxy is connected. Start Envoy with the bootstrap of this control plane.",
            )
        case Answered(pending=pending, refused=refused):
            refusals = sorted({refused[name] for name in names & refused.keys()})
            if refusals:
                return _programmed_as("False", "Rejected", "; ".join(refusals)[:_LONGEST_MESSAGE])
            if names & pending:
                return _programmed_as("Unknown", "Pending", "A proxy has not answered yet. Wait for its answer.")
            return _programmed_as("True", "Programmed", "Every connected proxy accepted this resource.")
        case _:
            assert_never(programming)


def server_condition(name: XdsName, programming: Programming) -> Condition:
    """Say whether gRPC servers accepted the Listener that a resource became."""
    if isinstance(programming, NotServed):
        return programmed_condition(frozenset({name}), programming)
    servers = programming.servers
    if name in servers.refused:
        return _programmed_as("False", "Rejected", servers.refused[name][:_LONGEST_MESSAGE])
    if name not in servers.asked:
        return _programmed_as(
            "Unknown", "NoServerConnected", f"No gRPC server requests the Listener {name[1]}. Start the server."
        )
    if name in servers.pending:
        return _programmed_as("Unknown", "Pending", "A gRPC server has not answered yet. Wait for its answer.")
    return _programmed_as("True", "Programmed", "Every gRPC server that requests this resource accepted it.")


def _not_sent(valid: Condition) -> Condition:
    if valid.status == "Unknown":
        return _programmed_as(
            "False", "OtherIngressClass", "This gateway does not serve the ingress class of this HTTPProxy."
        )
    if valid.status == "True":
        return _programmed_as(
            "False", "RootNotServed", "No root HTTPProxy that Envoy serves includes this HTTPProxy. Correct the root."
        )
    return _programmed_as(
        "False", "NotValid", "The control plane does not send this resource to proxies. Correct the errors."
    )


def _programmed_as(status: str, reason: str, message: str) -> Condition:
    return Condition(type="Programmed", status=status, reason=reason, message=message)


def outdated_condition() -> Condition:
    """Say that an earlier version is in force."""
    return Condition(
        type="UpToDate",
        status="False",
        reason="LastGoodVersionInForce",
        message="authplane cannot use the current version; the last good version stays in force. Correct the resource.",
    )
