"""The socket of a running control plane."""

import asyncio
from pathlib import Path

import pytest

from authplane.controlplane.serving.runtime.control_socket import NotLiveError, ask_live, live_address
from authplane.runtime.servers.http_server import HttpRequest, HttpResponse, serve_http


@pytest.fixture(autouse=True)
def _private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


async def test_the_path_of_a_folder_finds_its_control_plane(tmp_path: Path) -> None:
    folder, link = tmp_path / "folder", tmp_path / "link"
    folder.mkdir()
    link.symlink_to(folder)

    def respond(request: HttpRequest) -> HttpResponse:
        return HttpResponse(status=200 if request.target == "/status" else 404, body=b"here")

    async with serve_http(live_address(folder), respond):
        assert await asyncio.to_thread(ask_live, link, "/status") == b"here"
        with pytest.raises(NotLiveError, match="answered 404"):
            await asyncio.to_thread(ask_live, folder, "/other")
    with pytest.raises(NotLiveError, match="No control plane serves"):
        await asyncio.to_thread(ask_live, folder, "/status")


def test_a_place_that_others_can_enter_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "authplane").mkdir(mode=0o755)
    (tmp_path / "authplane").chmod(0o755)
    with pytest.raises(NotLiveError, match="not a private folder"):
        live_address(tmp_path)


def test_a_link_in_that_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "authplane").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NotLiveError, match="not a private folder"):
        live_address(tmp_path)
