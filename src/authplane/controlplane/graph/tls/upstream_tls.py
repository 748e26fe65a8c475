"""TLS to upstreams: the CA to trust, the server name to send, and the certificate to present."""

from authplane.controlplane.graph.model.port_model import Certificate
from authplane.controlplane.graph.model.upstreams import UnverifiedTls, UpstreamTls, VerifiedTls
from authplane.controlplane.graph.settings.gateway_settings import Settings
from authplane.controlplane.graph.tls.secret_delegation import may_use
from authplane.controlplane.graph.tls.tls_secrets import Unusable, ca_bundle, secret_name, server_certificate
from authplane.core.names import ObjectName
from authplane.core.problems import Problems
from authplane.resources.documents import Resources
from authplane.resources.kinds.contour_policies import UpstreamValidation


def upstream_tls(  # noqa: PLR0913, PLR0917 (each of them decides something)
    resources: Resources,
    settings: Settings,
    namespace: str,
    validation: UpstreamValidation | None,
    server_name: str,
    problems: Problems,
) -> UpstreamTls:
    """Build TLS to an upstream; without ``server_name``, the server name is the first subject name.

    If the settings cannot be applied, that is an error, and the result must not be used.
    """
    shown = shown_certificate(resources, settings, problems)
    if validation is None:
        problems.warn("UpstreamNotVerified", "Envoy does not verify the certificate of this service. Set validation.")
        return UnverifiedTls(server_name=server_name, client_certificate=shown, limits=settings.upstream_tls)
    names = validation.subject_names or (validation.subject_name,)
    if names[0] != validation.subject_name:
        _refuse(
            f"first entry of SubjectNames ({names[0]}) does not match SubjectName ({validation.subject_name})", problems
        )
    return VerifiedTls(
        ca=_ca(resources, namespace, validation, problems),
        subject_names=names,
        server_name=server_name or names[0],
        client_certificate=shown,
        limits=settings.upstream_tls,
    )


def client_certificate(resources: Resources, settings: Settings) -> Certificate | Unusable | None:
    """Return the certificate that the proxy shows to upstreams, why it cannot be used, or None if there is none."""
    name = settings.client_certificate
    return None if name is None else server_certificate(resources, name)


def shown_certificate(resources: Resources, settings: Settings, problems: Problems) -> ObjectName | None:
    """Name the certificate that upstreams are shown; one that cannot be used is an error."""
    found = client_certificate(resources, settings)
    if isinstance(found, Unusable):
        problems.add(
            "SecretNotValid",
            f'tls.envoy-client-certificate Secret "{settings.client_certificate}" is invalid: {found}',
        )
    return settings.client_certificate


def _ca(resources: Resources, namespace: str, validation: UpstreamValidation, problems: Problems) -> bytes:
    secret = secret_name(validation.ca_secret, namespace)
    if not may_use(resources, secret, namespace):
        problems.add(
            "CACertificateNotDelegated",
            f'service.UpstreamValidation.CACertificate Secret "{secret}" is not configured for certificate delegation',
        )
        return b""
    bundle = ca_bundle(resources, secret)
    if isinstance(bundle, Unusable):
        _refuse(f'invalid CA Secret "{secret}": {bundle}', problems)
        return b""
    return bundle


def _refuse(why: str, problems: Problems) -> None:
    problems.add("TLSUpstreamValidation", f"TLS upstream validation policy error: {why}")
