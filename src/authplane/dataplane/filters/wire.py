"""Headers in messages, as filters read them."""

from base64 import b64decode
from collections.abc import Iterable, Mapping
from typing import Final

from envoy.config.common.mutation_rules.v3 import mutation_rules_pb2 as rules_pb
from envoy.config.core.v3 import base_pb2 as pb
from envoy.config.route.v3 import route_components_pb2 as route_pb
from envoy.type.matcher.v3 import regex_pb2 as regex_pb
from google.protobuf import duration_pb2

from authplane.core.problems import Problems
from authplane.dataplane.filters.calls import Change, Metadata, Mutation
from authplane.dataplane.filters.headers import Drafts, Rules, Unfit, is_protected, name_fault, value_fault
from authplane.matching.string_matchers import Regex
from authplane.matching.wire import parse_regex

_MOST_SECONDS: Final = 315_576_000_000
_NANOS: Final = 1_000_000_000
_FOR_EVER: Final = 3e9
"""Seconds, about a century: grpcio accepts no longer times, since its clock ends before."""


def parse_metadata(messages: Iterable[pb.HeaderValue], problems: Problems) -> Metadata:
    """Read headers that a configuration adds to calls; those with problems are left out."""
    found: list[tuple[str, str | bytes]] = []
    for index, message in enumerate(messages):
        with problems.at(index):
            value = _value(message, message.key)
            fault = _fault(message.key, value)
            if fault:
                problems.add("HeaderInvalid", f"Invalid header: {fault}. Correct its name or value.")
            elif not isinstance(value, Unfit):
                found.append((message.key, value))
    return tuple(found)


def parse_mutations(messages: Iterable[pb.HeaderValueOption], *, unset_appends: bool) -> Drafts:
    """Read changes of headers; names may be written in any case.

    ``append_action`` is an enumeration without presence, so that its first value, which is to append, is also what a
    message has whose author wrote none. ``unset_appends`` takes it for what it says; otherwise it means to overwrite,
    unless the older field ``append`` is true.
    """
    return [_mutation(each, unset_appends=unset_appends) for each in messages]


def parse_rules(message: rules_pb.HeaderMutationRules, problems: Problems) -> Rules:
    """Read which headers may be changed."""
    allow, disallow = message.allow_expression, message.disallow_expression
    return Rules(
        disallow_all=message.disallow_all.value,
        disallow=_expression(disallow, "disallow_expression", problems)
        if message.HasField("disallow_expression")
        else None,
        allow=_expression(allow, "allow_expression", problems) if message.HasField("allow_expression") else None,
        disallow_is_error=message.disallow_is_error.value,
    )


def parse_seconds(message: duration_pb2.Duration, problems: Problems) -> float | None:
    """Read a duration that is not negative, of which nothing beyond a century counts; None is a problem."""
    if not (0 <= message.seconds <= _MOST_SECONDS and 0 <= message.nanos < _NANOS):
        problems.add(
            "DurationInvalid",
            f"{message.seconds} s and {message.nanos} ns is not a duration. Use a duration of 0 or more.",
        )
        return None
    return min(message.seconds + message.nanos / _NANOS, _FOR_EVER)


def check_missing_header(message: route_pb.HeaderMatcher, problems: Problems) -> None:
    """Report a matcher that is to take a missing header for an empty one: gRPC has no such thing.

    To pass over it would turn a denial of calls without the header into their permission.
    """
    if message.treat_missing_header_as_empty:
        with problems.at("treat_missing_header_as_empty"):
            problems.add(
                "MatcherUnsupported",
                "treat_missing_header_as_empty is not supported. Remove it; a missing header matches nothing.",
            )


def _fault(key: str, value: str | bytes | Unfit) -> str:
    if isinstance(value, Unfit):
        return value.why
    if is_protected(key):
        return f"header '{key}' cannot be set"
    return name_fault(key) or value_fault(key, value)


def _mutation(message: pb.HeaderValueOption, *, unset_appends: bool) -> Mutation | Unfit:
    if not message.HasField("header"):
        return Unfit("the header change has no header name")
    change = _CHANGES.get(message.append_action)
    if change is None:
        return Unfit(f"{int(message.append_action)} is not an append_action")
    if change is Change.APPEND and not unset_appends and not (message.HasField("append") and message.append.value):
        change = Change.OVERWRITE_OR_ADD
    header = message.header
    key = header.key.lower()
    value = _value(header, key)
    return value if isinstance(value, Unfit) else Mutation(key, value, change)


_CHANGES: Final[Mapping[int, Change]] = {each.value: each for each in Change}


def _value(message: pb.HeaderValue, key: str) -> str | bytes | Unfit:
    """Return the value: bytes for ``-bin``, whose ``raw_value`` is what it is and whose ``value`` is as on the wire."""
    raw = message.raw_value
    if not key.endswith("-bin"):
        # Latin-1 keeps every byte apart: those that do not belong there are found later.
        return raw.decode("latin-1") if raw else message.value
    if raw or not message.value:
        return raw
    text = message.value.rstrip("=")
    try:
        return b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        return Unfit("the value of a binary header is not base64")


def _expression(message: regex_pb.RegexMatcher, field: str, problems: Problems) -> Regex | None:
    with problems.at(field):
        return parse_regex(message, problems)
