"""A service on the side."""

from collections.abc import Hashable
from typing import Final, TypeAlias

from authplane.core.secret import Secret
from authplane.core.values import dataclass
from authplane.dataplane.filters.calls import Metadata
from authplane.dataplane.filters.headers import is_protected, name_fault, value_fault
from authplane.xds.bootstrap.credentials import ChannelCredentials

LONGEST: Final = 3e9
"""Seconds that a call may take at most, about a century: grpcio's clock ends before it is three."""


@dataclass(frozen=True, slots=True)
class XdsOr:
    """What the cluster says, for a target of xDS; something else where it says nothing."""

    fallback: "NamedChannelCredentials"


@dataclass(frozen=True, slots=True)
class AccessToken:
    """Each call has the token as its ``authorization``, on private connections only."""

    token: Secret[str]


NamedChannelCredentials: TypeAlias = ChannelCredentials | XdsOr


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedCredentials:
    """What a trusted xDS server names as credentials."""

    channel: NamedChannelCredentials
    calls: tuple[AccessToken, ...] = ()
    """All of them apply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SideChannel:
    """What makes a channel: equal ones are the same channel, before and after an update."""

    target: str
    credentials: Hashable
    """`NamedCredentials`, or the ``ServiceCredentials`` that the bootstrap has for the target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcService:
    """How to call a service."""

    channel: SideChannel
    timeout: float | None = None
    """Seconds that a check may take; None means the deadline of the checked call."""
    metadata: Metadata = ()
    """Goes with every call."""

    def __post_init__(self) -> None:
        # Raise early: with these values every check fails, and with FailOpen every call would be allowed.
        if self.timeout is not None and not 0 < self.timeout <= LONGEST:
            raise ValueError(
                "The timeout is not a positive number of seconds, at most a century. Use a number such as 0.2."
            )
        for name, value in self.metadata:
            fault = name_fault(name) or value_fault(name, value)
            if fault or is_protected(name) or isinstance(value, bytes) != name.endswith("-bin"):
                raise ValueError(f"Header '{name}' cannot be set{f': {fault}' if fault else ''}. Remove it.")
