"""The keys of an issuer as Envoy gets them."""

import json
from itertools import permutations
from typing import Any, Final

import pytest
from tests.support.issuers.keyrings import keys
from tests.support.issuers.minting import segment, signer

from authplane.policy.identity.tokens.algorithms import ALGORITHMS
from authplane.policy.identity.tokens.export_keys import Withheld, render_jwks
from authplane.policy.identity.tokens.keys import KeySet, parse_key_set
from authplane.policy.identity.tokens.verify import JWT_SVIDS, Demands

RSA: Final = signer("RS256").jwk()
CURVE: Final = signer("ES256", "e1").jwk()
EDWARDS: Final = signer("EdDSA", "o1").jwk()


def exported(*described: object, demands: Demands | None = None) -> list[dict[str, Any]]:
    text = render_jwks(keys(*described), demands or Demands())
    assert isinstance(text, str)
    found = json.loads(text)
    assert list(found) == ["keys"]
    listed: list[dict[str, Any]] = found["keys"]
    return listed


def without(described: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in described.items() if name not in names}


@pytest.mark.parametrize("name", [each for each in ALGORITHMS if each != "Ed25519"])
def test_a_key_is_exported_with_its_numbers_its_name_and_its_algorithm(name: str) -> None:
    described = signer(name).jwk(x5t="abc", use="sig", more="x")
    assert exported(described) == [without(described, "x5t", "use", "more")]


def test_a_key_of_a_curve_gets_the_algorithm_that_it_does_not_name() -> None:
    assert exported(without(CURVE, "alg"), without(EDWARDS, "alg")) == exported(CURVE, EDWARDS)
    assert [each["alg"] for each in exported(CURVE, EDWARDS)] == ["ES256", "EdDSA"]


def test_an_rsa_key_for_everything_names_nothing_and_one_for_less_is_listed_for_each() -> None:
    open_key = without(RSA, "alg")
    assert exported(open_key) == [without(open_key, "use")]
    some = Demands(algorithms=frozenset({"RS256", "PS256", "ES256"}))
    assert exported(open_key, demands=some) == [without({**RSA, "alg": each}, "use") for each in ("PS256", "RS256")]
    assert exported({**RSA, "alg": "PS256"}, demands=some) == [without({**RSA, "alg": "PS256"}, "use")]


def test_keys_that_no_demand_allows_are_left_out() -> None:
    assert [each["kid"] for each in exported(CURVE, EDWARDS, without(EDWARDS, "kid"), demands=JWT_SVIDS)] == ["e1"]


def test_numbers_have_one_spelling() -> None:
    padded = {**RSA, "n": segment(b"\x00" + bytes.fromhex(f"{signer().key.private_numbers().public_numbers.n:x}"))}  # type: ignore[union-attr]
    assert padded["n"] != RSA["n"]
    assert exported(padded) == exported(RSA)


def test_the_same_keys_make_the_same_text_in_whatever_order_they_come() -> None:
    twice = {**CURVE, "kid": "k1"}
    described = (RSA, {**RSA, "alg": "PS256"}, without(RSA, "alg"), twice)
    texts = {render_jwks(keys(*each, RSA), Demands()) for each in permutations(described)}
    assert len(texts) == 1


def test_names_are_told_as_they_are() -> None:
    name = 'a"\\\u0000\n\u20ac\U0001f511'
    assert [each["kid"] for each in exported({**CURVE, "kid": name})] == [name]
    text = render_jwks(keys({**CURVE, "kid": name}), Demands())
    assert isinstance(text, str)
    assert text.isascii()


def test_exported_keys_are_those_that_we_use_ourselves() -> None:
    all_keys = keys(*(signer(name, name).jwk() for name in ALGORITHMS if name != "Ed25519"))
    text = render_jwks(all_keys, Demands())
    assert isinstance(text, str)
    assert parse_key_set(text.encode()) == all_keys


WITHHELD: Final[dict[str, tuple[KeySet, str]]] = {
    "nothing": (keys(), "has no keys"),
    "nothing that we use": (keys({"kty": "oct", "k": "AAAA", "kid": "a"}), "has no keys"),
    "a key without a name": (keys(RSA, without(CURVE, "kid")), "has a key without a kid"),
    "an algorithm of ours alone": (
        keys(RSA, {**EDWARDS, "alg": "Ed25519"}),
        "has a key for an algorithm that Envoy does not support",
    ),
}


@pytest.mark.parametrize(("held", "why"), WITHHELD.values(), ids=WITHHELD.keys())
def test_keys_are_withheld_where_envoy_would_refuse_them_or_tokens_that_we_take(held: KeySet, why: str) -> None:
    assert render_jwks(held, Demands()) == Withheld(why)
