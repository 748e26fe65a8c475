"""Endpoints as grpcio's own load balancing can use them: a target and the name of a policy."""

from collections.abc import Iterable
from ipaddress import IPv4Address, ip_address
from typing import Final

from authplane.core.values import dataclass
from authplane.dataplane.config.clusters import Balancing, Cluster, ClusterEndpoints, Drop, LocalityEndpoints
from authplane.dataplane.filters.calls import Endpoint
from authplane.matching.fractions import is_drawn

_POLICIES: Final = {
    Balancing.ROUND_ROBIN: "round_robin",
    Balancing.PICK_FIRST: "pick_first",
    Balancing.WEIGHTED_ROUND_ROBIN: "weighted_round_robin",
    # Its hashes come from routes, of which grpcio knows nothing on such a channel.
    Balancing.RING_HASH: "round_robin",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Endpoints that are used together; equal groups can share a channel."""

    target: str
    """For ``grpc.insecure_channel`` and its like."""
    policy: str
    """For ``loadBalancingConfig``."""
    cluster: Cluster
    drops: tuple[Drop, ...] = ()


def endpoint_groups(cluster: Cluster, endpoints: ClusterEndpoints) -> tuple[Group, ...]:
    """Return the usable endpoints of each priority, the preferred first; priorities without any are left out."""
    return tuple(
        Group(
            target=ip_target(addresses),
            policy=_POLICIES[cluster.balancing],
            cluster=cluster,
            drops=endpoints.drops,
        )
        for addresses in map(_addresses, endpoints.priorities)
        if addresses
    )


def dns_group(cluster: Cluster, name: str) -> Group:
    """Return what DNS says of ``host:port``."""
    return Group(target=f"dns:///{name}", policy=_POLICIES[cluster.balancing], cluster=cluster)


def ip_target(addresses: Iterable[Endpoint]) -> str:
    """Write IP addresses as one target; if both versions are among them, those of version 4 as mapped ones."""
    found = [(ip_address(each.address), each.port) for each in addresses]
    if all(isinstance(address, IPv4Address) for address, _ in found):
        return "ipv4:" + ",".join(f"{address}:{port}" for address, port in found)
    return "ipv6:" + ",".join(
        f"[::ffff:{address}]:{port}" if isinstance(address, IPv4Address) else f"[{address}]:{port}"
        for address, port in found
    )


def drop_category(drops: Iterable[Drop], numbers: Iterable[float]) -> str | None:
    """Return for which reason a call fails at once, or None; each drop has a random number of its own."""
    return next(
        (drop.category for drop, number in zip(drops, numbers, strict=False) if is_drawn(drop.fraction, number)), None
    )


def _addresses(localities: tuple[LocalityEndpoints, ...]) -> tuple[Endpoint, ...]:
    return tuple(
        address for locality in localities for endpoint in locality.endpoints for address in endpoint.addresses[:1]
    )
