"""The bars: what a run has to fulfil, and whether it did."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from rich.console import Console
from rich.table import Table
from tests.soak.decisions import Logged
from tests.soak.faults import HUNG_LIMIT, HUNG_WORKER
from tests.soak.judge import Answer, Verdict, Window
from tests.soak.memory import JUDGED, MOST, Growth
from tests.soak.programs import Program
from tests.soak.requests import KINDS
from tests.soak.stage import Measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """All that a run has shown."""

    begun: float
    verdict: Verdict
    windows: Sequence[Window]
    measured: Sequence[Measured]
    growths: Sequence[Growth]
    logged: Logged
    programs: Sequence[Program]
    skipped: Sequence[str]
    edits: int


@dataclass(frozen=True, slots=True)
class Bar:
    """Something that has to hold."""

    name: str
    found: str
    holds: bool


def bars_of(outcome: Outcome) -> tuple[Bar, ...]:
    verdict, logged = outcome.verdict, outcome.logged
    unseen = [kind.name for kind in KINDS if not verdict.right[kind.name]]
    ended = [f"{each.name} {each.ended_by_itself} times" for each in outcome.programs if each.ended_by_itself]
    lines = f"{logged.answered} answered, {logged.missing} without a line, {logged.lost} said to be lost"
    return (
        Bar("requests that passed and must not", str(len(verdict.wrong_open)), not verdict.wrong_open),
        Bar("requests that failed outside windows", str(len(verdict.wrong_closed)), not verdict.wrong_closed),
        Bar("kinds of requests that were answered", f"{len(KINDS) - len(unseen)} of {len(KINDS)}", not unseen),
        Bar("programs that ended by themselves", ", ".join(ended) or "none", not ended),
        *_hung(outcome),
        *_limits(outcome.measured),
        *_memory(outcome.growths),
        Bar("decision log", lines, logged.missing <= logged.lost),
        Bar("lines that cannot be read", str(logged.unreadable), not logged.unreadable),
    )


def _hung(outcome: Outcome) -> Iterator[Bar]:
    found = [
        outcome.verdict.last_failure.get(number, 0.0)
        for number, window in enumerate(outcome.windows)
        if window.name == HUNG_WORKER
    ]
    if found:
        words = ", ".join(f"{each:.1f} s" for each in found)
        yield Bar(f"errors after a worker hangs, below {HUNG_LIMIT:g} s", words, max(found) < HUNG_LIMIT)


def _limits(measured: Sequence[Measured]) -> Iterator[Bar]:
    for name, group in groupby(sorted(measured), key=attrgetter("name")):
        each = list(group)
        words = ", ".join(f"{one.seconds:.1f} s" for one in each)
        yield Bar(f"{name}, within {each[0].limit:g} s", words, all(one.seconds <= one.limit for one in each))


def _memory(growths: Sequence[Growth]) -> Iterator[Bar]:
    for name, group in groupby(growths, key=attrgetter("name")):
        longest = next(group)
        words = f"{longest.slope:+.2f} MB/min and {longest.grown:+.0f} MB in {longest.seconds:.0f} s"
        judged = f"to {longest.megabytes:.0f} MB" + ("" if longest.is_judged else f" (not judged below {JUDGED:.0f} s)")
        holds = not longest.is_judged or longest.is_flat
        yield Bar(f"memory of {name}, at most {MOST:g} MB/min", f"{words}, {judged}", holds)


def show(console: Console, outcome: Outcome) -> bool:
    """Print everything, and tell whether all bars hold."""
    verdict = outcome.verdict
    console.print(
        f"\n{verdict.answered} requests, {len(outcome.windows)} faults, {outcome.edits} edits; "
        f"{verdict.excused.total()} failures in windows:"
    )
    for name, count in verdict.excused.most_common():
        console.print(f"  {count:6} {name}", highlight=False)
    for title, wrong in (("passed", verdict.wrong_open), ("failed", verdict.wrong_closed)):
        for words, group in _alike(wrong, outcome):
            console.print(f"  {title}: {len(group):5} {words}", highlight=False)
    for line in outcome.skipped:
        console.print(f"  skipped: {line}")
    bars = bars_of(outcome)
    table = Table("bar", "found", "")
    for bar in bars:
        table.add_row(bar.name, bar.found, "pass" if bar.holds else "[bold red]FAIL[/]")
    console.print(table)
    return all(bar.holds for bar in bars)


def _alike(wrong: Sequence[Answer], outcome: Outcome) -> Iterator[tuple[str, list[Answer]]]:
    """Put together what belongs together: the same kind, with the same answer, since the same fault."""
    groups: dict[tuple[str, int, int], list[Answer]] = defaultdict(list)
    for each in wrong:
        since = sum(window.begun <= each.done for window in outcome.windows)
        groups[each.kind.name, each.status, since].append(each)
    for (name, status, since), group in sorted(groups.items(), key=lambda each: each[1][0].sent):
        fault = outcome.windows[since - 1] if since else None
        first, last = (group[number].sent - (fault.begun if fault else outcome.begun) for number in (0, -1))
        after = f"the beginning of: {fault.name}" if fault else "the start"
        yield f"{name}: {status or 'no answer'}, {first:.1f} to {last:.1f} s after {after}", group
