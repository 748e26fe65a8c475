"""What the pages say can be followed: links lead somewhere, commands work and print what is shown."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.support.envoy.validation import validate
from tests.support.eventually import START_LIMIT
from tests.support.pages import PAGES, ROOT, Step, anchors, blocks, links, name_of, read, shows, steps
from tools.gen_docs.command_tables import commands

from authplane.cli.main import build_app

commands()  # While tests are collected: importing Python inside Envoy starts a program, once.

EXAMPLES = sorted(path.parent.name for path in (ROOT / "examples").glob("*/README.md"))
WARNED = {"contour-teams": ["AuthShadow"]}
"""The warnings that examples have, because they show what deserves one."""
WRITTEN = [
    ROOT / "docs" / "how-to" / f"{name}.md"
    for name in (
        "choose-placement",
        "identify-workloads",
        "migrate-from-kube-agentic-networking",
        "migrate-from-oauth2-proxy",
        "migrate-from-opa-envoy",
        "test-policies",
        "try-policies-in-shadow",
        "write-policies",
    )
]
"""The pages whose documents are files that their commands read."""
ENDING = {"validate", "status", "explain", "compile", "bootstrap", "check", "test", "lint", "--version", "--help"}
"""The commands that end by themselves; every command does with ``--help``."""


def arguments(step: Step) -> list[str]:
    """Return the arguments of a command up to what is for the shell."""
    words = shlex.split(step.command.partition("<<")[0], comments=True)
    ends = [index for index, word in enumerate(words) if word in {">", "|", "&&", "&"}]
    return words[: ends[0]] if ends else words


def is_checked(step: Step) -> bool:
    words = arguments(step)
    return words[1] in ENDING or "--help" in words


EVERY = list(dict.fromkeys(step for page in PAGES for step in steps(page) if arguments(step)[:1] == ["authplane"]))
FOLLOWED_WHOLE = ROOT / "docs" / "tutorials"
"""Tutorials are followed from top to bottom, by test_tutorials.py."""
CHECKED = [step for step in EVERY if is_checked(step) and step.page.parent != FOLLOWED_WHOLE]


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the examples, as a user would, and make their Secrets; and the files that pages show."""
    place = tmp_path_factory.mktemp("docs")
    for block in (block for page in WRITTEN for block in blocks(page)):
        if block.language == "yaml":
            file = place / block.text.partition("\n")[0].removeprefix("# ")
            file.parent.mkdir(exist_ok=True)
            file.write_text(block.text, encoding="utf-8")
    shutil.copytree(
        ROOT / "examples", place / "examples", ignore=shutil.ignore_patterns("*.crt", "*.key", "secrets.yaml")
    )
    for example in EXAMPLES:
        script = [sys.executable, "examples/make_secrets.py", f"examples/{example}"]
        subprocess.run(script, cwd=place, check=True, capture_output=True, timeout=START_LIMIT)
    return place


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    missing = []
    for target in links(page):
        file, _, anchor = target.partition("#")
        found = (page.parent / file).resolve() if file else page
        if not found.exists() or (anchor and anchor not in anchors(found)):
            missing.append(target)
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_code_fits_a_web_page(page: Path) -> None:
    assert [line for block in blocks(page) for line in block.text.splitlines() if len(line) > 100] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_fence_is_closed_and_says_its_language(page: Path) -> None:
    fences = [line for line in read(page).splitlines() if line.startswith("```")]
    assert len(fences) == 2 * len(blocks(page))
    assert [block.text for block in blocks(page) if not block.language] == []


@pytest.mark.real
@pytest.mark.parametrize("step", CHECKED, ids=lambda step: step.command)
def test_a_command_of_the_pages_works_and_prints_what_they_show(
    step: Step, copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(copied)
    words = arguments(step)[1:]
    # The certificates of such a page are on other machines; tests/e2e/test_three_machines.py has them.
    elsewhere = ["--skip-file-checks"] if words[0] == "bootstrap" and "--tls-cert-path" in words else []
    result = CliRunner().invoke(build_app(), [*words, *elsewhere], env={"XDG_RUNTIME_DIR": str(copied)})
    assert (result.exit_code, re.sub(r"^The folder has 0 errors, .+\n", "", result.stderr)) == (0, "")
    assert step.output is None or shows(step.output, result.stdout), result.stdout


FOLLOWED = sorted(
    {step.page for step in CHECKED if " examples/" in step.command and step.page.parent != ROOT / "examples"}
)


@pytest.mark.real
@pytest.mark.parametrize("page", FOLLOWED, ids=name_of)
def test_a_newcomer_can_follow_a_page_from_its_top_in_a_fresh_clone(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ignored = shutil.ignore_patterns("*.crt", "*.key", "secrets.yaml")
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=ignored)
    monkeypatch.chdir(tmp_path)
    failed = []
    for step in steps(page):
        words = arguments(step)
        if words[:2] == ["python", "examples/make_secrets.py"]:
            subprocess.run([sys.executable, *words[1:]], check=True, capture_output=True, timeout=60)
        elif words[:1] == ["authplane"] and is_checked(step) and any(each.startswith("examples/") for each in words):
            result = CliRunner().invoke(build_app(), words[1:], env={"XDG_RUNTIME_DIR": str(tmp_path)})
            failed += [step.command] * (
                result.exit_code != 0
                or "The folder has no virtual host and no gRPC server that authplane can serve" in result.stdout
            )
    assert failed == []


def test_what_a_page_leaves_out_is_the_only_thing_that_may_differ() -> None:
    assert shows("a\n…\nc\n", "a\nb\nb\nc\n")
    assert not shows("a\n…\nd\n", "a\nb\nc\n")
    assert not shows("a\n", "a\nb\n")


def test_the_yaml_of_the_page_for_contour_users_is_in_an_example() -> None:
    examples = [path.read_text(encoding="utf-8") for path in (ROOT / "examples").glob("*/*.yaml")]
    pages = [
        ROOT / "docs" / "how-to" / name for name in ("authorize-with-httpproxy.md", "limit-httpproxy-authorization.md")
    ]
    shown = [block.text for page in pages for block in blocks(page) if block.language == "yaml"]
    assert len(shown) > 5
    assert [text for text in shown if not any(text in example for example in examples)] == []


MIGRATIONS = sorted((ROOT / "docs" / "how-to").glob("migrate-from-*.md"))


@pytest.mark.parametrize("page", MIGRATIONS, ids=name_of)
def test_a_page_about_a_migration_has_an_example_the_concepts_and_what_is_missing(page: Path) -> None:
    headings = [line for line in read(page).splitlines() if line.startswith("## ")]
    assert headings[-2:] == ["## Concepts", "## What does not carry over"]
    assert [step.command for step in CHECKED if step.page == page and step.command.startswith("authplane test ")] != []


def test_no_page_lets_several_workers_share_a_socket() -> None:
    assert [step.command for step in EVERY if re.search(r"--address unix:.*--workers ([2-9]|\d\d)", step.command)] == []


@pytest.mark.parametrize("step", EVERY, ids=lambda step: step.command)
def test_a_command_of_the_pages_has_options_that_exist(step: Step) -> None:
    result = CliRunner().invoke(build_app(), [*arguments(step)[1:], "--help"])
    assert (result.exit_code, result.stderr) == (0, "")


@pytest.mark.real
@pytest.mark.parametrize("example", EXAMPLES)
async def test_an_example_with_secrets_is_valid_and_envoy_accepts_it(example: str, copied: Path) -> None:
    folder = str(copied / "examples" / example)
    found = CliRunner().invoke(build_app(), ["validate", folder, "-o", "json"])
    reasons = [finding["reason"] for finding in json.loads(found.stdout)]
    assert (found.exit_code, reasons) == (0, WARNED.get(example, []))
    verdict = await validate(CliRunner().invoke(build_app(), ["compile", folder, "--bootstrap"]).stdout)
    assert verdict.ok, verdict.output


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_without_secrets_serves_nothing_unprotected(example: str) -> None:
    files = [path.name for path in (ROOT / "examples" / example).iterdir()]
    if "secrets.yaml" in files:
        pytest.skip("somebody has made Secrets here")
    compiled = CliRunner().invoke(build_app(), ["compile", str(ROOT / "examples" / example)])
    assert compiled.stdout.startswith("The folder has no virtual host and no gRPC server that authplane can serve. ")
