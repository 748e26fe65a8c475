"""The authorization service behind a real Envoy."""

import asyncio
import json
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import httpx2
import pytest
from tests.support.authservers.told_checks import Told
from tests.support.envoy.static_gateway import GRPC, envoy_gateway

from authplane.authserver.backends.testserver import Mode, TestServer
from authplane.authserver.engine.backend import Backend
from authplane.authserver.fronts.runtime.grpcio_front import serve_authz
from authplane.authserver.plan.server_plan import FrontPlan
from authplane.policy.check.decision import Decision, Deny, Unavailable
from authplane.policy.check.request import Request
from authplane.runtime.servers.listen import UnixAddress

pytestmark = pytest.mark.real


def _gateway(
    folder: Path, *, fail_open: bool = False, extra: Mapping[str, Any] = MappingProxyType({})
) -> AbstractAsyncContextManager[httpx2.AsyncClient]:
    return envoy_gateway(folder, {**GRPC, "failure_mode_allow": fail_open, **extra})


def _authz(backend: Backend, folder: Path) -> Any:
    return serve_authz(backend, FrontPlan(address=UnixAddress(path=str(folder / "authz.sock"))), observer=Told())


class Scripted:
    """Does what the path says."""

    name: ClassVar = "scripted"

    def decide(self, request: Request, _now: datetime) -> Decision:
        match request.path:
            case "/unavailable":
                return Unavailable(cause="the directory is down")
            case "/sign-in":
                headers = (("Location", "/in"), ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"))
                return Deny(http_status=302, headers=headers, rule="sign in")
            case "/unnamed-status":
                return Deny(http_status=451, body="no\n", rule="law")
            case _:
                raise KeyError(request.path)


@pytest.mark.requirement("E01")
@pytest.mark.requirement("E02")
@pytest.mark.parametrize("raw_headers", [False, True])
async def test_envoy_lets_through_what_is_allowed_and_the_origin_sees_our_headers_only(
    tmp_path: Path, *, raw_headers: bool
) -> None:
    spoofed = {"Auth-Handler": "spoof", "Auth_Handler": "spoof", "auth-username": "root", "auth-context-x": "spoof"}
    async with (
        _authz(TestServer(mode=Mode.PATH), tmp_path),
        _gateway(tmp_path, extra={"encode_raw_headers": raw_headers}) as client,
    ):
        allowed = await client.get("/allow", headers=spoofed)
        denied = await client.get("/x?allow")
    seen = [pair for pair in json.loads(allowed.text)["headers"] if pair[0].startswith("auth")]
    assert (allowed.status_code, seen) == (200, [["auth-handler", "testserver"]])
    assert (denied.status_code, denied.headers["auth-handler"], denied.text) == (
        401,
        "testserver",
        "The path does not contain 'allow'.\n",
    )


@pytest.mark.requirement("E08")
async def test_a_check_without_headers_is_refused_although_the_backend_would_allow(tmp_path: Path) -> None:
    no_headers = {"allowed_headers": {"patterns": [{"exact": "x-no-client-sends-this"}]}}
    async with _authz(TestServer(), tmp_path), _gateway(tmp_path, extra=no_headers) as client:
        refused = await client.get("/")
    assert (refused.status_code, refused.text) == (400, "the request has no headers\n")


async def test_envoy_sends_a_denial_as_it_is(tmp_path: Path) -> None:
    async with _authz(Scripted(), tmp_path), _gateway(tmp_path) as client:
        redirect = await client.get("/sign-in")
        unnamed = await client.get("/unnamed-status")
    assert (redirect.status_code, redirect.headers["location"]) == (302, "/in")
    assert redirect.headers.get_list("set-cookie") == ["a=1", "b=2"]
    assert (unnamed.status_code, unnamed.text) == (451, "no\n")


@pytest.mark.parametrize(("fail_open", "unavailable"), [(False, 503), (True, 200)])
async def test_no_decision_obeys_the_failure_policy_but_a_fault_of_ours_never_opens(
    tmp_path: Path, *, fail_open: bool, unavailable: int
) -> None:
    async with _authz(Scripted(), tmp_path), _gateway(tmp_path, fail_open=fail_open) as client:
        assert (await client.get("/unavailable")).status_code == unavailable
        assert (await client.get("/raises")).status_code == 503


async def test_nothing_passes_while_the_server_is_gone_and_all_is_well_when_it_is_back(tmp_path: Path) -> None:
    async with _gateway(tmp_path) as client:
        assert (await client.get("/")).status_code == 403
        async with _authz(TestServer(), tmp_path):
            async with asyncio.timeout(5):
                while (status := (await client.get("/")).status_code) != 200:
                    assert status == 403
        assert (await client.get("/")).status_code == 403
