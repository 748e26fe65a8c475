"""What counts as a token in a file."""

from base64 import urlsafe_b64encode
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.issuers.jwt_files import part, token

from authplane.core.secret import Secret
from authplane.xds.bootstrap.jwt_token import NotToken, Token, parse_token

HEAD = part({"alg": "none"})
GOOD = token(2_000_000_000)
NO_NUMBER = NotToken("its exp is missing or not a number")
NOT_COMPACT = NotToken("it is not three base64url parts joined by dots")
NOT_BASE64 = NotToken("its payload is not base64url")
TOO_EARLY = NotToken("its exp is not after 1970")


def claims(text: str) -> bytes:
    return f"{HEAD}.{part(text)}.c2ln".encode()


class Case(NamedTuple):
    content: bytes
    want: float | NotToken


EXPIRIES = {
    "an integer": Case(claims('{"exp": 2000000000}'), 2e9),
    "a fraction is cut off": Case(claims('{"exp": 2000000000.9}'), 2e9),
    "an exponent": Case(claims('{"exp": 2e9}'), 2e9),
    "more than 64 bits": Case(claims('{"exp": 18446744073709551616}'), 18446744073709551616.0),
    "missing": Case(claims('{"iat": 1}'), NO_NUMBER),
    "a text": Case(claims('{"exp": "2000000000"}'), NO_NUMBER),
    "true": Case(claims('{"exp": true}'), NO_NUMBER),
    "null": Case(claims('{"exp": null}'), NO_NUMBER),
    "a list": Case(claims('{"exp": [2000000000]}'), NO_NUMBER),
    "negative": Case(claims('{"exp": -1}'), TOO_EARLY),
    "zero": Case(claims('{"exp": 0}'), TOO_EARLY),
    "more than a float holds": Case(
        claims('{"exp": 1e400}'), NotToken("its payload cannot be read: a number is too large")
    ),
    "no number of JSON": Case(claims('{"exp": Infinity}'), NotToken("its payload cannot be read: not JSON")),
    "twice": Case(claims('{"exp": 1, "exp": 2}'), NotToken("its payload cannot be read: a member is repeated")),
    "no object": Case(claims("[2000000000]"), NotToken("its payload is not a JSON object")),
    "no JSON": Case(claims("exp"), NotToken("its payload cannot be read: not JSON")),
}

SHAPES = {
    "two parts": Case(b"e30.e30", NOT_COMPACT),
    "four parts": Case(f"{GOOD}.x".encode(), NOT_COMPACT),
    "no payload": Case(b"e30..x", NOT_COMPACT),
    "padding": Case(f"{HEAD}.{part('{}')}==.x".encode(), NOT_COMPACT),
    "the other alphabet": Case(b"e30.e+/0.x", NOT_COMPACT),
    "a length that cannot be": Case(b"e30.e30aa.x", NOT_BASE64),
    "nothing": Case(b"", NOT_COMPACT),
    "only white space": Case(b" \n", NOT_COMPACT),
    "bytes of no text": Case(b"\xff\xfe.\x00.", NOT_COMPACT),
    "a signature that is not there": Case(GOOD.rsplit(".", 1)[0].encode() + b".", 2e9),
}

SPACES = {
    "a line end": Case(f"{GOOD}\n".encode(), 2e9),
    "a line end of Windows": Case(f"{GOOD}\r\n".encode(), 2e9),
    "spaces around": Case(f" \t{GOOD} \n\n".encode(), 2e9),
    "a byte order mark": Case(b"\xef\xbb\xbf" + GOOD.encode(), NOT_COMPACT),
    "a no-break space": Case(GOOD.encode() + "\N{NO-BREAK SPACE}".encode(), NOT_COMPACT),
    "a space inside": Case(GOOD.replace(".", ". ", 1).encode(), NOT_COMPACT),
    "two tokens": Case(f"{GOOD}\n{GOOD}".encode(), NOT_COMPACT),
    "a line end inside": Case(f"{GOOD[:-3]}\r\nx-admin: 1".encode(), NOT_COMPACT),
    "a NUL at the end": Case(f"{GOOD}\0".encode(), NOT_COMPACT),
}


@pytest.mark.requirement("JW-6", "W04")
@pytest.mark.parametrize("case", EXPIRIES.values(), ids=EXPIRIES.keys())
def test_exp_is_a_finite_number(case: Case) -> None:
    assert _expiry(case.content) == case.want


@pytest.mark.requirement("JW-6")
@pytest.mark.parametrize("case", SHAPES.values(), ids=SHAPES.keys())
def test_a_token_has_three_parts(case: Case) -> None:
    assert _expiry(case.content) == case.want


@pytest.mark.requirement("W03", "W11")
@pytest.mark.parametrize("case", SPACES.values(), ids=SPACES.keys())
def test_white_space_is_cut_off_at_the_ends_and_refused_inside(case: Case) -> None:
    assert _expiry(case.content) == case.want


@pytest.mark.requirement("W03")
def test_what_is_sent_is_the_token_without_the_space_around_it() -> None:
    assert parse_token(f"\n {GOOD}\r\n".encode()) == Token(Secret(GOOD), 2e9)


@pytest.mark.requirement("W14")
def test_neither_a_token_nor_what_is_wrong_with_one_shows_its_text() -> None:
    assert repr(parse_token(GOOD.encode())) == "Token(text=Secret(), expires=2000000000.0, whole=True)"
    for case in (*EXPIRIES.values(), *SHAPES.values(), *SPACES.values()):
        for each in filter(None, case.content.split(b".")):
            assert each.decode("latin-1") not in repr(parse_token(case.content))


LENGTHS = {
    "none": {0},
    "HS256": {32}, "HS384": {48}, "HS512": {64},
    "ES256": {64}, "ES256K": {64}, "ES384": {96}, "ES512": {132},
    "EdDSA": {64, 114}, "Ed25519": {64}, "Ed448": {114},
    **{name: {256, 320, 384, 448, 512, 576} for name in ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")},
}  # fmt: skip


def signed(header: object, signature: str) -> Token | NotToken:
    return parse_token(f"{part(header)}.{part({'exp': 2_000_000_000})}.{signature}".encode())


@pytest.mark.requirement("W02")
@pytest.mark.parametrize("algorithm", LENGTHS)
def test_a_whole_signature_has_the_length_of_its_algorithm(algorithm: str) -> None:
    whole = {size for size in range(600) if is_whole(signed({"alg": algorithm}, part("s" * size)))}
    assert whole == LENGTHS[algorithm]


def test_every_length_is_right_for_an_unknown_algorithm_and_none_for_a_broken_header() -> None:
    assert {size for size in range(200) if is_whole(signed({"alg": "new"}, part("s" * size)))} == set(range(200))
    headers: tuple[object, ...] = ({}, {"alg": None}, {"alg": ["ES256"]}, [], "x")
    for header in headers:
        assert not is_whole(signed(header, part("s" * 64)))


@pytest.mark.requirement("W02", "JW-6")
@pytest.mark.parametrize(("algorithm", "size"), [("ES256", 64), ("RS256", 256), ("HS256", 32), ("EdDSA", 64)])
def test_wherever_a_signature_is_cut_that_is_noticed_and_the_token_can_still_be_sent(algorithm: str, size: int) -> None:
    signature = urlsafe_b64encode(bytes(range(1, 1 + min(size, 250))) + bytes(size - min(size, 250))).rstrip(b"=")
    assert is_whole(signed({"alg": algorithm}, signature.decode()))
    for length in range(len(signature)):
        found = signed({"alg": algorithm}, signature[:length].decode())
        assert (length, is_whole(found)) == (length, False)


def test_bits_that_no_encoder_writes_are_noticed() -> None:
    assert is_whole(signed({"alg": "ES256"}, part("s" * 64)))
    assert part("s" * 64)[-1] == "w"
    for last in "xyz_":
        assert not is_whole(signed({"alg": "ES256"}, part("s" * 64)[:-1] + last))


def is_whole(found: Token | NotToken) -> bool:
    assert isinstance(found, Token)
    return found.whole


@pytest.mark.requirement("W11")
@settings(deadline=None)
@given(st.binary(max_size=200) | st.text(max_size=100).map(lambda text: f"{GOOD}{text}".encode()))
def test_any_content_is_a_token_fit_for_a_header_or_is_refused(content: bytes) -> None:
    found = parse_token(content)
    if isinstance(found, Token):
        assert set(found.text.reveal()) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.")


def _expiry(content: bytes) -> float | NotToken:
    found = parse_token(content)
    return found.expires if isinstance(found, Token) else found
