"""Label selectors."""

from typing import Final, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from authplane.authserver.backends.htpasswd.label_selectors import EVERYTHING, parse_selector


class Case(NamedTuple):
    text: str
    yes: tuple[dict[str, str], ...]
    no: tuple[dict[str, str], ...] = ()


CASES: Final = {
    "nothing selects all": Case(" ", ({}, {"a": "b"})),
    "equal": Case("app=web", ({"app": "web"},), ({}, {"app": "x"}, {"web": "app"})),
    "equal, twice": Case("app == web", ({"app": "web"},), ({"app": "x"},)),
    "not equal holds without the label": Case("app!=web", ({}, {"app": "x"}), ({"app": "web"},)),
    "empty value": Case("app=", ({"app": ""},), ({}, {"app": "x"})),
    "in": Case("tier in (a, b)", ({"tier": "a"}, {"tier": "b"}), ({}, {"tier": "c"})),
    "notin holds without the label": Case("tier notin (a,b)", ({}, {"tier": "c"}), ({"tier": "a"},)),
    "exists": Case("tier", ({"tier": ""}, {"tier": "x"}), ({},)),
    "does not exist": Case("!tier", ({},), ({"tier": ""},)),
    "a key named in": Case("in", ({"in": "x"},), ({},)),
    "all together": Case(
        "example.com/app=web,tier in (a,b) , !old",
        ({"example.com/app": "web", "tier": "a"},),
        ({"example.com/app": "web"}, {"example.com/app": "web", "tier": "a", "old": ""}),
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_selector_selects(case: Case) -> None:
    selector = parse_selector(case.text)
    assert selector is not None
    assert [selector.selects(labels) for labels in case.yes] == [True] * len(case.yes)
    assert [selector.selects(labels) for labels in case.no] == [False] * len(case.no)


@pytest.mark.parametrize(
    "text", [",", "a,", ",a", "a=b,,c=d", "a=b c", "a in b", "a in (b", "a in ()x", "!a=b", "a>1", "=b", "é=b", "-a=b"]
)
def test_what_is_no_selector_is_refused(text: str) -> None:
    assert parse_selector(text) is None


@given(st.text(alphabet="ab=!,() in/.-\n"))
def test_no_text_selects_everything_by_accident(text: str) -> None:
    selector = parse_selector(text)
    assert selector is None or (selector == EVERYTHING) == (not text.strip())
