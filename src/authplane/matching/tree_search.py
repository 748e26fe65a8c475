"""Compiles trees for many subjects: each becomes a function from a subject to an action."""

from collections.abc import Callable
from typing import Any, Generic, TypeAlias, TypeVar, assert_never

from authplane.matching.header_reader import header_reader
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
from authplane.matching.string_matchers import as_test
from authplane.matching.tree_inputs import HeaderInput, TextMatcher

S = TypeVar("S")
A = TypeVar("A")
Search: TypeAlias = Callable[[S], A | None]
Test: TypeAlias = Callable[[S], bool]


def as_search(matcher: Matcher[S, A]) -> Search[S, A]:
    """Return a function that finds the action of a subject; raises `ValueError` for a tree that keeps matching."""
    ready: _Ready[S, A] = _Ready()
    return ready.tree(matcher)


class _Ready(Generic[S, A]):
    """Makes functions of the parts of a tree."""

    def tree(self, matcher: Matcher[S, A]) -> Search[S, A]:
        found = self._by_kind(matcher)
        if matcher.on_no_match is None:
            return found
        other = self._outcome(matcher.on_no_match)

        def search(subject: S) -> A | None:
            first = found(subject)
            return other(subject) if first is None else first

        return search

    def _by_kind(self, matcher: Matcher[S, A]) -> Search[S, A]:
        match matcher:
            case ListMatcher():
                return self._list(matcher)
            case ExactMap():
                return self._exact(matcher)
            case PrefixMap():
                return self._prefixes(matcher)
            case _:
                assert_never(matcher)

    def _list(self, matcher: ListMatcher[S, A]) -> Search[S, A]:
        branches = [(_test(each.predicate), self._outcome(each.on_match)) for each in matcher.branches]

        def search(subject: S) -> A | None:
            for test, outcome in branches:
                if test(subject):
                    found = outcome(subject)
                    if found is not None:
                        return found
            return None

        return search

    def _exact(self, matcher: ExactMap[S, A]) -> Search[S, A]:
        read = _reader(matcher.input)
        outcomes = {key: self._outcome(each) for key, each in matcher.entries}

        def search(subject: S) -> A | None:
            value = read(subject)
            outcome = None if value is None else outcomes.get(value)
            return None if outcome is None else outcome(subject)

        return search

    def _prefixes(self, matcher: PrefixMap[S, A]) -> Search[S, A]:
        read, places = _reader(matcher.input), matcher.index.of
        outcomes = [self._outcome(each) for _, each in matcher.entries]

        def search(subject: S) -> A | None:
            value = read(subject)
            if value is not None:
                for place in places(value):
                    found = outcomes[place](subject)
                    if found is not None:
                        return found
            return None

        return search

    def _outcome(self, outcome: OnMatch[S, A]) -> Search[S, A]:
        if outcome.keep_matching:
            raise ValueError("a tree with keep_matching has no single action")
        match outcome:
            case Act(action):
                return lambda _: action
            case Nested(inner):
                return self.tree(inner)
            case _:
                assert_never(outcome)


def _reader(source: Any) -> Callable[[Any], Any]:
    return header_reader(source.name) if isinstance(source, HeaderInput) else source.read


def _test(predicate: Predicate[S]) -> Test[S]:
    match predicate:
        case Single(source, matcher):
            read: Callable[[Any], Any] = _reader(source)
            matches = as_test(matcher.matcher) if isinstance(matcher, TextMatcher) else matcher.matches

            def single(subject: S) -> bool:
                value = read(subject)
                return value is not None and matches(value)

            return single
        case And(parts):
            wanted = [_test(each) for each in parts]
            return lambda subject: all(test(subject) for test in wanted)
        case Or(parts):
            enough = [_test(each) for each in parts]
            return lambda subject: any(test(subject) for test in enough)
        case Not(part):
            test = _test(part)
            return lambda subject: not test(subject)
        case _:
            assert_never(predicate)
