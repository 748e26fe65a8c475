"""The folder of `authplane run`."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from authplane.controlplane.serving.generation import build_generation
from authplane.devkit.local.workspace import WorkspaceError, prepare_identities, prepare_workspace, reset_quickstart
from authplane.policy.compile.compile_policies import compile_policies
from authplane.sources.runtime.read_folder import Folder

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def test_the_quickstart_has_no_problem(tmp_path: Path) -> None:
    workspace = prepare_workspace(tmp_path / "state", NOW)
    prepare_identities(workspace, "127.0.0.1", NOW)
    folder = Folder(workspace.quickstart)
    folder.scan()
    loaded = folder.library.current()
    assert build_generation(loaded).findings == ()
    assert compile_policies(loaded.resources).problems == {}


def test_keys_are_for_their_owner_only(tmp_path: Path) -> None:
    workspace = prepare_workspace(tmp_path / "state", NOW)
    assert workspace.root.stat().st_mode & 0o077 == 0
    for path in (workspace.authserver_key, workspace.quickstart / "certificates.yaml"):
        assert path.stat().st_mode & 0o777 == 0o600


def test_edits_and_certificates_are_kept(tmp_path: Path) -> None:
    workspace = prepare_workspace(tmp_path, NOW)
    (workspace.quickstart / "echo.yaml").write_text("# mine\n", encoding="utf-8")
    before = workspace.ca.read_bytes()
    prepare_workspace(tmp_path, NOW + timedelta(days=30))
    assert (workspace.quickstart / "echo.yaml").read_text(encoding="utf-8") == "# mine\n"
    assert workspace.ca.read_bytes() == before


@pytest.mark.parametrize("spoiled", ["expired", "missing", "garbage"])
def test_expired_certificates_are_created_again(tmp_path: Path, spoiled: str) -> None:
    workspace = prepare_workspace(tmp_path, NOW)
    before, now = workspace.ca.read_bytes(), NOW
    match spoiled:
        case "expired":
            now = NOW + timedelta(days=90)
        case "missing":
            (workspace.quickstart / "certificates.yaml").unlink()
        case _:
            workspace.authserver_certificate.write_text("nonsense", encoding="utf-8")
    prepare_workspace(tmp_path, now)
    assert workspace.ca.read_bytes() != before


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(
        WorkspaceError, match=r"^Cannot write .*file: .* Set --state-dir to a folder that you can write to\.$"
    ):
        prepare_workspace(tmp_path / "file", NOW)


def test_a_reset_makes_the_quickstart_anew_and_keeps_a_backup_of_edits(tmp_path: Path) -> None:
    workspace = prepare_workspace(tmp_path, NOW)
    prepare_identities(workspace, "127.0.0.1", NOW)
    fresh = {path.name: path.read_bytes() for path in workspace.quickstart.iterdir()}
    (workspace.quickstart / "echo.yaml").write_text("# mine\n", encoding="utf-8")
    (workspace.quickstart / "more.yaml").write_text("# more\n", encoding="utf-8")
    (workspace.quickstart / "tools.yaml").unlink()
    backup = reset_quickstart(tmp_path, NOW)
    assert backup == tmp_path / "quickstart-backup-20260301-000000"
    assert {path.name: path.read_text(encoding="utf-8") for path in backup.iterdir()} == {
        "echo.yaml": "# mine\n",
        "more.yaml": "# more\n",
    }
    prepare_workspace(tmp_path, NOW)
    made = {path.name: path.read_bytes() for path in workspace.quickstart.iterdir()}
    samples = fresh.keys() - {"certificates.yaml", "identities.yaml"}
    assert {name: made[name] for name in samples} == {name: fresh[name] for name in samples}
    assert "more.yaml" not in made


def test_a_reset_without_edits_makes_no_backup(tmp_path: Path) -> None:
    assert reset_quickstart(tmp_path / "never-made", NOW) is None
    prepare_workspace(tmp_path, NOW)
    assert reset_quickstart(tmp_path, NOW) is None
