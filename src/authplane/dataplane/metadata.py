"""Metadata of resources, for filters that ask for it."""

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from authplane.dataplane.frozen import FrozenMap


@dataclass(frozen=True, slots=True)
class Audience:
    """For whom tokens of Google's cloud are meant."""

    url: str


@dataclass(frozen=True, slots=True)
class JsonObject:
    """Members of a JSON object: texts, floats, booleans, None, lists as tuples, and such mappings."""

    members: FrozenMap[str, Any]


MetadataValue: TypeAlias = Audience | JsonObject
ResourceMetadata: TypeAlias = FrozenMap[str, MetadataValue]

NO_METADATA: Final[ResourceMetadata] = FrozenMap()
