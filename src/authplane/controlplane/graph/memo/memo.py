"""Builds only what has changed: whoever builds is watched, and what it looked at is compared the next time.

There is no list of what depends on what, so none can be wrong: a build that looks at something else next month depends
on that as well.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")
Key = TypeVar("Key", bound=Hashable)
Made = TypeVar("Made")

_ABSENT: Final = object()
_WHOLE: Final = object()


class Tracked(Mapping[K, V]):
    """A table that notes every look at it."""

    __slots__ = ("_name", "_reads", "_table")

    def __init__(self, name: str, table: Mapping[K, V], reads: dict[tuple[str, object], object]) -> None:
        self._name = name
        self._table = table
        self._reads = reads

    def __getitem__(self, key: K) -> V:
        value = self._table.get(key, _ABSENT)
        self._reads[self._name, key] = value
        if value is _ABSENT:
            raise KeyError(key)
        return value  # type: ignore[return-value]

    def get(self, key: K, default: Any = None) -> Any:
        """Return a value, or ``default``; without the price of an exception."""
        value = self._table.get(key, _ABSENT)
        self._reads[self._name, key] = value
        return default if value is _ABSENT else value

    def __contains__(self, key: object) -> bool:
        return self.get(key, _ABSENT) is not _ABSENT  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[K]:
        self._reads[self._name, _WHOLE] = self._table
        return iter(self._table)

    def __len__(self) -> int:
        self._reads[self._name, _WHOLE] = self._table
        return len(self._table)


Tables = Mapping[str, Mapping[Any, Any]]
"""What can be looked at, by name. None of them ever says something else than before; a new generation has new ones."""


@dataclass(slots=True)
class _Known(Generic[Made]):
    made: Made
    reads: Mapping[tuple[str, object], object]
    tables: Tables
    """Those in which all that was read was found to be the same."""


class Memo(Generic[Key, Made]):
    """What was built, by key, until something that its build looked at is another."""

    def __init__(self) -> None:
        self._known: dict[Key, _Known[Made]] = {}
        self._common: object = None

    def start(self, common: object) -> None:
        """Begin a generation; ``common`` is what every build depends on, and a change of it makes all be built anew."""
        if common != self._common:
            self._known.clear()
        self._common = common

    def ensure(self, key: Key, tables: Tables, build: Callable[[Mapping[str, Mapping[Any, Any]]], Made]) -> Made:
        """Return what ``build`` makes of the tables; without building if it would look at the same as last time."""
        known = self._known.get(key)
        if known is not None and _unchanged(known, tables):
            known.tables = tables
            return known.made
        reads: dict[tuple[str, object], object] = {}
        made = build({name: Tracked(name, table, reads) for name, table in tables.items()})
        self._known[key] = _Known(made, reads, tables)
        return made

    def keep(self, keys: Mapping[Key, object]) -> None:
        """Forget what is not among the keys."""
        for key in self._known.keys() - keys.keys():
            del self._known[key]


def _unchanged(known: _Known[Any], tables: Tables) -> bool:
    before = known.tables
    for (name, key), seen in known.reads.items():
        table = tables[name]
        if table is before[name]:
            continue
        now = table if key is _WHOLE else table.get(key, _ABSENT)
        if now is not seen and now != seen:
            return False
    return True
