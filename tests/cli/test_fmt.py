"""`authplane fmt`, as a user types it."""

import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.support.pages import ROOT

from authplane.cli.main import build_app

UGLY = "kind: Service\napiVersion: v1\nmetadata:\n    name: x   # x\n"
FINE = "apiVersion: v1\nkind: Service\nmetadata:\n  name: x   # x\n"


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(build_app(), ["fmt", *arguments])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    place = Path("gateway")
    place.mkdir()
    (place / "a.yaml").write_text(UGLY, encoding="utf-8")
    (place / "fine.yml").write_text(FINE, encoding="utf-8")
    (place / "a.test.yaml").write_text("cases:\n  - name: x\n", encoding="utf-8")
    (place / "data.json").write_text('{"a":    1}', encoding="utf-8")
    return place


def test_files_are_written_once_with_their_mode(folder: Path) -> None:
    (folder / "a.yaml").chmod(0o640)
    before = (folder / "fine.yml").stat()
    result = invoke("gateway")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == "formatted gateway/a.test.yaml\nformatted gateway/a.yaml\n3 files, 2 changed\n"
    assert (folder / "a.yaml").read_text(encoding="utf-8") == FINE
    assert stat.S_IMODE((folder / "a.yaml").stat().st_mode) == 0o640
    assert (folder / "fine.yml").stat().st_mtime_ns == before.st_mtime_ns
    assert sorted(path.name for path in folder.iterdir()) == ["a.test.yaml", "a.yaml", "data.json", "fine.yml"]
    assert invoke("gateway").stdout == "3 files, 0 changed\n"


def test_check_writes_nothing_and_prints_the_differences(folder: Path) -> None:
    result = invoke("--check", "gateway/a.yaml", "gateway/fine.yml")
    assert result.exit_code == 1
    assert result.stdout == (
        "--- gateway/a.yaml\n+++ gateway/a.yaml\n@@ -1,4 +1,4 @@\n+apiVersion: v1\n kind: Service\n-apiVersion: v1\n"
        " metadata:\n-    name: x   # x\n+  name: x   # x\n2 files, 1 would change\n"
    )
    assert (folder / "a.yaml").read_text(encoding="utf-8") == UGLY
    assert invoke("--check", "gateway/fine.yml").exit_code == 0


UNREADABLE = {
    "an anchor": (b"a: &x 1\n", "gateway/bad.yaml:1:4: "),
    "no YAML": (b"a: 1\n---\nb: [\n", "gateway/bad.yaml:4:1: "),
    "no UTF-8": (b"a: 1\nb: \xff\n", "gateway/bad.yaml:2:1: "),
    "a key twice": (b"a: 1\na: 2\n", "gateway/bad.yaml:2:1: "),
}


@pytest.mark.parametrize("case", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_a_file_that_cannot_be_read_stays_as_it_is_and_the_others_are_formatted(
    folder: Path, case: tuple[bytes, str]
) -> None:
    content, place = case
    (folder / "bad.yaml").write_bytes(content)
    result = invoke("gateway")
    assert result.exit_code == 1
    assert place in result.stdout
    assert (folder / "bad.yaml").read_bytes() == content
    assert (folder / "a.yaml").read_text(encoding="utf-8") == FINE


def test_a_document_that_cannot_be_moved_is_named(folder: Path) -> None:
    (folder / "a.yaml").write_text("? a\n: b\n", encoding="utf-8")
    result = invoke("gateway/a.yaml")
    assert (result.exit_code, result.stdout) == (0, "1 file, 0 changed\n")
    assert result.stderr.startswith("gateway/a.yaml:1: note: authplane fmt did not change this document")


def test_the_file_behind_a_link_is_replaced_and_the_link_stays(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "real.yaml").write_text(UGLY, encoding="utf-8")
    link = folder / "link.yaml"
    link.symlink_to(tmp_path / "real.yaml")
    assert invoke("gateway/link.yaml").exit_code == 0
    assert link.is_symlink()
    assert (tmp_path / "real.yaml").read_text(encoding="utf-8") == FINE


def test_without_a_path_it_is_the_current_folder_and_a_path_that_is_not_there_is_one_sentence(folder: Path) -> None:
    assert invoke("--check").stdout.endswith("3 files, 2 would change\n")
    result = invoke("missing")
    assert result.exit_code == 2
    assert "missing" in result.stderr
    assert folder.exists()


def test_what_init_writes_is_in_its_form(folder: Path) -> None:
    options = ["--url", "http://127.0.0.1:7000/mcp", "--issuer", "dev", "--group", "readers=list_notes"]
    assert CliRunner().invoke(build_app(), ["init", str(folder / "new"), *options]).exit_code == 0
    result = invoke("--check", str(folder / "new"))
    assert (result.exit_code, result.stderr) == (0, ""), result.stdout


def test_our_examples_are_in_their_form() -> None:
    result = invoke("--check", str(ROOT / "examples"), str(ROOT / "src" / "authplane" / "devkit" / "local" / "sample"))
    assert (result.exit_code, result.stderr) == (0, ""), result.stdout
