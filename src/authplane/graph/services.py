"""Services and the endpoints behind their ports."""

from dataclasses import dataclass
from typing import TypeAlias

from authplane.base.addresses import parse_ip_address
from authplane.base.names import ObjectName, Ref
from authplane.graph.external_names import external_host, external_name_problem
from authplane.graph.reports import Reports
from authplane.graph.settings import ExternalNames, NameRules
from authplane.graph.upstreams import Endpoint
from authplane.resources.documents import Resources
from authplane.resources.kinds.core import EndpointSlice, Service, ServicePort


@dataclass(frozen=True, slots=True)
class Unresolved:
    """Why a Service cannot be used; ``reason`` is what its status says."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class ExternalAddress:
    """Where an ExternalName Service leads: a DNS name or an IP address, in lower case and without a dot at its end."""

    host: str
    port: int


Resolved: TypeAlias = tuple[Endpoint, ...] | ExternalAddress


def resolve(resources: Resources, name: ObjectName, port: int, external: NameRules) -> Resolved | Unresolved:
    """Return the ready endpoints of a Service's port, each once, in order, or the address that it stands for."""
    service = resources.services.get(name)
    if service is None:
        broken = Ref("Service", name.namespace, name.name) in resources.broken
        why = "cannot be read" if broken else "not found"
        return Unresolved("ServiceUnresolvedReference", f'service "{name}" {why}')
    tcp = _tcp_port(service, port)
    if isinstance(tcp, Unresolved):
        return tcp
    if service.spec.type == "ExternalName":
        return _resolve_external(service, port, external)
    slices = resources.endpoint_slices.get(name, ())
    return tuple(sorted({endpoint for slice_ in slices for endpoint in _ready(slice_, tcp)}))


def _tcp_port(service: Service, port: int) -> ServicePort | Unresolved:
    if service.spec.type == "ExternalName" and not service.spec.ports:
        return ServicePort(port=port)  # Kubernetes does not ask for ports where it forwards nothing itself
    name = service.metadata.object_name
    found = [candidate for candidate in service.spec.ports if candidate.port == port]
    if not found:
        return Unresolved("ServiceUnresolvedReference", f'port "{port}" on service "{name}" not matched')
    tcp = next((candidate for candidate in found if candidate.protocol == "TCP"), None)
    return tcp or Unresolved("ServiceUnresolvedReference", f'unsupported service protocol "{found[0].protocol}"')


def _resolve_external(service: Service, port: int, external: NameRules) -> ExternalAddress | Unresolved:
    name = service.metadata.object_name
    if external.allowed is ExternalNames.NOWHERE:
        return Unresolved("UnsupportedServiceType", f'Service "{name}" is of unsupported type "ExternalName".')
    wrong = external_name_problem(service.spec.external_name, external)
    if wrong:
        return Unresolved("ServiceUnresolvedReference", f"{name} {wrong}")
    return ExternalAddress(external_host(service.spec.external_name), port)


def _ready(slice_: EndpointSlice, service_port: ServicePort) -> set[Endpoint]:
    ports = [port.port for port in slice_.ports if port.name == service_port.name and port.protocol == "TCP"]
    addresses = [
        address
        for endpoint in slice_.endpoints
        if endpoint.conditions.ready is not False  # Kubernetes: unknown readiness counts as ready
        for address in endpoint.addresses
        if usable_address(address)
    ]
    return {Endpoint(address, port) for address in addresses for port in ports}


def usable_address(address: str) -> bool:
    """Tell whether Envoy can connect to it: an IP address that is not the unspecified one."""
    parsed = parse_ip_address(address)
    return parsed is not None and not parsed.is_unspecified


def report_endpoint_slices(resources: Resources, reports: Reports) -> None:
    """Name every address that no endpoint is made of."""
    for slices in resources.endpoint_slices.values():
        for slice_ in slices:
            problems = reports.of(Ref("EndpointSlice", slice_.metadata.namespace, slice_.metadata.name))
            for index, endpoint in enumerate(slice_.endpoints):
                for position, address in enumerate(endpoint.addresses):
                    if not usable_address(address):
                        with problems.at("endpoints", index, "addresses", position):
                            problems.warn("AddressInvalid", f"{address!r} is not an IP address to connect to; left out")
