"""Stored password hashes."""

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from authplane.authserver.backends.htpasswd.passwords import (
    Apr1,
    Bcrypt,
    PasswordHash,
    Sha,
    Sha256Crypt,
    Sha512Crypt,
    Ssha,
    Unusable,
    effort,
    padding,
    parse_hash,
    verify,
    weakness,
)

BCRYPT: Final = "$2b$04$abcdefghijklmnopqrstuuetGRvO6QNMBbbIoo5tpQkbPXg26U9Qu"
LONG: Final = "$2b$04$abcdefghijklmnopqrstuubzadhGtS2zEF.gu0yd0opP6cVzb.e0i"
SHA256: Final = "$5$rounds=1000$NaCl$eRe5E98KEAK3TJxGKmfs4U9eTSncr/XlWe3R41TYoc8"
SHA512: Final = (
    "$6$rounds=1000$NaCl$.nLm5Uuf3prTDAeDqmFFj0THpv4eYApIDLPlsu3987BKGSMWnHUhiJTNVEC54xX1wrceyDW.vRdNQVgZCE7fF0"
)

KINDS: Final[dict[str, tuple[str, type[PasswordHash]]]] = {
    "$2a$": (BCRYPT.replace("$2b", "$2a"), Bcrypt),
    "$2b$": (BCRYPT, Bcrypt),
    "$2y$": (BCRYPT.replace("$2b", "$2y"), Bcrypt),
    "apr1": ("$apr1$abcd1234$pjqtSefr4Txu4oMmg1JuN0", Apr1),
    "{SHA}": ("{SHA}w3QkzGJswDXW5OKZHAJw0FELjfM=", Sha),
    "{SSHA}": ("{SSHA}n0reRMPhZt31QPE0XthGVi73ivJzYWx0", Ssha),
    "SHA-256 crypt": (SHA256, Sha256Crypt),
    "SHA-512 crypt": (SHA512, Sha512Crypt),
}

VECTORS: Final = {
    "apr1, empty": ("", "$apr1$Ab3./xyz$elhGjrrBsWktHUXbMUF/y0"),
    "apr1, long": ("x" * 200, "$apr1$Ab3./xyz$a2i5LhRQVADqqteJOppZ/."),
    "apr1, not ASCII": ("pä", "$apr1$Ab3./xyz$B3qIeLpqngAVCnzQMBYxL."),
    "SHA-256, default rounds": ("Hello world!", "$5$saltstring$5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5"),
    "SHA-256, empty": ("", "$5$saltstring$FdNfA4gXqvCeO6iZs7G/.wwwoywYZqo0l1pwmfWaBA7"),
    "SHA-256, long": ("x" * 200, "$5$saltstring$rwq/JJiS514uBZM0XlgTBNTZFB6WIioWwq2E4Bl1FB1"),
    "SHA-512, empty": (
        "",
        "$6$rounds=1000$NaCl$JjJeEyJjNCmAHczYTI3LctO6VxKDndDp9M1t9dPDg/k25UostHR9o2QKk8l0rKLq4HFYG1U7zC1lTK6G0bK./.",
    ),
    "SHA-512, long": (
        "x" * 200,
        "$6$rounds=1000$NaCl$ViuoP.JK9hvjlkplgwwNzXIzPImnWHIRP97Hi3ItW/XUxSAWhaSmjdDdGE4wS5VxoJz88XskxXs/CqhgKrtPw1",
    ),
}


def parsed(text: str) -> PasswordHash:
    found = parse_hash(text)
    assert not isinstance(found, Unusable), found
    return found


@pytest.mark.parametrize(("text", "kind"), KINDS.values(), ids=KINDS.keys())
def test_each_format_verifies_its_password_and_no_other(text: str, kind: type[PasswordHash]) -> None:
    stored = parsed(text)
    assert isinstance(stored, kind)
    tried = (b"wonder", b"", b"Wonder", b"wonder ", b"wonde", b"wonder\0", b"won\0der", b"w" * 512)
    assert [verify(stored, password) for password in tried] == [True, *[False] * 7]
    assert text.rpartition("$")[2] not in repr(stored)


@pytest.mark.parametrize(("password", "text"), VECTORS.values(), ids=VECTORS.keys())
def test_hashes_of_other_programs_verify(password: str, text: str) -> None:
    assert verify(parsed(text), password.encode())


UNUSABLE: Final = {
    "plain text": ("plainpw", "HashUnknown"),
    "nothing": ("", "HashUnknown"),
    "DES": ("rqXexS6ZhobKA", "HashUnknown"),
    "an unknown number": ("$9$salt$abcdefgh", "HashUnknown"),
    "MD5 crypt": ("$1$abcd1234$pjqtSefr4Txu4oMmg1JuN0", "HashUnknown"),
    "yescrypt": ("$y$j9T$salt$abcdefgh", "HashUnknown"),
    "an unknown name in braces": ("{CRYPT}rqXexS6ZhobKA", "HashUnknown"),
    "braces in small letters": ("{sha}w3QkzGJswDXW5OKZHAJw0FELjfM=", "HashUnknown"),
    "an open brace": ("{SHA", "HashUnknown"),
    "apr1, cut": ("$apr1$abcd1234$pjqtSefr4Txu4oMmg1JuN", "HashUnknown"),
    "$2x$": (BCRYPT.replace("$2b", "$2x"), "HashDamaged"),
    "bcrypt, cut": (BCRYPT[:-1], "HashDamaged"),
    "bcrypt with a newline": (BCRYPT + "\n", "HashDamaged"),
    "bcrypt with a salt of too many bits": (BCRYPT.replace("uuet", "uvet"), "HashDamaged"),
    "{SHA} of something shorter": ("{SHA}w3Qkzw==", "HashDamaged"),
    "{SHA} with a salt": ("{SHA}n0reRMPhZt31QPE0XthGVi73ivJzYWx0", "HashDamaged"),
    "{SSHA} without a salt": ("{SSHA}w3QkzGJswDXW5OKZHAJw0FELjfM=", "HashDamaged"),
    "{SHA} that is not base64": ("{SHA}w3QkzGJswDXW5OKZHAJw0FELjf!=", "HashDamaged"),
    "SHA-256 with the length of SHA-512": (SHA512.replace("$6$", "$5$"), "HashDamaged"),
    "rounds that are no number": (SHA256.replace("1000", "many"), "HashDamaged"),
}


@pytest.mark.requirement("H01")
@pytest.mark.parametrize(("text", "reason"), UNUSABLE.values(), ids=UNUSABLE.keys())
def test_what_is_no_known_hash_is_unusable_and_not_repeated(text: str, reason: str) -> None:
    found = parse_hash(text)
    assert isinstance(found, Unusable)
    assert found.reason == reason
    assert not text or text not in found.message


EXTREME: Final = ("$2y$31$", "$2y$15$", "$2y$03$", "$2y$00$")


@pytest.mark.requirement("H03")
@pytest.mark.parametrize(
    "text",
    [
        *(BCRYPT.replace("$2b$04$", start) for start in EXTREME),
        *(SHA256.replace("1000", rounds) for rounds in ("999", "500001", "999999999")),
    ],
)
def test_an_extreme_cost_is_refused(text: str) -> None:
    found = parse_hash(text)
    assert isinstance(found, Unusable)
    assert found.reason == "HashCostRefused"


def test_the_highest_cost_is_accepted() -> None:
    assert effort(parsed(BCRYPT.replace("$04$", "$14$"))) == 65 << 14
    assert effort(parsed(SHA256.replace("1000", "500000"))) == 500_000


def test_bcrypt_reads_72_bytes_and_never_takes_more() -> None:
    stored = parsed(LONG)
    assert verify(stored, b"x" * 72)
    assert not verify(stored, b"x" * 73)
    assert not verify(stored, b"x" * 500)


@pytest.mark.parametrize(("text", "kind"), KINDS.values(), ids=KINDS.keys())
def test_all_but_bcrypt_are_weak(text: str, kind: type[PasswordHash]) -> None:
    assert (weakness(parsed(text)) is None) == (kind is Bcrypt)


def test_padding_makes_every_bcrypt_as_costly_as_the_costliest() -> None:
    costliest = parsed(BCRYPT.replace("$04$", "$07$"))
    for cost in range(4, 8):
        stored = parsed(BCRYPT.replace("$04$", f"$0{cost}$"))
        assert sum(map(effort, (stored, *padding(stored, costliest)))) == effort(costliest)


@given(st.text(), st.binary(max_size=100))
def test_no_text_makes_parsing_or_verifying_raise(text: str, password: bytes) -> None:
    for candidate in (text, "$2b$" + text, "$5$" + text, "{SHA}" + text, "{SSHA}" + text, "$apr1$" + text):
        stored = parse_hash(candidate)
        assert isinstance(stored, Unusable) or not verify(stored, password)
