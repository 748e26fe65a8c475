"""Metadata of resources, for filters that ask for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeAlias


@dataclass(frozen=True, slots=True)
class Audience:
    """For whom tokens of Google's cloud are meant."""

    url: str


@dataclass(frozen=True, slots=True)
class JsonObject:
    """Members of a JSON object: texts, floats, booleans, None, lists as tuples, and mappings."""

    members: Mapping[str, Any]


MetadataValue: TypeAlias = Audience | JsonObject
ResourceMetadata: TypeAlias = Mapping[str, MetadataValue]

NO_METADATA: Final[ResourceMetadata] = MappingProxyType({})
