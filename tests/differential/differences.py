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
    allowed: int = 0
    native: int = 0
    """How many requests Envoy decided about by itself, where policies say something."""
    known: Counter[str] = field(default_factory=Counter)
    """How often each of `KNOWN` was met."""
    differences: list[Difference] = field(default_factory=list)

    def add(self, world: World, version: Version, compared: Iterable[Compared]) -> None:
        """Count the cases of a world."""
        self.sets += len(world.sets)
        for case, shot, wanted, got in compared:
            self.cases += 1
            self.allowed += wanted.allowed and got.allowed
            if wanted == got:
                continue
            made = world.sets[case.place]
            policies = len(made.backend) + len(made.gateway)
            names = [name for name, known in KNOWN.items() if known.covers(shot, self.placement, policies, wanted, got)]
            self.known.update(names)
            if not names:
                self.differences.append(
                    Difference(
                        world=world, case=case, wanted=wanted, got=got, placement=self.placement, version=version
                    )
                )
