"""The control plane of a folder."""

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from tests.support.eventually import eventually
from tests.support.resources.contour_documents import ECHO, PROXY, whole

from authplane.controlplane.serving.runtime.control_plane import Control, ControlSettings, Rebuilt
from authplane.runtime.servers.listen import UnixAddress
from authplane.sources.runtime.read_folder import Folder


class Faulty(Control):
    """Fails whenever a file of that name is there, as a fault of ours might."""

    def __init__(self, root: Path) -> None:
        self.told: list[object] = []
        self.root = root
        super().__init__(Folder(root, loosen_after=0), self.told.append)

    def rebuild(self, *, keys: bool = False) -> None:
        if (self.root / "fault.yaml").exists():
            raise KeyError("hunter2")
        super().rebuild(keys=keys)


async def test_a_fault_of_ours_keeps_the_last_configuration_and_the_next_change_is_taken(tmp_path: Path) -> None:
    folder = tmp_path / "resources"
    folder.mkdir()
    for name, text in whole().items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    control = Faulty(folder)
    settings = ControlSettings(address=UnixAddress(path=str(tmp_path / "xds.sock")))
    with capture_logs() as lines:
        async with control.serve(settings), asyncio.TaskGroup() as tasks:
            following = tasks.create_task(control.follow(settings))
            before = control.generation

            async def failed() -> bool:
                return any("rebuild failed" in line["event"] for line in lines)

            (folder / "fault.yaml").write_text(ECHO.replace("echo", "other"), encoding="utf-8")
            await eventually(failed)
            assert control.generation is before
            (folder / "fault.yaml").unlink()
            (folder / "proxy.yaml").write_text(PROXY.replace("web.example", "new.example"), encoding="utf-8")

            async def taken() -> bool:
                return sum(isinstance(each, Rebuilt) for each in control.told) == 2

            await eventually(taken)
            following.cancel()
    assert "hunter2" not in str(lines)
    assert (control.counts.built, control.counts.failed) == (2, 1)


async def test_a_second_control_plane_of_a_folder_says_that_there_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    folder = tmp_path / "resources"
    folder.mkdir()
    first, second = (ControlSettings(address=UnixAddress(path=str(tmp_path / name))) for name in ("a.sock", "b.sock"))
    with capture_logs() as lines:
        async with Faulty(folder).serve(first), Faulty(folder).serve(second):
            pass
    assert [line for line in lines if line["log_level"] == "warning"] == [
        {
            "event": "authplane status does not show this control plane",
            "why": "another control plane serves the same folder. Stop one of them.",
            "log_level": "warning",
        }
    ]
