"""Password files and Secrets, kept up to date."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from tests.authserver.backends.test_passwords import BCRYPT

from authplane.authserver.backends.htpasswd.htpasswd import Htpasswd
from authplane.authserver.backends.runtime.htpasswd_files import (
    PasswordFile,
    PasswordFiles,
    UserSources,
    UserState,
    keep_users,
)
from authplane.core.secret import Secret
from authplane.sources.runtime.read_folder import Folder

LIMIT = 5.0


@dataclass(slots=True)
class States:
    """Waits for a state of the users."""

    state: UserState | None = None
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def tell(self, state: UserState) -> None:
        self.state = state
        self._news.set()

    async def until(self, holds: Callable[[UserState], bool]) -> UserState:
        async with asyncio.timeout(LIMIT):
            while self.state is None or not holds(self.state):
                self._news.clear()
                await self._news.wait()
            return self.state

    async def until_users(self, *names: str, realm: str = "default") -> UserState:
        return await self.until(lambda state: users(state, realm) == names)


def users(state: UserState, realm: str = "default") -> tuple[str, ...]:
    found = state.realms.lists.get(realm)
    return () if found is None else tuple(found.users)


@asynccontextmanager
async def kept(*files: PasswordFile, folder: Path | None = None) -> AsyncIterator[States]:
    scanned = Folder(folder) if folder is not None else None
    if scanned is not None:
        scanned.scan()
    sources = UserSources(default_realm="default", files=PasswordFiles(files), folder=scanned)
    states = States()
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(keep_users(Htpasswd(Secret(b"s")), sources, states.tell, look=0.01))
        yield states
        task.cancel()


def write(path: Path, *names: str) -> PasswordFile:
    path.write_text("".join(f"{name}:{BCRYPT}\n" for name in names))
    return PasswordFile(path=path)


async def test_a_changed_file_changes_its_users(tmp_path: Path) -> None:
    path = tmp_path / "users"
    async with kept(write(path, "alice")) as states:
        state = await states.until_users("alice")
        assert (state.findings, state.stale) == ((), frozenset())
        write(path, "alice", "bob")
        await states.until_users("alice", "bob")


async def test_a_replaced_file_and_a_moved_link_are_seen(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "users", name)
    (tmp_path / "data").symlink_to("one")
    async with kept(PasswordFile(path=tmp_path / "data" / "users")) as states:
        await states.until_users("one")
        (tmp_path / "new").symlink_to("two")
        (tmp_path / "new").replace(tmp_path / "data")
        await states.until_users("two")
        write(tmp_path / "two" / "draft", "three")
        (tmp_path / "two" / "draft").replace(tmp_path / "two" / "users")
        await states.until_users("three")


def _delete(path: Path) -> None:
    path.unlink()


def _truncate(path: Path) -> None:
    os.truncate(path, 0)


def _cut(path: Path) -> None:
    path.write_text(f"alice:{BCRYPT}\nbob:{BCRYPT[:30]}")


def _garble(path: Path) -> None:
    path.write_bytes(b"\0\1\2\n")


def _repeat(path: Path) -> None:
    path.write_text(f"alice:{BCRYPT}\nbob:{BCRYPT}\ncarol:{BCRYPT}\nalice:{BCRYPT}\n")


def _loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _forbid(path: Path) -> None:
    path.chmod(0)


@pytest.mark.requirement("H14", "H15")
@pytest.mark.parametrize("breaks", [_delete, _truncate, _cut, _garble, _repeat, _loop, _folder, _pipe, _forbid])
async def test_a_file_that_breaks_leaves_its_last_good_users_and_is_not_ready(
    tmp_path: Path, breaks: Callable[[Path], None]
) -> None:
    if breaks is _forbid and os.geteuid() == 0:
        pytest.skip("root may read everything")
    path = tmp_path / "users"
    async with kept(write(path, "alice", "bob")) as states:
        await states.until_users("alice", "bob")
        breaks(path)
        state = await states.until(lambda state: bool(state.stale))
        assert users(state) == ("alice", "bob")
        assert state.stale == {str(path)}
        assert state.findings[0].place.file == str(path)
        assert "the last good users of the file stay in force" in state.findings[0].problem.message
        draft = tmp_path / "draft"
        write(draft, "carol")
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        draft.replace(path)
        state = await states.until_users("carol")
        assert (state.stale, state.findings) == (frozenset(), ())


async def test_a_comment_alone_removes_every_user(tmp_path: Path) -> None:
    path = tmp_path / "users"
    async with kept(write(path, "alice")) as states:
        await states.until_users("alice")
        path.write_text("# nobody\n")
        state = await states.until_users()
        assert (state.stale, list(state.realms.lists)) == (frozenset(), ["default"])


async def test_a_file_that_is_missing_from_the_start_leaves_its_realm_pending(tmp_path: Path) -> None:
    path = tmp_path / "users"
    async with kept(PasswordFile(path=path, realm="shop")) as states:
        state = await states.until(lambda _: True)
        assert (state.realms.pending, state.stale) == (frozenset({"shop"}), frozenset({str(path)}))
        write(path, "alice")
        state = await states.until_users("alice", realm="shop")
        assert state.realms.pending == frozenset()


@pytest.mark.requirement("H14")
async def test_a_file_with_a_duplicate_user_at_the_start_denies_every_user(tmp_path: Path) -> None:
    path = tmp_path / "users"
    _repeat(path)
    async with kept(PasswordFile(path=path, realm="shop")) as states:
        state = await states.until(lambda _: True)
        assert (state.realms.pending, state.stale) == (frozenset({"shop"}), frozenset({str(path)}))
        assert [str(each.place.line) + each.problem.reason for each in state.findings] == [
            "0FileRefused",
            "4UserRepeated",
        ]


async def test_a_bad_line_is_reported_with_its_line_and_costs_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text(f"alice:{BCRYPT}\nbob:plain\ncarol:{BCRYPT}\n")
    async with kept(PasswordFile(path=path)) as states:
        state = await states.until_users("alice", "carol")
        assert [(str(each.place), each.problem.reason) for each in state.findings] == [(f"{path}:2:1", "HashUnknown")]


def secret(name: str, user: str, realm: str = "") -> str:
    return f"""\
apiVersion: v1
kind: Secret
metadata:
  name: {name}
  annotations:
    projectcontour.io/auth-type: basic
    projectcontour.io/auth-realm: "{realm}"
stringData:
  auth: |
    {user}:{BCRYPT}
    bad line
"""


async def test_secrets_of_a_folder_are_followed_and_deleting_one_removes_its_users(tmp_path: Path) -> None:
    resources = tmp_path / "resources"
    resources.mkdir()
    (resources / "a.yaml").write_text(secret("a", "alice"))
    async with kept(write(tmp_path / "users", "root"), folder=resources) as states:
        state = await states.until_users("root", "alice")
        assert [(str(each.ref), str(each.place), str(each.problem)) for each in state.findings] == [
            (
                "Secret/default/a",
                f"{resources}/a.yaml:9:3",
                "stringData.auth: Line 2: The line is not 'user:hash'. Run 'htpasswd -B' to create one. [LineInvalid]",
            )
        ]
        (resources / "b.yaml").write_text(secret("b", "bob", "shop"))
        state = await states.until_users("root", "alice", "bob", realm="shop")
        assert users(state) == ("root", "alice")
        (resources / "a.yaml").unlink()
        await states.until_users("root")


async def test_a_secret_cannot_take_the_place_of_a_user_of_the_operators_file(tmp_path: Path) -> None:
    resources = tmp_path / "resources"
    resources.mkdir()
    (resources / "a.yaml").write_text(secret("a", "root").replace("$2b$04$", "$2b$05$"))
    path = tmp_path / "users"
    async with kept(write(path, "root"), folder=resources) as states:
        state = await states.until_users("root")
        assert state.realms.lists["default"].users["root"].stored == BCRYPT.encode()
        assert [each.problem.reason for each in state.findings] == ["LineInvalid", "UserConflict"]


async def test_of_many_problems_the_log_names_some_errors_first_and_how_many_there_are_more(tmp_path: Path) -> None:
    path = tmp_path / "users"
    weak = "".join(f"user{number}:{{SHA}}qvTGHdzF6KLavt4PO0gs2a6pQ00=\n" for number in range(200))
    path.write_text(f"{weak}broken\n{weak.replace('user', 'other')}")
    with capture_logs() as lines:
        async with kept(PasswordFile(path=path)) as states:
            state = await states.until(lambda each: len(each.findings) == 401)
    told = [line for line in lines if line["event"] == "found a problem with users"]
    assert [line["log_level"] for line in told] == ["error"] + ["warning"] * 49
    more = [line for line in lines if line["event"] == "omitted further problems with users"]
    assert [line["count"] for line in more] == [351]
    assert len(users(state)) == 400
