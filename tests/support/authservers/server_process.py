"""An authorization service as a process of its own."""

import json
import os
import signal
import sys
from base64 import b64encode
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import bcrypt
import grpc
import grpc.aio
import httpx2
from envoy.service.auth.v3 import external_auth_pb2 as pb
from prometheus_client.parser import text_string_to_metric_families
from tests.support.authservers.check_requests import NOTHING, check
from tests.support.envoy.child_envoys import envoys_of
from tests.support.eventually import START_LIMIT, eventually
from tests.support.ports import free_port

from authplane.runtime.child_processes import Child, Line, Stream, run_process


class Server:
    """A running server and what it wrote."""

    def __init__(self) -> None:
        self.grpc, self.http, self.admin = free_port(), free_port(), free_port()
        self.lines: list[Line] = []
        self._child: Child | None = None

    @asynccontextmanager
    async def running(self, *arguments: str, http: bool = False, admin: bool = True) -> AsyncGenerator["Server"]:
        async def sink(line: Line) -> None:
            self.lines.append(line)

        at_once = ["--loosen-after", "0"] if arguments[0] == "policy" else []
        argv = [sys.executable, "-m", "authplane", "authserver", arguments[0], *at_once, *arguments[1:]]
        argv += ["--address", f"127.0.0.1:{self.grpc}", "--log-format", "json"]
        argv += ["--http-address", f"127.0.0.1:{self.http}"] if http else []
        argv += ["--metrics-address", f"127.0.0.1:{self.admin}" if admin else ""]
        async with run_process(argv, sink=sink, grace=5) as self._child:
            await self.says("authorization service listening")
            yield self

    @property
    def child(self) -> Child:
        assert self._child is not None
        return self._child

    def signal(self, number: signal.Signals) -> None:
        # What runs is a launcher that becomes the program: the number is the same.
        os.kill(self.child.pid, number)

    async def says(self, words: str) -> None:
        async def holds() -> bool:
            if self._child is not None and self._child.status is not None:
                raise AssertionError(f"the server ended: {[line.text for line in self.lines]}")
            return any(words in line.text for line in self.lines)

        await eventually(holds, limit=START_LIMIT)

    async def ask(self, path: str, *, context: Mapping[str, str] = NOTHING, **headers: str) -> pb.CheckResponse:
        return await self.answer(check(path, headers={"user-agent": "test"} | headers, context=context))

    async def answer(self, asked: pb.CheckRequest) -> pb.CheckResponse:
        """Send a check as it is."""
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self.grpc}") as channel:
            call: Any = channel.unary_unary("/envoy.service.auth.v3.Authorization/Check")
            return pb.CheckResponse.FromString(await call(asked.SerializeToString(), timeout=5))

    async def page(self, path: str) -> httpx2.Response:
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{self.admin}") as client:
            return await client.get(path)

    async def metrics(self) -> dict[str, float]:
        """Return the samples that are not zero, each named with the values of its labels, without latencies."""
        return {
            " ".join((sample.name.removeprefix("authplane_"), *sample.labels.values())): sample.value
            for family in text_string_to_metric_families((await self.page("/metrics")).text)
            for sample in family.samples
            if sample.value and "seconds" not in sample.name
        }

    @property
    def decisions(self) -> list[dict[str, Any]]:
        return [json.loads(line.text) for line in self.lines if line.stream is Stream.STDOUT]

    def workers(self) -> list[int]:
        """Return the numbers of its Envoys, the oldest first."""
        return envoys_of(self.child.pid)


def basic(user: str, password: str) -> str:
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


def entry(user: str, password: str, *, cost: int = 4) -> str:
    return f"{user}:{bcrypt.hashpw(password.encode(), bcrypt.gensalt(cost)).decode()}\n"
