"""The admin port, over real sockets."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import httpx2
import pytest
from structlog.testing import capture_logs

from authplane.authserver.records.decision_record import Conclusion
from authplane.authserver.records.runtime.metrics import Metrics
from authplane.runtime.servers.admin import (
    ADMIN_ADDRESS,
    CONTENT_TYPE,
    CONTROL_ADDRESS,
    AdminExposedError,
    AdminSettings,
    Obstacle,
    admin_pages,
    serve_admin,
)
from authplane.runtime.servers.http_server import HttpRequest, HttpResponse
from authplane.runtime.servers.listen import Address, AddressTakenError, ListenError, TcpAddress, UnixAddress

HERE: Final = TcpAddress(host="127.0.0.1", port=0)
FIXED: Final = (("cache-control", "no-store"), ("x-content-type-options", "nosniff"))
TEXT: Final = (("content-type", "text/plain; charset=utf-8"), *FIXED)


def _broken() -> str:
    raise KeyError("hunter2")


def _ready() -> str:
    return ""


async def _ask(target: str, *, method: str = "GET", parts: Mapping[str, Obstacle] | None = None) -> HttpResponse:
    return await admin_pages(Metrics(), parts or {})(HttpRequest(method=method, target=target))


NOTHING: Final = admin_pages(Metrics(), {})


NOT_THERE: Final = HttpResponse(
    status=404, headers=TEXT, body=b"This page does not exist. Supported: /healthz, /readyz, /metrics.\n"
)
PAGES: Final = {
    "GET /healthz": HttpResponse(status=200, headers=TEXT, body=b"alive\n"),
    "HEAD /healthz": HttpResponse(status=200, headers=TEXT, body=b"alive\n"),
    "GET /healthz?verbose": HttpResponse(status=200, headers=TEXT, body=b"alive\n"),
    "GET /readyz": HttpResponse(status=200, headers=TEXT, body=b"ready\n"),
    "POST /metrics": HttpResponse(status=405, headers=(*TEXT, ("allow", "GET, HEAD")), body=b"Use GET or HEAD.\n"),
    "GET /": NOT_THERE,
    "GET /debug/pprof": NOT_THERE,
    "GET /healthz/": NOT_THERE,
    "GET /../metrics": NOT_THERE,
    "POST /quitquitquit": NOT_THERE,
}


@pytest.mark.requirement("A08")
@pytest.mark.parametrize(("asked", "want"), PAGES.items())
async def test_pages(asked: str, want: HttpResponse) -> None:
    method, target = asked.split(" ")
    assert await _ask(target, method=method) == want


class _Keys:
    """A part that becomes ready."""

    def __init__(self) -> None:
        self.obstacle = "no keys yet"

    def __call__(self) -> str:
        return self.obstacle


async def test_readiness_names_the_parts_that_are_not() -> None:
    keys = _Keys()
    parts: dict[str, Obstacle] = {"passwords": lambda: "no file\nread", "keys": keys, "front": _ready}
    assert await _ask("/readyz", parts=parts) == HttpResponse(
        status=503, headers=TEXT, body=b"not ready\nkeys: no keys yet\npasswords: no file\\nread\n"
    )
    keys.obstacle = ""
    assert (await _ask("/readyz", parts=parts)).body == b"not ready\npasswords: no file\\nread\n"
    assert (await _ask("/readyz", parts={"keys": keys})).status == 200


@pytest.mark.requirement("A08")
async def test_a_part_whose_probe_fails_is_not_ready_and_gives_no_reason() -> None:
    with capture_logs() as lines:
        answer = await _ask("/readyz", parts={"keys": _broken, "front": _ready})
    assert answer == HttpResponse(status=503, headers=TEXT, body=b"not ready\nkeys: The readiness check failed.\n")
    assert [line["event"] for line in lines] == ["readiness check failed"]
    assert "hunter2" not in str(lines)


async def test_prometheus_finds_the_metrics() -> None:
    metrics = Metrics()
    metrics.checks("test").began()
    metrics.checks("test").ended(Conclusion.ALLOW, 0.001)
    async with (
        serve_admin(AdminSettings(address=HERE), admin_pages(metrics, {})) as address,
        httpx2.AsyncClient() as client,
    ):
        reply = await client.get(f"http://{address}/metrics")
        assert (reply.status_code, reply.headers["content-type"]) == (200, CONTENT_TYPE)
        assert 'authplane_checks_total{backend="test",decision="allow"} 1.0' in reply.text.splitlines()
        assert (await client.post(f"http://{address}/healthz", content=b"x")).status_code == 413
        assert (await client.get(f"http://{address}/healthz")).text == "alive\n"


async def test_a_unix_socket_is_served(tmp_path: Path) -> None:
    address = UnixAddress(path=str(tmp_path / "admin.sock"))
    transport = httpx2.AsyncHTTPTransport(uds=address.path)
    async with serve_admin(AdminSettings(address=address), NOTHING), httpx2.AsyncClient(transport=transport) as client:
        assert (await client.get("http://x/readyz")).text == "ready\n"


EXPOSED: Final = {
    "every interface": TcpAddress(host="", port=0),
    "every IPv4 interface": TcpAddress(host="0.0.0.0", port=0),
    "every IPv6 interface": TcpAddress(host="::", port=0),
    "another address": TcpAddress(host="192.0.2.1", port=0),
    "zero is every interface too": TcpAddress(host="0", port=0),
}


@pytest.mark.requirement("A03")
@pytest.mark.parametrize("address", EXPOSED.values(), ids=EXPOSED.keys())
async def test_an_address_that_others_reach_is_refused(address: Address) -> None:
    with pytest.raises(AdminExposedError, match=r"^Refusing to serve /metrics on "):
        async with serve_admin(AdminSettings(address=address), NOTHING):
            pass


@pytest.mark.requirement("A03")
async def test_an_address_that_others_reach_is_taken_if_that_is_allowed() -> None:
    public = serve_admin(AdminSettings(address=TcpAddress(host="0.0.0.0", port=0), public=True), NOTHING)
    async with public as address, httpx2.AsyncClient() as client:
        assert isinstance(address, TcpAddress)
        assert (await client.get(f"http://127.0.0.1:{address.port}/healthz")).text == "alive\n"


@pytest.mark.requirement("A03")
@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "localhost"])
async def test_this_machine_alone_reaches_a_loopback_address(host: str) -> None:
    async with serve_admin(AdminSettings(address=TcpAddress(host=host, port=0)), NOTHING):
        pass


def test_the_defaults_are_this_machine_and_differ_so_that_both_programs_can_run_there() -> None:
    assert TcpAddress(host="127.0.0.1", port=9091) == ADMIN_ADDRESS
    assert TcpAddress(host="127.0.0.1", port=9095) == CONTROL_ADDRESS


async def test_an_address_that_cannot_be_had_is_one_sentence() -> None:
    async with serve_admin(AdminSettings(address=HERE), NOTHING) as address:
        remedy = r"Set --metrics-address to another address, or to '' to serve no metrics\.$"
        with pytest.raises(AddressTakenError, match=rf"process \d+ \(.*\) listens there\. {remedy}"):
            async with serve_admin(AdminSettings(address=address), NOTHING):
                pass
    with pytest.raises(ListenError, match=r"'no-such-host\.invalid' is not an address of this machine"):
        async with serve_admin(AdminSettings(address=TcpAddress(host="no-such-host.invalid", port=1)), NOTHING):
            pass
