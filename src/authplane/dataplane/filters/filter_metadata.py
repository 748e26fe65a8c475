"""Filter metadata of routes and clusters: JSON objects by the name of the filter that reads them."""

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Any, Final

from authplane.cel.check.admissible_data import Admitted, admit
from authplane.cel.check.expression_outcome import Failed
from authplane.core.values import dataclass

_EXACT: Final = 2**53
"""Up to here every integer is a double of its own."""


@dataclass(frozen=True, slots=True, eq=False)
class FilterMetadata:
    """The ``filter_metadata`` of a resource. Equal only to itself, so that it can be a key."""

    members: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: MappingProxyType({}))
    fact: Admitted | Failed = field(init=False, repr=False, compare=False)
    """The same as expressions read it, with integers where numbers are whole."""

    def __post_init__(self) -> None:
        found = admit(self.members)
        object.__setattr__(
            self, "fact", found if isinstance(found, Failed) else Admitted(_whole(found.value), found.size)
        )


def _whole(value: Any) -> Any:
    match value:
        case dict():
            return {key: _whole(each) for key, each in value.items()}
        case list():
            return [_whole(each) for each in value]
        case float() if value.is_integer() and abs(value) <= _EXACT:
            return int(value)
        case _:
            return value


NO_METADATA: Final = FilterMetadata()
