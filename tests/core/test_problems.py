"""Problems and the way to them."""

import pytest

from authplane.core.problems import MOST, Problem, Problems, Severity
from authplane.core.secret import Secret


def test_a_problem_has_the_path_at_which_it_was_found() -> None:
    problems = Problems()
    with problems.at("spec", "routes", 2):
        problems.add("FieldInvalid", "no")
        with problems.at("timeout"):
            problems.warn("IgnoredField", "not used")
    problems.add("Orphaned", "alone")
    assert list(problems) == [
        Problem(("spec", "routes", 2), "FieldInvalid", "no"),
        Problem(("spec", "routes", 2, "timeout"), "IgnoredField", "not used", Severity.WARNING),
        Problem((), "Orphaned", "alone"),
    ]
    assert [str(problem) for problem in problems] == [
        "spec.routes[2]: no [FieldInvalid]",
        "spec.routes[2].timeout: not used [IgnoredField]",
        "alone [Orphaned]",
    ]
    assert [problem.reason for problem in problems.errors] == ["FieldInvalid", "Orphaned"]


def test_of_very_many_errors_all_count_and_only_some_are_kept() -> None:
    problems = Problems()
    with problems.at("spec"):
        for _ in range(3 * MOST):
            problems.add("FieldInvalid", "no")
        problems.warn("IgnoredField", "not used")
    assert problems.error_count == 3 * MOST
    assert problems.errors == (
        *[Problem(("spec",), "FieldInvalid", "no")] * (MOST - 1),
        Problem((), "TooMany", "Only the first 9999 errors are listed. Correct these first."),
    )
    assert problems.warnings == (Problem(("spec",), "IgnoredField", "not used", Severity.WARNING),)


def test_a_message_cannot_garble_a_terminal() -> None:
    problems = Problems()
    problems.add("FieldInvalid", "no \x1b[2J\n\u202e")
    assert next(iter(problems)).message == r"no \x1b[2J\n\u202e"


def test_the_path_is_right_again_after_an_exception() -> None:
    problems = Problems()
    with pytest.raises(KeyError), problems.at("spec"):
        raise KeyError
    problems.add("FieldInvalid", "no")
    assert list(problems) == [Problem((), "FieldInvalid", "no")]


def test_a_secret_does_not_show_itself() -> None:
    secret = Secret(b"password")
    assert "password" not in f"{secret} {secret!r} {[secret]} {(secret,)}"
    assert secret.reveal() == b"password"


def test_problems_of_several_places_are_taken_over_once() -> None:
    problems, found = Problems(), Problems()
    with found.at("spec"):
        found.add("Bad", "no")
        found.warn("Odd", "hm")
    with problems.at("elsewhere"):
        problems.extend(found)
        problems.extend(found)
    assert list(problems) == list(found)
    assert problems.error_count == len(problems.errors) == 1
