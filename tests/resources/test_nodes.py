"""Strict YAML."""

from typing import NamedTuple

import pytest
import yaml

from authplane.core.problems import Problem
from authplane.resources.yaml import nodes
from authplane.resources.yaml.nodes import Entry, Fields, Items, Parsed, Scalar, Spot, Value, parse_nodes, value_of


def plain(text: str, line: int, column: int) -> Scalar:
    return Scalar(text, True, line, column)


def test_nodes_know_their_line_and_column() -> None:
    assert parse_nodes('a:\n  - b\n  - "c"\nd: {e: 1}\n') == Parsed(
        Fields(
            {
                "a": Entry(Items((plain("b", 2, 5), Scalar("c", False, 3, 5)), 2, 3), 1, 1),
                "d": Entry(Fields({"e": Entry(plain("1", 4, 8), 4, 5)}, 4, 4), 4, 1),
            },
            1,
            1,
        ),
        (),
    )


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n", "---\n# nothing\n"])
def test_a_text_without_content_has_no_problem(text: str) -> None:
    parsed = parse_nodes(text)
    assert parsed.spots == ()
    assert parsed.root is None or nodes.is_null(parsed.root)


class Case(NamedTuple):
    text: str
    spots: tuple[tuple[str, str, int, int], ...]
    """Dotted path and reason, message, line, column."""


BAD = {
    "a duplicate key names both lines": Case(
        "a: 1\nb: 2\na: 3\n",
        (("a DuplicateKey", "The key 'a' occurs twice in this mapping, on lines 1 and 3. Remove one of them.", 3, 1),),
    ),
    "a quoted key is the same key": Case(
        'a: 1\n"\\x61": 2\n',
        (("a DuplicateKey", "The key 'a' occurs twice in this mapping, on lines 1 and 2. Remove one of them.", 2, 1),),
    ),
    "anchor and alias": Case(
        "a: &x 1\nb:\n  - *x\n",
        (
            ("a YamlNotAllowed", "An anchor (&) is not allowed. Write the value out where it is used.", 1, 4),
            ("b.0 YamlNotAllowed", "An alias (*) is not allowed. Write the value out.", 3, 5),
        ),
    ),
    "anchor of a mapping": Case(
        "a: &x {}\n",
        (("a YamlNotAllowed", "An anchor (&) is not allowed. Write the value out where it is used.", 1, 4),),
    ),
    "merge key": Case(
        "<<: {a: 1}\n", ((" YamlNotAllowed", "A merge key (<<) is not allowed. Write the fields out.", 1, 1),)
    ),
    "tag": Case(
        "a: !!python/object/apply:os.system [ls]\n",
        (("a YamlNotAllowed", "A tag (!) is not allowed. Remove it.", 1, 4),),
    ),
    "tag of a text": Case("a: !!str 1\n", (("a YamlNotAllowed", "A tag (!) is not allowed. Remove it.", 1, 4),)),
    "number as key": Case("1: a\n", ((" YamlNotAllowed", "A key must be a string. Put it in quotes.", 1, 1),)),
    "truth value as key": Case("true: a\n", ((" YamlNotAllowed", "A key must be a string. Put it in quotes.", 1, 1),)),
    "null as key": Case("~: a\n", ((" YamlNotAllowed", "A key must be a string. Put it in quotes.", 1, 1),)),
    "list as key": Case(
        "? [a]\n: b\n", ((" YamlNotAllowed", "A key must be a string, not a list or a mapping. Use a string.", 1, 3),)
    ),
    "NUL": Case("a: b\nc: \0\n", ((" YamlInvalid", "The character U+0000 is not allowed. Remove it.", 2, 4),)),
    "NUL by escape": Case(
        'a: b\nc: "\\0"\n', (("c YamlInvalid", "The character U+0000 is not allowed. Remove it.", 2, 4),)
    ),
    "control character": Case(
        "a: \x1b[31m\n", ((" YamlInvalid", "The character U+001B is not allowed. Remove it.", 1, 4),)
    ),
    "tab as indentation": Case(
        "a:\n\tb: c\n",
        (
            (
                " YamlInvalid",
                "This is not YAML: while scanning for the next token, found character that cannot "
                "start any token. Correct the syntax.",
                2,
                1,
            ),
        ),
    ),
    "syntax": Case(
        "a: b: c\n",
        (
            (
                " YamlInvalid",
                "This is not YAML: mapping values are not allowed in this context. Correct the syntax.",
                1,
                5,
            ),
        ),
    ),
}


@pytest.mark.requirement("F05")
@pytest.mark.requirement("F06")
@pytest.mark.parametrize("case", BAD.values(), ids=BAD.keys())
def test_what_makes_yaml_surprising_is_refused(case: Case) -> None:
    found = tuple(
        (f"{'.'.join(map(str, spot.problem.path))} {spot.problem.reason}", spot.problem.message, spot.line, spot.column)
        for spot in parse_nodes(case.text).spots
    )
    assert found == case.spots


SCALARS: dict[str, Value] = {
    "true": True, "False": False, "null": None, "~": None, "1": 1, "-7": -7, "+7": 7, "0": 0, "0x1F": 31, "0o17": 15,
    "1.5": 1.5, ".5": 0.5, "1e3": 1000.0, "-.inf": float("-inf"), "9" * 5000: float("inf"),
    "yes": "yes", "no": "no", "on": "on", "off": "off", "y": "y", "0755": "0755", "12:30": "12:30",
    "2026-11-15": "2026-11-15", "1_000": "1_000", "0b1": "0b1", ".": ".", "-": "-", "nUll": "nUll", "tRue": "tRue",
    "\u0661": "\u0661",
}  # fmt: skip


@pytest.mark.requirement("F05")
@pytest.mark.parametrize(("text", "want"), SCALARS.items(), ids=(each[:12] for each in SCALARS))
def test_plain_scalars_follow_the_core_schema(text: str, want: Value) -> None:
    got = value_of(plain(text, 1, 1))
    assert (got, type(got)) == (want, type(want))
    assert value_of(Scalar(text, False, 1, 1)) == text


@pytest.mark.requirement("F04")
@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? "])
def test_nesting_without_end_is_refused_at_once(opening: str) -> None:
    (spot,) = parse_nodes(opening * 100_000).spots
    assert spot.problem == Problem(
        (), "YamlInvalid", "Lists and mappings are nested more than 64 levels deep. Use fewer levels."
    )


def test_nesting_up_to_the_limit_is_read() -> None:
    assert parse_nodes("[" * 64 + "]" * 64).spots == ()
    assert parse_nodes("[" * 65 + "]" * 65).spots == (
        Spot(
            Problem((), "YamlInvalid", "Lists and mappings are nested more than 64 levels deep. Use fewer levels."),
            1,
            65,
        ),
    )


@pytest.mark.requirement("F03")
def test_an_alias_bomb_does_not_expand() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    parsed = parse_nodes("\n".join(lines))
    assert {spot.problem.reason for spot in parsed.spots} == {"YamlNotAllowed"}
    assert len(parsed.spots) == 9 + 8 * 9


def test_json_with_tabs_is_read() -> None:
    assert parse_nodes('{\n\t"a":[1,true,null],\n\t"b":"\\u003c\\/"\n}') == Parsed(
        Fields(
            {
                "a": Entry(Items((plain("1", 2, 7), plain("true", 2, 9), plain("null", 2, 14)), 2, 6), 2, 2),
                "b": Entry(Scalar("</", False, 3, 6), 3, 2),
            },
            1,
            1,
        ),
        (),
    )


def test_crlf_lines_count_as_lines() -> None:
    assert parse_nodes("a: b\r\nc: d\r\n") == Parsed(
        Fields({"a": Entry(plain("b", 1, 4), 1, 1), "c": Entry(plain("d", 2, 4), 2, 1)}, 1, 1), ()
    )


def test_a_syntax_error_does_not_repeat_the_text_around_it() -> None:
    for text in (
        "password: hunter2: x",
        "password: 'hunter2",
        "password: *hunter2!",
        "password: !<hunter2 x",
        "%hunter2\n",
    ):
        spots = parse_nodes(text).spots
        assert spots
        assert "hunter2" not in repr(spots)


def test_both_parsers_of_the_library_give_the_same_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [case.text for case in BAD.values() if "YamlInvalid" not in case.spots[0][0]]
    texts += ["a:\n  - b\n  - {c: 'd'}\ne: |\n  f\n", "[" * 70]
    fast = [parse_nodes(text) for text in texts]
    monkeypatch.setattr(nodes, "LOADER", yaml.SafeLoader)
    assert [parse_nodes(text) for text in texts] == fast
