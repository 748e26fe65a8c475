"""Which answers are right: a pure function of what was sent, which faults were announced, and what was edited."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tests.soak.requests import Kind, Right

NOBODY: Final = 0
"""The status of a request that nobody answered."""
AT_FIRST: Final = {Right.ALLOW: {200}, Right.DENY: {403}, Right.CHALLENGE: {401}, Right.BY_EDIT: {200}}
"""The right answers before the first edit."""


class Answer(NamedTuple):
    """One request and how it ended; times are those of one clock."""

    number: int
    kind: Kind
    sent: float
    done: float
    status: int


@dataclass(slots=True)
class Window:
    """A fault that was announced: requests of these kinds may fail while it lasts. None may pass that must not."""

    name: str
    spoils: AbstractSet[Kind]
    begun: float
    ended: float = float("inf")
    loses_lines: bool = False
    """Lines of the decision log may be missing that nobody counts: their writer was killed."""

    def covers(self, answer: Answer) -> bool:
        return answer.kind in self.spoils and self.meets(answer)

    def meets(self, answer: Answer) -> bool:
        return self.begun <= answer.done and answer.sent <= self.ended


@dataclass(slots=True)
class Edit:
    """A change of a policy. Until it is settled both answers are right."""

    target: str
    sells: bool
    written: float
    settled: float = float("inf")


@dataclass
class Announced:
    """What was announced and edited so far."""

    windows: list[Window] = field(default_factory=list)
    edits: list[Edit] = field(default_factory=list)

    def sells(self, target: str) -> bool:
        """Tell what the latest policy says; the first one allows it."""
        return next((edit.sells for edit in reversed(self.edits) if edit.target == target), True)


@dataclass
class Verdict:
    """What is to be said of all answers."""

    right: Counter[str] = field(default_factory=Counter)
    """By the name of the kind."""
    excused: Counter[str] = field(default_factory=Counter)
    """Failures by the window that excuses them."""
    wrong_open: list[Answer] = field(default_factory=list)
    wrong_closed: list[Answer] = field(default_factory=list)
    last_failure: dict[int, float] = field(default_factory=dict)
    """For each window, when the last request was sent that failed in it, in seconds from its beginning."""

    @property
    def answered(self) -> int:
        return self.right.total() + self.excused.total() + len(self.wrong_open) + len(self.wrong_closed)


def judge(answers: Iterable[Answer], announced: Announced, reached: AbstractSet[int]) -> Verdict:
    """Compare every answer with the right one; ``reached`` are the requests that came to an origin."""
    made = Verdict()
    edits: Mapping[str, list[Edit]] = defaultdict(list)
    for edit in announced.edits:
        edits[edit.target].append(edit)
    for answer in answers:
        rights = right_statuses(answer, edits[answer.kind.target])
        passed = answer.status == 200 or answer.number in reached
        if passed and 200 not in rights:
            made.wrong_open.append(answer)
        elif answer.status in rights:
            made.right[answer.kind.name] += 1
        else:
            _excuse(made, answer, announced.windows)
    return made


def _excuse(made: Verdict, answer: Answer, windows: Sequence[Window]) -> None:
    found = [number for number, window in enumerate(windows) if window.covers(answer)]
    if not found:
        made.wrong_closed.append(answer)
        return
    made.excused[windows[found[-1]].name] += 1
    for number in found:
        since = answer.sent - windows[number].begun
        made.last_failure[number] = max(since, made.last_failure.get(number, 0.0))


def right_statuses(answer: Answer, edits: Sequence[Edit]) -> AbstractSet[int]:
    """Return every status that is right; there are several while an edit takes effect."""
    if answer.kind.right is not Right.BY_EDIT:
        return AT_FIRST[answer.kind.right]
    statuses, known = set(), True
    for edit in edits:
        if edit.written > answer.done:
            break
        if edit.settled >= answer.sent:
            statuses.add(200 if known else 403)
        known = edit.sells
    return statuses | {200 if known else 403}
