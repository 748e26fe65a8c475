"""HTTP checks byte for byte: what no HTTP library would send, on both HTTP fronts."""

import asyncio
import re
from typing import Final, NamedTuple
from urllib.parse import quote, unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.authserver.fronts.test_http_front import Front, both, small
from tests.support.eventually import LIMIT

from authplane.authserver.engine.http_check import SameRequest
from authplane.authserver.fronts.runtime.pyvoy.pyvoy_config import READABLE
from authplane.runtime.servers.listen import Address, TcpAddress


async def status(address: Address, target: bytes, *lines: bytes, body: bytes = b"") -> int:
    """Send a request as it is and return the status."""
    assert isinstance(address, TcpAddress)
    reader, writer = await asyncio.open_connection("127.0.0.1", address.port)
    head = [b"GET " + target + b" HTTP/1.1", *(lines or (b"host: shop.example",)), b"", body]
    writer.write(b"\r\n".join(head))
    try:
        async with asyncio.timeout(LIMIT):
            await writer.drain()
            return int((await reader.readline()).split()[1])
    finally:
        writer.close()


class Case(NamedTuple):
    target: bytes
    lines: tuple[bytes, ...] = ()
    want: frozenset[int] = frozenset({200})


REFUSED: Final = frozenset({400, 401, 403})
CASES: Final = {
    "a path": Case(b"/allow"),
    "escaped UTF-8": Case(b"/allow%C3%A9"),
    "an escape that is not UTF-8 is answered": Case(b"/x%ff", want=REFUSED),
    "half a character": Case(b"/x%c3", want=REFUSED),
    "an escaped surrogate": Case(b"/x%ed%a0%80", want=REFUSED),
    "an escape that is none": Case(b"/x%zz", want=REFUSED),
    "an escape that ends early": Case(b"/x%", want=REFUSED),
    "bytes that are not escaped": Case(b"/x\xff", want=REFUSED),
    "a query that says allow": Case(b"/x?allow", want=REFUSED),
    "a query of bytes": Case(b"/x?\xff", want=REFUSED),
    "a fragment": Case(b"/x#/allow", want=REFUSED),
    "dots are not resolved": Case(b"/x/../allow/../x", want=frozenset({200})),
    "no path": Case(b"*", want=REFUSED | {404}),
    "an absolute target": Case(b"http://shop.example/allow", want=REFUSED | {200}),
    "an absolute target with another host": Case(b"http://allow/x", want=REFUSED),
    "a body in chunks": Case(b"/allow", (b"host: a", b"transfer-encoding: chunked", b"", b"1", b"a", b"0", b"")),
    "a client that waits to be told to go on": Case(
        b"/allow", (b"host: a", b"expect: 100-continue", b"content-length: 1"), frozenset({100, 200})
    ),
    "an upgrade to WebSocket": Case(b"/allow", (b"host: a", b"connection: upgrade", b"upgrade: websocket")),
    "an upgrade to WebSocket that is denied": Case(
        b"/x", (b"host: a", b"connection: upgrade", b"upgrade: websocket"), REFUSED
    ),
    "an upgrade to HTTP/2": Case(
        b"/allow", (b"host: a", b"connection: upgrade, http2-settings", b"upgrade: h2c", b"http2-settings: AAMAAABk")
    ),
    "an upgrade to anything": Case(b"/allow", (b"host: a", b"connection: Upgrade", b"upgrade: x/1, y")),
    "a header of bytes": Case(b"/allow", (b"host: a", b"x: \xff\xfe")),
    "a header's name of bytes": Case(b"/allow", (b"host: a", b"x\xff: 1"), frozenset({400})),
    "no host": Case(b"/allow", (b"x: 1",), frozenset({400})),
    "a host of blanks": Case(b"/allow", (b"host: a b",), frozenset({400})),
    "two lengths": Case(b"/allow", (b"host: a", b"content-length: 4", b"transfer-encoding: chunked"), frozenset({400})),
    "a length that is none": Case(b"/allow", (b"host: a", b"content-length: x"), frozenset({400})),
    "a head that is too large": Case(b"/allow", (b"host: a", b"x: " + b"a" * 200_000), frozenset({400, 431})),
    "a megabyte of headers": Case(
        b"/allow", (b"host: a", *(b"x%d: " % number + b"a" * 8000 for number in range(128))), frozenset({400, 431})
    ),
}


@pytest.mark.requirement("E26")
@both
async def test_every_request_is_answered_and_only_what_is_allowed_with_200(front: Front) -> None:
    async with front(SameRequest(), "path") as address:
        for name, case in CASES.items():
            assert (name, await status(address, case.target, *case.lines) in case.want) == (name, True)


SIZES: Final = {3 * 1024 * 1024: 200, 6 * 1024 * 1024: 413}


@both
async def test_a_body_up_to_the_limit_is_judged_and_a_larger_one_is_denied(front: Front) -> None:
    async with front(SameRequest(), "path") as address:
        for size, want in SIZES.items():
            lines = (b"host: a", b"content-length: %d" % size)
            assert await status(address, b"/allow", *lines, body=bytes(size)) == want


async def test_a_client_that_sends_everything_before_it_looks_for_an_answer_finds_it() -> None:
    size = 32 * 1024 * 1024
    async with small(SameRequest(), "path") as address:
        lines = (b"host: a", b"content-length: %d" % size)
        assert await status(address, b"/allow", *lines, body=bytes(size)) == 413


@both
async def test_a_prefix_is_taken_off_to_the_letter(front: Front) -> None:
    want = {b"/check/allow": 200, b"/check/../x": 401, b"/check/../../x": 401, b"/allow": 400, b"/checkallow": 400}
    want |= {b"//check/allow": 400, b"/%63heck/allow": 400, b"/check": 400}
    async with front(SameRequest(prefix="/check"), "path") as address:
        assert {target: await status(address, target) for target in want} == want


def _readable(path: str) -> bool:
    whole = not re.search(r"%(?![0-9A-Fa-f]{2})", path)
    try:
        unquote_to_bytes(path).decode()
    except UnicodeDecodeError:
        return False
    return whole


BYTES: Final = st.lists(st.sampled_from([*range(256), 0x80, 0xA0, 0xBF, 0xE0, 0xED, 0xF0, 0xF4]), max_size=6)


@given(BYTES, st.booleans(), st.text("%aF0/z", max_size=4))
def test_the_pattern_of_readable_paths_agrees_with_a_decoder(raw: list[int], upper: bool, tail: str) -> None:
    form = "%{:02X}" if upper else "%{:02x}"
    path = "/" + "".join(form.format(byte) for byte in raw) + tail
    assert bool(re.fullmatch(READABLE, path)) == _readable(path)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_all_text_can_be_in_a_path(text: str) -> None:
    assert re.fullmatch(READABLE, "/" + quote(text, safe=""))
