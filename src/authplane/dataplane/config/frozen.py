"""A mapping that never changes, so that values that have one can be keys."""

from collections.abc import Hashable, Iterator, Mapping
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class FrozenMap(Mapping[K, V]):
    """A mapping that is hashable if its values are."""

    __slots__ = ("_hash", "_members")

    def __init__(self, members: Mapping[K, V] | None = None) -> None:
        self._members = dict(members or {})
        self._hash: int | None = None

    def __getitem__(self, key: K) -> V:
        return self._members[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self._members.items()))
        return self._hash

    def __repr__(self) -> str:
        return f"FrozenMap({self._members!r})"
