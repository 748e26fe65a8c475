"""What filters learn of the connection of a call."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import grpc
import pytest
from tests.support import certificates
from tests.support.grpc.acting_filters import Doing
from tests.support.grpc.shop_servers import Authority, Cart, Serve, call
from tests.support.grpc.tls_channels import SPIFFE, secured, server_credentials, spiffe_client

from authplane.dataplane.filters.calls import Endpoint
from authplane.dataplane.runtime.calls.local_addresses import (
    LocalAddresses,
    LocalAddressUnclearError,
    parse_bound,
    parse_peer,
)
from authplane.grpc import Call, Proceed, ext_authz


class Seen(NamedTuple):
    """What a filter saw."""

    remote: Endpoint
    local: Endpoint
    principal: str | None
    own: str
    tls: str
    name: str


@pytest.fixture
def looking() -> tuple[list[Seen], Doing]:
    seen: list[Seen] = []

    def look(call: Call) -> Proceed:
        made = call.connection
        assert made is not None
        principal = None if made.certificate is None else made.certificate.principal
        seen.append(
            Seen(made.remote, made.local, principal, made.own_principal, made.tls_version, made.requested_server_name)
        )
        return Proceed(metadata=call.metadata)

    return seen, Doing(look)


@pytest.mark.parametrize("address", ["127.0.0.1:0", "0.0.0.0:0", "[::]:0"])
def test_addresses_are_told_of_plain_connections(
    serve: Serve, cart: Cart, looking: tuple[list[Seen], Doing], address: str
) -> None:
    seen, look = looking
    port = serve(cart, address, filters=[look])
    with grpc.insecure_channel(f"ipv4:127.0.0.1:{port}") as channel:
        call(channel, "unary_unary", b"a")
        call(channel, "unary_unary", b"a")
    assert seen[0] == seen[1]
    assert seen[0]._replace(remote=Endpoint()) == Seen(
        Endpoint(), Endpoint(address="127.0.0.1", port=port), None, "", "", ""
    )
    assert (seen[0].remote.address, seen[0].remote.port > 0) == ("127.0.0.1", True)


def test_our_own_address_is_that_of_the_connection_not_of_the_server(
    serve: Serve, cart: Cart, looking: tuple[list[Seen], Doing]
) -> None:
    seen, look = looking
    port = serve(cart, "0.0.0.0:0", filters=[look])
    for address in ("127.0.0.1", "127.0.0.2", "127.0.0.1"):
        with grpc.insecure_channel(f"ipv4:{address}:{port}") as channel:
            call(channel, "unary_unary", b"a")
    assert [each.local.address for each in seen] == ["127.0.0.1", "127.0.0.2", "127.0.0.1"]


def test_a_unix_socket_has_a_path(serve: Serve, cart: Cart, looking: tuple[list[Seen], Doing], tmp_path: Path) -> None:
    seen, look = looking
    path = f"{tmp_path}/s"
    serve(cart, f"unix:{path}", filters=[look])
    with grpc.insecure_channel(f"unix:{path}") as channel:
        call(channel, "unary_unary", b"a")
    assert (seen[0].remote, seen[0].local) == (Endpoint(), Endpoint(address=path))


@pytest.mark.requirement("EA-21", "EA-22")
def test_mutual_tls_tells_who_both_are(serve: Serve, cart: Cart, authority: Authority) -> None:
    pair, client = certificates.server("shop.example"), spiffe_client()
    asks = ext_authz(authority.target, credentials=None, peer_certificate=True)
    port = serve(cart, credentials=server_credentials(pair, mutual=True), filters=[asks], certificate=pair.certificate)
    with secured(port, client) as channel:
        call(channel, "stream_stream", b"a")
    (check,) = authority.checks
    source, destination = check.attributes.source, check.attributes.destination
    assert (source.principal, destination.principal) == (SPIFFE, "shop.example")
    assert unquote(source.certificate).encode() == client.certificate
    assert destination.address.socket_address.port_value == port


@pytest.mark.requirement("EA-21")
def test_tls_without_a_client_certificate_has_a_version_and_a_name_and_no_principal(
    serve: Serve, cart: Cart, looking: tuple[list[Seen], Doing]
) -> None:
    seen, look = looking
    pair = certificates.server("shop.example")
    port = serve(cart, credentials=server_credentials(pair, mutual=False), filters=[look], certificate=pair.certificate)
    with secured(port, None) as channel:
        call(channel, "unary_unary", b"a")
    assert seen[0][2:] == (None, "shop.example", "TLSv1.3", "shop.example")


@pytest.mark.parametrize(
    ("peer", "want"),
    [
        ("ipv4:10.0.0.1:5000", Endpoint(address="10.0.0.1", port=5000)),
        ("ipv6:%5B::1%5D:5000", Endpoint(address="::1", port=5000)),
        ("ipv6:[::ffff:10.0.0.1]:5000", Endpoint(address="10.0.0.1", port=5000)),
        ("ipv6:%5Bfe80::1%25eth0%5D:5", Endpoint(address="fe80::1", port=5)),
        ("unix:", Endpoint()),
        ("unix:/run/x", Endpoint(address="/run/x")),
        ("vsock:3:4", Endpoint()),
        ("", Endpoint()),
    ],
)
def test_parse_peer(peer: str, want: Endpoint) -> None:
    assert parse_peer(peer) == want


@pytest.mark.parametrize(
    ("address", "want"),
    [
        ("127.0.0.1:0", Endpoint(address="127.0.0.1", port=7)),
        ("[::1]:0", Endpoint(address="::1", port=7)),
        ("localhost:0", Endpoint(address="localhost", port=7)),
        ("unix:/run/x", Endpoint(address="/run/x")),
        ("unix:///run/x", Endpoint(address="/run/x")),
    ],
)
def test_parse_bound(address: str, want: Endpoint) -> None:
    assert parse_bound(address, 7) == want


def test_without_channelz_a_wildcard_is_all_that_is_known(
    serve: Serve, cart: Cart, looking: tuple[list[Seen], Doing]
) -> None:
    seen, look = looking
    port = serve(cart, "0.0.0.0:0", filters=[look], options=(("grpc.enable_channelz", 0),))
    with grpc.insecure_channel(f"ipv4:127.0.0.1:{port}") as channel:
        call(channel, "unary_unary", b"a")
    assert seen[0].local == Endpoint(address="0.0.0.0", port=port)


def test_two_connections_that_look_the_same_are_not_confused(
    serve: Serve, cart: Cart, looking: tuple[list[Seen], Doing]
) -> None:
    seen, look = looking
    port = serve(cart, "0.0.0.0:0", filters=[look])
    before, after = LocalAddresses(), LocalAddresses()
    for each in (before, after):
        each.bind(Endpoint(address="0.0.0.0", port=port))
    with grpc.insecure_channel(f"ipv4:127.0.0.1:{port}") as channel:
        call(channel, "unary_unary", b"a")
        peer = f"ipv4:127.0.0.1:{seen[0].remote.port}"
        assert before.of(peer) == Endpoint(address="127.0.0.1", port=port)
        with _second_connection(seen[0].remote.port, port), pytest.raises(LocalAddressUnclearError):
            after.of(peer)


@contextmanager
def _second_connection(source: int, port: int) -> Iterator[None]:
    """Connect from a port that is in use already, to another address of the server."""
    with socket.socket() as made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind(("127.0.0.1", source))
            made.connect(("127.0.0.2", port))
        except OSError:
            pytest.skip("this kernel does not share the port")
        made.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
        made.recv(64)
        yield
