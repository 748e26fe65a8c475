"""``ExtensionWithMatcher`` of a ``Composite`` to our value, and the filter as the registry knows it."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Final

from envoy.config.core.v3 import extension_pb2
from envoy.extensions.common.matching.v3 import extension_matcher_pb2 as pb
from envoy.extensions.filters.common.matcher.action.v3 import skip_action_pb2 as skip_pb
from envoy.extensions.filters.http.composite.v3 import composite_pb2
from xds.type.matcher.v3 import http_inputs_pb2 as inputs_pb

from authplane.core.feature_flags import FeatureFlags
from authplane.core.problems import Problem, Problems
from authplane.dataplane.filters.call_attributes import VOCABULARIES, AttributesInput
from authplane.dataplane.filters.calls import Call, Side
from authplane.dataplane.filters.composite.filter import Action, Choice, Composite, Execute, NestedFilter, Refuse, Skip
from authplane.dataplane.filters.composite.native.wire import CARRIER, NAME, NATIVE_INPUTS
from authplane.dataplane.filters.extensions.wire import (
    add_below,
    parse_extension,
    parse_filter,
    parse_message,
    parse_type_url,
)
from authplane.dataplane.filters.registry import MOST_DEPTH, FilterType, Packed, Scope
from authplane.matching.expressions.wire import INPUT, MATCHER, parse_cel_matcher
from authplane.matching.fractions import ALWAYS, Fraction
from authplane.matching.tree_wire import InputKind, Kinds, MatcherKind, ValueType, parse_tree
from authplane.matching.wire import HEADER_INPUT, parse_header_input, parse_runtime_fraction

TYPE_NAME: Final = "envoy.extensions.common.matching.v3.ExtensionWithMatcher"
OVERRIDE_NAME: Final = "envoy.extensions.common.matching.v3.ExtensionWithMatcherPerRoute"
COMPOSITE_NAME: Final = "envoy.extensions.filters.http.composite.v3.Composite"
EXECUTE_NAME: Final = "envoy.extensions.filters.http.composite.v3.ExecuteFilterAction"
NO_MORE: Final[Mapping[str, InputKind[Call]]] = MappingProxyType({})
SKIP_NAME: Final = "envoy.extensions.filters.common.matcher.action.v3.SkipFilter"


def composite_type(flags: FeatureFlags) -> FilterType | None:
    """Return the filter; None if it is switched off."""
    if not flags.composite_filter:
        return None
    return FilterType(
        type_urls=(TYPE_NAME,),
        override_urls=(OVERRIDE_NAME, CARRIER),
        sides=frozenset(Side),
        parse=parse_composite,
        parse_override=parse_override,
    )


def composite_kinds(scope: Scope, more: Mapping[str, InputKind[Call]] = NO_MORE) -> Kinds[Call, Action]:
    """Return the supported parts of the tree of a composite filter."""
    vocabulary = VOCABULARIES[scope.side]
    return Kinds(
        inputs={
            HEADER_INPUT: InputKind(ValueType.TEXT, parse_header_input),
            INPUT: InputKind(ValueType.CEL, _parse_attributes),
            **more,
        },
        matchers={
            MATCHER: MatcherKind(ValueType.CEL, lambda data, problems: parse_cel_matcher(data, vocabulary, problems))
        },
        actions={SKIP_NAME: _parse_skip, EXECUTE_NAME: partial(_parse_execute, scope)},
    )


def parse_composite(packed: Packed, scope: Scope) -> Composite | tuple[Problem, ...]:
    """Parse the configuration; report every problem."""
    problems = Problems()
    message = parse_message(pb.ExtensionWithMatcher, packed.value, problems)
    if message is None:
        return problems.errors
    with problems.at("extension_config"):
        _check_extension(message, problems)
    matcher = None
    if message.HasField("xds_matcher"):
        with problems.at("xds_matcher"):
            matcher = parse_tree(message.xds_matcher, composite_kinds(scope), problems)
    return problems.errors or Composite(matcher)


def parse_override(packed: Packed, scope: Scope) -> Choice | tuple[Problem, ...]:
    """Parse an override; report every problem."""
    if packed.type_name != CARRIER:
        return parse_choice(packed, scope)
    problems = Problems()
    message = parse_message(extension_pb2.TypedExtensionConfig, packed.value, problems)
    if message is None:
        return problems.errors
    if message.name != NAME or scope.side is not Side.SERVER:
        with problems.at("name"):
            problems.add(
                "NameUnknown",
                f"'{message.name}' is not a supported extension on {scope.side.value}s. Remove the override.",
            )
        return problems.errors
    with problems.at("typed_config"):
        raw = parse_extension(message.typed_config, problems)
        if not isinstance(raw, Packed) or raw.type_name != OVERRIDE_NAME:
            problems.add("TypeUnsupported", f"The override type is not supported. Expected {OVERRIDE_NAME}.")
            return problems.errors
        found = parse_choice(raw, scope, NATIVE_INPUTS)
        if isinstance(found, tuple):
            add_below(found, problems)
            return problems.errors
    return found


def parse_choice(
    packed: Packed, scope: Scope, more: Mapping[str, InputKind[Call]] = NO_MORE
) -> Choice | tuple[Problem, ...]:
    """Parse a tree that replaces another one; report every problem."""
    problems = Problems()
    message = parse_message(pb.ExtensionWithMatcherPerRoute, packed.value, problems)
    if message is None:
        return problems.errors
    with problems.at("xds_matcher"):
        if not message.HasField("xds_matcher"):
            problems.add("Missing", "This field is required. Add it.")
            return problems.errors
        matcher = parse_tree(message.xds_matcher, composite_kinds(scope, more), problems)
    return problems.errors if matcher is None else Choice(matcher)


def _check_extension(message: pb.ExtensionWithMatcher, problems: Problems) -> None:
    """Report an extension that is not a composite filter: matchers of other extensions are not supported."""
    if not message.HasField("extension_config"):
        problems.add("Missing", "This field is required. Add it.")
        return
    config = message.extension_config.typed_config
    with problems.at("typed_config"):
        name = parse_type_url(config.type_url, problems)
        if name == COMPOSITE_NAME:
            parse_message(composite_pb2.Composite, config.value, problems)
        elif name is not None:
            with problems.at("type_url"):
                problems.add("TypeUnsupported", f"'{name}' is not supported here. Supported: {COMPOSITE_NAME}.")


def _parse_attributes(data: bytes, problems: Problems) -> AttributesInput | None:
    message = parse_message(inputs_pb.HttpAttributesCelMatchInput, data, problems)
    return None if message is None else AttributesInput()


def _parse_skip(data: bytes, problems: Problems) -> Skip | None:
    return None if parse_message(skip_pb.SkipFilter, data, problems) is None else Skip()


def _parse_execute(scope: Scope, data: bytes, problems: Problems) -> Execute | Refuse | None:
    message = parse_message(composite_pb2.ExecuteFilterAction, data, problems)
    if message is None:
        return None
    before = problems.error_count
    sample = None
    if message.HasField("sample_percent"):
        with problems.at("sample_percent"):
            sample = parse_runtime_fraction(message.sample_percent, problems)
    filters: list[NestedFilter | Refuse | None] = []
    if message.HasField("filter_chain"):
        with problems.at("filter_chain", "typed_config"):
            for index, each in enumerate(message.filter_chain.typed_config):
                with problems.at(index):
                    filters.append(_parse_nested(each, scope, problems))
    elif message.HasField("typed_config"):
        with problems.at("typed_config"):
            filters.append(_parse_nested(message.typed_config, scope, problems))
    else:
        problems.add("FilterMissing", "The action has no filter. Set typed_config or filter_chain.")
    if problems.error_count != before:
        return None
    return _action(filters, ALWAYS if sample is None else sample)


def _action(filters: Iterable[NestedFilter | Refuse | None], sample: Fraction) -> Execute | Refuse:
    """Return what is done; a chain with a filter that is not for this side cannot be run at all."""
    found = tuple(filters)
    refusal = next((each for each in found if isinstance(each, Refuse)), None)
    if refusal is not None:
        return Refuse(refusal.why, sample)
    return Execute(tuple(each for each in found if isinstance(each, NestedFilter)), sample)


def _parse_nested(
    message: extension_pb2.TypedExtensionConfig, scope: Scope, problems: Problems
) -> NestedFilter | Refuse | None:
    """Read a filter that is chosen; None is a problem. Nothing here is optional."""
    with problems.at("typed_config"):
        raw = parse_extension(message.typed_config, problems)
        kind = None if raw is None else _nested_kind(raw.type_name, scope, problems)
        if raw is None or kind is None:
            return None
        config = parse_filter(kind, raw, replace(scope, depth=scope.depth + 1), problems)
    if config is None:
        return None
    if scope.side not in kind.sides:
        return Refuse(f"{raw.type_name} filter not supported on {scope.side.value}s")
    return NestedFilter(message.name, config)


def _nested_kind(name: str, scope: Scope, problems: Problems) -> FilterType | None:
    kind = scope.registry.configs.get(name)
    if scope.depth >= MOST_DEPTH:
        problems.add("TooDeep", f"Filters are nested more than {MOST_DEPTH} levels deep. Use fewer levels.")
    elif kind is None:
        problems.add("FilterUnsupported", f"Filter type {name} is not supported. Use another filter.")
    elif kind.terminal:
        problems.add(
            "FilterTerminal", f"{name} ends a chain, so a composite filter cannot execute it. Use another filter."
        )
    else:
        return kind
    return None
