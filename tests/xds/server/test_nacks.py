"""What a client says when it refuses."""

import pytest

from authplane.xds.server.client_text import clean_message, clean_node
from authplane.xds.server.nacks import mentioned

MENTIONS = {
    "a listener as Envoy writes it": ("Error adding/updating listener(s) web: no filter\n", ("web",)),
    "two of them": ("Error adding/updating listener(s) web: x\nshop/api: y\n", ("shop/api", "web")),
    "a quoted name": ("bad cluster 'web'", ("web",)),
    "a name at the end of a sentence": ("cannot use web.", ("web",)),
    "a part of a longer word is no mention": ("website, my-web, web_2, web-2, a/web, web.example", ()),
    "a mention after such a part": ("website web", ("web",)),
    "nothing": ("", ()),
}


@pytest.mark.parametrize("case", MENTIONS.values(), ids=MENTIONS.keys())
def test_mentioned(case: tuple[str, tuple[str, ...]]) -> None:
    message, want = case
    assert mentioned(("", "shop/api", "web"), message) == want


CLEAN = {
    "plain text stays": ("no such cluster: ü", "no such cluster: ü"),
    "a terminal sequence is shown": ("\x1b[31mred", "\\x1b[31mred"),
    "lines become one": ("a\r\nb\u2028c", "a\\r\\nb\\u2028c"),
    "text direction cannot be turned": ("a\u202eb", "a\\u202eb"),
    "a long text is cut": ("x" * 10_000_000, "x" * 4096),
    "escapes count": ("\x00" * 5000, ("\\x00" * 1024)),
    "no character is cut in half": ("x" + "ü" * 5000, "x" + "ü" * 2047),
}


@pytest.mark.requirement("X10")
@pytest.mark.parametrize("case", CLEAN.values(), ids=CLEAN.keys())
def test_clean_message(case: tuple[str, str]) -> None:
    text, want = case
    assert clean_message(text) == want


def test_a_node_id_is_cut_and_escaped() -> None:
    assert clean_node("edge\n" + "x" * 1000) == "edge\\n" + "x" * 250
