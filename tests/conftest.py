"""Shared test options."""

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files")


class Golden:
    """Compares text with a file beside the test's input."""

    def __init__(self, *, update: bool) -> None:
        self._update = update

    def check(self, path: Path, got: str) -> None:
        if self._update:
            path.write_text(got, encoding="utf-8")
        assert got == path.read_text(encoding="utf-8"), f"{path}: run pytest --update-golden and read the diff"


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    return Golden(update=bool(request.config.getoption("--update-golden")))
