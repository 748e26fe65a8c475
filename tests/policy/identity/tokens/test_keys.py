import json
from typing import Any, Final

import pytest
from tests.support.issuers.keyrings import keys
from tests.support.issuers.minting import Signer, key_set, rsa_key, segment, signer

from authplane.core.strict_json import NotStrict
from authplane.policy.identity.tokens.keys import Ignored, KeySet, parse_key_set

RSA: Final = signer().jwk()
EC: Final = signer("ES256", "e1").jwk()
OKP: Final = signer("EdDSA", "o1").jwk()


def without(described: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in described.items() if key != name}


UNUSABLE: Final[dict[str, tuple[object, str]]] = {
    "symmetric": ({"kty": "oct", "k": "AAAA", "kid": "k1"}, "it is a symmetric key"),
    "private": ({**RSA, "d": "AQAB"}, "it contains its private part"),
    "private curve": ({**EC, "d": "AQAB", "kid": "k1"}, "it contains its private part"),
    **{
        f"private {name}": ({**RSA, name: "AQAB"}, "it contains its private part")
        for name in ("p", "q", "dp", "dq", "qi", "oth", "k")
    },
    "for encryption": ({**RSA, "use": "enc"}, "its use is not sig"),
    "use a list": ({**RSA, "use": ["sig"]}, "its use is not sig"),
    "for signing only": ({**RSA, "key_ops": ["sign"]}, "its key_ops do not contain verify"),
    "of a type unknown": ({"kty": "XYZ", "kid": "k1"}, "no supported algorithm fits it"),
    "without a type": (without(RSA, "kty"), "no supported algorithm fits it"),
    "type a list": ({**RSA, "kty": ["RSA"]}, "no supported algorithm fits it"),
    "of a curve unknown": (
        {**EC, "crv": "secp256k1", "alg": "ES256K", "kid": "k1"},
        "no supported algorithm fits it",
    ),
    "for HMAC": ({**RSA, "alg": "HS256"}, "no supported algorithm fits it"),
    "for another curve": ({**EC, "alg": "ES384", "kid": "k1"}, "no supported algorithm fits it"),
    "kid a number": ({**RSA, "kid": 5}, "its kid is not a string of 1 to 256 characters"),
    "kid too long": ({**RSA, "kid": "k" * 257}, "its kid is not a string of 1 to 256 characters"),
    "without modulus": (without(RSA, "n"), "it is an RSA key of fewer than 2048 or more than 8192 bits"),
    "modulus padded": ({**RSA, "n": RSA["n"] + "=="}, "it is an RSA key of fewer than 2048 or more than 8192 bits"),
    "modulus even": ({**RSA, "n": segment(b"\x80" + bytes(255))}, "its numbers are not a valid key"),
    "short RSA": (
        Signer("k1", "RS256", rsa_key(9, 1024)).jwk(),
        ("it is an RSA key of fewer than 2048 or more than 8192 bits"),
    ),
    "long RSA": ({**RSA, "n": segment(b"\xff" * 1025)}, "it is an RSA key of fewer than 2048 or more than 8192 bits"),
    "exponent one": ({**RSA, "e": segment(b"\x01")}, "its numbers are not a valid key"),
    "exponent even": ({**RSA, "e": segment(b"\x04")}, "its numbers are not a valid key"),
    "exponent huge": ({**RSA, "e": segment(b"\xff" * 200)}, "its numbers are not a valid key"),
    "off the curve": ({**EC, "x": EC["y"], "kid": "k1"}, "its numbers are not a valid key"),
    "short coordinate": ({**EC, "x": segment(b"\x01"), "kid": "k1"}, "its coordinates have the wrong size"),
    "short Edwards": ({**OKP, "x": segment(b"\x01"), "kid": "k1"}, "its coordinates have the wrong size"),
    "key exchange": ({**OKP, "crv": "X25519", "kid": "k1"}, "no supported algorithm fits it"),
    "a coordinate with a surrogate": ({**EC, "x": "\udc80", "kid": "k1"}, "a string contains half of a surrogate pair"),
}


@pytest.mark.parametrize(("described", "why"), UNUSABLE.values(), ids=UNUSABLE.keys())
def test_keys_that_verify_nothing_are_left_out_with_a_reason(described: object, why: str) -> None:
    good = signer("ES384", "good").jwk()
    parsed = parse_key_set(key_set(described, good))
    if isinstance(parsed, NotStrict):
        assert parsed == NotStrict(why)
        return
    assert [key.kid for key in parsed.keys] == ["good"]
    assert [each.why for each in parsed.ignored] == [why]


def test_what_is_no_key_is_named_by_its_place() -> None:
    assert keys("x", {"kid": "a\nb"}, signer().jwk()).ignored == (
        Ignored(key="keys[0]", why="not an object"),
        Ignored(key="a\\nb", why="no supported algorithm fits it"),
    )
    [long] = keys({"kid": "k" * 65}, signer().jwk()).ignored
    assert long.key == "k" * 64 + "…"


NO_SETS: Final = {
    "not JSON": b"<html>",
    "a list": b"[]",
    "no keys": b"{}",
    "keys an object": b'{"keys":{}}',
    "keys twice": b'{"keys":[],"keys":[]}',
    "too many keys": json.dumps({"keys": [{}] * 257}).encode(),
    "too deep": b'{"keys":' + b"[" * 20 + b"]" * 20 + b"}",
    "too large": b'{"keys":[],"x":"' + b"a" * 1024 * 1024 + b'"}',
}


@pytest.mark.parametrize("data", NO_SETS.values(), ids=NO_SETS.keys())
def test_what_is_no_key_set_is_refused_as_a_whole(data: bytes) -> None:
    assert isinstance(parse_key_set(data), NotStrict)


def test_an_empty_set_is_a_set() -> None:
    assert parse_key_set(b'{"keys":[]}') == KeySet(keys=())


def test_order_and_repetition_make_no_difference() -> None:
    assert keys(RSA, EC, OKP) == keys(OKP, RSA, EC, RSA)


def test_a_key_equals_itself_by_its_numbers_and_its_purpose() -> None:
    assert keys(RSA) == keys({**RSA, "x5t": "abc"})
    assert keys(RSA) != keys({**RSA, "alg": "PS256"})
    assert keys(RSA) != keys(signer(number=1).jwk())
