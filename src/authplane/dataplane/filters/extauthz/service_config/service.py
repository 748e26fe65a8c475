"""A service that filters call, such as an authorization service."""

from collections.abc import Hashable
from typing import Final, TypeAlias

from authplane.core.secret import Secret
from authplane.core.values import dataclass
from authplane.dataplane.filters.calls import Metadata
from authplane.dataplane.filters.headers import is_protected, name_fault, value_fault
from authplane.xds.bootstrap.credentials import ChannelCredentials

LONGEST: Final = 3e9
"""Maximum timeout in seconds, about a century: grpcio's clock overflows within three."""


@dataclass(frozen=True, slots=True)
class XdsOr:
    """The credentials of the cluster for an xDS target; the fallback if it has none."""

    fallback: "NamedChannelCredentials"


@dataclass(frozen=True, slots=True)
class AccessToken:
    """Calls send the token as ``authorization``, on encrypted connections only."""

    token: Secret[str]


NamedChannelCredentials: TypeAlias = ChannelCredentials | XdsOr


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedCredentials:
    """Credentials that a trusted xDS server names."""

    channel: NamedChannelCredentials
    calls: tuple[AccessToken, ...] = ()
    """All of them apply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SideChannel:
    """The key of a channel: equal keys share a channel, also across updates."""

    target: str
    credentials: Hashable
    """`NamedCredentials`, or the ``ServiceCredentials`` that the bootstrap has for the target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcService:
    """The channel, timeout and metadata of calls to a service."""

    channel: SideChannel
    timeout: float | None = None
    """Seconds that a check may take; None means the deadline of the checked call."""
    metadata: Metadata = ()
    """Sent with every call."""

    def __post_init__(self) -> None:
        # Raise early: with these values every check fails, and with FailOpen every call would be allowed.
        if self.timeout is not None and not 0 < self.timeout <= LONGEST:
            raise ValueError(
                "The timeout is not above 0 seconds, or is longer than a century. Use a number such as 0.2."
            )
        for name, value in self.metadata:
            fault = name_fault(name) or value_fault(name, value)
            if fault or is_protected(name) or isinstance(value, bytes) != name.endswith("-bin"):
                raise ValueError(f"Cannot set header '{name}'{f': {fault}' if fault else ''}. Remove it.")
