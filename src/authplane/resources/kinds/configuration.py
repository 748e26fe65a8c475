"""Our own kind: AuthplaneConfiguration."""

from typing import Annotated

from authplane.core.values import dataclass
from authplane.resources.kinds.contour_policies import NamespacedName
from authplane.resources.kinds.contour_settings import ContourSettings
from authplane.resources.kinds.meta import Meta
from authplane.resources.kinds.policy_settings import PolicySettings
from authplane.resources.typed.schema import Filled, Length, OneOf, Range


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenAddress:
    """Where Envoy listens."""

    address: Annotated[str, Length(1)] = "0.0.0.0"  # noqa: S104 (a gateway is there to be reached)
    port: Annotated[int, Range(1, 65535)] = 8080


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpsListener:
    """Where Envoy listens for TLS, and the port that clients use."""

    address: Annotated[str, Length(1)] = "0.0.0.0"  # noqa: S104 (as above)
    port: Annotated[int, Range(1, 65535)] = 8443
    public_port: Annotated[int, Range(1, 65535)] = 443
    """The port in redirects from HTTP: the port of a load balancer in front. Default: ``port``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """The two listeners of the gateway."""

    http: ListenAddress = ListenAddress()
    https: HttpsListener = HttpsListener()


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultGatewayTls:
    """TLS of the default Gateway, which exists without a Gateway document."""

    certificate: NamespacedName
    """The Secret with the server certificate."""
    client_ca: NamespacedName | None = None
    """The Secret with the clients' CA. If set, every client must present a certificate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """How Gateways listen, and how they connect to external hosts."""

    address: Annotated[str, Length(1)] | None = None
    """Default: all addresses for Gateway documents, loopback for the default Gateway."""
    port: Annotated[int, Range(1, 65535)] = 8090
    """The port of the default Gateway."""
    tls: DefaultGatewayTls | None = None
    ca_file: Annotated[str, Length(1, 4096)] = "/etc/ssl/certs/ca-certificates.crt"
    """A PEM file on Envoy's machine with the CAs that verify external Backends."""
    backend_urls: Annotated[str, OneOf(("Allow", "HTTPSOnly", "Deny"))] | None = None
    """Which URLs Backends may have. Default: the source of the resources decides, and a folder allows all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyServer:
    """How Envoy connects to the policy server."""

    address: Annotated[str, Length(1, 4096)] | None = None
    """``host:port``, or ``unix:`` and the path of a socket. Default: port 9443 on loopback."""
    addresses: Annotated[tuple[str, ...], Length(0, 16)] = ()
    """Several equal servers instead of one. Envoy checks their health."""
    server_name: Annotated[str, Length(0, 253)] = ""
    """The DNS name or IP address in the server's certificate. Default: the host of the address."""
    ca_file: Annotated[str, Length(0, 4096)] = ""
    """A PEM file on Envoy's machine with the CA of the server's certificate."""
    ca_secret: Annotated[NamespacedName | None, Filled()] = None
    """The Secret of that CA, instead of a file."""
    client_cert_file: Annotated[str, Length(0, 4096)] = ""
    """A PEM file on Envoy's machine with the client certificate that Envoy presents."""
    client_key_file: Annotated[str, Length(0, 4096)] = ""
    """A PEM file on Envoy's machine with the private key of the client certificate."""
    client_secret: Annotated[NamespacedName | None, Filled()] = None
    """The ``kubernetes.io/tls`` Secret of that certificate, instead of files."""
    timeout: str = ""
    """How long a decision may take. Default: 5s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthplaneConfigurationSpec(PolicySettings):
    """``spec`` of an AuthplaneConfiguration."""

    listeners: Listeners = Listeners()
    gateway: GatewaySettings = GatewaySettings()
    policy_server: Annotated[PolicyServer | None, Filled()] = None
    contour: ContourSettings = ContourSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthplaneConfiguration:
    """Settings of the whole installation; at most one."""

    metadata: Meta
    spec: AuthplaneConfigurationSpec = AuthplaneConfigurationSpec()
