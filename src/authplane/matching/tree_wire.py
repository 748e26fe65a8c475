"""Parses messages of the unified matcher.

`Kinds` has the inputs, matchers and actions that the caller supports.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, Generic, TypeAlias, TypeVar

from authplane.core.problems import Problems, printable
from authplane.core.values import dataclass
from authplane.matching.matcher_tree import (
    Act,
    And,
    Branch,
    ExactMap,
    Input,
    ListMatcher,
    Matcher,
    Nested,
    Not,
    OnMatch,
    Or,
    Predicate,
    PrefixMap,
    Single,
    ValueMatcher,
)
from authplane.matching.tree_inputs import TextMatcher
from authplane.matching.wire import (
    BranchMessage,
    ExtensionMessage,
    ListMessage,
    MapMessage,
    OnMatchMessage,
    PredicateMessage,
    SingleMessage,
    TreeMessage,
    parse_string_matcher,
)

S = TypeVar("S")
A = TypeVar("A")
K = TypeVar("K")

DEEPEST: Final = 16
"""How deep matchers may nest; the root is at depth 1, and what is for no match counts too."""
_DEEPEST_PREDICATE: Final = 100
"""As deep as bytes are read at all."""


class ValueType(Enum):
    """The type of an input's value and of a matcher's argument: they must be equal."""

    TEXT = "a text"
    CEL = "the attributes of CEL"


ParseAction: TypeAlias = Callable[[bytes, Problems], A | None]
"""Parses the bytes of a message; None if it has problems. Paths of problems are relative to the message."""


@dataclass(frozen=True, slots=True)
class InputKind(Generic[S]):
    """A kind of input."""

    gives: ValueType
    parse: Callable[[bytes, Problems], Input[S, Any] | None]


@dataclass(frozen=True, slots=True)
class MatcherKind:
    """A type of matcher for ``custom_match``."""

    takes: ValueType
    parse: Callable[[bytes, Problems], ValueMatcher[Any] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kinds(Generic[S, A]):
    """The supported parts of a tree, by full names of messages."""

    inputs: Mapping[str, InputKind[S]]
    actions: Mapping[str, ParseAction[A]]
    matchers: Mapping[str, MatcherKind] = field(default_factory=lambda: MappingProxyType({}))
    keep_matching: bool = False
    """Whether actions may let the search go on."""


def parse_tree(message: TreeMessage, kinds: Kinds[S, A], problems: Problems) -> Matcher[S, A] | None:
    """Read a ``Matcher`` of either package with every problem; None if it has any."""
    before = problems.error_count
    found = _Reader(kinds, problems).tree(message, 1)
    return found if problems.error_count == before else None


class _Reader(Generic[S, A]):
    """Reads the parts of a tree; what has a problem is None, and the rest is read all the same."""

    def __init__(self, kinds: Kinds[S, A], problems: Problems) -> None:
        self._kinds = kinds
        self._problems = problems

    def tree(self, message: TreeMessage, depth: int) -> Matcher[S, A] | None:
        problems = self._problems
        if depth > DEEPEST:
            problems.add("TooDeep", f"Matchers are nested more than {DEEPEST} levels deep. Use fewer levels.")
            return None
        other: OnMatch[S, A] | None = None
        if message.HasField("on_no_match"):
            with problems.at("on_no_match"):
                other = self._on_match(message.on_no_match, depth)
        match message.WhichOneof("matcher_type"):
            case "matcher_list":
                with problems.at("matcher_list"):
                    return self._list(message.matcher_list, other, depth)
            case "matcher_tree":
                with problems.at("matcher_tree"):
                    return self._map(message.matcher_tree, other, depth)
            case _:
                problems.add("MatcherMissing", "The matcher is empty. Set matcher_list or matcher_tree.")
                return None

    def _list(self, message: ListMessage, other: OnMatch[S, A] | None, depth: int) -> Matcher[S, A]:
        problems = self._problems
        found: list[Branch[S, A]] = []
        with problems.at("matchers"):
            if not message.matchers:
                problems.add("MatcherEmpty", "The list is empty. Add at least one entry.")
            messages: Iterable[BranchMessage] = message.matchers
            for index, each in enumerate(messages):
                with problems.at(index):
                    branch = self._branch(each, depth)
                if branch is not None:
                    found.append(branch)
        return ListMatcher(branches=tuple(found), on_no_match=other)

    def _branch(self, message: BranchMessage, depth: int) -> Branch[S, A] | None:
        predicate: Predicate[S] | None = None
        on_match: OnMatch[S, A] | None = None
        with self._problems.at("predicate"):
            if self._is_set(message.HasField("predicate")):
                predicate = self._predicate(message.predicate, 1)
        with self._problems.at("on_match"):
            if self._is_set(message.HasField("on_match")):
                on_match = self._on_match(message.on_match, depth)
        return None if predicate is None or on_match is None else Branch(predicate, on_match)

    def _map(self, message: MapMessage, other: OnMatch[S, A] | None, depth: int) -> Matcher[S, A] | None:
        problems = self._problems
        source: Input[S, str] | None = None
        with problems.at("input"):
            if self._is_set(message.HasField("input")):
                source = self._text_input(message.input)
        kind = message.WhichOneof("tree_type")
        match kind:
            case "exact_match_map":
                with problems.at(kind, "map"):
                    entries = self._entries(message.exact_match_map.map, depth)
                return None if source is None else ExactMap.of(source, entries, other)
            case "prefix_match_map":
                with problems.at(kind, "map"):
                    entries = self._entries(message.prefix_match_map.map, depth)
                return None if source is None else PrefixMap.of(source, entries, other)
            case "custom_match":
                with problems.at(kind):
                    problems.add(
                        "MatcherUnsupported", "custom_match is not supported. Use exact_match_map or prefix_match_map."
                    )
                return None
            case _:
                problems.add("MatcherMissing", "The map is missing. Set exact_match_map or prefix_match_map.")
                return None

    def _entries(self, messages: Mapping[str, OnMatchMessage], depth: int) -> dict[str, OnMatch[S, A]]:
        if not messages:
            self._problems.add("MatcherEmpty", "The list is empty. Add at least one entry.")
        found: dict[str, OnMatch[S, A]] = {}
        for key in sorted(messages):
            with self._problems.at(printable(key)):
                each = self._on_match(messages[key], depth)
            if each is not None:
                found[key] = each
        return found

    def _on_match(self, message: OnMatchMessage, depth: int) -> OnMatch[S, A] | None:
        problems = self._problems
        keep = message.keep_matching
        if keep and not self._kinds.keep_matching:
            with problems.at("keep_matching"):
                problems.add(
                    "KeepMatchingUnsupported",
                    "keep_matching is not supported, because this filter runs one action for each call. Remove it.",
                )
        match message.WhichOneof("on_match"):
            case "matcher":
                with problems.at("matcher"):
                    inner = self.tree(message.matcher, depth + 1)
                return None if inner is None else Nested(inner, keep)
            case "action":
                with problems.at("action"):
                    action = self._action(message.action)
                return None if action is None else Act(action, keep)
            case _:
                problems.add("OnMatchMissing", "on_match is empty. Set matcher or action.")
                return None

    def _action(self, message: ExtensionMessage) -> A | None:
        with self._problems.at("typed_config"):
            parse = self._kind(message, self._kinds.actions, "action")
            return None if parse is None else parse(message.typed_config.value, self._problems)

    def _predicate(self, message: PredicateMessage, depth: int) -> Predicate[S] | None:
        problems = self._problems
        if depth > _DEEPEST_PREDICATE:
            problems.add("TooDeep", f"Predicates are nested more than {_DEEPEST_PREDICATE} deep. Use fewer levels.")
            return None
        match message.WhichOneof("match_type"):
            case "single_predicate":
                with problems.at("single_predicate"):
                    return self._single(message.single_predicate)
            case "or_matcher":
                with problems.at("or_matcher", "predicate"):
                    return Or(self._predicates(message.or_matcher.predicate, depth))
            case "and_matcher":
                with problems.at("and_matcher", "predicate"):
                    return And(self._predicates(message.and_matcher.predicate, depth))
            case "not_matcher":
                with problems.at("not_matcher"):
                    part = self._predicate(message.not_matcher, depth + 1)
                return None if part is None else Not(part)
            case _:
                text = "The predicate is empty. Set single_predicate, or_matcher, and_matcher or not_matcher."
                problems.add("PredicateMissing", text)
                return None

    def _predicates(self, messages: Iterable[PredicateMessage], depth: int) -> tuple[Predicate[S], ...]:
        found = []
        count = 0
        for index, message in enumerate(messages):
            count += 1
            with self._problems.at(index):
                found.append(self._predicate(message, depth + 1))
        if count < 2:
            self._problems.add("PredicateMissing", "The list has fewer than two predicates. Add at least two.")
        return tuple(each for each in found if each is not None)

    def _single(self, message: SingleMessage) -> Predicate[S] | None:
        problems = self._problems
        source: Input[S, Any] | None = None
        kind: InputKind[S] | None = None
        with problems.at("input"):
            if self._is_set(message.HasField("input")):
                kind, source = self._input(message.input)
        matcher: ValueMatcher[Any] | None = None
        takes = ValueType.TEXT
        match message.WhichOneof("matcher"):
            case "value_match":
                with problems.at("value_match"):
                    text = parse_string_matcher(message.value_match, problems)
                    matcher = None if text is None else TextMatcher(text)
            case "custom_match":
                with problems.at("custom_match", "typed_config"):
                    custom = self._kind(message.custom_match, self._kinds.matchers, "matcher")
                    if custom is None:
                        return None
                    takes = custom.takes
                    matcher = custom.parse(message.custom_match.typed_config.value, problems)
            case _:
                problems.add("MatcherMissing", "The predicate has no matcher. Set value_match or custom_match.")
        if kind is not None and kind.gives is not takes:
            problems.add(
                "TypeMismatch",
                f"The input is {kind.gives.value}, but the matcher reads {takes.value}. Use an input and a"
                " matcher of the same type.",
            )
        return None if source is None or matcher is None else Single(source, matcher)

    def _text_input(self, message: ExtensionMessage) -> Input[S, str] | None:
        kind, source = self._input(message)
        if kind is not None and kind.gives is not ValueType.TEXT:
            self._problems.add(
                "TypeMismatch",
                f"The input is {kind.gives.value}, but the keys of a map are texts. Use an input that is a text.",
            )
            return None
        return source

    def _input(self, message: ExtensionMessage) -> tuple[InputKind[S] | None, Input[S, Any] | None]:
        with self._problems.at("typed_config"):
            kind = self._kind(message, self._kinds.inputs, "input")
            return kind, None if kind is None else kind.parse(message.typed_config.value, self._problems)

    def _kind(self, message: ExtensionMessage, known: Mapping[str, K], noun: str) -> K | None:
        """Find what reads an extension; None is a problem."""
        url = message.typed_config.type_url
        if not url:
            self._problems.add("Missing", f"The {noun} is missing. Set it.")
            return None
        with self._problems.at("type_url"):
            _, slash, name = url.rpartition("/")
            if not slash or not name:
                text = f"'{url}' is not a type URL. Use a prefix, a slash and a message name."
                self._problems.add("TypeUrlInvalid", text)
            elif name not in known:
                self._problems.add("TypeUnknown", f"'{name}' is not a supported {noun}. Use another {noun}.")
            else:
                return known[name]
        return None

    def _is_set(self, present: bool) -> bool:
        if not present:
            self._problems.add("Missing", "This field is required. Add it.")
        return present
