"""Metadata of resources, for filters that read it."""

from typing import Any, Final, TypeAlias

from authplane.core.values import dataclass
from authplane.dataplane.config.frozen import FrozenMap
from authplane.dataplane.filters.filter_metadata import NO_METADATA as NO_FILTER_METADATA
from authplane.dataplane.filters.filter_metadata import FilterMetadata


@dataclass(frozen=True, slots=True)
class Audience:
    """The audience of tokens that Google Cloud issues."""

    url: str


@dataclass(frozen=True, slots=True)
class JsonObject:
    """Members of a JSON object: texts, floats, booleans, None, lists as tuples, and such mappings."""

    members: FrozenMap[str, Any]


MetadataValue: TypeAlias = Audience | JsonObject
ResourceMetadata: TypeAlias = FrozenMap[str, MetadataValue]


def shown_to_filters(metadata: ResourceMetadata) -> FilterMetadata:
    """Return what filters see of metadata: JSON objects only, nothing that has a type of its own."""
    if not metadata:
        return NO_FILTER_METADATA
    return FilterMetadata({key: each.members for key, each in metadata.items() if isinstance(each, JsonObject)})


NO_METADATA: Final[ResourceMetadata] = FrozenMap()
