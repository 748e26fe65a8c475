"""Only a true allows."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple

import pytest
from tests.support.cel.expressions import known, of, outcome, program

from authplane.cel.check.admissible_data import Admitted, admit
from authplane.cel.check.expression_outcome import HOLDS, HOLDS_NOT, SENTENCES, Code, Failed, Outcome
from authplane.cel.evaluate.evaluation import evaluate, failure
from authplane.cel.syntax.vocabulary import Kind, Variable, Vocabulary


class Case(NamedTuple):
    text: str
    identity: Mapping[str, object]
    want: Outcome
    tool: str = "read_file"


NO_KEY: Final = Failed(Code.NO_SUCH_KEY)
NO_OVERLOAD: Final = Failed(Code.NO_SUCH_OVERLOAD)

SEED = {
    "a prefix of the tool": Case('request.mcp.tool_name.startsWith("read_")', {}, HOLDS),
    "another prefix": Case('request.mcp.tool_name.startsWith("read_")', {}, HOLDS_NOT, tool="Read_file"),
    "an audience": Case('identity.aud == "my-server"', {"aud": "my-server"}, HOLDS),
    "an audience that is a list is not equal to a string": Case('identity.aud == "s"', {"aud": ["s"]}, HOLDS_NOT),
    "an audience in a list": Case('"my-server" in identity.aud', {"aud": ["a", "my-server"]}, HOLDS),
    "in does not look into strings": Case('"my" in identity.aud', {"aud": "my-server"}, NO_OVERLOAD),
    "tools named by a claim": Case(
        "has(identity.authorized_tools) && request.mcp.tool_name in identity.authorized_tools",
        {"authorized_tools": ["read_file"]},
        HOLDS,
    ),
    "no such claim": Case(
        "has(identity.authorized_tools) && request.mcp.tool_name in identity.authorized_tools", {}, HOLDS_NOT
    ),
    "one of several roles": Case('identity.role in ["admin", "operator"]', {"role": "operator"}, HOLDS),
    "a group": Case('identity.group == "admin"', {"group": "admin"}, HOLDS),
    "another group": Case('identity.group == "admin"', {"group": "admins"}, HOLDS_NOT),
}


@pytest.mark.parametrize("case", SEED.values(), ids=SEED.keys())
def test_what_policies_are_made_of_works(case: Case) -> None:
    assert outcome(case.text, case.identity, mcp_tool_name=case.tool) == case.want


DYNAMIC = {
    "the type of a string": Case("type(identity.x) == string", {"x": "a"}, HOLDS),
    "the type of a list": Case("type(identity.x) == list", {"x": []}, HOLDS),
    "the type of an object": Case("type(identity.x) == map", {"x": {}}, HOLDS),
    "the type of a bool": Case("type(identity.x) == bool", {"x": False}, HOLDS),
    "the type of null": Case("type(identity.x) == null_type", {"x": None}, HOLDS),
    "has": Case("has(identity.x.y)", {"x": {"y": None}}, HOLDS),
    "has not": Case("has(identity.x.y)", {"x": {}}, HOLDS_NOT),
    "has of what is no object": Case("has(identity.x.y)", {"x": "a"}, NO_OVERLOAD),
    "has of something missing": Case("has(identity.x.y)", {}, NO_KEY),
    "not null": Case("identity.x != null", {"x": 0}, HOLDS),
    "null": Case("identity.x != null", {"x": None}, HOLDS_NOT),
    "a string is not a list": Case("identity.x == 's'", {"x": ["s"]}, HOLDS_NOT),
    "in a string": Case("'s' in identity.x", {"x": "s"}, NO_OVERLOAD),
    "in an object looks for keys": Case("'s' in identity.x", {"x": {"s": 1}}, HOLDS),
    "startsWith on a number": Case("identity.x.startsWith('a')", {"x": 1}, NO_OVERLOAD),
    "a claim named like a URL": Case("identity['https://a/b'].c == 'd'", {"https://a/b": {"c": "d"}}, HOLDS),
}


@pytest.mark.requirement("R52")
@pytest.mark.parametrize("case", DYNAMIC.values(), ids=DYNAMIC.keys())
def test_claims_of_unknown_type_can_be_looked_at(case: Case) -> None:
    assert outcome(case.text, case.identity) == case.want


NUMBERS = {
    "are no integers": Case("type(identity.x) == int", {"x": 5}, HOLDS_NOT),
    "are doubles": Case("type(identity.x) == double", {"x": 5}, HOLDS),
    "compare with integers": Case("identity.x > 3 && identity.x == 5 && identity.x <= 5u", {"x": 5}, HOLDS),
    "do not add to integers": Case("identity.x + 1 == 6", {"x": 5}, NO_OVERLOAD),
    "add to doubles": Case("identity.x + 1.0 == 6.0", {"x": 5}, HOLDS),
    "one is one point zero": Case("identity.x == identity.y", {"x": 1, "y": 1.0}, HOLDS),
    "zero is minus zero": Case("identity.x == 0", {"x": -0.0}, HOLDS),
    "large ones are not exact": Case("identity.x == 9007199254740993", {"x": 9007199254740992}, HOLDS),
    "one is not true": Case("identity.x == true", {"x": 1}, HOLDS_NOT),
    "one is not a string": Case("identity.x == '1'", {"x": 1}, HOLDS_NOT),
    "beyond 64 bits": Case("identity.x > 0", {"x": 2**63}, Failed(Code.NUMBER_OUT_OF_RANGE)),
    "that are none": Case("identity.x != 0", {"x": float("nan")}, Failed(Code.NUMBER_OUT_OF_RANGE)),
    "without end": Case("identity.x > 0", {"x": float("inf")}, Failed(Code.NUMBER_OUT_OF_RANGE)),
}


@pytest.mark.requirement("C08")
@pytest.mark.parametrize("case", NUMBERS.values(), ids=NUMBERS.keys())
def test_numbers(case: Case) -> None:
    assert outcome(case.text, case.identity) == case.want


MISSING = {
    "equal": 'identity.role == "x"',
    "unequal": 'identity.role != "blocked"',
    "not equal": '!(identity.role == "blocked")',
    "not in": '!(identity.role in ["blocked"])',
    "not startsWith": '!identity.role.startsWith("b")',
    "not of a loop": '!identity.roles.exists(x, x == "blocked")',
    "all": 'identity.roles.all(x, x != "blocked")',
    "twice negated": '!!(identity.role == "a")',
    "a condition": 'identity.role == "a" ? false : true',
    "a member of something missing": 'identity.a.b.c != "x"',
    "an index": 'identity["role"] != "x"',
    "beside a true": 'true && identity.role != "x"',
}


@pytest.mark.requirement("C01", "R56")
@pytest.mark.parametrize("text", MISSING.values(), ids=MISSING.keys())
def test_a_missing_claim_denies_also_under_a_negation(text: str) -> None:
    assert outcome(text) == NO_KEY


def test_asking_whether_a_claim_is_missing_is_no_failure() -> None:
    assert outcome("!has(identity.x)") == HOLDS
    assert outcome("!('x' in identity)") == HOLDS


def test_an_error_beside_a_true_is_absorbed_as_the_language_wants() -> None:
    assert outcome("identity.group == 'x' || true") == HOLDS
    assert outcome("identity.group == 'x' && false") == HOLDS_NOT
    assert outcome("identity.group == 'x' || false") == NO_KEY


@pytest.mark.requirement("C04")
@pytest.mark.parametrize("value", ["true", "", 1, 1.0, None, [True], {"a": True}, []], ids=repr)
def test_a_value_that_is_no_bool_denies(value: object) -> None:
    assert outcome("identity.x", {"x": value}) == Failed(Code.NOT_BOOL)
    assert outcome("identity.x ? true : true", {"x": value}) == NO_OVERLOAD
    assert outcome("!identity.x", {"x": value}) == NO_OVERLOAD
    assert outcome("identity.x && true", {"x": value}) == NO_OVERLOAD


def test_a_bool_from_a_claim_is_one() -> None:
    assert outcome("identity.x", {"x": True}) == HOLDS
    assert outcome("identity.x", {"x": False}) == HOLDS_NOT


NUL = {
    "in a claim": Case('identity.role == "admin"', {"role": "admin\0x"}, Failed(Code.NUL_IN_INPUT)),
    "in a list": Case('"admin" in identity.roles', {"roles": ["admin\0x"]}, Failed(Code.NUL_IN_INPUT)),
    "in a key": Case('identity.role == "admin"', {"role\0x": "admin"}, Failed(Code.NUL_IN_INPUT)),
    "in a key that is there too": Case(
        'identity.role == "admin"', {"role": "user", "role\0x": "admin"}, Failed(Code.NUL_IN_INPUT)
    ),
    "in a claim that is not read": Case('identity.a == "b"', {"a": "b", "c": {"d": ["\0"]}}, Failed(Code.NUL_IN_INPUT)),
    "in a tool's name": Case('request.mcp.tool_name == "add"', {}, Failed(Code.NUL_IN_INPUT), tool="add\0_delete"),
    "in a tool's name under a negation": Case(
        'request.mcp.tool_name != "x"', {}, Failed(Code.NUL_IN_INPUT), tool="add\0"
    ),
}


@pytest.mark.requirement("C06")
@pytest.mark.parametrize("case", NUL.values(), ids=NUL.keys())
def test_a_nul_denies(case: Case) -> None:
    assert outcome(case.text, case.identity, mcp_tool_name=case.tool) == case.want


@pytest.mark.requirement("C15")
def test_claims_are_plain_data_whatever_their_names() -> None:
    claims = {f"c{index}": index for index in range(9000)}
    claims |= {"__class__": "a", "request": "b", "identity": "c", "@result": "d"}  # type: ignore[dict-item]
    assert outcome("identity.__class__ == 'a' && identity.request == 'b' && identity.c8999 == 8999", claims) == HOLDS
    assert outcome("identity.identity == 'c' && identity['@result'] == 'd'", claims) == HOLDS
    assert outcome("identity.__len__ == 1 || identity.items == 1 || identity.__dict__ == 1", claims) == NO_KEY
    assert outcome("identity.x.__class__ == 'a'", {"x": "text"}) == NO_OVERLOAD


def test_headers_are_found_by_names_in_lower_case() -> None:
    assert outcome("request.headers['x-foo'] == 'a'", headers={"x-foo": "a"}) == HOLDS
    assert outcome("request.headers['X-Foo'] == 'a'", headers={"x-foo": "a"}) == NO_KEY


@pytest.mark.parametrize(
    "text", ["request.mcp.tool_name != 'x'", "has(request.mcp.tool_name)", "request.mcp.method == ''"]
)
def test_a_request_without_mcp_fails(text: str) -> None:
    assert outcome(text, path="/") == NO_KEY


def test_whether_there_is_mcp_can_be_asked() -> None:
    assert outcome("has(request.mcp)", path="/") == HOLDS_NOT
    assert outcome("has(request.mcp)", mcp_method="ping") == HOLDS
    assert of({"request.mcp.method": "ping"}, "has(request.mcp.method) && !has(request.mcp.tool_name)") == HOLDS


def test_the_time_of_a_request_is_a_timestamp() -> None:
    now = datetime(2026, 11, 15, 12, tzinfo=UTC)
    assert (
        outcome("request.time < timestamp('2026-11-15T12:00:01Z') && request.time.getHours() == 12", time=now) == HOLDS
    )
    assert outcome("request.time < timestamp('2027-01-01T00:00:00Z')", time=now.replace(tzinfo=None)) == Failed(
        Code.WRONG_TYPE
    )


WRONG = {
    "text for a map": {"identity": "admin"},
    "a list for a map": {"identity": ["admin"]},
    "a number for text": {"request.path": 1},
    "nothing for text": {"request.path": None},
}


@pytest.mark.parametrize("facts", WRONG.values(), ids=WRONG.keys())
def test_a_variable_of_another_type_fails(facts: Mapping[str, object]) -> None:
    both = {"identity": {}, "request.path": "/", **facts}
    assert of(both, "!has(identity.x) && request.path != 'x'") == Failed(Code.WRONG_TYPE)


def test_a_value_that_was_admitted_is_taken_as_it_is() -> None:
    claims = admit({"group": "admin"})
    assert isinstance(claims, Admitted)
    assert of({"identity": claims}, "identity.group == 'admin'") == HOLDS
    assert of({"identity": Failed(Code.TRIPPED)}, "identity.group == 'admin'") == Failed(Code.TRIPPED)


def test_a_variable_that_a_request_does_not_have_is_missing() -> None:
    facts = known({})
    assert evaluate(program("identity.group == 'admin'"), facts) == NO_KEY
    assert evaluate(program("has(request.path)"), facts) == HOLDS_NOT


SECRET: Final = "hunter2"
LEAKS = {
    "a conversion": "int(identity.x) == 1",
    "a timestamp": "timestamp(identity.x) > timestamp('2026-01-01T00:00:00Z')",
    "a duration": "duration(identity.x) > duration('1s')",
    "a key from data": "{'a': 1}[identity.x] == 1",
    "an overload": "identity.x + 1 == 2",
    "an index": "identity.y[identity.x] == 1",
    "a member of text": "identity.x.y == 1",
    "a result": "identity.x",
}


@pytest.mark.requirement("C19")
@pytest.mark.parametrize("text", LEAKS.values(), ids=LEAKS.keys())
def test_a_failure_says_nothing_of_the_data(text: str) -> None:
    result = outcome(text, {"x": SECRET, "y": [1]})
    assert isinstance(result, Failed)
    assert SECRET not in f"{result!r} {result.message}"
    assert result.message in SENTENCES.values()


CODES = {
    "identity.x / 0.0 == 1.0 || 1 / 0 == 1": Code.ARITHMETIC,
    "9223372036854775807 + int(identity.one) > 0": Code.ARITHMETIC,
    "1 % 0 == 1": Code.ARITHMETIC,
    "identity.l[5] == 1": Code.INDEX_OUT_OF_RANGE,
    "identity.l['a'] == 1": Code.NO_SUCH_OVERLOAD,
    "int(identity.s) == 1": Code.CONVERSION,
    "double(identity.s) == 1.0": Code.CONVERSION,
    "bool(identity.s)": Code.CONVERSION,
    "timestamp(identity.s) == timestamp(0)": Code.CONVERSION,
    "duration(identity.s) == duration('1s')": Code.CONVERSION,
    "{identity.s: 1, 'a': 2}.a == 1": Code.EVALUATION_FAILED,
}


@pytest.mark.parametrize(("text", "code"), CODES.items())
def test_failures_have_codes(text: str, code: Code) -> None:
    assert outcome(text, {"l": [1.0], "s": "a", "one": 1, "x": 1.0}) == Failed(code)


def test_too_many_steps_of_loops_fail() -> None:
    text = "identity.a.all(x, identity.a.all(y, x == y))"
    assert outcome(text, {"a": [1.0] * 1000}) == Failed(Code.TOO_COSTLY)


def test_words_of_the_engine_that_are_not_known_are_a_failure_still() -> None:
    assert failure("something new") == Failed(Code.EVALUATION_FAILED)


def test_every_code_has_a_sentence() -> None:
    assert set(SENTENCES) == set(Code)


def test_a_context_may_have_variables_of_every_kind() -> None:
    vocabulary = Vocabulary(
        variables=(
            Variable(name="a.flag", kind=Kind.BOOL, about=""),
            Variable(name="a.b.size", kind=Kind.DOUBLE, about=""),
            Variable(name="at", kind=Kind.TIMESTAMP, about=""),
            Variable(name="name", kind=Kind.STRING, about=""),
        )
    )
    facts = known({"a.flag": True, "a.b.size": 3, "at": datetime(2026, 1, 1, tzinfo=UTC), "name": "x"})
    text = "a.flag && a.b.size > 2.0 && at.getFullYear() == 2026 && name == 'x'"
    assert evaluate(program(text, vocabulary), facts) == HOLDS
