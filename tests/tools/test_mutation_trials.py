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
    assert not fits
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


@pytest.mark.real
def test_only_a_test_that_passes_without_the_change_kills_it(project: Trials) -> None:
    assert project.fate(mutant("flipped"), [FAILING, SOUND]) is Fate.KILLED
    assert project.failing() == [FAILING]
    assert project.fate(mutant("boundary"), [FAILING, SOUND]) is Fate.SURVIVED, "the change before is taken back"
    assert project.fate(mutant("boundary"), [FAILING]) is Fate.NOT_TESTED
    broken = Mutant(path="src/m.py", line=1, kind="broken", before="", after="", source="1 / 0")
    assert project.fate(broken, [SOUND]) is Fate.KILLED, "no test can import it"


def test_tests_of_a_line_come_by_their_time_and_only_as_many_as_there_is_time_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("test_a.py", "test_b.py"):
        (tmp_path / name).write_text("from n import x" if name == "test_b.py" else "", encoding="utf-8")
    reached = Reached(
        {
            "test_a.py::slow": Run(9.0, {"m.py": [6]}),
            "test_a.py::quick": Run(1.0, {"m.py": [6, 10], "n.py": [6]}),
            "test_a.py::other": Run(0.5, {"m.py": [10]}),
            "test_b.py::about": Run(9.0, {"n.py": [6]}),
            "test_b.py::table": Run(0.1, {}),
        }
    )

    def tests(path: str, line: int, seconds: float = 60, *, imported: bool = False) -> list[str]:
        return [each.partition("::")[2] for each in reached.tests(path, line, seconds, imported=imported)]

    assert tests("m.py", 6) == ["quick", "slow"]
    assert tests("m.py", 6, 5) == ["quick"]
    assert tests("m.py", 6, 0.5) == ["quick"], "one at least"
    assert tests("m.py", 2) == ["other", "quick", "slow"], "nobody runs it: it is run by the import"
    assert tests("m.py", 6, imported=True) == ["other", "quick", "slow"]
    assert tests("n.py", 6) == ["about", "quick"], "those that are about the module come first"
    assert tests("n.py", 2) == ["table", "about", "quick"], "a table has no lines that are run"


def test_what_runs_when_a_module_is_imported_is_known() -> None:
    found = {str(each).partition(" ")[2]: each.imported for each in mutants_of("src/m.py", MODULE)}
    assert found == {
        "changed number: 3 → 4": True,
        "flipped comparison: number < LIMIT → number >= LIMIT": False,
        "moved boundary: number < LIMIT → number <= LIMIT": False,
        "changed number: 1 → 2": False,
    }
