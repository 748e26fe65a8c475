"""Lists of users as htpasswd files write them."""

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.authserver.backends.test_passwords import BCRYPT, KINDS, parsed

from authplane.authserver.backends.htpasswd.users import UserList, parse_users
from authplane.core.problems import Severity

SHA: Final = KINDS["{SHA}"][0]
Line = tuple[int, str]


def problems(content: bytes, *, strict: bool = False, severity: Severity = Severity.ERROR) -> list[Line]:
    spots = parse_users(content, strict=strict).problems
    return [(spot.line, spot.problem.reason) for spot in spots if spot.problem.severity is severity]


@pytest.mark.requirement("H01")
def test_a_bad_line_costs_only_itself() -> None:
    content = f"# users\n\nalice:{BCRYPT}\r\nbob:plainpw\ncarol:$9$x$y\nnobody\n  # more\ndave:{BCRYPT}:a remark\n"
    found = parse_users(content.encode())
    assert dict(found.users) == {"alice": parsed(BCRYPT), "dave": parsed(BCRYPT)}
    assert problems(content.encode()) == [(4, "HashUnknown"), (5, "HashUnknown"), (6, "LineInvalid")]
    assert not any("plainpw" in str(spot.problem) for spot in found.problems)


@pytest.mark.requirement("H02")
@pytest.mark.parametrize("name", [name for name in KINDS if not name.startswith("$2")])
def test_a_weak_hash_is_a_warning_and_in_strict_mode_an_error(name: str) -> None:
    text = KINDS[name][0]
    content = f"alice:{text}\nbob:{BCRYPT}\n".encode()
    assert dict(parse_users(content).users) == {"alice": parsed(text), "bob": parsed(BCRYPT)}
    assert problems(content, severity=Severity.WARNING) == [(1, "HashWeak")]
    assert dict(parse_users(content, strict=True).users) == {"bob": parsed(BCRYPT)}
    assert problems(content, strict=True) == [(1, "HashWeak")]


@pytest.mark.requirement("H02")
def test_des_never_works() -> None:
    assert problems(b"alice:rqXexS6ZhobKA\n") == [(1, "HashUnknown")]


@pytest.mark.requirement("H14")
def test_a_user_that_is_there_twice_costs_the_list() -> None:
    content = f"bob:{BCRYPT}\nalice:{BCRYPT}\nalice:{BCRYPT}\n".encode()
    assert parse_users(content).refused == "'alice' is in lines 2 and 3"
    assert problems(content) == [(3, "UserRepeated")]
    assert parse_users(f"bob:{BCRYPT}\nalice:{BCRYPT}\n".encode()).refused == ""


@pytest.mark.slow
@pytest.mark.requirement("H14")
def test_a_list_has_at_most_a_hundred_thousand_users() -> None:
    most = [f"u{number}:{BCRYPT}" for number in range(100_000)]
    assert parse_users("\n".join(most).encode()).refused == ""
    more = "\n".join([*most, f"v:{BCRYPT}"]).encode()
    assert parse_users(more).refused == "The list has 100001 users; the maximum is 100000"
    assert problems(more) == [(1, "TooManyUsers")]


UNFIT: Final = {
    "empty": b"",
    "a carriage return": b"a\rb",
    "NUL": b"a\0b",
    "escape": b"a\x1b[2J",
    "delete": b"a\x7f",
    "a control character of Unicode": "a\x85b".encode(),
    "too long": b"a" * 256,
    "too long in bytes": "é".encode() * 128,
}


@pytest.mark.parametrize("user", UNFIT.values(), ids=UNFIT.keys())
def test_a_user_that_could_garble_a_header_is_refused(user: bytes) -> None:
    assert problems(user + b":" + BCRYPT.encode() + b"\n") == [(1, "UserInvalid")]


def test_a_line_that_is_not_utf_8_is_refused() -> None:
    assert problems(b"caf\xe9:" + BCRYPT.encode()) == [(1, "LineInvalid")]
    assert problems(b"cafe:" + BCRYPT.encode() + b"\xe9") == [(1, "LineInvalid")]


def test_the_costliest_hash_of_a_list_is_known() -> None:
    slow = parsed(BCRYPT.replace("$04$", "$09$"))
    assert UserList.of({"a": parsed(SHA), "b": slow, "c": parsed(BCRYPT)}).costliest == slow
    assert UserList.of({}).costliest is None


@pytest.mark.parametrize(
    ("content", "cut"),
    [
        (f"a:{BCRYPT}\nb:{BCRYPT[:20]}", True),
        (f"a:{BCRYPT}\nb:{BCRYPT[:20]}\n", False),
        (f"a:{BCRYPT}\nb:{BCRYPT}", False),
        ("", False),
    ],
)
def test_a_bad_last_line_without_an_end_is_a_cut_file(content: str, cut: bool) -> None:
    assert parse_users(content.encode()).cut is cut


@given(st.binary())
def test_no_file_makes_parsing_raise(content: bytes) -> None:
    for text in (content, b"alice:" + BCRYPT.encode() + b"\n" + content):
        found = parse_users(text)
        assert all(0 < spot.line <= text.count(b"\n") + 1 for spot in found.problems)
