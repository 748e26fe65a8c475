"""TLS contexts of filter chains and clusters (gRFC A29): certificates come from the providers of the bootstrap."""

from collections.abc import Iterable
from typing import Final

from envoy.config.core.v3 import base_pb2
from envoy.extensions.transport_sockets.tls.v3 import common_pb2
from envoy.extensions.transport_sockets.tls.v3 import tls_pb2 as pb
from google.protobuf.message import Message

from authplane.core.problems import Problems
from authplane.dataplane.config.read.common_parts import parse_packed
from authplane.dataplane.config.security import ClientTls, Provider, Roots, ServerTls, SystemRoots
from authplane.dataplane.filters.registry import Scope
from authplane.matching.string_matchers import StringMatchers
from authplane.matching.wire import parse_string_matcher

_COMMON_UNSUPPORTED: Final = frozenset(
    {
        "tls_params",
        "tls_certificates",
        "tls_certificate_sds_secret_configs",
        "tls_certificate_certificate_provider",
        "validation_context_sds_secret_config",
        "validation_context_certificate_provider",
        "custom_handshaker",
        "custom_tls_certificate_selector",
    }
)
_VALIDATION_UNSUPPORTED: Final = frozenset(
    {
        "trusted_ca",
        "verify_certificate_spki",
        "verify_certificate_hash",
        "match_typed_subject_alt_names",
        "require_signed_certificate_timestamp",
        "crl",
        "custom_validator_config",
        "trust_chain_verification",
        "max_verify_depth",
    }
)
"""What would make a check stricter, or laxer, and is not done."""
_UPSTREAM_UNSUPPORTED: Final = frozenset({"auto_sni_san_validation"})
"""The same, of what a client asks of a server."""


def parse_server_tls(message: base_pb2.TransportSocket, scope: Scope, problems: Problems) -> ServerTls | None:
    """Read the transport socket of a filter chain; None is a problem."""
    with problems.at("typed_config"):
        context = parse_packed(pb.DownstreamTlsContext, message.typed_config, problems)
        if context is None:
            return None
        with problems.at("common_tls_context"):
            identity = _parse_identity(context.common_tls_context, scope, problems)
            roots, names = _parse_validation(context.common_tls_context, scope, problems)
            if identity is None:
                problems.add("IdentityMissing", "The server has no certificate. Set tls_certificate_provider_instance.")
            if isinstance(roots, SystemRoots):
                problems.add("RootsUnsupported", "system_root_certs is not supported on servers. Remove it.")
            if names:
                problems.add("NamesUnsupported", "match_subject_alt_names is not supported on servers. Remove it.")
        _check_server_flags(context, roots, problems)
        if identity is None or isinstance(roots, SystemRoots):
            return None
        return ServerTls(
            identity=identity,
            roots=roots,
            require_client_certificate=context.require_client_certificate.value,
        )


def parse_client_tls(message: base_pb2.TransportSocket, scope: Scope, problems: Problems) -> ClientTls | None:
    """Read the transport socket of a cluster; None is a problem."""
    with problems.at("typed_config"):
        context = parse_packed(pb.UpstreamTlsContext, message.typed_config, problems)
        if context is None:
            return None
        _refuse(context, _UPSTREAM_UNSUPPORTED, problems)
        with problems.at("common_tls_context"):
            identity = _parse_identity(context.common_tls_context, scope, problems)
            roots, names = _parse_validation(context.common_tls_context, scope, problems)
            if roots is None:
                problems.add(
                    "RootsMissing",
                    "The TLS context has no CA. Set ca_certificate_provider_instance or system_root_certs.",
                )
                return None
        return ClientTls(roots=roots, identity=identity, names=names)


def _check_server_flags(context: pb.DownstreamTlsContext, roots: Roots | None, problems: Problems) -> None:
    if context.require_client_certificate.value and roots is None:
        with problems.at("require_client_certificate"):
            problems.add(
                "RootsMissing",
                "Client certificates are required, but no CA is set. Set ca_certificate_provider_instance.",
            )
    if context.require_sni.value:
        with problems.at("require_sni"):
            problems.add("Unsupported", "The field is not supported. Remove it.")
    if context.ocsp_staple_policy != pb.DownstreamTlsContext.LENIENT_STAPLING:
        with problems.at("ocsp_staple_policy"):
            problems.add("Unsupported", "This OCSP staple policy is not supported. Supported: LENIENT_STAPLING.")


def _parse_identity(message: pb.CommonTlsContext, scope: Scope, problems: Problems) -> Provider | None:
    _refuse(message, _COMMON_UNSUPPORTED, problems)
    for field in ("tls_certificate_provider_instance", "tls_certificate_certificate_provider_instance"):
        if message.HasField(field):
            with problems.at(field):
                return _parse_provider(getattr(message, field), scope, problems)
    return None


def _parse_validation(
    message: pb.CommonTlsContext, scope: Scope, problems: Problems
) -> tuple[Roots | None, StringMatchers]:
    match message.WhichOneof("validation_context_type"):
        case "validation_context":
            with problems.at("validation_context"):
                return _parse_context(message.validation_context, scope, problems)
        case "combined_validation_context":
            combined = message.combined_validation_context
            with problems.at("combined_validation_context"):
                with problems.at("default_validation_context"):
                    roots, names = _parse_context(combined.default_validation_context, scope, problems)
                if roots is None and combined.HasField("validation_context_certificate_provider_instance"):
                    with problems.at("validation_context_certificate_provider_instance"):
                        instance = combined.validation_context_certificate_provider_instance
                        roots = _parse_provider(instance, scope, problems)
                return roots, names
        case _:
            return None, ()


def _parse_context(
    message: common_pb2.CertificateValidationContext, scope: Scope, problems: Problems
) -> tuple[Roots | None, StringMatchers]:
    _refuse(message, _VALIDATION_UNSUPPORTED, problems)
    names = []
    for index, each in enumerate(message.match_subject_alt_names):
        with problems.at("match_subject_alt_names", index):
            names.append(parse_string_matcher(each, problems))
    roots: Roots | None = None
    if message.HasField("ca_certificate_provider_instance"):
        with problems.at("ca_certificate_provider_instance"):
            roots = _parse_provider(message.ca_certificate_provider_instance, scope, problems)
    elif message.HasField("system_root_certs"):
        roots = SystemRoots()
    return roots, tuple(each for each in names if each is not None)


def _parse_provider(
    message: common_pb2.CertificateProviderPluginInstance | pb.CommonTlsContext.CertificateProviderInstance,
    scope: Scope,
    problems: Problems,
) -> Provider:
    if message.instance_name not in scope.trust.certificate_providers:
        with problems.at("instance_name"):
            problems.add(
                "ProviderUnknown",
                f"The bootstrap has no certificate provider '{message.instance_name}'. Add it to"
                " certificate_providers.",
            )
    return Provider(instance=message.instance_name, certificate=message.certificate_name)


def _refuse(message: Message, names: Iterable[str], problems: Problems) -> None:
    for field, _ in message.ListFields():
        if field.name in names:
            with problems.at(field.name):
                problems.add("Unsupported", "The field is not supported. Remove it.")
