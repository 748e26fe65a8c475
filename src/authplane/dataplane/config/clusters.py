"""Clusters and the endpoints in them."""

from enum import Enum
from typing import TypeAlias

from authplane.core.values import dataclass
from authplane.dataplane.config.metadata import NO_METADATA, ResourceMetadata
from authplane.dataplane.config.security import ClientTls
from authplane.dataplane.filters.calls import Endpoint
from authplane.matching.fractions import Fraction


class Balancing(Enum):
    """How calls are spread over endpoints."""

    ROUND_ROBIN = "round_robin"
    PICK_FIRST = "pick_first"
    WEIGHTED_ROUND_ROBIN = "weighted_round_robin"
    RING_HASH = "ring_hash"


@dataclass(frozen=True, slots=True)
class EdsEndpoints:
    """The endpoints are a resource of this name."""

    name: str


@dataclass(frozen=True, slots=True)
class DnsEndpoint:
    """The endpoints are what DNS says of ``host:port``."""

    target: str


@dataclass(frozen=True, slots=True)
class AggregateOf:
    """Other clusters, in order of preference."""

    clusters: tuple[str, ...]


Discovery: TypeAlias = EdsEndpoints | DnsEndpoint | AggregateOf


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Where calls can go."""

    name: str
    discovery: Discovery
    balancing: Balancing = Balancing.ROUND_ROBIN
    most_requests: int = 1024
    """Maximum number of concurrent calls."""
    tls: ClientTls | None = None
    metadata: ResourceMetadata = NO_METADATA


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedEndpoint:
    """An endpoint that may get calls."""

    addresses: tuple[Endpoint, ...]
    """At least one; the first is preferred."""
    weight: int = 1
    hostname: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalityEndpoints:
    """Endpoints at one place."""

    region: str = ""
    zone: str = ""
    sub_zone: str = ""
    weight: int
    endpoints: tuple[WeightedEndpoint, ...] = ()
    """Only those whose health is good or not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """A share of calls that fails at once."""

    category: str
    fraction: Fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterEndpoints:
    """The endpoints of a cluster."""

    name: str
    priorities: tuple[tuple[LocalityEndpoints, ...], ...] = ()
    """The first is preferred; each has a locality at least."""
    drops: tuple[Drop, ...] = ()
