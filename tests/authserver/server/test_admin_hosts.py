"""Admin pages answer only hosts that they know: a web page cannot let its name lead to them."""

from pathlib import Path
from typing import NamedTuple

import httpx2
import pytest

from authplane.authserver.records.runtime.metrics import Metrics
from authplane.runtime.servers.admin import AdminSettings, admin_pages, serve_admin
from authplane.runtime.servers.admin_hosts import KnownHosts
from authplane.runtime.servers.listen import TcpAddress, UnixAddress

ADDRESSES = {"loopback": "127.0.0.1", "one address": "192.0.2.7", "a name": "Metrics.internal", "everywhere": ""}


class Case(NamedTuple):
    host: str
    answered_at: set[str]
    """The addresses whose servers answer."""


ALL = set(ADDRESSES)
CASES = [
    Case("localhost", ALL),
    Case("LOCALHOST:9091", ALL),
    Case("localhost.:9091", ALL),
    Case("127.0.0.1:9091", ALL),
    Case("127.9.9.9", ALL),
    Case("[::1]:9091", ALL),
    Case("192.0.2.7:9091", {"one address", "everywhere"}),
    Case("192.0.2.8", {"everywhere"}),
    Case("[2001:db8::1]", {"everywhere"}),
    Case("metrics.internal", {"a name"}),
    Case("prometheus.example:9091", ALL),
    Case("evil.example", set()),
    Case("evil.example:9091", set()),
    Case("localhost.evil.example", set()),
    Case("127.0.0.1.evil.example", set()),
    Case("evil.localhost", set()),
    Case("localhost@evil.example", set()),
    Case("evil.example#localhost", set()),
    Case("localhost, evil.example", set()),
    Case("2130706433", set()),
    Case("", set()),
    Case(":9091", set()),
]


@pytest.mark.requirement("A04")
@pytest.mark.parametrize("case", CASES, ids=[case.host or "none" for case in CASES])
def test_the_hosts_that_are_known(case: Case) -> None:
    names = ("prometheus.example",)
    known = {key: KnownHosts(TcpAddress(host=host, port=9091), names) for key, host in ADDRESSES.items()}
    assert {key for key, each in known.items() if each.knows(case.host)} == case.answered_at


def test_no_web_page_is_at_a_socket(tmp_path: Path) -> None:
    assert KnownHosts(UnixAddress(path=str(tmp_path / "s"))).knows("evil.example")


@pytest.mark.requirement("A04")
async def test_a_page_is_for_known_hosts_only() -> None:
    pages = admin_pages(Metrics(), {})
    settings = AdminSettings(address=TcpAddress(host="127.0.0.1", port=0), names=("prometheus.example",))
    async with (
        serve_admin(settings, pages) as address,
        httpx2.AsyncClient() as client,
    ):
        for path in ("/healthz", "/readyz", "/metrics"):
            for host, status in (("rebound.example", 421), ("prometheus.example", 200), ("localhost", 200)):
                reply = await client.get(f"http://{address}{path}", headers={"host": host})
                assert reply.status_code == status, (path, host)
