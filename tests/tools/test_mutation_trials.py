"""What becomes of changes: which tests are run for them, and which of those count."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.mutation.mutants import Mutant, mutants_of
from tools.mutation.reached import Reached, Run
from tools.mutation.trial import Fate, Trials, trials

MODULE = """
LIMIT = 3


def fits(number):
    return number < LIMIT


def unused():
    return 1
"""
TESTS = """
from m import fits


def test_sound():
    assert fits(1) and not fits(4)


def test_that_always_fails():
    assert fits(5)
"""
SOUND, FAILING = "tests/test_m.py::test_sound", "tests/test_m.py::test_that_always_fails"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Trials]:
    """Make a small project, and copies of it to change."""
    for name, text in (("src/m.py", MODULE), ("tests/test_m.py", TESTS)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with trials(1) as made:
        yield made


def mutant(text: str) -> Mutant:
    [found] = [each for each in mutants_of("src/m.py", MODULE) if text in str(each)]
    return found


def test_a_change_that_a_test_notices_is_killed_and_one_that_none_notices_survives(project: Trials) -> None:
    assert project.fate(mutant("flipped"), [SOUND]) is Fate.KILLED
    assert project.fate(mutant("boundary"), [SOUND]) is Fate.SURVIVED
    assert project.fate(mutant("flipped"), [SOUND]) is Fate.KILLED, "the change before is taken back"
    assert project.fate(mutant("flipped"), []) is Fate.NOT_TESTED


def test_a_test_that_fails_without_a_change_kills_nothing(project: Trials) -> None:
    assert project.fate(mutant("boundary"), [FAILING]) is Fate.NOT_TESTED
    assert project.fate(mutant("boundary"), [FAILING, SOUND]) is Fate.SURVIVED
    assert project.fate(mutant("flipped"), [FAILING, SOUND]) is Fate.KILLED
    assert project.failing() == [FAILING]


def test_a_change_that_no_test_can_import_is_killed(project: Trials) -> None:
    broken = Mutant(path="src/m.py", line=1, kind="broken", before="", after="", source="1 / 0")
    assert project.fate(broken, [SOUND]) is Fate.KILLED


def test_tests_of_a_line_come_first_those_that_are_quick_and_only_as_many_as_there_is_time_for() -> None:
    runs = {
        "slow": Run(9.0, {"m.py": [6]}),
        "quick": Run(1.0, {"m.py": [6, 10]}),
        "other": Run(0.5, {"m.py": [10]}),
        "elsewhere": Run(0.1, {"n.py": [1]}),
    }
    reached = Reached(runs)
    assert reached.tests("m.py", 6, 60) == ["quick", "slow"]
    assert reached.tests("m.py", 6, 5) == ["quick"]
    assert reached.tests("m.py", 6, 0.5) == ["quick"], "one at least"
    assert reached.tests("m.py", 2, 60) == ["other", "quick", "slow"], "nobody runs it: it is run by the import"
    assert reached.tests("m.py", 6, 60, imported=True) == ["other", "quick", "slow"]


def test_what_runs_when_a_module_is_imported_is_known() -> None:
    found = {str(each).partition(" ")[2]: each.imported for each in mutants_of("src/m.py", MODULE)}
    assert found == {
        "changed number: 3 → 4": True,
        "flipped comparison: number < LIMIT → number >= LIMIT": False,
        "moved boundary: number < LIMIT → number <= LIMIT": False,
        "changed number: 1 → 2": False,
    }
