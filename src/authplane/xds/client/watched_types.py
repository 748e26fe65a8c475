"""What a client must know of a resource type to subscribe to it."""

from collections.abc import Callable
from typing import Generic, TypeAlias, TypeVar

from authplane.core.problems import Problem
from authplane.core.values import dataclass
from authplane.xds.bootstrap.xds_bootstrap import XdsServer

T_co = TypeVar("T_co", covariant=True)

Source: TypeAlias = XdsServer
"""The server that delivered a resource: how far it is trusted decides what the resource may say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded(Generic[T_co]):
    """A resource that can be used. Equal values mean the same."""

    name: str
    value: T_co


@dataclass(frozen=True, slots=True, kw_only=True)
class Invalid:
    """A resource that cannot be used, and everything that is wrong with it."""

    name: str | None
    """None if not even the name can be read."""
    problems: tuple[Problem, ...]
    """At least one; paths begin at the resource."""

    def __post_init__(self) -> None:
        if not self.problems:
            raise ValueError("a resource is invalid for a reason")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceType(Generic[T_co]):
    """A type of resources."""

    type_url: str
    decode: Callable[[bytes, Source], Decoded[T_co] | Invalid]
    """Reads a resource; the same bytes from the same source always give the same."""
    full_set: bool = False
    """Whether a response has all subscribed resources that exist, as with Listeners and Clusters."""
