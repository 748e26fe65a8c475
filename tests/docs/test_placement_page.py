"""The page about placement says what the code does."""

from tests.support.pages import ROOT, read
from tests.support.policies.accepted_differences import ACCEPTED_DIFFERENCES

PAGE = read(ROOT / "docs" / "explanation" / "placement.md")


def test_the_page_lists_every_known_difference_and_no_other() -> None:
    _, _, table = PAGE.partition("## What Envoy sees differently")
    found = [line for line in table.splitlines() if line.startswith("| ")][1:]
    assert found == [f"| {each.what} | {each.effect} | {each.why} |" for each in ACCEPTED_DIFFERENCES]
