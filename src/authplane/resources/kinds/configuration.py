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
    """Where Envoy listens for TLS, and under which port clients know it."""

    address: Annotated[str, Length(1)] = "0.0.0.0"  # noqa: S104 (as above)
    port: Annotated[int, Range(1, 65535)] = 8443
    public_port: Annotated[int, Range(1, 65535)] = 443
    """Where redirects from HTTP send clients: the port of the load balancer in front, or ``port`` if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """The two listeners of the gateway."""

    http: ListenAddress = ListenAddress()
    https: HttpsListener = HttpsListener()


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultGatewayTls:
    """TLS of the Gateway that is there without a Gateway document."""

    certificate: NamespacedName
    """The Secret of the certificate that clients are shown."""
    client_ca: NamespacedName | None = None
    """The Secret of the CA that signed the clients' certificates; with it every client has to show one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """How Gateways listen, and how they reach hosts outside."""

    address: Annotated[str, Length(1)] | None = None
    """Left out, every address for Gateway documents, and this machine for the Gateway that is there without one."""
    port: Annotated[int, Range(1, 65535)] = 8090
    """Where the Gateway listens that is there without a Gateway document."""
    tls: DefaultGatewayTls | None = None
    ca_file: Annotated[str, Length(1, 4096)] = "/etc/ssl/certs/ca-certificates.crt"
    """The PEM file, where Envoy runs, with the CAs that Backends outside are verified with."""
    backend_urls: Annotated[str, OneOf(("Allow", "HTTPSOnly", "Deny"))] | None = None
    """Which URLs Backends may have; left out, the source of the resources decides: a folder allows all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyServer:
    """The policy server, as Envoy reaches it."""

    address: Annotated[str, Length(1, 4096)] | None = None
    """``host:port``, or ``unix:`` and the path of a socket; left out, port 9443 of this machine."""
    addresses: Annotated[tuple[str, ...], Length(0, 16)] = ()
    """Several servers that decide alike, instead of one; Envoy checks their health."""
    server_name: Annotated[str, Length(0, 253)] = ""
    """The DNS name or IP address that its certificate must have; left out, the host of the address."""
    ca_file: Annotated[str, Length(0, 4096)] = ""
    """A PEM file, where Envoy runs, with the CA that signed its certificate."""
    ca_secret: Annotated[NamespacedName | None, Filled()] = None
    """The Secret of that CA, instead of a file."""
    client_cert_file: Annotated[str, Length(0, 4096)] = ""
    """A PEM file, where Envoy runs, with the certificate that Envoy shows to the server."""
    client_key_file: Annotated[str, Length(0, 4096)] = ""
    """A PEM file, where Envoy runs, with its private key."""
    client_secret: Annotated[NamespacedName | None, Filled()] = None
    """The ``kubernetes.io/tls`` Secret of that certificate, instead of files."""
    timeout: str = ""
    """How long a decision may take; 5s if left out."""


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
