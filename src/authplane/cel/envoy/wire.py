"""Conditions as the messages that Envoy's RBAC filter takes: permissions, and ``google.api.expr.v1alpha1``."""

from itertools import count
from typing import Final, assert_never

from envoy.config.rbac.v3 import rbac_pb2
from envoy.config.route.v3.route_components_pb2 import HeaderMatcher
from envoy.type.matcher.v3.metadata_pb2 import MetadataMatcher
from envoy.type.matcher.v3.number_pb2 import DoubleMatcher
from envoy.type.matcher.v3.path_pb2 import PathMatcher
from envoy.type.matcher.v3.regex_pb2 import RegexMatcher
from envoy.type.matcher.v3.string_pb2 import StringMatcher
from envoy.type.matcher.v3.value_pb2 import ListMatcher, OrMatcher, ValueMatcher
from envoy.type.v3.range_pb2 import DoubleRange, Int64Range
from google.api.expr.v1alpha1 import syntax_pb2 as pb
from google.protobuf import struct_pb2

from authplane.cel.envoy.request_checks import (
    AtMost,
    Begins,
    Between,
    Check,
    Contains,
    Equals,
    Every,
    Fits,
    Header,
    Lists,
    Metadata,
    Not,
    Number,
    Path,
    Port,
    Present,
    Some,
    TextTest,
    ValueTest,
)
from authplane.cel.envoy.translate import Condition
from authplane.cel.syntax.tree import (
    Call,
    Const,
    Entries,
    Has,
    Ident,
    Items,
    Literal,
    Loop,
    Message,
    Node,
    Select,
    Unsigned,
)

_ANYTHING: Final = rbac_pb2.Permission(any=True)


def render_policy(condition: Condition) -> rbac_pb2.Policy:
    """Build a rule that matches if a condition is true; the caller adds principals."""
    made = rbac_pb2.Policy(permissions=[render_check(condition.check)])
    if condition.expressed:
        made.condition.CopyFrom(render_condition(condition.tree))
    if condition.conversion:
        made.cel_config.enable_string_conversion = True
    if condition.concatenation:
        made.cel_config.enable_string_concat = True
    return made


def render_check(check: Check) -> rbac_pb2.Permission:
    """Build the message of a check."""
    match check:
        case Every(checks=checks):
            rules = rbac_pb2.Permission.Set(rules=map(render_check, checks))
            return rbac_pb2.Permission(and_rules=rules) if checks else _ANYTHING
        case Some(checks=checks):
            rules = rbac_pb2.Permission.Set(rules=map(render_check, checks))
            return rbac_pb2.Permission(or_rules=rules) if checks else rbac_pb2.Permission(not_rule=_ANYTHING)
        case Not(check=other):
            return rbac_pb2.Permission(not_rule=render_check(other))
        case _:
            return _part(check)


def _part(check: Header | Path | Port | Metadata) -> rbac_pb2.Permission:
    match check:
        case Header(name=name, test=test):
            return rbac_pb2.Permission(header=_header(name, test))
        case Path(test=test):
            return rbac_pb2.Permission(url_path=PathMatcher(path=_text(test)))
        case Port(number=number):
            return rbac_pb2.Permission(destination_port=number)
        case Metadata(keys=keys, tests=tests):
            return rbac_pb2.Permission(sourced_metadata=_found(keys, tests))
        case _:
            assert_never(check)


def _header(name: str, test: TextTest | Present | AtMost) -> HeaderMatcher:
    match test:
        case Present():
            return HeaderMatcher(name=name, present_match=True)
        case AtMost(number=number):
            return HeaderMatcher(name=name, range_match=Int64Range(start=0, end=number + 1))
        case _:
            return HeaderMatcher(name=name, string_match=_text(test))


def _found(keys: tuple[str, ...], tests: tuple[ValueTest, ...]) -> rbac_pb2.SourcedMetadata:
    namespace, *path = keys
    values = [_value(each) for each in tests]
    matcher = MetadataMatcher(
        filter=namespace,
        path=[MetadataMatcher.PathSegment(key=each) for each in path],
        value=values[0] if len(values) == 1 else ValueMatcher(or_match=OrMatcher(value_matchers=values)),
    )
    return rbac_pb2.SourcedMetadata(metadata_matcher=matcher)


def _value(test: ValueTest) -> ValueMatcher:
    match test:
        case Present():
            return ValueMatcher(present_match=True)
        case Lists(text=text):
            return ValueMatcher(list_match=ListMatcher(one_of=_value(Equals(text))))
        case Number(value=number):
            return ValueMatcher(double_match=DoubleMatcher(exact=number))
        case Between(first=first, second=second):
            return ValueMatcher(double_match=DoubleMatcher(range=DoubleRange(start=first, end=second)))
        case _:
            return ValueMatcher(string_match=_text(test))


def _text(test: TextTest) -> StringMatcher:
    match test:
        case Equals(text=text, ignore_case=ignore_case):
            return StringMatcher(exact=text, ignore_case=ignore_case)
        case Begins(text=text):
            return StringMatcher(prefix=text)
        case Contains(text=text):
            return StringMatcher(contains=text)
        case Fits(pattern=pattern):
            return StringMatcher(safe_regex=RegexMatcher(regex=pattern))
        case _:
            assert_never(test)


def render_condition(tree: Node) -> pb.Expr:
    """Build the message of a condition that was found fit for Envoy; its parts are numbered from 1."""
    made = pb.Expr()
    _Writer().fill(made, tree)
    return made


class _Writer:
    """Writes the nodes of one expression: Envoy demands distinct ids."""

    def __init__(self) -> None:
        self._ids = count(1)

    def fill(self, made: pb.Expr, node: Node) -> None:
        """Write a node into a message that is empty: copies of all below it would take the longest."""
        made.id = next(self._ids)
        match node:
            case Const(value=value):
                _fill_constant(made.const_expr, value)
            case Ident(name=name):
                made.ident_expr.name = name
            case Select(operand=operand, field=field) | Has(operand=operand, field=field):
                self.fill(made.select_expr.operand, operand)
                made.select_expr.field = field
                made.select_expr.test_only = isinstance(node, Has)
            case Call():
                self._fill_call(made.call_expr, node)
            case Items(values=values):
                made.list_expr.SetInParent()
                for each in values:
                    self.fill(made.list_expr.elements.add(), each)
            case Entries(pairs=pairs):
                self._fill_map(made.struct_expr, pairs)
            case Loop() | Message():
                raise ValueError("Envoy conditions support neither loops nor messages")
            case _:
                assert_never(node)

    def _fill_call(self, made: pb.Expr.Call, node: Call) -> None:
        made.function = node.function
        if node.target is not None:
            self.fill(made.target, node.target)
        for each in node.args:
            self.fill(made.args.add(), each)

    def _fill_map(self, made: pb.Expr.CreateStruct, pairs: tuple[tuple[Node, Node], ...]) -> None:
        made.SetInParent()
        for key, value in pairs:
            entry = made.entries.add(id=next(self._ids))
            self.fill(entry.map_key, key)
            self.fill(entry.value, value)


def _fill_constant(made: pb.Constant, value: Literal) -> None:
    match value:
        case None:
            made.null_value = struct_pb2.NULL_VALUE
        case bool():
            made.bool_value = value
        case int():
            made.int64_value = value
        case Unsigned(value=number):
            made.uint64_value = number
        case float():
            made.double_value = value
        case str():
            made.string_value = value
        case bytes():
            made.bytes_value = value
        case _:
            assert_never(value)
