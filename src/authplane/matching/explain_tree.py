"""Explains how a subject matches a tree: everything that is tried, in order, with the values that are read.

Branches that the search does not try are left out.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, Protocol, TypeVar, assert_never, runtime_checkable

from authplane.core.problems import Path, printable
from authplane.core.values import dataclass
from authplane.matching.matcher_tree import (
    Act,
    And,
    ExactMap,
    ListMatcher,
    Matcher,
    Nested,
    Not,
    OnMatch,
    Or,
    Predicate,
    PrefixMap,
    Single,
)

S = TypeVar("S")
A = TypeVar("A")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Something that was tried."""

    path: Path
    """The way to it from the root, by the fields of the message."""
    text: str
    matched: bool | None
    """True if a predicate matches, or if a branch or tree ends the search; None for a plain value."""
    why: str = ""
    """What was read, and the like; empty if what is below says it."""
    below: tuple["Step", ...] = ()


@runtime_checkable
class Telling(Protocol):
    """A matcher that can say more about a value than what it is."""

    def tell(self, value: Any, path: Path) -> Step:
        """Explain why a value matches or not; the steps get the path."""


@dataclass(frozen=True, slots=True)
class Explanation(Generic[A]):
    """How a search went."""

    root: Step
    action: A | None
    """What it found; None if nothing matches."""
    path: Path
    """The way to that action; empty if nothing matches."""
    noted: tuple[A, ...]
    """Every action on the way, in the order in which they were noted."""


def explain(matcher: Matcher[S, A], subject: S, show: Callable[[A], str] = str) -> Explanation[A]:
    """Search as `as_search` does, also in trees that keep matching, and keep what is tried; ``show`` names actions."""
    search = _Search[S, A](subject, show)
    root = search.tree(matcher, ())
    noted = tuple(action for action, _ in search.noted)
    if not root.matched:
        return Explanation(root, None, (), noted)
    return Explanation(root, *search.noted[-1], noted)


class _Search(Generic[S, A]):
    """A search that says what it does."""

    def __init__(self, subject: S, show: Callable[[A], str]) -> None:
        self.noted: list[tuple[A, Path]] = []
        self._subject = subject
        self._show = show

    def tree(self, matcher: Matcher[S, A], path: Path) -> Step:
        hits: Iterable[tuple[str, OnMatch[S, A]]]
        match matcher:
            case ListMatcher():
                text, why = "list", ""
                below = _until_matched(self._list(matcher, (*path, "matcher_list", "matchers")))
            case ExactMap(input=source):
                value = source.read(self._subject)
                hit = None if value is None else matcher.index.get(value)
                hits = () if value is None or hit is None else ((value, hit),)
                below = self._entries(hits, (*path, "matcher_tree", "exact_match_map", "map"))
                text, why = f"map by {source}", _read(value) + _keyless(value, below, "no key equals it")
            case PrefixMap(input=source):
                value = source.read(self._subject)
                hits = () if value is None else matcher.hits(value)
                below = self._entries(hits, (*path, "matcher_tree", "prefix_match_map", "map"))
                text, why = (
                    f"map by prefix of {source}",
                    _read(value) + _keyless(value, below, "no key is a prefix of it"),
                )
            case _:
                assert_never(matcher)
        if matcher.on_no_match is not None and not _ended(below):
            below = (*below, self._otherwise(matcher.on_no_match, (*path, "on_no_match")))
        return Step(path=path, text=text, why=why, matched=_ended(below), below=below)

    def _list(self, matcher: ListMatcher[S, A], path: Path) -> Iterator[Step]:
        for index, branch in enumerate(matcher.branches):
            here = (*path, index)
            test = self._predicate(branch.predicate, (*here, "predicate"))
            text = f"branch {index}"
            if test.matched:
                end = self._outcome(branch.on_match, (*here, "on_match"))
                yield Step(path=here, text=text, matched=_ends(branch.on_match, end), below=(test, end))
            else:
                yield Step(path=here, text=text, matched=False, below=(test,))

    def _entries(self, hits: Iterable[tuple[str, OnMatch[S, A]]], path: Path) -> tuple[Step, ...]:
        return _until_matched(self._entry(key, hit, (*path, printable(key))) for key, hit in hits)

    def _entry(self, key: str, hit: OnMatch[S, A], path: Path) -> Step:
        end = self._outcome(hit, path)
        return Step(path=path, text=f"key {key!r}", matched=_ends(hit, end), below=(end,))

    def _otherwise(self, other: OnMatch[S, A], path: Path) -> Step:
        end = self._outcome(other, path)
        return Step(path=path, text="on no match", matched=_ends(other, end), below=(end,))

    def _outcome(self, outcome: OnMatch[S, A], path: Path) -> Step:
        match outcome:
            case Act(action, keep_matching):
                self.noted.append((action, (*path, "action")))
                why = "noted; the search continues" if keep_matching else ""
                return Step(path=(*path, "action"), text=f"action {self._show(action)}", matched=True, why=why)
            case Nested(inner):
                return self.tree(inner, (*path, "matcher"))
            case _:
                assert_never(outcome)

    def _predicate(self, predicate: Predicate[S], path: Path) -> Step:
        match predicate:
            case Single():
                return self._single(predicate, (*path, "single_predicate"))
            case And(parts):
                below = self._parts(parts, (*path, "and_matcher", "predicate"), enough=False)
                return Step(path=path, text="all of", matched=all(each.matched for each in below), below=below)
            case Or(parts):
                below = self._parts(parts, (*path, "or_matcher", "predicate"), enough=True)
                return Step(path=path, text="any of", matched=any(each.matched for each in below), below=below)
            case Not(part):
                inner = self._predicate(part, (*path, "not_matcher"))
                return Step(path=path, text="not", matched=not inner.matched, below=(inner,))
            case _:
                assert_never(predicate)

    def _single(self, predicate: Single[S], path: Path) -> Step:
        source, matcher = predicate.input, predicate.matcher
        value = source.read(self._subject)
        if value is not None and isinstance(matcher, Telling):
            return matcher.tell(value, path)
        matched = value is not None and matcher.matches(value)
        return Step(path=path, text=f"{source} {matcher}", matched=matched, why=_read(value))

    def _parts(self, parts: tuple[Predicate[S], ...], path: Path, *, enough: bool) -> tuple[Step, ...]:
        """Try the parts up to the first that decides."""
        below = []
        for index, part in enumerate(parts):
            below.append(self._predicate(part, (*path, index)))
            if below[-1].matched is enough:
                break
        return tuple(below)


def _until_matched(tries: Iterable[Step]) -> tuple[Step, ...]:
    below = []
    for step in tries:
        below.append(step)
        if step.matched:
            break
    return tuple(below)


def _ended(below: tuple[Step, ...]) -> bool:
    return bool(below) and below[-1].matched is True


def _ends(outcome: OnMatch[S, A], step: Step) -> bool:
    return step.matched is True and not outcome.keep_matching


def _read(value: object) -> str:
    match value:
        case None:
            return "no value"
        case str():
            return f"value is {value!r}"
        case _:
            return ""


def _keyless(value: str | None, below: tuple[Step, ...], why: str) -> str:
    return f", and {why}" if value is not None and not below else ""
