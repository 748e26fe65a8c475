import hmac
import json
from dataclasses import replace
from hashlib import sha256
from typing import Any, Final, NamedTuple

import pytest
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from tests.support.issuers.keyrings import Ring, keys, ring, trust, verify
from tests.support.issuers.minting import ISSUER, NOW, Signer, claims, mint, segment, signer

from authplane.policy.identity.tokens.algorithms import ALGORITHMS, DEFAULT_ALGORITHMS
from authplane.policy.identity.tokens.check_claims import Times
from authplane.policy.identity.tokens.token_outcome import Outcome, Reason, Refused, Verified
from authplane.policy.identity.tokens.verify import DEFAULT_TYPES, Demands, NotReady, Trust

P256_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


def judged(token: str, keyring: Ring | None = None, now: float = NOW) -> Outcome:
    return verify(token, keyring or ring(), now)


def reason(token: str, keyring: Ring | None = None, now: float = NOW) -> Reason | None:
    outcome = judged(token, keyring, now)
    return outcome.reason if isinstance(outcome, Refused) else None


def test_a_verified_token_gives_its_claims() -> None:
    token = signer().token(claims(jti="t1", groups=["a", "b"], deep={"list": [{"x": 1}]}))
    assert judged(token) == Verified(
        issuer=ISSUER,
        subject="alice",
        claims=claims(jti="t1", groups=("a", "b"), deep={"list": ({"x": 1},)}),
        expires_at=NOW + 600,
        id="t1",
    )


def test_nothing_in_the_claims_can_be_changed() -> None:
    outcome = judged(signer().token(claims(deep={"list": [{"x": 1}]})))
    assert isinstance(outcome, Verified)
    innermost: Any = outcome.claims["deep"]["list"][0]  # type: ignore[call-overload, index]
    for mapping in (outcome.claims, outcome.claims["deep"], innermost):
        with pytest.raises(TypeError):
            mapping["x"] = 2  # type: ignore[index]


def test_expressions_see_plain_claims_with_numbers_as_floats() -> None:
    outcome = judged(signer().token({"iss": ISSUER, "exp": at(60), "on": True, "no": None, "deep": [{"x": 1}, 2.5]}))
    assert isinstance(outcome, Verified)
    plain = outcome.plain_claims()
    assert plain == {"iss": ISSUER, "exp": NOW + 60, "on": True, "no": None, "deep": [{"x": 1.0}, 2.5]}
    assert [type(value) for value in (plain, plain["exp"], plain["on"], plain["deep"][0]["x"])] == [
        dict, float, bool, float,
    ]  # fmt: skip
    assert outcome.plain_claims() is plain


def test_neither_tokens_nor_claims_show_in_what_may_be_logged() -> None:
    assert "secret" not in repr(judged(signer().token(claims(note="secret"))))


@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
def test_every_algorithm_verifies_its_signatures_and_no_others(algorithm: str) -> None:
    right = signer(algorithm)
    wrong = Signer(right.kid, algorithm, signer(algorithm, "other", 1).key)
    assert isinstance(judged(right.token(), ring(right)), Verified)
    assert judged(wrong.token(), ring(right)) == Refused(reason=Reason.SIGNATURE, issuer=ISSUER, kid=right.kid)


# The form


HEADERS: Final = {
    "alg none": pytest.param({"alg": "none"}, Reason.ALGORITHM, marks=pytest.mark.requirement("J01")),
    "alg nOnE": pytest.param({"alg": "nOnE"}, Reason.ALGORITHM, marks=pytest.mark.requirement("J01")),
    "alg empty": pytest.param({"alg": ""}, Reason.ALGORITHM, marks=pytest.mark.requirement("J01")),
    "alg missing": pytest.param({"alg": None}, Reason.ALGORITHM, marks=pytest.mark.requirement("J03")),
    "alg a number": pytest.param({"alg": 5}, Reason.ALGORITHM, marks=pytest.mark.requirement("J03")),
    "alg a list": pytest.param({"alg": ["RS256"]}, Reason.ALGORITHM, marks=pytest.mark.requirement("J03")),
    "alg an object": pytest.param({"alg": {}}, Reason.ALGORITHM, marks=pytest.mark.requirement("J03")),
    "alg with a curve nobody allowed": pytest.param({"alg": "ES256K"}, Reason.ALGORITHM),
    "alg in lower case": pytest.param({"alg": "rs256"}, Reason.ALGORITHM),
    "an unknown crit": pytest.param({"crit": ["x"], "x": 1}, Reason.CRITICAL, marks=pytest.mark.requirement("J07")),
    "crit b64": pytest.param({"crit": ["b64"], "b64": False}, Reason.CRITICAL, marks=pytest.mark.requirement("J07")),
    "an empty crit": pytest.param({"crit": []}, Reason.CRITICAL, marks=pytest.mark.requirement("J07")),
    "a crit that is a text": pytest.param({"crit": "exp"}, Reason.CRITICAL, marks=pytest.mark.requirement("J07")),
    "b64 without crit": pytest.param({"b64": False}, Reason.CRITICAL),
    "a security event": pytest.param({"typ": "secevent+jwt"}, Reason.TYPE, marks=pytest.mark.requirement("J24")),
    "a logout token": pytest.param({"typ": "logout+jwt"}, Reason.TYPE, marks=pytest.mark.requirement("J24")),
    "a type that is no text": pytest.param({"typ": 1}, Reason.TYPE, marks=pytest.mark.requirement("J24")),
    "a token in a token": pytest.param({"cty": "JWT"}, Reason.TYPE, marks=pytest.mark.requirement("J24")),
    "kid a path": pytest.param({"kid": "../../../../dev/null"}, Reason.KEY, marks=pytest.mark.requirement("J05")),
    "kid a query": pytest.param({"kid": "'; select"}, Reason.KEY, marks=pytest.mark.requirement("J05")),
    "kid with NUL": pytest.param({"kid": "k1\0"}, Reason.KEY, marks=pytest.mark.requirement("J05")),
    "kid too long": pytest.param({"kid": "k" * 3000}, Reason.MALFORMED, marks=pytest.mark.requirement("J05")),
    "kid a number": pytest.param({"kid": 1}, Reason.MALFORMED, marks=pytest.mark.requirement("J05")),
    "kid empty": pytest.param({"kid": ""}, Reason.MALFORMED, marks=pytest.mark.requirement("J05")),
}


@pytest.mark.parametrize(("extra", "want"), HEADERS.values(), ids=HEADERS.keys())
def test_headers_that_are_refused(extra: dict[str, object], want: Reason) -> None:
    assert reason(signer().token(header=signer().header(**extra))) is want


@pytest.mark.requirement("J05")
def test_a_kid_that_is_null_is_refused() -> None:
    assert reason(signer().token(header={"alg": "RS256", "kid": None})) is Reason.MALFORMED


@pytest.mark.requirement("J01")
@pytest.mark.parametrize("alg", ["none", "nOnE", ""])
def test_a_token_without_algorithm_is_refused_before_its_issuer_is_looked_up(alg: str) -> None:
    keyring = ring()
    assert reason(mint({"alg": alg}, claims(), lambda _: b""), keyring) is Reason.ALGORITHM
    assert keyring.asked == []


@pytest.mark.parametrize("typ", [None, "JWT", "jwt", "at+jwt", "application/at+jwt", "AT+JWT"])
@pytest.mark.requirement("J24")
def test_id_tokens_and_access_tokens_are_accepted(typ: str | None) -> None:
    assert isinstance(judged(signer().token(header=signer().header(typ=typ))), Verified)


@pytest.mark.requirement("J24")
def test_the_expected_types_can_be_set() -> None:
    only_access = ring(demands=Demands(types=frozenset({"at+jwt"})))
    assert reason(signer().token(), only_access) is Reason.TYPE
    assert isinstance(judged(signer().token(header=signer().header(typ="at+jwt")), only_access), Verified)
    assert {"", "jwt", "at+jwt"} == DEFAULT_TYPES


def symmetric(secret: bytes) -> str:
    return mint({"alg": "HS256", "kid": "k1"}, claims(), lambda signed: hmac.digest(secret, signed, sha256))


@pytest.mark.requirement("J02")
def test_a_token_signed_with_the_public_key_as_secret_is_refused() -> None:
    public = signer().key.public_key()
    secrets = [
        public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        public.public_bytes(Encoding.PEM, PublicFormat.PKCS1),
        json.dumps(signer().jwk()).encode(),
        b"",
    ]
    assert {reason(symmetric(secret)) for secret in secrets} == {Reason.ALGORITHM}


@pytest.mark.requirement("J02")
def test_symmetric_algorithms_cannot_be_allowed() -> None:
    assert not any(name.startswith("HS") for name in DEFAULT_ALGORITHMS)
    with pytest.raises(ValueError, match="HS256"):
        Demands(algorithms=frozenset({"HS256"}))


@pytest.mark.requirement("J06")
@pytest.mark.parametrize(
    "extra",
    [
        {"jwk": signer(number=1).jwk()},
        {"jku": "https://attacker.example/keys"},
        {"x5u": "https://attacker.example/chain"},
        {"x5c": ["MIIB"]},
    ],
    ids=["jwk", "jku", "x5u", "x5c"],
)
def test_a_key_that_the_token_brings_along_is_not_used(extra: dict[str, object]) -> None:
    keyring, attacker = ring(), signer(number=1)
    assert reason(attacker.token(header=attacker.header(**extra)), keyring) is Reason.SIGNATURE
    assert reason(attacker.token(header=attacker.header(kid=None, **extra)), keyring) is Reason.SIGNATURE
    assert keyring.wishes == []
    assert isinstance(judged(signer().token(header=signer().header(**extra))), Verified)


GOOD: Final = signer().token()
HEAD, BODY, PROOF = GOOD.split(".")
LAST: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

FORMS: Final = {
    "nothing": ("", Reason.MALFORMED),
    "no signature": (f"{HEAD}.{BODY}.", Reason.MALFORMED),
    "two segments": (f"{HEAD}.{BODY}", Reason.MALFORMED),
    "four segments": (f"{GOOD}.{PROOF}", Reason.MALFORMED),
    "five segments": (f"{HEAD}.{BODY}.{PROOF}.{PROOF}.{PROOF}", Reason.MALFORMED),
}


@pytest.mark.requirement("J08")
@pytest.mark.parametrize(("token", "want"), FORMS.values(), ids=FORMS.keys())
def test_a_token_has_exactly_three_segments(token: str, want: Reason) -> None:
    assert reason(token) is want


SPELLINGS: Final = {
    "padding after the signature": f"{GOOD}==",
    "padding after the header": f"{HEAD}=.{BODY}.{PROOF}",
    "a bit that belongs to nothing": GOOD[:-1] + LAST[LAST.index(GOOD[-1]) ^ 1],
    "the other base64": f"{HEAD}.{BODY}.{PROOF.replace('_', '/').replace('-', '+')}+",
    "a blank in front": f" {GOOD}",
    "a newline at the end": f"{GOOD}\n",
    "a newline inside": f"{HEAD}.{BODY[:8]}\n{BODY[8:]}.{PROOF}",
    "a character that is not ASCII": f"{GOOD}\u00e9",
    "a surrogate": f"{GOOD}\udc80",
    "a single character": f"{HEAD}.{BODY}.A",
}


@pytest.mark.parametrize("token", SPELLINGS.values(), ids=SPELLINGS.keys())
def test_a_token_has_one_spelling(token: str) -> None:
    assert isinstance(judged(GOOD), Verified)
    assert reason(token) is Reason.MALFORMED


SIZES: Final = {
    "a token over 16 kB": f"{HEAD}.{'A' * 16_384}.{PROOF}",
    "a token of 10 MB": "A" * 10_000_000,
    "a header of 8 kB": f"{'A' * 8_192}.{BODY}.{PROOF}",
    "a signature of 4 kB": f"{HEAD}.{BODY}.{'A' * 4_096}",
}


@pytest.mark.requirement("J21")
@pytest.mark.parametrize("token", SIZES.values(), ids=SIZES.keys())
def test_what_is_too_large_is_refused_as_such_and_not_decoded(token: str) -> None:
    assert reason(token) is Reason.TOO_LARGE


def deep(levels: int) -> str:
    return f'{{"iss":"{ISSUER}","exp":{int(NOW) + 9},"x":{"[" * levels}{"]" * levels}}}'


PAYLOADS: Final = {
    "deeper than 32": pytest.param(deep(33), marks=pytest.mark.requirement("J22")),
    "deeper than any recursion": pytest.param(deep(5_000), marks=pytest.mark.requirement("J22")),
    "more than 10,000 members": pytest.param(
        f'{{"iss":"{ISSUER}","x":[{"1," * 10_001}1]}}', marks=pytest.mark.requirement("J22")
    ),
    "a number of 8,000 digits": pytest.param(
        f'{{"iss":"{ISSUER}","x":{"1" * 8_000}}}', marks=pytest.mark.requirement("J22")
    ),
    "a list": pytest.param("[1]", marks=pytest.mark.requirement("J23")),
    "a text": pytest.param('"x"', marks=pytest.mark.requirement("J23")),
    "null": pytest.param("null", marks=pytest.mark.requirement("J23")),
    "nothing": pytest.param(b"", marks=pytest.mark.requirement("J23")),
    "not UTF-8": pytest.param(b'{"sub":"\xff"}', marks=pytest.mark.requirement("J23")),
    "UTF-16": pytest.param(json.dumps(claims()).encode("utf-16"), marks=pytest.mark.requirement("J23")),
    "a byte order mark": pytest.param(
        b"\xef\xbb\xbf" + json.dumps(claims()).encode(), marks=pytest.mark.requirement("J23")
    ),
    "a claim twice": json.dumps(claims())[:-1] + ',"sub":"bob"}',
    "a claim twice, one in other letters": json.dumps(claims())[:-1] + ',"s\\u0075b":"bob"}',
    "NaN": f'{{"iss":"{ISSUER}","exp":NaN}}',
    "a number that no float holds": f'{{"iss":"{ISSUER}","exp":1e400}}',
    "something after the end": json.dumps(claims()) + "{}",
}


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS.keys())
def test_payloads_that_are_refused(payload: str | bytes) -> None:
    token = signer().token(payload)
    assert reason(token) in {Reason.MALFORMED, Reason.TOO_LARGE}


def test_a_header_with_a_member_twice_is_refused() -> None:
    assert reason(signer().token(header='{"alg":"RS256","kid":"k1","alg":"RS256"}')) is Reason.MALFORMED


# The key


@pytest.mark.requirement("J04")
@pytest.mark.parametrize("algorithm", ["PS256", "RS512", "ES256", "EdDSA"])
def test_only_the_allowed_algorithms_count(algorithm: str) -> None:
    demands = Demands(algorithms=frozenset({"RS256"}))
    assert reason(signer(algorithm).token(), ring(signer(algorithm), demands=demands)) is Reason.ALGORITHM


@pytest.mark.requirement("J04")
@pytest.mark.parametrize(
    "extra",
    [{"alg": "PS256"}, {"alg": "ES256"}, {"alg": 1}, {"use": "enc"}, {"key_ops": ["sign"]}, {"key_ops": "verify"}],
    ids=str,
)
def test_a_key_verifies_only_what_it_is_for(extra: dict[str, object]) -> None:
    keyring = Ring({ISSUER: Trust(issuer=ISSUER, keys=keys(signer().jwk(**extra)))})
    assert reason(signer().token(), keyring) in {Reason.ALGORITHM, Reason.KEY}


def test_a_key_that_names_no_algorithm_fits_all_of_its_type() -> None:
    keyring = Ring({ISSUER: Trust(issuer=ISSUER, keys=keys(signer().jwk(alg=None, use=None)))})
    for algorithm in ("RS256", "RS512", "PS384"):
        assert isinstance(judged(Signer("k1", algorithm, signer().key).token(), keyring), Verified)


@pytest.mark.requirement("J05")
def test_a_token_without_kid_needs_exactly_one_key_that_fits() -> None:
    token = signer().token(header=signer().header(kid=None))
    assert isinstance(judged(token, ring(signer())), Verified)
    assert isinstance(judged(token, ring(signer(), signer("ES256", "k2"))), Verified)
    two = ring(signer(), signer(kid="k2", number=1))
    assert judged(token, two) == Refused(reason=Reason.KEY_AMBIGUOUS, issuer=ISSUER)
    none = ring(signer("ES256"))
    assert judged(token, none) == Refused(reason=Reason.KEY_AMBIGUOUS, issuer=ISSUER)


def test_a_refusal_names_the_unknown_key() -> None:
    token = signer(kid="new", number=1).token()
    assert judged(token) == Refused(reason=Reason.KEY, issuer=ISSUER, kid="new")


def test_a_known_key_of_another_type_is_nothing_to_ask_the_issuer_for() -> None:
    token = signer().token(header=signer().header(kid="k2"))
    assert judged(token, ring(signer(), signer("ES256", "k2"))) == Refused(reason=Reason.ALGORITHM, issuer=ISSUER)


def test_two_keys_of_one_name_are_both_tried() -> None:
    both = ring(signer(), signer(number=1))
    assert isinstance(judged(signer().token(), both), Verified)
    assert isinstance(judged(signer(number=1).token(), both), Verified)


def es256(proof: bytes) -> str:
    head, body, _ = signer("ES256").token().split(".")
    return f"{head}.{body}.{segment(proof)}"


def numbers(token: str) -> tuple[int, int]:
    proof = signer("ES256").sign(token.rpartition(".")[0].encode())
    return int.from_bytes(proof[:32], "big"), int.from_bytes(proof[32:], "big")


@pytest.mark.requirement("J11")
def test_ecdsa_signatures_with_impossible_numbers_are_wrong() -> None:
    keyring = ring(signer("ES256"))
    r, s = numbers(signer("ES256").token())
    proofs = [
        bytes(64),
        bytes(32) + s.to_bytes(32, "big"),
        r.to_bytes(32, "big") + bytes(32),
        r.to_bytes(32, "big") + P256_ORDER.to_bytes(32, "big"),
        r.to_bytes(32, "big") + b"\xff" * 32,
        encode_dss_signature(r, s),
        b"\x00",
    ]
    assert [reason(es256(proof), keyring) for proof in proofs] == [Reason.SIGNATURE] * len(proofs)


@pytest.mark.requirement("J11")
def test_a_key_of_another_curve_does_not_fit() -> None:
    token = signer("ES256").token(header=signer("ES256").header(alg="ES384"))
    assert reason(token, ring(signer("ES256"))) is Reason.ALGORITHM


# The issuer


@pytest.mark.requirement("J16", "R18")
@pytest.mark.parametrize(
    "iss",
    [
        f"{ISSUER}/", ISSUER.upper(), f"{ISSUER}:443", f"{ISSUER}.evil", ISSUER[:-1], f" {ISSUER}", "",
        [ISSUER], {"a": 1}, 5, None,
    ],
    ids=str,
)  # fmt: skip
def test_iss_is_the_issuer_byte_for_byte(iss: object) -> None:
    named = iss if isinstance(iss, str) else ""
    assert judged(signer().token(claims(iss=iss))) == Refused(reason=Reason.ISSUER, named=named)


def test_a_token_of_one_issuer_is_never_verified_with_the_keys_of_another() -> None:
    other = "https://other.example"
    keyring = Ring({ISSUER: trust(), other: trust(signer(number=1), issuer=other)})
    assert reason(signer().token(claims(iss=other)), keyring) is Reason.SIGNATURE
    verified = judged(signer(number=1).token(claims(iss=other)), keyring)
    assert isinstance(verified, Verified)
    assert verified.issuer == other


@pytest.mark.requirement("J28")
def test_an_issuer_without_keys_refuses_only_its_own_tokens() -> None:
    down = "https://down.example"
    keyring = Ring({ISSUER: trust(), down: NotReady(issuer=down)})
    assert judged(signer().token(claims(iss=down)), keyring) == Refused(reason=Reason.ISSUER_NOT_READY, issuer=down)
    assert isinstance(judged(signer().token(), keyring), Verified)


# The times


class Moment(NamedTuple):
    extra: dict[str, object]
    want: Reason | None = None
    times: Times = Times()


def at(seconds: float) -> int:
    return int(NOW + seconds)


MOMENTS: Final = {
    "expired within the leeway": pytest.param(Moment({"exp": at(-1)}), marks=pytest.mark.requirement("J12")),
    "expired at the last moment": pytest.param(Moment({"exp": at(-29)}), marks=pytest.mark.requirement("J12")),
    "expired beyond the leeway": pytest.param(
        Moment({"exp": at(-31)}, Reason.EXPIRED), marks=pytest.mark.requirement("J12")
    ),
    "no leeway": pytest.param(
        Moment({"exp": at(-1)}, Reason.EXPIRED, Times(skew=0)), marks=pytest.mark.requirement("J12")
    ),
    "the longest leeway": pytest.param(
        Moment({"exp": at(-119)}, None, Times(skew=120)), marks=pytest.mark.requirement("J12")
    ),
    "without exp": pytest.param(Moment({"exp": None}, Reason.CLAIMS), marks=pytest.mark.requirement("J13")),
    "exp a text": Moment({"exp": str(at(60))}, Reason.CLAIMS),
    "exp a truth value": Moment({"exp": True}, Reason.CLAIMS),
    "exp a list": Moment({"exp": [at(60)]}, Reason.CLAIMS),
    "exp with a fraction": Moment({"exp": NOW + 0.5}),
    "exp before time": Moment({"exp": -1}, Reason.EXPIRED),
    "exp in the last second of the calendar": pytest.param(
        Moment({"exp": 253_402_300_799}), marks=pytest.mark.requirement("J14")
    ),
    **{
        f"{name} {value!r}": pytest.param(Moment({name: value}, Reason.CLAIMS), marks=pytest.mark.requirement("J14"))
        for name in ("exp", "nbf", "iat")
        for value in (253_402_300_800, 10**30, 1e300, -253_402_300_800, -1e300)
    },
    "nbf soon": pytest.param(Moment({"nbf": at(29)}), marks=pytest.mark.requirement("J15")),
    "nbf later": pytest.param(Moment({"nbf": at(31)}, Reason.NOT_YET), marks=pytest.mark.requirement("J15")),
    "nbf a text": Moment({"nbf": "0"}, Reason.CLAIMS),
    "iat in the future": pytest.param(Moment({"iat": at(3600)}, Reason.NOT_YET), marks=pytest.mark.requirement("J15")),
    "iat an object": Moment({"iat": {}}, Reason.CLAIMS),
    "iat long ago with a longest age": pytest.param(
        Moment({"iat": 0}, Reason.TOO_OLD, Times(longest_age=60)), marks=pytest.mark.requirement("J15")
    ),
    "no iat with a longest age": Moment({"iat": None}, Reason.TOO_OLD, Times(longest_age=60)),
    "iat not too long ago": Moment({"iat": at(-60)}, None, Times(longest_age=60)),
    "iat long ago": Moment({"iat": 0}),
    "neither iat nor nbf": Moment({"iat": None}),
    "sub a number": Moment({"sub": 1}, Reason.CLAIMS),
    "jti a number": Moment({"jti": 1}, Reason.CLAIMS),
    "no sub": Moment({"sub": None}),
}


@pytest.mark.requirement("R22")
@pytest.mark.parametrize("case", MOMENTS.values(), ids=MOMENTS.keys())
def test_times(case: Moment) -> None:
    token = signer().token(claims(**case.extra))
    assert reason(token, ring(demands=Demands(times=case.times))) is case.want


@pytest.mark.requirement("J12", "R22")
@pytest.mark.parametrize("skew", [-1, 121, float("nan"), float("inf")])
def test_a_skew_is_at_most_two_minutes(skew: float) -> None:
    with pytest.raises(ValueError, match="0 to 120"):
        Times(skew=skew)
    assert Times().skew == 30


def test_demands_are_part_of_the_trust() -> None:
    strict = replace(trust(), demands=Demands(times=Times(skew=0)))
    assert reason(signer().token(claims(exp=at(-1))), Ring({ISSUER: strict})) is Reason.EXPIRED
