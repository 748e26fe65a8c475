"""Header rules of gRPC checks, as a real Envoy carries them out, on both engines."""

from base64 import b64encode
from pathlib import Path
from typing import Final

import bcrypt
import httpx2
import pytest
from tests.support.authservers.fronts import Front, Wanted, both
from tests.support.envoy.static_gateway import GRPC, envoy_gateway

from authplane.runtime.servers.listen import UnixAddress

pytestmark = pytest.mark.real


def _wanted(folder: Path, backend: str = "scripted", file: str = "") -> Wanted:
    return Wanted(backend=backend, file=file, address=UnixAddress(path=str(folder / "authz.sock")))


def _seen(answer: httpx2.Response, *names: str) -> list[tuple[str, str]]:
    return [(name, value) for name, value in answer.json()["headers"] if name.startswith(names)]


@both
async def test_two_cookies_stay_two_whatever_is_decided(front: Front, tmp_path: Path) -> None:
    async with front(_wanted(tmp_path)), envoy_gateway(tmp_path, GRPC) as client:
        allowed, denied = await client.get("/cookies"), await client.get("/sign-in")
    assert (allowed.status_code, allowed.headers.get_list("set-cookie")) == (200, ["a=1; Path=/", "b=2; Path=/"])
    assert (denied.status_code, denied.headers.get_list("set-cookie")) == (302, ["a=1; Path=/", "b=2; Path=/"])


@both
async def test_the_origin_sees_our_headers_and_not_the_client_s(front: Front, tmp_path: Path) -> None:
    spoofed = {"auth-username": "root", "auth_username": "root", "auth-realm": "x", "authorization": "Basic eDp5"}
    async with front(_wanted(tmp_path)), envoy_gateway(tmp_path, GRPC) as client:
        answer = await client.get("/allow", headers=spoofed)
    assert _seen(answer, "auth") == [("auth-username", "ann")]


@both
async def test_what_no_header_can_carry_never_reaches_one(front: Front, tmp_path: Path) -> None:
    async with front(_wanted(tmp_path)), envoy_gateway(tmp_path, {**GRPC, "failure_mode_allow": True}) as client:
        for path in ("injection", "unprintable"):
            assert (await client.get(f"/{path}")).status_code == 403


@pytest.mark.requirement("E13")
@both
@pytest.mark.parametrize("raw_headers", [False, True])
async def test_headers_that_claim_another_path_change_nothing(
    front: Front, tmp_path: Path, *, raw_headers: bool
) -> None:
    names = ("x-forwarded-uri", "x-original-url", "x-original-uri", "x-rewrite-url", "x-envoy-original-path")
    async with (
        front(_wanted(tmp_path, "path")),
        envoy_gateway(tmp_path, {**GRPC, "encode_raw_headers": raw_headers}) as client,
    ):
        assert (await client.get("/x", headers=dict.fromkeys(names, "/allow"))).status_code == 401
        assert (await client.get("/allow", headers=dict.fromkeys(names, "/x"))).status_code == 200


ODD: Final = {
    "ann b": "ann b",
    "a,b": "a,b",
    'a"b;c=d': 'a"b;c=d',
    "<ann>": "<ann>",
    "%0d%0a": "%250d%250a",
    "änn": "%C3%A4nn",
    " ann": "%20ann",
    "a" * 200: "a" * 200,
}
"""What the origin sees of a user's name."""
REFUSED: Final = ("ann\tb", "ann\x7f", "a" * 5000)


@pytest.mark.requirement("E14")
@both
async def test_odd_user_names_reach_the_origin_in_a_safe_form_or_not_at_all(front: Front, tmp_path: Path) -> None:
    stored = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
    users = tmp_path / "users"
    users.write_text("".join(f"{name}:{stored}\n" for name in (*ODD, *REFUSED)), encoding="utf-8")
    async with (
        front(_wanted(tmp_path, "htpasswd", str(users))),
        envoy_gateway(tmp_path, {**GRPC, "failure_mode_allow": True}) as client,
    ):
        for name, seen in ODD.items():
            answer = await client.get("/", headers=_basic(name))
            assert (name, answer.status_code) == (name, 200)
            assert _seen(answer, "auth-username", "authorization") == [("auth-username", seen)]
        for name in REFUSED:
            assert (name, (await client.get("/", headers=_basic(name))).status_code) in {(name, 401), (name, 403)}
        # No client is believed to be a health checker.
        for agent in ("kube-probe/1.27", "GoogleHC/1.0", "ELB-HealthChecker/2.0"):
            assert (await client.get("/", headers={"user-agent": agent})).status_code == 401


def _basic(name: str) -> dict[str, str]:
    return {"authorization": "Basic " + b64encode(f"{name}:secret".encode()).decode()}
