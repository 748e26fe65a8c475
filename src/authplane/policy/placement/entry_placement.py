"""What an entry of a rule grants, as a condition of Envoy's."""

import re
from itertools import product
from typing import Final, assert_never

from authplane.cel.check.regex_patterns import LONGEST, pattern_size
from authplane.cel.envoy import condition_nodes
from authplane.cel.envoy.envoy_attributes import TOOLS_CALL
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
from authplane.core.envoy_releases import Release
from authplane.policy.mcp.base_methods import BASE, UPSTREAM_BASE, BaseMethods
from authplane.policy.mcp.mcp_versions import ProtocolVersion
from authplane.policy.placement.placement_model import CallOut, Native, Place, Terms
from authplane.policy.rules.access_settings import BodyInspection, Placement
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

STRICT: Final = "reads the body, and bodyInspection is Strict"
CHOSEN: Final = "has placement CallOut"
ASKS: Final = "calls an external service"
NO_MCP: Final = "matches MCP, and the target is not an MCP server"
SUBJECTS: Final = "matches a parameter that Envoy's mcp filter does not export"
LARGE_HOST: Final = "names a host whose regular expression is larger than Envoy accepts"
MANY_HYPHENS: Final = "names a header with too many hyphens, each of which can be an underscore"
COMMA: Final = "matches a header value with a comma, which also joins several values"

_SUBJECTS: Final = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "resources/subscribe": "uri",
    "resources/unsubscribe": "uri",
}
"""The parameters that the mcp filter keeps in every release."""
_MOST_HYPHENS: Final = 3


def place_entry(entry: Entry, who: Who, terms: Terms, *, is_mcp: bool) -> Place:
    """Say where an entry of a rule is enforced whose source Envoy recognises as ``who``."""
    obstacle = _obstacle(entry, terms, is_mcp=is_mcp)
    if obstacle:
        return CallOut(obstacle)
    match entry:
        case Tools() | AllTools():
            granted = Method(TOOLS_CALL, entry.names if isinstance(entry, Tools) else None)
            return Native(Condition(check=_called(terms.envoy, granted), reads_mcp=True))
        case Inline():
            return _inline(entry, terms.envoy)
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
    obstacle = _body_obstacle(terms)
    if obstacle:
        return CallOut(obstacle)
    return Native(Condition(check=_base(terms.envoy, BASE[ProtocolVersion.V2025_11_25]), reads_mcp=True))


def _obstacle(entry: Entry, terms: Terms, *, is_mcp: bool) -> str:
    if terms.placement is Placement.CALL_OUT:
        return CHOSEN
    if not reads_mcp(entry):
        return ""
    return _body_obstacle(terms) if is_mcp else NO_MCP


def _body_obstacle(terms: Terms) -> str:
    if terms.placement is Placement.CALL_OUT:
        return CHOSEN
    return STRICT if terms.body_inspection is BodyInspection.STRICT else ""


def _inline(entry: Inline, envoy: Release) -> Place:
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
        checks.append(_mcp(entry.mcp, envoy))
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
    methods = () if entry.mcp is None else entry.mcp.methods
    untold = any(
        isinstance(each, Method) and each.subjects is not None and each.name not in _SUBJECTS for each in methods
    )
    return SUBJECTS if untold else ""


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
    """Return what holds if a header has this value alone, and no other looks like it to an origin."""
    headers = condition_nodes.name("request.headers")
    spellings = {"".join(each) for each in product(*("-_" if letter == "-" else letter for letter in name))} - {name}
    odd = (
        condition_nodes.negated(condition_nodes.call("@in", condition_nodes.literal(each), headers))
        for each in sorted(spellings)
    )
    return condition_nodes.every((condition_nodes.equal(condition_nodes.member(headers, name), value), *odd))


def _mcp(grant: McpGrant, envoy: Release) -> Check:
    base = [_base(envoy, UPSTREAM_BASE[ProtocolVersion.V2025_11_25])] if grant.base else []
    return some((*base, *(_called(envoy, each) for each in grant.methods)))


def _called(envoy: Release, method: Method | Family) -> Check:
    called = (envoy.mcp_metadata, "method")
    match method:
        case Family(prefix):
            return Metadata(called, (Begins(prefix),))
        case Method(name, None):
            return Metadata(called, (Equals(name),))
        case Method(name, subjects):
            about = equals_one((envoy.mcp_metadata, "params", _SUBJECTS[name]), subjects or ())
            return every((Metadata(called, (Equals(name),)), about))
        case _:
            assert_never(method)


def _base(envoy: Release, base: BaseMethods) -> Check:
    method = (envoy.mcp_metadata, "method")
    # What has an id is a request, whatever it is called.
    unanswered = Not(Metadata((envoy.mcp_metadata, "id"), (PRESENT,)))
    notice = every((equals_one(method, base.notifications), unanswered))
    requests = Metadata(method, (*map(Equals, sorted(base.requests)), *map(Begins, base.families)))
    return some((requests, notice))
