"""Headers of a call: which are well-formed, which may be changed, and how they change."""

import re
from dataclasses import field
from typing import Final, TypeAlias, assert_never

from authplane.core.text import shorten
from authplane.core.values import dataclass
from authplane.dataplane.filters.calls import Change, Metadata, Mutation
from authplane.matching.string_matchers import Regex, matches

LONGEST: Final = 16_384
"""Bytes that a name or a value may have."""

_NAME: Final = re.compile(r"[a-z0-9_.-]+")
_PROTECTED: Final = frozenset({"host", "content-type", "te"})


@dataclass(frozen=True, slots=True)
class Unfit:
    """Why a header or a change of one is refused."""

    why: str


def name_fault(name: str) -> str:
    """Say what is wrong with the name of a header; nothing if it is right."""
    if not name:
        return "the header name is empty"
    if len(name) > LONGEST:
        return f"the header name is longer than {LONGEST} bytes"
    return "" if _NAME.fullmatch(name) else f"{_quoted(name)} is not a header name"


def value_fault(name: str, value: str | bytes) -> str:
    """Say what is wrong with a value; nothing if it is right. Bytes are for the names that end in ``-bin``."""
    if len(value) > LONGEST:
        return f"the value of {_quoted(name)} is longer than {LONGEST} bytes"
    if isinstance(value, str) and not (value.isascii() and value.isprintable()):
        return f"the value of {_quoted(name)} has characters that are not printable ASCII"
    return ""


def is_protected(name: str) -> bool:
    """Tell whether a header belongs to gRPC or HTTP/2; such headers must not be changed."""
    return name.startswith((":", "grpc-")) or name in _PROTECTED


# --- Rules


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The headers that a service may change."""

    disallow_all: bool = False
    disallow: Regex | None = None
    allow: Regex | None = None
    """None allows all headers that no other rule disallows."""
    disallow_is_error: bool = False
    """Whether a disallowed change invalidates the response; otherwise it is skipped."""


NO_RULES: Final = Rules()


def may_change(rules: Rules, name: str) -> bool:
    """Tell whether a header may be changed."""
    if is_protected(name) or rules.disallow_all:
        return False
    if rules.disallow is not None and matches(rules.disallow, name):
        return False
    return rules.allow is None or matches(rules.allow, name)


# --- Edits


@dataclass(frozen=True, slots=True, kw_only=True)
class Edits:
    """Changes in order, and the removals that come after them. All are well-formed and allowed."""

    mutations: tuple[Mutation, ...] = ()
    removals: tuple[str, ...] = ()


NO_EDITS: Final = Edits()
Drafts: TypeAlias = list[Mutation | Unfit]


@dataclass(slots=True)
class Review:
    """Collects the allowed edits of a response.

    A malformed edit invalidates the whole response, and so does a disallowed one if the rules say so, even if it would
    change nothing.
    """

    rules: Rules
    unfit: Unfit | None = field(default=None, init=False)
    """The first problem that invalidates the response."""

    def mutations(self, drafts: Drafts) -> tuple[Mutation, ...]:
        """Return the changes that may be made."""
        return tuple([taken for each in drafts if (taken := self._taken(each)) is not None])

    def removals(self, names: list[str]) -> tuple[str, ...]:
        """Return the names that may be removed, in lower case."""
        return tuple(name for name in map(str.lower, names) if self._takes_name(name))

    def _taken(self, draft: Mutation | Unfit) -> Mutation | None:
        if isinstance(draft, Unfit):
            self._spoil(draft.why)
            return None
        if not self._takes_name(draft.key):
            return None
        fault = value_fault(draft.key, draft.value)
        if fault:
            self._spoil(fault)
            return None
        return draft

    def _takes_name(self, name: str) -> bool:
        fault = "" if is_protected(name) else name_fault(name)
        if fault:
            self._spoil(fault)
            return False
        allowed = may_change(self.rules, name)
        if not allowed and self.rules.disallow_is_error:
            self._spoil(f"header {_quoted(name)} must not be changed")
        return allowed

    def _spoil(self, why: str) -> None:
        if self.unfit is None:
            self.unfit = Unfit(why)


def edited(metadata: Metadata, edits: Edits) -> Metadata:
    """Return the metadata with the changes made, then without what is removed."""
    changed = mutated(metadata, edits.mutations)
    if not edits.removals:
        return changed
    removed = frozenset(edits.removals)
    return tuple([pair for pair in changed if pair[0] not in removed])


def mutated(metadata: Metadata, mutations: tuple[Mutation, ...]) -> Metadata:
    """Return the metadata with the changes made, one after the other.

    The time is proportional to the number of changes: an authorization service must not block other calls.
    """
    if not mutations:
        return metadata
    pairs, names = list(metadata), {name for name, _ in metadata}
    since: dict[str, int] = {}  # from which place on the values of a header count
    for each in mutations:
        exists = each.key in names
        if not _happens(each.change, exists=exists):
            continue
        if exists and each.change is not Change.APPEND:
            since[each.key] = len(pairs)
        names.add(each.key)
        pairs.append((each.key, each.value))
    if not since:
        return tuple(pairs)
    return tuple([pair for place, pair in enumerate(pairs) if place >= since.get(pair[0], 0)])


def replaced(metadata: Metadata, name: str, value: str) -> Metadata:
    """Return the metadata with this as the only value of a header."""
    return (*without(metadata, name), (name, value))


def without(metadata: Metadata, name: str) -> Metadata:
    """Return the metadata without a header; the very same if it is not there."""
    kept = tuple([pair for pair in metadata if pair[0] != name])
    return metadata if len(kept) == len(metadata) else kept


def _happens(change: Change, *, exists: bool) -> bool:
    match change:
        case Change.APPEND | Change.OVERWRITE_OR_ADD:
            return True
        case Change.ADD_IF_ABSENT:
            return not exists
        case Change.OVERWRITE_IF_EXISTS:
            return exists
        case _:
            assert_never(change)


def _quoted(name: str) -> str:
    return f"'{shorten(name, 80)}'"
