"""The findings of one file."""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from authplane.core.names import Ref
from authplane.core.problems import Problem
from authplane.core.values import dataclass
from authplane.resources.document_chunks import is_error
from authplane.resources.documents import Finding, Place
from authplane.resources.file_documents import Source
from authplane.resources.yaml.nodes import Spot


class Clash(NamedTuple):
    """A document, and another that must not be beside it."""

    key: Ref
    place: Place
    ref: Ref
    other: Place
    other_ref: Ref


@dataclass(frozen=True, slots=True, kw_only=True)
class FileState:
    """A file and what its findings depend on."""

    file: str
    source: Source
    good: Container[Ref]
    """Resources that are in force."""
    waits: bool
    """This version of the file is not in force."""
    known: bool
    """Another is, or it is itself."""
    clashes: Sequence[Clash]
    """Documents of this file whose resource another document declares too."""


def build_findings(state: FileState) -> tuple[Finding, ...]:
    """Say everything that is wrong in a file, in the order of its lines."""
    found = [*_of_the_file(state), *_of_documents(state), *_of_names(state)]
    return tuple(sorted(found, key=lambda finding: (finding.place, finding.problem.reason, finding.problem.message)))


def build_clashes(places: Mapping[Ref, Iterable[tuple[Place, Ref]]]) -> Mapping[str, Sequence[Clash]]:
    """Pair each document with another of the same resource, by file."""
    found: dict[str, list[Clash]] = {}
    for key, unordered in sorted(places.items()):
        first, second, *rest = sorted(unordered)
        for here, other in ((first, second), (second, first), *((each, first) for each in rest)):
            found.setdefault(here[0].file, []).append(Clash(key, *here, *other))
    return found


def _of_the_file(state: FileState) -> Iterator[Finding]:
    damage = state.source.damage
    if damage is not None:
        yield _finding(state, damage, 0, None)
    elif state.source.blank and state.waits:
        message = f"The file is empty.{_consequence(state)} To remove its resources, delete the file."
        yield Finding(Place(state.file, 0, 0), None, Problem((), "FileEmpty", message))


def _of_documents(state: FileState) -> Iterator[Finding]:
    for chunk, before in state.source.faulty:
        for spot in chunk.spots:
            yield _finding(state, spot, before, None)
        for doc in chunk.docs:
            for spot in doc.spots:
                yield _finding(state, spot, before, doc.ref)


def _of_names(state: FileState) -> Iterator[Finding]:
    for key, place, ref, other, other_ref in state.clashes:
        consequence = (
            "The last good version stays in force." if key in state.good else "authplane uses neither of them."
        )
        if ref == other_ref:
            reason, message = "DuplicateName", f"{ref} is also defined at {other}."
        else:
            reason, message = "AtMostOne", f"Only one {ref.kind} is allowed, but there is another at {other}."
        yield Finding(place, ref, Problem(("metadata", "name"), reason, f"{message} {consequence} Remove one of them."))


def _consequence(state: FileState) -> str:
    if not state.waits:
        return ""
    if state.known:
        return " The last good version of the file stays in force."
    return " authplane uses nothing from the file until you correct it."


def _finding(state: FileState, spot: Spot, before: int, ref: Ref | None) -> Finding:
    consequence = _consequence(state) if is_error(spot) else ""
    problem = replace(spot.problem, message=spot.problem.message + consequence) if consequence else spot.problem
    return Finding(Place(state.file, before + spot.line if spot.line else 0, spot.column), ref, problem)
