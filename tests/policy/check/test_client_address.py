"""Which client counts, where proxies stand before the one that asks."""

from typing import Final, NamedTuple

import pytest

from authplane.policy.check.client_address import TRUSTED_HOPS, client_address
from authplane.policy.check.request import Peer, Request

PEER: Final = "192.0.2.1"


class Case(NamedTuple):
    hops: int
    forwarded: tuple[str, ...]
    want: str


CASES: Final = {
    "no proxy": Case(0, (f"203.0.113.7, {PEER}",), PEER),
    "no proxy and no header": Case(0, (), PEER),
    "one proxy": Case(1, (f"203.0.113.7, {PEER}",), "203.0.113.7"),
    "one proxy, and what the client said before": Case(1, (f"10.0.0.1, 203.0.113.7,{PEER}",), "203.0.113.7"),
    "two headers": Case(1, ("10.0.0.1, 203.0.113.7", PEER), "203.0.113.7"),
    "two proxies": Case(2, (f"203.0.113.7, 198.51.100.1, {PEER}",), "203.0.113.7"),
    "past one of two proxies": Case(2, (f"198.51.100.1, {PEER}",), PEER),
    "past the only proxy": Case(1, (PEER,), PEER),
    "no header behind a proxy": Case(1, (), PEER),
}


@pytest.mark.requirement("S14")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_client_address(case: Case) -> None:
    headers = tuple(("x-forwarded-for", value) for value in case.forwarded)
    made = Request(method="GET", path="/", source=Peer(address=PEER), headers=headers)
    assert client_address(made, case.hops) == case.want
    told = Request(
        method="GET", path="/", source=Peer(address=PEER), headers=headers, context={TRUSTED_HOPS: str(case.hops)}
    )
    assert client_address(told) == case.want


@pytest.mark.parametrize("text", ["", "-1", "x", "1000", "²"])
def test_a_context_that_is_no_number_trusts_no_proxy(text: str) -> None:
    headers = (("x-forwarded-for", f"203.0.113.7, {PEER}"),)
    made = Request(method="GET", path="/", source=Peer(address=PEER), headers=headers, context={TRUSTED_HOPS: text})
    assert client_address(made) == PEER


@pytest.mark.parametrize("hops", [1, 9, 10, 99, 100, 999])
def test_up_to_999_proxies_can_be_trusted(hops: int) -> None:
    told = ", ".join(["203.0.113.7", *["198.51.100.1"] * (hops - 1), PEER])
    made = Request(
        method="GET",
        path="/",
        source=Peer(address=PEER),
        headers=(("x-forwarded-for", told),),
        context={TRUSTED_HOPS: str(hops)},
    )
    assert client_address(made) == "203.0.113.7"


def test_more_proxies_than_that_are_none() -> None:
    told = ", ".join(["203.0.113.7", *["198.51.100.1"] * 999, PEER])
    made = Request(
        method="GET",
        path="/",
        source=Peer(address=PEER),
        headers=(("x-forwarded-for", told),),
        context={TRUSTED_HOPS: "1000"},
    )
    assert client_address(made) == PEER
