"""A wildcard never answers for a name that another HTTPProxy claims."""

import pytest
from tests.support.certificates import server, tls_secret
from tests.support.world import PROXY, World, world

OPEN = (
    PROXY.replace("{name: web}", "{name: wild}")
    .replace("web.example", "'*.example'")
    .replace("    authorization:\n      extensionRef: {name: auth}\n", "")
)
PLAIN = OPEN.replace("    tls: {secretName: tls}\n", "")


def elsewhere(made: World, fqdn: str = "*.example") -> tuple[str, ...]:
    secure = made.secure(fqdn)
    assert secure is not None
    return secure.elsewhere


def test_what_others_serve_is_misdirected() -> None:
    assert elsewhere(world(wild=OPEN)) == ("web.example",)


@pytest.mark.parametrize(
    "proxy",
    [
        PROXY.replace("name: auth", "name: missing"),
        PROXY.replace("secretName: tls", "secretName: missing"),
        PROXY.replace("extensionRef: {name: auth}", "extensionRef: {name: auth}\n      responseTimeout: '30'"),
    ],
)
def test_what_is_withdrawn_is_not_handed_to_the_wildcard(proxy: str) -> None:
    made = world(proxy=proxy, wild=OPEN)
    assert made.secure() is None
    assert elsewhere(made) == ("web.example",)
    assert made.graph.refused == ("web.example",)


def test_two_roots_with_one_name_do_not_hand_it_to_the_wildcard() -> None:
    made = world(other=PROXY.replace("{name: web}", "{name: other}"), wild=PLAIN)
    assert made.graph.refused == ("web.example",)


def test_a_narrower_wildcard_is_claimed_too() -> None:
    narrow = PROXY.replace("{name: web}", "{name: narrow}").replace("web.example", "'*.deep.example'")
    made = world(wild=OPEN, narrow=narrow, other=tls_secret("x", server("x.example")))
    assert elsewhere(made) == ("*.deep.example", "web.example")
    assert elsewhere(made, "*.deep.example") == ()


def test_nothing_is_refused_that_no_wildcard_covers() -> None:
    assert world(proxy=PROXY.replace("name: auth", "name: missing")).graph.refused == ()


def test_a_wildcard_waits_while_a_proxy_that_it_might_cover_cannot_be_read() -> None:
    made = world(proxy=PROXY.replace("fqdn:", "fqdm:"), wild=OPEN)
    assert made.problems("HTTPProxy", "wild") == [
        (
            "WildcardUncertain",
            "HTTPProxy/default/web cannot be read and may protect a host that this wildcard would answer for",
        )
    ]
    assert (made.graph.secure_hosts, made.graph.plain_hosts) == ((), ())


def test_a_wildcard_knows_every_name_below_it_at_any_depth_and_none_beside_it() -> None:
    names = ["'*.a.example'", "b.a.example", "c.b.a.example", "'*.b.a.example'", "a.example", "xa.example", "a.other"]
    others = {
        f"p{index}": PROXY.replace("{name: web}", f"{{name: p{index}}}").replace("web.example", name)
        for index, name in enumerate(names)
    }
    made = world(proxy="", **others)
    assert {each.host.fqdn: each.elsewhere for each in made.graph.secure_hosts if each.elsewhere} == {
        "*.a.example": ("*.b.a.example", "b.a.example", "c.b.a.example"),
        "*.b.a.example": ("c.b.a.example",),
    }
