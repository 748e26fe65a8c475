"""Services and the endpoints behind their ports."""

from typing import TypeAlias

from authplane.controlplane.graph.reports import Reports
from authplane.controlplane.graph.settings.gateway_settings import ExternalNames, NameRules
from authplane.controlplane.graph.upstreams.external_names import external_host, external_name_problem
from authplane.core.names import ObjectName, Ref
from authplane.core.values import dataclass
from authplane.resources.documents import Resources
from authplane.resources.kinds.core import Service
from authplane.resources.service_endpoints import Endpoint, Unresolved, ready_endpoints, tcp_port, usable_address


@dataclass(frozen=True, slots=True)
class ExternalAddress:
    """Where an ExternalName Service leads: a DNS name or an IP address, in lower case and without a dot at its end."""

    host: str
    port: int


Resolved: TypeAlias = tuple[Endpoint, ...] | ExternalAddress


def resolve(resources: Resources, name: ObjectName, port: int, external: NameRules) -> Resolved | Unresolved:
    """Return the ready endpoints of a Service's port, each once, in order, or the external address that it names."""
    service = resources.services.get(name)
    if service is None or service.spec.type != "ExternalName":
        return ready_endpoints(resources, name, port)
    tcp = tcp_port(service, port)
    return tcp if isinstance(tcp, Unresolved) else _resolve_external(service, port, external)


def _resolve_external(service: Service, port: int, external: NameRules) -> ExternalAddress | Unresolved:
    name = service.metadata.object_name
    if external.allowed is ExternalNames.NOWHERE:
        return Unresolved("UnsupportedServiceType", f'Service "{name}" is of unsupported type "ExternalName".')
    wrong = external_name_problem(service.spec.external_name, external)
    if wrong:
        return Unresolved("ServiceUnresolvedReference", f"{name} {wrong}")
    return ExternalAddress(external_host(service.spec.external_name), port)


def report_endpoint_slices(resources: Resources, reports: Reports) -> None:
    """Name every address that no endpoint is made of."""
    for slices in resources.endpoint_slices.values():
        for slice_ in slices:
            problems = reports.of(Ref("EndpointSlice", slice_.metadata.namespace, slice_.metadata.name))
            for index, endpoint in enumerate(slice_.endpoints):
                for position, address in enumerate(endpoint.addresses):
                    if not usable_address(address):
                        with problems.at("endpoints", index, "addresses", position):
                            problems.warn(
                                "AddressInvalid",
                                f"{address!r} is not an IP address that Envoy can connect to, so authplane "
                                "ignores it. Correct the address.",
                            )
