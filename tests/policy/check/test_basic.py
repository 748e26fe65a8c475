"""Basic credentials and challenges."""

from base64 import b64encode
from typing import Final, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from authplane.policy.check.answer_headers import fit_value
from authplane.policy.check.basic import (
    Absent,
    Credentials,
    Presented,
    challenge,
    fit_realm,
    header_form,
    parse_credentials,
)
from authplane.policy.check.request import Request


def request(*values: str) -> Request:
    return Request(method="GET", path="/", headers=tuple(("authorization", value) for value in values))


def basic(content: bytes | str) -> str:
    return "Basic " + b64encode(content.encode() if isinstance(content, str) else content).decode()


ALICE: Final = Credentials(user="alice", password=b"wonder")


class Case(NamedTuple):
    values: tuple[str, ...]
    want: Presented | None
    """None means that the credentials are unfit."""


CASES: Final = {
    "no header": Case((), Absent()),
    "user and password": Case((basic("alice:wonder"),), ALICE),
    "the scheme in any case, and more blanks": Case((basic("alice:wonder").replace("Basic ", "bAsIc   "),), ALICE),
    "the password may have colons": Case((basic("a:b:c"),), Credentials(user="a", password=b"b:c")),
    "the password may be empty": Case((basic("a:"),), Credentials(user="a", password=b"")),
    "the user may be any text": Case((basic("é:ö"),), Credentials(user="é", password="ö".encode())),
    "the password may be any bytes": Case((basic(b"a:\xe9"),), Credentials(user="a", password=b"\xe9")),
    "two headers": Case((basic("alice:wonder"), basic("alice:wonder")), None),
    "two in one": Case((f"{basic('alice:wonder')}, {basic('bob:wonder')}",), None),
    "another scheme": Case(("Bearer abc",), None),
    "the scheme alone": Case(("Basic",), None),
    "an empty header": Case(("",), None),
    "no blank": Case(("BasicYTpi",), None),
    "a tab": Case(("Basic\tYTpi",), None),
    "a blank behind": Case(("Basic YTpi ",), None),
    "a line break in the base64": Case(("Basic YT\npi",), None),
    "base64 without its padding": Case(("Basic YTpiYw",), None),
    "base64 of the other alphabet": Case(("Basic YTr_-w==",), None),
    "no colon": Case((basic("alice"),), None),
    "no user": Case((basic(":wonder"),), None),
    "NUL in the password": Case((basic("alice:won\0der"),), None),
    "a line break in the user": Case((basic("a\r\nx: y:b"),), None),
    "a control character of Unicode in the user": Case((basic("a\x85:b"),), None),
    "a user that is not UTF-8": Case((basic(b"caf\xe9:b"),), None),
    "a password of 512 bytes": Case((basic("a:" + "b" * 512),), Credentials(user="a", password=b"b" * 512)),
    "a password of 513 bytes": Case((basic("a:" + "b" * 513),), None),
    "a header of a megabyte": Case((basic("a:" + "b" * 1_000_000),), None),
    "bytes that are not UTF-8": Case(("Basic \udce9",), None),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_parse_credentials(case: Case) -> None:
    found = parse_credentials(request(*case.values))
    assert (found if isinstance(found, Credentials | Absent) else None) == case.want


def test_a_password_is_not_shown() -> None:
    assert "wonder" not in repr(ALICE)


@pytest.mark.requirement("H17")
def test_a_realm_is_escaped() -> None:
    assert challenge('x", charset="UTF-7') == r'Basic realm="x\", charset=\"UTF-7", charset="UTF-8"'
    assert challenge("a\\") == r'Basic realm="a\\", charset="UTF-8"'


@pytest.mark.requirement("H17")
@pytest.mark.parametrize("realm", ["", 'x", charset="UTF-7"\r\n', "a\nb", "\0", "é", " a", "a ", "a" * 129])
def test_an_unfit_realm_is_refused(realm: str) -> None:
    assert not fit_realm(realm)
    with pytest.raises(ValueError, match="a realm has"):
        challenge(realm)


@pytest.mark.parametrize(
    ("user", "written"),
    [
        ("alice", "alice"),
        ("a@b.example", "a@b.example"),
        ("Ann Lee", "Ann Lee"),
        (" a ", "%20a%20"),
        ("  ", "%20%20"),
        ("é", "%C3%A9"),
        ("e\u0301", "e%CC%81"),
        ("%C3%A9", "%25C3%25A9"),
    ],
)
def test_header_form(user: str, written: str) -> None:
    assert header_form(user) == written


@given(st.text(max_size=50), st.text(max_size=50))
def test_no_two_users_have_one_form_and_every_form_fits_a_header(one: str, other: str) -> None:
    if not any("\ud800" <= each <= "\udfff" for each in one + other):
        assert (header_form(one) == header_form(other)) == (one == other)
        assert fit_value(header_form(one))


@given(st.lists(st.text() | st.binary().map(basic), max_size=3))
def test_no_header_makes_parsing_raise(values: list[str]) -> None:
    parse_credentials(request(*values))
