"""What configurations of the composite filter are taken."""

from dataclasses import replace
from typing import Final

import pytest
from envoy.config.core.v3 import base_pb2, extension_pb2
from envoy.extensions.common.matching.v3 import extension_matcher_pb2 as pb
from envoy.extensions.filters.http.composite.v3 import composite_pb2
from envoy.extensions.filters.http.fault.v3 import fault_pb2
from envoy.extensions.filters.http.router.v3 import router_pb2
from envoy.type.v3 import percent_pb2
from google.protobuf import struct_pb2, wrappers_pb2
from google.protobuf.message import Message
from tests.dataplane.filters.composite.parts import CLIENT, SERVER, Mark, mark, read, read_override
from xds.type.v3 import typed_struct_pb2

from authplane.cel.calls.call_vocabulary import SERVER_CALLS, compile_call_expression
from authplane.cel.check.program import Program
from authplane.core.feature_flags import FeatureFlags
from authplane.dataplane.filters.call_attributes import AttributesInput
from authplane.dataplane.filters.calls import Call
from authplane.dataplane.filters.composite.filter import Choice, Composite, Execute, NestedFilter, Refuse, Skip
from authplane.dataplane.filters.composite.native.wire import CARRIER
from authplane.dataplane.filters.composite.wire import COMPOSITE_NAME, OVERRIDE_NAME, TYPE_NAME, composite_type
from authplane.dataplane.filters.fault.filter import Fault
from authplane.dataplane.filters.standard_filters import standard_registry
from authplane.grpc.matching import (
    by_header,
    cel,
    composite,
    composite_override,
    execute,
    first_match,
    header,
    noting,
    skip,
    when,
)
from authplane.matching.expressions.expression_matcher import ExpressionMatcher
from authplane.matching.fractions import Fraction
from authplane.matching.matcher_tree import Act, Branch, ListMatcher, Single
from authplane.matching.string_matchers import Exact
from authplane.matching.tree_inputs import HeaderInput, TextMatcher

IS_A: Final = header("x").is_("a")
A_TEST: Final[Single[Call]] = Single(HeaderInput("x"), TextMatcher(Exact("a")))
ACTION: Final = "xds_matcher.matcher_list.matchers[0].on_match.action.typed_config"


def of(action: Message) -> pb.ExtensionWithMatcher:
    return composite(first_match(when(IS_A, then=action)))


def extension(config: Message, name: str = "f") -> extension_pb2.TypedExtensionConfig:
    made = extension_pb2.TypedExtensionConfig(name=name)
    made.typed_config.Pack(config)
    return made


def tree(action: object) -> Composite:
    return Composite(ListMatcher(branches=(Branch(A_TEST, Act(action)),)))  # type: ignore[arg-type]


@pytest.mark.requirement("CF-1")
def test_a_tree_is_read_with_its_filters() -> None:
    program = compile_call_expression('request.path == "/"', SERVER_CALLS)
    assert isinstance(program, Program)
    name = "google.protobuf.StringValue"
    found = read(
        composite(
            first_match(
                when(IS_A, then=skip()),
                when(cel('request.path == "/"'), then=execute(mark("one"), mark("two"), sample=0.5)),
                otherwise=execute(mark("three")),
            )
        )
    )
    assert found == Composite(
        ListMatcher(
            branches=(
                Branch(A_TEST, Act(Skip())),
                Branch(
                    Single(AttributesInput(), ExpressionMatcher(program)),
                    Act(Execute((NestedFilter(name, Mark("one")), NestedFilter(name, Mark("two"))), Fraction(500_000))),
                ),
            ),
            on_no_match=Act(Execute((NestedFilter(name, Mark("three")),))),
        )
    )
    assert hash(found) == hash(found)


@pytest.mark.requirement("CF-1")
def test_a_typed_struct_is_not_taken() -> None:
    (kind,) = [each for each in standard_registry().types if TYPE_NAME in each.type_urls]
    assert kind.parse_structured is None
    assert kind.override_urls == (OVERRIDE_NAME, CARRIER)


@pytest.mark.requirement("CF-1")
def test_bytes_that_are_no_message_are_a_problem() -> None:
    class Broken:
        DESCRIPTOR = pb.ExtensionWithMatcher.DESCRIPTOR

        def SerializeToString(self) -> bytes:  # noqa: N802 (as messages have it)
            return b"\xff"

    broken: Message = Broken()  # type: ignore[assignment]
    assert read(broken) == [f"Cannot decode the bytes. Expected {TYPE_NAME}. [Unreadable]"]
    assert read_override(broken) == [f"Cannot decode the bytes. Expected {OVERRIDE_NAME}. [Unreadable]"]


@pytest.mark.requirement("CF-2")
def test_the_extension_must_be_a_composite_filter() -> None:
    message = of(skip())
    message.extension_config.typed_config.Pack(router_pb2.Router())
    assert read(message) == [
        "extension_config.typed_config.type_url: 'envoy.extensions.filters.http.router.v3.Router' is not supported "
        f"here. Supported: {COMPOSITE_NAME}. [TypeUnsupported]"
    ]
    message.ClearField("extension_config")
    assert read(message) == ["extension_config: This field is required. Add it. [Missing]"]
    message.extension_config.name = "composite"
    assert read(message) == ["extension_config.typed_config.type_url: This field is required. Add it. [Missing]"]


@pytest.mark.requirement("CF-3")
def test_without_a_tree_the_filter_does_nothing_and_an_override_is_refused() -> None:
    message = pb.ExtensionWithMatcher(extension_config=extension(composite_pb2.Composite()))
    message.matcher.on_no_match.action.name = "old and ignored"
    assert read(message) == Composite(None)
    assert read_override(pb.ExtensionWithMatcherPerRoute()) == [
        "xds_matcher: This field is required. Add it. [Missing]"
    ]


@pytest.mark.requirement("CF-9")
def test_an_override_is_read_as_the_tree_of_the_filter_is() -> None:
    other = first_match(when(IS_A, then=execute(mark("a"))))
    found = read_override(composite_override(other))
    whole = read(composite(other))
    assert isinstance(whole, Composite)
    assert whole.matcher is not None
    assert found == Choice(whole.matcher)
    assert read_override(composite_override(first_match(when(IS_A, then=mark("a")))))


@pytest.mark.requirement("CF-4", "E37")
def test_other_actions_are_refused() -> None:
    assert read(of(mark("a"))) == [
        f"{ACTION}.type_url: 'google.protobuf.StringValue' is not a supported action. Use another action. [TypeUnknown]"
    ]


@pytest.mark.requirement("CF-5", "E37")
def test_a_chain_wins_over_one_filter_and_neither_is_refused() -> None:
    action = composite_pb2.ExecuteFilterAction(typed_config=extension(router_pb2.Router()))
    action.dynamic_config.name = "ignored"
    action.filter_chain.typed_config.append(extension(mark("a"), "named"))
    assert read(of(action)) == tree(Execute((NestedFilter("named", Mark("a")),)))
    action.ClearField("filter_chain")
    action.typed_config.CopyFrom(extension(mark("b"), ""))
    assert read(of(action)) == tree(Execute((NestedFilter("", Mark("b")),)))
    action.ClearField("typed_config")
    assert read(of(action)) == [
        f"{ACTION}: The action has no filter. Set typed_config or filter_chain. [FilterMissing]"
    ]
    action.filter_chain.SetInParent()
    assert read(of(action)) == tree(Execute(()))


@pytest.mark.requirement("CF-6")
def test_nested_filters_are_judged_as_others_are_with_the_way_to_them() -> None:
    action = composite_pb2.ExecuteFilterAction()
    action.filter_chain.typed_config.extend(
        [
            extension(mark("a")),
            extension(router_pb2.Router()),
            extension(struct_pb2.Struct()),
            extension(mark("")),
            extension_pb2.TypedExtensionConfig(),
        ]
    )
    chain = f"{ACTION}.filter_chain.typed_config"
    assert read(of(action)) == [
        f"{chain}[1].typed_config: envoy.extensions.filters.http.router.v3.Router ends a chain, so a composite filter"
        " cannot execute it. Use another filter. "
        "[FilterTerminal]",
        f"{chain}[2].typed_config: Filter type google.protobuf.Struct is not supported. Use another filter."
        " [FilterUnsupported]",
        f"{chain}[3].typed_config.value: is empty [Empty]",
        f"{chain}[4].typed_config.type_url: This field is required. Add it. [Missing]",
    ]


@pytest.mark.requirement("CF-6")
def test_a_nested_filter_may_come_as_a_typed_struct_if_it_takes_one() -> None:
    struct = typed_struct_pb2.TypedStruct(type_url="type.googleapis.com/google.protobuf.StringValue")
    assert read(of(execute(struct))) == tree(Execute((NestedFilter("xds.type.v3.TypedStruct", Mark("{}")),)))
    struct.type_url = f"type.googleapis.com/{TYPE_NAME}"
    assert read(of(execute(struct))) == [
        f"{ACTION}.typed_config.typed_config: {TYPE_NAME} as a TypedStruct is not supported here. Use the message"
        " itself. [FormUnsupported]"
    ]


@pytest.mark.requirement("CF-7")
def test_a_sample_needs_its_value_and_is_at_most_all() -> None:
    action = execute(mark("a"))
    action.sample_percent.runtime_key = "ignored"
    assert read(of(action)) == [
        f"{ACTION}.sample_percent.default_value: This field is required. Add it. [ValueMissing]"
    ]
    action.sample_percent.CopyFrom(
        base_pb2.RuntimeFractionalPercent(
            default_value=percent_pb2.FractionalPercent(
                numerator=4_000_000_000, denominator=percent_pb2.FractionalPercent.TEN_THOUSAND
            )
        )
    )
    name = "google.protobuf.StringValue"
    assert read(of(action)) == tree(Execute((NestedFilter(name, Mark("a")),), Fraction(1_000_000)))


@pytest.mark.requirement("CF-8")
def test_a_tree_that_keeps_matching_is_refused() -> None:
    inner = by_header("y", {"b": noting(skip())})
    assert read(composite(first_match(when(IS_A, then=inner)))) == [
        "xds_matcher.matcher_list.matchers[0].on_match.matcher.matcher_tree.exact_match_map.map.b.keep_matching: "
        "keep_matching is not supported, because this filter runs one action for each call. Remove it."
        " [KeepMatchingUnsupported]"
    ]


def nested(depth: int) -> Message:
    """Return a filter that holds filters, so that the innermost is at a depth."""
    made: Message = mark("deep")
    for _ in range(depth - 1):
        made = of(execute(made))
    return made


@pytest.mark.requirement("CF-10", "E37")
def test_filters_nest_eight_deep_and_not_nine() -> None:
    assert isinstance(read(nested(8)), Composite)
    found = read(nested(9))
    assert isinstance(found, list)
    where = f"{ACTION}.typed_config.typed_config"
    assert found == [
        f"{'.'.join([where] * 8)}: Filters are nested more than 8 levels deep. Use fewer levels. [TooDeep]"
    ]


@pytest.mark.requirement("CF-12")
def test_a_filter_that_is_not_for_this_side_is_taken_and_refuses_calls() -> None:
    fault = fault_pb2.HTTPFault()
    name = "envoy.extensions.filters.http.fault.v3.HTTPFault"
    assert read(of(execute(fault)), CLIENT) == tree(Execute((NestedFilter(name, Fault()),)))
    assert read(of(execute(mark("a"), fault))) == tree(Refuse(f"{name} filter not supported on servers"))
    theirs = wrappers_pb2.BytesValue(value=b"x")
    assert read(of(execute(theirs)), CLIENT) == tree(
        Refuse("google.protobuf.BytesValue filter not supported on clients")
    )
    fault.delay.SetInParent()
    assert isinstance(read(of(execute(fault))), list)


@pytest.mark.requirement("CEL-9")
def test_what_expressions_may_read_depends_on_the_side() -> None:
    message = composite(first_match(when(cel('source.ip == "1"'), then=skip())))
    assert isinstance(read(message), Composite)
    found = read(message, CLIENT)
    assert isinstance(found, list)
    assert "'source' is not defined" in found[0]
    assert found[0].startswith(
        "xds_matcher.matcher_list.matchers[0].predicate.single_predicate.custom_match.typed_config."
        "expr_match.cel_expr_checked.expr.call_expr.args[0].select_expr.operand.ident_expr: "
    )


@pytest.mark.requirement("CF-14")
def test_switched_off_the_type_is_unknown() -> None:
    off = FeatureFlags(composite_filter=False)
    assert composite_type(off) is None
    registry = standard_registry(off)
    assert TYPE_NAME not in registry.configs
    assert OVERRIDE_NAME not in registry.overrides
    on = composite_type(FeatureFlags())
    assert on is not None
    inside = replace(SERVER, registry=registry)
    assert read(of(execute(of(skip()))), inside) == [
        f"{ACTION}.typed_config.typed_config: Filter type {TYPE_NAME} is not supported. Use another filter."
        " [FilterUnsupported]"
    ]
