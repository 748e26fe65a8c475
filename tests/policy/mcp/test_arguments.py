"""Names of arguments that some server could take for those that a rule reads."""

import unicodedata
from typing import Any, Final, NamedTuple

import pytest
from tests.support.cel.expressions import program

from authplane.cel.syntax.read_members import NOTHING, Members, find_members, join_members
from authplane.policy.mcp.arguments import are_ambiguous, fold_name

PARAMS: Final = ("request", "mcp", "params")
TO: Final = 'request.mcp.params.to == "alice"'
LEAF: Final = Members(whole=frozenset())


def read(text: str) -> Members:
    return find_members(program(text).tree, PARAMS)


READ: Final = {
    "one": (TO, Members({"to": LEAF})),
    "by index": ('request.mcp.params["to"] == "alice"', Members({"to": LEAF})),
    "inside of another": ("request.mcp.params.a.b == 1", Members({"a": Members({"b": LEAF})})),
    "whether it is there": ("has(request.mcp.params.to)", Members({"to": NOTHING})),
    "whether a key is there": ('"to" in request.mcp.params', Members({"to": NOTHING})),
    "two": ("request.mcp.params.a.b == request.mcp.params.a.c", Members({"a": Members({"b": LEAF, "c": LEAF})})),
    "all": ("size(request.mcp.params) == 1", LEAF),
    "elements": (
        'request.mcp.params.l.exists(x, x.to == identity.group && request.headers["a"] == "b")',
        Members({"l": Members(whole=frozenset({"to"}))}),
    ),
    "an element": ("request.mcp.params.l[0].to == 1", Members({"l": Members(whole=frozenset({"to"}))})),
    "nothing": ('request.mcp.tool_name == "a" && identity.to == "b" && has(request.mcp.method)', NOTHING),
}


@pytest.mark.parametrize(("text", "want"), READ.values(), ids=READ.keys())
def test_what_an_expression_reads_of_arguments(text: str, want: Members) -> None:
    assert read(text) == want


def test_what_several_expressions_read() -> None:
    joined = join_members((read(TO), read("request.mcp.params.a.b == 1"), read("has(request.mcp.params.a.c)"), NOTHING))
    assert joined == Members({"to": LEAF, "a": Members({"b": LEAF, "c": NOTHING})})
    assert (bool(joined), bool(NOTHING), bool(LEAF)) == (True, False, True)


class Case(NamedTuple):
    arguments: Any
    ambiguous: bool
    text: str = TO


CASES: Final = {
    "plain": Case({"to": "alice", "amount": 1}, ambiguous=False),
    "capitals": Case({"to": "alice", "amount": 1, "TO": "mallory"}, ambiguous=True),
    "one capital": Case({"To": "mallory", "to": "alice"}, ambiguous=True),
    "the other capital": Case({"to": "alice", "tO": "mallory"}, ambiguous=True),
    "without the real one": Case({"TO": "mallory"}, ambiguous=True),
    "full width": Case({"to": "alice", "\uff54o": "mallory"}, ambiguous=True),
    "an invisible character": Case({"to": "alice", "t\u200bo": "mallory"}, ambiguous=True),
    "a soft hyphen": Case({"to": "alice", "t\u00ado": "mallory"}, ambiguous=True),
    "a selector": Case({"to": "alice", "to\ufe0f": "mallory"}, ambiguous=True),
    "a NUL": Case({"to": "alice", "to\0": "mallory"}, ambiguous=True),
    "a blank": Case({"to": "alice", " to": "mallory"}, ambiguous=True),
    "an odd blank": Case({"to": "alice", "to\u3000": "mallory"}, ambiguous=True),
    "a tab": Case({"to": "alice", "to\t": "mallory"}, ambiguous=True),
    "an accent": Case({"to": "alice", "tö": "x"}, ambiguous=False),
    "a blank inside": Case({"to": "alice", "t o": "x"}, ambiguous=False),
    "a longer name": Case({"to": "alice", "tom": "x"}, ambiguous=False),
    "what no rule reads": Case({"to": "alice", "cc": "x", "CC": "y"}, ambiguous=False),
    "inside of what no rule reads": Case({"to": "alice", "x": {"to": 1, "TO": 2}}, ambiguous=False),
    "long s": Case({"user": 1, "u\u017fer": 2}, ambiguous=True, text="request.mcp.params.user == 1"),
    "Kelvin": Case({"key": 1, "\u212aey": 2}, ambiguous=True, text="request.mcp.params.key == 1"),
    "inside of an object": Case({"a": {"b": 1, "B": 2}}, ambiguous=True, text="request.mcp.params.a.b == 1"),
    "beside it in the object": Case(
        {"a": {"b": 1, "c": 1, "C": 2}}, ambiguous=False, text="request.mcp.params.a.b == 1"
    ),
    "above the object": Case({"a": {"b": 1}, "A": {"b": 2}}, ambiguous=True, text="request.mcp.params.a.b == 1"),
    "whether there is one": Case({"TO": 1}, ambiguous=True, text="!has(request.mcp.params.to)"),
    "inside of what is only asked for": Case(
        {"to": {"a": 1, "A": 2}}, ambiguous=False, text="has(request.mcp.params.to)"
    ),
    "inside of what is compared": Case(
        {"to": {"a": 1, "A": 2}}, ambiguous=True, text='request.mcp.params.to == {"a": 1}'
    ),
    "in an element": Case(
        {"l": [{"x": 1}, {"to": 1, "TO": 2}]}, ambiguous=True, text="request.mcp.params.l.all(e, e.to == 1)"
    ),
    "in an element without the real one": Case(
        {"l": [{"TO": 2}]}, ambiguous=True, text="request.mcp.params.l.all(e, !has(e.to))"
    ),
    "an element that is plain": Case(
        {"l": [{"to": 1, "cc": 2}, 3]}, ambiguous=False, text="request.mcp.params.l.all(e, e.to == 1)"
    ),
    "all of them": Case({"x": 1, "X": 2}, ambiguous=True, text="size(request.mcp.params) < 3"),
    "all of them, plain": Case({"x": 1, "y": {"z": [1]}}, ambiguous=False, text="size(request.mcp.params) < 3"),
    "both are read": Case(
        {"to": 1, "TO": 1}, ambiguous=True, text="request.mcp.params.to == 1 && request.mcp.params.TO == 1"
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_arguments_that_a_reader_could_take_for_others_are_found(case: Case) -> None:
    assert are_ambiguous(case.arguments, read(case.text)) is case.ambiguous


def test_what_does_not_count_in_a_name() -> None:
    assert {fold_name(each) for each in ("to", "TO", " To\n", "\ufeffto", "t\u034fo", "\uff34\uff2f")} == {"to"}
    assert len({fold_name(each) for each in ("to", "tö", "t-o", "to2", "t o")}) == 5


IGNORED = ((0x034F, 0x034F), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x3164, 0x3164), (0xFE00, 0xFE0F),
           (0xFFA0, 0xFFA0), (0xE0000, 0xE0FFF))  # fmt: skip
"""Default-ignorable characters that are no controls and no formats, from Unicode's table."""


@pytest.mark.parametrize(("first", "last"), IGNORED, ids=lambda each: f"{each:x}")
def test_invisible_characters_are_ignored_up_to_the_ends_of_their_ranges(first: int, last: int) -> None:
    assert [fold_name(f"t{chr(each)}o") for each in (first, last)] == ["to", "to"]
    beside = [each for each in (first - 1, last + 1) if not any(low <= each <= high for low, high in IGNORED)]
    counted = [each for each in map(chr, beside) if unicodedata.category(each) not in {"Cf", "Cc"}]
    assert all(fold_name(f"t{each}o") != "to" for each in counted)
