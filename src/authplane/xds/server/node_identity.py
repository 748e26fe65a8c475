"""Identifies a client by its verified certificate, and selects its part of a snapshot."""

from collections.abc import Collection
from enum import Enum, StrEnum
from typing import Final

from authplane.core.values import dataclass
from authplane.xds.server.client_text import clean_node

INSTANCE: Final = "#"
"""Stands in a node id between a name of the certificate and whatever tells the instances apart that share it.

No DNS name and no SPIFFE id has it, so the id of one client is never the name of another.
"""


class NodeName(StrEnum):
    """Which names of a client's certificate count."""

    SAN = "san"
    """The DNS names and URIs among its subject alternative names."""
    CN = "cn"
    """The common name of its subject."""


class Role(Enum):
    """What of a snapshot a client may get."""

    LOCAL = "local"
    """Everything: it is a program of this user, or at least of this machine."""
    ENVOY = "envoy"
    """Everything but the Listeners of gRPC servers."""
    GRPC = "grpc"
    """The Listeners of gRPC servers, by name, and no Secrets or anything else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRules:
    """What clients with verified certificates are."""

    envoys: frozenset[str] = frozenset()
    """Names in the certificates of Envoys; a client with another name is a gRPC server. Empty: all are Envoys."""

    def admit(self, node: str, names: Collection[str]) -> Role | str:
        """Return what a client is that calls itself ``node`` and has these names in its certificate, or why not."""
        name = node.partition(INSTANCE)[0]
        if not name or name not in names:
            has = ", ".join(sorted(map(clean_node, names))) or "none"
            return f"node id '{clean_node(node)}' is not a name in the client's certificate, which has: {has}"
        return Role.ENVOY if not self.envoys or name in self.envoys else Role.GRPC


ALL_NODES: Final = NodeRules()
"""Every client with a certificate is an Envoy."""


def changed_node(before: str, now: str) -> str | None:
    """Say why a request is not served whose node is not that of the first one; empty means the same as before."""
    if not now or now == before:
        return None
    return f"the node id changed on the stream, from '{clean_node(before)}' to '{clean_node(now)}'"
