"""Calls through channels of either kind."""

import asyncio
from typing import Any

import grpc
import grpc.aio
import pytest
from tests.support.eventually import eventually
from tests.support.grpc.shop_servers import PATHS, PATIENCE, call, refusal


async def aio_call(channel: Any, kind: str, *messages: bytes, **options: Any) -> tuple[list[bytes], Any]:
    """Make a call of any kind and wait for its end."""
    options.setdefault("timeout", PATIENCE)
    multi = getattr(channel, kind)(PATHS[kind])
    made = multi(iter(messages) if kind.startswith("stream") else messages[0], **options)
    if kind.endswith("unary"):
        return [await made], made
    return [each async for each in made], made


class Ways:
    """Makes calls through a channel of either kind, on the event loop of the test."""

    def __init__(self, stack: str, channel: Any) -> None:
        self.stack = stack
        self.channel = channel

    async def call(self, kind: str, *messages: bytes, **options: Any) -> tuple[list[bytes], dict[str, Any]]:
        if self.stack == "threads":
            responses, made = await asyncio.to_thread(call, self.channel, kind, *messages, **options)
            return responses, {each[0]: each[1] for each in made.initial_metadata()}
        responses, made = await aio_call(self.channel, kind, *messages, **options)
        return responses, dict(await made.initial_metadata())

    async def refusal(self, kind: str = "unary_unary", **options: Any) -> Any:
        if self.stack == "threads":
            return await asyncio.to_thread(refusal, self.channel, kind, **options)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await aio_call(self.channel, kind, b"x", **options)
        return caught.value


async def no_task_is_left() -> None:
    """Wait until only this one runs: grpcio takes a moment to end its own."""

    async def alone() -> bool:
        return len(asyncio.all_tasks()) == 1

    await eventually(alone)
