"""Trees and requests at random, and what the texts say of them: a model that reads messages and knows nothing of ours.

The model is written for the reader, not for speed: it tries every key of a map and evaluates every part of a predicate.
"""

import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final, NamedTuple, TypeAlias

from envoy.config.common.matcher.v3 import matcher_pb2 as envoy_pb
from envoy.type.matcher.v3 import http_inputs_pb2
from google.protobuf import wrappers_pb2
from xds.type.matcher.v3 import matcher_pb2 as xds_pb

from authplane.core.problems import Problems
from authplane.matching.tree_inputs import HasHeaders
from authplane.matching.tree_wire import InputKind, Kinds, ValueType
from authplane.matching.wire import HEADER_INPUT, parse_header_input

HEADERS: Final[Mapping[str, InputKind[HasHeaders]]] = {HEADER_INPUT: InputKind(ValueType.TEXT, parse_header_input)}
"""The inputs that read a call's headers."""

PACKAGES: Final = (xds_pb, envoy_pb)
NAMES: Final = ("x-a", "x-b", "x-c", "x-data-bin", ":path", ":authority", "host", ":method", "te", "content-type")
TEXTS: Final = ("", "a", "ab", "abc", "b", "ba", "A", "a,b", "/s/m", "/s", "POST", "YWI", "application/grpc", "é")
PATTERNS: Final = ("a+", "a|ab", "a.*", ".*", "[ab]{2}", "(?i)A", "/s/.*", "é")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """As much of a call as headers need."""

    path: str = "/s/m"
    authority: str | None = None
    metadata: tuple[tuple[str, str | bytes], ...] = ()


Read: TypeAlias = Callable[[str, Request], str | None]
"""How the value of a header is found."""


class Verdict(NamedTuple):
    """What the model finds."""

    actions: tuple[str, ...]
    matched: bool


def parse_action(data: bytes, _: Problems) -> str:
    return wrappers_pb2.StringValue.FromString(data).value


def kinds(*, keep_matching: bool = True) -> Kinds[HasHeaders, str]:
    """Return trees over headers whose actions are texts."""
    return Kinds(inputs=HEADERS, actions={"google.protobuf.StringValue": parse_action}, keep_matching=keep_matching)


# --- At random


class Trees:
    """Makes trees; the same number makes the same ones."""

    def __init__(
        self,
        seed: int,
        *,
        keep_matching: bool = True,
        names: tuple[str, ...] = NAMES,
        prefixes: tuple[str, ...] = TEXTS,
    ) -> None:
        self._random = Random(seed)  # noqa: S311 (the same cases every time)
        self._keep_matching = keep_matching
        self._names = names
        self._prefixes = prefixes
        self._actions = 0

    def tree(self, message: Any, depth: int = 4) -> Any:
        """Fill in a message of either package."""
        chance = self._random
        match chance.randrange(5):
            case 0 | 1:
                for _ in range(chance.randint(1, 4)):
                    entry = message.matcher_list.matchers.add()
                    self.predicate(entry.predicate, 3)
                    self._on_match(entry.on_match, depth)
            case 2 | 3:
                self._input(message.matcher_tree.input)
                for key in chance.sample(self._prefixes, chance.randint(1, 5)):
                    self._on_match(message.matcher_tree.prefix_match_map.map[key], depth)
            case _:
                self._input(message.matcher_tree.input)
                for key in chance.sample(TEXTS, chance.randint(1, 5)):
                    self._on_match(message.matcher_tree.exact_match_map.map[key], depth)
        if chance.random() < 0.4:
            self._on_match(message.on_no_match, depth)
        return message

    def predicate(self, message: Any, depth: int) -> None:
        chance = self._random
        kind = chance.randrange(6) if depth else 0
        match kind:
            case 3:
                parts = message.or_matcher.predicate
            case 4:
                parts = message.and_matcher.predicate
            case 5:
                return self.predicate(message.not_matcher, depth - 1)
            case _:
                return self._single(message.single_predicate)
        for _ in range(chance.randint(2, 3)):
            self.predicate(parts.add(), depth - 1)
        return None

    def request(self) -> Request:
        chance = self._random
        names = [name for name in self._names if name[0] == "x" or name == "te"]
        metadata: list[tuple[str, str | bytes]] = []
        for _ in range(chance.randrange(5)):
            name = chance.choice(names)
            text = chance.choice(TEXTS)
            metadata.append((name, text.encode() if name.endswith("-bin") else text))
        return Request(
            path=chance.choice(("/s/m", "/s/n", "/t/m")),
            authority=chance.choice((None, "a", "ab")),
            metadata=tuple(metadata),
        )

    def _single(self, message: Any) -> None:
        chance = self._random
        self._input(message.input)
        text = chance.choice(TEXTS)
        match chance.randrange(5):
            case 0:
                message.value_match.safe_regex.google_re2.SetInParent()
                message.value_match.safe_regex.regex = chance.choice(PATTERNS)
                return
            case 1 if text:
                message.value_match.prefix = text
            case 2 if text:
                message.value_match.suffix = text
            case 3 if text:
                message.value_match.contains = text
            case _:
                message.value_match.exact = text
        message.value_match.ignore_case = chance.random() < 0.3

    def _input(self, message: Any) -> None:
        message.name = "input"
        name = self._random.choice(self._names)
        message.typed_config.Pack(http_inputs_pb2.HttpRequestHeaderMatchInput(header_name=name))

    def _on_match(self, message: Any, depth: int) -> None:
        if depth > 1 and self._random.random() < 0.4:
            self.tree(message.matcher, depth - 1)
        else:
            self._actions += 1
            message.action.name = "action"
            message.action.typed_config.Pack(wrappers_pb2.StringValue(value=str(self._actions)))
        message.keep_matching = self._keep_matching and self._random.random() < 0.2


def cases(seed: int, trees: int, requests: int, *, keep_matching: bool = True) -> Iterator[tuple[Any, list[Request]]]:
    """Return trees, each with requests for it."""
    made = Trees(seed, keep_matching=keep_matching)
    for number in range(trees):
        yield made.tree(PACKAGES[number % 2].Matcher()), [made.request() for _ in range(requests)]


# --- The model


def verdict(message: Any, request: Request, read: Read | None = None) -> Verdict:
    """Find what a tree leads to: UM-8 to UM-16, and the decisions about absent headers and missed branches.

    Others read headers in other ways.
    """
    noted: list[str] = []
    matched = _Model(request, read or header).tree(message, noted)
    return Verdict(tuple(noted), matched)


class _Model:
    """The rules, for one request."""

    def __init__(self, request: Request, read: Read) -> None:
        self._request = request
        self._read = read

    def tree(self, message: Any, noted: list[str]) -> bool:
        if any(self._on_match(each, noted) for each in self._tried(message)):
            return True
        return message.HasField("on_no_match") and self._on_match(message.on_no_match, noted)

    def _tried(self, message: Any) -> list[Any]:
        if message.HasField("matcher_list"):
            return [each.on_match for each in message.matcher_list.matchers if self._holds(each.predicate)]
        tree = message.matcher_tree
        value = self._read(_name(tree.input), self._request)
        if value is None:
            return []
        if tree.HasField("exact_match_map"):
            return [hit for key, hit in tree.exact_match_map.map.items() if key == value]
        hits = [(len(key), hit) for key, hit in tree.prefix_match_map.map.items() if value.startswith(key)]
        return [hit for _, hit in sorted(hits, key=lambda each: -each[0])]

    def _on_match(self, message: Any, noted: list[str]) -> bool:
        if message.HasField("matcher"):
            found = self.tree(message.matcher, noted)
        else:
            noted.append(wrappers_pb2.StringValue.FromString(message.action.typed_config.value).value)
            found = True
        return found and not message.keep_matching

    def _holds(self, message: Any) -> bool:
        kind = message.WhichOneof("match_type")
        if kind == "single_predicate":
            value = self._read(_name(message.single_predicate.input), self._request)
            return value is not None and _matches(message.single_predicate.value_match, value)
        if kind == "not_matcher":
            return not self._holds(message.not_matcher)
        parts = [self._holds(each) for each in getattr(message, kind).predicate]
        return (all if kind == "and_matcher" else any)(parts)


_TESTS: Final[Mapping[str, Callable[[str, str], bool]]] = {
    "exact": lambda value, text: value == text,
    "prefix": lambda value, text: value[: len(text)] == text,
    "suffix": lambda value, text: value[-len(text) :] == text,
    "contains": lambda value, text: text in value,
}


def _matches(message: Any, value: str) -> bool:
    kind = message.WhichOneof("match_pattern")
    if kind == "safe_regex":
        return re.fullmatch(message.safe_regex.regex, value) is not None
    text = getattr(message, kind)
    return _TESTS[kind](*(map(_small, (value, text)) if message.ignore_case else (value, text)))


def _small(text: str) -> str:
    return "".join(chr(ord(each) + 32) if "A" <= each <= "Z" else each for each in text)


def _name(message: Any) -> str:
    return http_inputs_pb2.HttpRequestHeaderMatchInput.FromString(message.typed_config.value).header_name


def header(name: str, request: Request) -> str | None:
    """Return what a header is: UM-8."""
    known = {
        ":path": request.path, ":authority": request.authority, "host": request.authority, ":method": "POST",
        "content-type": "application/grpc", "te": None,
    }  # fmt: skip
    if name in known:
        return known[name]
    values = [value for key, value in request.metadata if key == name]
    texts = [value if isinstance(value, str) else b64encode(value).decode().replace("=", "") for value in values]
    return ",".join(texts) if texts else None
