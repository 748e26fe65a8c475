"""Messages of matchers to our values."""

import re
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias, cast

from envoy.config.common.matcher.v3 import matcher_pb2 as envoy_tree_pb
from envoy.config.core.v3 import base_pb2 as core_pb
from envoy.config.core.v3 import extension_pb2 as envoy_extension_pb
from envoy.config.route.v3 import route_components_pb2 as pb
from envoy.type.matcher.v3 import http_inputs_pb2 as inputs_pb
from envoy.type.matcher.v3 import regex_pb2 as regex_pb
from envoy.type.matcher.v3 import string_pb2 as string_pb
from envoy.type.v3 import percent_pb2 as percent_pb
from google.protobuf.message import DecodeError
from xds.core.v3 import extension_pb2 as extension_pb
from xds.type.matcher.v3 import matcher_pb2 as tree_pb
from xds.type.matcher.v3 import regex_pb2 as xds_regex_pb
from xds.type.matcher.v3 import string_pb2 as xds_string_pb

from authplane.core.problems import Problems
from authplane.core.text import shorten
from authplane.matching.fractions import Fraction, capped
from authplane.matching.header_matchers import HeaderMatcher, HeaderPresent, HeaderRange, HeaderText
from authplane.matching.string_matchers import (
    Contains,
    Exact,
    NoRegex,
    Prefix,
    Regex,
    StringMatcher,
    StringMatchers,
    Suffix,
    compile_regex,
)
from authplane.matching.tree_inputs import HeaderInput

StringMessage: TypeAlias = string_pb.StringMatcher | xds_string_pb.StringMatcher
RegexMessage: TypeAlias = regex_pb.RegexMatcher | xds_regex_pb.RegexMatcher
TreeMessage: TypeAlias = tree_pb.Matcher | envoy_tree_pb.Matcher
ListMessage: TypeAlias = tree_pb.Matcher.MatcherList | envoy_tree_pb.Matcher.MatcherList
MapMessage: TypeAlias = tree_pb.Matcher.MatcherTree | envoy_tree_pb.Matcher.MatcherTree
OnMatchMessage: TypeAlias = tree_pb.Matcher.OnMatch | envoy_tree_pb.Matcher.OnMatch
BranchMessage: TypeAlias = tree_pb.Matcher.MatcherList.FieldMatcher | envoy_tree_pb.Matcher.MatcherList.FieldMatcher
PredicateMessage: TypeAlias = tree_pb.Matcher.MatcherList.Predicate | envoy_tree_pb.Matcher.MatcherList.Predicate
SingleMessage: TypeAlias = (
    tree_pb.Matcher.MatcherList.Predicate.SinglePredicate | envoy_tree_pb.Matcher.MatcherList.Predicate.SinglePredicate
)
ExtensionMessage: TypeAlias = extension_pb.TypedExtensionConfig | envoy_extension_pb.TypedExtensionConfig

HEADER_INPUT: Final = "envoy.type.matcher.v3.HttpRequestHeaderMatchInput"
_HEADER_NAME: Final = re.compile(r":?[a-z0-9!#$%&'*+.^_`|~-]+")
_LONGEST_NAME: Final = 16_383

_DENOMINATORS: Final = {
    percent_pb.FractionalPercent.HUNDRED: 100,
    percent_pb.FractionalPercent.TEN_THOUSAND: 10_000,
    percent_pb.FractionalPercent.MILLION: 1_000_000,
}


def parse_string_matcher(message: StringMessage, problems: Problems) -> StringMatcher | None:
    """Read a ``StringMatcher`` of either package; None if it has problems."""
    match message.WhichOneof("match_pattern"):
        case "exact":
            return Exact(message.exact, message.ignore_case)
        case "prefix":
            return _parse_part(Prefix, "prefix", message, problems)
        case "suffix":
            return _parse_part(Suffix, "suffix", message, problems)
        case "contains":
            return _parse_part(Contains, "contains", message, problems)
        case "safe_regex":
            return _parse_safe_regex(message, problems)
        case _:
            problems.add("MatcherMissing", "The matcher is empty. Set exact, prefix, suffix, contains or safe_regex.")
            return None


def parse_string_matchers(messages: Iterable[StringMessage], problems: Problems) -> StringMatchers:
    """Read the ``patterns`` of a ``ListStringMatcher``; those with problems are left out."""
    found = []
    for index, message in enumerate(messages):
        with problems.at("patterns", index):
            found.append(parse_string_matcher(message, problems))
    return tuple(each for each in found if each is not None)


def parse_regex(message: RegexMessage, problems: Problems) -> Regex | None:
    """Read a ``RegexMatcher``, whose engine is always RE2; None if it has problems."""
    with problems.at("regex"):
        regex = compile_regex(message.regex)
        if isinstance(regex, NoRegex):
            problems.add("RegexInvalid", f"'{shorten(message.regex, _SHOWN)}' {regex.why}. Use the RE2 syntax.")
            return None
        return regex


def parse_header_matcher(message: pb.HeaderMatcher, problems: Problems) -> HeaderMatcher | None:
    """Read a ``HeaderMatcher``; None if it has problems."""
    name = message.name.lower()
    if not name:
        with problems.at("name"):
            problems.add("NameMissing", "The header name is empty. Set a name.")
    match message.WhichOneof("header_match_specifier"):
        case "present_match":
            return HeaderPresent(name=name, present=message.present_match != message.invert_match)
        case None:
            problems.add("MatcherMissing", "The header has no matcher. Set one, such as string_match.")
            return None
        case "range_match":
            return _parse_range(name, message, problems)
        case _:
            matcher = _parse_header_text(message, problems)
            return None if matcher is None else HeaderText(name=name, matcher=matcher, inverted=message.invert_match)


def parse_header_input(data: bytes, problems: Problems) -> HeaderInput | None:
    """Read the bytes of a ``HttpRequestHeaderMatchInput``; None if it has problems."""
    try:
        name = inputs_pb.HttpRequestHeaderMatchInput.FromString(data).header_name
    except DecodeError:
        problems.add("Unreadable", f"Cannot decode the bytes. Expected {HEADER_INPUT}.")
        return None
    with problems.at("header_name"):
        if len(name) > _LONGEST_NAME:
            problems.add("NameInvalid", f"The header name is longer than {_LONGEST_NAME} characters. Shorten it.")
        elif not _HEADER_NAME.fullmatch(name):
            problems.add(
                "NameInvalid",
                f"'{shorten(name, _SHOWN)}' is not a header name in lower case. Use lower-case letters, digits and"
                " hyphens.",
            )
        else:
            return HeaderInput(name)
    return None


def parse_fraction(message: percent_pb.FractionalPercent, problems: Problems) -> Fraction | None:
    """Read a ``FractionalPercent``; more than all is all. None if it has problems."""
    denominator = _DENOMINATORS.get(message.denominator)
    if denominator is None:
        with problems.at("denominator"):
            problems.add(
                "DenominatorUnknown",
                f"{int(message.denominator)} is not a denominator. Supported: HUNDRED, TEN_THOUSAND, MILLION.",
            )
        return None
    return capped(message.numerator, denominator)


def parse_runtime_fraction(message: core_pb.RuntimeFractionalPercent, problems: Problems) -> Fraction | None:
    """Read a ``RuntimeFractionalPercent``: its default, as gRPC has no runtime keys. None if it has problems."""
    with problems.at("default_value"):
        if not message.HasField("default_value"):
            problems.add("ValueMissing", "This field is required. Add it.")
            return None
        return parse_fraction(message.default_value, problems)


def _parse_part(
    make: Callable[[str, bool], StringMatcher], field: str, message: StringMessage, problems: Problems
) -> StringMatcher | None:
    value: str = getattr(message, field)
    if not value:
        with problems.at(field):
            problems.add("MatcherEmpty", "The text is empty and would match every value. Set a text.")
        return None
    return make(value, message.ignore_case)


def _parse_safe_regex(message: StringMessage, problems: Problems) -> StringMatcher | None:
    if message.ignore_case:
        with problems.at("ignore_case"):
            problems.add(
                "MatcherUnsupported",
                "ignore_case has no effect on safe_regex. Remove it, and start the expression with (?i).",
            )
    with problems.at("safe_regex"):
        regex = parse_regex(message.safe_regex, problems)
    return None if message.ignore_case else regex


def _parse_range(name: str, message: pb.HeaderMatcher, problems: Problems) -> HeaderRange | None:
    start, end = message.range_match.start, message.range_match.end
    if end < start:
        with problems.at("range_match"):
            problems.add(
                "RangeInvalid", f"The end {end} is before the start {start}. Set an end that is greater than the start."
            )
        return None
    return HeaderRange(name=name, start=start, end=end, inverted=message.invert_match)


def _parse_header_text(message: pb.HeaderMatcher, problems: Problems) -> StringMatcher | None:
    """Read the oneof; its older fields mean the same as the fields of a ``StringMatcher``."""
    field = message.WhichOneof("header_match_specifier")
    match field:
        case "string_match":
            with problems.at("string_match"):
                return parse_string_matcher(message.string_match, problems)
        case "safe_regex_match":
            with problems.at("safe_regex_match"):
                return parse_regex(message.safe_regex_match, problems)
        case _:
            kind = cast("str", field)
            value: str = getattr(message, kind)
            if not value and kind != "exact_match":
                with problems.at(kind):
                    problems.add("MatcherEmpty", "The text is empty and would match every value. Set a text.")
                return None
            return _HEADER_TEXTS[kind](value)


_HEADER_TEXTS: Final[dict[str, Callable[[str], StringMatcher]]] = {
    "exact_match": Exact,
    "prefix_match": Prefix,
    "suffix_match": Suffix,
    "contains_match": Contains,
}

_SHOWN: Final = 80
"""Characters of a text that a message quotes."""
