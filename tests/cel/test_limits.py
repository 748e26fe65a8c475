"""What an expression and its data may cost."""

import random
from datetime import UTC, datetime
from time import process_time
from typing import Final

import pytest
from tests.support.cel.expressions import known, outcome, problems, program, said

from authplane.cel.check.admissible_data import MOST_DATA, MOST_ELEMENTS, MOST_STRING, Admitted, admit, admit_texts
from authplane.cel.check.expression_outcome import HOLDS, HOLDS_NOT, Code, Failed
from authplane.cel.evaluate.evaluation import evaluate
from authplane.cel.evaluate.slow_programs import QUICK, Pace, Patience
from authplane.cel.syntax.expression_problem import Reason

TOO_LARGE = {
    "5,000 parentheses": "(" * 5000 + "true" + ")" * 5000,
    "40 parentheses": "(" * 40 + "true" + ")" * 40,
    "20,000 negations": "!" * 20_000 + "true",
    "a long sum": " + ".join(["1"] * 3000) + " > 1",
    "a short sum that is nested too deep": " + ".join(["1"] * 40) + " > 1",
    "a literal of 120 kB": f"identity.a == '{'x' * 120_000}'",
    "a path that is too long": f"identity{'.a' * 40} == 1",
    "lists in lists": "[" * 40 + "]" * 40 + " == []",
    "4 kB and a byte": f"identity.a == '{'x' * (4096 - 15)}'",
}


@pytest.mark.requirement("C12")
@pytest.mark.parametrize("text", TOO_LARGE.values(), ids=TOO_LARGE.keys())
def test_an_expression_that_is_too_large_is_refused(text: str) -> None:
    assert [each.reason for each in problems(text)] == [Reason.TOO_LARGE]


def test_an_expression_of_4_kb_is_taken() -> None:
    program(f"identity.a == '{'x' * (4096 - 16)}'")
    program(" && ".join(["identity.a == 1"] * 200))


TOO_COSTLY = {
    "four loops in each other": "identity.a.all(w, identity.a.all(x, identity.a.all(y, identity.a.all(z, w == z))))",
    "three loops in each other": "identity.a.exists(x, identity.b.exists(y, identity.c.exists(z, x == z)))",
    "loops over results of loops": "identity.a.map(x, identity.a.map(y, identity.a.filter(z, z == y))).size() > 1",
    "two loops around a literal one": "identity.a.all(x, identity.a.all(y, [1, 2, 3].all(z, x == y)))",
    "concatenation in two loops": "identity.a.all(x, identity.a.all(y, (identity.s + x + y).size() > 0))",
    "a pattern on a long string in a loop": "identity.a.exists(x, identity.s.matches('^(a|b)+$'))",
    "a large pattern": r"identity.a.exists(x, x.matches('^\\p{L}+$'))",
    "comparing everything in a loop": "identity.a.exists(x, identity.b == identity.c)",
    "comparing everything in disguise": "identity.a.exists(x, dyn(identity.b) == (x ? identity.c : identity.b))",
    "searching joined lists": "identity.a.exists(x, x in identity.b + identity.c)",
    "searching the keys of a map as a list": "dyn(identity).exists(x, x in identity.a)",
    "a search in a string in two loops": "identity.a.all(x, identity.b.all(y, identity.s.contains(y)))",
    "a search for a long string in a loop": "identity.a.all(x, identity.s.contains(identity.t))",
    "the size of a string in two loops": "identity.a.all(x, identity.b.all(y, identity.s.size() > 1))",
    "the size of a string in two loops, as a function": "identity.a.all(x, identity.b.all(y, size(identity.s) > 1))",
    "searching lists in two loops": "identity.a.all(x, identity.b.all(y, x in identity.c))",
}


@pytest.mark.requirement("C09")
@pytest.mark.parametrize("text", TOO_COSTLY.values(), ids=TOO_COSTLY.keys())
def test_an_expression_that_may_take_too_long_is_refused(text: str) -> None:
    assert [each.reason for each in problems(text)] == [Reason.TOO_COSTLY]


AFFORDABLE = {
    "one loop": "identity.groups.exists(x, x == 'admin')",
    "two loops": "identity.a.exists(x, identity.b.exists(y, x == y))",
    "a search in a loop": "identity.roles.exists(x, x in identity.allowed)",
    "keys in a loop": "identity.names.all(x, x in request.headers) && identity.all(x, x in request.mcp.params)",
    "a pattern in a loop": "identity.groups.exists(x, x.matches('^team-[a-z0-9-]{1,40}$'))",
    "texts in a loop": "identity.prefixes.exists(x, request.path.startsWith(x) || request.path.contains(x))",
    "concatenation in a loop": "identity.groups.exists(x, 'team-' + x == request.host)",
    "many patterns": " || ".join(f"identity.a.matches('^{each}[a-z]+$')" for each in range(20)),
}


@pytest.mark.parametrize("text", AFFORDABLE.values(), ids=AFFORDABLE.keys())
def test_what_people_write_is_affordable(text: str) -> None:
    program(text)


def test_why_an_expression_is_too_costly_is_said() -> None:
    assert said(TOO_COSTLY["four loops in each other"]) == [
        "1:15: Nested loops take about 100,000,000 steps; the maximum is 10,000. Remove a loop. [TooCostly]"
    ]
    assert said(TOO_COSTLY["comparing everything in a loop"]) == [
        "1:18: The evaluation can take too long. Use fewer operations on long strings and lists in loops. [TooCostly]"
    ]


LISTS: Final = {"a": ["x" * 100] * 1000, "b": ["y" * 100] * 1000}


def bits(seed: int, size: int) -> str:
    return format(random.Random(seed).getrandbits(size), f"0{size}b")  # noqa: S311 (the same bits every time)


WORST: Final = {
    "two loops": ("identity.a.exists(x, identity.b.exists(y, x == y))", LISTS),
    "a search in a loop": ("identity.a.exists(x, x in identity.b)", LISTS),
    "a pattern in a loop": (
        "identity.a.exists(x, x.matches('^[01]*1[01]{20}x$'))",
        {"a": [bits(1, 240)] * 1000},
    ),
    "a costly pattern": (
        "identity.a.matches('([01]*1[01]{90}x)|([01]*1[01]{91}y)|([01]*1[01]{92}z)')",
        {"a": bits(2, MOST_STRING)},
    ),
    "concatenation in a loop": (
        "identity.a.exists(x, identity.s + x == 'a')",
        {"a": ["x" * 100] * 1000, "s": "s" * MOST_STRING},
    ),
    "a search in a string in a loop": (
        "identity.a.exists(x, identity.s.contains(x))",
        {"a": ["s" * 200 + "y"] * 1000, "s": "s" * MOST_STRING},
    ),
    "a search for a long string": (
        "identity.a.contains(identity.b)",
        {"a": "s" * MOST_STRING, "b": "s" * (MOST_STRING // 2) + "y"},
    ),
    "one comparison of the largest data": (
        "identity.a == identity.b",
        {"a": [["x"] * 900] * 8, "b": [*[["x"] * 900] * 7, ["y"] * 900]},
    ),
}


@pytest.mark.requirement("C10")
@pytest.mark.parametrize(("text", "identity"), WORST.values(), ids=WORST.keys())
def test_the_slowest_accepted_expression_does_not_block_the_interpreter_for_long(text: str, identity: object) -> None:
    checked = program(text)
    facts = known({"identity": identity})
    began = process_time()
    result = evaluate(checked, facts)
    assert process_time() - began < 1
    assert result in {HOLDS_NOT, Failed(Code.TOO_COSTLY)}


PATTERNS = {
    "from a claim": ("identity.a.matches(identity.b)", "is not a literal. Write it as a string in the expression."),
    "made of parts": ("identity.a.matches('^' + 'a')", "is not a literal. Write it as a string in the expression."),
    "called as a function": (
        "matches(identity.a, '[')",
        "is not a valid RE2 regular expression: missing ]: [. Correct it.",
    ),
    "repeated too often": (
        "identity.a.matches('(a{1000}){1000}')",
        "is not a valid RE2 regular expression: invalid repetition size: {1000}. Correct it.",
    ),
    "looking back": (
        r"identity.a.matches('(a)\\1')",
        "is not a valid RE2 regular expression: invalid escape sequence: \\1. Correct it.",
    ),
    "too long": (f"identity.a.matches('{'a' * 257}')", "is longer than 256 characters. Shorten it."),
    "too large": (
        r"identity.a.matches('^\\p{L}{1,64}$')",
        "is too large: it compiles to 76,609 RE2 instructions; the maximum is 2,000. Simplify it.",
    ),
}


@pytest.mark.requirement("C11")
@pytest.mark.parametrize(("text", "why"), PATTERNS.values(), ids=PATTERNS.keys())
def test_a_pattern_that_is_not_surely_quick_is_refused(text: str, why: str) -> None:
    assert [(each.reason, each.message) for each in problems(text)] == [
        (Reason.REGEX, f"The pattern of matches() {why}")
    ]


@pytest.mark.requirement("C11")
def test_a_pattern_that_other_engines_choke_on_is_quick() -> None:
    began = process_time()
    assert outcome("identity.a.matches('^(a+)+b$')", {"a": "a" * MOST_STRING}) == HOLDS_NOT
    assert process_time() - began < 1


ADMITTED = {
    "text": ("é", Admitted("é", 10)),
    "a number is a double": (1, Admitted(1.0, 8)),
    "a bool is no number": (True, Admitted(value=True, size=8)),
    "nothing": (None, Admitted(None, 8)),
    "a tuple is a list": ((1, "a"), Admitted([1.0, "a"], 25)),
    "the largest integer": (2**63 - 1, Admitted(float(2**63), 8)),
    "the longest string": ("x" * MOST_STRING, Admitted("x" * MOST_STRING, MOST_STRING + 8)),
}


@pytest.mark.parametrize(("value", "want"), ADMITTED.values(), ids=ADMITTED.keys())
def test_plain_data_is_admitted(value: object, want: Admitted) -> None:
    assert admit(value) == want


def nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


REFUSED_DATA = {
    "NUL in a string": ({"a": "admin\0x"}, Code.NUL_IN_INPUT),
    "NUL in a key": ({"role\0x": 1}, Code.NUL_IN_INPUT),
    "NUL in a list": ({"a": ["b", "\0"]}, Code.NUL_IN_INPUT),
    "NUL alone": ("\0", Code.NUL_IN_INPUT),
    "NUL beside a letter": ("é\0", Code.NUL_IN_INPUT),
    "half of a surrogate pair": ("\ud800", Code.NOT_UNICODE),
    "bytes of a header that are no text": ({"x-a": "\udcff"}, Code.NOT_UNICODE),
    "a string that is too long": ("x" * (MOST_STRING + 1), Code.STRING_TOO_LONG),
    "a string of too many bytes": ("é" * (MOST_STRING // 2 + 1), Code.STRING_TOO_LONG),
    "a key that is too long": ({"x" * (MOST_STRING + 1): 1}, Code.STRING_TOO_LONG),
    "too much altogether": ([["x" * 1000] * 300], Code.INPUT_TOO_LARGE),
    "a list that is too long": ([1] * (MOST_ELEMENTS + 1), Code.INPUT_TOO_LARGE),
    "an object inside that is too large": ({"a": dict.fromkeys(map(str, range(1001)))}, Code.INPUT_TOO_LARGE),
    "nesting": (nested(33), Code.INPUT_TOO_LARGE),
    "deep nesting": (nested(5000), Code.INPUT_TOO_LARGE),
    "an integer beyond 64 bits": (2**63, Code.NUMBER_OUT_OF_RANGE),
    "a huge integer": (10**400, Code.NUMBER_OUT_OF_RANGE),
    "a negative one": (-(2**63) - 1, Code.NUMBER_OUT_OF_RANGE),
    "not a number": (float("nan"), Code.NUMBER_OUT_OF_RANGE),
    "infinity": (float("-inf"), Code.NUMBER_OUT_OF_RANGE),
    "bytes": (b"a", Code.WRONG_TYPE),
    "an object of Python": ({"a": object()}, Code.WRONG_TYPE),
    "a function": ({"a": len}, Code.WRONG_TYPE),
    "a time without a zone": (datetime(2026, 1, 1), Code.WRONG_TYPE),  # noqa: DTZ001
    "a time inside of other data": ({"a": datetime(2026, 1, 1, tzinfo=UTC)}, Code.WRONG_TYPE),
    "a set": ({"a": {1}}, Code.WRONG_TYPE),
    "a key that is no string": ({1: "a"}, Code.WRONG_TYPE),
}


@pytest.mark.parametrize(("value", "code"), REFUSED_DATA.values(), ids=REFUSED_DATA.keys())
def test_other_data_is_refused(value: object, code: Code) -> None:
    assert admit(value) == Failed(code)


def test_variables_share_the_limit_of_data() -> None:
    most = {f"k{index}": "x" * 30_000 for index in range(5)}
    facts = {"identity": most, "request.mcp.params": most}
    assert 5 * 30_000 < MOST_DATA < 10 * 30_000
    assert evaluate(program("has(identity.k1)"), known(facts)) == HOLDS
    both = program("has(identity.k1) && has(request.mcp.params.k1)")
    assert evaluate(both, known(facts)) == Failed(Code.INPUT_TOO_LARGE)


PATIENCE: Final = Patience(slow=0.05, most=3, within=60, rest=30)


@pytest.mark.requirement("C10")
def test_slow_evaluations_trip_a_program_for_a_while() -> None:
    pace = QUICK.took(0.05, 0, PATIENCE).took(0.2, 1, PATIENCE)
    assert (pace, pace.may_run(1)) == (Pace(slow=(0, 1)), True)
    pace = pace.took(1, 2, PATIENCE)
    assert (pace, pace.may_run(2), pace.may_run(31.9), pace.may_run(32)) == (Pace(until=32), False, False, True)


def test_quick_evaluations_change_nothing() -> None:
    pace = Pace(slow=(1,))
    assert pace.took(0.049, 2, PATIENCE) is pace


def test_slow_evaluations_are_forgotten() -> None:
    pace = QUICK.took(1, 0, PATIENCE).took(1, 1, PATIENCE).took(1, 60.5, PATIENCE)
    assert pace == Pace(slow=(1, 60.5))


def test_a_program_that_tripped_gets_another_chance() -> None:
    assert Pace(until=30).took(1, 40, PATIENCE) == Pace(slow=(40,), until=30)
    assert Pace(slow=(40,), until=30).may_run(41)


def filled(size: int) -> list[str]:
    """Return a list that counts so many bytes: 8 for itself, 8 for each text, and the texts."""
    full = [("x" * 30_000)] * ((size - 8) // 30_008)
    rest = size - 8 - 30_008 * len(full)
    return [*full, "x" * (rest - 8)]


BOUNDARIES = {
    "32,768 bytes of ASCII": ("x" * 32_768, None),
    "32,769 bytes of ASCII": ("x" * 32_769, Code.STRING_TOO_LONG),
    "32,768 bytes of letters": ("é" * 16_384, None),
    "32,769 bytes of letters": ("é" * 16_384 + "x", Code.STRING_TOO_LONG),
    "32,768 letters of two bytes": ("é" * 32_768, Code.STRING_TOO_LONG),
    "32,768 bytes inside": (["x" * 32_768], None),
    "32,769 bytes inside": (["x" * 32_769], Code.STRING_TOO_LONG),
    "262,144 bytes in all": (filled(262_144), None),
    "262,145 bytes in all": (filled(262_145), Code.INPUT_TOO_LARGE),
    "1,000 elements": ([1] * 1_000, None),
    "1,001 elements": ([1] * 1_001, Code.INPUT_TOO_LARGE),
    "1,000 members inside": ([dict.fromkeys(map(str, range(1_000)))], None),
    "1,001 members inside": ([dict.fromkeys(map(str, range(1_001)))], Code.INPUT_TOO_LARGE),
    "more members outside": (dict.fromkeys(map(str, range(2_000))), None),
    "32 deep": (nested(32), None),
    "33 deep": (nested(33), Code.INPUT_TOO_LARGE),
    "the largest integer": (2**63 - 1, None),
    "one more": (2**63, Code.NUMBER_OUT_OF_RANGE),
    "the smallest integer": (-(2**63), None),
    "one less": (-(2**63) - 1, Code.NUMBER_OUT_OF_RANGE),
    "a time with a zone": (datetime(2026, 1, 1, tzinfo=UTC), None),
}


@pytest.mark.parametrize(("value", "code"), BOUNDARIES.values(), ids=BOUNDARIES.keys())
def test_data_is_admitted_up_to_each_limit(value: object, code: Code | None) -> None:
    found = admit(value)
    assert (found.code if isinstance(found, Failed) else None) == code


COUNTED = [
    ("", 8), ("a", 9), ("é", 10), (1, 8), (1.5, 8), (True, 8), (None, 8), ([], 8), ([1], 16), ({}, 8),
    ({"ab": "c"}, 27), (datetime(2026, 1, 1, tzinfo=UTC), 8),
]  # fmt: skip


@pytest.mark.parametrize(("value", "size"), COUNTED)
def test_a_value_counts_8_bytes_besides_its_text(value: object, size: int) -> None:
    assert admit(value) == Admitted(value, size)


def test_texts_by_known_names_count_as_the_same_object_does_but_for_the_names() -> None:
    assert admit_texts({"a": "bc"}) == Admitted({"a": "bc"}, 26)
    most = {str(index): "x" * 32_000 for index in range(8)}
    room = 262_144 - 8 - 8 * 32_016 - 16
    assert admit_texts({**most, "last": "x" * room}) == Admitted({**most, "last": "x" * room}, 262_144)
    assert admit_texts({**most, "last": "x" * (room + 1)}) == Failed(Code.INPUT_TOO_LARGE)
    assert admit_texts({"a": "x" * 32_768}) == Admitted({"a": "x" * 32_768}, 32_768 + 24)
    for text, code in (("x" * 32_769, Code.STRING_TOO_LONG), ("a\0", Code.NUL_IN_INPUT), ("\ud800", Code.NOT_UNICODE)):
        assert admit_texts({"a": text}) == Failed(code)
    assert admit_texts({"a": "é"}) == Admitted({"a": "é"}, 8 + 9 + 10)


class Shouting(str):
    """A text with methods of its own."""

    __slots__ = ()

    def __str__(self) -> str:
        return "admin"


def test_a_text_of_another_class_is_taken_for_what_it_is() -> None:
    for found in (admit(Shouting("guest")), admit_texts({"a": Shouting("guest")})):
        assert isinstance(found, Admitted)
        text = found.value["a"] if isinstance(found.value, dict) else found.value
        assert (text, type(text)) == ("guest", str)
