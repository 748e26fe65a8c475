"""What an entry of a rule grants, as far as a gRPC server can tell of a call as the policy engine does."""

import re
from collections.abc import Iterator
from typing import Final, assert_never

from authplane.cel.calls.call_vocabulary import HEADERS, SERVER_CALLS, compile_call_expression
from authplane.cel.check.program import Program
from authplane.cel.syntax.source_text import render_text
from authplane.cel.syntax.tree import Const
from authplane.core.values import dataclass
from authplane.policy.identity.workload_identity.spiffe import names_workload
from authplane.policy.mcp.header_front import canonical_path
from authplane.policy.placement.entry_placement import ASKS, COMMA, NO_MCP
from authplane.policy.placement.placement_model import CallOut
from authplane.policy.placement.source_placement import NO_WORKLOAD
from authplane.policy.rules.rule_model import (
    Account,
    AllTools,
    AnySource,
    Asked,
    Entry,
    Everything,
    Expression,
    Inline,
    Oidc,
    Source,
    Spiffe,
    Tools,
)

TOKENS: Final = "requires a token, which only the policy server verifies"
HOSTS: Final = "names hosts, which gRPC servers do not report"
PORTS: Final = "names ports, which some gRPC servers do not know"
VALUE: Final = "matches a header value that is not plain text"
WORDY: Final = "has an expression that gRPC servers reject as too long, because they add spaces and escapes"
ALL_HEADERS: Final = "reads all headers instead of one by name"

_METHOD: Final = "POST"
"""That of every call of gRPC."""
_HEADER: Final = re.compile(r"[0-9a-z_.-]+")
_UNLIKE: Final = frozenset({"authorization", "content-type", "host", "te"})
"""A Listener must not reveal a secret; the other headers differ from what the client sent."""
_VALUE: Final = re.compile(r"[!-~](?:[ -~]*[!-~])?")
_READ: Final = frozenset({"request.path", "request.url_path", "request.method", "request.query"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Calls that are all of what is given here."""

    ids: frozenset[str] | None = None
    """The workloads whose certificates prove one of these; None means any sender."""
    paths: tuple[str, ...] = ()
    """Whole paths, or beginnings that end with ``*``; empty is any."""
    headers: tuple[tuple[str, str], ...] = ()
    """All must be there with this value alone."""
    expression: str = ""
    """Must be true; empty is no condition."""


def grant_of(source: Source, entry: Entry) -> Grant | CallOut | None:
    """Say what an entry grants to a source, or why only the policy server can tell; None grants nothing."""
    ids = _ids(source)
    if isinstance(ids, CallOut):
        return ids
    match entry:
        case Tools() | AllTools():
            return CallOut(NO_MCP)
        case Asked():
            return CallOut(ASKS)
        case Inline():
            return _inline(entry, ids)
        case Expression(program=program):
            return _expression(program, ids)
        case Everything():
            return Grant(ids=ids)
        case _:
            assert_never(entry)


def _ids(source: Source) -> frozenset[str] | CallOut | None:
    """Return the workloads of a source, or why only the policy server knows them; None means any sender."""
    match source:
        case AnySource():
            return None
        case Spiffe(ids=ids):
            return ids if all(map(names_workload, ids)) else CallOut(NO_WORKLOAD)
        case Account(spiffe_id=spiffe_id):
            return frozenset({spiffe_id})
        case Oidc():
            return CallOut(TOKENS)
        case _:
            assert_never(source)


def _inline(entry: Inline, ids: frozenset[str] | None) -> Grant | CallOut | None:
    reason = next(_obstacles(entry), "")
    if reason:
        return CallOut(reason)
    # To the policy engine no other path can be one of a rule.
    paths = tuple(each for each in entry.paths if each.endswith("*") or canonical_path(each))
    if (entry.methods and _METHOD not in entry.methods) or (entry.paths and not paths):
        return None
    return Grant(ids=ids, paths=paths, headers=entry.headers)


def _obstacles(entry: Inline) -> Iterator[str]:
    if entry.mcp is not None:
        yield NO_MCP
    if entry.hosts:
        yield HOSTS
    if entry.ports:
        yield PORTS
    for name, value in entry.headers:
        yield from _fault_in_header(name)
        if "," in value:
            yield COMMA
        elif not _VALUE.fullmatch(value):
            yield VALUE


def _fault_in_header(name: str) -> Iterator[str]:
    """Say why a header is not looked at by a server."""
    if name != name.lower():
        # To the policy engine no header has that name.
        yield f"names the header {name}; header names are lower case"
    elif name in _UNLIKE or name.startswith("grpc-") or name.endswith("-bin") or not _HEADER.fullmatch(name):
        yield f"reads the header {name}, which gRPC servers see differently"


def _expression(program: Program, ids: frozenset[str] | None) -> Grant | CallOut:
    if isinstance(program.tree, Const) and program.tree.value is True:
        return Grant(ids=ids)
    reason = next(_unreadable(program), "")
    if reason:
        return CallOut(reason)
    found = compile_call_expression(program.text, SERVER_CALLS)
    if isinstance(found, tuple):
        return CallOut(f"has an expression that gRPC servers do not support: {found[0].message.partition('. ')[0]}")
    # A server writes the expression as text and parses that: one expression that fails rejects the whole Listener.
    written = compile_call_expression(render_text(found.tree), SERVER_CALLS)
    if isinstance(written, tuple):
        return CallOut(WORDY)
    return Grant(ids=ids, expression=program.text)


def _unreadable(program: Program) -> Iterator[str]:
    for read in program.reads:
        name = read.variable.name
        if name != HEADERS:
            yield from () if name in _READ else (f"reads {name}",)
        elif read.keys is None:
            yield ALL_HEADERS
        else:
            for key in sorted(read.keys):
                yield from _fault_in_header(key)
