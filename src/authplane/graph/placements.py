"""What stands before the targets of proxies, so that whoever renders it can place the rules."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from authplane.policy.access.backend import parse_target
from authplane.policy.access.guards import Policies, Way
from authplane.policy.access.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Placing:
    """The policies before one target, and what decides who enforces them."""

    way: Way
    settings: Settings
    keys: frozenset[str]
    """The issuers whose keys proxies are given, by address."""

    def with_all_keys(self) -> "Placing":
        """Return the same as if the keys of all issuers were there."""
        guards = (guard for way in (self.way, *self.way.shadows) for guard in way.guards)
        wanted = self.keys.union(*(guard.issuers for guard in guards))
        return self if wanted == self.keys else replace(self, keys=wanted)


class Placements:
    """Finds what stands before a target; nothing is known without policies, and then the policy server decides all."""

    def __init__(self, policies: Policies | None, keys: Mapping[str, str] | None = None) -> None:
        self._policies = policies if policies is not None and not policies.closed else None
        self.keys: Mapping[str, str] = keys or {}
        self._known = frozenset(self.keys)
        self._made: dict[tuple[str | None, str | None], Placing | None] = {}

    def before(self, backend: str | None, gateway: str | None) -> Placing | None:
        """Return what stands before a target, named as checks name it; None leaves it to the policy server."""
        key = (backend, gateway)
        if key not in self._made:
            self._made[key] = self._build(backend, gateway)
        return self._made[key]

    def _build(self, backend: str | None, gateway: str | None) -> Placing | None:
        policies = self._policies
        way = policies.way(parse_target(backend, gateway)) if policies is not None else None
        if policies is None or way is None or not (way.guarded or way.shadows):
            return None
        return Placing(way=way, settings=policies.settings, keys=self._known)
