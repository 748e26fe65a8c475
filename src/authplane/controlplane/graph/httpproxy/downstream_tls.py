"""TLS towards clients: the server certificate, the versions, and the client certificates that are accepted."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from authplane.controlplane.graph.httpproxy.build_context import BuildContext
from authplane.controlplane.graph.model.port_model import Certificate, ClientCertificates, Forwarded
from authplane.controlplane.graph.model.upstreams import NO_LIMITS, TlsLimits
from authplane.controlplane.graph.tls.secret_delegation import may_use
from authplane.controlplane.graph.tls.tls_secrets import (
    Unusable,
    ca_bundle,
    remedy,
    revocation_lists,
    secret_name,
    server_certificate,
)
from authplane.core.names import ObjectName
from authplane.core.problems import Problems
from authplane.core.values import dataclass
from authplane.resources.documents import Resources
from authplane.resources.kinds.contour import ClientValidation, Tls

_DELEGATE: Final = "Add a TLSCertificateDelegation for this namespace in the Secret's namespace."


@dataclass(frozen=True, slots=True, kw_only=True)
class DownstreamTls:
    """What is agreed with the clients of a virtual host."""

    certificate: Certificate
    limits: TlsLimits
    clients: ClientCertificates | None
    fallback: Certificate | None
    """Shown to clients that do not name the host, if they may do so."""


def downstream_tls(tls: Tls, namespace: str, shared: BuildContext, problems: Problems) -> DownstreamTls | None:
    """Read ``virtualhost.tls``; whatever cannot be as it is written is an error."""
    _require_compatible(tls, problems)
    certificate = _certificate(tls, namespace, shared, problems)
    limits = _limits(tls, shared.settings.downstream_tls, problems)
    fallback = _fallback(namespace, shared, problems) if tls.enable_fallback_certificate else None
    clients = None
    if tls.client_validation is not None:
        with problems.at("clientValidation"):
            clients = _clients(tls.client_validation, namespace, shared, problems)
    if certificate is None:
        return None
    return DownstreamTls(certificate=certificate, limits=limits, clients=clients, fallback=fallback)


def _limits(tls: Tls, everywhere: TlsLimits, problems: Problems) -> TlsLimits:
    """Return what a host may negotiate: the stricter of its own versions and those of the installation."""
    minimum = _version(tls.minimum_protocol_version, "minimumProtocolVersion", NO_LIMITS.minimum, problems)
    maximum = _version(tls.maximum_protocol_version, "maximumProtocolVersion", NO_LIMITS.maximum, problems)
    greater = "the minimum protocol version is greater than the maximum protocol version. Change one of them."
    stricter = replace(everywhere, minimum=max(minimum, everywhere.minimum), maximum=min(maximum, everywhere.maximum))
    if maximum < minimum:
        problems.add("TLSConfigNotValid", f"Spec.Virtualhost.TLS {greater}")
    elif stricter.maximum < stricter.minimum:
        problems.add(
            "TLSConfigNotValid",
            f"Spec.Virtualhost.TLS together with envoy.listener.tls of the configuration: {greater}",
        )
    return stricter


def _version(written: str, field: str, default: str, problems: Problems) -> str:
    """Return a version of TLS; Contour takes any text, and reads what is no version that it knows as the default."""
    if written in {"1.2", "1.3"}:
        return written
    if written:
        with problems.at(field):
            problems.warn(
                "IgnoredField", f'"{written}" is neither 1.2 nor 1.3, so Envoy uses {default}. Use 1.2 or 1.3.'
            )
    return default


def _require_compatible(tls: Tls, problems: Problems) -> None:
    if tls.passthrough:
        problems.add("TLSConfigNotValid", "Spec.VirtualHost.TLS passthrough is not supported. Set secretName instead.")
        if tls.enable_fallback_certificate:
            problems.add(
                "TLSIncompatibleFeatures",
                "Spec.VirtualHost.TLS: both Passthrough and enableFallbackCertificate were specified. "
                "Remove one of them.",
            )
        if tls.client_validation is not None:
            problems.add(
                "TLSIncompatibleFeatures",
                "Spec.VirtualHost.TLS passthrough cannot be combined with tls.clientValidation. Remove one of them.",
            )
    if tls.enable_fallback_certificate and tls.client_validation is not None:
        problems.add(
            "TLSIncompatibleFeatures",
            "Spec.Virtualhost.TLS fallback & client validation are incompatible. Remove one of them.",
        )


def _certificate(tls: Tls, namespace: str, shared: BuildContext, problems: Problems) -> Certificate | None:
    if not tls.secret_name:
        if not tls.passthrough:
            problems.add(
                "TLSConfigNotValid",
                "Spec.VirtualHost.TLS: neither Passthrough nor SecretName were specified. Set secretName.",
            )
        return None
    if tls.passthrough:
        problems.add(
            "TLSConfigNotValid",
            "Spec.VirtualHost.TLS: both Passthrough and SecretName were specified. Remove passthrough.",
        )
    name = secret_name(tls.secret_name, namespace)
    with problems.at("secretName"):
        if not may_use(shared.resources, name, namespace):
            wrong = f'Spec.VirtualHost.TLS Secret "{name}" certificate delegation not permitted.'
            problems.add("DelegationNotPermitted", f"{wrong} {_DELEGATE}")
            return None
        found = server_certificate(shared.resources, name)
        if isinstance(found, Unusable):
            problems.add("SecretNotValid", f'Spec.VirtualHost.TLS Secret "{name}" is invalid: {found}. {remedy(found)}')
            return None
        return found


def _fallback(namespace: str, shared: BuildContext, problems: Problems) -> Certificate | None:
    name = shared.settings.fallback_certificate
    with problems.at("enableFallbackCertificate"):
        if name is None:
            problems.add(
                "FallbackNotPresent",
                "Spec.Virtualhost.TLS enabled fallback but the fallback Certificate Secret is not configured in "
                "Contour configuration file. Set tls.fallback-certificate there.",
            )
            return None
        if not may_use(shared.resources, name, namespace):
            problems.add(
                "FallbackNotDelegated",
                f'Spec.VirtualHost.TLS Secret "{name}" is not configured for certificate delegation. {_DELEGATE}',
            )
            return None
        found = server_certificate(shared.resources, name)
        if isinstance(found, Unusable):
            problems.add(
                "FallbackNotValid",
                f'Spec.Virtualhost.TLS Secret "{name}" fallback certificate is invalid: {found}. {remedy(found)}',
            )
            return None
        return found


def _clients(given: ClientValidation, namespace: str, shared: BuildContext, problems: Problems) -> ClientCertificates:
    wrong = "Spec.VirtualHost.TLS client validation is invalid: "
    ca, revoked = None, None
    if given.ca_secret:
        with problems.at("caSecret"):
            name = secret_name(given.ca_secret, namespace)
            ca = _bundle("CA", name, ca_bundle, namespace, shared, problems)
    elif not given.skip_client_cert_validation:
        problems.add("ClientValidationInvalid", f"{wrong}CA Secret must be specified. Set caSecret.")
    if given.crl_secret:
        with problems.at("crlSecret"):
            name = secret_name(given.crl_secret, namespace)
            revoked = _bundle("CRL", name, revocation_lists, namespace, shared, problems)
    if given.skip_client_cert_validation:
        with problems.at("skipClientCertValidation"):
            problems.warn("ClientNotVerified", _unverified(given))
        if given.crl_secret:
            problems.add(
                "ClientValidationInvalid", f"{wrong}a CRL has no effect if validation is skipped. Remove crlSecret."
            )
    if given.crl_only_verify_leaf_cert and not given.crl_secret:
        with problems.at("crlOnlyVerifyLeafCert"):
            problems.warn(
                "IgnoredField", "This field has no effect without a CRL. Set crlSecret, or remove this field."
            )
    forward = given.forward_client_certificate
    return ClientCertificates(
        ca=ca,
        verified=not given.skip_client_cert_validation,
        # Contour requests certificates without a CA, and requires them only with one. Envoy could not do otherwise.
        required=bool(given.ca_secret) and not given.optional_client_certificate,
        revoked=revoked,
        leaf_only=given.crl_only_verify_leaf_cert,
        forwarded=None
        if forward is None
        else Forwarded(
            subject=forward.subject, certificate=forward.cert, chain=forward.chain, dns=forward.dns, uri=forward.uri
        ),
    )


def _unverified(given: ClientValidation) -> str:
    optional = not given.ca_secret and not given.optional_client_certificate
    who = ", and clients can connect without one" if optional else ""
    forged = (
        " Clients can forge the certificate details that Envoy forwards."
        if given.forward_client_certificate is not None
        else ""
    )
    return f"Envoy does not verify client certificates{who}.{forged} Ignore this if intended."


def _bundle(  # noqa: PLR0913, PLR0917 (each of them decides something)
    kind: str,
    name: ObjectName,
    read: Callable[[Resources, ObjectName], bytes | Unusable],
    namespace: str,
    shared: BuildContext,
    problems: Problems,
) -> bytes | None:
    if not may_use(shared.resources, name, namespace):
        wrong = f'Spec.VirtualHost.TLS {kind} Secret "{name}" is invalid: Certificate delegation not permitted.'
        problems.add("DelegationNotPermitted", f"{wrong} {_DELEGATE}")
        return None
    found = read(shared.resources, name)
    if isinstance(found, Unusable):
        message = (
            f'Spec.VirtualHost.TLS client validation is invalid: invalid {kind} Secret "{name}": {found}. '
            f"{remedy(found)}"
        )
        problems.add("ClientValidationInvalid", message)
        return None
    return found
