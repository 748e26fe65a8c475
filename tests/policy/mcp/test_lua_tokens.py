"""The reader inside Envoy and tokens: of what it calls good, the policy server's reader says the same."""

import base64
import json
import time
from random import Random
from typing import Any, Final

import pytest
from tests.support.mcp.lua_reader import SOURCE, LuaReader
from tests.support.mcp.posted_messages import message

from authplane.policy.identity.tokens.algorithms import ALGORITHMS
from authplane.policy.identity.tokens.check_claims import LATEST_TIME, Times, fault_in_claims
from authplane.policy.identity.tokens.compact_tokens import LONGEST_KID, TOKEN_LIMITS, Compact, parse_compact
from authplane.policy.identity.tokens.token_outcome import Reason

CASES: Final = 20_000
NOW: Final = int(time.time())
"""When the tests were collected, which may be an hour before they run."""
BODY: Final = message(params={"name": "add"})
HEAD: Final = {"alg": "ES256", "kid": "k"}
CLAIMS: Final = {"iss": "https://a.example", "exp": NOW + 36_000, "iat": NOW - 60}
SIGNATURE: Final = bytes(range(64))
READER: Final = LuaReader(tokens=True)


def segment(part: Any) -> str:
    data = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def token(head: Any = HEAD, claims: Any = CLAIMS, signature: Any = SIGNATURE) -> str:
    return f"{segment(head)}.{segment(claims)}.{segment(signature)}"


def read(authorization: str, reader: LuaReader = READER) -> dict[str, Any] | None:
    headers = (("content-type", "application/json"), ("authorization", authorization))
    return reader.read("POST", headers, "/mcp", json.dumps(BODY).encode())


def disagreement(compact: str, reader: LuaReader = READER) -> str:
    """Say in what the reader and the policy server differ about a token that the reader calls good."""
    found = read(f"Bearer {compact}", reader)
    if found is None or "age" not in found:
        return ""
    made = parse_compact(compact, ALGORITHMS)
    if not isinstance(made, Compact):
        # Envoy itself knows no other algorithms.
        return "" if made is Reason.ALGORITHM else f"{compact}: {made}"
    if found["issuer"] != made.claims.get("iss"):
        return f"{compact}: {found}"
    now = int(time.time())
    told = (made.header.type, now - made.claims.get("iat", -1), made.header.kid)
    if found["token_type"] != told[0] or abs(found["age"] - told[1]) > 600 or not told[2]:
        return f"{compact}: {found} and {told}"
    # Envoy requires texts.
    claims = {name: value for name, value in made.claims.items() if name not in {"sub", "jti"}}
    fault = fault_in_claims(claims, Times(), now)
    return f"{compact}: {fault}" if fault is Reason.CLAIMS else ""


def made(random: Random) -> str:
    """Return a token with oddities, some of them damaged."""
    return _damaged(random, *(_spelt(random, each) for each in _parts(random)))


_TIMES: Final = (0, -1, NOW, NOW + 10**6, LATEST_TIME, LATEST_TIME + 1, 1.5, 1e300, "1", None, True, [1], {"a": 1})
_KINDS: Final = (
    "jwt",
    "JWT",
    "at+jwt",
    "application/at+jwt",
    "application/",
    "",
    "application/application/jwt",
    None,
    1,
)
_KEYS: Final[tuple[object, ...]] = ("k", "", None, 7, "k" * 256, "k" * 257, "\u00e9", "a b", "\\", [])
_OTHERS: Final = ("crit", "b64", "cty", "jwk", "IAT", "Kid", "exp", "iat", "kid", "typ", "ia\\u0074", "x", "sub")


def _parts(random: Random) -> tuple[dict[str, Any], dict[str, Any]]:
    head: dict[str, Any] = {"alg": "ES256", "kid": "k" if random.random() < 0.7 else random.choice(_KEYS)}
    claims: dict[str, Any] = dict(CLAIMS)
    if random.random() < 0.5:
        head["typ"] = random.choice(_KINDS)
    for name in ("exp", "iat"):
        if random.random() < 0.2:
            claims[name] = random.choice(_TIMES)
    if random.random() < 0.1:
        random.choice((head, claims)).pop(random.choice(("alg", "kid", "exp", "iat")), None)
    return head, claims


def _spelt(random: Random, part: dict[str, Any]) -> str:
    members = [f"{json.dumps(name)}:{json.dumps(value)}" for name, value in part.items()]
    if random.random() < 0.3:
        name = random.choice(_OTHERS)
        value = random.choice(("1", '"a"', "null", "12345678901234567890", "[[1]]", '{"a":{}}', '"\\ud800"', "1e999"))
        members.append(f'"{name}":{value}')
    random.shuffle(members)
    joined = random.choice((",", ",", " , ", ",\n", ",,")) if random.random() < 0.2 else ","
    return f"{{{joined.join(members)}}}"


def _damaged(random: Random, head: str, claims: str) -> str:
    data = [bytearray(head.encode()), bytearray(claims.encode()), bytearray(SIGNATURE)]
    if random.random() < 0.2:
        chosen = random.choice(data[:2])
        chosen[random.randrange(len(chosen))] = random.choice(b'"\\{}:,0 \0\xc3\xff')
    compact = ".".join(map(segment, map(bytes, data)))
    if random.random() < 0.1:
        at = random.randrange(len(compact))
        compact = compact[:at] + random.choice(("", "A", ".", "=", "+", "/", "_", "%")) + compact[at + 1 :]
    return compact


@pytest.mark.requirement("M05", "E19")
def test_every_good_token_is_good_for_the_policy_server() -> None:
    random = Random(7)  # noqa: S311 (repeatable on purpose)
    cases = [made(random) for _ in range(CASES)]
    assert [said for each in cases if (said := disagreement(each))] == []
    good = sum("age" in (read(f"Bearer {each}") or {}) for each in cases[:1000])
    assert 150 < good < 800


FAULTS: Final = {
    b'if name == "crit" or name == "b64" then': b"if false then",
    b"return held == 0 and bits < 6 and": b"return",
    b'if not kind or kind == "" then return nil end': b"",
    b"#key > LONGEST_KEY_ID or": b"",
    b"or header.extended then": b"then",
    b"and value <= LATEST_TIME": b"",
    b"if seen[name] then return nil end": b"",
}


@pytest.mark.parametrize("line", FAULTS)
def test_the_cases_find_a_reader_that_takes_too_much(line: bytes) -> None:
    assert SOURCE.count(line) == 1
    faulty, random = LuaReader(source=SOURCE.replace(line, FAULTS[line]), tokens=True), Random(8)  # noqa: S311 (repeatable on purpose)
    assert any(disagreement(made(random), faulty) for _ in range(200_000))


def test_a_good_token_has_an_age_and_a_type() -> None:
    issued = int(time.time()) - 60
    found = read(f"Bearer {token(claims=CLAIMS | {'iat': issued})}")
    assert found is not None
    assert 60 <= found["age"] <= time.time() - issued
    assert found["token_type"] == ""
    again = read(f"Bearer {token(claims=CLAIMS | {'iat': issued})}")
    assert again is not None
    assert again["age"] >= found["age"]
    typed = read(f"Bearer {token(HEAD | {'typ': 'Application/AT+JWT'})}")
    assert typed is not None
    assert typed["token_type"] == "at+jwt"


def test_a_token_from_the_future_has_a_negative_age() -> None:
    found = read(f"Bearer {token(claims=CLAIMS | {'iat': int(time.time()) + 10_000})}")
    assert found is not None
    assert found["age"] < -9_000


def test_an_issuer_may_be_written_with_escapes() -> None:
    claims = json.dumps(CLAIMS).replace("/", "\\/").encode()
    found = read(f"Bearer {token(claims=claims)}")
    assert found is not None
    assert found["issuer"] == CLAIMS["iss"]


def test_large_numbers_in_other_claims_do_not_matter() -> None:
    found = read(f"Bearer {token(claims=CLAIMS | {'account': 123456789012345678})}")
    assert found is not None
    assert "age" in found


def test_without_rules_for_tokens_none_is_read() -> None:
    for authorization in (f"Bearer {token()}", f"Bearer {token({})}"):
        found = read(authorization, LuaReader())
        assert found is not None
        assert "age" not in found


@pytest.mark.parametrize(
    "authorization",
    [
        "Basic YTpi",
        "Bearer",
        "Bearer a.b",
        f"bearer {token()}",
        f"Bearer  {token()}",
        f"Bearer {token()}=",
        f"Bearer {token()}.a",
        f"Bearer {segment(HEAD)}.{segment(CLAIMS)}.AB",
        f"Bearer {segment(HEAD)}.{segment(CLAIMS)}.A",
    ],
)
def test_what_is_no_token_in_its_right_spelling_proves_nothing(authorization: str) -> None:
    found = read(authorization)
    assert found is not None
    assert "age" not in found


REJECTED: Final = {
    "an empty kid": token(HEAD | {"kid": ""}),
    "a long kid": token(HEAD | {"kid": "k" * (LONGEST_KID + 1)}),
    "crit that is null": token(HEAD | {"crit": None}),
    "b64": token(HEAD | {"b64": True}),
    "no iat": token(claims={"iss": "a", "exp": NOW}),
    "no exp": token(claims={"iss": "a", "iat": NOW}),
    "iat as text": token(claims=CLAIMS | {"iat": "1"}),
    "exp after the year 9999": token(claims=CLAIMS | {"exp": LATEST_TIME + 1}),
}


@pytest.mark.parametrize("case", REJECTED)
def test_what_the_policy_server_rejects_proves_nothing(case: str) -> None:
    found = read(f"Bearer {REJECTED[case]}")
    assert found is not None
    assert "age" not in found


ASKED: Final = {
    "a header that is no object": token([]),
    "claims that are no JSON": token(claims=b"{"),
    "no kid": token({"alg": "ES256"}),
    "no issuer": token(claims={"exp": NOW, "iat": NOW}),
    "an issuer that is no text": token(claims=CLAIMS | {"iss": 1}),
    "an escaped kid": token(b'{"alg":"ES256","kid":"\\u0061"}'),
    "cty": token(HEAD | {"cty": "a"}),
    "an empty typ": token(HEAD | {"typ": ""}),
    "a typ without a name": token(HEAD | {"typ": "application/"}),
    "a typ that is no text": token(HEAD | {"typ": 1}),
    "iat that is null": token(claims=CLAIMS | {"iat": None}),
    "iat twice": token(claims=b'{"exp":1,"iat":1,"iat":2}'),
    "an escaped name": token(claims=b'{"exp":1,"iat":1,"\\u0069at":2}'),
    "too deep": token(claims=CLAIMS | {"a": json.loads("[" * TOKEN_LIMITS.depth + "]" * TOKEN_LIMITS.depth)}),
    "too long": token(claims=CLAIMS | {"a": "a" * TOKEN_LIMITS.token}),
    "a long header": token(HEAD | {"a": "a" * TOKEN_LIMITS.header}),
    "a long signature": token(signature=bytes(TOKEN_LIMITS.signature)),
}


@pytest.mark.parametrize("case", ASKED)
def test_the_policy_server_judges_odd_tokens(case: str) -> None:
    assert read(f"Bearer {ASKED[case]}") is None


def test_the_reader_forgets_tokens_before_they_are_too_many() -> None:
    limit = b"MOST_TOKENS, LONGEST_REMEMBERED = "
    assert SOURCE.count(limit + b"1000,") == 1
    reader = LuaReader(source=SOURCE.replace(limit + b"1000,", limit + b"2,"), tokens=True)
    for number in (1, 2, 3, 1, 4, 5, 1):
        found = read(f"Bearer {token(claims=CLAIMS | {'jti': str(number)})}", reader)
        assert found is not None
        assert "age" in found
