"""Plans that were made before: what stands before most targets does not change from one pass to the next."""

from functools import lru_cache
from typing import Final
from weakref import WeakValueDictionary

from authplane.policy.attached.attachments import Way
from authplane.policy.placement.placement_model import Choices, Plan
from authplane.policy.placement.placement_plan import place_way
from authplane.policy.rules.access_settings import Settings
from authplane.policy.rules.rule_model import AnyPolicy

_MOST: Final = 1 << 8
"""How many are kept that nobody holds."""


class KnownPlan:
    """A plan that is known as long as somebody holds this."""

    __slots__ = ("__weakref__", "plan")

    def __init__(self, plan: Plan) -> None:
        self.plan: Final = plan


def known_plan(way: Way, settings: Settings, choices: Choices) -> Plan:
    """Return what `place_way` does; the same policies give the same object."""
    return hold_plan(way, settings, choices).plan


def hold_plan(way: Way, settings: Settings, choices: Choices) -> KnownPlan:
    """Return the same for whoever needs it again: however many targets there are, it is not made twice."""
    key = _Key(way, settings, choices)
    return _HELD.get(key) or _known(key)


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


_HELD: Final[WeakValueDictionary[_Key, KnownPlan]] = WeakValueDictionary()


@lru_cache(maxsize=_MOST)
def _known(key: _Key) -> KnownPlan:
    made = _HELD[key] = KnownPlan(place_way(key.way, key.settings, key.choices))
    return made
