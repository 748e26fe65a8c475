"""What authors of expressions are told to think about."""

import pytest
from tests.support.cel.expressions import outcome, program

from authplane.cel.check.expression_lint import Doubt, Remark, lint
from authplane.cel.check.expression_outcome import HOLDS, Code, Failed


def doubts(text: str) -> list[Doubt]:
    return [each.doubt for each in lint(program(text))]


ONLY_DENIES = {
    "not equal": "identity.role != 'blocked'",
    "the negation of an equality": "!(identity.role == 'blocked')",
    "not there": "!has(identity.x)",
    "not in a list": "!(request.mcp.tool_name in ['a', 'b'])",
    "several negations": "request.path != '/a' && !request.path.startsWith('/b')",
    "a negation that is enough": "identity.role == 'admin' || request.path != '/a'",
    "the negation of an alternative": "!(identity.role == 'a' || identity.role == 'b')",
    "none of a list": "identity.roles.all(x, x != 'blocked')",
    "a condition": "identity.role == 'a' ? request.path != '/a' : false",
    "true in the end": "identity.group == 'x' || true",
}


@pytest.mark.requirement("C02")
@pytest.mark.parametrize("text", ONLY_DENIES.values(), ids=ONLY_DENIES.keys())
def test_an_expression_that_only_says_what_must_not_be_is_flagged(text: str) -> None:
    assert Doubt.NEGATION_ONLY in doubts(text)


@pytest.mark.requirement("C02")
def test_a_negation_over_a_missing_claim_denies() -> None:
    assert outcome("!(identity.role == 'blocked')") == Failed(Code.NO_SUCH_KEY)
    assert outcome("identity.role != 'blocked'") == Failed(Code.NO_SUCH_KEY)
    assert outcome("!has(identity.x)") == HOLDS


GRANTS = {
    "an equality": "identity.role == 'admin'",
    "a negation beside it": "identity.role == 'admin' && request.path != '/a'",
    "twice negated": "!(identity.role != 'admin')",
    "alternatives": "identity.role == 'a' || identity.role == 'b'",
    "the negation of inequalities": "!(identity.role != 'a' || request.path != '/')",
}


@pytest.mark.parametrize("text", GRANTS.values(), ids=GRANTS.keys())
def test_an_expression_that_says_what_must_be_is_not(text: str) -> None:
    assert Doubt.NEGATION_ONLY not in doubts(text)


GUARDED = {
    "has": "has(identity.a) && identity.a == 'b'",
    "has further out": "has(identity.a) && (request.path == '/' && identity.a == 'b')",
    "has behind": "identity.a == 'b' && has(identity.a)",
    "in": "'x-a' in request.headers && request.headers['x-a'] == 'b'",
    "not has, or": "!has(identity.a) || identity.a == 'b'",
    "a condition": "has(identity.a) ? identity.a == 'b' : false",
    "a negated condition": "!has(identity.a) ? false : identity.a == 'b'",
    "every alternative asks": "(has(identity.a) || has(identity.a) && request.path == '/') && identity.a == 'b'",
    "a member of a member": "has(identity.a) && has(identity.a.b) && identity.a.b == 'c'",
    "what is always there": "request.path == '/' && request.mcp.tool_name == 'a'",
    "inside of a loop": "has(identity.a) && has(identity.b) && identity.a.exists(x, x == identity.b)",
    "the result of a loop": "has(identity.a) && ['x'].map(y, has(identity.b) && y == 'x', identity.b + 'x') == []",
}


@pytest.mark.parametrize("text", GUARDED.values(), ids=GUARDED.keys())
def test_asking_first_is_a_guard(text: str) -> None:
    assert not {Doubt.UNGUARDED, Doubt.ABSORBED_ERROR} & set(doubts(text))


UNGUARDED = {
    "alone": ("identity.a == 'b'", "identity.a"),
    "by index": ("identity['a'] == 'b'", 'identity["a"]'),
    "a header": ("request.headers['x-a'] == 'b'", 'request.headers["x-a"]'),
    "an argument": ("request.mcp.params.path == 'b'", "request.mcp.params.path"),
    "another is asked for": ("has(identity.b) && identity.a == 'b'", "identity.a"),
    "only one alternative asks": ("(has(identity.a) || true) && identity.a == 'b'", "identity.a"),
    "a member of what is asked for": ("has(identity.a) && identity.a.b == 'c'", "identity.a.b"),
    "the wrong side of a condition": ("has(identity.a) ? false : identity.a == 'b'", "identity.a"),
    "has of a member": ("has(identity.a.b)", "identity.a"),
}


@pytest.mark.parametrize(("text", "name"), UNGUARDED.values(), ids=UNGUARDED.keys())
def test_a_read_without_asking_is_flagged(text: str, name: str) -> None:
    message = (
        f"{name} can be missing; the expression then fails and grants nothing. Guard it with has() or the operator in."
    )
    assert message in [each.message for each in lint(program(text))]


@pytest.mark.requirement("C03")
def test_an_error_that_an_alternative_absorbs_is_flagged() -> None:
    text = "identity.group == 'x' || request.path == '/'"
    assert lint(program(text)) == (
        Remark(
            doubt=Doubt.ABSORBED_ERROR,
            message="If identity.group is missing, this side of || fails and the other side decides. Guard it "
            "with has() or the operator in.",
            line=1,
            column=9,
        ),
    )
    assert outcome(text, path="/") == HOLDS
    assert lint(program("has(identity.group) && identity.group == 'x' || request.path == '/'")) == ()


HEADERS = {
    "by index": "request.headers['X-Foo'] == 'a'",
    "as a member": "request.headers.Foo == 'a'",
    "asked for": "has(request.headers.Foo)",
    "in": "'X-Foo' in request.headers",
}


@pytest.mark.requirement("C14")
@pytest.mark.parametrize("text", HEADERS.values(), ids=HEADERS.keys())
def test_upper_case_names_of_headers_are_flagged_and_deny(text: str) -> None:
    assert Doubt.UPPER_CASE_HEADER in doubts(text)
    assert outcome(text, headers={"x-foo": "a", "foo": "a"}) != HOLDS


OTHERS = {
    "a constant": ("1 < 2", Doubt.CONSTANT),
    "the type of a number": ("type(request.mcp.params.a) == int", Doubt.NEVER_INT),
    "another order": ("uint != type(identity.a)", Doubt.NEVER_INT),
    "arithmetic": ("has(identity.a) && identity.a + 1 > 2", Doubt.INT_ARITHMETIC),
    "arithmetic the other way round": ("has(identity.a) && 10 - identity.a > 2", Doubt.INT_ARITHMETIC),
    "a large number": ("has(identity.a) && identity.a == 9007199254740993", Doubt.IMPRECISE_INT),
    "a pattern without an end": ("request.path.matches('^/a')", Doubt.UNANCHORED),
    "a pattern without a beginning": ("request.path.matches('a$')", Doubt.UNANCHORED),
    "all of an empty list": ("has(identity.a) && identity.a.all(x, x == 'b')", Doubt.ALL_OF_NOTHING),
}


@pytest.mark.parametrize(("text", "doubt"), OTHERS.values(), ids=OTHERS.keys())
def test_other_doubts(text: str, doubt: Doubt) -> None:
    assert doubt in doubts(text)


CLEAN = {
    "numbers": "has(identity.a) && identity.a > 3 && identity.a + 1.0 < 9.0 && identity.a == 9007199254740992",
    "types": "has(identity.a) && type(identity.a) == double",
    "a pattern": "request.path.matches('^/a/[0-9]+$')",
    "headers": "'x-foo' in request.headers && request.headers['x-foo'] == 'A'",
    "tools": "has(identity.tools) && request.mcp.tool_name in identity.tools",
    "keys of claims may have capitals": "has(identity.Group) && identity.Group == 'A'",
}


@pytest.mark.parametrize("text", CLEAN.values(), ids=CLEAN.keys())
def test_careful_expressions_raise_no_doubt(text: str) -> None:
    assert lint(program(text)) == ()


def test_remarks_are_in_the_order_of_the_text() -> None:
    remarks = lint(program("identity.b == 'a' &&\n  identity.a == 'b' && identity.b == 'c'"))
    assert [str(each).partition(":  ")[0][:20] for each in remarks] == ["1:9: identity.b can ", "2:11: identity.a can"]


ABSENT = {
    "where it is not there": "!has(identity.a) && identity.a == 'x'",
    "where its key is not there": "!('a' in identity) && identity.a == 'x'",
    "where either is there": "(has(identity.a) || has(identity.b)) && identity.a == 'x'",
    "in the other branch": "has(identity.a) ? true : identity.a == 'x'",
    "where something in a list is there": "has(identity.l[0].a) && identity.a == 'x'",
    "where a key of a list's member is there": "'a' in identity.l[0] && identity.a == 'x'",
}


@pytest.mark.parametrize("text", ABSENT.values(), ids=ABSENT.keys())
def test_a_claim_that_may_be_missing_is_flagged_despite_other_conditions(text: str) -> None:
    assert Doubt.UNGUARDED in doubts(text)


SURELY_THERE = (
    "has(identity.a) && identity.a == 'x'",
    "'a' in identity && identity.a == 'x'",
    "!(!has(identity.a)) && identity.a == 'x'",
    "!has(identity.a) ? false : identity.a == 'x'",
)


@pytest.mark.parametrize("text", SURELY_THERE)
def test_a_claim_that_is_surely_there_is_not(text: str) -> None:
    assert Doubt.UNGUARDED not in doubts(text)
