from typing import Any, Final

import pytest

from authplane.policy.identity.tokens.check_claims import audience_fits, scopes_fit, scopes_of

AUDIENCES: Final[dict[str, tuple[dict[str, Any], bool]]] = {
    "the one": ({"aud": "a"}, True),
    "one of several": ({"aud": ["x", "a"]}, True),
    "one of several, as frozen claims have it": ({"aud": ("x", "a")}, True),
    "the other one": ({"aud": "b"}, True),
    "a longer text": ({"aud": "xax"}, False),
    "another case": ({"aud": "A"}, False),
    "with a slash": ({"aud": "a/"}, False),
    "none": ({"aud": []}, False),
    "a number": ({"aud": 1}, False),
    "a number beside it": ({"aud": [1, "a"]}, False),
    "an object": ({"aud": {"a": 1}}, False),
    "null": ({"aud": None}, False),
    "an empty text": ({"aud": ""}, False),
    "a list in a list": ({"aud": [["a"]]}, False),
    "missing": ({}, False),
    "two with a blank": ({"aud": "a b"}, False),
}


@pytest.mark.requirement("J17", "S7", "S8")
@pytest.mark.parametrize(("claims", "want"), AUDIENCES.values(), ids=AUDIENCES.keys())
def test_an_audience_is_an_exact_member(claims: dict[str, Any], want: bool) -> None:
    assert audience_fits(claims, ("a", "b")) is want


@pytest.mark.parametrize("claims", [{}, {"aud": "x"}, {"aud": 1}])
def test_without_audiences_none_is_required(claims: dict[str, Any]) -> None:
    assert audience_fits(claims, ())


def test_a_token_for_one_backend_does_not_fit_another() -> None:
    claims = {"aud": ["backend-a"]}
    assert (audience_fits(claims, ["backend-a"]), audience_fits(claims, ["backend-b"])) == (True, False)


SCOPES: Final[dict[str, tuple[dict[str, Any], set[str]]]] = {
    "none": ({}, set()),
    "one": ({"scope": "admin"}, {"admin"}),
    "several": ({"scope": "admin read"}, {"admin", "read"}),
    "two blanks": ({"scope": "admin  read "}, {"admin", "read"}),
    "a tab is no blank": ({"scope": "admin\tread"}, {"admin\tread"}),
    "a list": ({"scope": ["admin", "read"]}, {"admin", "read"}),
    "a list is not split": ({"scope": ["admin read"]}, {"admin read"}),
    "scp as text": ({"scp": "admin read"}, {"admin", "read"}),
    "scp as list": ({"scp": ("admin", "read")}, {"admin", "read"}),
    "both": ({"scope": "a", "scp": ["b"]}, {"a", "b"}),
    "a number": ({"scope": 5}, set()),
    "an object": ({"scope": {"admin": True}}, set()),
    "a number beside it": ({"scope": ["admin", 5]}, set()),
    "an empty text": ({"scope": "", "scp": [""]}, set()),
}


@pytest.mark.parametrize(("claims", "want"), SCOPES.values(), ids=SCOPES.keys())
def test_scopes_of(claims: dict[str, Any], want: set[str]) -> None:
    assert scopes_of(claims) == want


@pytest.mark.requirement("R21")
@pytest.mark.parametrize(
    ("scope", "want"),
    [("admin", True), ("x admin", True), ("write", True), ("adminx", False), ("Admin", False), ("", False)],
)
def test_any_one_of_the_scopes_suffices_and_matches_whole(scope: str, want: bool) -> None:
    for claims in ({"scope": scope}, {"scp": scope}, {"scope": scope.split(" ")}, {"scp": scope.split(" ")}):
        assert scopes_fit(claims, ("admin", "write")) is want


def test_without_scopes_none_is_required() -> None:
    assert scopes_fit({}, ())
