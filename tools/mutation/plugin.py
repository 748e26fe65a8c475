"""A plugin of pytest: notes which lines each test runs, how long it takes, and whether it passes."""

import json
import os
import time
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import coverage
import pytest

TIMES = "AUTHPLANE_MUTATION_TIMES"

_took: Counter[str] = Counter()
_failed: set[str] = set()


def name_of(nodeid: str) -> str:
    """Return the test function; all its parameters count as one test."""
    return nodeid.partition("[")[0]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Let lines count for the test that runs now."""
    name, begun = name_of(item.nodeid), time.perf_counter()
    current = coverage.Coverage.current()
    if current is not None:
        current.switch_context(name)
    try:
        return (yield)
    finally:
        _took[name] += time.perf_counter() - begun  # type: ignore[assignment]  # seconds


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note tests that fail without any change: they can notice nothing."""
    if report.failed:
        _failed.add(name_of(report.nodeid))


def pytest_sessionfinish() -> None:
    """Write down what was noted."""
    kept = {name: took for name, took in _took.items() if name not in _failed}
    Path(os.environ[TIMES]).write_text(json.dumps(kept), encoding="utf-8")
