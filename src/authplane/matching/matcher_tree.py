"""The unified matcher: a tree of tests with actions at its leaves, generic in what is matched and in the actions.

Values of these types are equal if they mean the same. A missing value matches nothing. A branch without a result did
not match, so the search continues after it: in a list with the next entry, in a map of prefixes with the next shorter
one, and in the end with ``on_no_match``.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, assert_never

from authplane.core.values import dataclass

S = TypeVar("S")
A = TypeVar("A")
B = TypeVar("B")
S_contra = TypeVar("S_contra", contravariant=True)
V_co = TypeVar("V_co", covariant=True)
V_contra = TypeVar("V_contra", contravariant=True)


class Input(Protocol[S_contra, V_co]):
    """What a test looks at: hashable, and ``str`` of it names it to people."""

    def read(self, subject: S_contra) -> V_co | None:
        """Return the value, or None if there is none."""


class ValueMatcher(Protocol[V_contra]):
    """What a test asks of a value: hashable, and ``str`` of it says what that is."""

    def matches(self, value: V_contra) -> bool:
        """Tell whether the value is as it should be."""


# --- Predicates


@dataclass(frozen=True, slots=True)
class Single(Generic[S]):
    """The input has a value, and that matches; who makes one sees to it that the two are of one type."""

    input: Input[S, Any]
    matcher: ValueMatcher[Any]


@dataclass(frozen=True, slots=True)
class And(Generic[S]):
    """All predicates match."""

    parts: tuple["Predicate[S]", ...]


@dataclass(frozen=True, slots=True)
class Or(Generic[S]):
    """At least one predicate matches."""

    parts: tuple["Predicate[S]", ...]


@dataclass(frozen=True, slots=True)
class Not(Generic[S]):
    """The predicate does not match."""

    part: "Predicate[S]"


Predicate: TypeAlias = Single[S] | And[S] | Or[S] | Not[S]


# --- Trees


@dataclass(frozen=True, slots=True)
class Act(Generic[A]):
    """A leaf. With ``keep_matching`` the action is noted, and the search goes on as if nothing had matched."""

    action: A
    keep_matching: bool = False


@dataclass(frozen=True, slots=True)
class Nested(Generic[S, A]):
    """A tree below a branch. With ``keep_matching`` what it finds is noted, and the search goes on."""

    matcher: "Matcher[S, A]"
    keep_matching: bool = False


OnMatch: TypeAlias = Nested[S, A] | Act[A]


@dataclass(frozen=True, slots=True)
class Branch(Generic[S, A]):
    """An entry of a list."""

    predicate: Predicate[S]
    on_match: OnMatch[S, A]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListMatcher(Generic[S, A]):
    """Branches in the order in which they are tried."""

    branches: tuple[Branch[S, A], ...]
    on_no_match: OnMatch[S, A] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactMap(Generic[S, A]):
    """The branch whose key is the value. :meth:`of` makes one."""

    input: Input[S, str]
    entries: tuple[tuple[str, OnMatch[S, A]], ...]
    """By key."""
    on_no_match: OnMatch[S, A] | None = None
    index: Mapping[str, OnMatch[S, A]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "index", dict(self.entries))

    @classmethod
    def of(
        cls, text: Input[S, str], entries: Mapping[str, OnMatch[S, A]], on_no_match: OnMatch[S, A] | None = None
    ) -> "ExactMap[S, A]":
        """Make a map of entries in any order."""
        return cls(input=text, entries=tuple(sorted(entries.items(), key=_key)), on_no_match=on_no_match)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixMap(Generic[S, A]):
    """The branches whose keys the value begins with, the longest first. :meth:`of` makes one."""

    input: Input[S, str]
    entries: tuple[tuple[str, OnMatch[S, A]], ...]
    """By key."""
    on_no_match: OnMatch[S, A] | None = None
    index: "Prefixes" = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "index", Prefixes(tuple(key for key, _ in self.entries)))

    @classmethod
    def of(
        cls, text: Input[S, str], entries: Mapping[str, OnMatch[S, A]], on_no_match: OnMatch[S, A] | None = None
    ) -> "PrefixMap[S, A]":
        """Make a map of entries in any order."""
        return cls(input=text, entries=tuple(sorted(entries.items(), key=_key)), on_no_match=on_no_match)

    def hits(self, value: str) -> Iterator[tuple[str, OnMatch[S, A]]]:
        """Return the entries whose keys the value begins with, the longest first."""
        return map(self.entries.__getitem__, self.index.of(value))


Matcher: TypeAlias = ListMatcher[S, A] | ExactMap[S, A] | PrefixMap[S, A]


# --- Trees as a whole


def with_actions(matcher: Matcher[S, A], change: Callable[[A], B]) -> Matcher[S, B]:
    """Return the same tree with each action replaced by the result of a function."""

    def changed(outcome: OnMatch[S, A]) -> OnMatch[S, B]:
        match outcome:
            case Act(action, keep_matching):
                return Act(change(action), keep_matching)
            case Nested(inner, keep_matching):
                return Nested(with_actions(inner, change), keep_matching)
            case _:
                assert_never(outcome)

    match matcher:
        case ListMatcher(branches=branches, on_no_match=other):
            return ListMatcher(
                branches=tuple(Branch(each.predicate, changed(each.on_match)) for each in branches),
                on_no_match=None if other is None else changed(other),
            )
        case ExactMap(input=source, entries=entries, on_no_match=other):
            made = tuple((key, changed(each)) for key, each in entries)
            return ExactMap(input=source, entries=made, on_no_match=None if other is None else changed(other))
        case PrefixMap(input=source, entries=entries, on_no_match=other):
            made = tuple((key, changed(each)) for key, each in entries)
            return PrefixMap(input=source, entries=made, on_no_match=None if other is None else changed(other))
        case _:
            assert_never(matcher)


# --- Prefixes


class Prefixes:
    """Finds which of many texts a value begins with: in about the time of a few comparisons, however many there are."""

    __slots__ = ("_keys", "_shorter")

    def __init__(self, keys: tuple[str, ...]) -> None:
        """Take keys in order, each once."""
        self._keys = keys
        self._shorter: list[int] = []
        """Of each key the place of the longest other one that it begins with, or -1."""
        open_keys: list[int] = []
        for place, key in enumerate(keys):
            while open_keys and not key.startswith(keys[open_keys[-1]]):
                open_keys.pop()
            self._shorter.append(open_keys[-1] if open_keys else -1)
            open_keys.append(place)

    def of(self, value: str) -> Iterator[int]:
        """Return the places of the keys that a value begins with, the longest first."""
        place = self._longest(value)
        while place >= 0:
            yield place
            place = self._shorter[place]

    def _longest(self, value: str) -> int:
        # In sorted order, every text between a text and one of its extensions is an extension of it too. So all keys
        # that are prefixes of a value are prefixes of the last key that is not after the value.
        keys = self._keys
        place = bisect_right(keys, value) - 1
        if place >= 0 and not value.startswith(keys[place]):
            shared = _common(keys[place], value)
            while place >= 0 and len(keys[place]) > shared:
                place = self._shorter[place]
        return place


def _common(one: str, other: str) -> int:
    """Return how long the beginning is that two texts have in common."""
    least, most = 0, min(len(one), len(other))
    while least < most:
        middle = (least + most + 1) // 2
        if one.startswith(other[:middle]):
            least = middle
        else:
            most = middle - 1
    return least


def _key(entry: tuple[str, object]) -> str:
    return entry[0]
