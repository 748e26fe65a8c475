"""Changes on disk, one rebuild for each burst."""

import asyncio
import os
import shutil
import time
from collections.abc import AsyncIterator, Collection, Generator
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict

from authplane.sources.runtime.inotify import NOTHING, Inotify, Seen
from authplane.sources.runtime.read_folder import Folder, Progress
from authplane.sources.runtime.watch import CHECK, QUIET, Notify, rebuilds

LIMIT = 5.0
NOTHING_WRITTEN: frozenset[str] = frozenset()


def service(name: str) -> str:
    return f"---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\n"


class Observed(Folder):
    """A folder that says when it was scanned."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.scans = asyncio.Event()
        self.hints: list[Collection[str] | None] = []

    def scan(
        self,
        named: Collection[str] | None = None,
        progress: Progress | None = None,
        unfinished: Collection[str] = frozenset(),
    ) -> bool:
        self.scans.set()
        self.hints.append(named)
        return super().scan(named, progress, unfinished)


@dataclass(slots=True)
class Rebuilds:
    """Counts rebuilds and remembers what was in force after each."""

    folder: Observed
    states: list[tuple[str, ...]] = field(default_factory=list)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    async def follow(self, *, poll: bool, notify: Notify = Inotify) -> None:
        async with aclosing(rebuilds(self.folder, poll=poll, notify=notify)) as changes:
            async for _ in changes:
                self.states.append(tuple(name.name for name in self.folder.library.current().resources.services))
                self._news.set()

    async def until(self, *names: str) -> None:
        """Wait until exactly these services are in force."""
        async with asyncio.timeout(LIMIT):
            while not self.states or self.states[-1] != names:
                self._news.clear()
                await self._news.wait()


@asynccontextmanager
async def watching(root: Path, *, poll: bool) -> AsyncIterator[Rebuilds]:
    """Follow a folder; what it holds at first, a service named ``first``, has been read before the block."""
    (root / "first.yaml").write_text(service("first"), encoding="utf-8")
    seen = Rebuilds(Observed(root))
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(seen.follow(poll=poll))
        await seen.until("first")
        seen.states.clear()
        yield seen
        task.cancel()


@pytest.fixture(params=[False, True], ids=["inotify", "polling"])
def poll(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.mark.slow
async def test_each_kind_of_change_is_one_rebuild(tmp_path: Path, poll: bool) -> None:
    async with watching(tmp_path, poll=poll) as seen:
        (tmp_path / "first.yaml").write_text(service("changed"), encoding="utf-8")
        await seen.until("changed")
        (tmp_path / "sub/deep").mkdir(parents=True)
        (tmp_path / "sub/deep/x.yaml").write_text(service("added"), encoding="utf-8")
        await seen.until("added", "changed")
        (tmp_path / "sub/deep/x.yaml").write_text(service("again"), encoding="utf-8")
        await seen.until("again", "changed")
        (tmp_path / "first.yaml").unlink()
        await seen.until("again")
    assert seen.states == [("changed",), ("added", "changed"), ("again", "changed"), ("again",)]


@pytest.mark.slow
async def test_a_renamed_file_is_one_rebuild_with_the_same_resources(tmp_path: Path, poll: bool) -> None:
    async with watching(tmp_path, poll=poll) as seen:
        (tmp_path / "first.yaml").rename(tmp_path / "second.yaml")
        await seen.until("first")
    assert seen.states == [("first",)]


@pytest.mark.slow
async def test_a_file_replaced_as_editors_do_is_one_rebuild(tmp_path: Path, poll: bool) -> None:
    async with watching(tmp_path, poll=poll) as seen:
        (tmp_path / ".first.yaml.swp").write_text("x", encoding="utf-8")
        (tmp_path / "4913").write_text("", encoding="utf-8")
        (tmp_path / "4913").unlink()
        (tmp_path / "first.yaml").rename(tmp_path / "first.yaml~")
        (tmp_path / "first.yaml").write_text(service("edited"), encoding="utf-8")
        (tmp_path / "first.yaml~").unlink()
        await seen.until("edited")
    assert seen.states == [("edited",)]


@pytest.mark.slow
@pytest.mark.requirement("F02")
async def test_a_file_is_read_when_its_writer_has_closed_it(tmp_path: Path) -> None:
    async with watching(tmp_path, poll=False) as seen:
        with (tmp_path / "first.yaml").open("w", encoding="utf-8") as file:
            # What is there already would be fine by itself, and so is another file that makes us look at all of them.
            file.write(service("half"))
            file.flush()
            (tmp_path / "sub").mkdir()
            (tmp_path / "sub/other.yaml").write_text(service("other"), encoding="utf-8")
            await seen.until("first", "other")
            file.write(service("whole"))
        await seen.until("half", "other", "whole")
    assert seen.states == [("first", "other"), ("half", "other", "whole")]


async def test_a_file_that_is_written_and_renamed_is_read_at_once(tmp_path: Path) -> None:
    async with watching(tmp_path, poll=False) as seen:
        with (tmp_path / "new.yaml.part").open("w", encoding="utf-8") as file:
            file.write(service("renamed"))
            file.flush()
            (tmp_path / "new.yaml.part").rename(tmp_path / "first.yaml")
            await seen.until("renamed")


async def test_polling_reads_a_file_when_two_looks_agree(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(service("a"), encoding="utf-8")
    folder = Folder(tmp_path)
    folder.scan()
    file.write_text(service("half"), encoding="utf-8")
    assert folder.peek()
    assert not folder.scan(unfinished=folder.unsteady)
    file.write_text(service("half") + service("more"), encoding="utf-8")
    assert folder.peek()
    assert not folder.scan(unfinished=folder.unsteady)
    assert folder.peek()
    assert folder.scan(unfinished=folder.unsteady)
    assert [name.name for name in folder.library.current().resources.services] == ["half", "more"]


@pytest.mark.slow
@pytest.mark.requirement("F11")
async def test_a_storm_of_writes_is_few_rebuilds(tmp_path: Path, poll: bool) -> None:
    async with watching(tmp_path, poll=poll) as seen:
        tasks = len(asyncio.all_tasks())
        for number in range(1000):
            (tmp_path / "new").write_text(service(f"s{number}"), encoding="utf-8")
            (tmp_path / "new").rename(tmp_path / "first.yaml")
            if number % 10 == 0:
                await asyncio.sleep(0)
        await seen.until("s999")
        assert len(asyncio.all_tasks()) <= tasks
    assert len(seen.states) <= 10


@pytest.mark.slow
async def test_new_rights_alone_are_no_rebuild(tmp_path: Path, poll: bool) -> None:
    async with watching(tmp_path, poll=poll) as seen:
        seen.folder.scans.clear()
        (tmp_path / "first.yaml").chmod(0o600)
        os.utime(tmp_path / "first.yaml", (1, 1))
        (tmp_path / "first.yaml").write_text(service("first"), encoding="utf-8")
        async with asyncio.timeout(LIMIT):
            await seen.folder.scans.wait()
        assert seen.states == []
        (tmp_path / "first.yaml").write_text(service("second"), encoding="utf-8")
        await seen.until("second")
    assert seen.states == [("second",)]


@pytest.mark.slow
async def test_the_swap_of_a_mounted_config_map_is_one_rebuild(tmp_path: Path, poll: bool) -> None:
    async with watching(tmp_path, poll=poll) as seen:
        (tmp_path / "..1").mkdir()
        (tmp_path / "..1/a.yaml").write_text(service("one"), encoding="utf-8")
        (tmp_path / "..data").symlink_to("..1")
        (tmp_path / "a.yaml").symlink_to("..data/a.yaml")
        await seen.until("first", "one")
        (tmp_path / "..2").mkdir()
        (tmp_path / "..2/a.yaml").write_text(service("two"), encoding="utf-8")
        (tmp_path / "..data_tmp").symlink_to("..2")
        (tmp_path / "..data_tmp").rename(tmp_path / "..data")
        shutil.rmtree(tmp_path / "..1")
        await seen.until("first", "two")
    assert seen.states == [("first", "one"), ("first", "two")]


@pytest.mark.slow
async def test_a_folder_that_goes_and_comes_back_keeps_everything(tmp_path: Path, poll: bool) -> None:
    root = tmp_path / "conf"
    root.mkdir()
    gone = asyncio.Event()

    def note(_: object, level: str, entry: EventDict) -> EventDict:
        if level == "warning":
            gone.set()
        return entry

    with capture_logs(processors=[note]) as logs:
        async with watching(root, poll=poll) as seen:
            root.rename(tmp_path / "away")
            async with asyncio.timeout(LIMIT):
                await gone.wait()
            assert [str(name) for name in seen.folder.library.current().resources.services] == ["default/first"]
            root.mkdir()
            (root / "new.yaml").write_text(service("first") + service("new"), encoding="utf-8")
            await seen.until("first", "new")
            (root / "new.yaml").write_text(service("newer"), encoding="utf-8")
            await seen.until("newer")
    assert [log["event"] for log in logs] == [
        "folder not found, last good versions stay in force",
        "folder found again",
    ]


@pytest.mark.slow
async def test_a_single_file_is_watched_even_if_it_is_replaced(tmp_path: Path, poll: bool) -> None:
    file = tmp_path / "one.yaml"
    file.write_text(service("a"), encoding="utf-8")
    seen = Rebuilds(Observed(file))
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(seen.follow(poll=poll))
        await seen.until("a")
        for name in ("b", "c"):
            (tmp_path / "new").write_text(service(name), encoding="utf-8")
            (tmp_path / "new").rename(file)
            await seen.until(name)
        task.cancel()
    assert seen.states == [("a",), ("b",), ("c",)]


@pytest.mark.slow
async def test_changes_are_polled_where_the_system_cannot_report_them(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(service("a"), encoding="utf-8")

    class Full:
        unfinished = NOTHING_WRITTEN

        async def wait(self, seconds: float) -> Seen:
            raise OSError(28, "inotify watch limit reached")

    @contextmanager
    def notify(path: Path, *, recursive: bool) -> Generator[Full]:
        yield Full()

    seen = Rebuilds(Observed(tmp_path))
    with capture_logs() as logs:
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(seen.follow(poll=False, notify=notify))
            await seen.until("a")
            (tmp_path / "a.yaml").write_text(service("b"), encoding="utf-8")
            await seen.until("b")
            task.cancel()
    assert [log["event"] for log in logs] == ["polling for changes, because the system cannot report them"]


@pytest.mark.slow
async def test_a_folder_that_is_made_anew_is_watched_again(tmp_path: Path, poll: bool) -> None:
    root = tmp_path / "conf"
    root.mkdir()
    async with watching(root, poll=poll) as seen:
        for name in ("one", "two"):
            shutil.rmtree(root)
            await asyncio.sleep(0)
            root.mkdir()
            (root / "new.yaml").write_text(service(name), encoding="utf-8")
            await seen.until(name)
        (root / "new.yaml").write_text(service("three"), encoding="utf-8")
        await seen.until("three")


@pytest.mark.slow
async def test_a_link_to_another_version_of_the_folder_is_followed(tmp_path: Path, poll: bool) -> None:
    for name in ("1", "2"):
        (tmp_path / name).mkdir()
    (tmp_path / "2/a.yaml").write_text(service("two"), encoding="utf-8")
    (tmp_path / "conf").symlink_to("1")
    async with watching(tmp_path / "conf", poll=poll) as seen:
        (tmp_path / "next").symlink_to("2")
        (tmp_path / "next").rename(tmp_path / "conf")
        await seen.until("two")
        (tmp_path / "2/a.yaml").write_text(service("three"), encoding="utf-8")
        await seen.until("three")


@pytest.mark.slow
async def test_only_the_files_that_the_system_names_are_looked_at(tmp_path: Path) -> None:
    async with watching(tmp_path, poll=False) as seen:
        (tmp_path / "first.yaml").write_text(service("a"), encoding="utf-8")
        await seen.until("a")
        (tmp_path / "sub").mkdir()
        (tmp_path / "sub/b.yaml").write_text(service("b"), encoding="utf-8")
        await seen.until("a", "b")
        (tmp_path / "sub/b.yaml").unlink()
        await seen.until("a")
    assert seen.folder.hints == [None, {f"{tmp_path}/first.yaml"}, None, {f"{tmp_path}/sub/b.yaml"}]


@pytest.mark.slow
async def test_nothing_wakes_up_more_than_once_a_second_while_nothing_changes(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(service("a"), encoding="utf-8")
    idle = asyncio.Event()
    waits: list[float] = []

    class Quiet:
        unfinished = NOTHING_WRITTEN

        async def wait(self, seconds: float) -> Seen:
            waits.append(seconds)
            if len(waits) > 3:
                idle.set()
                await asyncio.Event().wait()
            await asyncio.sleep(min(seconds, QUIET))
            return NOTHING

    @contextmanager
    def notify(path: Path, *, recursive: bool) -> Generator[Quiet]:
        yield Quiet()

    seen = Rebuilds(Observed(tmp_path))
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(seen.follow(poll=False, notify=notify))
        await seen.until("a")
        async with asyncio.timeout(LIMIT):
            await idle.wait()
        task.cancel()
    assert waits[0] <= QUIET
    assert waits[-2:] == [CHECK, CHECK]


def policy(name: str) -> str:
    head = "---\napiVersion: agentic.networking.x-k8s.io/v1alpha1\nkind: AccessPolicy"
    return f"{head}\nmetadata: {{name: {name}}}\nspec: {{targetRefs: [{{kind: Backend, name: mine}}], rules: []}}\n"


@dataclass(slots=True)
class Policies:
    """When which policies came into force."""

    folder: Folder
    states: list[tuple[float, tuple[str, ...], bool]] = field(default_factory=list)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    async def follow(self, *, poll: bool) -> None:
        async with aclosing(rebuilds(self.folder, poll=poll)) as changes:
            async for _ in changes:
                loaded = self.folder.library.current()
                names = tuple(name.name for name in loaded.resources.access_policies)
                self.states.append((asyncio.get_running_loop().time(), names, bool(loaded.held)))
                self._news.set()

    async def until(self, *names: str, held: bool = False) -> float:
        """Wait until exactly these policies are in force; return since when."""
        async with asyncio.timeout(LIMIT * 2):
            while not self.states or self.states[-1][1:] != (names, held):
                self._news.clear()
                await self._news.wait()
        return self.states[-1][0]


@pytest.mark.slow
@pytest.mark.requirement("F12")
async def test_a_policy_that_goes_stays_until_its_file_has_been_quiet(tmp_path: Path, poll: bool) -> None:
    quiet = 1.0
    file = tmp_path / "all.yaml"
    file.write_text(policy("a") + policy("b"), encoding="utf-8")
    seen = Policies(Folder(tmp_path, loosen_after=quiet))
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(seen.follow(poll=poll))
        await seen.until("a", "b")
        file.write_text(policy("a"), encoding="utf-8")
        noticed = await seen.until("a", "b", held=True)
        # Every change of the file begins the time anew; what is added is in force meanwhile.
        (tmp_path / "new.yaml").write_text(policy("c"), encoding="utf-8")
        await seen.until("a", "b", "c", held=True)
        file.write_text("# once more\n" + policy("a"), encoding="utf-8")
        written = asyncio.get_running_loop().time()
        gone = await seen.until("a", "c")
        assert gone - noticed >= quiet
        assert gone - written >= quiet
        (tmp_path / "new.yaml").unlink()
        await seen.until("a", "c", held=True)
        await seen.until("a")
        task.cancel()


@pytest.mark.slow
async def test_a_policy_that_comes_back_in_time_was_never_gone(tmp_path: Path) -> None:
    file = tmp_path / "all.yaml"
    file.write_text(policy("a"), encoding="utf-8")
    seen = Policies(Folder(tmp_path, loosen_after=60))
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(seen.follow(poll=False))
        await seen.until("a")
        file.unlink()
        await seen.until("a", held=True)
        file.write_text(policy("a"), encoding="utf-8")
        await seen.until("a")
        task.cancel()
    assert {names for _, names, _ in seen.states} == {("a",)}


@pytest.mark.slow
async def test_a_file_that_is_saved_again_and_again_waits_ten_times_as_long_at_most(tmp_path: Path) -> None:
    """Otherwise what it tightens would wait for ever, together with what it loosens."""
    file = tmp_path / "all.yaml"
    file.write_text(policy("a") + policy("b"), encoding="utf-8")
    folder = Folder(tmp_path, loosen_after=0.2)
    folder.scan()
    number = 0
    async with asyncio.timeout(30):
        while len(folder.library.current().resources.access_policies) == 2:
            number += 1
            file.write_text(f"{policy('a')}# {number}\n", encoding="utf-8")
            folder.scan()
            await asyncio.sleep(0.01)
    assert number > 1


async def test_what_waits_goes_on_waiting_while_its_file_is_being_written(tmp_path: Path) -> None:
    file = tmp_path / "all.yaml"
    file.write_text(policy("a") + policy("b"), encoding="utf-8")
    folder = Folder(tmp_path, loosen_after=0.05)
    folder.scan()
    file.write_text(policy("a"), encoding="utf-8")
    folder.scan()
    assert folder.due() is not None
    real = str(file.resolve())
    await asyncio.sleep(max(0.0, (folder.due() or 0) - time.monotonic()))
    assert not folder.scan(frozenset(), unfinished={real})
    assert len(folder.library.current().resources.access_policies) == 2
    await asyncio.sleep(max(0.0, (folder.due() or 0) - time.monotonic()))
    assert folder.scan(frozenset())
    assert len(folder.library.current().resources.access_policies) == 1
    assert folder.due() is None
