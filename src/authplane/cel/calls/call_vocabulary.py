"""Expressions about gRPC calls: the variables that gRFC A106 and A103 define for servers and clients."""

from collections.abc import Iterator
from typing import Final

from authplane.cel.calls.call_header_names import with_small_names
from authplane.cel.check.expression_result import Result
from authplane.cel.check.program import Program, compile_expression
from authplane.cel.check.regex_patterns import pattern_size
from authplane.cel.syntax.expression_problem import CelProblem, Reason, problem_at
from authplane.cel.syntax.source_text import render_text
from authplane.cel.syntax.tree import Call, Const, Ident, Node, walk
from authplane.cel.syntax.vocabulary import OPERATORS, Kind, Macro, Variable, Vocabulary
from authplane.cel.wire.expressions import parse_overloads

LARGEST_PATTERN: Final = 100
"""In instructions of RE2, as gRFC A106 has it."""

HEADERS: Final = "request.headers"
ROUTE_METADATA: Final = "xds.route_metadata.filter_metadata"
CLUSTER_METADATA: Final = "xds.cluster_metadata.filter_metadata"

_FUNCTIONS: Final = (OPERATORS - {"_?_:_"}) | frozenset({
    "size", "startsWith", "endsWith", "contains", "matches",
    "bool", "bytes", "double", "int", "uint", "timestamp", "duration",
    "getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear", "getFullYear", "getHours", "getMilliseconds",
    "getMinutes", "getMonth", "getSeconds",
})  # fmt: skip

_EVERYWHERE: Final = (
    Variable(name="request.path", kind=Kind.STRING, about="The full name of the method: `/shop.Cart/Add`."),
    Variable(name="request.url_path", kind=Kind.STRING, about="The same as `request.path`."),
    Variable(name="request.host", kind=Kind.STRING, about="The authority of the call; absent if unknown."),
    Variable(name="request.method", kind=Kind.STRING, about="Always `POST`."),
    Variable(
        name=HEADERS,
        kind=Kind.TEXTS,
        about="Headers by name; a literal name is case-insensitive. Several values of one header are joined by a comma;"
        " those of a `-bin` header are base64.",
    ),
    Variable(name="request.referer", kind=Kind.STRING, about="The header `referer`; empty if it is missing."),
    Variable(name="request.useragent", kind=Kind.STRING, about="The header `user-agent`; empty if it is missing."),
    Variable(name="request.id", kind=Kind.STRING, about="The header `x-request-id`; empty if it is missing."),
    Variable(name="request.query", kind=Kind.STRING, about="Always empty: gRPC paths have no query."),
    Variable(name="request.scheme", kind=Kind.STRING, about="Always absent."),
    Variable(name="request.protocol", kind=Kind.STRING, about="Always absent."),
    Variable(name="request.time", kind=Kind.TIMESTAMP, about="Always absent."),
    Variable(
        name=ROUTE_METADATA,
        kind=Kind.MEMBERS,
        about="The `filter_metadata` of the call's route; empty without a route.",
    ),
    Variable(
        name=CLUSTER_METADATA,
        kind=Kind.MEMBERS,
        about="The `filter_metadata` of the call's cluster; empty on servers.",
    ),
)
_ON_SERVERS: Final = (
    Variable(name="source.address", kind=Kind.STRING, about="The address and port of the peer: `10.0.0.1:4711`."),
    Variable(name="source.ip", kind=Kind.STRING, about="The address of the peer without its port."),
    Variable(name="source.port", kind=Kind.INT, about="The port of the peer."),
    Variable(
        name="connection.requested_server_name",
        kind=Kind.STRING,
        about="The server name (SNI) that the client sent in TLS; empty without one.",
    ),
    Variable(
        name="connection.tls_version", kind=Kind.STRING, about="The TLS version, such as `TLSv1.3`; empty without TLS."
    ),
    Variable(
        name="connection.sha256_peer_certificate_digest",
        kind=Kind.STRING,
        about="The SHA-256 of the client's certificate in lower-case hexadecimal digits; empty without one.",
    ),
)

SERVER_CALLS: Final = Vocabulary(
    variables=_EVERYWHERE + _ON_SERVERS, functions=_FUNCTIONS, macros=frozenset({Macro.HAS})
)
"""The variables of expressions on a server."""
CLIENT_CALLS: Final = Vocabulary(variables=_EVERYWHERE, functions=_FUNCTIONS, macros=frozenset({Macro.HAS}))
"""The variables of expressions on a client, which has no connection yet."""

_NUMERIC: Final = frozenset({
    "add_int64", "add_uint64", "add_double",
    "add_timestamp_duration", "add_duration_timestamp", "add_duration_duration",
})  # fmt: skip


def compile_call_expression(
    text: str, vocabulary: Vocabulary, result: Result = Result.BOOL
) -> Program | tuple[CelProblem, ...]:
    """Check an expression about calls: the program, or everything that is wrong with it.

    The program reads headers by their names in lower case, whatever they are in ``text``.
    """
    program = compile_expression(text, vocabulary, result)
    if isinstance(program, tuple):
        return program
    overloads = parse_overloads(program.checked)
    found = [each for node in walk(program.tree) for each in _problems(node, program, overloads)]
    if found:
        return tuple(found)
    tree = with_small_names(program.tree)
    return program if tree is program.tree else compile_call_expression(render_text(tree), vocabulary, result)


def _problems(node: Node, program: Program, overloads: dict[int, frozenset[str]]) -> Iterator[CelProblem]:
    match node:
        case Ident(name=name) if name not in program.vocabulary.roots:
            message = (
                f"{name} is a type, which gRPC servers do not support as a value. Rewrite the expression without it."
            )
            yield problem_at(program.text, node.at, Reason.NOT_ALLOWED, message)
        case Call(function="_+_") if not overloads.get(node.id, frozenset()) <= _NUMERIC:
            message = "gRPC servers do not support + on strings, bytes or lists. Use + only with numbers and times."
            yield problem_at(program.text, node.at, Reason.NOT_ALLOWED, message)
        case Call(function="matches", args=(*_, Const(value=str(pattern)) as where)):
            size = pattern_size(pattern)
            if size > LARGEST_PATTERN:
                message = (
                    f"The pattern is too large: it compiles to {size} RE2 instructions; "
                    f"the maximum is {LARGEST_PATTERN}. Simplify it."
                )
                yield problem_at(program.text, where.at, Reason.REGEX, message)
        case _:
            pass
