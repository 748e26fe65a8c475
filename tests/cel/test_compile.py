"""What is taken as an expression, and what is said of the rest."""

from dataclasses import replace
from typing import Final, NamedTuple

import pytest
from tests.support.cel.expressions import problems, program, said

from authplane.cel.check.program import compile_expression
from authplane.cel.syntax.expression_problem import CelProblem, Reason
from authplane.cel.syntax.vocabulary import (
    ACCESS_POLICY,
    FUNCTIONS,
    Kind,
    Macro,
    Variable,
    Vocabulary,
)

PLAIN: Final = Vocabulary(
    variables=(Variable(name="call.path", kind=Kind.STRING, about=""),),
    functions=FUNCTIONS - {"_+_", "string", "matches", "_[_]"},
    macros=frozenset({Macro.HAS}),
)
"""As much as a proxy without loops and concatenation offers."""


class Case(NamedTuple):
    text: str
    want: list[str]


VALUE: Final = "a value such as a name, a string or a number"
OPERATOR: Final = "an operator such as && or ==, or the end"
REFUSED = {
    "the end of a text": Case("1 +", [f"1:4: Expected {VALUE}; found the end. [Syntax]"]),
    "nothing": Case("", [f"1:1: Expected {VALUE}; found the end. [Syntax]"]),
    "an operator at the beginning": Case("== 'a'", [f"1:1: Expected {VALUE}; found '=='. [Syntax]"]),
    "two operators": Case("true &&\n  && true", [f"2:3: Expected {VALUE}; found '&&'. [Syntax]"]),
    "no operator": Case("true true", [f"1:6: Expected {OPERATOR}; found 'true'. [Syntax]"]),
    "a word for an operator": Case(
        "true and true", [f"1:6: Expected {OPERATOR}; found 'and'. Write && instead of and. [Syntax]"]
    ),
    "an assignment": Case(
        "request.method = 'a'", ["1:16: Expected a part of an expression; found '='. Write == to compare. [Syntax]"]
    ),
    "half of an operator": Case(
        "true & true", ["1:6: Expected a part of an expression; found '&'. Write &&. [Syntax]"]
    ),
    "a parenthesis that is missing": Case("(true", ["1:6: Expected ')'; found the end. [Syntax]"]),
    "a parenthesis too many": Case("true)", [f"1:5: Expected {OPERATOR}; found ')'. [Syntax]"]),
    "a bracket that is missing": Case("1 in [1, 2", ["1:11: Expected ']' or ','; found the end. [Syntax]"]),
    "an argument that is missing": Case("size(", [f"1:6: Expected {VALUE}, or ')'; found the end. [Syntax]"]),
    "half of a choice": Case("true ? true", ["1:12: Expected ':'; found the end. [Syntax]"]),
    "no member": Case("identity.", ["1:10: Expected the name of a member after the dot; found the end. [Syntax]"]),
    "no name of a member": Case(
        "identity..x", ["1:10: Expected the name of a member after the dot; found '.'. [Syntax]"]
    ),
    "a quote that is missing": Case(
        "request.method == 'a",
        ["1:19: Expected a string that ends on its line and has valid escapes; found 'a. [Syntax]"],
    ),
    "an escape that does not exist": Case(
        r"request.method == '\q'",
        [r"1:19: Expected a string that ends on its line and has valid escapes; found '\q. [Syntax]"],
    ),
    "a character that means nothing": Case("x @ y", ["1:3: Expected a part of an expression; found '@'. [Syntax]"]),
    "two expressions": Case(
        "true; true", ["1:5: Expected a part of an expression; found ';'. Join conditions with && or ||. [Syntax]"]
    ),
    "a statement": Case(
        "if true",
        ["1:1: 'if' is a reserved word and cannot be a name. Write condition ? value : other value. [Syntax]"],
    ),
    "a variable that does not exist": Case(
        "identity.a == 'x' &&\n  foo.bar == 1",
        ["2:6: foo.bar is not defined. Supported variables: identity, request. [Undeclared]"],
    ),
    "a member that does not exist": Case(
        "request.verb == 'GET'",
        [
            "1:8: request has no member verb. Supported: headers, host, mcp, method, path, query, time, "
            "url_path. [Undeclared]"
        ],
    ),
    "a member that does not exist further down": Case(
        "request.mcp.tool == 'x'",
        ["1:12: request.mcp has no member tool. Supported: method, params, tool_name. [Undeclared]"],
    ),
    "a prefix of a variable's name": Case(
        "request.pathological == ''",
        [
            "1:8: request has no member pathological. Supported: headers, host, mcp, method, path, query, "
            "time, url_path. [Undeclared]"
        ],
    ),
    "the body": Case(
        'request.body["tool-name"] == "x"',
        [
            "1:8: request has no member body. The body of an MCP request is already parsed. Use "
            "request.mcp.tool_name or request.mcp.params. [Undeclared]"
        ],
    ),
    "an unknown function": Case(
        "lower(identity.a) == 'x'",
        ["1:6: lower is not defined. Supported variables: identity, request. [Undeclared]"],
    ),
    "a function of an extension": Case(
        "identity.a.lowerAscii() == 'x'",
        ["1:22: lowerAscii is not defined. Supported variables: identity, request. [Undeclared]"],
    ),
    "a comparison of types that never are equal": Case(
        "request.method == 1",
        [("1:16: == cannot be applied to (string, int). Use operands of types that match. [Type]")],
    ),
    "a namespace as a value": Case(
        "request.mcp == request.mcp",
        [
            "1:8: request.mcp is not a value. Use one of its members: method, params, tool_name. [Type]",
            "1:23: request.mcp is not a value. Use one of its members: method, params, tool_name. [Type]",
        ],
    ),
    "a namespace hidden from the checker": Case(
        "dyn(request) == 1",
        [
            "1:5: request is not a value. Use one of its members: headers, host, mcp, method, path, query, "
            "time, url_path. [Type]"
        ],
    ),
    "an index into a namespace": Case(
        "request['path'] == ''",
        [("1:8: [ ] cannot be applied to (request, string). Use operands of types that match. [Type]")],
    ),
    "has of something that is no member": Case(
        "has(request.headers['a'])", ["1:20: has() argument must be a field selection. Correct the expression. [Type]"]
    ),
    "a message": Case(
        "google.protobuf.Struct{}.x == 1",
        [("1:1: Message google.protobuf.Struct{} is not supported. Rewrite the expression without it. [NotAllowed]")],
    ),
    "a message of our own types": Case(
        "authplane_vocabulary.request{}.path == ''",
        [
            (
                "1:1: Message authplane_vocabulary.request{} is not supported. Rewrite the expression without "
                "it. [NotAllowed]"
            )
        ],
    ),
    "a NUL character": Case("true\0", ["1:5: The expression contains a NUL character. Remove it. [Syntax]"]),
    "half of a surrogate pair": Case(
        "'\ud800' == 'a'", [("1:1: The expression is not valid Unicode. Use UTF-8 text. [Syntax]")]
    ),
    "a literal that no input can equal": Case(
        r'identity.a == "a\u0000"',
        ["1:15: The string contains a NUL character. Remove it. [NotAllowed]"],
    ),
    "columns count characters, not bytes": Case(
        '"é€" == identity.a && zz', [("1:23: zz is not defined. Supported variables: identity, request. [Undeclared]")]
    ),
    "every problem at once": Case(
        "identity.a.matches('(') && identity.b.all(identity, identity.a.matches(identity.b))",
        [
            "1:20: The pattern of matches() is not a valid RE2 regular expression: missing ): (. Correct it. [Regex]",
            "1:42: identity is already defined. Use another name. [Shadowing]",
            "1:80: The pattern of matches() is not a literal. Write it as a string in the expression. [Regex]",
        ],
    ),
}


@pytest.mark.requirement("C13")
@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
def test_what_is_refused_is_named_with_its_position(case: Case) -> None:
    assert said(case.text) == case.want


SHADOWS = {
    "a variable": "identity.a.all(request, request == 1)",
    "a type": "identity.a.exists(int, int == 1)",
    "the variable of a loop around": "identity.a.all(x, identity.b.exists(x, x == 1))",
}


@pytest.mark.parametrize("text", SHADOWS.values(), ids=SHADOWS.keys())
def test_a_macro_cannot_give_a_name_another_meaning(text: str) -> None:
    assert [each.reason for each in problems(text)] == [Reason.SHADOWING]


def test_two_loops_beside_each_other_may_use_the_same_name() -> None:
    assert program("identity.a.all(x, x == 1) && identity.b.all(x, x == 2)").paths == ("identity.a", "identity.b")


NOT_BOOL = {
    "1": "int",
    "'true'": "string",
    "null": "null",
    "[true]": "list<bool>",
    "{'a': true}": "map<string, bool>",
    "request.path": "string",
    "identity": "map<string, dyn>",
    "identity.a + 1": "int",
    "size(identity.a)": "int",
    "type(identity.a)": "type<dyn>",
    "request.time": "timestamp",
}


@pytest.mark.parametrize(("text", "kind"), NOT_BOOL.items())
def test_a_result_that_is_known_not_to_be_a_bool_is_refused(text: str, kind: str) -> None:
    assert [(each.reason, each.message) for each in problems(text)] == [
        (Reason.NOT_BOOL, f"The result is {kind}, not bool. Write an expression that returns bool.")
    ]


def test_a_context_offers_only_what_it_names() -> None:
    assert program("has(call.path) && call.path.startsWith('/a')", PLAIN).paths == ("call.path",)
    assert said("call.path + 'a' == string(1)", PLAIN) == [
        "1:11: + is not supported. Rewrite the expression without it. [NotAllowed]",
        "1:26: string() is not supported. Rewrite the expression without it. [NotAllowed]",
    ]
    assert said("[call.path].exists(x, x == 'a') || [1][0] == 1", PLAIN) == [
        "1:19: exists() is not supported. Rewrite the expression without it. [NotAllowed]",
        "1:39: [] is not supported. Rewrite the expression without it. [NotAllowed]",
    ]
    assert said("has(call.path)", Vocabulary(variables=PLAIN.variables, macros=frozenset())) == [
        "1:4: has() is not supported. Rewrite the expression without it. [NotAllowed]"
    ]


def test_a_program_is_its_text_and_vocabulary() -> None:
    one = program("request.path == '/'")
    compile_expression.cache_clear()
    other = program("request.path == '/'")
    assert one is not other
    assert (one, hash(one)) == (other, hash(other))
    assert one != program("request.path == '/'", replace(ACCESS_POLICY, hints=()))
    assert one.checked == other.checked


READS = {
    "members of maps": (
        "identity.group == 'a' && request.headers['x-a'] == 'b'",
        ('request.headers["x-a"]', "identity.group"),
    ),
    "members of members belong to the first": ("identity.a.b.c == 1", ("identity.a",)),
    "what is asked for counts": (
        "has(identity.a) && has(request.mcp.tool_name)",
        ("request.mcp.tool_name", "identity.a"),
    ),
    "in asks for one key": ("'a' in identity", ("identity.a",)),
    "a name with a dot is one key": ("identity['https://a/b'] == 1", ('identity["https://a/b"]',)),
    "a word of the language is written as a key": ("identity['in'] == 1", ('identity["in"]',)),
    "a key from data needs all": ("identity[identity.a] == 1", ("identity",)),
    "the whole swallows its parts": ("identity.a == 1 && size(identity) == 1", ("identity",)),
    "loops read what they go over": ("identity.a.exists(x, x.b == request.path)", ("request.path", "identity.a")),
    "a namespace is there if anything in it is": (
        "has(request.mcp)",
        ("request.mcp.method", "request.mcp.tool_name", "request.mcp.params"),
    ),
    "literals read nothing": ("true", ()),
}


@pytest.mark.parametrize(("text", "paths"), READS.values(), ids=READS.keys())
def test_a_program_knows_what_it_reads(text: str, paths: tuple[str, ...]) -> None:
    assert program(text).paths == paths


def test_a_problem_without_a_place_is_at_the_beginning() -> None:
    assert problems("(" * 40 + "true" + ")" * 40) == (
        CelProblem(reason=Reason.TOO_LARGE, message="The expression is nested too deeply. Simplify it."),
    )


def test_the_vocabulary_of_policies_has_what_policies_name() -> None:
    assert [each.name for each in ACCESS_POLICY.variables] == [
        "request.method", "request.path", "request.url_path", "request.query", "request.host", "request.headers",
        "request.time", "request.mcp.method", "request.mcp.tool_name", "request.mcp.params", "identity",
    ]  # fmt: skip
