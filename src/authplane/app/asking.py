"""Where the external services of policies answer."""

from collections.abc import Iterator

from authplane.graph.services import ExternalAddress, Unresolved, resolve
from authplane.graph.settings import ExternalNames
from authplane.io.external_services import Endpoint, Endpoints, ServicePort
from authplane.policy.access.external import Destination, ExternalService
from authplane.policy.access.guards import Policies, rules_of
from authplane.policy.access.model import AnyPolicy, Asked, Screen
from authplane.resources.documents import Resources


def endpoints_of(policies: Policies, resources: Resources) -> Endpoints:
    """Return where each service answers that some policy names; those without an endpoint are left out."""
    found: dict[ServicePort, tuple[Endpoint, ...]] = {}
    for guard in policies.guards.values():
        for policy in guard.policies:
            for asked in _destinations(policy):
                if isinstance(asked, ExternalService):
                    found[ServicePort(asked.service, asked.port)] = _endpoints(asked, resources)
    return {service: endpoints for service, endpoints in found.items() if endpoints}


def _destinations(policy: AnyPolicy) -> Iterator[Destination]:
    if isinstance(policy, Screen):
        yield policy.destination
    for rule in rules_of(policy):
        yield from (entry.destination for entry in rule.entries if isinstance(entry, Asked))


def _endpoints(asked: ExternalService, resources: Resources) -> tuple[Endpoint, ...]:
    resolved = resolve(resources, asked.service, asked.port, ExternalNames.NOWHERE)
    if isinstance(resolved, Unresolved | ExternalAddress):
        return ()
    return tuple(Endpoint(each.address, each.port) for each in resolved)
