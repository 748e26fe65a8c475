"""Plans that were made before: what stands before most targets does not change from one pass to the next."""

from functools import lru_cache
from typing import Final
from weakref import WeakValueDictionary

from authplane.policy.attached.attachments import PolicyChain
from authplane.policy.placement.placement_model import Choices, Plan
from authplane.policy.placement.placement_plan import place_chain
from authplane.policy.rules.access_settings import Settings
from authplane.policy.rules.rule_model import AnyPolicy

_MOST: Final = 1 << 8
"""How many are kept that nobody holds."""


class KnownPlan:
    """A plan that is known as long as somebody holds this."""

    __slots__ = ("__weakref__", "plan")

    def __init__(self, plan: Plan) -> None:
        self.plan: Final = plan


def known_plan(chain: PolicyChain, settings: Settings, choices: Choices) -> Plan:
    """Return what `place_chain` does; the same policies give the same object."""
    return hold_plan(chain, settings, choices).plan


def hold_plan(chain: PolicyChain, settings: Settings, choices: Choices) -> KnownPlan:
    """Return the same for whoever needs it again: however many targets there are, it is not made twice."""
    key = _Key(chain, settings, choices)
    return _HELD.get(key) or _known(key)


class _Key:
    """What a plan depends on. Policies are compared by identity: to compare them whole would take too long."""

    __slots__ = ("_hash", "_policies", "_rest", "chain", "choices", "settings")

    def __init__(self, chain: PolicyChain, settings: Settings, choices: Choices) -> None:
        self.chain, self.settings, self.choices = chain, settings, choices
        attachments = (
            *chain.attachments,
            *(attachment for shadow in chain.shadows for attachment in shadow.attachments),
        )
        self._policies: tuple[AnyPolicy, ...] = tuple(
            each for attachment in attachments for each in attachment.policies
        )
        counts = (len(chain.attachments), *(len(attachment.policies) for attachment in attachments))
        chosen = (chain.placement, chain.body_inspection, choices)
        self._rest = (counts, chain.guarded, chain.is_mcp, chain.reads_mcp, chosen)
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
    made = _HELD[key] = KnownPlan(place_chain(key.chain, key.settings, key.choices))
    return made
