from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from authplane.policy.identity.workload_identity.spiffe import NotSpiffe, SpiffeId, parse_spiffe_id

GOOD: Final = {
    "spiffe://td/workload": SpiffeId("td", "/workload"),
    "spiffe://example.org/ns/default/sa/agent-1": SpiffeId("example.org", "/ns/default/sa/agent-1"),
    "spiffe://td": SpiffeId("td"),
    "spiffe://a-b_c.d/A/.b/..c/d.._": SpiffeId("a-b_c.d", "/A/.b/..c/d.._"),
    "spiffe://" + "a" * 255 + "/x": SpiffeId("a" * 255, "/x"),
    "spiffe://td/" + "a" * 2036: SpiffeId("td", "/" + "a" * 2036),
}


@pytest.mark.parametrize(("text", "want"), GOOD.items())
def test_a_spiffe_id_is_read_and_written_to_the_letter(text: str, want: SpiffeId) -> None:
    assert parse_spiffe_id(text) == want
    assert str(want) == text


@pytest.mark.requirement("S01")
@pytest.mark.parametrize(
    "text",
    ["SPIFFE://td/a", "Spiffe://td/a", "spiffe://Example.org/a", "spiffe://TD/a", "spiffe:/td/a", "https://td/a"],
)
def test_scheme_and_trust_domain_are_in_lower_case_and_the_path_is_not_folded(text: str) -> None:
    assert isinstance(parse_spiffe_id(text), NotSpiffe)
    assert parse_spiffe_id("spiffe://td/ns/A") != parse_spiffe_id("spiffe://td/ns/a")


BAD: Final = {
    "dots": "spiffe://td/a/../b",
    "a dot": "spiffe://td/a/./b",
    "dots at the end": "spiffe://td/a/..",
    "an empty segment": "spiffe://td/a//b",
    "a slash at the end": "spiffe://td/a/",
    "a slash alone": "spiffe://td/",
    "escaped dots": "spiffe://td/%2e%2e",
    "an escaped letter": "spiffe://td/%41",
    "a query": "spiffe://td/a?q",
    "a fragment": "spiffe://td/a#f",
    "a port": "spiffe://td:443/a",
    "a user": "spiffe://user@td/a",
    "no trust domain": "spiffe:///a",
    "nothing": "spiffe://",
    "an empty text": "",
    "2049 bytes": "spiffe://td/" + "a" * 2037,
    "a trust domain of 256 bytes": "spiffe://" + "a" * 256 + "/x",
    "a letter beyond ASCII": "spiffe://td/\u00e9",
    "a digit beyond ASCII": "spiffe://td/\u0661",
    "a trust domain beyond ASCII": "spiffe://t\u0430d/a",
    "a NUL": "spiffe://td/admin\0.evil",
    "a line break at the end": "spiffe://td/a\n",
    "a blank before": " spiffe://td/a",
    "a star": "spiffe://td/*",
    "a star as trust domain": "spiffe://*/a",
    "a backslash": "spiffe://td\\a",
    "a semicolon": "spiffe://td/a;b",
    "no id at all": "not-a-spiffe-id",
}


@pytest.mark.requirement("S02")
@pytest.mark.parametrize("text", BAD.values(), ids=BAD.keys())
def test_what_is_no_spiffe_id_is_refused_without_being_quoted(text: str) -> None:
    found = parse_spiffe_id(text)
    assert isinstance(found, NotSpiffe)
    assert found.why
    assert "admin" not in found.why


@pytest.mark.requirement("threat:S10", "threat:S12")
def test_ids_are_equal_only_as_a_whole() -> None:
    agent = parse_spiffe_id("spiffe://example.org/ns/default/sa/agent-1")
    for other in (
        "spiffe://example.org/ns/default/sa/agent-10",
        "spiffe://example.org/ns/default/sa/agent",
        "spiffe://example.org.evil/ns/default/sa/agent-1",
        "spiffe://evil.example.org/ns/default/sa/agent-1",
        "spiffe://example.or/ns/default/sa/agent-1",
    ):
        assert isinstance(parse_spiffe_id(other), SpiffeId)
        assert parse_spiffe_id(other) != agent


@given(st.text(alphabet="spife:/td.%2e-_A\0\n", max_size=30) | st.text(max_size=30))
def test_what_is_read_is_written_as_it_was(text: str) -> None:
    for each in (text, f"spiffe://td/{text}", f"spiffe://{text}"):
        found = parse_spiffe_id(each)
        if isinstance(found, SpiffeId):
            assert str(found) == each
            assert each.isascii()
            assert not {".", "..", ""} & set(found.path.split("/")[1:])
