"""TLS from Envoy to the control plane, with files that Envoy reads once or follows.

Envoy reads files that its bootstrap names when it starts. It follows files that a secret names, and a secret may itself
come from a file (SDS from the file system). This is how certificates are renewed without a restart.
"""

from collections.abc import Mapping
from typing import Final

from envoy.config.core.v3 import base_pb2, config_source_pb2
from envoy.extensions.transport_sockets.tls.v3 import common_pb2, secret_pb2, tls_pb2
from envoy.service.discovery.v3 import discovery_pb2
from envoy.type.matcher.v3 import string_pb2

from authplane.controlplane.render.envoy_pieces import pack
from authplane.core.addresses import parse_ip_address
from authplane.core.values import dataclass

_CERTIFICATE: Final = "control-certificate"
_CA: Final = "control-ca"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFiles:
    """What Envoy needs to reach a control plane that requires a client certificate."""

    server_name: str
    """A DNS name or an IP address that the control plane's certificate must have."""
    ca: str
    certificate: str
    key: str
    followed_from: str = ""
    """The folder with the files of `secret_files`. Without it, Envoy reads the files once."""


def client_tls(files: ClientFiles) -> tls_pb2.UpstreamTlsContext:
    """Build the TLS context of the connection."""
    is_address = parse_ip_address(files.server_name) is not None
    return tls_pb2.UpstreamTlsContext(
        sni="" if is_address else files.server_name,
        common_tls_context=_followed(files) if files.followed_from else _read_once(files),
    )


def secret_files(files: ClientFiles) -> Mapping[str, discovery_pb2.DiscoveryResponse]:
    """Return by name the files that the folder must have. They contain names of files, and no keys."""
    certificate, ca = _certificate(files), common_pb2.CertificateValidationContext(trusted_ca=_file(files.ca))
    # A mounted Secret changes by a link in its folder that is moved: the files themselves are not.
    certificate.watched_directory.path = _folder(files.certificate)
    ca.watched_directory.path = _folder(files.ca)
    return {
        _name(_CERTIFICATE): _response(secret_pb2.Secret(name=_CERTIFICATE, tls_certificate=certificate)),
        _name(_CA): _response(secret_pb2.Secret(name=_CA, validation_context=ca)),
    }


def _read_once(files: ClientFiles) -> tls_pb2.CommonTlsContext:
    expected = _expected(files)
    expected.trusted_ca.CopyFrom(_file(files.ca))
    return tls_pb2.CommonTlsContext(tls_certificates=[_certificate(files)], validation_context=expected)


def _followed(files: ClientFiles) -> tls_pb2.CommonTlsContext:
    return tls_pb2.CommonTlsContext(
        tls_certificate_sds_secret_configs=[_from_file(files, _CERTIFICATE)],
        combined_validation_context=tls_pb2.CommonTlsContext.CombinedCertificateValidationContext(
            default_validation_context=_expected(files), validation_context_sds_secret_config=_from_file(files, _CA)
        ),
    )


def _from_file(files: ClientFiles, name: str) -> secret_pb2.SdsSecretConfig:
    path = f"{files.followed_from.rstrip('/')}/{_name(name)}"
    source = config_source_pb2.ConfigSource(
        path_config_source=config_source_pb2.PathConfigSource(path=path),
        resource_api_version=config_source_pb2.ApiVersion.V3,
    )
    return secret_pb2.SdsSecretConfig(name=name, sds_config=source)


def _expected(files: ClientFiles) -> common_pb2.CertificateValidationContext:
    kinds = common_pb2.SubjectAltNameMatcher.SanType
    is_address = parse_ip_address(files.server_name) is not None
    return common_pb2.CertificateValidationContext(
        match_typed_subject_alt_names=[
            common_pb2.SubjectAltNameMatcher(
                san_type=kinds.IP_ADDRESS if is_address else kinds.DNS,
                matcher=string_pb2.StringMatcher(exact=files.server_name),
            )
        ]
    )


def _certificate(files: ClientFiles) -> common_pb2.TlsCertificate:
    return common_pb2.TlsCertificate(certificate_chain=_file(files.certificate), private_key=_file(files.key))


def _file(path: str) -> base_pb2.DataSource:
    return base_pb2.DataSource(filename=path)


def _folder(path: str) -> str:
    return path.rpartition("/")[0] or ("/" if path.startswith("/") else ".")


def _response(secret: secret_pb2.Secret) -> discovery_pb2.DiscoveryResponse:
    return discovery_pb2.DiscoveryResponse(resources=[pack(secret)])


def _name(secret: str) -> str:
    return f"{secret}.json"
