"""What one client subscribes to of one type, and which versions it has."""

from collections.abc import Iterable, Mapping
from dataclasses import field
from enum import Enum, auto
from typing import Final, assert_never

from authplane.core.values import dataclass
from authplane.xds.server.served_types import LEFT_TO_CLIENTS, TypeUrl
from authplane.xds.server.snapshot import Collection, Versioned, same

WILDCARD: Final = "*"
_REMEMBERED: Final = 8
"""Overtaken responses of a type that are remembered."""


class Manner(Enum):
    """How a response tells what is new and what is gone."""

    FULL_SET = auto()
    """It has everything that the client may keep."""
    CHANGED_ONLY = auto()
    """It has what changed; that something is gone cannot be said."""
    INCREMENTAL = auto()
    """It has what changed and the names of what is gone."""


class Scope(Enum):
    """Which differences a response may carry. All three include what the client has just subscribed to."""

    ASKED = auto()
    MAKE = auto()
    """And what is new or changed."""
    BREAK = auto()
    """And what is gone. It comes after everything that `MAKE` tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the client lacks, and what it must drop."""

    updated: Mapping[str, Versioned]
    removed: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class Sent:
    """A response that went out."""

    nonce: str
    version: str
    names: tuple[str, ...]
    """All that is in it, for the report of a refusal."""
    updated: Mapping[str, Versioned]
    """What was new in it."""
    taken: Mapping[str, Versioned]
    """What a step that removes took from the client."""
    deadline: float
    answered: bool = False
    overdue: bool = False


@dataclass(slots=True, kw_only=True)
class Subscription:
    """The state of one type on one stream."""

    type_url: TypeUrl
    manner: Manner
    wildcard: bool = False
    names: set[str] = field(default_factory=set)
    held: dict[str, Versioned] = field(default_factory=dict)
    """What was sent, refused or not. From an earlier stream only the version is known: such a body is never sent."""
    claimed: str = ""
    """The version that the client brought from an earlier stream, until it is compared."""
    outdated: bool = False
    """The client has content from an earlier stream, and we do not know which."""
    asked: set[str] = field(default_factory=set)
    """Names to be answered whatever the client has."""
    unanswered: bool = True
    """The subscription is new or has become wider in a way that names cannot show, such as a wildcard."""
    owed: bool = False
    """A response must go out even if it is empty: the client waits for it."""
    refused: dict[str, str] = field(default_factory=dict)
    """What the client rejected of what it was sent, by name, and its messages."""
    sent: Sent | None = None
    """The latest response."""
    overtaken: dict[str, Sent] = field(default_factory=dict)
    """Earlier responses without an answer, by nonce: a client that is late may still refuse one."""
    settled: Mapping[str, Versioned] | None = None
    """The resources with which the client was last found to be up to date."""

    @property
    def waiting(self) -> bool:
        """Tell whether a response is out that the client may still accept or refuse in time."""
        return self.sent is not None and not self.sent.answered and not self.sent.overdue

    def covers(self, names: Iterable[str]) -> bool:
        """Tell whether the client is subscribed to all of these names."""
        return self.wildcard or self.names.issuperset(names)

    def visible(self, collection: Collection) -> Mapping[str, Versioned]:
        """Return what of a collection is there for the client."""
        if not self.wildcard or collection.public is collection.resources:
            return collection.resources
        named = {name: collection.resources[name] for name in self.names & collection.resources.keys()}
        return {**collection.public, **named} if named.keys() - collection.public.keys() else collection.public

    def lacking(self, existing: Mapping[str, Versioned]) -> set[str]:
        """Return what the client is subscribed to and has not said that it accepts or refuses."""
        unanswered = self.sent.updated.keys() if self.sent is not None and not self.sent.answered else set()
        return {*self._differing(existing), *(name for name in unanswered if name in existing)}

    def replace(self, names: frozenset[str], *, wildcard: bool) -> None:
        """Replace the whole subscription: new names are requested, others are dropped."""
        if names == self.names and wildcard == self.wildcard:
            return
        self.unanswered |= wildcard and not self.wildcard
        self.asked |= names - self.names - self.held.keys()
        self.names, self.wildcard = set(names), wildcard
        self._forget_uncovered()

    def widen(self, names: Iterable[str]) -> None:
        """Subscribe to more names. A name that is there already is sent again: the client may have lost it."""
        for name in names:
            if name != WILDCARD:
                self.names.add(name)
                self.asked.add(name)
            elif self.wildcard:
                self.asked |= self.held.keys()
            else:
                self.wildcard = self.unanswered = True
        self.settled = None

    def narrow(self, names: Iterable[str]) -> None:
        """Unsubscribe from names. What the wildcard still covers is answered with its state."""
        for name in names:
            if name == WILDCARD:
                self.wildcard = False
            elif name in self.names:
                self.names.discard(name)
                self.asked.add(name)
        self._forget_uncovered()

    def answer(self, existing: Mapping[str, Versioned], scope: Scope) -> Answer | None:
        """Work out the next response; None means that the client lacks nothing."""
        updated = {name: item for name in self.asked if (item := existing.get(name)) is not None}
        if self.unanswered or (scope is Scope.MAKE and existing is not self.settled):
            updated |= self._differing(existing)
        removed: Iterable[str]
        match self.manner:
            case Manner.FULL_SET:
                self.owed |= bool(self.asked)
                removed = self._leaving(existing, scope)
            case Manner.CHANGED_ONLY:
                removed = ()
            case Manner.INCREMENTAL:
                new = self.names - self.held.keys() if self.sent is None else set()
                absent = (self.asked | new) - existing.keys()
                removed = absent.union(self._leaving(existing, scope))
            case _:
                assert_never(self.manner)
        if updated or removed or self.owed:
            return Answer(updated=updated, removed=tuple(sorted(removed)))
        self.asked.clear()
        self.unanswered = False
        if scope is Scope.BREAK:
            self.settled = existing
        return None

    def record(self, answer: Answer) -> None:
        """Remember that the answer went out."""
        for name in answer.removed:
            self.held.pop(name, None)
        self.held |= answer.updated
        for name in (*answer.updated, *answer.removed):
            self.refused.pop(name, None)
        self.asked.clear()
        self.unanswered = self.owed = self.outdated = False
        self.settled = None

    def replace_sent(self, sent: Sent) -> None:
        """Make this the latest response; a few that it overtakes are remembered."""
        if self.sent is not None and not self.sent.answered:
            self.overtaken[self.sent.nonce] = self.sent
            if len(self.overtaken) > _REMEMBERED:
                del self.overtaken[next(iter(self.overtaken))]
        self.sent = sent

    def answered(self, nonce: str) -> Sent | None:
        """Return the response that is answered for the first time now, if there is one with this nonce."""
        if self.sent is None or self.sent.nonce != nonce:
            return self.overtaken.pop(nonce, None)
        if self.sent.answered:
            return None
        self.sent.answered = True
        return self.sent

    def put_back(self, taken: Mapping[str, Versioned]) -> None:
        """Remember that the client did not let go of these: the next snapshot tries again."""
        kept = {name: item for name, item in taken.items() if name not in self.held and self.covers((name,))}
        self.held |= kept
        self.settled = None

    def _differing(self, existing: Mapping[str, Versioned]) -> dict[str, Versioned]:
        held = self.held
        if self.wildcard:
            return {name: item for name, item in existing.items() if not same(held.get(name), item)}
        return {
            name: item
            for name in self.names
            if (item := existing.get(name)) is not None and not same(held.get(name), item)
        }

    def _leaving(self, existing: Mapping[str, Versioned], scope: Scope) -> Iterable[str]:
        match scope:
            case Scope.ASKED:
                return ()
            case Scope.MAKE:
                # A full set would carry the refused content once more.
                return self.refused.keys() - existing.keys() if self.manner is Manner.FULL_SET else ()
            case Scope.BREAK:
                if existing is self.settled or self.type_url in LEFT_TO_CLIENTS:
                    return ()
                return [name for name in self.held if name not in existing]
            case _:
                assert_never(scope)

    def _forget_uncovered(self) -> None:
        self.settled = None
        if self.wildcard:
            return
        self.held = {name: item for name, item in self.held.items() if name in self.names}
        self.asked &= self.names
        self.refused = {name: words for name, words in self.refused.items() if name in self.names}
