from typing import Final

import pytest

from authplane.policy.check.basic import Absent, Unfit
from authplane.policy.check.request import Request
from authplane.policy.identity.tokens.bearer import EMPTY, Bearer, Shown, parse_bearer


def shown(*values: str, query: str = "", **others: str) -> Shown:
    headers = [("authorization", value) for value in values] + list(others.items())
    return parse_bearer(Request(method="GET", path="/", query=query, headers=tuple(headers)))


HEADERS: Final[dict[str, tuple[tuple[str, ...], Shown]]] = {
    "a token": (("Bearer a.b.c",), Bearer("a.b.c")),
    "in lower case": (("bearer a.b.c",), Bearer("a.b.c")),
    "more blanks": (("BEARER   a.b.c ",), Bearer("a.b.c")),
    "none": ((), Absent()),
    "a password": (("Basic YTpi",), Absent()),
    "no scheme": (("a.b.c",), Absent()),
    "a longer scheme": (("Bearer2 a.b.c",), Absent()),
    "nothing behind it": (("Bearer",), EMPTY),
    "blanks behind it": (("Bearer  ",), EMPTY),
    "two tokens": (("Bearer a.b.c d.e.f",), Unfit("not exactly one bearer token")),
    "two headers that a proxy joined": (
        ("Bearer a.b.c,Bearer d.e.f",),
        Unfit("not exactly one bearer token"),
    ),
    "two headers": (("Bearer a.b.c", "Bearer a.b.c"), Unfit("more than one Authorization header")),
    "a password besides": (("Bearer a.b.c", "Basic YTpi"), Unfit("more than one Authorization header")),
}


@pytest.mark.requirement("A6")
@pytest.mark.parametrize(("values", "want"), HEADERS.values(), ids=HEADERS.keys())
def test_parse_bearer(values: tuple[str, ...], want: Shown) -> None:
    assert shown(*values) == want


@pytest.mark.requirement("A6")
def test_tokens_elsewhere_are_not_looked_at() -> None:
    assert shown(query="access_token=a.b.c", cookie="access_token=a.b.c") == Absent()


def test_a_token_does_not_show_in_what_may_be_logged() -> None:
    assert "a.b.c" not in repr(shown("Bearer a.b.c"))
