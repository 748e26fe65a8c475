"""A wildcard never answers for a name that another HTTPProxy claims."""

import pytest
from tests.support.certificates import server, tls_secret
from tests.support.resources.contour_documents import PROXY, World, whole, world
from tests.support.resources.graph_views import plain_hosts, refused, secure_hosts

from authplane.controlplane.serving.generation import build_generation
from authplane.core.names import Ref
from authplane.sources.document_versions import Library

OPEN = (
    PROXY.replace("{name: web}", "{name: wild}")
    .replace("web.example", "'*.example'")
    .replace("    authorization:\n      extensionRef: {name: auth}\n", "")
)
WILD = Ref("HTTPProxy", "default", "wild")
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
    assert refused(made.graph) == ("web.example",)


def test_two_roots_with_one_name_do_not_hand_it_to_the_wildcard() -> None:
    made = world(other=PROXY.replace("{name: web}", "{name: other}"), wild=PLAIN)
    assert refused(made.graph) == ("web.example",)


def test_a_narrower_wildcard_is_claimed_too() -> None:
    narrow = PROXY.replace("{name: web}", "{name: narrow}").replace("web.example", "'*.deep.example'")
    made = world(wild=OPEN, narrow=narrow, other=tls_secret("x", server("x.example")))
    assert elsewhere(made) == ("*.deep.example", "web.example")
    assert elsewhere(made, "*.deep.example") == ()


def test_nothing_is_refused_that_no_wildcard_covers() -> None:
    assert refused(world(proxy=PROXY.replace("name: auth", "name: missing")).graph) == ()


UNREAD = {
    "an unknown field": PROXY.replace("    authorization:", "    sauce: 1\n    authorization:"),
    "a wrong type": PROXY.replace("extensionRef: {name: auth}", "extensionRef: 7"),
    "a name in capitals": PROXY.replace("web.example", "WEB.example").replace("extensionRef: {name: auth}", "x: 7"),
}


@pytest.mark.parametrize("proxy", UNREAD.values(), ids=UNREAD.keys())
def test_a_proxy_that_cannot_be_used_keeps_its_name_and_costs_the_wildcard_nothing_else(proxy: str) -> None:
    made = world(proxy=proxy, wild=OPEN)
    assert made.secure() is None
    assert elsewhere(made) == ("web.example",)
    assert refused(made.graph) == ("web.example",)
    assert made.problems("HTTPProxy", "wild") == []


UNCERTAIN = {
    "a field that is no name": (PROXY.replace("fqdn:", "fqdm:"), "HTTPProxy/default/web"),
    "a name that is a number": (PROXY.replace("fqdn: web.example", "fqdn: 7"), "HTTPProxy/default/web"),
    "a name that no host has": (
        PROXY.replace("web.example", "'web example'").replace("routes:", "x:"), "HTTPProxy/default/web"
    ),
    "no virtual host": (PROXY.replace("virtualhost:", "virtualHost:"), "HTTPProxy/default/web"),
    "two names": (
        PROXY.replace("fqdn: web.example", "fqdn: a.other\n    fqdn: web.example"), "HTTPProxy/default/web"
    ),
    "two virtual hosts": (PROXY.replace("spec:", "spec:\n  virtualhost: {fqdn: a.other}"), "HTTPProxy/default/web"),
    "no YAML": (PROXY.replace("{name: web}", "{name: web"), "PROXY"),
    "an unknown version": (PROXY.replace("projectcontour.io/v1", "projectcontour.io/v9"), "PROXY"),
    "an unfit name": (PROXY.replace("{name: web}", "{name: W_}"), "PROXY"),
    "bytes that are no text": (PROXY.replace("web.example", "\udcff"), "PROXY"),
}  # fmt: skip


@pytest.mark.parametrize(("proxy", "who"), UNCERTAIN.values(), ids=UNCERTAIN.keys())
def test_a_wildcard_waits_while_a_proxy_that_it_might_cover_cannot_be_read(proxy: str, who: str) -> None:
    library = Library()
    parts = whole() | {"proxy": proxy, "wild": OPEN}
    for name, text in parts.items():
        library.changed(name.upper(), text.encode(errors="surrogateescape"))
    built = build_generation(library.current())
    assert [
        (str(each.ref), each.problem.reason, each.problem.message) for each in built.findings if each.ref == WILD
    ] == [
        (
            "HTTPProxy/default/wild",
            "WildcardUncertain",
            f"{who} cannot be read and may protect a host that this wildcard matches. Correct that file.",
        )
    ]
    assert (secure_hosts(built.built.graph), plain_hosts(built.built.graph)) == ((), ())


def test_what_cannot_be_read_of_a_namespace_without_roots_costs_no_wildcard() -> None:
    rooted = """
apiVersion: projectcontour.io/v1alpha1
kind: ContourConfiguration
metadata: {name: contour}
spec: {httpproxy: {rootNamespaces: [default]}}
"""
    proxy = PROXY.replace("{name: web}", "{name: web, namespace: other}").replace("fqdn:", "fqdm:")
    made = world(proxy=proxy, wild=OPEN, configuration=rooted)
    assert made.problems("HTTPProxy", "wild") == []


def test_a_wildcard_knows_every_name_below_it_at_any_depth_and_none_beside_it() -> None:
    names = ["'*.a.example'", "b.a.example", "c.b.a.example", "'*.b.a.example'", "a.example", "xa.example", "a.other"]
    others = {
        f"p{index}": PROXY.replace("{name: web}", f"{{name: p{index}}}").replace("web.example", name)
        for index, name in enumerate(names)
    }
    made = world(proxy="", **others)
    assert {each.host.name: each.elsewhere for each in secure_hosts(made.graph) if each.elsewhere} == {
        "*.a.example": ("*.b.a.example", "b.a.example", "c.b.a.example"),
        "*.b.a.example": ("c.b.a.example",),
    }
