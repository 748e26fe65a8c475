"""Files on disk to resources."""

import os
import resource
import shutil
import socket
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from authplane.resources.loaded_resources import Loaded
from authplane.sources.runtime.read_folder import Folder, FolderError, shown


def service(name: str) -> str:
    return f"apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\n"


def names(folder: Folder) -> list[str]:
    return [name.name for name in folder.library.current().resources.services]


def findings(folder: Folder) -> list[str]:
    return [f"{finding.place}: {finding.problem}" for finding in folder.library.current().findings]


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_files_of_three_endings_are_read_at_any_depth(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", service("a"))
    write(tmp_path / "deep/er/b.yml", service("b"))
    write(tmp_path / "c.json", '{"apiVersion":"v1","kind":"Service","metadata":{"name":"c"}}')
    for other in (
        ".hidden.yaml",
        ".git/x.yaml",
        "d.yaml~",
        ".d.yaml.swp",
        "#e.yaml#",
        "README.md",
        "x.test.yaml",
        "y/z.test.json",
        "authplane.schema.json",
        "y/authplane.schema.json",
    ):
        write(tmp_path / other, service("other"))
    folder = Folder(tmp_path)
    assert folder.scan()
    assert names(folder) == ["a", "b", "c"]
    assert not folder.scan()


def test_a_single_file_is_read_whatever_its_name(tmp_path: Path) -> None:
    folder = Folder(write(tmp_path / "resources.txt", service("a")))
    assert folder.scan()
    assert names(folder) == ["a"]


def test_findings_name_files_as_the_user_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "conf/x/a.yaml", "- a")
    monkeypatch.chdir(tmp_path)
    for root, file in (
        (Path("conf"), "conf/x/a.yaml"),
        (Path(), "conf/x/a.yaml"),
        (tmp_path, f"{tmp_path}/conf/x/a.yaml"),
    ):
        folder = Folder(root)
        folder.scan()
        assert [str(finding.place) for finding in folder.library.current().findings] == [f"{file}:1:1"]


def test_changed_added_renamed_and_deleted_files_are_noticed(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    assert not folder.scan()
    a = write(tmp_path / "a.yaml", service("a"))
    assert folder.scan()
    write(a, service("b"))
    assert folder.scan()
    assert names(folder) == ["b"]
    a.rename(tmp_path / "z.yaml")
    assert folder.scan()
    assert names(folder) == ["b"]
    (tmp_path / "z.yaml").unlink()
    assert folder.scan()
    assert folder.library.current() == Loaded()


def test_a_write_of_the_same_size_at_the_same_moment_is_noticed(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    for name in ("a", "b", "c", "d"):
        write(tmp_path / "a.yaml", service(name))
        assert folder.scan()
        assert names(folder) == [name]


def test_new_times_or_rights_without_new_content_are_no_change(tmp_path: Path) -> None:
    path = write(tmp_path / "a.yaml", service("a"))
    folder = Folder(tmp_path)
    folder.scan()
    path.chmod(0o640)
    assert not folder.scan()
    os.utime(path, (1, 1))
    assert not folder.scan()
    write(path, service("a"))
    assert not folder.scan()


@pytest.mark.requirement("F01")
def test_a_link_out_of_the_folder_is_not_followed_and_what_was_there_stays(tmp_path: Path) -> None:
    write(tmp_path / "secret.yaml", service("stolen"))
    write(tmp_path / "elsewhere/x.yaml", service("stolen"))
    inside = write(tmp_path / "conf/a.yaml", service("a"))
    folder = Folder(tmp_path / "conf")
    folder.scan()
    inside.unlink()
    inside.symlink_to("../secret.yaml")
    (tmp_path / "conf/sub").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "conf/sub.txt").symlink_to("/etc/hostname")
    assert folder.scan()
    assert names(folder) == ["a"]
    out = "The link points outside the folder, so authplane does not follow it. Copy the file into the folder."
    assert findings(folder) == [
        f"{tmp_path}/conf/a.yaml: {out} The last good version of the file stays in force. [FileUnreadable]",
        f"{tmp_path}/conf/sub: {out} authplane uses nothing from the file until you correct it. [FileUnreadable]",
    ]
    assert not folder.scan()
    inside.unlink()
    (tmp_path / "conf/sub").unlink()
    assert folder.scan()
    assert folder.library.current() == Loaded()


@pytest.mark.requirement("F01")
def test_a_policy_behind_a_link_out_of_the_folder_goes_as_slowly_as_any_other(tmp_path: Path) -> None:
    head = "apiVersion: agentic.networking.x-k8s.io/v1alpha1\nkind: AccessPolicy\nmetadata: {name: p}\n"
    path = write(tmp_path / "a.yaml", head + "spec: {targetRefs: [{kind: Backend, name: mine}], rules: []}\n")
    folder = Folder(tmp_path, loosen_after=60)
    folder.scan()
    path.unlink()
    path.symlink_to("/etc/hostname")
    folder.scan()
    path.unlink()
    removed = time.monotonic()
    folder.scan()
    assert [name.name for name in folder.library.current().resources.access_policies] == ["p"]
    due = folder.due()
    assert due is not None
    assert due >= removed + 60


def test_the_links_of_a_mounted_config_map_are_followed(tmp_path: Path) -> None:
    write(tmp_path / "..1/a.yaml", service("a"))
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "a.yaml").symlink_to("..data/a.yaml")
    folder = Folder(tmp_path)
    assert folder.scan()
    assert names(folder) == ["a"]
    write(tmp_path / "..2/a.yaml", service("b"))
    (tmp_path / "..data_tmp").symlink_to("..2")
    (tmp_path / "..data_tmp").rename(tmp_path / "..data")
    assert folder.scan()
    assert names(folder) == ["b"]
    assert findings(folder) == []


def test_loops_and_links_to_what_is_read_anyway_end(tmp_path: Path) -> None:
    write(tmp_path / "a/x.yaml", service("x"))
    (tmp_path / "a/loop").symlink_to("..")
    (tmp_path / "again").symlink_to("a")
    (tmp_path / "y.yaml").symlink_to("a/x.yaml")
    (tmp_path / "self").symlink_to("self")
    folder = Folder(tmp_path)
    folder.scan()
    assert names(folder) == ["x"]
    assert findings(folder) == []


def test_a_link_to_nothing_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").symlink_to("gone")
    (tmp_path / "b.yaml").symlink_to("b.yaml")
    folder = Folder(tmp_path)
    folder.scan()
    assert findings(folder) == [
        f"{tmp_path}/a.yaml: Cannot follow the link: No such file or directory. Correct or remove it. [FileUnreadable]",
        f"{tmp_path}/b.yaml: Cannot follow the link: Too many levels of symbolic links. Correct or "
        "remove it. [FileUnreadable]",
    ]
    (tmp_path / "a.yaml").unlink()
    write(tmp_path / "a.yaml", service("a"))
    (tmp_path / "b.yaml").unlink()
    assert folder.scan()
    assert names(folder) == ["a"]
    assert findings(folder) == []


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


@pytest.mark.requirement("F07")
@pytest.mark.parametrize("make", [os.mkfifo, make_socket], ids=["fifo", "socket"])
def test_what_is_no_file_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], None]
) -> None:
    monkeypatch.chdir(tmp_path)
    make(Path("pipe.yaml"))
    Path("link.yaml").symlink_to("pipe.yaml")
    write(tmp_path / "a.yaml", service("a"))
    folder = Folder(Path())
    folder.scan()
    assert names(folder) == ["a"]


@pytest.mark.requirement("F07")
def test_a_file_beyond_the_limit_is_a_finding(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", service("a") + "# " + "x" * 100)
    folder = Folder(tmp_path, largest_file=100)
    folder.scan()
    assert findings(folder) == [
        f"{tmp_path}/a.yaml: The file is larger than 100 bytes, so authplane does not read it. Split the file. "
        "[FileUnreadable]"
    ]
    write(tmp_path / "a.yaml", service("a"))
    assert folder.scan()
    assert names(folder) == ["a"]
    assert findings(folder) == []


@contextmanager
def no_more_files() -> Generator[None]:
    """Let the process open nothing."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.requirement("F07")
def test_where_no_file_can_be_opened_nothing_is_lost_and_all_is_found_again(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / f"{name}.yaml", service(name))
    folder = Folder(tmp_path)
    folder.scan()
    write(tmp_path / "b.yaml", service("c"))
    with no_more_files():
        folder.scan([str(tmp_path.resolve() / "b.yaml")])
    assert names(folder) == ["a", "b"]
    assert findings(folder) == [
        f"{tmp_path}/b.yaml: Cannot read the file: Too many open files. Make it readable, or remove it."
        " The last good version of the file stays in force. [FileUnreadable]"
    ]
    with no_more_files(), pytest.raises(FolderError, match="Too many open files"):
        folder.scan()
    assert names(folder) == ["a", "b"]
    assert folder.scan()
    assert (names(folder), findings(folder)) == (["a", "c"], [])


@pytest.mark.slow
@pytest.mark.requirement("F07")
def test_masses_of_files_and_documents_are_read(tmp_path: Path) -> None:
    for index in range(200):
        write(tmp_path / f"d{index}/a.yaml", "\n---\n".join(service(f"s{index}-{each}") for each in range(50)))
    folder = Folder(tmp_path)
    folder.scan()
    assert len(names(folder)) == 10_000
    assert findings(folder) == []


@pytest.mark.requirement("F08")
def test_a_file_name_that_is_not_text_can_be_printed(tmp_path: Path) -> None:
    write(Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\n\x1b.yaml")), "- a")
    folder = Folder(tmp_path)
    folder.scan()
    assert [finding.place.file for finding in folder.library.current().findings] == [f"{tmp_path}/\\xff\\x0a\\x1b.yaml"]
    assert shown("plain/é.yaml") == "plain/é.yaml"


def test_a_root_that_is_not_there_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match=r"/gone: No such file or directory. Check the path and its permissions.$"):
        Folder(tmp_path / "gone").scan()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FolderError, match=r"/pipe is neither a folder nor a file. Use a folder or a YAML file.$"):
        Folder(tmp_path / "pipe").scan()


def test_a_folder_that_went_away_loses_nothing(tmp_path: Path) -> None:
    write(tmp_path / "conf/a.yaml", service("a"))
    folder = Folder(tmp_path / "conf")
    folder.scan()
    (tmp_path / "conf").rename(tmp_path / "away")
    with pytest.raises(FolderError):
        folder.scan()
    assert names(folder) == ["a"]
    (tmp_path / "away").rename(tmp_path / "conf")
    assert not folder.scan()


def link_out(root: Path) -> None:
    (root / "a.yaml").unlink()
    (root / "a.yaml").symlink_to("/etc/hostname")


def swap(root: Path) -> None:
    root.rename(root.with_name("away"))
    write(root / "c.yaml", service("c"))


class Hint(NamedTuple):
    act: Callable[[Path], object]
    named: tuple[str, ...]


HINTS = {
    "a file that changed": Hint(lambda root: write(root / "a.yaml", service("new")), ("a.yaml",)),
    "a file that broke": Hint(lambda root: write(root / "a.yaml", "- a"), ("a.yaml",)),
    "a file that came": Hint(lambda root: write(root / "sub/c.yaml", service("c")), ("sub/c.yaml",)),
    "a file that went": Hint(lambda root: (root / "sub/b.yaml").unlink(), ("sub/b.yaml",)),
    "a file that moved": Hint(
        lambda root: (root / "a.yaml").rename(root / "sub/a.yaml"), ("a.yaml", "sub/a.yaml", "gone.yaml")
    ),
    "a file that is none of ours": Hint(lambda root: write(root / "a.txt", service("x")), ("a.txt", "a.txt~")),
    "a hidden file": Hint(lambda root: write(root / ".x/a.yaml", service("x")), (".x/a.yaml", "sub/.y.yaml")),
    "a folder that came": Hint(lambda root: write(root / "more/c.yaml", service("c")), ("more",)),
    "a file in a folder that came": Hint(lambda root: write(root / "more/c.yaml", service("c")), ("more/c.yaml",)),
    "a folder that went": Hint(lambda root: shutil.rmtree(root / "sub"), ("sub",)),
    "a file that is a link now": Hint(link_out, ("a.yaml",)),
    "a link that came": Hint(lambda root: (root / "c.yaml").symlink_to("sub/b.yaml"), ("c.yaml",)),
    "a pipe": Hint(lambda root: os.mkfifo(root / "c.yaml"), ("c.yaml",)),
    "a root that was replaced": Hint(swap, ("a.yaml",)),
    "a path elsewhere": Hint(lambda root: write(root / "a.yaml", service("new")), ("../x.yaml",)),
    "a file that is unreadable now": Hint(lambda root: write(root / "a.yaml", "#" * 1001), ("a.yaml",)),
}


@pytest.mark.parametrize("hint", HINTS.values(), ids=HINTS.keys())
def test_what_the_system_named_is_found_as_a_full_scan_finds_it(tmp_path: Path, hint: Hint) -> None:
    root = tmp_path / "conf"
    write(root / "a.yaml", service("a"))
    write(root / "sub/b.yaml", service("b"))
    full, hinted = Folder(root, largest_file=1000), Folder(root, largest_file=1000)
    full.scan()
    hinted.scan()
    hint.act(root)
    assert hinted.scan([os.path.normpath(root / path) for path in hint.named]) == full.scan()
    assert hinted.library.current() == full.library.current()
    assert not hinted.scan()


def test_only_what_the_system_named_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for root in (Path(), Path("conf"), tmp_path / "conf"):
        folder = Folder(root)
        for name in ("a", "b"):
            write(tmp_path / f"conf/{name}.yaml", service(name))
        folder.scan()
        for name in ("a", "b"):
            write(tmp_path / f"conf/{name}.yaml", service(f"new-{name}"))
        assert folder.scan([f"{tmp_path}/conf/a.yaml"])
        assert names(folder) == ["b", "new-a"]
        assert not folder.scan([])
        assert folder.scan()
        assert names(folder) == ["new-a", "new-b"]


def test_where_there_are_links_everything_is_looked_at(tmp_path: Path) -> None:
    write(tmp_path / ".x/a.yaml", service("a"))
    (tmp_path / "a.yaml").symlink_to(".x/a.yaml")
    folder = Folder(tmp_path)
    folder.scan()
    write(tmp_path / ".x/a.yaml", service("b"))
    assert folder.scan([f"{tmp_path}/.x/a.yaml"])
    assert names(folder) == ["b"]


def test_a_long_scan_tells_how_far_it_is(tmp_path: Path) -> None:
    for number in range(250):
        write(tmp_path / f"{number}.yaml", service(f"s{number}"))
    told: list[tuple[int, int]] = []
    Folder(tmp_path, progress_every=0).scan(progress=lambda done, total: told.append((done, total)))
    assert told == [(100, 250), (200, 250)]
    Folder(tmp_path, progress_every=1000).scan(progress=lambda done, total: told.append((done, total)))
    assert len(told) == 2


def test_a_file_without_a_size_is_read_whole() -> None:
    folder = Folder(Path("/proc/self/status"))
    assert folder.scan()
    assert [finding.problem.reason for finding in folder.library.current().findings] != ["FileEmpty"]
