"""Where clients come in, what they are shown and asked for in TLS, and which hosts they find."""

from dataclasses import dataclass
from typing import TypeAlias

from authplane.controlplane.graph.model.host_model import GatewayHost, Host
from authplane.controlplane.graph.model.upstreams import NO_LIMITS, TlsLimits
from authplane.core.names import ObjectName
from authplane.core.secret import Secret


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """Where a listener listens."""

    address: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Forwarded:
    """What the origin is told of the client's certificate."""

    subject: bool = False
    certificate: bool = False
    chain: bool = False
    dns: bool = False
    uri: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCertificates:
    """Which certificates clients show."""

    ca: bytes | None
    """Whose certificates; None, if any will do."""
    verified: bool = True
    """Whether a certificate has to be one that ``ca`` signed, or is only passed on: the author asked for it."""
    required: bool = True
    revoked: bytes | None = None
    """Certificate revocation lists, PEM."""
    leaf_only: bool = False
    forwarded: Forwarded | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A certificate chain and its key, PEM; they belong together."""

    name: ObjectName
    chain: bytes
    key: Secret[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class SecureHost:
    """A virtual host behind TLS."""

    host: Host
    certificate: ObjectName
    limits: TlsLimits = NO_LIMITS
    clients: ClientCertificates | None = None
    elsewhere: tuple[str, ...]
    """Names that this host's wildcard covers and that others claim: they are misdirected here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """Serves clients that name no host, or one that nobody serves, in TLS. Hosts are sorted by name, not empty."""

    certificate: ObjectName
    limits: TlsLimits
    """The strictest minimum of the hosts."""
    hosts: tuple[Host, ...]
    elsewhere: tuple[str, ...]
    """Names that wildcards of these hosts cover and that others claim: they are misdirected here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayChain:
    """A listener of a Gateway behind TLS."""

    name: str
    hostname: str
    """Whom clients name in TLS; ``*`` is anybody, or nobody."""
    certificates: tuple[ObjectName, ...]
    clients: ClientCertificates | None
    limits: TlsLimits = NO_LIMITS
    hosts: tuple[GatewayHost, ...]
    elsewhere: tuple[str, ...]
    """Names that this listener covers and that others on the port have: they are misdirected here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainPort:
    """A port for HTTP. Hosts are sorted by name, and not empty."""

    where: Address
    hosts: tuple[GatewayHost, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurePort:
    """A port for HTTPS. Chains are sorted by name, and not empty."""

    where: Address
    chains: tuple[GatewayChain, ...]


GatewayPort: TypeAlias = PlainPort | SecurePort
