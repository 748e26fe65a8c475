"""Tests wait long enough for programs that come up on a busy machine."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.support.eventually import LIMIT, START_LIMIT

TESTS: Final = Path(__file__).parents[1]
_WAITS: Final = {"check_output", "communicate", "eventually", "reachable", "ready", "run"}
"""Calls that wait for a program: to start, to end, or to do something."""


def _hurried(text: str) -> Iterator[str]:
    """Find waits for programs whose limit is written as a number that is too small."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        for each in node.keywords if name in _WAITS else ():
            limit = each.value.value if isinstance(each.value, ast.Constant) else None
            if each.arg in {"limit", "timeout"} and isinstance(limit, int | float) and limit < LIMIT:
                yield f"{node.lineno}: {name}({each.arg}={limit})"


def test_no_wait_for_a_program_has_a_small_limit_of_its_own() -> None:
    paths = sorted(TESTS.rglob("*.py"))
    found = [
        f"{path.relative_to(TESTS)}:{each}" for path in paths for each in _hurried(path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(["use LIMIT or START_LIMIT of tests.support.eventually:", *found])


def test_a_small_limit_is_found() -> None:
    text = "eventually(holds, limit=10)\nsubprocess.run(argv, timeout=30)\neventually(holds, limit=START_LIMIT)\n"
    assert list(_hurried(text)) == ["1: eventually(limit=10)", "2: run(timeout=30)"]


def test_a_program_may_take_longer_than_what_it_then_does() -> None:
    assert START_LIMIT >= 2 * LIMIT >= 120
