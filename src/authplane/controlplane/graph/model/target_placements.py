"""The policies that apply to each target of proxies, so that renderers can place the rules."""

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from authplane.core.memo import Held, Same, Tables, Watched
from authplane.core.values import dataclass
from authplane.policy.attached.attachments import Policies, PolicyChain, attachments_before
from authplane.policy.attached.request_target import parse_target
from authplane.policy.rules.access_settings import Settings

if TYPE_CHECKING:
    # Only named here: who builds routes plans nothing, and planning brings much.
    from authplane.cel.envoy.translate import Condition
    from authplane.policy.placement.placement_model import Plan, Token


@dataclass(frozen=True, slots=True)
class SharedPlans:
    """What targets with the same policies share, while one of them exists."""

    plans: "Held[object, Plan]" = field(default_factory=Held)
    rendered: Held[Same, Any] = field(default_factory=Held)
    """What was rendered of plans."""
    tokens: "Held[tuple[str, Condition], Token]" = field(default_factory=Held)
    """Equal tokens as one object, so that those of all targets can be compared by identity."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class Placing:
    """The policies before one target, and what decides who enforces them."""

    chain: PolicyChain
    settings: Settings
    keys: frozenset[str]
    """The issuers whose keys proxies get, by address."""
    shared: SharedPlans = field(default_factory=SharedPlans, repr=False)
    answers: dict[object, Any] = field(default_factory=dict, init=False, repr=False)
    """Computed results about it, by key; they live as long as this object."""

    def with_all_keys(self) -> "Placing":
        """Return the same as if the keys of all issuers were loaded."""
        attachments = (attachment for chain in (self.chain, *self.chain.shadows) for attachment in chain.attachments)
        wanted = self.keys.union(*(attachment.issuers for attachment in attachments))
        return self if wanted == self.keys else replace(self, keys=wanted)


Where: TypeAlias = tuple[str | None, str | None]
"""A Backend and a Gateway's listener, named as checks name them; one of the two may be missing."""
Placings: TypeAlias = Mapping[Where, Placing | None]
"""The policies that apply to each target; None leaves the decision to the policy server."""


@dataclass(frozen=True, slots=True)
class PlacementMemory:
    """The policies that applied to targets in the last build."""

    placings: Watched[Where, Placing | None] = field(default_factory=Watched)
    shared: SharedPlans = field(default_factory=SharedPlans)


class Placements(Placings):
    """Finds the policies that apply to a target; without compiled policies, the policy server decides everything.

    The same policies give the same object as in the build that ``memory`` comes from.
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
        self._memory.placings.start((self._settings, self._issuers, self._policies is None))
        self._tables: Tables = {"attachments": {} if self._policies is None else self._policies.attachments}
        self._made: dict[Where, Placing | None] = {}

    def __getitem__(self, where: Where) -> Placing | None:
        if where not in self._made:
            self._made[where] = self._memory.placings.ensure(where, self._tables, partial(self._build, where))
        return self._made[where]

    def __iter__(self) -> Iterator[Where]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)

    def _build(self, where: Where, tables: Tables) -> Placing | None:
        policies, target = self._policies, parse_target(*where)
        # What else a chain says follows from the target's name and the settings.
        if policies is None or attachments_before(target, tables["attachments"]) is None:
            return None
        chain = policies.chain(target)
        if chain is None or not (chain.guarded or chain.shadows):
            return None
        return Placing(chain=chain, settings=self._settings, keys=self._issuers, shared=self._memory.shared)
