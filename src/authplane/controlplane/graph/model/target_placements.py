"""What stands before the targets of proxies, so that whoever renders it can place the rules."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from authplane.policy.attached.attachments import Policies, PolicyChain
from authplane.policy.attached.request_target import parse_target
from authplane.policy.rules.access_settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class Placing:
    """The policies before one target, and what decides who enforces them."""

    chain: PolicyChain
    settings: Settings
    keys: frozenset[str]
    """The issuers whose keys proxies are given, by address."""

    def with_all_keys(self) -> "Placing":
        """Return the same as if the keys of all issuers were there."""
        attachments = (attachment for chain in (self.chain, *self.chain.shadows) for attachment in chain.attachments)
        wanted = self.keys.union(*(attachment.issuers for attachment in attachments))
        return self if wanted == self.keys else replace(self, keys=wanted)


Where: TypeAlias = tuple[str | None, str | None]
"""A Backend and a Gateway's listener, named as checks name them; one of the two may be missing."""
Placings: TypeAlias = Mapping[Where, Placing | None]
"""What stands before each target; None leaves it to the policy server."""


@dataclass(slots=True)
class PlacementMemory:
    """What stood before targets in the last build."""

    settings: Settings = field(default_factory=Settings)
    keys: frozenset[str] = frozenset()
    made: Mapping[Where, Placing] = field(default_factory=dict)


class Placements(Placings):
    """Finds what stands before a target; nothing is known without policies, and then the policy server decides all.

    The same policies give the same object as in the build that ``memory`` is of.
    """

    def __init__(
        self,
        policies: Policies | None,
        keys: Mapping[str, str] | None = None,
        memory: PlacementMemory | None = None,
    ) -> None:
        self._policies = policies if policies is not None and not policies.closed else None
        self.key_sets: Mapping[str, str] = keys or {}
        self._memory = memory or PlacementMemory()
        self._settings = policies.settings if policies is not None else Settings()
        self._issuers = frozenset(self.key_sets)
        same = self._memory.settings == self._settings and self._memory.keys == self._issuers
        self._before = self._memory.made if same else {}
        self._made: dict[Where, Placing | None] = {}

    def __getitem__(self, where: Where) -> Placing | None:
        if where not in self._made:
            self._made[where] = self._known(where) or self._build(*where)
        return self._made[where]

    def __iter__(self) -> Iterator[Where]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)

    def remember(self) -> None:
        """Leave what was asked for to the next build."""
        memory = self._memory
        memory.settings, memory.keys = self._settings, self._issuers
        memory.made = {where: placing for where, placing in self._made.items() if placing is not None}

    def _known(self, where: Where) -> Placing | None:
        placing, policies = self._before.get(where), self._policies
        if placing is None or policies is None:
            return None
        # The targets of a chain follow from its name, and what else it says from its attachments and the settings.
        same = all(policies.attachments.get(attachment.aim) is attachment for attachment in placing.chain.attachments)
        return placing if same else None

    def _build(self, backend: str | None, gateway: str | None) -> Placing | None:
        policies = self._policies
        chain = policies.chain(parse_target(backend, gateway)) if policies is not None else None
        if chain is None or not (chain.guarded or chain.shadows):
            return None
        return Placing(chain=chain, settings=self._settings, keys=self._issuers)
