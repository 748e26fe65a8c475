"""Password hashes that exist only as descriptions: Apache's apr1 and the SHA-2 crypts.

Both mix password and salt into a digest over and over. They are here to read old files; new ones take bcrypt.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from authplane.core.values import dataclass

_ALPHABET: Final = "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_APR1_ROUNDS: Final = 1000

_Groups: TypeAlias = Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShaKind:
    """One of the two SHA-2 crypts: its digest, and in which order the bytes of that are written."""

    digest: Callable[[bytes], "hashlib._Hash"]
    groups: _Groups


def _turning(first: Sequence[int], step: int, count: int) -> _Groups:
    """Return triples of byte indexes: each is the one before, turned by ``step`` places and moved on by one."""
    groups = [tuple(first)]
    for _ in range(count - 1):
        moved = [index + 1 for index in groups[-1]]
        groups.append(tuple(moved[step:] + moved[:step]))
    return groups


SHA256: Final = ShaKind(digest=hashlib.sha256, groups=(*_turning((0, 10, 20), 2, 10), (31, 30)))
SHA512: Final = ShaKind(digest=hashlib.sha512, groups=(*_turning((0, 21, 42), 1, 21), (63,)))
_APR1_GROUPS: Final = ((0, 6, 12), (1, 7, 13), (2, 8, 14), (3, 9, 15), (4, 10, 5), (11,))


def sha_crypt(kind: ShaKind, password: bytes, salt: bytes, rounds: int) -> str:
    """Return the last field of a ``$5$`` or ``$6$`` hash."""
    new = kind.digest
    inner = new(password + salt + password).digest()
    first = new(password + salt + _stretched(inner, len(password)))
    length = len(password)
    while length:
        first.update(inner if length & 1 else password)
        length >>= 1
    state = first.digest()
    key = _stretched(new(password * len(password)).digest(), len(password))
    grain = _stretched(new(salt * (16 + state[0])).digest(), len(salt))
    around = _surroundings(key, grain)
    cycle = len(around)
    for number in range(rounds):
        before, after = around[number % cycle]
        state = new(before + state + after).digest()
    return _written(state, kind.groups)


def apr1(password: bytes, salt: bytes) -> str:
    """Return the last field of an ``$apr1$`` hash."""
    inner = _md5(password + salt + password)
    first = password + b"$apr1$" + salt + _stretched(inner, len(password))
    length = len(password)
    while length:
        first += b"\0" if length & 1 else password[:1]
        length >>= 1
    state = _md5(first)
    around = _surroundings(password, salt)
    cycle = len(around)
    for number in range(_APR1_ROUNDS):
        before, after = around[number % cycle]
        state = _md5(before + state + after)
    return _written(state, _APR1_GROUPS)


def _surroundings(key: bytes, grain: bytes) -> list[tuple[bytes, bytes]]:
    """Return the bytes before and after the state in each round; rounds repeat after 2 * 3 * 7."""
    found = []
    for number in range(42):
        middle = (grain if number % 3 else b"") + (key if number % 7 else b"")
        found.append((key + middle, b"") if number & 1 else (b"", middle + key))
    return found


def _stretched(block: bytes, length: int) -> bytes:
    return (block * (length // len(block) + 1))[:length]


def _md5(content: bytes) -> bytes:
    return hashlib.md5(content, usedforsecurity=False).digest()


def _written(state: bytes, groups: _Groups) -> str:
    """Write each group as a number in base 64, lowest digit first."""
    text = []
    for group in groups:
        number = int.from_bytes(bytes(state[index] for index in group), "big")
        for _ in range(len(group) + 1):
            text.append(_ALPHABET[number & 63])
            number >>= 6
    return "".join(text)
