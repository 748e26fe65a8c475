"""Signs the tokens of cases, with keys that are made once."""

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from tests.differential.model import CLUSTER, FIRST, ISSUERS, SECOND, SPIRE, STRANGER, THIRD, Token
from tests.support.issuers.minting import Signer, key_set, mint, segment, signer

from authplane.core.strict_json import NotStrict
from authplane.policy.identity.tokens.keys import KeySet, parse_key_set

_ALGORITHMS: Final = {
    FIRST: "ES256", SECOND: "RS256", THIRD: "EdDSA", SPIRE: "ES256", CLUSTER: "ES384", STRANGER: "ES256",
}  # fmt: skip
DEFECTS: Final = (
    "no signature", "alg none", "hmac of the public key", "cut", "changed payload", "four parts", "padding",
    "two kids", "blank inside", "not base64", "claims twice", "empty", "another spelling of the payload",
    "another spelling of the signature",
)  # fmt: skip


FIRST_KEYS: Final = (0, 1)
"""The keys of an issuer that are published first."""
NEXT_KEYS: Final = (1, 2)
"""Those that are published after a rotation; the last key is never published."""
LAST_KEY: Final = 3


@cache
def signer_of(issuer: str, key: int = 0) -> Signer:
    """Return whoever signs for an issuer, by one of its keys."""
    # The algorithm decides which key a signer has, so each name has to be its own.
    kid = f"key-of-{issuer[8:]}{f'-{key}' if key else ''}"
    return signer("ES256" if key else _ALGORITHMS[issuer], kid=kid, number=len(issuer))


def published(issuer: str, keys: tuple[int, ...] = FIRST_KEYS) -> bytes:
    """Return the keys that an issuer shows."""
    return key_set(*(signer_of(issuer, each).jwk() for each in keys))


def keys_of(urls: Mapping[str, str], keys: tuple[int, ...] = FIRST_KEYS) -> dict[str, KeySet]:
    """Return the keys of all issuers by where they are."""
    found = {}
    for issuer in ISSUERS:
        parsed = parse_key_set(published(issuer, keys))
        assert not isinstance(parsed, NotStrict)
        found[urls[issuer]] = parsed
    return found


def sign(token: Token, now: int, claims: Mapping[str, Any], issuer: str) -> str:
    """Sign a token whose claims have been filled in."""
    by = signer_of(token.signer, token.key)
    whole = {"iss": issuer, **claims, **{name: now + seconds for name, seconds in token.times.items()}}
    header = by.header(**token.header)
    return _spoiled(mint(header, whole, by.sign), token, by, whole)


def _spoiled(signed: str, token: Token, by: Signer, claims: Mapping[str, Any]) -> str:
    head, payload, signature = signed.split(".")
    # Each is made only when it is wanted: to sign takes long.
    spoiled: dict[str, Callable[[], str]] = {
        "": lambda: signed,
        "no signature": lambda: f"{head}.{payload}.",
        "alg none": lambda: f"{segment(by.header(alg='none'))}.{payload}.",
        "hmac of the public key": lambda: mint(by.header(alg="HS256"), claims, lambda data: _hmac(by, data)),
        "cut": lambda: signed[:-3],
        "changed payload": lambda: f"{head}.{segment({**claims, 'sub': 'root', 'group': 'admin'})}.{signature}",
        "four parts": lambda: f"{signed}.{signature}",
        "padding": lambda: f"{signed}=",
        "two kids": lambda: mint(b'{"kid":"x",' + base64.urlsafe_b64decode(head + "==")[1:], claims, by.sign),
        "blank inside": lambda: f"{head}. {payload}.{signature}",
        "not base64": lambda: f"{head}.{payload[:-1]}*.{signature}",
        "claims twice": lambda: mint(by.header(), _twice(payload), by.sign),
        "empty": lambda: "",
        "another spelling of the payload": lambda: _spelled(head, claims, by),
        "another spelling of the signature": lambda: _respelled(signed),
    }
    return spoiled[token.defect]()


def _hmac(by: Signer, data: bytes) -> bytes:
    return hmac.new(key_set(by.jwk()), data, hashlib.sha256).digest()


def _twice(payload: str) -> bytes:
    return b'{"sub":"root",' + base64.urlsafe_b64decode(payload + "==")[1:]


def _spelled(head: str, claims: Mapping[str, Any], by: Signer) -> str:
    """Sign a payload whose last letter has bits that belong to no byte."""
    # So many blanks that there are such bits.
    text = json.dumps(claims).encode()
    plain = segment(text + b" " * ((1 - len(text)) % 3))
    payload = _respelled(plain)
    assert _bytes(payload) == _bytes(plain)
    signed = f"{head}.{payload}"
    return f"{signed}.{segment(by.sign(signed.encode()))}"


def _respelled(text: str) -> str:
    """Write the next letter of the alphabet for the last one: the same bytes, if it has bits that belong to none."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return text[:-1] + alphabet[(alphabet.index(text[-1]) + 1) % 64]


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
