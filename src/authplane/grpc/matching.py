"""Builds matcher trees (unified matcher) and composite filters as messages, for control planes and tests.

A tree reads like a sentence::

    first_match(
        when(header("x-user").is_("alice"), then=skip()),
        when(all_of(cel("source.port > 1024"), not_(header("x-tier").is_("gold"))), then=execute(limits)),
        otherwise=by_prefix(":path", {"/shop.": execute(authorization), "/shop.Admin/": execute(authorization, audit)}),
    )

The functions raise `ValueError` for names, patterns and expressions that a data plane would reject. A branch leads to
an action, which may be any message, or to another tree.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from envoy.config.core.v3 import base_pb2, extension_pb2
from envoy.extensions.common.matching.v3 import extension_matcher_pb2 as matching_pb
from envoy.extensions.filters.common.matcher.action.v3 import skip_action_pb2
from envoy.extensions.filters.http.composite.v3 import composite_pb2
from envoy.type.matcher.v3 import http_inputs_pb2
from envoy.type.v3 import percent_pb2
from google.protobuf.message import Message
from xds.core.v3 import extension_pb2 as xds_extension_pb
from xds.type.matcher.v3 import cel_pb2, regex_pb2
from xds.type.matcher.v3 import http_inputs_pb2 as xds_inputs_pb
from xds.type.matcher.v3 import matcher_pb2 as pb
from xds.type.matcher.v3 import string_pb2 as string_pb

from authplane.cel.calls.call_vocabulary import CLIENT_CALLS, SERVER_CALLS
from authplane.cel.calls.wire import checked_expression
from authplane.core.problems import Problems
from authplane.core.values import dataclass
from authplane.dataplane.filters.calls import Side
from authplane.matching.tree_wire import DEEPEST
from authplane.matching.wire import parse_header_input, parse_string_matcher

Tree: TypeAlias = pb.Matcher
Predicate: TypeAlias = pb.Matcher.MatcherList.Predicate
Branch: TypeAlias = pb.Matcher.MatcherList.FieldMatcher
Outcome: TypeAlias = Message
"""The target of a branch: a `Tree`, the result of `noting`, or a message that is an action."""

_MILLION: Final = 1_000_000
_VOCABULARIES: Final = {Side.CLIENT: CLIENT_CALLS, Side.SERVER: SERVER_CALLS}


# --- Predicates


@dataclass(frozen=True, slots=True)
class Header:
    """A header for predicates; if a call does not have the header, no predicate about it matches.

    The name is in lower case; ``:path``, ``:authority`` and ``:method`` are headers too. Several values are joined by
    commas; values of ``-bin`` headers are base64.
    """

    name: str

    def __post_init__(self) -> None:
        _require(lambda problems: parse_header_input(_header_input(self.name).SerializeToString(), problems))

    def is_(self, text: str, *, ignore_case: bool = False) -> Predicate:
        """Match if the value equals the text."""
        return self._asks(string_pb.StringMatcher(exact=text, ignore_case=ignore_case))

    def is_one_of(self, *texts: str) -> Predicate:
        """Match if the value equals one of the texts."""
        return any_of(*map(self.is_, texts))

    def begins_with(self, text: str, *, ignore_case: bool = False) -> Predicate:
        """Match if the value starts with the text."""
        return self._asks(string_pb.StringMatcher(prefix=text, ignore_case=ignore_case))

    def ends_with(self, text: str, *, ignore_case: bool = False) -> Predicate:
        """Match if the value ends with the text."""
        return self._asks(string_pb.StringMatcher(suffix=text, ignore_case=ignore_case))

    def contains(self, text: str, *, ignore_case: bool = False) -> Predicate:
        """Match if the value contains the text."""
        return self._asks(string_pb.StringMatcher(contains=text, ignore_case=ignore_case))

    def matches(self, regex: str) -> Predicate:
        """Match if the RE2 pattern matches the whole value."""
        pattern = regex_pb2.RegexMatcher(google_re2=regex_pb2.RegexMatcher.GoogleRE2(), regex=regex)
        return self._asks(string_pb.StringMatcher(safe_regex=pattern))

    def is_there(self) -> Predicate:
        """Match if the call has the header, even with an empty value."""
        return self.matches("(?s).*")

    def _asks(self, matcher: string_pb.StringMatcher) -> Predicate:
        _require(lambda problems: parse_string_matcher(matcher, problems))
        single = Predicate.SinglePredicate(input=_extension(_header_input(self.name)), value_match=matcher)
        return Predicate(single_predicate=single)


def header(name: str) -> Header:
    """Return a header for predicates."""
    return Header(name)


def cel(expression: str, *, side: Side = Side.SERVER) -> Predicate:
    """Match if a CEL expression is true; it is false if it reads a value that the call does not have.

    The expression is checked for the ``side`` that evaluates it: only servers have connection attributes.
    """
    matcher = cel_pb2.CelMatcher()
    match checked_expression(expression, _VOCABULARIES[side]):
        case tuple() as problems:
            raise ValueError("\n".join(f"{each.line}:{each.column}: {each.message}" for each in problems))
        case checked:
            matcher.expr_match.cel_expr_checked.CopyFrom(checked)
    single = Predicate.SinglePredicate(
        input=_extension(xds_inputs_pb.HttpAttributesCelMatchInput()), custom_match=_extension(matcher)
    )
    return Predicate(single_predicate=single)


def all_of(*predicates: Predicate) -> Predicate:
    """Match if all predicates match."""
    return _joined(predicates) or Predicate(and_matcher=Predicate.PredicateList(predicate=predicates))


def any_of(*predicates: Predicate) -> Predicate:
    """Match if at least one predicate matches."""
    return _joined(predicates) or Predicate(or_matcher=Predicate.PredicateList(predicate=predicates))


def not_(predicate: Predicate) -> Predicate:
    """Match if the predicate does not match."""
    return Predicate(not_matcher=predicate)


# --- Trees


def when(predicate: Predicate, *, then: Outcome) -> Branch:
    """Return a branch of `first_match`."""
    return Branch(predicate=predicate, on_match=_on_match(then))


def first_match(*branches: Branch, otherwise: Outcome | None = None) -> Tree:
    """Evaluate branches in order, and take the first one that matches and leads to an action."""
    if not branches:
        raise ValueError("The tree has no branch. Pass at least one.")
    tree = pb.Matcher(matcher_list=pb.Matcher.MatcherList(matchers=branches))
    return _with_end(tree, otherwise)


def by_header(name: str, entries: Mapping[str, Outcome], *, otherwise: Outcome | None = None) -> Tree:
    """Take the entry whose key equals the value of a header; the time does not depend on the number of entries."""
    return _with_end(pb.Matcher(matcher_tree=_map("exact_match_map", name, entries)), otherwise)


def by_prefix(name: str, entries: Mapping[str, Outcome], *, otherwise: Outcome | None = None) -> Tree:
    """Take the entry with the longest key that is a prefix of the value of a header.

    If that entry leads to no action, the next shorter key follows. The empty key matches every value.
    """
    return _with_end(pb.Matcher(matcher_tree=_map("prefix_match_map", name, entries)), otherwise)


def noting(outcome: Outcome) -> Outcome:
    """Continue the search after this outcome; composite filters reject such trees."""
    made = _on_match(outcome)
    made.keep_matching = True
    return made


# --- Composite filters


def skip() -> skip_action_pb2.SkipFilter:
    """Return the action that runs no filter."""
    return skip_action_pb2.SkipFilter()


def execute(*filters: Message, sample: float | None = None) -> composite_pb2.ExecuteFilterAction:
    """Return the action that runs filters in order; each filter is the message that configures it.

    With ``sample``, a share from 0 to 1, the filters run only on that share of calls.
    """
    if not filters:
        raise ValueError("The action has no filter. Pass at least one filter, or use skip().")
    action = composite_pb2.ExecuteFilterAction()
    if len(filters) == 1:
        action.typed_config.CopyFrom(_envoy_extension(filters[0]))
    else:
        action.filter_chain.typed_config.extend(map(_envoy_extension, filters))
    if sample is not None:
        action.sample_percent.CopyFrom(_share(sample))
    return action


def composite(tree: Tree) -> matching_pb.ExtensionWithMatcher:
    """Return the configuration of a composite filter; the tree selects the filters of each call."""
    _require_depth(tree)
    config = matching_pb.ExtensionWithMatcher(xds_matcher=tree)
    config.extension_config.CopyFrom(_envoy_extension(composite_pb2.Composite()))
    return config


def composite_override(tree: Tree) -> matching_pb.ExtensionWithMatcherPerRoute:
    """Return an override of the tree of a composite filter, for a virtual host, route or weighted cluster."""
    _require_depth(tree)
    return matching_pb.ExtensionWithMatcherPerRoute(xds_matcher=tree)


# --- Parts


def _header_input(name: str) -> http_inputs_pb2.HttpRequestHeaderMatchInput:
    return http_inputs_pb2.HttpRequestHeaderMatchInput(header_name=name)


def _extension(message: Message) -> xds_extension_pb.TypedExtensionConfig:
    made = xds_extension_pb.TypedExtensionConfig(name=message.DESCRIPTOR.full_name)
    made.typed_config.Pack(message, deterministic=True)
    return made


def _envoy_extension(message: Message) -> extension_pb2.TypedExtensionConfig:
    made = extension_pb2.TypedExtensionConfig(name=message.DESCRIPTOR.full_name)
    made.typed_config.Pack(message, deterministic=True)
    return made


def _on_match(outcome: Outcome) -> pb.Matcher.OnMatch:
    match outcome:
        case pb.Matcher.OnMatch():
            copy = pb.Matcher.OnMatch()
            copy.CopyFrom(outcome)
            return copy
        case pb.Matcher():
            return pb.Matcher.OnMatch(matcher=outcome)
        case _:
            return pb.Matcher.OnMatch(action=_extension(outcome))


def _with_end(tree: Tree, otherwise: Outcome | None) -> Tree:
    if otherwise is not None:
        tree.on_no_match.CopyFrom(_on_match(otherwise))
    return tree


def _map(kind: str, name: str, entries: Mapping[str, Outcome]) -> pb.Matcher.MatcherTree:
    if not entries:
        raise ValueError("The tree has no entry. Pass at least one.")
    made = pb.Matcher.MatcherTree(input=_extension(_header_input(Header(name).name)))
    into = made.exact_match_map.map if kind == "exact_match_map" else made.prefix_match_map.map
    for key, outcome in entries.items():
        into[key].CopyFrom(_on_match(outcome))
    return made


def _joined(predicates: tuple[Predicate, ...]) -> Predicate | None:
    """Return the only predicate; None if there are several, because and_matcher and or_matcher need two or more."""
    if not predicates:
        raise ValueError("There is no predicate. Pass at least one.")
    return predicates[0] if len(predicates) == 1 else None


def _share(sample: float) -> base_pb2.RuntimeFractionalPercent:
    if not 0 <= sample <= 1:
        raise ValueError(f"{sample} is not a share. Use a number from 0 to 1.")
    percent = percent_pb2.FractionalPercent(
        numerator=round(sample * _MILLION), denominator=percent_pb2.FractionalPercent.MILLION
    )
    return base_pb2.RuntimeFractionalPercent(default_value=percent)


def _require(parse: Callable[[Problems], object]) -> None:
    problems = Problems()
    parse(problems)
    if problems:
        raise ValueError(" ".join(problem.message for problem in problems))


def _require_depth(tree: Tree, depth: int = 1) -> None:
    if depth > DEEPEST:
        raise ValueError(f"Trees are nested more than {DEEPEST} levels deep. Use fewer levels.")
    outcomes = [each.on_match for each in tree.matcher_list.matchers]
    outcomes += tree.matcher_tree.exact_match_map.map.values()
    outcomes += tree.matcher_tree.prefix_match_map.map.values()
    for each in (*outcomes, tree.on_no_match):
        if each.HasField("matcher"):
            _require_depth(each.matcher, depth + 1)
