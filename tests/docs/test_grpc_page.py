"""The programs on the page about gRPC are the examples, and the examples work."""

import asyncio
import importlib.util
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import grpc
import pytest
from google.protobuf import struct_pb2
from tests.docs.pages import ROOT, blocks
from tests.public_grpc.control import (
    api_listener,
    cluster,
    controlling,
    endpoints,
    forwarded,
    http_filter,
    listener,
    manager,
    routes,
)
from tests.public_grpc.ways import no_task_is_left
from tests.public_grpc.world import PATIENCE, allow, authorizing, deny
from tests.support.eventually import eventually
from tests.support.gateway import free_port
from xds.type.v3 import typed_struct_pb2

from authplane.grpc import Serving, filter_registry, server

FOLDER = ROOT / "examples" / "grpc"
PAGE = ROOT / "docs" / "grpc.md"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_program_on_the_page_stands_in_an_example() -> None:
    texts = [path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.py"))]
    shown = [block.text.strip() for block in blocks(PAGE) if block.language == "python"]
    assert len(shown) >= 5
    assert [each for each in shown if not any(each in text for text in texts)] == []


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
    assert {path.stem for path in FOLDER.glob("*.py")} == {"checked_server", "channels", "xds_server", "own_filter"}
    assert not Path(FOLDER / "README.md").exists()
