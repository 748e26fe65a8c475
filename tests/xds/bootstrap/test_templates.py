from typing import NamedTuple

import pytest

from authplane.xds.bootstrap.credentials import Insecure
from authplane.xds.bootstrap.templates import client_listener_name, server_listener_name
from authplane.xds.bootstrap.xds_bootstrap import Authority, Bootstrap, XdsServer

SERVER = XdsServer(uri="xds.example.com:443", channel_creds=Insecure())


class Case(NamedTuple):
    template: str | None
    address: str
    want: str | None


CASES = {
    "the address as it was given": Case("grpc/server?x=%s", "0.0.0.0:8080", "grpc/server?x=0.0.0.0:8080"),
    "IPv6 in brackets": Case("server/%s", "[::]:8080", "server/[::]:8080"),
    "each %s": Case("%s/%s", "10.0.0.1:80", "10.0.0.1:80/10.0.0.1:80"),
    "no %s": Case("the-server", "10.0.0.1:80", "the-server"),
    "a name of the new kind is encoded": Case("xdstp://a/L/%s", "[::1]:80", "xdstp://a/L/%5B::1%5D:80"),
    "without a template": Case(None, "10.0.0.1:80", None),
}


@pytest.mark.requirement("SL-1")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_listener_of_a_server_is_named_by_its_address(case: Case) -> None:
    bootstrap = Bootstrap(servers=(SERVER,), listener_template=case.template)
    assert server_listener_name(bootstrap, case.address) == case.want


@pytest.mark.requirement("BS-7")
def test_the_listener_of_a_client_is_named_by_the_template_of_its_authority() -> None:
    bootstrap = Bootstrap(
        servers=(SERVER,),
        client_listener_template="xdstp://top/L/%s",
        authorities={"east": Authority(listener_template="xdstp://east/L/%s?a=1")},
    )
    assert client_listener_name(bootstrap, "shop 1/a") == "xdstp://top/L/shop%201/a"
    assert client_listener_name(bootstrap, "shop#1", "east") == "xdstp://east/L/shop%231?a=1"
    assert client_listener_name(bootstrap, "shop", "west") is None


def test_without_a_template_the_listener_of_a_client_is_named_as_its_target() -> None:
    assert client_listener_name(Bootstrap(servers=(SERVER,)), "shop:80") == "shop:80"
