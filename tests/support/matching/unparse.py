"""Trees back to messages."""

from typing import Any, assert_never

from envoy.type.matcher.v3 import http_inputs_pb2
from google.protobuf import wrappers_pb2

from authplane.matching.matcher_tree import (
    Act,
    And,
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
)
from authplane.matching.string_matchers import Contains, Exact, Prefix, Regex, StringMatcher, Suffix
from authplane.matching.tree_inputs import HasHeaders, HeaderInput, TextMatcher


def unparsed(tree: Matcher[HasHeaders, str], message: Any) -> Any:
    """Write a tree over headers into a message of either package."""
    match tree:
        case ListMatcher(branches=branches):
            for branch in branches:
                entry = message.matcher_list.matchers.add()
                _predicate(branch.predicate, entry.predicate)
                _on_match(branch.on_match, entry.on_match)
        case ExactMap(input=source, entries=entries):
            _input(source, message.matcher_tree.input)
            for key, each in entries:
                _on_match(each, message.matcher_tree.exact_match_map.map[key])
        case PrefixMap(input=source, entries=entries):
            _input(source, message.matcher_tree.input)
            for key, each in entries:
                _on_match(each, message.matcher_tree.prefix_match_map.map[key])
        case _:
            assert_never(tree)
    if tree.on_no_match is not None:
        _on_match(tree.on_no_match, message.on_no_match)
    return message


def _on_match(outcome: OnMatch[HasHeaders, str], message: Any) -> None:
    message.keep_matching = outcome.keep_matching
    match outcome:
        case Act(action):
            message.action.typed_config.Pack(wrappers_pb2.StringValue(value=action))
        case Nested(inner):
            unparsed(inner, message.matcher)
        case _:
            assert_never(outcome)


def _predicate(predicate: Predicate[HasHeaders], message: Any) -> None:
    match predicate:
        case Single(source, matcher):
            assert isinstance(matcher, TextMatcher)
            _input(source, message.single_predicate.input)
            _text(matcher.matcher, message.single_predicate.value_match)
        case And(parts):
            for part in parts:
                _predicate(part, message.and_matcher.predicate.add())
        case Or(parts):
            for part in parts:
                _predicate(part, message.or_matcher.predicate.add())
        case Not(part):
            _predicate(part, message.not_matcher)
        case _:
            assert_never(predicate)


def _input(source: Input[HasHeaders, str], message: Any) -> None:
    assert isinstance(source, HeaderInput)
    message.typed_config.Pack(http_inputs_pb2.HttpRequestHeaderMatchInput(header_name=source.name))


def _text(matcher: StringMatcher, message: Any) -> None:
    match matcher:
        case Exact(value, ignore_case):
            message.exact, message.ignore_case = value, ignore_case
        case Prefix(value, ignore_case):
            message.prefix, message.ignore_case = value, ignore_case
        case Suffix(value, ignore_case):
            message.suffix, message.ignore_case = value, ignore_case
        case Contains(value, ignore_case):
            message.contains, message.ignore_case = value, ignore_case
        case Regex(pattern):
            message.safe_regex.regex = pattern
        case _:
            assert_never(matcher)
