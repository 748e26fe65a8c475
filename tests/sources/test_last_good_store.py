"""Last good versions on disk: who starts next begins with them."""

import os
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from authplane.controlplane.serving.runtime.control_socket import NotLiveError, xds_address
from authplane.sources.runtime.last_good_store import LastGood, default_state_dir
from authplane.sources.runtime.read_folder import Folder

BROKEN = "kind: ["


def policy(name: str) -> str:
    head = "---\napiVersion: agentic.networking.x-k8s.io/v1alpha1\nkind: AccessPolicy"
    return f"{head}\nmetadata: {{name: {name}}}\nspec: {{targetRefs: [{{kind: Backend, name: mine}}], rules: []}}\n"


class Site:
    """A folder, and programs that read it one after the other."""

    def __init__(self, tmp_path: Path) -> None:
        self.root = tmp_path / "conf"
        self.state = tmp_path / "state"
        self.root.mkdir()

    def write(self, name: str, text: str) -> None:
        (self.root / name).write_text(text, encoding="utf-8")

    async def started(self, *, loosen_after: float = 0, root: Path | None = None) -> Folder:
        """Start a program, which keeps what is in force."""
        place = root or self.root
        folder = Folder(place, loosen_after=loosen_after, last_good=LastGood(self.state, place))
        folder.scan()
        await folder.keep()
        return folder

    @property
    def database(self) -> Path:
        [found] = (self.state / "last-good").glob("*.db")
        return found


def names(folder: Folder) -> list[str]:
    return [name.name for name in folder.library.current().resources.access_policies]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.mark.requirement("F15")
async def test_who_starts_with_a_broken_file_has_its_last_good_version(site: Site) -> None:
    site.write("a.yaml", "# one\n" + policy("p") + "...\n" + policy("q"))
    site.write("b.yaml", policy("r"))
    await site.started()
    site.write("a.yaml", policy("p") + "---\n" + BROKEN)
    for _ in range(2):
        with capture_logs() as logs:
            folder = await site.started()
        assert logs == []
        assert names(folder) == ["p", "q", "r"]
        assert not folder.library.current().resources.doubt
        assert {ref.name for ref in folder.library.current().last_good} == {"q"}
    site.write("a.yaml", policy("new"))
    assert names(await site.started()) == ["new", "r"]


@pytest.mark.requirement("F15")
async def test_a_running_program_keeps_each_version_that_comes_into_force(site: Site) -> None:
    site.write("a.yaml", policy("p"))
    folder = await site.started()
    site.write("a.yaml", policy("q"))
    site.write("b.yaml", policy("r"))
    assert folder.scan()
    await folder.keep()
    (site.root / "b.yaml").unlink()
    assert folder.scan()
    await folder.keep()
    site.write("a.yaml", BROKEN)
    assert names(await site.started()) == ["q"]


async def test_the_folder_may_be_named_in_several_ways(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.write("a.yaml", policy("p"))
    await site.started()
    site.write("a.yaml", BROKEN)
    monkeypatch.chdir(site.root)
    for other in (Path(), Path("../conf"), Path("./")):
        assert names(await site.started(root=other)) == ["p"]


async def test_behind_a_link_that_is_turned_nothing_older_comes_back(site: Site) -> None:
    link, other = site.root.with_name("link"), site.root.with_name("other")
    other.mkdir()
    (other / "a.yaml").write_text(policy("old"), encoding="utf-8")
    link.symlink_to(other)
    await site.started(root=link)
    site.write("a.yaml", policy("new"))
    for target, text in ((site.root, policy("new")), (other, BROKEN)):
        link.unlink()
        link.symlink_to(target)
        (target / "a.yaml").write_text(text, encoding="utf-8")
        assert names(await site.started(root=link)) == ["new"]


async def test_one_file_may_be_the_folder(site: Site) -> None:
    site.write("a.yaml", policy("p"))
    await site.started(root=site.root / "a.yaml")
    site.write("a.yaml", BROKEN)
    assert names(await site.started(root=site.root / "a.yaml")) == ["p"]


async def test_a_new_broken_file_closes_nothing_at_the_next_start_either(site: Site) -> None:
    site.write("a.yaml", policy("p"))
    await site.started()
    site.write("b.yaml", "kind: AccessPolicy\n  a: b: c")
    folder = await site.started()
    assert names(folder) == ["p"]
    assert not folder.library.current().resources.doubt


async def test_what_was_never_good_stays_closed_at_the_next_start(site: Site) -> None:
    site.write("a.yaml", "kind: AccessPolicy\n  a: b: c")
    site.write("b.yaml", policy("p"))
    for _ in range(3):
        folder = await site.started()
        assert folder.library.current().resources.doubt == f"{site.root}/a.yaml may contain a policy and cannot be read"
    (site.root / "a.yaml").unlink()
    assert not (await site.started()).library.current().resources.doubt
    site.write("a.yaml", "kind: AccessPolicy\n  a: b: c")
    assert not (await site.started()).library.current().resources.doubt


BACKENDS = "".join(
    f"---\napiVersion: agentic.networking.x-k8s.io/v1alpha1\nkind: Backend\nmetadata: {{name: {name}}}\n"
    "spec: {mcp: {serviceName: s, port: 80}}\n"
    for name in ("mine", "other")
)


def in_force(folder: Folder) -> dict[str, list[str]]:
    """Return the targets of each policy, with how many rules it has."""
    found = folder.library.current().resources.access_policies.items()
    return {
        name.name: [f"{each.name}:{len(policy.spec.rules)}" for each in policy.spec.target_refs]
        for name, policy in found
    }


@pytest.mark.requirement("F15")
async def test_a_target_that_is_misspelled_keeps_the_last_good_version_after_a_restart_too(site: Site) -> None:
    site.write("backend.yaml", BACKENDS)
    site.write("a.yaml", policy("p"))
    folder = await site.started()
    site.write("a.yaml", policy("p").replace("mine", "mien"))
    folder.scan()
    await folder.keep()
    for _ in range(2):
        again = await site.started()
        [found] = again.library.current().resources.access_policies.values()
        assert [each.name for each in found.spec.target_refs] == ["mine"]


@pytest.mark.requirement("F15")
async def test_beside_a_misspelled_target_nothing_old_comes_back(site: Site) -> None:
    wide = policy("q").replace("rules: []", "rules: [{source: {type: SPIFFE, spiffe: 'spiffe://c/a'}}]")
    site.write("backend.yaml", BACKENDS)
    site.write("a.yaml", policy("p") + wide)
    folder = await site.started()
    assert in_force(folder) == {"p": ["mine:0"], "q": ["mine:1"]}
    for text in (policy("p").replace("mine", "mien") + policy("q"), BROKEN):
        site.write("a.yaml", text)
        folder.scan()
        await folder.keep()
        assert in_force(folder) == {"p": ["mine:0"], "q": ["mine:0"]}
        assert in_force(await site.started()) == {"p": ["mine:0"], "q": ["mine:0"]}


@pytest.mark.requirement("F15")
async def test_state_that_is_removed_while_a_program_runs_is_written_whole(site: Site) -> None:
    site.write("backend.yaml", BACKENDS)
    site.write("a.yaml", policy("p"))
    site.write("b.yaml", policy("q"))
    folder = await site.started()
    site.write("a.yaml", policy("p").replace("mine", "mien"))
    folder.scan()
    await folder.keep()
    shutil.rmtree(site.state)
    site.write("c.yaml", policy("r"))
    folder.scan()
    await folder.keep()
    site.write("b.yaml", BROKEN)
    assert in_force(await site.started()) == {"p": ["mine:0"], "q": ["mine:0"], "r": ["mine:0"]}


@pytest.mark.requirement("F15")
async def test_state_that_another_program_writes_for_long_is_not_removed(site: Site) -> None:
    site.write("a.yaml", policy("p"))
    await site.started()
    with closing(sqlite3.connect(site.database, isolation_level=None)) as opened:
        opened.execute("BEGIN EXCLUSIVE")
        folder = Folder(site.root, last_good=LastGood(site.state, site.root, patience=0.01))
        with capture_logs() as logs:
            folder.scan()
    assert logs[0]["why"] == "database is locked"
    site.write("a.yaml", BROKEN)
    assert names(await site.started()) == ["p"]


async def test_a_file_that_vanished_between_runs_stays_for_a_moment(site: Site) -> None:
    site.write("a.yaml", policy("p"))
    site.write("b.yaml", policy("q"))
    await site.started()
    (site.root / "a.yaml").unlink()
    site.write("b.yaml", "# nothing")
    folder = await site.started(loosen_after=60)
    assert names(folder) == ["p", "q"]
    assert [Path(each.file).name for each in folder.library.current().held] == ["a.yaml", "b.yaml"]


async def test_who_starts_waits_for_what_is_about_to_go(site: Site) -> None:
    site.write("a.yaml", policy("p"))
    await site.started()
    (site.root / "a.yaml").unlink()
    folder = await site.started(loosen_after=0.2)
    assert names(folder) == ["p"]
    await folder.quiet()
    assert names(folder) == []


@pytest.mark.requirement("F15")
async def test_only_its_owner_can_read_it(site: Site) -> None:
    site.write("a.yaml", policy("p"))
    os.umask(0o022)
    await site.started()
    assert stat.S_IMODE(site.database.stat().st_mode) == 0o600
    assert stat.S_IMODE(site.database.parent.stat().st_mode) == 0o700


def damage_text(database: Path) -> None:
    database.write_bytes(b"not a database at all, but long enough to be looked at" * 100)


def damage_content(database: Path) -> None:
    with sqlite3.connect(database) as opened:
        opened.execute("UPDATE kept SET content = '[]'")
    opened.close()


def other_format(database: Path) -> None:
    with sqlite3.connect(database) as opened:
        opened.execute("PRAGMA user_version = 99")
    opened.close()


def other_installation(database: Path) -> None:
    with sqlite3.connect(database) as opened:
        opened.execute("UPDATE installation SET folder = '/elsewhere'")
    opened.close()


def not_private(database: Path) -> None:
    database.chmod(0o666)


UNUSABLE = {
    "no database": (damage_text, "file is not a database"),
    "another content": (damage_content, "its entry for a.yaml is damaged"),
    "another format": (other_format, "it has format 99, and this program uses 2"),
    "another installation": (other_installation, "it belongs to another installation"),
    "others can write it": (not_private, "is not private"),
}


@pytest.mark.requirement("F15")
@pytest.mark.parametrize(("spoil", "why"), UNUSABLE.values(), ids=UNUSABLE.keys())
async def test_state_that_cannot_be_believed_is_ignored_with_a_warning(
    site: Site, spoil: Callable[[Path], None], why: str
) -> None:
    site.write("a.yaml", policy("p"))
    await site.started()
    spoil(site.database)
    site.write("a.yaml", BROKEN + " # AccessPolicy")
    with capture_logs() as logs:
        folder = await site.started()
    assert [(log["log_level"], log["event"]) for log in logs][:1] == [
        ("warning", "ignored the last good versions on disk")
    ]
    assert why in logs[0]["why"]
    assert names(folder) == []
    assert folder.library.current().resources.doubt


async def test_a_place_that_cannot_be_written_is_said_once_and_costs_nothing_else(site: Site) -> None:
    site.write("a.yaml", policy("p"))
    site.state.write_text("in the way", encoding="utf-8")
    with capture_logs() as logs:
        folder = await site.started()
        site.write("a.yaml", policy("q"))
        folder.scan()
        await folder.keep()
    assert [log["event"] for log in logs] == ["cannot keep last good versions on disk"]
    assert names(folder) == ["q"]


def test_the_place_is_where_the_system_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_state_dir() == tmp_path / ".local/state/authplane"
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert default_state_dir() == Path("/state/authplane")
    monkeypatch.setenv("STATE_DIRECTORY", "/var/lib/authplane:/var/lib/other")
    assert default_state_dir() == Path("/var/lib/authplane")


def test_who_has_no_home_has_a_place_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", "~nobody-is-called-so/state")
    assert default_state_dir() == Path(tempfile.gettempdir()) / f"authplane-state-{os.getuid()}"


def test_where_nothing_can_be_written_there_is_still_a_name_to_complain_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", "~nobody-is-called-so/state")
    # A file system that can only be read, as containers have, offers no folder for temporary files.
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr("tempfile._candidate_tempdir_list", list)
    assert default_state_dir() == Path("/var/lib/authplane")
    with pytest.raises(NotLiveError, match="Set XDG_RUNTIME_DIR"):
        xds_address()
