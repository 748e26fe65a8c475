"""Renders the matches of routes."""

from typing import assert_never

from envoy.config.route.v3 import route_components_pb2 as pb
from envoy.type.matcher.v3 import regex_pb2, string_pb2

from authplane.controlplane.graph.model.match_model import (
    Exact,
    HeaderMatch,
    Match,
    Prefix,
    QueryMatch,
    Regex,
    Segments,
    TextTest,
)


def render_match(match: Match) -> pb.RouteMatch:
    """Render a match: the path and the other conditions."""
    message = _path(match)
    message.headers.extend(_header(each) for each in match.headers)
    message.query_parameters.extend(_query(each) for each in match.query)
    return message


def _path(match: Match) -> pb.RouteMatch:
    match match.path:
        case Exact(path):
            return pb.RouteMatch(path=path)
        case Prefix(path):
            return pb.RouteMatch(prefix=path)
        case Segments(path):
            return pb.RouteMatch(path_separated_prefix=path)
        case Regex(path):
            return pb.RouteMatch(safe_regex=regex_pb2.RegexMatcher(regex=path))
        case _:
            assert_never(match.path)


def _header(header: HeaderMatch) -> pb.HeaderMatcher:
    message = pb.HeaderMatcher(
        name=header.name, invert_match=header.inverted, treat_missing_header_as_empty=header.missing_is_empty
    )
    if header.test is TextTest.PRESENT:
        message.present_match = True
    else:
        message.string_match.CopyFrom(_text(header.test, header.text, ignore_case=header.ignore_case))
    return message


def _query(parameter: QueryMatch) -> pb.QueryParameterMatcher:
    if parameter.test is TextTest.PRESENT:
        return pb.QueryParameterMatcher(name=parameter.name, present_match=True)
    return pb.QueryParameterMatcher(
        name=parameter.name, string_match=_text(parameter.test, parameter.text, ignore_case=parameter.ignore_case)
    )


def _text(test: TextTest, text: str, *, ignore_case: bool) -> string_pb2.StringMatcher:
    message = string_pb2.StringMatcher(ignore_case=ignore_case)
    match test:
        case TextTest.EXACT:
            message.exact = text
        case TextTest.PREFIX:
            message.prefix = text
        case TextTest.SUFFIX:
            message.suffix = text
        case TextTest.CONTAINS:
            message.contains = text
        case TextTest.REGEX:
            message.safe_regex.regex = text
        case TextTest.PRESENT:
            raise ValueError("to be there is not a text")
        case _:
            assert_never(test)
    return message
