"""The compact form of tokens, limit by limit."""

import json
from typing import Any, Final

import pytest
from tests.support.issuers.minting import segment

from authplane.policy.identity.tokens.compact_tokens import (
    TOKEN_LIMITS,
    Compact,
    Header,
    TokenLimits,
    parse_compact,
    unverified_issuer,
)
from authplane.policy.identity.tokens.token_outcome import Reason

ALGORITHMS: Final = ("ES256",)
HEAD: Final = segment(json.dumps({"alg": "ES256"}).encode())
BODY: Final = segment(b"{}")
PROOF: Final = "AAAA"


def header(**fields: Any) -> Header | Reason:
    """Return what becomes of a header."""
    head = segment(json.dumps({"alg": "ES256", **fields}).encode())
    found = parse_compact(f"{head}.{BODY}.{PROOF}", ALGORITHMS)
    return found.header if isinstance(found, Compact) else found


def padded(size: int) -> str:
    """Return a header that is a segment of so many characters."""
    text = json.dumps({"alg": "ES256", "x": ""})
    made = segment(text.replace('""', f'"{"x" * (size * 3 // 4 - len(text))}"').encode())
    assert len(made) == size
    return made


def outcome(token: str, limits: TokenLimits = TOKEN_LIMITS) -> Reason | None:
    found = parse_compact(token, ALGORITHMS, limits)
    return None if isinstance(found, Compact) else found


def test_the_limits_are_these() -> None:
    assert TokenLimits(token=16_384, header=6_144, signature=1_366, depth=32, members=10_000) == TOKEN_LIMITS


@pytest.mark.requirement("J21")
def test_each_size_has_its_limit() -> None:
    assert outcome(f"{padded(6_144)}.{BODY}.{PROOF}") is None
    assert outcome(f"{padded(6_144)[:-1]}AA.{BODY}.{PROOF}") is Reason.TOO_LARGE
    assert outcome(f"{HEAD}.{BODY}.{'A' * 1_366}") is None
    assert outcome(f"{HEAD}.{BODY}.{'A' * 1_367}") is Reason.TOO_LARGE
    room = 16_384 - len(f"{HEAD}..{PROOF}")
    assert outcome(f"{HEAD}.{'A' * room}.{PROOF}") is Reason.MALFORMED
    assert outcome(f"{HEAD}.{'A' * (room + 1)}.{PROOF}") is Reason.TOO_LARGE


def of(payload: str) -> Reason | None:
    return outcome(f"{HEAD}.{segment(payload.encode())}.{PROOF}", TokenLimits(token=100_000))


@pytest.mark.requirement("J22")
def test_json_is_32_deep_and_has_10_000_members_at_most() -> None:
    assert of(f'{{"x":{"[" * 31}{"]" * 31}}}') is None
    assert of(f'{{"x":{"[" * 32}{"]" * 32}}}') is Reason.MALFORMED
    taken = [count for count in (9_998, 9_999, 10_000, 10_001) if of(f'{{"x":[{"1," * (count - 2)}1]}}') is None]
    assert taken == [9_998, 9_999, 10_000]


HEADERS: Final[dict[str, tuple[dict[str, Any], Header | Reason]]] = {
    "nothing more": ({}, Header(algorithm="ES256", kid=None, type="")),
    "a type": ({"typ": "JWT"}, Header(algorithm="ES256", kid=None, type="jwt")),
    "a whole type": ({"typ": "application/AT+JWT"}, Header(algorithm="ES256", kid=None, type="at+jwt")),
    "a type that is no text": ({"typ": 1}, Reason.TYPE),
    "a type that is null": ({"typ": None}, Reason.TYPE),
    "content": ({"cty": "json"}, Header(algorithm="ES256", kid=None, type="")),
    "content that is a token": ({"cty": "JWT"}, Reason.TYPE),
    "content that is a token, written whole": ({"cty": "application/jwt"}, Reason.TYPE),
    "content that is no text": ({"cty": []}, Reason.TYPE),
    "a key": ({"kid": "k"}, Header(algorithm="ES256", kid="k", type="")),
    "a long key": ({"kid": "k" * 256}, Header(algorithm="ES256", kid="k" * 256, type="")),
    "a key that is too long": ({"kid": "k" * 257}, Reason.MALFORMED),
    "a key without a name": ({"kid": ""}, Reason.MALFORMED),
    "a key that is null": ({"kid": None}, Reason.MALFORMED),
    "a key that is a number": ({"kid": 1}, Reason.MALFORMED),
    "extensions": ({"crit": ["exp"]}, Reason.CRITICAL),
    "no extensions": ({"crit": []}, Reason.CRITICAL),
    "another payload": ({"b64": False}, Reason.CRITICAL),
    "the same payload": ({"b64": True}, Reason.CRITICAL),
    "another algorithm": ({"alg": "RS256"}, Reason.ALGORITHM),
    "no algorithm": ({"alg": None}, Reason.ALGORITHM),
    "several algorithms": ({"alg": ["ES256"]}, Reason.ALGORITHM),
    "an algorithm in small letters": ({"alg": "es256"}, Reason.ALGORITHM),
}


@pytest.mark.parametrize(("fields", "want"), HEADERS.values(), ids=HEADERS.keys())
def test_what_a_header_may_say(fields: dict[str, Any], want: Header | Reason) -> None:
    assert header(**fields) == want


def test_parts_are_what_they_are() -> None:
    body = segment(b'{"iss":"i"}')
    found = parse_compact(f"{HEAD}.{body}.AQID", ALGORITHMS)
    assert found == Compact(
        header=Header(algorithm="ES256", kid=None, type=""),
        claims={"iss": "i"},
        signed=f"{HEAD}.{body}".encode(),
        signature=b"\x01\x02\x03",
    )
    assert unverified_issuer(f"{HEAD}.{body}.AQID", ALGORITHMS) == "i"


MALFORMED: Final = {
    "no signature": f"{HEAD}.{BODY}.",
    "a signature that is no base64url": f"{HEAD}.{BODY}.A",
    "a header that is no base64url": f"A.{BODY}.{PROOF}",
    "a header that is no object": f"{segment(b'[]')}.{BODY}.{PROOF}",
    "claims that are no base64url": f"{HEAD}.A.{PROOF}",
    "claims that are no object": f"{HEAD}.{segment(b'[]')}.{PROOF}",
    "two parts": f"{HEAD}.{BODY}",
    "four parts": f"{HEAD}.{BODY}.{PROOF}.{PROOF}",
    "letters beyond ASCII": f"{HEAD}.{BODY}.\u00e9",
}


@pytest.mark.parametrize("token", MALFORMED.values(), ids=MALFORMED.keys())
def test_what_is_no_token_is_malformed(token: str) -> None:
    assert outcome(f"{HEAD}.{BODY}.{PROOF}") is None
    assert outcome(token) is Reason.MALFORMED


@pytest.mark.parametrize("token", ["", f"{HEAD}.{BODY}.AQID", f"{HEAD}.{segment(b'[]')}.AQID"])
def test_a_token_that_names_no_issuer_has_none(token: str) -> None:
    assert unverified_issuer(token, ALGORITHMS) == ""


def test_an_issuer_that_is_no_text_is_none() -> None:
    assert unverified_issuer(f"{HEAD}.{segment(json.dumps({'iss': ['i']}).encode())}.AQID", ALGORITHMS) == ""
