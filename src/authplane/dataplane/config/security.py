"""TLS as resources describe it: certificates by the names of providers that the bootstrap has."""

from typing import TypeAlias

from authplane.core.values import dataclass
from authplane.matching.string_matchers import StringMatchers


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """A certificate provider, and which of its certificates."""

    instance: str
    certificate: str = ""


@dataclass(frozen=True, slots=True)
class SystemRoots:
    """The authorities that the system trusts."""


Roots: TypeAlias = Provider | SystemRoots


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTls:
    """What a server shows, and what it asks of its clients."""

    identity: Provider
    roots: Provider | None = None
    require_client_certificate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTls:
    """What a client trusts, and what it shows."""

    roots: Roots
    identity: Provider | None = None
    names: StringMatchers = ()
    """Names of which the server's certificate must have one; none means that any will do."""
