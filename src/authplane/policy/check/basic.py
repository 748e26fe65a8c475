"""HTTP Basic authentication: credentials and challenges, as RFC 7617 has them."""

import binascii
import re
from dataclasses import field
from typing import Final, TypeAlias

from authplane.core.values import dataclass
from authplane.policy.check.answer_headers import fit_value
from authplane.policy.check.request import Request
from authplane.policy.check.user_names import LONGEST_USER, fit_user

LONGEST_PASSWORD: Final = 512
"""In bytes; the work of some hashes grows with the password."""
LONGEST_REALM: Final = 128

_BASIC: Final = re.compile(
    rf"(?i:basic) +([A-Za-z0-9+/]{{1,{(LONGEST_USER + LONGEST_PASSWORD + 3) // 3 * 4}}}={{0,2}})"
)
_CONTROL: Final = re.compile(rb"[\x00-\x1f\x7f]")
_TO_ESCAPE: Final = re.compile(r'(["\\])')


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Who the client says it is, and its proof."""

    user: str
    password: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Absent:
    """The request has no credentials."""


@dataclass(frozen=True, slots=True)
class Unfit:
    """There is something, but not the credentials of one user."""

    why: str


Presented: TypeAlias = Credentials | Absent | Unfit


def parse_credentials(request: Request) -> Presented:
    """Read the one Authorization header; several are refused, since the origin might believe another one."""
    found = request.values("authorization")
    if not found:
        return _ABSENT
    if len(found) > 1:
        return Unfit("more than one Authorization header")
    matched = _BASIC.fullmatch(found[0])
    try:
        content = binascii.a2b_base64(matched[1], strict_mode=True) if matched else None
    except ValueError:
        content = None
    return (
        Unfit("the Authorization header is not valid Basic authentication") if content is None else _parse_pair(content)
    )


def fit_realm(realm: str) -> bool:
    """Tell whether a challenge and a header can carry this realm: printable ASCII without blanks at its ends."""
    return 0 < len(realm) <= LONGEST_REALM and fit_value(realm)


def challenge(realm: str) -> str:
    """Write the value of WWW-Authenticate; raises `ValueError` for a realm that is not fit."""
    if not fit_realm(realm):
        raise ValueError(f"a realm has 1 to {LONGEST_REALM} printable ASCII characters; {realm!r} does not")
    escaped = _TO_ESCAPE.sub(r"\\\1", realm)
    return f'Basic realm="{escaped}", charset="UTF-8"'


def header_form(user: str) -> str:
    """Write a user's name so that a header can carry it, and so that no two users look the same.

    A percent sign, whatever is not printable ASCII, and blanks at the ends are percent-encoded as UTF-8.
    """
    if user.isalnum() and user.isascii():
        return user
    encoded = "".join(chr(byte) if 0x20 <= byte < 0x7F and byte != 0x25 else f"%{byte:02X}" for byte in user.encode())
    head, tail = len(encoded) - len(encoded.lstrip(" ")), len(encoded.rstrip(" "))
    return "%20" * head + encoded[head:tail] + "%20" * (len(encoded) - max(tail, head))


_ABSENT: Final = Absent()


def _parse_pair(content: bytes) -> Credentials | Unfit:
    name, colon, password = content.partition(b":")
    if not colon or _CONTROL.search(content) or len(password) > LONGEST_PASSWORD:
        return Unfit("the credentials have no colon, a control character, or a password that is too long")
    try:
        user = name.decode()
    except UnicodeDecodeError:
        return Unfit("the user name is not UTF-8")
    return Credentials(user=user, password=password) if fit_user(user) else Unfit("the user name is not valid")
