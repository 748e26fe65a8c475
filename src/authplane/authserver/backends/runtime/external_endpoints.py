"""The endpoints of the external services that policies call."""

from collections.abc import Iterable, Iterator

from authplane.authserver.backends.runtime.external_services import Endpoint, Endpoints, ServicePort
from authplane.policy.attached.attachments import Policies, rules_of
from authplane.policy.rules.external_service import ExternalService
from authplane.policy.rules.rule_model import AnyPolicy, Screen
from authplane.resources.documents import Resources
from authplane.resources.kinds.contour_settings import ContourSettings
from authplane.resources.service_endpoints import Unresolved, ready_endpoints


def asked_endpoints(policies: Policies, resources: Resources) -> Endpoints:
    """Return the endpoints of each service that a policy calls.

    A Service of which no endpoints are known is looked up by its name, as pods of its cluster do.
    """
    asked = {each for attachment in policies.attachments.values() for each in _asked(attachment.policies)}
    return {where: _endpoints(where, resources) for where in asked}


def _asked(policies: Iterable[AnyPolicy]) -> Iterator[ServicePort]:
    for policy in policies:
        found = [asked.destination for rule in rules_of(policy) for _, asked in rule.asked]
        if isinstance(policy, Screen):
            found.append(policy.destination)
        for each in found:
            if isinstance(each, ExternalService):
                yield ServicePort(each.service, each.port, each.tls)


def _endpoints(where: ServicePort, resources: Resources) -> tuple[Endpoint, ...]:
    name = where.service
    if name not in resources.endpoint_slices:
        ours = resources.configuration.spec.contour if resources.configuration is not None else ContourSettings()
        return (Endpoint(f"{name.name}.{name.namespace}.svc.{ours.cluster_domain}", where.port),)
    service = resources.services.get(name)
    if service is not None and service.spec.type == "ExternalName":
        return ()
    found = ready_endpoints(resources, name, where.port)
    return () if isinstance(found, Unresolved) else tuple(Endpoint(each.address, each.port) for each in found)
