"""The authorization server behind a real Envoy."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Final

import httpx2
import pytest
from tests.support.observing import Told

from authplane.io.authz import AuthzSettings, serve_authz
from authplane.io.echo import serve_echo
from authplane.io.envoy import EnvoySettings, run_envoy
from authplane.io.listen import UnixAddress
from authplane.io.process import Line
from authplane.policy.decision import Decision, Deny, Unavailable
from authplane.policy.engine import Backend
from authplane.policy.request import Request
from authplane.policy.testserver import Mode, TestServer

TYPES: Final = "type.googleapis.com/envoy.extensions"
H2: Final = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"


def _cluster(name: str, socket: Path, *, h2: bool) -> dict[str, Any]:
    options = {
        "@type": f"type.googleapis.com/{H2}",
        "explicit_http_config": {"http2_protocol_options": {}} if h2 else {"http_protocol_options": {}},
    }
    endpoint = {"endpoint": {"address": {"pipe": {"path": str(socket)}}}}
    return {
        "name": name,
        "type": "STATIC",
        "connect_timeout": "1s",
        "typed_extension_protocol_options": {H2: options},
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [endpoint]}]},
    }


def _config(folder: Path, *, fail_open: bool, extra: Mapping[str, Any]) -> str:
    authz = {
        "@type": f"{TYPES}.filters.http.ext_authz.v3.ExtAuthz",
        "transport_api_version": "V3",
        "failure_mode_allow": fail_open,
        "grpc_service": {"timeout": "1s", "envoy_grpc": {"cluster_name": "authz"}},
        **extra,
    }
    routes = [{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]
    manager = {
        "@type": f"{TYPES}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "web",
        "route_config": {"virtual_hosts": [{"name": "web", "domains": ["*"], "routes": routes}]},
        "http_filters": [
            {"name": "authz", "typed_config": authz},
            {"name": "router", "typed_config": {"@type": f"{TYPES}.filters.http.router.v3.Router"}},
        ],
    }
    listener = {
        "name": "web",
        "address": {"pipe": {"path": str(folder / "web.sock")}},
        "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
    }
    clusters = [
        _cluster("authz", folder / "authz.sock", h2=True),
        _cluster("origin", folder / "origin.sock", h2=False),
    ]
    return json.dumps({"static_resources": {"listeners": [listener], "clusters": clusters}})


async def _ignore(_line: Line) -> None:
    pass


@asynccontextmanager
async def _gateway(
    folder: Path, *, fail_open: bool = False, extra: Mapping[str, Any] = MappingProxyType({})
) -> AsyncGenerator[httpx2.AsyncClient]:
    """Run Envoy and the origin; the authorization server is up to the test."""
    config = _config(folder, fail_open=fail_open, extra=extra)
    settings = EnvoySettings(concurrency=1, log_level="error")
    transport = httpx2.AsyncHTTPTransport(uds=str(folder / "web.sock"))
    async with (
        serve_echo(UnixAddress(path=str(folder / "origin.sock"))),
        run_envoy(config, sink=_ignore, settings=settings) as envoy,
        httpx2.AsyncClient(transport=transport, base_url="http://shop.test") as client,
    ):
        await envoy.ready()
        yield client


def _authz(backend: Backend, folder: Path) -> Any:
    return serve_authz(backend, AuthzSettings(address=UnixAddress(path=str(folder / "authz.sock"))), observer=Told())


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
