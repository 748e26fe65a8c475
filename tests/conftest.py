"""Shared test options."""

import gc
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import asyncinotify  # noqa: F401 (its first import starts ldconfig, which no test may do)
import pytest
import structlog
from hypothesis import HealthCheck, settings
from tests.support import alone

pytest_plugins = ("tests.support.kubernetes.fixtures",)

# How long an example takes says more of what else the machine does than of the code.
# The suite asks the same each time; `make fuzz` looks for more.
settings.register_profile("authplane", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("authplane")

# Each program that a test starts would translate all of authplane again: that takes longer than its start.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage while tests are found: nearly all that is made then stays until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_configure() -> None:
    alone.watch()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Let no test start programs but those marked ``real``."""
    if item.get_closest_marker("real") is not None:
        return (yield)
    with alone.alone(item.nodeid):
        return (yield)


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


@pytest.fixture(autouse=True, scope="session")
def _state_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Have programs keep their state where the tests are."""
    os.environ.pop("STATE_DIRECTORY", None)
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(autouse=True)
def _the_log_as_it_was() -> Iterator[None]:
    """Undo what a command that ran in this process did to the log."""
    yield
    structlog.reset_defaults()
