"""Where the checks of an ExtensionService go: its target Services and their shares."""

from typing import Final

from authplane.controlplane.graph.model.upstreams import Destinations, EndpointGroup, ExternalName
from authplane.controlplane.graph.settings.gateway_settings import NameRules
from authplane.controlplane.graph.upstreams.resolved_services import ExternalAddress, resolve
from authplane.core.names import ObjectName
from authplane.core.problems import Problems
from authplane.resources.documents import Resources
from authplane.resources.kinds.extension_service import ExtensionService
from authplane.resources.service_endpoints import NO_ENDPOINTS, Unresolved, no_endpoints_message

_MOST_WEIGHT: Final = 2**32 - 1
_BREAKERS: Final = (
    "projectcontour.io/max-connections",
    "projectcontour.io/max-pending-requests",
    "projectcontour.io/max-requests",
    "projectcontour.io/max-retries",
    "projectcontour.io/per-host-max-connections",
)


def build_destinations(
    resources: Resources, external: NameRules, extension: ExtensionService, problems: Problems
) -> Destinations:
    """Resolve every target; any that cannot be used is an error, and so is a mix of endpoints and names outside."""
    targets = extension.spec.services
    equal = all(target.weight == 0 for target in targets)
    groups: list[EndpointGroup] = []
    names: list[ExternalName] = []
    for index, target in enumerate(targets):
        service = ObjectName(extension.metadata.namespace, target.name)
        weight = 1 if equal else target.weight
        with problems.at("services", index):
            _warn_of_annotations(resources, service, problems)
            match resolve(resources, service, target.port, external):
                case Unresolved() as why:
                    problems.add(why.reason, _unresolved(service, why))
                case ExternalAddress(host, port):
                    names.append(ExternalName(service=service, weight=weight, host=host, port=port))
                case endpoints:
                    if weight and not endpoints:
                        problems.warn(NO_ENDPOINTS, no_endpoints_message(resources, service, target.port))
                    groups.append(EndpointGroup(service=service, weight=weight, endpoints=endpoints))
    with problems.at("services"):
        if names and groups:
            problems.add(
                "UnsupportedServiceType",
                f'Service "{names[0].service}" is of type "ExternalName" and Service "{groups[0].service}" is not. '
                "Use one type for all services.",
            )
        if sum(target.weight for target in targets) > _MOST_WEIGHT:
            problems.add("TargetWeightsNotValid", f"The sum of the weights exceeds {_MOST_WEIGHT}. Lower the weights.")
    return tuple(names) or tuple(groups)


def _warn_of_annotations(resources: Resources, service: ObjectName, problems: Problems) -> None:
    found = resources.services.get(service)
    for annotation in _BREAKERS:
        if found is not None and annotation in found.metadata.annotations:
            problems.warn(
                "IgnoredField",
                f'ignoring annotation "{annotation}" of Service "{service}"; the field '
                '".Spec.CircuitBreakerPolicy" sets the limits of ExtensionClusters. Set it instead.',
            )


def _unresolved(service: ObjectName, why: Unresolved) -> str:
    return why.message if why.reason == "UnsupportedServiceType" else f'unresolved service "{service}": {why.message}'
