"""TLS to Services by BackendTLSPolicies."""

from dataclasses import field

from authplane.controlplane.graph.model.upstreams import CaFile, VerifiedTls
from authplane.controlplane.graph.settings.gateway_settings import Settings
from authplane.controlplane.graph.tls.upstream_tls import shown_certificate
from authplane.core.problems import Problems
from authplane.core.values import dataclass
from authplane.policy.rules.backend_tls import BackendTlsPolicies, SystemTrust, TlsRefused, read_backend_tls
from authplane.resources.documents import Resources
from authplane.resources.kinds.configuration import GatewaySettings
from authplane.resources.kinds.core import Service


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceTls:
    """BackendTLSPolicies, and the file of the CAs that the proxy's machine trusts."""

    policies: BackendTlsPolicies = field(default_factory=BackendTlsPolicies)
    ca_file: str = GatewaySettings().ca_file

    def find(
        self, service: Service, port: int, resources: Resources, settings: Settings, problems: Problems
    ) -> VerifiedTls | TlsRefused | None:
        """Return how a port is reached; None if no policy is for it."""
        found = self.policies.find(service, port)
        if found is None or isinstance(found, TlsRefused):
            return found
        return VerifiedTls(
            ca=CaFile(self.ca_file) if isinstance(found.ca, SystemTrust) else found.ca,
            subject_names=(found.hostname,),
            server_name=found.hostname,
            client_certificate=shown_certificate(resources, settings, problems),
            limits=settings.upstream_tls,
        )


def read_service_tls(resources: Resources) -> ServiceTls:
    """Read all policies."""
    policies = read_backend_tls(resources)
    if resources.configuration is None:
        return ServiceTls(policies=policies)
    return ServiceTls(policies=policies, ca_file=resources.configuration.spec.gateway.ca_file)
