"""The filters of a connection manager, and their overrides on routes (gRFC A39)."""

from collections.abc import Mapping, Sequence
from typing import Final

from envoy.config.route.v3 import route_components_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb
from google.protobuf import any_pb2

from authplane.core.problems import Problems, printable
from authplane.dataplane.config.frozen import FrozenMap
from authplane.dataplane.config.listeners import HttpFilter
from authplane.dataplane.config.routes import NO_OVERRIDES, Override, Overrides
from authplane.dataplane.filters.extensions.wire import add_below, parse_extension, parse_filter, parse_message
from authplane.dataplane.filters.registry import FilterConfig, FilterType, Packed, Raw, Scope

_WRAPPER: Final = route_components_pb2.FilterConfig.DESCRIPTOR.full_name


def parse_http_filters(
    messages: Sequence[hcm_pb.HttpFilter], scope: Scope, problems: Problems
) -> tuple[HttpFilter, ...]:
    """Read the filters in order; those that are optional and not supported are left out."""
    before = problems.error_count
    names: set[str] = set()
    kinds: list[tuple[int, FilterType]] = []
    filters = []
    for index, message in enumerate(messages):
        with problems.at(index):
            _parse_name(message.name, names, problems)
            with problems.at("typed_config"):
                kind, config = _parse_config(message, scope, problems)
        if kind is not None:
            kinds.append((index, kind))
            if config is not None:
                filters.append(HttpFilter(name=message.name, kind=kind, config=config, disabled=message.disabled))
    if not kinds and problems.error_count == before:
        problems.add("FiltersMissing", "The list of filters is empty. Add a filter.")
    _check_order(kinds, problems)
    return tuple(filters)


def parse_overrides(messages: Mapping[str, any_pb2.Any], scope: Scope, problems: Problems) -> Overrides:
    """Read a ``typed_per_filter_config``; what is optional and not supported is left out."""
    if not messages:
        return NO_OVERRIDES
    found = {}
    for name in sorted(messages):
        with problems.at("typed_per_filter_config", printable(name)):
            if not name:
                problems.add("NameMissing", "The filter name is empty. Set a name.")
            override = _parse_override(messages[name], scope, problems)
        if override is not None:
            found[name] = override
    return FrozenMap(found)


def _parse_name(name: str, seen: set[str], problems: Problems) -> None:
    with problems.at("name"):
        if not name:
            problems.add("NameMissing", "The name is empty. Set a name.")
        elif name in seen:
            problems.add("NameDuplicate", f"Another filter has the name '{name}'. Rename one of them.")
        seen.add(name)


def _parse_config(
    message: hcm_pb.HttpFilter, scope: Scope, problems: Problems
) -> tuple[FilterType | None, FilterConfig | None]:
    if not message.HasField("typed_config"):
        problems.add("Missing", "This field is required. Add it.")
        return None, None
    raw = parse_extension(message.typed_config, problems)
    if raw is None:
        return None, None
    kind = scope.registry.configs.get(raw.type_name)
    if kind is None:
        if not message.is_optional:
            problems.add(
                "FilterUnsupported",
                f"Filter type {raw.type_name} is not supported. Remove the filter, or set is_optional.",
            )
        return None, None
    if scope.side not in kind.sides:
        if not message.is_optional:
            problems.add(
                "FilterUnsupported",
                f"Filter type {raw.type_name} is not supported on {scope.side.value}s. Remove the filter, or set"
                " is_optional.",
            )
        return None, None
    return kind, parse_filter(kind, raw, scope, problems)


def _check_order(kinds: Sequence[tuple[int, FilterType]], problems: Problems) -> None:
    for place, (index, kind) in enumerate(kinds, 1):
        last = place == len(kinds)
        if kind.terminal == last:
            continue
        with problems.at(index):
            if last:
                problems.add(
                    "FilterOrder", "The last filter does not end the chain. Add the router as the last filter."
                )
            else:
                problems.add(
                    "FilterOrder", "The filter ends the chain, but other filters follow. Move this filter to the end."
                )


def _parse_override(message: any_pb2.Any, scope: Scope, problems: Problems) -> Override | None:
    raw = parse_extension(message, problems)
    if raw is None:
        return None
    if raw.type_name != _WRAPPER:
        return _parse_override_config(raw, scope, problems, optional=False, disabled=False)
    if not isinstance(raw, Packed):
        problems.add("FormUnsupported", f"{_WRAPPER} as a TypedStruct is not supported. Use the message itself.")
        return None
    wrapper = parse_message(route_components_pb2.FilterConfig, raw.value, problems)
    return None if wrapper is None else _parse_wrapper(wrapper, scope, problems)


def _parse_wrapper(wrapper: route_components_pb2.FilterConfig, scope: Scope, problems: Problems) -> Override | None:
    with problems.at("config"):
        if wrapper.HasField("config"):
            raw = parse_extension(wrapper.config, problems)
            if raw is None:
                return None
            return _parse_override_config(raw, scope, problems, optional=wrapper.is_optional, disabled=wrapper.disabled)
        if not wrapper.disabled:
            problems.add("Missing", "This field is required. Add it, or set disabled.")
            return None
        return Override(disabled=True)


def _parse_override_config(
    raw: Raw, scope: Scope, problems: Problems, *, optional: bool, disabled: bool
) -> Override | None:
    kind = scope.registry.overrides.get(raw.type_name)
    if kind is None or kind.parse_override is None:
        if raw.type_name in scope.registry.configs:
            problems.add(
                "FilterUnsupported",
                f"{raw.type_name} configures a filter, but is not an override. Use the override type of the filter.",
            )
        elif not optional:
            problems.add(
                "FilterUnsupported",
                f"Override type {raw.type_name} is not supported. Remove the override, or set is_optional.",
            )
        return None
    if not isinstance(raw, Packed):
        problems.add(
            "FormUnsupported", f"{raw.type_name} as a TypedStruct is not supported here. Use the message itself."
        )
        return None
    made = kind.parse_override(raw, scope)
    if isinstance(made, tuple):
        add_below(made, problems)
        return None
    return Override(kind=kind, config=made, disabled=disabled)
