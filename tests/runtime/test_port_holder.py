"""Which process has a port."""

import os
import socket
import sys
from pathlib import Path

import pytest
from tests.support.ports import free_port

from authplane.runtime.servers.port_holder import find_port_holder


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6], ids=["IPv4", "IPv6"])
def test_the_process_is_named_by_its_id_and_command(family: socket.AddressFamily) -> None:
    host = "127.0.0.1" if family == socket.AF_INET else "::1"
    with socket.create_server((host, 0), family=family) as server:
        found = find_port_holder(server.getsockname()[1])
    assert found is not None
    assert found.pid == os.getpid()
    assert found.command.startswith(Path(sys.executable).name)


def test_a_free_port_has_no_holder() -> None:
    assert find_port_holder(free_port()) is None


def test_a_connection_is_not_a_holder() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
    with client:
        assert find_port_holder(client.getsockname()[1]) is None


def test_a_machine_without_proc_names_no_process(tmp_path: Path) -> None:
    assert find_port_holder(80, tmp_path) is None


def test_a_process_of_another_user_is_not_named(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    line = "0: 0100007F:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 4711 1"
    (tmp_path / "net" / "tcp").write_text(f"header\n{line}\n", encoding="ascii")
    (tmp_path / "12").mkdir()
    assert find_port_holder(80, tmp_path) is None


def test_long_folders_do_not_hide_the_program_of_an_interpreter(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    line = "0: 0100007F:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 4711 1"
    (tmp_path / "net" / "tcp").write_text(f"header\n{line}\n", encoding="ascii")
    (tmp_path / "12" / "fd").mkdir(parents=True)
    (tmp_path / "12" / "fd" / "3").symlink_to("socket:[4711]")
    long = "/home/user/a/very/long/folder/with/many/parts/.venv/bin"
    (tmp_path / "12" / "cmdline").write_bytes(f"{long}/python\0{long}/authplane\0run\0{long}/gateway\0".encode())
    found = find_port_holder(80, tmp_path)
    assert found is not None
    assert str(found) == "process 12 (python authplane run gateway)"
