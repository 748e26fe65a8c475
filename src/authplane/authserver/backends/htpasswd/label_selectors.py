"""Label selectors as Kubernetes writes them: ``app=web,tier in (a, b),!legacy``."""

import re
from collections.abc import Callable, Mapping
from typing import Final

from authplane.core.values import dataclass

_KEY: Final = r"(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_VALUE: Final = r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?"
_EQUALITY: Final = re.compile(rf"\s*({_KEY})\s*(==|=|!=)\s*({_VALUE})\s*")
_SET: Final = re.compile(rf"\s*({_KEY})\s+(in|notin)\s*\(((?:\s*{_VALUE}\s*)(?:,\s*{_VALUE}\s*)*)\)\s*")
_EXISTENCE: Final = re.compile(rf"\s*(!?)\s*({_KEY})\s*")


@dataclass(frozen=True, slots=True)
class Requirement:
    """A requirement of a selector for one label."""

    key: str
    values: frozenset[str] | None
    """None means any value."""
    wanted: bool = True
    """False turns the requirement around: a label that is absent fulfils it."""

    def met_by(self, labels: Mapping[str, str]) -> bool:
        """Tell whether labels fulfil the requirement."""
        found = labels.get(self.key)
        return (found is not None and (self.values is None or found in self.values)) is self.wanted


@dataclass(frozen=True, slots=True)
class Selector:
    """Selects objects that meet every requirement; without any, all."""

    requirements: tuple[Requirement, ...] = ()

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Tell whether an object with these labels matches."""
        return all(requirement.met_by(labels) for requirement in self.requirements)


EVERYTHING: Final = Selector()


def parse_selector(text: str) -> Selector | None:
    """Read a selector; None means that the text is none. A blank one selects everything."""
    if not text.strip():
        return EVERYTHING
    requirements: list[Requirement] = []
    start = 0
    while start <= len(text):
        found = _requirement(text, start)
        if found is None:
            return None
        requirement, end = found
        requirements.append(requirement)
        start = end + 1
    return Selector(tuple(requirements))


def _requirement(text: str, start: int) -> tuple[Requirement, int] | None:
    """Read the requirement that begins at ``start`` and ends before a comma or the end."""
    for pattern, build in _FORMS:
        match = pattern.match(text, start)
        if match is not None and (match.end() == len(text) or text[match.end()] == ","):
            return build(match), match.end()
    return None


def _of_set(match: re.Match[str]) -> Requirement:
    return Requirement(match[1], frozenset(value.strip() for value in match[3].split(",")), match[2] == "in")


def _of_equality(match: re.Match[str]) -> Requirement:
    return Requirement(match[1], frozenset({match[3]}), match[2] != "!=")


def _of_existence(match: re.Match[str]) -> Requirement:
    return Requirement(match[2], None, not match[1])


_FORMS: Final[tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Requirement]], ...]] = (
    (_SET, _of_set),
    (_EQUALITY, _of_equality),
    (_EXISTENCE, _of_existence),
)
