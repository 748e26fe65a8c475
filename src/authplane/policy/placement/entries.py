"""What an entry of a rule grants, as a condition of Envoy's."""

import re
from itertools import product
from typing import Final, assert_never

from authplane.cel.envoy import nodes
from authplane.cel.envoy.attributes import TOOLS_CALL, is_method, mcp_method, mcp_param
from authplane.cel.envoy.fitness import LARGEST_PATTERN, fault_in_header
from authplane.cel.envoy.paths import CANONICAL_PATH
from authplane.cel.envoy.release import Release
from authplane.cel.envoy.translate import Condition, Who, translate
from authplane.cel.patterns import LONGEST, pattern_size
from authplane.cel.tree import Node
from authplane.policy.access.model import (
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
from authplane.policy.access.settings import BodyInspection, Placement
from authplane.policy.mcp.base_methods import BASE, UPSTREAM_BASE, BaseMethods
from authplane.policy.mcp.versions import ProtocolVersion
from authplane.policy.placement.model import CallOut, Native, Place, Terms

STRICT: Final = "reads the body, which only the policy server reads strictly (bodyInspection: Strict)"
CHOSEN: Final = "is left to the policy server (placement: CallOut)"
ASKS: Final = "asks an external service"
NO_MCP: Final = "speaks of MCP, and the target is no MCP server"
SUBJECTS: Final = "names what a method is about that Envoy's mcp filter does not tell"
LARGE_HOST: Final = "names a host of which the regular expression is larger than Envoy accepts"
MANY_HYPHENS: Final = "names a header with many hyphens, each of which may be an underscore"
COMMA: Final = "has a header value with a comma, which several values together have as well"

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
        case Tools(names):
            called = (is_method(terms.envoy, TOOLS_CALL), nodes.one_of(mcp_param(terms.envoy, "name"), names))
            return _native(nodes.every(called), reads_mcp=True)
        case Inline():
            return _inline(entry, terms.envoy)
        case Expression(program=program):
            made = translate(program, who, terms.envoy)
            return Native(made) if isinstance(made, Condition) else CallOut(", ".join(made))
        case Everything():
            return _native(nodes.literal(value=True))
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
    return _native(_base(terms.envoy, BASE[ProtocolVersion.V2025_11_25]), reads_mcp=True)


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


def _native(tree: Node, *, reads_mcp: bool = False) -> Native:
    return Native(Condition(tree=tree, reads_mcp=reads_mcp))


def _inline(entry: Inline, envoy: Release) -> Place:
    obstacle = _inline_obstacle(entry)
    if obstacle:
        return CallOut(obstacle)
    found: list[Node] = []
    if entry.methods:
        found.append(nodes.one_of(nodes.name("request.method"), entry.methods))
    if entry.ports:
        ports = (nodes.equal(nodes.name("destination.port"), port) for port in sorted(entry.ports))
        found.append(nodes.some(ports))
    if entry.hosts:
        found.append(nodes.some(nodes.matches(nodes.name("request.host"), _host(each)) for each in entry.hosts))
    if entry.paths:
        found.append(nodes.some(_path(each) for each in entry.paths))
    found += [_header(name, value) for name, value in entry.headers]
    if entry.mcp is not None:
        found.append(_mcp(entry.mcp, envoy))
    return _native(nodes.every(found), reads_mcp=entry.mcp is not None)


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
    return rf"^(?i:{before}{bare}){root}(?::[0-9]+)?$"


def _path(path: str) -> Node:
    return nodes.starts_with(CANONICAL_PATH, path[:-1]) if path.endswith("*") else nodes.equal(CANONICAL_PATH, path)


def _header(name: str, value: str) -> Node:
    """Return what holds if a header has this value alone, and no other looks like it to an origin."""
    headers = nodes.name("request.headers")
    spellings = {"".join(each) for each in product(*("-_" if letter == "-" else letter for letter in name))} - {name}
    odd = (nodes.negated(nodes.call("@in", nodes.literal(each), headers)) for each in sorted(spellings))
    return nodes.every((nodes.equal(nodes.member(headers, name), value), *odd))


def _mcp(grant: McpGrant, envoy: Release) -> Node:
    found = [_base(envoy, UPSTREAM_BASE[ProtocolVersion.V2025_11_25])] if grant.base else []
    for each in grant.methods:
        match each:
            case Family(prefix):
                found.append(nodes.starts_with(mcp_method(envoy), prefix))
            case Method(name, None):
                found.append(is_method(envoy, name))
            case Method(name, subjects):
                about = nodes.one_of(mcp_param(envoy, _SUBJECTS[name]), subjects or ())
                found.append(nodes.every((is_method(envoy, name), about)))
            case _:
                assert_never(each)
    return nodes.some(found)


def _base(envoy: Release, base: BaseMethods) -> Node:
    method = mcp_method(envoy)
    answered = nodes.call("@in", nodes.literal("id"), nodes.member(nodes.METADATA, envoy.mcp_metadata))
    # What has an id is a request, whatever it is called.
    notice = nodes.every((nodes.one_of(method, base.notifications), nodes.negated(answered)))
    families = (nodes.starts_with(method, each) for each in base.families)
    return nodes.some((nodes.one_of(method, base.requests), notice, *families))
