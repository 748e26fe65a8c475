"""Commands start soon: each imports what it needs, and no more."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.resources.contour_documents import whole
from tests.support.timing import quickest

pytestmark = pytest.mark.real

HEAVY = {"asyncio", "cel", "envoy", "google", "grpc", "joserfc", "mcp", "pyvoy", "rich", "structlog", "typer", "yaml"}
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Write a small folder: a host with TLS and an authorization service."""
    for name, text in whole().items():
        (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")
    return tmp_path


def loaded_by(*arguments: str) -> set[str]:
    """Return the modules that a command imports."""
    program = (
        "import sys\nfrom authplane.cli.main import main\n"
        f"sys.argv = ['authplane', *{arguments!r}]\n"
        "try:\n    main()\nexcept SystemExit as ended:\n    print(ended.code, *sys.modules, file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    status, *modules = done.stderr.splitlines()[-1].split()
    assert status == "0", done.stderr
    return set(modules)


def tops(modules: set[str]) -> set[str]:
    return {module.partition(".")[0] for module in modules}


def processor_time(*arguments: str) -> float:
    """Return the processor time of a command in seconds, user and system."""
    child = subprocess.Popen([sys.executable, "-m", "authplane", *arguments], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0
    return used.ru_utime + used.ru_stime


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_what_is_about_no_command_imports_none(argument: str) -> None:
    modules = loaded_by(argument)
    assert tops(modules) & HEAVY == set()
    assert [each for each in modules if each.startswith(("authplane.policy", "authplane.resources"))] == []


def test_a_folder_is_validated_without_what_serves_it(small: Path) -> None:
    modules = loaded_by("validate", str(small))
    assert tops(modules) & (HEAVY - {"cel", "google", "yaml"}) == set()
    products = ("authplane.authserver", "authplane.dataplane", "authplane.controlplane.render", "authplane.devkit")
    assert [each for each in modules if each.startswith(products)] == []


def test_help_takes_less_than_three_tenths_of_a_second_of_a_processor() -> None:
    assert quickest(lambda: processor_time("--help")) < 0.3


@pytest.mark.parametrize("example", ["oidc-tools", "spiffe-expressions"])
def test_validating_an_example_takes_less_than_a_second_of_a_processor(example: str, tmp_path: Path) -> None:
    folder = shutil.copytree(EXAMPLES / example, tmp_path / example)
    processor_time("validate", str(folder))  # what is compiled once is compiled now
    assert quickest(lambda: processor_time("validate", str(folder))) < 1.0
