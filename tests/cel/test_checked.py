"""Expressions about calls that come over the wire, checked by somebody else."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import pytest
from cel.expr import checked_pb2 as pb
from cel.expr.syntax_pb2 import Constant, Expr
from google.protobuf import any_pb2
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.cel.expressions import known

from authplane.cel.calls.call_vocabulary import CLIENT_CALLS, SERVER_CALLS, compile_call_expression
from authplane.cel.calls.wire import LARGEST, checked_expression, parse_checked
from authplane.cel.check.admissible_data import Admitted
from authplane.cel.check.engine import load
from authplane.cel.check.program import Program
from authplane.cel.check.regex_patterns import pattern_size
from authplane.cel.evaluate.evaluation import evaluate
from authplane.cel.syntax.tree_shape import is_same
from authplane.cel.syntax.vocabulary import Vocabulary
from authplane.cel.wire.received import parse_expression
from authplane.core.problems import Problems


def checked(text: str, vocabulary: Vocabulary = SERVER_CALLS) -> pb.CheckedExpr:
    made = checked_expression(text, vocabulary)
    assert isinstance(made, pb.CheckedExpr), made
    return made


def read(message: pb.CheckedExpr, vocabulary: Vocabulary = SERVER_CALLS) -> Program | list[str]:
    problems = Problems()
    program = parse_checked(message, vocabulary, problems)
    assert (program is None) == bool(problems.errors)
    return [str(each) for each in problems.errors] if program is None else program


ALLOWED = [
    'request.path == "/a.B/C"',
    'request.url_path != request.path && request.host == "h" && request.method == "POST"',
    'request.headers["x-a"] == "b" || request.headers.foo == "c"',
    'has(request.headers.foo) && !("x" in request.headers)',
    'request.referer == "" && request.useragent == "" && request.id == "" && request.query == ""',
    'has(request.scheme) || has(request.protocol) || request.time < timestamp("2026-01-01T00:00:00Z")',
    'xds.route_metadata.filter_metadata["a"]["b"] == "c"',
    "xds.cluster_metadata.filter_metadata.a.b >= 5",
    "size(request.path) == 3 && request.path.size() == 3",
    r'request.path.matches("^/a\\.") && matches(request.path, "b$")',
    'request.path.contains("a") && request.path.startsWith("/") && request.path.endsWith("c")',
    'timestamp("2026-01-01T00:00:00Z").getFullYear() == 2026 && duration("3600s").getHours() == 1',
    'timestamp("2026-01-01T00:00:00Z") + duration("1s") > timestamp("2026-01-01T00:00:00Z")',
    'request.method in ["GET", "POST"] && ["a", "b"][0] == "a" && {"a": 1}["a"] == 1',
    'int("1") == 1 && uint(1) == 1u && double(1) == 1.0 && bytes("a") == b"a" && bool("true")',
    "1 + 2 * 3 - 4 / 2 == 5 && 7 % 2 == 1 && -(1) < 0 && 1 <= 1 && 2 > 1 && 2 >= 2",
    "-1.5 < 0.0 && 1e+100 > 0.0 && -9223372036854775808 < 0",
    "xds.route_metadata.filter_metadata.a.n + 1 > 3",
    'request.headers["\\"\\\\\\n"] == "ü"',
]


@pytest.mark.requirement("CEL-5")
@pytest.mark.parametrize("text", ALLOWED)
@pytest.mark.parametrize("vocabulary", [SERVER_CALLS, CLIENT_CALLS], ids=["server", "client"])
def test_what_is_allowed_arrives_with_the_same_meaning(text: str, vocabulary: Vocabulary) -> None:
    sent = checked(text, vocabulary)
    program = read(sent, vocabulary)
    assert isinstance(program, Program)
    meant = compile_call_expression(text, vocabulary)
    assert isinstance(meant, Program)
    assert is_same(program.tree, meant.tree)


@pytest.mark.parametrize("field", ["false", "in", "null", "true", "a b", "1", "", "é"])
def test_a_member_whose_name_cannot_be_written_is_found_by_its_key(field: str) -> None:
    key = json.dumps(field, ensure_ascii=False)
    for text, wanted in (
        ('request.headers.foo == "c"', f'request.headers[{key}] == "c"'),
        ("has(request.headers.foo)", f"{key} in request.headers"),
    ):
        sent = checked(text)
        select = sent.expr.select_expr if sent.expr.HasField("select_expr") else sent.expr.call_expr.args[0].select_expr
        select.field = field
        program, meant = read(sent), compile_call_expression(wanted, SERVER_CALLS)
        assert isinstance(program, Program)
        assert isinstance(meant, Program)
        assert is_same(program.tree, meant.tree)


ON_SERVERS = [
    'source.address == "10.0.0.1:4711"',
    'source.ip == "10.0.0.1"',
    "source.port + 1 == 4712",
    'connection.requested_server_name == "a"',
    'connection.tls_version == "TLSv1.3"',
    'connection.sha256_peer_certificate_digest == ""',
]


@pytest.mark.requirement("CEL-9")
@pytest.mark.parametrize("text", ON_SERVERS)
def test_attributes_of_the_connection_are_for_servers_only(text: str) -> None:
    sent = checked(text)
    assert isinstance(read(sent), Program)
    found = read(sent, CLIENT_CALLS)
    assert isinstance(found, list)
    assert "is not defined. Supported variables: request, xds. [ExpressionUndeclared]" in found[0]


REFUSED = {
    'request.path == string("a")': "string() is not supported",
    'type(request.path) == type("")': "type() is not supported",
    'dyn(request.path) == "a"': "dyn() is not supported",
    'request.path == "a" ? true : false': "?: is not supported",
    'request.path + "a" == "ab"': "gRPC servers do not support + on strings, bytes or lists",
    '[1] + [2] == [1, 2] || b"a" + b"b" == b"ab"': "gRPC servers do not support + on strings, bytes or lists",
    "xds.route_metadata.filter_metadata.a.b + xds.route_metadata.filter_metadata.a.c == 1": "do not support +",
    "[1, 2].all(x, x > 0)": "all() is not supported",
    "[1, 2].exists(x, x > 0)": "exists() is not supported",
    "[1, 2].exists_one(x, x > 0)": "exists_one() is not supported",
    "[1, 2].map(x, x > 0) == [true]": "map() is not supported",
    "[1, 2].filter(x, x > 0) == [1]": "filter() is not supported",
    'request.path.matches("(abc){40}")': "The pattern is too large",
    "request.path.matches(request.host)": "is not a literal",
    "int == int": "int is a type",
    'request.nothing == ""': "request has no member nothing",
    'response.code == "1"': "response.code is not defined",
    "request.path": "The result is string, not bool",
    "xds.route_metadata.filter_metadata.a.b": "The result is dyn, not bool",
}


@pytest.mark.requirement("CEL-2")
@pytest.mark.requirement("CEL-3")
@pytest.mark.requirement("CEL-4")
@pytest.mark.parametrize(("text", "message"), REFUSED.items(), ids=REFUSED.keys())
def test_what_is_not_allowed_cannot_be_written(text: str, message: str) -> None:
    made = checked_expression(text)
    assert isinstance(made, tuple)
    assert message in str(made[0])


def boolean(expr: Expr) -> pb.CheckedExpr:
    """Say of any tree that its result is a bool."""
    message = pb.CheckedExpr(expr=expr)
    message.type_map[expr.id].primitive = pb.Type.BOOL
    return message


def call(function: str, *args: Expr, target: Expr | None = None) -> Expr:
    return Expr(id=1, call_expr=Expr.Call(function=function, args=args, target=target))


def ident(name: str) -> Expr:
    return Expr(id=2, ident_expr=Expr.Ident(name=name))


def text(value: str) -> Expr:
    expr = Expr(id=3)
    expr.const_expr.string_value = value
    return expr


def path() -> Expr:
    return Expr(id=4, select_expr=Expr.Select(operand=ident("request"), field="path"))


def number(value: float) -> Expr:
    expr = Expr(id=5)
    expr.const_expr.double_value = value
    return expr


EQUAL = call("_==_", path(), text("/"))


def deep(levels: int) -> Expr:
    expr = EQUAL
    for _ in range(levels):
        expr = call("!_", expr)
    return expr


def loop() -> Expr:
    comprehension = Expr.Comprehension(
        iter_var="x", iter_range=ident("request"), accu_var="r", accu_init=EQUAL, loop_condition=EQUAL
    )
    return Expr(id=1, comprehension_expr=comprehension)


class Hostile(NamedTuple):
    expr: Expr
    problem: str


HOSTILE = {
    "nothing at all": Hostile(
        Expr(), "expr.expr_kind: The expression is empty. Set one of the fields of expr_kind. [ExpressionNotAllowed]"
    ),
    "an operand that is not there": Hostile(
        call("_==_", Expr(), text("a")),
        (
            "expr.call_expr.args[0].expr_kind: The expression is empty. Set one of the fields of "
            "expr_kind. [ExpressionNotAllowed]"
        ),
    ),
    "a call without a function": Hostile(
        call("", EQUAL),
        ("expr.call_expr.function: '' is not supported. Rewrite the expression without it. [ExpressionNotAllowed]"),
    ),
    "an unknown function": Hostile(
        call("exec", EQUAL),
        ("expr.call_expr.function: 'exec' is not supported. Rewrite the expression without it. [ExpressionNotAllowed]"),
    ),
    "a function in the name of another": Hostile(
        call("size(request) == 1 || size", EQUAL),
        (
            "expr.call_expr.function: 'size(request) == 1 || size' is not supported. Rewrite the "
            "expression without it. [ExpressionNotAllowed]"
        ),
    ),
    "an expression in a name": Hostile(
        call("_==_", ident("request.path == '' || request"), text("a")),
        "expr.call_expr.args[0].ident_expr: \"request.path == '' || request\" is not defined. "
        "Supported variables: connection, request, source, xds. [ExpressionUndeclared]",
    ),
    "a name of the engine's own": Hostile(
        ident("@result"),
        "expr.ident_expr: '@result' is not defined. Supported variables: connection, request, source, xds. "
        "[ExpressionUndeclared]",
    ),
    "an operator with too many operands": Hostile(
        call("_&&_", EQUAL, EQUAL, EQUAL),
        "expr.call_expr: _&&_ has the wrong operands. Compile the expression again. [ExpressionNotAllowed]",
    ),
    "an operator with too few operands": Hostile(
        call("_==_", EQUAL),
        "expr.call_expr: _==_ has the wrong operands. Compile the expression again. [ExpressionNotAllowed]",
    ),
    "an operator with a target": Hostile(
        call("_==_", path(), text("/"), target=EQUAL),
        "expr.call_expr: _==_ has the wrong operands. Compile the expression again. [ExpressionNotAllowed]",
    ),
    "the ternary": Hostile(
        call("_?_:_", EQUAL, EQUAL, EQUAL),
        (
            "expr.call_expr.function: '_?_:_' is not supported. Rewrite the expression without it. "
            "[ExpressionNotAllowed]"
        ),
    ),
    "a conversion to string": Hostile(
        call("_==_", call("string", path()), text("/")),
        (
            "expr.call_expr.args[0].call_expr.function: 'string' is not supported. Rewrite the "
            "expression without it. [ExpressionNotAllowed]"
        ),
    ),
    "a loop": Hostile(
        loop(),
        (
            "expr.comprehension_expr: Loops such as all() and exists() are not supported. Rewrite the "
            "expression without them. [ExpressionNotAllowed]"
        ),
    ),
    "a message": Hostile(
        Expr(struct_expr=Expr.CreateStruct(message_name="google.protobuf.Any")),
        ("expr.struct_expr: Messages are not supported. Rewrite the expression without them. [ExpressionNotAllowed]"),
    ),
    "an entry without a key": Hostile(
        Expr(struct_expr=Expr.CreateStruct(entries=[Expr.CreateStruct.Entry(value=EQUAL)])),
        (
            "expr.struct_expr.entries[0]: The entry is optional or has no key. Set map_key and remove "
            "optional_entry. [ExpressionNotAllowed]"
        ),
    ),
    "an optional element": Hostile(
        Expr(list_expr=Expr.CreateList(elements=[EQUAL], optional_indices=[0])),
        "expr.list_expr: Optional elements are not supported. Remove them. [ExpressionNotAllowed]",
    ),
    "a number that is none": Hostile(
        call("_<_", number(float("nan")), number(float("inf"))),
        "expr.call_expr.args[0].const_expr: The number is not finite. Use a finite number. [ExpressionNotAllowed]",
    ),
    "a constant without a value": Hostile(
        call("_==_", Expr(const_expr=Constant()), text("")),
        (
            "expr.call_expr.args[0].const_expr: The constant has an unsupported type. Use null, bool, int, uint, "
            "double, string or bytes. [ExpressionNotAllowed]"
        ),
    ),
    "a NUL character": Hostile(
        call("_==_", path(), text("/\0")),
        'expr: 1:17 of request.path == "/\\U00000000": The string contains a NUL character. Remove it. '
        "[ExpressionNotAllowed]",
    ),
    "a large constant": Hostile(call("_==_", path(), text("a" * 5000)), 'expr: 1:1 of request.path == "aaa'),
    "a huge constant": Hostile(
        call("_==_", path(), text("a" * LARGEST)), (f"bytes; the maximum is {LARGEST}. Shorten it.")
    ),
    "operands of other types than is said": Hostile(
        call("_<_", path(), number(1.0)), "expr: 1:14 of request.path < 1.0: < cannot be applied to (string, double)."
    ),
    "a result of another type than is said": Hostile(
        path(), "expr: 1:8 of request.path: The result is string, not bool."
    ),
    "a namespace as a value": Hostile(
        call("_==_", ident("request"), ident("request")), ": request is not a value. Use one of its members: "
    ),
    "strings joined": Hostile(
        call("_==_", call("_+_", path(), path()), text("")), "gRPC servers do not support + on strings, bytes or lists"
    ),
    "a pattern that is too large": Hostile(
        call("matches", text("(abc){40}"), target=path()), "The pattern is too large"
    ),
    "a pattern that is none": Hostile(
        call("matches", text("("), target=path()), "is not a valid RE2 regular expression"
    ),
    "much deeper than is allowed": Hostile(
        deep(45),
        (
            f"expr{'.call_expr.args[0]' * 39}.call_expr: The expression is nested too deeply. Simplify it. "
            "[ExpressionTooLarge]"
        ),
    ),
    "one name with more members than is allowed": Hostile(
        ident("request" + ".a" * 900),
        "expr.ident_expr: The expression is nested too deeply. Simplify it. [ExpressionTooLarge]",
    ),
    "deeper than is allowed": Hostile(deep(35), ": The expression is nested too deeply. Simplify it."),
}


@pytest.mark.requirement("CEL-3")
@pytest.mark.requirement("CEL-4")
@pytest.mark.parametrize("case", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_malformed_expression_is_a_problem(case: Hostile) -> None:
    found = read(boolean(case.expr))
    assert isinstance(found, list)
    assert case.problem in found[0]


def test_bytes_that_are_nested_deeper_than_messages_may_be_are_no_message() -> None:
    with pytest.raises(DecodeError):
        pb.CheckedExpr.FromString(boolean(deep(200)).SerializeToString())


def test_every_problem_is_reported() -> None:
    found = read(boolean(call("_||_", call("exec", EQUAL), call("_==_", ident("a"), ident("b")))))
    assert isinstance(found, list)
    assert [each.split(":")[0] for each in found] == [
        "expr.call_expr.args[0].call_expr.function",
        "expr.call_expr.args[1].call_expr.args[0].ident_expr",
        "expr.call_expr.args[1].call_expr.args[1].ident_expr",
    ]


def said(change: Callable[[pb.CheckedExpr], object]) -> pb.CheckedExpr:
    message = checked('request.path == "/" && size(request.path) > 1')
    change(message)
    return message


def refer(message: pb.CheckedExpr, node: str, /, **fields: object) -> None:
    """Change what is said of the first node that refers to a name."""
    reference = next(each for _, each in sorted(message.reference_map.items()) if each.name == node)
    reference.MergeFrom(pb.Reference(**fields))  # type: ignore[arg-type]


LIES = {
    "a name refers to another": lambda each: refer(each, "request", name="response"),
    "a name is a constant": lambda each: refer(each, "request", value={"bool_value": True}),
    "a name is a function": lambda each: refer(each, "request", overload_id=["equals"]),
    "an operator is another": lambda each: refer(each, "_==_", overload_id=["not_equals"]),
    "a function is a stranger": lambda each: refer(each, "size", overload_id=["exec"]),
    "a function has the name of another": lambda each: refer(each, "size", name="exec"),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
def test_references_that_say_something_else_are_a_problem(lie: Callable[[pb.CheckedExpr], object]) -> None:
    found = read(said(lie))
    assert isinstance(found, list)
    assert "[ExpressionReference]" in found[0]


def test_a_known_overload_does_not_make_a_function_known() -> None:
    message = boolean(call("exec", path()))
    message.reference_map[1].overload_id.append("equals")
    assert read(message) == [
        ("expr.call_expr.function: 'exec' is not supported. Rewrite the expression without it. [ExpressionNotAllowed]")
    ]


def test_references_and_places_may_be_missing_as_they_are_not_believed() -> None:
    def forget(message: pb.CheckedExpr) -> None:
        message.ClearField("reference_map")
        message.ClearField("source_info")

    program = read(said(forget))
    assert isinstance(program, Program)
    assert program.text == 'request.path == "/" && size(request.path) > 1'


def test_ids_that_are_all_the_same_do_not_matter() -> None:
    def same(expr: Expr) -> None:
        expr.id = 7
        for each in expr.call_expr.args:
            same(each)

    message = pb.CheckedExpr(expr=EQUAL)
    same(message.expr)
    message.type_map[7].primitive = pb.Type.BOOL
    assert isinstance(read(message), Program)


@pytest.mark.requirement("CEL-2")
def test_a_result_that_is_not_said_to_be_a_bool_is_a_problem() -> None:
    message = boolean(EQUAL)
    message.type_map[1].primitive = pb.Type.STRING
    assert read(message) == [
        ("type_map: The result is not bool. Write an expression that returns bool. [ExpressionNotBool]")
    ]
    message.ClearField("type_map")
    assert read(message) == [
        ("type_map: The type of the result is not set. Compile the expression with a type checker. [ExpressionNotBool]")
    ]


SPELLINGS = {
    "one name with dots": (call("_==_", ident("request.path"), text("/")), 'request.path == "/"'),
    "a name from the root": (call("_==_", ident(".request.path"), text("/")), 'request.path == "/"'),
    "a member that is no identifier": (
        call(
            "_==_",
            Expr(
                select_expr=Expr.Select(
                    operand=Expr(select_expr=Expr.Select(operand=ident("request"), field="headers")), field="x-a"
                )
            ),
            text("/"),
        ),
        'request.headers["x-a"] == "/"',
    ),
    "a header in capitals": (
        call(
            "_==_",
            Expr(
                select_expr=Expr.Select(
                    operand=Expr(select_expr=Expr.Select(operand=ident("request"), field="headers")), field="Host"
                )
            ),
            text("/"),
        ),
        'request.headers["host"] == "/"',
    ),
    "a question for a member that is no identifier": (
        Expr(
            id=1,
            select_expr=Expr.Select(
                operand=Expr(select_expr=Expr.Select(operand=ident("request"), field="headers")),
                field="in",
                test_only=True,
            ),
        ),
        '"in" in request.headers',
    ),
    "signs one after the other": (call("_<_", number(0), call("-_", call("-_", number(1)))), "0.0 < -(-1.0)"),
    "many alternatives, nested": (
        call("_||_", EQUAL, call("_||_", EQUAL, call("_||_", EQUAL, EQUAL))),
        'request.path == "/" || (request.path == "/" || (request.path == "/" || request.path == "/"))',
    ),
}


@pytest.mark.parametrize(("expr", "want"), SPELLINGS.values(), ids=SPELLINGS.keys())
def test_other_spellings_of_the_same_are_taken(expr: Expr, want: str) -> None:
    program = read(boolean(expr))
    assert isinstance(program, Program)
    assert program.text == want


def test_types_of_ours_are_not_sent_to_others() -> None:
    assert "authplane" not in str(checked('request.path == xds.route_metadata.filter_metadata.a.b || source.ip == ""'))


_NAMES = st.sampled_from(["request", "xds", "source", "request.path", "a", "", "x y", "\0", "@result", "headers"])
_FUNCTIONS = st.sampled_from(
    ["_==_", "_&&_", "!_", "-_", "_[_]", "@in", "size", "matches", "string", "_+_", "", "_?_:_"]
)
_LEAVES = st.one_of(
    st.builds(ident, _NAMES),
    st.builds(text, st.text(max_size=8)),
    st.builds(number, st.floats()),
    st.just(Expr()),
    st.builds(lambda value: Expr(const_expr=Constant(int64_value=value)), st.integers(-(2**63), 2**63 - 1)),
    st.builds(lambda value: Expr(const_expr=Constant(bytes_value=value)), st.binary(max_size=8)),
)


def _above(below: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    return st.one_of(
        st.builds(
            lambda function, args, target: call(function, *args, target=target),
            _FUNCTIONS,
            st.lists(below, max_size=3),
            st.none() | below,
        ),
        st.builds(
            lambda operand, field, test: Expr(select_expr=Expr.Select(operand=operand, field=field, test_only=test)),
            below,
            _NAMES,
            st.booleans(),
        ),
        st.builds(lambda values: Expr(list_expr=Expr.CreateList(elements=values)), st.lists(below, max_size=3)),
    )


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.recursive(_LEAVES, _above, max_leaves=12))
def test_no_tree_breaks_the_reader(expr: Expr) -> None:
    read(boolean(expr))


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(ALLOWED), st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 255)), min_size=1, max_size=4)
)
def test_no_bytes_break_the_reader(text: str, changes: list[tuple[int, int]]) -> None:
    data = bytearray(checked(text).SerializeToString())
    for place, value in changes:
        data[place % len(data)] = value
    try:
        message = pb.CheckedExpr.FromString(bytes(data))
    except DecodeError:
        return
    read(message)


_TEXTS = st.sampled_from(
    ["request.path", "request.host", 'request.headers["a"]', '"a"', '"/a\\\\b"', "source.ip", '""']
)
_NUMBERS = st.recursive(
    st.sampled_from(["source.port", "1", "-2", "0", 'xds.route_metadata.filter_metadata["n"].n * 1']),
    lambda below: st.one_of(
        st.builds("({0} {2} {1})".format, below, below, st.sampled_from(["+", "-", "*", "/", "%"])),
        st.builds("-({0})".format, below),
        st.builds("size({0})".format, _TEXTS),
        st.builds("int({0})".format, _TEXTS),
    ),
    max_leaves=4,
)
_BOOLS = st.recursive(
    st.one_of(
        st.builds("{0} {2} {1}".format, _TEXTS, _TEXTS, st.sampled_from(["==", "!=", "<", ">="])),
        st.builds("1 + {0} {2} 2 * {1}".format, _NUMBERS, _NUMBERS, st.sampled_from(["==", "!=", "<=", ">"])),
        st.builds("{0}.{2}({1})".format, _TEXTS, _TEXTS, st.sampled_from(["startsWith", "endsWith", "contains"])),
        st.builds("{0} in [{1}, {1}]".format, _TEXTS, _TEXTS),
        st.sampled_from(['has(request.headers.a) && "b" in request.headers', "has(request.time)", "true", "false"]),
    ),
    lambda below: st.one_of(
        st.builds("({0}) {2} ({1})".format, below, below, st.sampled_from(["&&", "||", "=="])),
        st.builds("!({0})".format, below),
    ),
    max_leaves=5,
)
_FACTS = st.fixed_dictionaries(
    {},
    optional={
        "request.path": st.sampled_from(["", "a", "/a\\b", "7"]),
        "request.host": st.sampled_from(["a", "b"]),
        "request.headers": st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(["", "a", "12"])),
        "source.ip": st.sampled_from(["a", "10.0.0.1"]),
        "source.port": st.builds(Admitted, st.integers(-3, 3), st.just(8)),
        "xds.route_metadata.filter_metadata": st.sampled_from([{}, {"n": {"n": 1.0}}, {"n": {"n": "a"}}]),
    },
)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(_BOOLS, st.lists(_FACTS, min_size=1, max_size=5))
def test_what_is_run_says_what_the_sent_one_says(text: str, calls: list[dict[str, object]]) -> None:
    sent = checked(text)
    program = read(sent)
    assert isinstance(program, Program)
    packed = any_pb2.Any()
    packed.Pack(sent)
    theirs = replace(program, running=load(packed.SerializeToString(), SERVER_CALLS))
    for each in calls:
        assert evaluate(program, known(each)) == evaluate(theirs, known(each))


# --- What the definition of the language calls the overloads of each function

SIZES = ("string", "bytes", "list", "map")
ORDERED = ("bool", "int64", "uint64", "double", "string", "bytes", "timestamp", "duration")
PARTS = {
    "getDate": "day_of_month_1_based", "getDayOfMonth": "day_of_month", "getDayOfWeek": "day_of_week",
    "getDayOfYear": "day_of_year", "getFullYear": "year", "getMonth": "month",
}  # fmt: skip
CLOCK = {"getHours": "hours", "getMinutes": "minutes", "getSeconds": "seconds", "getMilliseconds": "milliseconds"}
OVERLOADS: dict[str, tuple[str, ...]] = {
    "_&&_": ("logical_and",),
    "_||_": ("logical_or",),
    "!_": ("logical_not",),
    "_==_": ("equals",),
    "_!=_": ("not_equals",),
    "_<_": tuple(f"less_{each}" for each in (*ORDERED, "int64_double", "uint64_int64")),
    "_<=_": tuple(f"less_equals_{each}" for each in (*ORDERED, "int64_double", "uint64_int64")),
    "_>_": tuple(f"greater_{each}" for each in (*ORDERED, "int64_double", "uint64_int64")),
    "_>=_": tuple(f"greater_equals_{each}" for each in (*ORDERED, "int64_double", "uint64_int64")),
    "_+_": ("add_int64", "add_uint64", "add_double", "add_string", "add_bytes", "add_list", "add_timestamp_duration",
            "add_duration_timestamp", "add_duration_duration"),
    "_-_": ("subtract_int64", "subtract_uint64", "subtract_double", "subtract_timestamp_timestamp",
            "subtract_timestamp_duration", "subtract_duration_duration"),
    "_*_": ("multiply_int64", "multiply_uint64", "multiply_double"),
    "_/_": ("divide_int64", "divide_uint64", "divide_double"),
    "_%_": ("modulo_int64", "modulo_uint64"),
    "-_": ("negate_int64", "negate_double"),
    "_[_]": ("index_list", "index_map"),
    "@in": ("in_list", "in_map"),
    "size": (*(f"size_{each}" for each in SIZES), *(f"{each}_size" for each in SIZES)),
    "matches": ("matches", "matches_string"),
    "contains": ("contains_string",),
    "startsWith": ("starts_with_string",),
    "endsWith": ("ends_with_string",),
    "bool": ("bool_to_bool", "string_to_bool"),
    "bytes": ("bytes_to_bytes", "string_to_bytes"),
    "double": ("double_to_double", "int64_to_double", "uint64_to_double", "string_to_double"),
    "int": ("int64_to_int64", "uint64_to_int64", "double_to_int64", "string_to_int64", "timestamp_to_int64"),
    "uint": ("uint64_to_uint64", "int64_to_uint64", "double_to_uint64", "string_to_uint64"),
    "timestamp": ("timestamp_to_timestamp", "string_to_timestamp", "int64_to_timestamp"),
    "duration": ("duration_to_duration", "string_to_duration"),
    **{name: (f"timestamp_to_{part}", f"timestamp_to_{part}_with_tz") for name, part in PARTS.items()},
    **{
        name: (f"timestamp_to_{part}", f"timestamp_to_{part}_with_tz", f"duration_to_{part}")
        for name, part in CLOCK.items()
    },
}  # fmt: skip
UNARY = {"!_", "-_"}


def referring(function: str, overload: str) -> list[str]:
    """Return what is wrong with a call of a function that is said to be an overload."""
    operator = not function.isidentifier()
    args = [path()] if function in UNARY or not operator else [path(), path()]
    message = boolean(call(function, *args))
    message.expr.id = 77
    message.reference_map[77].overload_id.append(overload)
    problems = Problems()
    parse_expression(message, SERVER_CALLS, problems)
    return [each.reason for each in problems]


def test_the_table_has_every_function_of_calls() -> None:
    assert set(OVERLOADS) == SERVER_CALLS.functions == CLIENT_CALLS.functions


@pytest.mark.requirement("CEL-3")
@pytest.mark.parametrize("function", OVERLOADS)
def test_a_function_has_its_own_overloads_and_no_others(function: str) -> None:
    every = {each for overloads in OVERLOADS.values() for each in overloads}
    taken = {each for each in every if not referring(function, each)}
    alike = {"getDayOfMonth": OVERLOADS["getDate"]}
    assert taken == {*OVERLOADS[function], *alike.get(function, ())}
    for lie in ("", "exec", "x-" + OVERLOADS[function][0], OVERLOADS[function][0] + "-x"):
        assert referring(function, lie) == ["ExpressionReference"]


JOINED = {
    "add_int64": "source.port + 1 == 2",
    "add_uint64": "uint(request.query) + 1u == 2u",
    "add_double": "double(request.query) + 1.5 == 3.0",
    "add_timestamp_duration": 'request.time + duration("1s") > request.time',
    "add_duration_timestamp": 'duration("1s") + request.time > request.time',
    "add_duration_duration": 'duration(request.query) + duration("1s") > duration("1s")',
}


@pytest.mark.requirement("CEL-4")
@pytest.mark.parametrize("text", JOINED.values(), ids=JOINED)
def test_numbers_and_times_of_every_type_can_be_added(text: str) -> None:
    assert isinstance(compile_call_expression(text, SERVER_CALLS), Program)


@pytest.mark.requirement("CEL-2")
def test_a_pattern_has_a_hundred_instructions_and_no_more() -> None:
    sizes = {pattern_size("a" * length): "a" * length for length in range(1, 150)}
    largest, larger = sizes[100], sizes[101]
    assert isinstance(compile_call_expression(f'request.path.matches("{largest}")', SERVER_CALLS), Program)
    found = compile_call_expression(f'request.path.matches("{larger}")', SERVER_CALLS)
    assert isinstance(found, tuple)
    assert found[0].message.startswith(
        "The pattern is too large: it compiles to 101 RE2 instructions; the maximum is 100"
    )


@pytest.mark.parametrize(("members", "taken"), [(38, True), (39, False)])
def test_a_name_and_its_members_nest_less_than_forty_deep(members: int, taken: bool) -> None:
    problems = Problems()
    parse_expression(boolean(ident("request" + ".a" * members)), SERVER_CALLS, problems)
    assert [each.reason for each in problems] == ([] if taken else ["ExpressionTooLarge"])


@pytest.mark.parametrize(("negations", "taken"), [(36, True), (37, False)])
def test_expressions_nest_less_than_forty_deep(negations: int, taken: bool) -> None:
    # What is negated is a call, a member and a name.
    problems = Problems()
    parse_expression(boolean(deep(negations)), SERVER_CALLS, problems)
    assert [each.reason for each in problems] == ([] if taken else ["ExpressionTooLarge"])


@pytest.mark.parametrize(
    ("name", "taken"),
    [("request.path", True), (".request.path", True), ("requestpath", False), ("request", False), ("", False)],
)
def test_a_member_refers_to_its_whole_name(name: str, taken: bool) -> None:
    expr = path()
    expr.id = 77
    message = boolean(call("_==_", expr, text("/")))
    message.reference_map[77].name = name
    problems = Problems()
    assert (parse_expression(message, SERVER_CALLS, problems) is not None) is taken
    assert [each.reason for each in problems] == ([] if taken else ["ExpressionReference"])


@pytest.mark.parametrize(
    ("key", "value", "taken"),
    [
        (text("a"), text("b"), True),
        (ident("nobody"), text("b"), False),
        (text("a"), ident("nobody"), False),
        (ident("nobody"), ident("nobody"), False),
    ],
)
def test_a_map_needs_all_of_its_keys_and_values(key: Expr, value: Expr, taken: bool) -> None:
    entry = Expr.CreateStruct.Entry(map_key=key, value=value)
    good = Expr.CreateStruct.Entry(map_key=text("x"), value=text("y"))
    message = boolean(Expr(struct_expr=Expr.CreateStruct(entries=[good, entry])))
    assert (parse_expression(message, SERVER_CALLS, Problems()) is not None) is taken
