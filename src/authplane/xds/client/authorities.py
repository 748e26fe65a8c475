"""Authorities: whose resources come from which servers."""

from dataclasses import field

from authplane.core.values import dataclass
from authplane.xds.bootstrap.xds_bootstrap import Bootstrap, XdsServer
from authplane.xds.client.resource_cache import Entry, Key, Standing


@dataclass(slots=True, kw_only=True)
class Realm:
    """The resources of one authority."""

    servers: tuple[XdsServer, ...]
    """In order of preference."""
    reachability_only: bool = False
    """Whether the next server is used as soon as one cannot be reached, even if nothing is missing."""
    used: int = 0
    """How many of the servers are in use: all but the last of these cannot be reached."""
    entries: dict[Key, Entry] = field(default_factory=dict)

    @property
    def present(self) -> tuple[XdsServer, ...]:
        """The servers in use."""
        return self.servers[: self.used]

    @property
    def lacking(self) -> bool:
        """Whether another server may help: nothing is known of some resource. One that does not exist is known."""
        return self.reachability_only or any(
            entry.standing is Standing.REQUESTED for entry in self.entries.values() if entry.watchers
        )


def realm_of(bootstrap: Bootstrap, authority: str | None) -> Realm | None:
    """Return an authority without resources yet; None if the bootstrap does not know it."""
    if authority is None:
        return Realm(servers=tuple(dict.fromkeys(bootstrap.servers)))
    known = bootstrap.authorities.get(authority)
    if known is None:
        return None
    return Realm(
        servers=tuple(dict.fromkeys(known.servers or bootstrap.servers)),
        reachability_only=known.fallback_on_reachability_only,
    )
