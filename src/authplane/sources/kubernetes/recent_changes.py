"""Which objects changed a moment ago: what they take away that protects stays in force for now."""

from collections.abc import Container, Iterable
from typing import Final, NamedTuple

_MOST_WAITS: Final = 10
"""So many times that long a change waits at most: an object that is written again and again may tighten, too."""


class _Touched(NamedTuple):
    """When an object changed, and when it began to."""

    when: float
    since: float


class RecentChanges:
    """The changes of the last ``seconds``."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._touched: dict[str, _Touched] = {}

    def add(self, file: str, now: float) -> None:
        """Note a change."""
        if self._seconds > 0:
            before = self._touched.get(file)
            self._touched[file] = _Touched(now, before.since if before is not None else now)

    def fresh(self, now: float) -> Container[str]:
        """Return the files that changed a moment ago."""
        for file in [file for file, each in self._touched.items() if now >= self._quiet_at(each)]:
            del self._touched[file]
        return self._touched.keys()

    def due(self, held: Iterable[str]) -> float | None:
        """Return when the first of the ``held`` files is not fresh any more, if nothing else happens."""
        return min((self._quiet_at(self._touched[file]) for file in held if file in self._touched), default=None)

    def _quiet_at(self, each: _Touched) -> float:
        return min(each.when + self._seconds, each.since + _MOST_WAITS * self._seconds)
