"""Documents that are like others are read as if they were not."""

from collections.abc import Iterator
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as some

from authplane.resources.document_chunks import Chunk, build_chunk
from authplane.resources.stencils import MOST, Stencils, build_stencil, split_words
from authplane.resources.yaml.nodes import Items, Node, Scalar, parse_nodes

PROXY = """
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {name: NAME, labels: {app: LABEL}}
spec:
  virtualhost:
    fqdn: FQDN
  routes:
  - services:
    - name: "SERVICE"
      port: PORT
    conditions: [{prefix: /PATH}]
"""
WORDS = ("NAME", "LABEL", "FQDN", "SERVICE", "PORT", "PATH")


def filled(*words: str) -> str:
    text = PROXY
    for name, word in zip(WORDS, words, strict=True):
        text = text.replace(name, word)
    return text


GOOD = filled("web", "a", "web.example", "echo", "80", "x")


def described(chunk: Chunk) -> object:
    docs = [(doc.ref, doc.resource, doc.spots, doc.root) for doc in chunk.docs]
    return chunk.text, docs, chunk.spots, chunk.ignored, chunk.faulty


def outlines(texts: Iterator[str]) -> set[tuple[str, ...]]:
    return {split_words(text)[0] for text in texts}


class Case(NamedTuple):
    first: str
    other: str
    alike: bool = True
    """Both have the same outline."""


SERVICE = "apiVersion: v1\nkind: Service\nmetadata: {name: a}\n"
CASES = {
    "other names": Case(GOOD, filled("shop", "b", "shop.example", "pay", "8080", "y/z")),
    "null is no label": Case(GOOD, filled("shop", "null", "shop.example", "pay", "8080", "y")),
    "a number is no label": Case(GOOD, filled("shop", "7", "shop.example", "pay", "8080", "y")),
    "a number in quotes is text": Case(GOOD, filled("shop", "b", "shop.example", "7", "8080", "y")),
    "a bad name is found where it stands": Case(GOOD, filled("Shop", "b", "shop.example", "pay", "8080", "y")),
    "a bad port is found where it stands": Case(GOOD, filled("a-longer-name", "b", "x", "y", "70000", "y")),
    "a text is no port": Case(GOOD, filled("shop", "b", "shop.example", "pay", "http", "y")),
    "a number beyond all limits": Case(GOOD, filled("shop", "b", "shop.example", "pay", "9" * 200, "y")),
    "no name": Case(GOOD, filled("null", "b", "shop.example", "pay", "80", "y")),
    "another kind": Case(GOOD, GOOD.replace("HTTPProxy", "ExtensionService")),
    "an unknown kind": Case(GOOD, GOOD.replace("HTTPProxy", "Proxy")),
    "a foreign group": Case(GOOD, GOOD.replace("projectcontour.io/v1", "example.com/v1")),
    "a comment": Case(SERVICE + "# by: me\n", SERVICE + "# by: you\n"),
    "a text of several lines": Case(
        SERVICE + "spec: {externalName: x\n y}\n", SERVICE + "spec: {externalName: z\n y}\n"
    ),
    "a block of text": Case(
        SERVICE + "spec:\n  externalName: |\n    a: b\n", SERVICE + "spec:\n  externalName: |\n    a: c\n"
    ),
    "a duplicate key": Case(SERVICE + "kind: x\n", SERVICE + "kind: y\n"),
    "a key without a value": Case(SERVICE + "spec: {type, x}\n", SERVICE + "spec: {type, y}\n"),
    "anchors and aliases": Case(SERVICE + "spec: &a\n x: b\n", SERVICE + "spec: &a\n x: c\n"),
    "a tag": Case(SERVICE + "spec: {type: !!str x}\n", SERVICE + "spec: {type: !!str y}\n"),
    "a word that is unlike a word": Case(GOOD, GOOD.replace("echo", "e:\u00e9"), alike=False),
    "an escape": Case(GOOD, GOOD.replace("echo", "\\x41"), alike=False),
    "carriage returns": Case(GOOD.replace("\n", "\r\n"), GOOD.replace("\n", "\r\n").replace("echo", "x")),
    "a list": Case(
        "apiVersion: v1\nkind: List\nitems:\n- {kind: Service, apiVersion: v1, metadata: {name: a}}\n",
        "apiVersion: v1\nkind: List\nitems:\n- {kind: Service, apiVersion: v1, metadata: {name: b}}\n",
    ),
    "JSON": Case(
        '{"apiVersion":"v1","kind":"Service","metadata":{"name":"a"}}',
        '{"apiVersion":"v1","kind":"Service","metadata":{"name":"b"}}',
    ),
    "a secret": Case(
        "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ndata: {a: eA==}\n",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ndata: {a: eQ}\n",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_document_like_others_is_read_as_by_itself(case: Case) -> None:
    assert (len(outlines(iter(case[:2]))) == 1) == case.alike
    stencils = Stencils()
    for text in (case.first, case.first, case.other, case.first, case.other, GOOD):
        assert described(stencils.build(text)) == described(build_chunk(text))


def test_what_documents_have_in_common_is_made_once() -> None:
    stencils = Stencils()
    texts = [filled(f"n{number}", "a", f"{number}.example", "echo", "80", "x") for number in range(5)]
    resources = [doc.resource for text in texts for doc in stencils.build(text).docs]
    routes = [getattr(resource, "spec", None).routes[0] for resource in resources[2:]]  # type: ignore[union-attr]
    assert routes[0] is routes[1] is routes[2]


def test_more_outlines_than_are_remembered_do_no_harm() -> None:
    stencils = Stencils()
    for number in range(MOST + 10):
        text = SERVICE + f"# {number} #\n"
        assert described(stencils.build(text)) == described(build_chunk(text))
    assert len(stencils._known) <= MOST


PIECES = (
    "a: ", "b: ", "c:", "- ", " ", "\n", "\n  ", "\n    ", "\n- ", "[", "]", "{", "}", ", ", "w1", "/p", "9", "null",
    "hello world", '"', "'", '"w"', "'w'", '"q":', '"q":"v"', " # c", "|\n  ", ">\n  ", "? ", ": ", ":", "a.b/c",
    "\t", "- - ", "? a\n: b", "a: w\nb: w\n", "  k: v\n", "k: [v, v]\n", "k: {v: v}\n", "k: {v: v, w}\n", "w\n",
)  # fmt: skip
OTHERS = ("a", "b0", "null", "true", "1", "0x1F", "1e3", "9" * 30, "a.b", "/x/y", "a-", "a=", "a+b", "T.", "x" * 200)


def bare(node: Node) -> object:
    """Leave the positions out."""
    if isinstance(node, Scalar):
        return node.text, node.plain
    if isinstance(node, Items):
        return [bare(item) for item in node.items]
    return {name: bare(entry.node) for name, entry in node.entries.items()}


@given(some.lists(some.sampled_from(PIECES), max_size=12).map("".join), some.data())
def test_nodes_from_other_words_are_what_the_parser_finds(text: str, data: some.DataObject) -> None:
    parsed = parse_nodes(text)
    stencil = build_stencil(text, parsed)
    if stencil is None:
        return
    outline, words = split_words(text)
    fixed = dict(stencil.fixed)
    others = [fixed.get(index) or data.draw(some.sampled_from(OTHERS)) for index in range(len(words))]
    assert stencil.fits(others)
    pairs = zip(outline[1::2], others, outline[2::2], strict=True)
    found = parse_nodes(outline[0] + "".join("".join(parts) for parts in pairs))
    assert found.spots == ()
    assert found.root is not None
    assert bare(found.root) == bare(stencil.fill(others))
