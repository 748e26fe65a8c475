"""What Linux tells of changes."""

import os
import shutil
from pathlib import Path

import pytest

from authplane.sources.runtime.inotify import ANYTHING, NOTHING, Inotify, Seen

LIMIT = 5.0


def paths(*found: Path) -> Seen:
    return frozenset(map(str, found))


def write(path: Path) -> Path:
    path.write_text("x", encoding="utf-8")
    return path


def queue_length() -> int:
    return int(Path("/proc/sys/fs/inotify/max_queued_events").read_text(encoding="ascii"))


async def test_every_kind_of_change_names_its_path(tmp_path: Path) -> None:
    (tmp_path / ".hidden/sub").mkdir(parents=True)
    there = [write(tmp_path / name) for name in ("written", "removed", "moved", "rights", ".hidden/sub/deep")]
    with Inotify(tmp_path, recursive=True) as changes:
        write(tmp_path / "written")
        write(tmp_path / ".hidden/sub/deep")
        (tmp_path / "removed").unlink()
        (tmp_path / "moved").rename(tmp_path / "\udcff")
        (tmp_path / "rights").chmod(0o600)
        write(tmp_path / "made")
        assert await changes.wait(LIMIT) == paths(*there, tmp_path / "made", tmp_path / "\udcff")
        assert await changes.wait(0.01) == NOTHING


async def test_a_file_changes_when_its_writer_closes_it(tmp_path: Path) -> None:
    file = write(tmp_path / "file")
    with Inotify(tmp_path, recursive=True) as changes:
        with file.open("w", encoding="utf-8") as writer:
            writer.write("half")
            writer.flush()
            assert await changes.wait(LIMIT) == NOTHING
            assert changes.unfinished == paths(file)
            (tmp_path / "sub").mkdir()
            assert await changes.wait(LIMIT) is ANYTHING
            assert changes.unfinished == paths(file)
        assert await changes.wait(LIMIT) == paths(file)
        assert changes.unfinished == NOTHING


async def test_a_file_that_is_never_closed_is_finished_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("authplane.sources.runtime.inotify.LONGEST_WRITE", 0.0)
    file = write(tmp_path / "file")
    with Inotify(tmp_path, recursive=True) as changes:
        os.truncate(file, 0)
        assert await changes.wait(LIMIT) == NOTHING
        assert await changes.wait(0.01) == paths(file)
        assert changes.unfinished == NOTHING


async def test_folders_may_be_anything_and_are_watched_from_then_on(tmp_path: Path) -> None:
    with Inotify(tmp_path, recursive=True) as changes:
        (tmp_path / "a/b").mkdir(parents=True)
        assert await changes.wait(LIMIT) is ANYTHING
        write(tmp_path / "a/b/file")
        assert await changes.wait(LIMIT) == paths(tmp_path / "a/b/file")
        (tmp_path / "a").rename(tmp_path / "c")
        assert await changes.wait(LIMIT) is ANYTHING
        write(tmp_path / "c/b/file")
        assert await changes.wait(LIMIT) == paths(tmp_path / "c/b/file")
        shutil.rmtree(tmp_path / "c")
        assert await changes.wait(LIMIT) is ANYTHING
        assert await changes.wait(0.01) == NOTHING


async def test_a_folder_that_moved_away_is_watched_no_more(tmp_path: Path) -> None:
    (tmp_path / "root/sub").mkdir(parents=True)
    with Inotify(tmp_path / "root", recursive=True) as changes:
        (tmp_path / "root/sub").rename(tmp_path / "away")
        assert await changes.wait(LIMIT) is ANYTHING
        write(tmp_path / "away/file")
        assert await changes.wait(0.05) == NOTHING


async def test_only_the_folder_itself_is_watched_if_so_told(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    with Inotify(tmp_path, recursive=False) as changes:
        write(tmp_path / "sub/file")
        assert await changes.wait(0.05) == NOTHING
        write(tmp_path / "file")
        assert await changes.wait(LIMIT) == paths(tmp_path / "file")


@pytest.mark.slow
async def test_more_changes_than_the_system_remembers_may_be_anything(tmp_path: Path) -> None:
    files = [write(tmp_path / "a"), write(tmp_path / "b")]
    remembered = queue_length()
    with Inotify(tmp_path, recursive=True) as changes:
        for _ in range(remembered // 2 + 1):
            for file in files:
                os.utime(file)
        assert await changes.wait(LIMIT) is ANYTHING
        write(files[0])
        assert await changes.wait(LIMIT) == paths(files[0])


async def test_a_root_that_is_gone_is_an_error(tmp_path: Path) -> None:
    root = tmp_path / "root"
    with pytest.raises(FileNotFoundError):
        Inotify(root, recursive=True)
    root.mkdir()
    with Inotify(root, recursive=True) as changes:
        root.rmdir()
        with pytest.raises(FileNotFoundError):
            await changes.wait(LIMIT)
