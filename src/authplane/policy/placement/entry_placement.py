"""What an entry of a rule grants, as a condition of Envoy's."""

import re
from collections.abc import Mapping
from itertools import product
from typing import Final, assert_never

from authplane.cel.check.regex_patterns import LONGEST, pattern_size
from authplane.cel.envoy import condition_nodes
from authplane.cel.envoy.envoy_attributes import ID, METHOD, SUBJECT, TOOLS_CALL, VERSION
from authplane.cel.envoy.fitness import LARGEST_PATTERN, fault_in_header
from authplane.cel.envoy.plain_paths import CANONICAL_CHECK
from authplane.cel.envoy.request_checks import (
    ALWAYS,
    PRESENT,
    Begins,
    Check,
    Equals,
    Fits,
    Header,
    Metadata,
    Not,
    Path,
    Port,
    equals_one,
    every,
    some,
)
from authplane.cel.envoy.shortcuts import shorten
from authplane.cel.envoy.translate import Condition, Who, translate
from authplane.cel.syntax.tree import Node
from authplane.policy.mcp.base_methods import BASE, UPSTREAM_BASE, BaseMethods
from authplane.policy.mcp.mcp_versions import ProtocolVersion
from authplane.policy.placement.placement_model import CallOut, Native, Place, Terms
from authplane.policy.rules.access_settings import Placement
from authplane.policy.rules.rule_model import (
    AllTools,
    Asked,
    Entry,
    Everything,
    Expression,
    Family,
    Inline,
    McpGrant,
    Method,
    Tools,
    reads_mcp,
)

CHOSEN: Final = "has placement CallOut"
ASKS: Final = "calls an external service"
NO_MCP: Final = "matches MCP, and the target is not an MCP server"
LARGE_HOST: Final = "names a host whose regular expression is larger than Envoy accepts"
MANY_HYPHENS: Final = "names a header with too many hyphens, each of which a client can write as an underscore"
COMMA: Final = "matches a header value that contains a comma, with which Envoy also joins several values"

_MOST_HYPHENS: Final = 3


def place_entry(entry: Entry, who: Who, terms: Terms, *, is_mcp: bool) -> Place:
    """Say where an entry of a rule is enforced whose source Envoy recognises as ``who``."""
    obstacle = _obstacle(entry, terms, is_mcp=is_mcp)
    if obstacle:
        return CallOut(obstacle)
    match entry:
        case Tools() | AllTools():
            granted = Method(TOOLS_CALL, entry.names if isinstance(entry, Tools) else None)
            return Native(Condition(check=_called(granted), reads_mcp=True))
        case Inline():
            return _inline(entry)
        case Expression(program=program):
            made = translate(program, who, terms.envoy)
            return Native(shorten(made)) if isinstance(made, Condition) else CallOut(", ".join(made))
        case Everything():
            return Native(Condition())
        case Asked():
            return CallOut(ASKS)
        case _:
            assert_never(entry)


def place_base(terms: Terms, *, is_mcp: bool) -> Place:
    """Say where the base protocol is granted; what is no call of a method is the policy server's anyway."""
    if not is_mcp:
        return CallOut(NO_MCP)
    if terms.placement is Placement.CALL_OUT:
        return CallOut(CHOSEN)
    return Native(Condition(check=_base(BASE), reads_mcp=True))


def _obstacle(entry: Entry, terms: Terms, *, is_mcp: bool) -> str:
    if terms.placement is Placement.CALL_OUT:
        return CHOSEN
    return NO_MCP if reads_mcp(entry) and not is_mcp else ""


def _inline(entry: Inline) -> Place:
    obstacle = _inline_obstacle(entry)
    if obstacle:
        return CallOut(obstacle)
    checks: list[Check] = []
    if entry.methods:
        checks.append(some(Header(":method", Equals(each)) for each in sorted(entry.methods)))
    if entry.ports:
        checks.append(some(map(Port, sorted(entry.ports))))
    if entry.hosts:
        checks.append(some(Header(":authority", Fits(_host(each))) for each in entry.hosts))
    if entry.paths:
        checks += [CANONICAL_CHECK, some(map(_path, entry.paths))]
    if entry.mcp is not None:
        checks.append(_mcp(entry.mcp))
    headers = condition_nodes.every(_header(name, value) for name, value in entry.headers)
    return Native(Condition(check=every(checks), tree=headers, reads_mcp=entry.mcp is not None))


def _inline_obstacle(entry: Inline) -> str:
    for name, value in entry.headers:
        if fault_in_header(name):
            return fault_in_header(name)
        if name.count("-") > _MOST_HYPHENS:
            return MANY_HYPHENS
        if "," in value:
            return COMMA
    for host in entry.hosts:
        if len(_host(host)) > LONGEST or pattern_size(_host(host)) > LARGEST_PATTERN:
            return LARGE_HOST
    return ""


def _host(host: str) -> str:
    """Return the pattern of a host, with any port and perhaps the dot of the root; ``*.`` is any names before it."""
    bare = re.escape(host.removeprefix("*."))
    before = r"(?:[a-z0-9_-]+\.)+" if host.startswith("*.") else ""
    root = "" if host.startswith("[") else r"\.?"
    return rf"(?i:{before}{bare}){root}(?::[0-9]+)?"


def _path(path: str) -> Check:
    if path == "*":
        return ALWAYS
    return Path(Begins(path[:-1]) if path.endswith("*") else Equals(path))


def _header(name: str, value: str) -> Node:
    """Return a condition: a header has only this value, and no other header looks like it to an origin."""
    headers = condition_nodes.name("request.headers")
    spellings = {"".join(each) for each in product(*("-_" if letter == "-" else letter for letter in name))} - {name}
    odd = (
        condition_nodes.negated(condition_nodes.call("@in", condition_nodes.literal(each), headers))
        for each in sorted(spellings)
    )
    return condition_nodes.every((condition_nodes.equal(condition_nodes.member(headers, name), value), *odd))


def _mcp(grant: McpGrant) -> Check:
    base = [_base(UPSTREAM_BASE)] if grant.base else []
    return some((*base, *map(_called, grant.methods)))


def _called(method: Method | Family) -> Check:
    match method:
        case Family(prefix):
            return Metadata(METHOD, (Begins(prefix),))
        case Method(name, None):
            return Metadata(METHOD, (Equals(name),))
        case Method(name, subjects):
            return every((Metadata(METHOD, (Equals(name),)), equals_one(SUBJECT, subjects or ())))
        case _:
            assert_never(method)


def _base(table: Mapping[ProtocolVersion, BaseMethods]) -> Check:
    """Return a check for the base protocol of a message's version."""
    alike: dict[BaseMethods, list[str]] = {}
    for version, base in table.items():
        alike.setdefault(base, []).append(version.value)
    return some(every((equals_one(VERSION, versions), _base_of(base))) for base, versions in alike.items())


def _base_of(base: BaseMethods) -> Check:
    # What has an id is a request, whatever it is called.
    unanswered = Not(Metadata(ID, (PRESENT,)))
    notice = every((equals_one(METHOD, base.notifications), unanswered))
    requests = Metadata(METHOD, (*map(Equals, sorted(base.requests)), *map(Begins, base.families)))
    return some((requests, notice))
