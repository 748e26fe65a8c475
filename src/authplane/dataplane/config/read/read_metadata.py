"""Metadata of clusters and routes (gRFC A83)."""

from typing import Any, Final

from envoy.config.core.v3 import base_pb2
from envoy.extensions.filters.http.gcp_authn.v3 import gcp_authn_pb2

from authplane.core.problems import Problems, printable
from authplane.dataplane.config.frozen import FrozenMap
from authplane.dataplane.config.metadata import NO_METADATA, Audience, JsonObject, MetadataValue, ResourceMetadata
from authplane.dataplane.filters.extensions.wire import parse_extension, parse_message, parse_struct
from authplane.dataplane.filters.registry import Packed, Raw

_AUDIENCE: Final = gcp_authn_pb2.Audience.DESCRIPTOR.full_name


def parse_metadata(message: base_pb2.Metadata, problems: Problems) -> ResourceMetadata:
    """Parse metadata: typed entries first, then untyped ones under other keys; unknown types are skipped."""
    found: dict[str, MetadataValue] = {}
    for key in sorted(message.typed_filter_metadata):
        with problems.at("typed_filter_metadata", printable(key)):
            raw = parse_extension(message.typed_filter_metadata[key], problems)
            value = None if raw is None else _parse_typed(raw, problems)
        if value is not None:
            found[key] = value
    for key in sorted(message.filter_metadata):
        with problems.at("filter_metadata", printable(key)):
            members = parse_struct(message.filter_metadata[key], problems)
        if members is not None and key not in found:
            found[key] = JsonObject(_frozen(members))
    return FrozenMap(found) if found else NO_METADATA


def _parse_typed(raw: Raw, problems: Problems) -> MetadataValue | None:
    if raw.type_name != _AUDIENCE:
        return None
    if not isinstance(raw, Packed):
        problems.add("Unreadable", f"{_AUDIENCE} as a TypedStruct is not supported. Use the message itself.")
        return None
    audience = parse_message(gcp_authn_pb2.Audience, raw.value, problems)
    if audience is None:
        return None
    if not audience.url:
        with problems.at("url"):
            problems.add("Missing", "This field is required. Add it.")
        return None
    return Audience(audience.url)


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return FrozenMap({key: _frozen(each) for key, each in value.items()})
    return tuple(map(_frozen, value)) if isinstance(value, tuple) else value
