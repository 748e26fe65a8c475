"""The page about CEL says what the code does."""

import re
from pathlib import Path
from typing import Final

import pytest

from authplane.cel.check import admissible_data, regex_patterns
from authplane.cel.check.cost_estimate import MOST_STEPS, MOST_WORK
from authplane.cel.check.expression_outcome import SENTENCES
from authplane.cel.check.forbidden_parts import DEEPEST
from authplane.cel.check.program import LARGEST_TEXT
from authplane.cel.evaluate import slow_programs
from authplane.cel.syntax.vocabulary import ACCESS_POLICY, FUNCTIONS, OPERATORS, Macro

PAGE: Final = (Path(__file__).parents[2] / "docs" / "reference" / "cel.md").read_text(encoding="utf-8")
ROWS: Final = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in PAGE.splitlines() if line[:1] == "|"]


@pytest.mark.requirement("R57")
def test_the_page_lists_the_variables_of_policies() -> None:
    assert [[f"`{each.name}`", each.kind, each.about] for each in ACCESS_POLICY.variables] == [
        row for row in ROWS if row[0].startswith(("`request", "`identity"))
    ]


@pytest.mark.requirement("R57")
def test_the_page_lists_functions_and_macros() -> None:
    listed = {
        kind: set(re.findall(r"`([^`]+)`", found))
        for kind, found in re.findall(
            r"^- (Operators|Functions|Macros): (.*?)\.(?: |$)", PAGE, re.MULTILINE | re.DOTALL
        )
    }
    spelled = {"@in": "in", "_?_:_": "?:", "_[_]": "[]"}
    assert listed == {
        "Operators": {spelled.get(each, each.replace("_", "")) for each in OPERATORS},
        "Functions": set(FUNCTIONS - OPERATORS),
        "Macros": set(Macro),
    }


@pytest.mark.requirement("R57")
def test_the_page_lists_the_codes_of_failures() -> None:
    assert [[f"`{code}`", sentence] for code, sentence in SENTENCES.items()] == ROWS[-len(SENTENCES) :]


def test_the_page_states_the_limits() -> None:
    said = dict(row for row in ROWS if len(row) == 2)
    assert said["text of the expression"] == f"{LARGEST_TEXT:,} bytes"
    assert said["nesting"] == f"{DEEPEST} levels" == f"{admissible_data.MOST_DEPTH} levels"
    assert (
        said["a pattern of `matches`"]
        == f"{regex_patterns.LONGEST} characters, {regex_patterns.LARGEST:,} instructions of RE2"
    )
    assert said["a string"] == f"{admissible_data.MOST_STRING:,} bytes"
    assert said["all data together"].startswith(f"{admissible_data.MOST_DATA:,} bytes")
    assert said["the elements of a list, the members of an inner object"] == f"{admissible_data.MOST_ELEMENTS:,}"
    assert said["steps of loops"] == f"{MOST_STEPS:,}"
    assert MOST_WORK * 1e-7 == 0.5
    patience = slow_programs.PATIENCE
    assert (patience.slow, patience.most, patience.within, patience.rest) == (0.05, 5, 60, 60)
