"""`authplane apply`: all files of a folder at once, or none."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.support.resources.contour_documents import whole

from authplane.cli.main import build_app


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(build_app(), list(map(str, arguments)))


@pytest.fixture
def staged(tmp_path: Path) -> Path:
    made = tmp_path / "staged"
    made.mkdir()
    for name, text in whole().items():
        (made / f"{name}.yaml").write_text(text, encoding="utf-8")
    return made


@pytest.mark.requirement("F14")
def test_what_is_good_is_applied_and_read_from_there(staged: Path, tmp_path: Path) -> None:
    files = len(list(staged.iterdir()))
    result = invoke("apply", staged, tmp_path / "live")
    assert (result.exit_code, " ".join(result.stdout.split())) == (
        0, f"Applied {files} files to {tmp_path}/live: {files} added, 0 changed, 0 removed.",
    )  # fmt: skip
    assert invoke("validate", tmp_path / "live").exit_code == 0


@pytest.mark.requirement("F14")
def test_an_error_leaves_everything_as_it_was(staged: Path, tmp_path: Path) -> None:
    live = tmp_path / "live"
    live.mkdir()
    (live / "mine.yaml").write_text("# mine", encoding="utf-8")
    (staged / "bad.yaml").write_text("kind: [", encoding="utf-8")
    result = invoke("apply", staged, live)
    assert result.exit_code == 1
    assert f"{staged}/bad.yaml:1" in result.stderr
    assert "Fix the errors above and apply again." in result.stderr
    assert [each.name for each in live.iterdir()] == ["mine.yaml"]


def test_what_cannot_be_done_is_one_sentence(staged: Path) -> None:
    result = invoke("apply", staged, staged / "inside")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert "are the same folder, or one contains the other" in result.stderr
    missing = invoke("apply", staged / "missing", staged)
    assert (missing.exit_code, missing.stderr.count("\n")) == (2, 1)
