"""What PyJWT refuses under the same settings we refuse too; what we refuse on top is listed."""

import json
from datetime import UTC, datetime, timedelta
from typing import Final

import jwt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.issuers.keyrings import ring, verify
from tests.support.issuers.minting import ISSUER, Signer, claims, mint, segment, signer

from authplane.policy.identity.tokens.token_outcome import Verified

SIGNERS: Final = tuple(signer(name, name) for name in ("RS256", "PS256", "ES256", "ES384", "EdDSA"))
RING: Final = ring(*SIGNERS)
ALGORITHMS: Final = [each.algorithm for each in SIGNERS]
LEEWAY: Final = timedelta(seconds=30)
NOW: Final = datetime.now(UTC).timestamp()
"""PyJWT looks at the clock itself; the tokens below are minutes away from any limit."""


def accepted_by_oracle(token: str) -> bool:
    """Ask PyJWT, which takes the time from the clock and the key from us."""
    try:
        header = jwt.get_unverified_header(token)
        key = next(each for each in SIGNERS if each.kid == header.get("kid"))
        jwt.decode(
            token,
            key.key.public_key(),
            algorithms=[key.algorithm],
            issuer=ISSUER,
            leeway=LEEWAY,
            options={"require": ["exp", "iss"], "verify_aud": False},
        )
    except (jwt.PyJWTError, StopIteration, ValueError, TypeError, OverflowError):
        return False
    return True


def accepted_by_us(token: str) -> bool:
    return isinstance(verify(token, RING, NOW), Verified)


TIMES: Final = st.sampled_from([-7200, -3600, 3600, 7200])
ODD: Final = st.one_of(
    st.none(), st.booleans(), st.integers(-10, 10**20), st.text(max_size=5), st.just([]), st.just({}), st.floats()
)
HEADERS: Final = st.dictionaries(
    st.sampled_from(["alg", "kid", "typ", "crit", "b64", "cty", "jwk", "jku", "x5c", "zip"]),
    st.one_of(ODD, st.sampled_from([*ALGORITHMS, "none", "HS256", "JWT", "at+jwt"])),
    max_size=2,
)
CLAIMS: Final = st.dictionaries(
    st.sampled_from(["iss", "sub", "aud", "exp", "nbf", "iat", "jti", "x"]), st.one_of(ODD, TIMES), max_size=3
)


@st.composite
def changed(draw: st.DrawFn, token: str) -> str:
    """Change a token's text at a few places."""
    letters = list(token)
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(letters) - 1))
        match draw(st.sampled_from(["replace", "insert", "delete"])):
            case "replace":
                letters[place] = draw(st.sampled_from("AQgw_-.=+/ \n\u00e9"))
            case "insert":
                letters.insert(place, draw(st.sampled_from("A=. \n")))
            case _:
                del letters[place]
    return "".join(letters)


@st.composite
def tokens(draw: st.DrawFn) -> str:
    """Make a token in which nothing need be right, and often most things are."""
    key = draw(st.sampled_from(SIGNERS))
    wrong = draw(st.sets(st.sampled_from(["signer", "header", "claims", "text"]), max_size=2))
    by = draw(st.sampled_from([*SIGNERS, signer("RS256", "stranger", 1)])) if "signer" in wrong else key
    header = draw(HEADERS) if "header" in wrong else {}
    odd = draw(CLAIMS) if "claims" in wrong else {}
    times = {name: int(NOW) + value for name, value in odd.items() if value in (-7200, -3600, 3600, 7200)}
    payload = {**claims(iat=int(NOW), exp=int(NOW) + 86_400), **odd, **times}
    token = mint({**key.header(), **header}, payload, by.sign)
    return draw(changed(token)) if "text" in wrong else token


@pytest.mark.slow
@settings(max_examples=250, deadline=None)
@given(tokens())
def test_nothing_is_accepted_that_the_oracle_refuses(token: str) -> None:
    if accepted_by_us(token):
        assert accepted_by_oracle(token)


NAMES = st.text(max_size=8).filter(lambda name: name != "nbf")  # which must be a time


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(key=st.sampled_from(SIGNERS), extra=st.dictionaries(NAMES, st.text(max_size=8), max_size=4))
@example(key=SIGNERS[0], extra={})
def test_an_ordinary_token_is_accepted_by_both(key: Signer, extra: dict[str, str]) -> None:
    token = key.token({**extra, **claims(iat=int(NOW), exp=int(NOW) + 86_400)})
    assert accepted_by_us(token)
    assert accepted_by_oracle(token)


def text_of(**extra: object) -> str:
    return json.dumps(claims(**{"iat": int(NOW), "exp": int(NOW) + 86_400, **extra}))


def test_what_we_refuse_and_the_oracle_accepts() -> None:
    key = SIGNERS[0]
    good = key.token(text_of())
    stricter = {
        "padding at the end": f"{good}==",
        "exp as a text": key.token(text_of(exp=str(int(NOW) + 86_400))),
        "a claim twice": key.token(text_of()[:-1] + ',"sub":"bob"}'),
        "a header member twice": key.token(text_of(), header='{"alg":"RS256","kid":"RS256","kid":"RS256"}'),
        "another typ": key.token(text_of(), header=key.header(typ="logout+jwt")),
        "a megabyte": key.token(text_of(x="a" * 1_000_000)),
    }
    assert {
        name: (accepted_by_us(token), accepted_by_oracle(token)) for name, token in stricter.items()
    } == dict.fromkeys(stricter, (False, True))


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.text(), st.lists(st.binary(max_size=60), min_size=1, max_size=5)))
def test_no_text_makes_it_raise(found: str | list[bytes]) -> None:
    token = found if isinstance(found, str) else ".".join(segment(part) for part in found)
    assert not accepted_by_us(token)
