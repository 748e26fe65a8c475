"""Lists of users with their password hashes, as htpasswd files write them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, Self

from authplane.authserver.backends.htpasswd.passwords import PasswordHash, Unusable, effort, parse_hash, weakness
from authplane.core.problems import Problem, Severity, printable
from authplane.core.values import dataclass
from authplane.policy.check.user_names import LONGEST_USER, fit_user
from authplane.resources.yaml.nodes import Spot

MOST_USERS: Final = 100_000
"""How many users a list may have: a longer one is refused as a whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserList:
    """The users that may sign in, by name. Names are compared byte for byte: two spellings of ``é`` differ."""

    users: Mapping[str, PasswordHash]
    costliest: PasswordHash | None
    """The hash that takes longest to verify; None if there is no user."""

    @classmethod
    def of(cls, users: Mapping[str, PasswordHash]) -> Self:
        """Build the list of these users."""
        return cls(users=MappingProxyType(dict(users)), costliest=max(users.values(), key=effort, default=None))


class ParsedUsers(NamedTuple):
    """The good lines of a file, and what is wrong with the others."""

    users: Mapping[str, PasswordHash]
    problems: tuple[Spot, ...]
    cut: bool
    """The file seems to end in the middle of a line."""
    refused: str = ""
    """Why no line of the list may be used; empty if nothing forbids it."""


def parse_users(content: bytes, *, strict: bool = False) -> ParsedUsers:
    """Read an htpasswd file: ``user:hash`` lines, blank lines and comments; an invalid line is skipped with a problem.

    A duplicate user makes the whole list invalid: it is unclear which password applies, and an old line that is left
    behind would keep an old password valid. With ``strict``, weak hashes are errors; otherwise they are warnings.
    """
    users: dict[str, PasswordHash] = {}
    places: dict[str, int] = {}
    problems: list[Spot] = []
    lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    damaged, refused = 0, ""
    for number, line in enumerate(lines, 1):
        text = line.removesuffix(b"\r")
        if not text.strip() or text.lstrip().startswith(b"#"):
            continue
        entry = _parse_line(text)
        if isinstance(entry, Unusable):
            problems.append(_spot(number, entry.reason, entry.message))
            damaged = number
            continue
        user, stored = entry
        weak = weakness(stored)
        if weak is not None:
            severity = Severity.ERROR if strict else Severity.WARNING
            problems.append(_spot(number, "HashWeak", f"{shown(user)}: {weak}. Use bcrypt ('htpasswd -B').", severity))
            if strict:
                continue
        if user in places:
            message = f"{shown(user)} is also in line {places[user]}. Remove one of the lines."
            problems.append(_spot(number, "UserRepeated", message))
            refused = refused or f"{shown(user)} is in lines {places[user]} and {number}"
            continue
        users[user], places[user] = stored, number
    if len(users) > MOST_USERS:
        refused = f"The list has {len(users)} users; the maximum is {MOST_USERS}"
        problems.append(_spot(1, "TooManyUsers", f"{refused}. Split the list."))
    return ParsedUsers(MappingProxyType(users), tuple(problems), cut=damaged == len(lines), refused=refused)


def shown(user: str) -> str:
    """Quote a user's name for a message."""
    return f"'{printable(user)}'"


def _parse_line(line: bytes) -> tuple[str, PasswordHash] | Unusable:
    name, colon, rest = line.partition(b":")
    if not colon:
        return Unusable("LineInvalid", "The line is not 'user:hash'. Run 'htpasswd -B' to create one.")
    try:
        user = name.decode()
        # What follows another colon is a remark, as Apache and nginx have it.
        text = rest.partition(b":")[0].decode("ascii").rstrip(" \t")
    except UnicodeDecodeError:
        return Unusable("LineInvalid", "The line is not UTF-8, or its hash is not ASCII. Correct it.")
    if not fit_user(user):
        return Unusable(
            "UserInvalid",
            f"The user name is empty, longer than {LONGEST_USER} bytes, or has control characters. Correct it.",
        )
    stored = parse_hash(text)
    return (
        Unusable(stored.reason, f"{shown(user)}: {stored.message}") if isinstance(stored, Unusable) else (user, stored)
    )


def _spot(line: int, reason: str, message: str, severity: Severity = Severity.ERROR) -> Spot:
    return Spot(Problem((), reason, message, severity), line, 1)
