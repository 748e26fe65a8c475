"""The hooks for pre-commit and the step for GitHub Actions do what docs/how-to/check-in-ci.md says."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from tests.support.eventually import START_LIMIT
from tests.support.pages import ROOT, blocks

HOOKS: Final[list[dict[str, Any]]] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
ACTION: Final[dict[str, Any]] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
EXAMPLE: Final = ROOT / "examples" / "oidc-tools"


def run(command: str, **more: str) -> int:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path} | more
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command], env=environment, check=False, timeout=START_LIMIT
    ).returncode


@pytest.mark.real
@pytest.mark.parametrize("hook", HOOKS, ids=[each["id"] for each in HOOKS])
def test_a_hook_passes_on_good_resources_and_fails_on_bad_ones(hook: dict[str, Any], tmp_path: Path) -> None:
    assert run(f"{hook['entry']} {EXAMPLE}") == 0
    (tmp_path / "policy.yaml").write_text("kind: AccessPolicy\napiVersion: agentic.networking.x-k8s.io/v1alpha1\n")
    (tmp_path / "policy.test.yaml").write_text("[]\n")
    assert run(f"{hook['entry']} {tmp_path}") == 1


def steps() -> list[dict[str, Any]]:
    """Return the steps after the one that installs the package."""
    found: list[dict[str, Any]] = ACTION["runs"]["steps"]
    assert "pip install" in found[0]["run"]
    return found[1:]


def outcomes(**inputs: str) -> list[int]:
    given = {name: inputs.get(name, each["default"]) for name, each in ACTION["inputs"].items()}
    found = []
    for step in steps():
        values = {name: given[text.strip("${ }").removeprefix("inputs.")] for name, text in step["env"].items()}
        found.append(run(step["run"], **values))
    return found


@pytest.mark.real
def test_the_step_for_github_actions_validates_lints_and_tests() -> None:
    assert outcomes(folder=str(EXAMPLE), format="true") == [0, 0, 0, 0]
    assert outcomes(folder=str(EXAMPLE), strict="true") == [0, 1, 0, 0]
    assert outcomes(folder=str(EXAMPLE), tests=str(ROOT / "docs")) == [0, 0, 0, 2]


@pytest.mark.real
def test_the_github_actions_step_checks_the_format_if_configured(tmp_path: Path) -> None:
    (tmp_path / "all.yaml").write_text("kind: Service\napiVersion: v1\nmetadata: {name: x}\n")
    assert outcomes(folder=str(tmp_path), tests=str(EXAMPLE), format="true") == [0, 0, 1, 0]
    assert outcomes(folder=str(tmp_path), tests=str(EXAMPLE)) == [0, 0, 0, 0]


def test_the_page_names_hooks_and_inputs_that_exist() -> None:
    hooks, action = [
        yaml.safe_load(each.text)
        for each in blocks(ROOT / "docs" / "how-to" / "check-in-ci.md")
        if each.language == "yaml"
    ]
    named = [each["id"] for repo in hooks["repos"] for each in repo["hooks"]]
    assert named == [each["id"] for each in HOOKS]
    assert set(action["steps"][1]["with"]) <= set(ACTION["inputs"])
