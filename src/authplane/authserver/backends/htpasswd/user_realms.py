"""Realms: the users of each realm, merged from several lists."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from authplane.authserver.backends.htpasswd.passwords import PasswordHash
from authplane.authserver.backends.htpasswd.users import UserList, shown
from authplane.core.problems import Problem, Severity
from authplane.core.values import dataclass
from authplane.policy.check.basic import fit_realm

OPERATOR: Final = ""
"""The owner of what the operator gave by hand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """Users from one place."""

    origin: str
    """The name of the place in messages."""
    owner: str = OPERATOR
    """The namespace of its authors."""
    realm: str | None
    """None means every realm."""
    users: Mapping[str, PasswordHash]


@dataclass(frozen=True, slots=True, kw_only=True)
class Realms:
    """The users of each realm. An unknown realm has no users."""

    lists: Mapping[str, UserList]
    pending: frozenset[str] = frozenset()
    """Realms that exist, but whose users could not be read yet."""

    def __post_init__(self) -> None:
        for realm in (*self.lists, *self.pending):
            if not fit_realm(realm):
                raise ValueError(f"{realm!r} is not a realm: a header cannot contain it")


class Conflict(NamedTuple):
    """A problem of the users of one place because of another."""

    origin: str
    problem: Problem


def build_realms(
    declared: Iterable[Declared], *, default: str, pending: frozenset[str] = frozenset()
) -> tuple[Realms, tuple[Conflict, ...]]:
    """Merge the lists of each realm; the default realm always exists.

    A list for every realm is part of each named realm. If a realm has a user twice with different hashes, the
    operator's entry wins over others. Of two entries by the same owner, the later one is used; of two by different
    owners, neither: no owner can replace another owner's user.
    """
    known = tuple(declared)
    conflicts: dict[Conflict, None] = {}
    named = {each.realm for each in known if each.realm is not None}
    lists = {
        realm: _merged((each for each in known if each.realm in {realm, None}), conflicts)
        for realm in sorted({default, *named})
        if realm not in pending or any(each.realm in {realm, None} for each in known)
    }
    realms = Realms(lists=MappingProxyType(lists), pending=pending - lists.keys())
    return realms, tuple(conflicts)


def _merged(declared: Iterable[Declared], conflicts: dict[Conflict, None]) -> UserList:
    users: dict[str, PasswordHash] = {}
    holders: dict[str, Declared] = {}
    contested: set[str] = set()
    # The operator's lists come first, whatever the order; the others keep theirs.
    for each in sorted(declared, key=lambda each: each.owner != OPERATOR):
        for user, stored in each.users.items():
            holder = holders.get(user)
            if holder is not None and users[user] != stored:
                kept = _settled(user, holder, each, contested)
                conflicts.update(dict.fromkeys(kept.conflicts))
                if not kept.replace:
                    continue
            users[user], holders[user] = stored, each
    return UserList.of({user: stored for user, stored in users.items() if user not in contested})


class _Settled(NamedTuple):
    replace: bool
    conflicts: tuple[Conflict, ...]


def _settled(user: str, holder: Declared, newer: Declared, contested: set[str]) -> _Settled:
    """Decide which of two entries for a user applies."""
    if holder.owner == newer.owner:
        message = f"{shown(user)} is also in {holder.origin}; the server uses this entry. Remove one of the entries."
        return _Settled(replace=True, conflicts=(_conflict(newer, message, Severity.WARNING),))
    if holder.owner == OPERATOR:
        message = f"{shown(user)} is also in {holder.origin}; the server uses that entry. Remove one of the entries."
        return _Settled(replace=False, conflicts=(_conflict(newer, message, Severity.WARNING),))
    contested.add(user)
    pairs = ((holder, newer), (newer, holder))
    return _Settled(replace=False, conflicts=tuple(_conflict(one, _rival(user, other)) for one, other in pairs))


def _rival(user: str, other: Declared) -> str:
    said = f"{shown(user)} is also in {other.origin}, which is in another namespace, so the server uses neither entry."
    return f"{said} Remove one of the entries."


def _conflict(declared: Declared, message: str, severity: Severity = Severity.ERROR) -> Conflict:
    return Conflict(declared.origin, Problem((), "UserConflict", message, severity))
