"""What the reference and Envoy do not agree about."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.differential.envoy import Compared
from tests.differential.exceptions import KNOWN
from tests.differential.model import Answer, Case, PolicySet, World
from tests.differential.placements import Placement
from tests.support.envoy.releases import Version


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A request that ended in another way than the reference says."""

    world: World
    case: Case
    wanted: Answer
    got: Answer
    placement: Placement
    version: Version

    @property
    def kind(self) -> str:
        """Say how bad it is."""
        if self.got.allowed and not self.wanted.allowed:
            return "Envoy allows what the reference denies"
        if self.wanted.allowed and not self.got.allowed:
            return "Envoy denies what the reference allows"
        if self.got.changed:
            return "what reached the server behind is not what was judged"
        return "both deny, with different statuses"

    @property
    def policies(self) -> PolicySet:
        """What stands before the Backend that the request is for."""
        return self.world.sets[self.case.place]


@dataclass(slots=True, kw_only=True)
class Tally:
    """What came of all cases with one placement."""

    placement: Placement
    cases: int = 0
    sets: int = 0
    changing: int = 0
    """Requests that were sent while policies changed."""
    allowed: int = 0
    entries: int = 0
    """Entries of rules at Backends."""
    native_entries: int = 0
    """Those of them that Envoy decides in the default placement."""
    native: int = 0
    """How many requests Envoy decided about by itself, where policies say something."""
    known: Counter[str] = field(default_factory=Counter)
    """How often each of `KNOWN` was met."""
    differences: list[Difference] = field(default_factory=list)

    @property
    def native_share(self) -> float:
        """The share of entries at Backends that Envoy decides."""
        return self.native_entries / self.entries

    def add(self, world: World, version: Version, compared: Iterable[Compared]) -> None:
        """Count the cases of a world."""
        self.sets += len(world.sets)
        for each in compared:
            self.cases += 1
            self.allowed += each.wanted.allowed and each.got.allowed
            if each.wanted != each.got:
                self.judge(world, version, each)

    def judge(self, world: World, version: Version, compared: Compared) -> None:
        """Count a difference: it is known, or a fault."""
        case, shot, wanted, got = compared
        made = world.sets[case.place]
        policies = len(made.backend) + len(made.gateway)
        names = [name for name, known in KNOWN.items() if known.covers(shot, self.placement, policies, wanted, got)]
        self.known.update(names)
        if not names:
            self.differences.append(
                Difference(world=world, case=case, wanted=wanted, got=got, placement=self.placement, version=version)
            )
