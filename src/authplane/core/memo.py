"""Builds only what has changed: if the inputs are the same, a memory returns what the last generation made of them.

Every stage, from documents over policies, graph and placement to bytes for proxies, remembers its results with a memory
of this module, so that a changed document costs only what depends on it. This is the contract:

*What may be shared.* Frozen values only, made by functions whose result depends only on what the memory compares: the
key and the ``inputs`` of `Memo.ensure`, what `Watched.ensure` saw its build read, and what `start` was given as
common to all. A function that reads anything else makes its result wrong, not slow.

*How it is compared.* By equality; Python treats an object as equal to itself without comparing its fields. What takes
long to compare, or has no equality, is wrapped in `Same` and compared by identity only.

*Who guarantees that equal values are the same object.* Each stage, to the next one: `ensure` returns the known object
for unchanged documents, and `share` exchanges a new object for the known one. So the library returns the same
resources for unchanged documents, the compiler the same settings, policies and attachments, the graph the same hosts,
routes, ports, clusters and servers, placement the same policies of a target, and a snapshot the same collections.
Code that passes on such an object must not copy it: `dataclasses.replace`, or a new tuple of the same, is a copy, and
a comparison by identity takes a copy for a new value.

*What a broken guarantee costs.* Time, never a wrong result: with memory and without it, results are equal.

*How long.* `Memo` and `Watched` drop what a whole generation did not use; `Held` drops what is no longer referenced.

*Who owns it.* The object that lives from generation to generation, which makes its memories and passes them on; no
module has one. A memory is used by one thread at a time.

Tests check all of it, through the whole pipeline: ``tests/controlplane/serving/test_memory_contract.py``.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, Final, Generic, TypeVar
from weakref import WeakValueDictionary

from authplane.core.values import dataclass

K = TypeVar("K")
V = TypeVar("V")
Key = TypeVar("Key", bound=Hashable)
Made = TypeVar("Made")
Entry = TypeVar("Entry")

_ABSENT: Final = object()
_WHOLE: Final = object()


class Same:
    """Objects that are compared by identity, as a key or among the inputs of what is made of them.

    It keeps references to them, so that no other object can get the memory address that identifies them.
    """

    __slots__ = ("_ids", "_objects")

    def __init__(self, *objects: object) -> None:
        self._objects = objects
        self._ids = tuple(map(id, objects))

    def __hash__(self) -> int:
        return hash(self._ids)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self._ids == other._ids


class Generations(Generic[Key, Entry]):
    """Entries of this generation and of the one before it. What becomes of them is for those who use it."""

    def __init__(self) -> None:
        self.before: Mapping[Key, Entry] = {}
        self.now: dict[Key, Entry] = {}
        self._common: object = None

    def start(self, common: object = None) -> None:
        """Begin a generation: drop what the last one did not use, and everything if ``common`` has changed."""
        self.before, self.now = self.now if common == self._common else {}, {}
        self._common = common

    def finish(self) -> None:
        """Drop what this generation has not used, without waiting for the next one."""
        self.before = {}


@dataclass(frozen=True, slots=True)
class _Known(Generic[Key, Made]):
    key: Key
    """As it was first given: an equal one of each generation would only take room."""
    inputs: object
    made: Made


class Memo(Generations[Key, _Known[Key, Made]]):
    """What was made, by key."""

    def ensure(self, key: Key, inputs: object, make: Callable[[], Made]) -> Made:
        """Return what ``make`` makes of the key and the inputs; without making it if both are as they were."""
        known = self.now.get(key) or self.before.get(key)
        if known is None or known.inputs != inputs:
            known = _Known(key, inputs, make())
        self.now[known.key] = known
        return known.made

    def share(self, key: Key, made: Made) -> Made:
        """Return the known object for an equal one, so that comparisons by identity succeed."""
        known = self.now.get(key) or self.before.get(key)
        if known is None or (known.made is not made and known.made != made):
            known = _Known(key, None, made)
        self.now[known.key] = known
        return known.made


class Held(Generic[Key, Made]):
    """What was made, by key, while it is referenced; the class needs a ``weakref_slot``."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[Key, Made] = WeakValueDictionary()

    def ensure(self, key: Key, make: Callable[[], Made]) -> Made:
        """Return what ``make`` makes of the key; a value that is still referenced is not made again."""
        made = self._known.get(key)
        if made is None:
            made = self._known[key] = make()
        return made


# --- Inputs that are observed instead of passed


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
class _Seen(Generic[Key, Made]):
    key: Key
    made: Made
    reads: Mapping[tuple[str, object], object]
    tables: Tables
    """Those in which all that was read was found to be the same."""


class Watched(Generations[Key, _Seen[Key, Made]]):
    """What was built, by key, until something that its build looked at is another.

    There is no list of what depends on what, so none can be wrong: a build that looks at something else next month
    depends on that as well.
    """

    def ensure(self, key: Key, tables: Tables, build: Callable[[Tables], Made]) -> Made:
        """Return what ``build`` makes of the tables; without building if it would look at the same as last time."""
        known = self.now.get(key) or self.before.get(key)
        if known is not None and _unchanged(known, tables):
            known.tables = tables
            self.now[known.key] = known
            return known.made
        reads: dict[tuple[str, object], object] = {}
        made = build({name: Tracked(name, table, reads) for name, table in tables.items()})
        self.now[key] = _Seen(key, made, reads, tables)
        return made


def _unchanged(known: _Seen[Any, Any], tables: Tables) -> bool:
    before = known.tables
    for (name, key), seen in known.reads.items():
        table = tables[name]
        if table is before[name]:
            continue
        now = table if key is _WHOLE else table.get(key, _ABSENT)
        if now is not seen and now != seen:
            return False
    return True
