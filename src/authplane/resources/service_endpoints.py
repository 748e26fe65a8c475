"""The endpoints behind a port of a Service, as its EndpointSlices have them."""

from typing import Final

from authplane.core.addresses import parse_ip_address
from authplane.core.names import ObjectName, Ref
from authplane.core.values import dataclass
from authplane.resources.documents import Resources
from authplane.resources.kinds.core import SERVICE_LABEL, EndpointSlice, Service, ServicePort
from authplane.resources.similar_names import suggested


@dataclass(frozen=True, slots=True, order=True)
class Endpoint:
    """An IP address and a port."""

    address: str
    port: int


@dataclass(frozen=True, slots=True)
class Unresolved:
    """Why a Service cannot be used; ``reason`` is what its status says."""

    reason: str
    message: str


def ready_endpoints(resources: Resources, name: ObjectName, port: int) -> tuple[Endpoint, ...] | Unresolved:
    """Return the ready endpoints of a Service's port, each once, in order."""
    service = resources.services.get(name)
    if service is None:
        broken = Ref("Service", name.namespace, name.name) in resources.broken
        why = "cannot be read" if broken else f"not found{suggested(name, resources.services)}"
        return Unresolved("ServiceUnresolvedReference", f'service "{name}" {why}')
    tcp = tcp_port(service, port)
    if isinstance(tcp, Unresolved):
        return tcp
    slices = resources.endpoint_slices.get(name, ())
    return tuple(sorted({endpoint for slice_ in slices for endpoint in _ready(slice_, tcp)}))


NO_ENDPOINTS: Final = "NoReadyEndpoints"
"""The reason of a warning about a Service that nothing answers for."""


_LACKS: Final = "has no ready endpoint"


def lacks_endpoints(message: str) -> bool:
    """Tell whether a message is one of `no_endpoints_message`, perhaps with others."""
    return _LACKS in message


def no_endpoints_message(resources: Resources, name: ObjectName, port: int) -> str:
    """Say why a port of a Service has no ready endpoint, and what to do; `ready_endpoints` found none."""
    service, slices = resources.services[name], resources.endpoint_slices.get(name, ())
    tcp = tcp_port(service, port)
    named = "" if isinstance(tcp, Unresolved) else tcp.name
    wrong = f'Service "{name}" {_LACKS} for port {port}, so Envoy cannot send requests to it.'
    if not slices:
        return f'{wrong} Add an EndpointSlice with the label "{SERVICE_LABEL}: {name.name}".'
    if not any(each.name == named and each.protocol == "TCP" for slice_ in slices for each in slice_.ports):
        return f'{wrong} Add a TCP port with the name "{named}" to its EndpointSlices.'
    return f"{wrong} Start the program behind it, or correct endpoints[] of its EndpointSlices."


def tcp_port(service: Service, port: int) -> ServicePort | Unresolved:
    """Return the port of a Service that has this number, if TCP goes there."""
    if service.spec.type == "ExternalName" and not service.spec.ports:
        return ServicePort(port=port)  # Kubernetes requires no ports where it forwards nothing itself
    name = service.metadata.object_name
    found = [candidate for candidate in service.spec.ports if candidate.port == port]
    if not found:
        return Unresolved("ServiceUnresolvedReference", f'port "{port}" on service "{name}" not matched')
    tcp = next((candidate for candidate in found if candidate.protocol == "TCP"), None)
    return tcp or Unresolved("ServiceUnresolvedReference", f'unsupported service protocol "{found[0].protocol}"')


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
