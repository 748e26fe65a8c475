"""HTTP checks over the network: on our own small server, and on pyvoy."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Final, TypeAlias

import httpx2
import pytest
from tests.support.authservers.front_backends import Gate, in_workers, make, plan_for
from tests.support.authservers.told_checks import Told

from authplane.authserver.backends.testserver import Mode, TestServer
from authplane.authserver.engine.http_check import Form, ForwardedHeaders, OriginalHeaders, Question, SameRequest
from authplane.authserver.fronts.runtime.asgi_bodies import Message
from authplane.authserver.fronts.runtime.http_front import HttpApplication, HttpChecks, serve_http_checks
from authplane.authserver.plan.server_plan import FrontPlan
from authplane.policy.check.decision import Allow, Decision, Deny
from authplane.policy.check.request import Request
from authplane.policy.verdicts.effects import Effect, Outcome
from authplane.runtime.servers.listen import Address, TcpAddress

HERE: Final = TcpAddress(host="127.0.0.1", port=0)

Front: TypeAlias = Callable[[Form, str], AbstractAsyncContextManager[Address]]


@asynccontextmanager
async def small(form: Form, backend: str) -> AsyncGenerator[Address]:
    async with make(plan_for(backend, FrontPlan(address=HERE, form=form))) as serving:
        checks = HttpChecks(serving.backend, form, observer=serving.observer, perform=serving.perform)
        async with serve_http_checks(checks, HERE) as address:
            yield address


@asynccontextmanager
async def pyvoy(form: Form, backend: str) -> AsyncGenerator[Address]:
    async with in_workers(backend, FrontPlan(address=HERE, form=form)) as address:
        yield address


both: Final = pytest.mark.parametrize("front", [small, pytest.param(pyvoy, marks=pytest.mark.real)])


@both
async def test_the_request_itself_is_judged(front: Front) -> None:
    async with front(SameRequest(prefix="/check"), "path") as address, httpx2.AsyncClient() as client:
        base = f"http://{address}"
        allowed = await client.get(f"{base}/check/allow")
        assert (allowed.status_code, allowed.headers["auth-handler"]) == (200, "testserver")
        assert "auth-username" in allowed.headers["x-envoy-auth-headers-to-remove"].split(",")
        denied = await client.post(f"{base}/check/x?allow", content=b"allow")
        assert (denied.status_code, denied.text) == (401, "The path does not contain 'allow'.\n")
        head = await client.head(f"{base}/check/x")
        assert (head.status_code, head.content) == (401, b"")
        assert (await client.get(f"{base}/allow")).status_code == 400


@both
async def test_no_path_or_content_type_that_a_client_chooses_gets_an_allowance(front: Front) -> None:
    grpc = {"content-type": "application/grpc", "te": "trailers"}
    async with front(SameRequest(), "path") as address, httpx2.AsyncClient() as client:
        for path in ("/envoy.service.auth.v3.Authorization/Check", "/grpc.health.v1.Health/Check", "/healthz", "/"):
            reply = await client.post(f"http://{address}{path}", headers=grpc, content=bytes(5))
            assert reply.status_code == 401


@both
async def test_a_backend_that_raises_denies(front: Front) -> None:
    async with front(SameRequest(), "broken") as address, httpx2.AsyncClient() as client:
        assert (await client.get(f"http://{address}/allow")).status_code == 403


@both
async def test_headers_name_the_request_where_they_are_trusted(front: Front) -> None:
    named = {
        "x-forwarded-method": "GET",
        "x-forwarded-proto": "https",
        "x-forwarded-host": "shop.example",
        "x-forwarded-uri": "/allow",
    }
    async with front(ForwardedHeaders(), "path") as address, httpx2.AsyncClient() as client:
        assert (await client.get(f"http://{address}/verify", headers=named)).status_code == 200
        denied = await client.get(f"http://{address}/allow", headers=named | {"x-forwarded-uri": "/x"})
        assert denied.status_code == 401
        assert (await client.get(f"http://{address}/allow")).status_code == 400


async def test_nginx_names_the_request_in_a_url() -> None:
    named = {"x-original-method": "GET", "x-original-url": "https://shop.example/allow"}
    async with small(OriginalHeaders(), "path") as address, httpx2.AsyncClient() as client:
        assert (await client.get(f"http://{address}/verify", headers=named)).status_code == 200
        assert (await client.get(f"http://{address}/allow")).status_code == 400


class Cookies:
    """Sends two cookies."""

    name: Final = "cookies"

    def decide(self, request: Request, _now: datetime) -> Decision:
        cookies = (("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"))
        return (
            Allow(response_headers=cookies)
            if request.path == "/a"
            else Deny(http_status=401, headers=cookies, rule="r")
        )


async def test_two_cookies_stay_two() -> None:
    checks = HttpChecks(Cookies(), SameRequest(), observer=Told())
    async with serve_http_checks(checks, HERE) as address, httpx2.AsyncClient() as client:
        for path in ("/a", "/b"):
            reply = await client.get(f"http://{address}{path}")
            assert reply.headers.get_list("set-cookie") == ["a=1", "b=2"]


QUESTION: Final = Question(method="GET", target="/slow", headers=((b"host", b"a"),))


@pytest.mark.slow
async def test_no_decision_in_time_and_one_check_too_many_are_undecided() -> None:
    began = asyncio.Event()

    async def never(_: Effect) -> Outcome:
        began.set()
        await asyncio.Event().wait()
        raise AssertionError

    checks = HttpChecks(Gate(Path("unused")), SameRequest(), observer=Told(), perform=never, in_flight=1, limit=0.2)
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(checks.respond(QUESTION))
        await began.wait()
        assert (await checks.respond(QUESTION)).status == 503
        assert not first.done()
    assert first.result().status == 503
    assert (await checks.respond(QUESTION)).status == 503


async def test_a_check_that_waits_is_given_up_when_its_caller_leaves() -> None:
    asked, ended = asyncio.Event(), asyncio.Event()

    async def never(_: Effect) -> Outcome:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    events = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> Message:
        event = next(events, None)
        if event is None:
            await asked.wait()
        return event or {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        raise AssertionError(message)

    checks = HttpChecks(Gate(Path("unused")), SameRequest(), observer=Told(), perform=never)
    scope = {"method": "GET", "raw_path": b"/slow", "query_string": b"", "scheme": "http", "headers": [(b"host", b"a")]}
    async with asyncio.timeout(5):
        await HttpApplication(checks, largest_body=10)(scope, receive, send)
        await ended.wait()


async def test_every_decision_is_recorded() -> None:
    told = Told()
    checks = HttpChecks(TestServer(mode=Mode.PATH), SameRequest(), observer=told)
    assert (await checks.respond(QUESTION)).status == 401
    assert [type(decision) for decision in told.decisions] == [Deny]
