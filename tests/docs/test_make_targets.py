"""What make offers is listed by make itself and by the page for contributors."""

import re
import subprocess

import pytest
from tests.support.eventually import START_LIMIT
from tests.support.pages import ROOT, read

(PHONY,) = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
TARGETS = set(PHONY.split()) - {"curl"}
"""What people call; curl is a part of others."""


def make(*arguments: str) -> str:
    command = ["make", "--no-print-directory", *arguments]
    return subprocess.run(
        command,
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        timeout=START_LIMIT,
        env={"PATH": "/usr/bin:/bin"},
    ).stdout


@pytest.mark.real
def test_make_without_a_target_only_lists_the_targets() -> None:
    lines = make().splitlines()
    assert {line.split()[1] for line in lines} == TARGETS
    assert all(len(line.split()) > 2 for line in lines)


@pytest.mark.real
def test_make_install_runs_no_tests() -> None:
    assert "pytest" not in make("--dry-run", "--always-make", "install")


def test_the_page_for_contributors_lists_every_target() -> None:
    named = set(re.findall(r"^\| .*?`make ([\w-]+)` \|", read(ROOT / "CONTRIBUTING.md"), re.MULTILINE))
    assert named == TARGETS
