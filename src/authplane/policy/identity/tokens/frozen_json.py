"""JSON values that cannot be changed."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

FrozenJson: TypeAlias = bool | int | float | str | tuple[Any, ...] | Mapping[str, Any] | None


def freeze(value: dict[str, Any]) -> Mapping[str, FrozenJson]:
    """Return an immutable copy of an object; its depth must be bounded."""
    return MappingProxyType({name: each if type(each) is str else _frozen(each) for name, each in value.items()})


def _frozen(value: Any) -> FrozenJson:
    if isinstance(value, list):
        return tuple(_frozen(each) for each in value)
    frozen: FrozenJson = freeze(value) if isinstance(value, dict) else value
    return frozen


def thaw(value: FrozenJson) -> Any:
    """Return the same as plain dicts and lists, with every number as a float: so expressions see JSON."""
    if isinstance(value, Mapping):
        return {name: each if type(each) is str else thaw(each) for name, each in value.items()}
    if isinstance(value, tuple):
        return [thaw(each) for each in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value
