"""Plans that were made before: what stands before most targets does not change from one pass to the next."""

from functools import lru_cache
from typing import Final

from authplane.policy.access.guards import Way
from authplane.policy.access.model import AnyPolicy
from authplane.policy.access.settings import Settings
from authplane.policy.placement.model import Choices, Plan
from authplane.policy.placement.plan import place_way

_MOST: Final = 1 << 14


def known_plan(way: Way, settings: Settings, choices: Choices) -> Plan:
    """Return what `place_way` does; the same policies give the same object."""
    return _known(_Key(way, settings, choices))


class _Key:
    """What a plan depends on. Policies are compared by identity: to compare them whole would take too long."""

    __slots__ = ("_hash", "_policies", "_rest", "choices", "settings", "way")

    def __init__(self, way: Way, settings: Settings, choices: Choices) -> None:
        self.way, self.settings, self.choices = way, settings, choices
        guards = (*way.guards, *(guard for shadow in way.shadows for guard in shadow.guards))
        self._policies: tuple[AnyPolicy, ...] = tuple(each for guard in guards for each in guard.policies)
        counts = (len(way.guards), *(len(guard.policies) for guard in guards))
        chosen = (way.placement, way.body_inspection, choices)
        self._rest = (counts, way.guarded, way.is_mcp, way.reads_mcp, chosen)
        self._hash = hash((*map(id, self._policies), self._rest))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _Key)
            and len(self._policies) == len(other._policies)
            and all(mine is theirs for mine, theirs in zip(self._policies, other._policies, strict=True))
            and self._rest == other._rest
            and self.settings == other.settings
        )


@lru_cache(maxsize=_MOST)
def _known(key: _Key) -> Plan:
    return place_way(key.way, key.settings, key.choices)
