"""HTTP checks asked by a real Envoy (``http_service``), on both HTTP fronts."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

import httpx2
import pytest
import yaml
from tests.support.authservers.front_backends import in_workers, make, plan_for
from tests.support.envoy.static_gateway import documented, envoy_gateway

from authplane.authserver.engine.http_check import SameRequest
from authplane.authserver.fronts.runtime.http_front import HttpChecks, serve_http_checks
from authplane.authserver.plan.server_plan import FrontPlan
from authplane.runtime.servers.listen import Address, UnixAddress

pytestmark = pytest.mark.real

Front: TypeAlias = Callable[[Path, str], AbstractAsyncContextManager[Address]]


@asynccontextmanager
async def small(folder: Path, backend: str) -> AsyncGenerator[Address]:
    async with make(
        plan_for(backend, FrontPlan(address=UnixAddress(path=str(folder / "authz.sock")), form=SameRequest()))
    ) as serving:
        checks = HttpChecks(serving.backend, SameRequest(), observer=serving.observer, perform=serving.perform)
        async with serve_http_checks(checks, UnixAddress(path=str(folder / "authz.sock"))) as address:
            yield address


@asynccontextmanager
async def pyvoy(folder: Path, backend: str) -> AsyncGenerator[Address]:
    async with in_workers(
        backend, FrontPlan(address=UnixAddress(path=str(folder / "authz.sock")), form=SameRequest())
    ) as address:
        yield address


both: Final = pytest.mark.parametrize("front", [small, pyvoy])

DOCUMENTED: Final[dict[str, Any]] = yaml.safe_load(documented("yaml"))


def _filter(*, fail_open: bool) -> dict[str, Any]:
    return {**DOCUMENTED, "failure_mode_allow": fail_open}


def _seen(answer: httpx2.Response) -> list[tuple[str, str]]:
    """Return what the origin saw of the headers that matter."""
    return [(name, value) for name, value in answer.json()["headers"] if name.startswith(("auth", "x-admin"))]


@both
async def test_an_allowance_sets_our_headers_and_removes_the_client_s(front: Front, tmp_path: Path) -> None:
    spoofed = {"auth-username": "root", "auth_username": "root", "auth-realm": "x", "authorization": "Basic eDp5"}
    async with front(tmp_path, "scripted"), envoy_gateway(tmp_path, _filter(fail_open=False)) as client:
        plain = await client.get("/allow", headers=spoofed)
        cookies = await client.get("/cookies")
    assert (plain.status_code, _seen(plain)) == (200, [("auth-username", "ann")])
    assert (cookies.status_code, cookies.headers.get_list("set-cookie")) == (200, ["a=1; Path=/", "b=2; Path=/"])


@both
async def test_a_denial_reaches_the_client_as_it_is(front: Front, tmp_path: Path) -> None:
    async with front(tmp_path, "scripted"), envoy_gateway(tmp_path, _filter(fail_open=False)) as client:
        answers = {path: await client.get(f"/{path}") for path in ("sign-in", "unknown", "forbidden", "too-often")}
    assert {path: (answer.status_code, answer.text) for path, answer in answers.items()} == {
        "sign-in": (302, ""),
        "unknown": (401, "Who are you?\n"),
        "forbidden": (403, "No.\n"),
        "too-often": (429, "Later.\n"),
    }
    assert answers["sign-in"].headers["location"] == "/in"
    assert answers["sign-in"].headers.get_list("set-cookie") == ["a=1; Path=/", "b=2; Path=/"]
    assert answers["unknown"].headers["www-authenticate"] == 'Basic realm="shop"'
    assert answers["unknown"].headers["auth-handler"] == "scripted"


@both
@pytest.mark.parametrize(("fail_open", "undecided"), [(False, 403), (True, 200)])
async def test_only_no_decision_obeys_the_failure_policy(
    front: Front, tmp_path: Path, *, fail_open: bool, undecided: int
) -> None:
    async with envoy_gateway(tmp_path, _filter(fail_open=fail_open)) as client:
        assert (await client.get("/forbidden")).status_code == undecided  # nobody is there to ask
        async with front(tmp_path, "scripted"):
            assert (await client.get("/unavailable")).status_code == undecided
            # None of these can be used to pass: neither a fault of ours, nor a denial that looks like a failure.
            for path in ("no-such-decision", "broken", "injection", "unprintable", "x%ff", "%c3", "forbidden"):
                assert (path, (await client.get(f"/{path}")).status_code) == (path, 403)


@pytest.mark.requirement("E13")
@both
async def test_headers_that_claim_another_path_change_nothing(front: Front, tmp_path: Path) -> None:
    claims = {
        "x-forwarded-uri": "/allow",
        "x-forwarded-method": "GET",
        "x-forwarded-host": "allow",
        "x-original-url": "http://shop.test/allow",
        "x-original-uri": "/allow",
        "x-rewrite-url": "/allow",
        "x-envoy-original-path": "/allow",
    }
    everything = {"allowed_headers": {"patterns": [{"safe_regex": {"regex": ".*"}}]}}
    async with front(tmp_path, "path"), envoy_gateway(tmp_path, {**DOCUMENTED, **everything}) as client:
        assert (await client.get("/x", headers=claims)).status_code == 401
        assert (await client.get("/allow", headers=dict.fromkeys(claims, "/x"))).status_code == 200
