"""The composite filter: its configuration, and how it decides a call."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final, TypeAlias, assert_never

from authplane.core.values import dataclass
from authplane.dataplane.filters.calls import Call, Code, Flow, Running, Stop
from authplane.dataplane.filters.chain import passed, run_filters
from authplane.dataplane.filters.composite.authority_dependence import asks_authority
from authplane.dataplane.filters.registry import FilterConfig, State
from authplane.matching.fractions import ALWAYS, Fraction, is_drawn
from authplane.matching.matcher_tree import Matcher, with_actions
from authplane.matching.tree_search import Search, as_search

NO_MATCH: Final = Stop(code=Code.UNAVAILABLE, message="no match found in composite filter")
NO_AUTHORITY: Final = Stop(
    code=Code.UNAVAILABLE, message="the composite filter reads the authority of the call, which is unknown"
)


@dataclass(frozen=True, slots=True)
class NestedFilter:
    """A filter that is chosen."""

    name: str
    """May be empty; what a filter keeps across updates goes by it."""
    config: FilterConfig


@dataclass(frozen=True, slots=True)
class Skip:
    """No filter runs on the call."""


@dataclass(frozen=True, slots=True)
class Execute:
    """These filters run on the call, in order."""

    filters: tuple[NestedFilter, ...]
    sample: Fraction = ALWAYS
    """The share of calls that the filters run on, drawn for each call; others continue unchanged."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """No filter can run, so the call fails."""

    why: str
    sample: Fraction = ALWAYS
    """The calls that fail; the others go on as they are."""


Action: TypeAlias = Skip | Execute | Refuse


@dataclass(frozen=True, slots=True)
class Choice:
    """An override: a tree that replaces the other one."""

    matcher: Matcher[Call, Action]


@dataclass(frozen=True, slots=True)
class Composite:
    """Selects filters by call."""

    matcher: Matcher[Call, Action] | None = None
    """None lets every call go on as it is."""

    def build(self, state: State, override: object | None) -> Running:
        """Create the filters of every action; the tree of an override replaces this one."""
        matcher = override.matcher if isinstance(override, Choice) else self.matcher
        if matcher is None:
            return _CompositeFilter(lambda _: _PASS, state.random)
        search = as_search(with_actions(matcher, _Builder(state).built))
        # Without the authority, a call could match the branch of another one.
        return _CompositeFilter(_if_known(search) if asks_authority(matcher) else search, state.random)


@dataclass(frozen=True, slots=True)
class _Run:
    """The filters of a call that the tree leads here."""

    judge: Callable[[Call], Flow] | Stop | None
    """None lets the call continue unchanged."""
    sample: Fraction = ALWAYS


_PASS: Final = _Run(None)
_UNKNOWN: Final = _Run(NO_AUTHORITY)


def _if_known(search: Search[Call, _Run]) -> Search[Call, _Run]:
    return lambda call: _UNKNOWN if call.authority is None else search(call)


class _Builder:
    """Builds filters, each with what it keeps of its own."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._seen: dict[str, int] = {}

    def built(self, action: Action) -> _Run:
        match action:
            case Skip():
                return _PASS
            case Refuse(why, sample):
                return _Run(Stop(code=Code.UNAVAILABLE, message=why), sample)
            case Execute(filters, sample):
                return _Run(_chained(tuple(self._running(filters))), sample)
            case _:
                assert_never(action)

    def _running(self, filters: tuple[NestedFilter, ...]) -> Iterator[Running]:
        for each in filters:
            place = self._seen.get(each.name, 0)
            self._seen[each.name] = place + 1
            # By name and not by place in the tree: a branch that is added before others takes nothing from them.
            kept = self._state.kept.below((Composite, each.name, place))
            yield each.config.build(replace(self._state, kept=kept), None)


def _chained(filters: tuple[Running, ...]) -> Callable[[Call], Flow] | None:
    if not filters:
        return None
    return filters[0].run if len(filters) == 1 else lambda call: run_filters(filters, call)


class _CompositeFilter:
    """Chooses for each call."""

    __slots__ = ("_random", "_search")

    def __init__(self, search: Search[Call, _Run], random: Callable[[], float]) -> None:
        self._search = search
        self._random = random

    def run(self, call: Call) -> Flow:
        """Run the filters that the tree selects; a call without a match fails."""
        found = self._search(call)
        if found is None:
            return NO_MATCH
        if found.sample is not ALWAYS and not is_drawn(found.sample, self._random()):
            return passed(call)
        match found.judge:
            case None:
                return passed(call)
            case Stop() as stop:
                return stop
            case judge:
                return (yield from judge(call))
