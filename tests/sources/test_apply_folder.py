"""Files that are switched together."""

import fcntl
import os
import shutil
from pathlib import Path

import pytest

from authplane.sources.runtime.apply_folder import Applied, ApplyError, apply_folder
from authplane.sources.runtime.read_folder import Folder

BROKEN = "kind: ["


def policy(name: str) -> str:
    head = "---\napiVersion: agentic.networking.x-k8s.io/v1alpha1\nkind: AccessPolicy"
    return f"{head}\nmetadata: {{name: {name}}}\nspec: {{targetRefs: [{{kind: Backend, name: mine}}], rules: []}}\n"


def write(root: Path, **files: str) -> Path:
    """Write files; a double underscore stands for a folder."""
    for name, text in files.items():
        path = root / f"{name.replace('__', '/')}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def names(folder: Folder) -> list[str]:
    return [name.name for name in folder.library.current().resources.access_policies]


def problems(folder: Folder) -> list[str]:
    """Return what is wrong with files; that policies name no Backend is meant."""
    found = [each.problem.reason for each in folder.library.current().findings]
    return [reason for reason in found if reason != "TargetNotFound"]


def switch(root: Path, version: str, **files: str) -> None:
    """Turn the switch of a mounted ConfigMap, and nothing else yet."""
    write(root / f"..{version}", **files)
    (root / "..data_tmp").symlink_to(f"..{version}")
    (root / "..data_tmp").rename(root / "..data")


@pytest.mark.requirement("F14")
def test_a_config_map_changes_when_its_switch_is_turned(tmp_path: Path) -> None:
    switch(tmp_path, "1", a=policy("a"), b=policy("b"))
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").symlink_to(f"..data/{name}.yaml")
    folder = Folder(tmp_path, loosen_after=0)
    folder.scan()
    assert names(folder) == ["a", "b"]
    # The links that people see come later, and go later.
    switch(tmp_path, "2", b=policy("b2"), sub__c=policy("c"))
    assert folder.scan()
    assert names(folder) == ["b2", "c"]
    (tmp_path / "a.yaml").unlink()
    (tmp_path / "sub").symlink_to("..data/sub")
    shutil.rmtree(tmp_path / "..1")
    assert not folder.scan()
    assert not problems(folder)


@pytest.mark.requirement("F14")
def test_a_config_map_with_a_mistake_or_that_loosens_stays_whole(tmp_path: Path) -> None:
    switch(tmp_path, "1", a=policy("a"), b=policy("b"))
    folder = Folder(tmp_path, loosen_after=60)
    folder.scan()
    switch(tmp_path, "2", a=policy("a"), b=BROKEN, c=policy("c"))
    folder.scan()
    assert names(folder) == ["a", "b"]
    switch(tmp_path, "3", b=policy("b"), c=policy("c"))
    folder.scan()
    assert names(folder) == ["a", "b"]
    assert folder.due() is not None
    switch(tmp_path, "4", a=policy("a"), b=policy("b"), c=policy("c"))
    folder.scan()
    assert names(folder) == ["a", "b", "c"]


@pytest.mark.requirement("F01")
def test_a_switch_that_leads_out_is_not_followed(tmp_path: Path) -> None:
    write(tmp_path / "elsewhere", a=policy("stolen"))
    write(tmp_path / "conf", b=policy("b"))
    (tmp_path / "conf/..data").symlink_to("../elsewhere")
    folder = Folder(tmp_path / "conf")
    folder.scan()
    assert names(folder) == ["b"]


class Turning(Folder):
    """A folder whose content is switched while it is read."""

    turn: list[str]

    def _read(self, *given: object) -> bool:
        if self.turn:
            version = self.turn.pop()
            switch(self.root, version, a=policy(f"a{version}"), b=policy(f"b{version}"))
            shutil.rmtree(self.root / f"..{int(version) - 1}")
        return super()._read(*given)  # type: ignore[arg-type]


@pytest.mark.requirement("F14")
def test_what_is_switched_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    switch(tmp_path, "1", a=policy("a1"), b=policy("b1"))
    folder = Turning(tmp_path)
    folder.turn = ["2"]
    folder.scan()
    assert names(folder) == ["a2", "b2"]


@pytest.mark.requirement("F14")
def test_apply_gives_a_folder_the_files_of_another_and_no_others(tmp_path: Path) -> None:
    live = write(tmp_path / "live", a=policy("a"), gone=policy("gone"), sub__x=policy("x"))
    (live / "notes.txt").write_text("mine", encoding="utf-8")
    folder = Folder(live, loosen_after=0)
    folder.scan()
    staged = write(tmp_path / "staged", a=policy("a2"), new=policy("new"), sub__x=policy("x"))
    assert apply_folder(staged, live) == Applied(files=3, added=1, changed=1, removed=1)
    assert folder.scan()
    assert names(folder) == ["a2", "new", "x"]
    assert not problems(folder)
    assert {each.name for each in live.iterdir() if not each.name.startswith(".")} == {
        "a.yaml", "new.yaml", "notes.txt", "sub",
    }  # fmt: skip
    assert (live / "a.yaml").read_text(encoding="utf-8") == policy("a2")
    # Again, and once more from the other side.
    write(staged, a=policy("a3"))
    (staged / "new.yaml").unlink()
    assert apply_folder(staged, live) == Applied(files=2, added=0, changed=1, removed=1)
    assert folder.scan()
    assert names(folder) == ["a3", "x"]
    assert not os.path.lexists(live / "new.yaml")
    assert len([each for each in live.iterdir() if each.name.startswith("..") and each.name != "..data"]) == 1


@pytest.mark.requirement("F14")
def test_old_files_count_no_more_from_the_moment_of_the_switch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    live = write(tmp_path / "live", a=policy("a"), gone=policy("gone"))
    staged = write(tmp_path / "staged", a=policy("a2"))
    monkeypatch.setattr("authplane.sources.runtime.apply_folder._tidy", lambda *_: None)
    apply_folder(staged, live)
    folder = Folder(live, loosen_after=0)
    folder.scan()
    assert names(folder) == ["a2"]
    # What somebody writes there afterwards counts again.
    (live / "gone.yaml").unlink()
    write(live, b=policy("b"), a=policy("mine"))
    folder.scan()
    assert names(folder) == ["b", "mine"]


def test_a_file_that_somebody_edits_after_an_apply_counts(tmp_path: Path) -> None:
    live = tmp_path / "live"
    apply_folder(write(tmp_path / "staged", a=policy("a")), live)
    folder = Folder(live, loosen_after=0)
    folder.scan()
    (live / "a.yaml").write_text(policy("through-the-link"), encoding="utf-8")
    assert folder.scan()
    assert names(folder) == ["through-the-link"]
    write(tmp_path / "other", a=policy("in-its-place"))
    (tmp_path / "other/a.yaml").rename(live / "a.yaml")
    assert folder.scan()
    assert names(folder) == ["in-its-place"]


def test_what_cannot_be_applied_changes_nothing(tmp_path: Path) -> None:
    live = write(tmp_path / "live", a=policy("a"))
    staged = write(tmp_path / "staged", a=policy("b"))
    with pytest.raises(ApplyError, match="are the same folder, or one contains the other"):
        apply_folder(live, live)
    with pytest.raises(ApplyError, match="are the same folder, or one contains the other"):
        apply_folder(tmp_path, live)
    with pytest.raises(ApplyError, match=r"nowhere: No such file or directory"):
        apply_folder(tmp_path / "nowhere", live)
    with pytest.raises(ApplyError, match="is a file"):
        apply_folder(staged / "a.yaml", live)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ApplyError, match="has no files with resources"):
        apply_folder(empty, live)
    opened = os.open(live, os.O_RDONLY)
    fcntl.flock(opened, fcntl.LOCK_EX)
    with pytest.raises(ApplyError, match="Another program is applying"):
        apply_folder(staged, live)
    os.close(opened)
    assert [each.name for each in live.iterdir()] == ["a.yaml"]
