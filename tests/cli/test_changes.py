"""What changed for Envoy, as a person reads it."""

from typing import NamedTuple

import pytest

from authplane.cli.shared.change_lines import applied_line, changes_line


class Case(NamedTuple):
    difference: dict[str, list[str]]
    want: str


CASES = {
    "nothing": Case({}, "Envoy's configuration is unchanged"),
    "several kinds": Case(
        {"listeners changed": ["a"], "routes removed": ["b#1", "c#1"]}, "listeners changed: a; routes removed: b, c"
    ),
    "a table with other filters is the same to people": Case(
        {"routes added": ["a#2", "new#2"], "routes changed": ["b#1"], "routes removed": ["a#1", "old#1"]},
        "routes changed: a, b; routes added: new; routes removed: old",
    ),
    "other kinds stay apart": Case(
        {"routes added": ["a#2"], "clusters removed": ["a"]}, "routes added: a; clusters removed: a"
    ),
    "many": Case({"routes added": ["a", "b", "c", "d", "e"]}, "routes added: a, b, c and 2 more"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_line_says_what_changed(case: Case) -> None:
    assert changes_line(case.difference) == case.want


def test_a_line_says_whether_the_files_are_in_force() -> None:
    unchanged = changes_line({})
    assert applied_line(unchanged, errors=False) == "applied all resources; Envoy's configuration is unchanged"
    assert applied_line(unchanged, errors=True) == (
        "resources with errors are not applied; Envoy's configuration is unchanged"
    )
