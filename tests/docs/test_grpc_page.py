"""The programs on the pages about gRPC are the examples, and the examples work."""

import asyncio
import builtins
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import grpc
import pytest
from google.protobuf import struct_pb2
from tests.support.eventually import eventually
from tests.support.grpc.channel_kinds import no_task_is_left
from tests.support.grpc.control_plane import controlling
from tests.support.grpc.shop_servers import PATIENCE, allow, authorizing, deny
from tests.support.grpc.xds_resources import api_listener, cluster, endpoints, http_filter, listener, manager
from tests.support.grpc.xds_routes import forwarded, routes
from tests.support.pages import ROOT, blocks
from tests.support.ports import free_port
from xds.type.v3 import typed_struct_pb2

import authplane.grpc
import authplane.grpc.aio
from authplane.grpc import Serving, filter_registry, server

FOLDER = ROOT / "examples" / "grpc"
PAGES = [ROOT / "docs" / "how-to" / name for name in ("filter-grpc-calls.md", "configure-grpc-over-xds.md")]


SHOWN = [block.text for page in PAGES for block in blocks(page) if block.language == "python"]
EXAMPLES = {path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.py"))}


def example(name: str) -> ModuleType:
    """Run a program as the page shows it, in a module with nothing else in it."""
    [text] = [each for each in SHOWN if each == EXAMPLES[name]]
    module = ModuleType(f"example_{name}")
    # Dataclasses look their module up by its name.
    sys.modules[module.__name__] = module
    exec(compile(text, str(FOLDER / f"{name}.py"), "exec"), module.__dict__)  # noqa: S102 (it is our own page)
    return module


def test_the_pages_show_every_example_whole() -> None:
    assert {name for name, text in EXAMPLES.items() if text in SHOWN} == set(EXAMPLES)


@pytest.mark.real
@pytest.mark.parametrize("text", SHOWN, ids=range(len(SHOWN)))
def test_every_program_on_the_page_runs_with_the_imports_that_it_shows(text: str, tmp_path: Path) -> None:
    # Under a name of its own, so that it defines what it has and serves nothing.
    run = "import sys; exec(compile(sys.argv[1], 'page', 'exec'), {'__name__': 'page'})"
    argv = [sys.executable, "-I", "-W", "error", "-c", run, text]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_page_names_nothing_that_a_program_cannot_import() -> None:
    page = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    named = set(re.findall(r"`([A-Z][a-z]\w+)(?:\([^`]*\))?`", page))
    elsewhere = {"CheckResponse", *dir(builtins)}
    assert named - elsewhere - set(authplane.grpc.__all__) == set()
    functions = set(re.findall(r"`(?:authplane\.grpc\.)?(\w+)\([^`]*\)`", page))
    known = set(authplane.grpc.__all__) | set(authplane.grpc.aio.__all__)
    assert {name for name in functions if name.islower()} - known == {"add_secure_port", "wait_until_serving"}
    assert sorted(authplane.grpc.__all__) == list(authplane.grpc.__all__)
    assert [name for name in authplane.grpc.__all__ if not hasattr(authplane.grpc, name)] == []
    assert [name for name in authplane.grpc.aio.__all__ if not hasattr(authplane.grpc.aio, name)] == []


def test_the_checked_server_and_channel() -> None:
    with authorizing() as authority:
        made = example("checked_server").make(authority.target)
        port = made.add_insecure_port("127.0.0.1:0")
        made.start()
        try:
            authority.decide = lambda _: allow(x_user="alice")
            assert example("channels").say(f"127.0.0.1:{port}", authority.target, b"x") == b"hello alice"
            authority.decide = lambda _: deny()
            with pytest.raises(grpc.RpcError) as caught:
                example("channels").say(f"127.0.0.1:{port}", authority.target, b"x")
            assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
        finally:
            assert made.stop(0).wait(PATIENCE)


async def test_the_server_and_the_channel_that_xds_configures(capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    with controlling() as control:
        inline = routes("inline", forwarded("c"))
        control.publish(
            listener(port, manager()),
            api_listener("echo.example", manager(inline=inline)),
            cluster("c"),
            endpoints("c", (port,)),
        )
        bootstrap = control.bootstrap()
        running = asyncio.create_task(example("xds_server").serve(bootstrap, f"127.0.0.1:{port}"))

        async def told() -> bool:
            return f"{Serving(f'127.0.0.1:{port}')}" in capsys.readouterr().out

        await eventually(told)
        assert await example("channels").say_through_xds(b"x", bootstrap) == b"x"
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await no_task_is_left()


def test_the_filter_of_ones_own_over_xds() -> None:
    module = example("own_filter")
    config = typed_struct_pb2.TypedStruct(type_url="type.googleapis.com/example.RequireHeader")
    config.value.CopyFrom(struct_pb2.Struct(fields={"name": struct_pb2.Value(string_value="x-team")}))

    def echo(request: bytes, _: object) -> bytes:
        return request

    handlers: dict[str, Any] = {"Say": grpc.unary_unary_rpc_method_handler(echo)}
    with controlling() as control, ThreadPoolExecutor(4) as pool:
        made = server(
            pool,
            [grpc.method_handlers_generic_handler("example.Echo", handlers)],
            xds=control.bootstrap(),
            registry=filter_registry(module.REQUIRE_HEADER),
        )
        port = made.add_insecure_port("127.0.0.1:0")
        made.start()
        try:
            control.publish(listener(port, manager(http_filter("team", config))))
            assert made.wait_until_serving(PATIENCE)
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                say: Any = channel.unary_unary("/example.Echo/Say")
                assert say(b"x", metadata=(("x-team", "a"),), timeout=PATIENCE) == b"x"
                with pytest.raises(grpc.RpcError) as caught:
                    say(b"x", timeout=PATIENCE)
                assert caught.value.details() == "x-team is missing"
            config.value.fields["name"].string_value = ""
            control.publish(listener(port, manager(http_filter("team", config))))
            assert "name: must name a header [Missing]" in control.wait_for_nack()
        finally:
            assert made.stop(0).wait(PATIENCE)


def test_no_example_is_without_a_test() -> None:
    assert set(EXAMPLES) == {"checked_server", "channels", "xds_server", "own_filter"}
    assert not Path(FOLDER / "README.md").exists()
