"""Reads the entries of rules: what they grant."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from authplane.cel.check.expression_lint import Doubt, lint
from authplane.cel.check.program import Program, compile_expression
from authplane.cel.syntax.vocabulary import ACCESS_POLICY
from authplane.core.names import Ref
from authplane.core.problems import Inside, Problems
from authplane.core.values import dataclass
from authplane.policy.check.answer_headers import fit_name
from authplane.policy.compile.service_references import parse_external
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
)
from authplane.resources.kinds.agentic import (
    MATCH_BASE,
    AccessRule,
    AuthorizationEntry,
    CelRule,
    ExternalAuth,
    McpAttributes,
    McpMethod,
    PathRule,
)

ALL_TOOLS: Final = "*"
"""As the only name in a list of tools: every tool."""
SKIP_BASE: Final = "SKIP_BASE_PROTOCOL_METHODS"

_WIDER: Final = frozenset(
    {Doubt.CONSTANT, Doubt.NEGATION_ONLY, Doubt.ABSORBED_ERROR, Doubt.UNANCHORED, Doubt.ALL_OF_NOTHING}
)
"""Doubts about expressions that may be true for more requests than intended."""
_MEMBERS: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "InlineTools": frozenset({"tools"}),
        "Inline": frozenset({"mcp", "methods", "paths", "headers", "hosts", "ports"}),
        "CEL": frozenset({"cel"}),
        "ExternalAuth": frozenset({"externalAuth"}),
    }
)
_FAMILIES: Final = frozenset({"tools", "prompts", "resources", "tasks", "completion", "logging", "notifications"})
_ABOUT: Final = frozenset(
    {
        "tools/call", "prompts/get", "resources/read", "resources/subscribe", "resources/unsubscribe",
        "completion/complete", "tasks/get", "tasks/result", "tasks/cancel", "tasks/update",
    }
)  # fmt: skip
"""The methods that are about something that parameters can name."""
_METHOD: Final = re.compile(r"[!-~]+")
_HTTP_METHOD: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Z-]+")
_PATH: Final = re.compile(r"/[^\s?#*]*\*?")
_HOST: Final = re.compile(r"(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How the entries of one policy are read."""

    ref: Ref
    types: frozenset[str] = frozenset({"InlineTools", "Inline", "CEL", "ExternalAuth"})
    """The types of entries that its kind has."""
    missing_grants: bool = False
    """Whether a rule without ``authorization`` grants everything, as in the later XAccessPolicy."""
    strict: bool = False


def parse_entries(rule: AccessRule, reading: Reading, problems: Problems) -> tuple[Entry, ...]:
    """Read what a rule grants; what has a problem is left out."""
    if rule.tools is not None:
        if rule.authorization is not None:
            with problems.at("tools"):
                problems.add("Invalid", "'tools' and 'authorization' are both set. Remove one of them.")
        return _tools(rule.tools, problems)
    if rule.authorization is None and reading.missing_grants:
        said = "In this version of the API, a rule without 'authorization' grants everything."
        problems.warn("GrantsEverything", f"{said} Add 'authorization', or ignore this if intended.")
        return (Everything(),)
    if not rule.authorization:
        problems.warn("GrantsNothing", "The rule has no 'authorization', so it grants nothing. Add 'authorization'.")
        return ()
    found: list[Entry] = []
    for index, each in enumerate(rule.authorization):
        with problems.at("authorization", index):
            found += _parse_entry(each, reading, problems)
    return tuple(found)


def _parse_entry(written: AuthorizationEntry, reading: Reading, problems: Problems) -> tuple[Entry, ...]:
    if written.type not in reading.types:
        with problems.at("type"):
            known = ", ".join(sorted(reading.types))
            said = f"{reading.ref.kind} of this version has no authorization of type {written.type}."
            problems.add("Invalid", f"{said} Supported: {known}.")
        return ()
    given = _given(written)
    for name in sorted(given - _MEMBERS[written.type]):
        with problems.at(name):
            problems.add("Invalid", f"An authorization of type {written.type} cannot have {name!r}. Remove it.")
    match written:
        case AuthorizationEntry(type="InlineTools", tools=tuple() as tools):
            return _tools(tools, problems)
        case AuthorizationEntry(type="CEL", cel=CelRule() as cel):
            return _expression(cel, reading, problems)
        case AuthorizationEntry(type="ExternalAuth", external_auth=external) if external is not None:
            return _asked(external, reading, problems)
        case AuthorizationEntry(type="Inline") if given:
            return _inline(written, problems)
        case _:
            wanted = " or ".join(repr(name) for name in sorted(_MEMBERS[written.type]))
            problems.add("Invalid", f"The authorization of type {written.type} is empty. Add {wanted}.")
            return ()


def _given(written: AuthorizationEntry) -> frozenset[str]:
    members = {
        "tools": written.tools is not None,
        "cel": written.cel is not None,
        "externalAuth": written.external_auth is not None,
        "mcp": written.mcp is not None,
        "methods": bool(written.methods),
        "paths": bool(written.paths),
        "headers": bool(written.headers),
        "hosts": bool(written.hosts),
        "ports": bool(written.ports),
    }
    return frozenset(name for name, given in members.items() if given)


def _asked(written: ExternalAuth, reading: Reading, problems: Problems) -> tuple[Asked, ...]:
    service = parse_external(written, reading.ref.namespace, problems)
    return () if service is None else (Asked(service),)


def _tools(names: tuple[str, ...], problems: Problems) -> tuple[Tools | AllTools, ...]:
    """Read the granted tools: ``*`` alone means all tools; every other name is matched exactly."""
    if names == (ALL_TOOLS,):
        return (AllTools(),)
    before = problems.error_count
    with problems.at("tools"):
        for index, name in enumerate(names):
            with problems.at(index):
                if name == ALL_TOOLS:
                    alone = (
                        f"{name!r} grants all tools and must be the only name. Remove it, or remove the other names."
                    )
                    problems.add("Invalid", alone)
                elif ALL_TOOLS in name:
                    said = f"{name!r} is not a pattern: it grants only a tool with exactly this name."
                    remedy = "List each tool, or use a CEL expression on request.mcp.tool_name."
                    problems.warn("ToolNotPattern", f"{said} {remedy}")
    # An empty list grants nothing, not even the base protocol.
    return (Tools(frozenset(names)),) if names and problems.error_count == before else ()


def _expression(written: CelRule, reading: Reading, problems: Problems) -> tuple[Expression, ...]:
    with problems.at("cel"):
        program = compile_expression(written.expression, ACCESS_POLICY)
        if not isinstance(program, Program):
            for problem in program:
                problems.add("InvalidCEL", problem.message, Inside(problem.line, problem.column))
            return ()
        refused = False
        for remark in lint(program):
            wider = reading.strict and remark.doubt in _WIDER
            refused = refused or wider
            where = Inside(remark.line, remark.column)
            (problems.add if wider else problems.warn)(f"CEL{remark.doubt}", remark.message, where)
    return () if refused else (Expression(program=program, message=written.message),)


def _inline(written: AuthorizationEntry, problems: Problems) -> tuple[Inline, ...]:
    before = problems.error_count
    made = Inline(
        mcp=None if written.mcp is None else _mcp(written.mcp, problems),
        methods=frozenset(written.methods),
        paths=_paths(written.paths, problems),
        headers=tuple((each.name.lower(), each.value) for each in written.headers),
        hosts=tuple(host.lower() for host in written.hosts),
        ports=frozenset(written.ports),
    )
    _require("methods", written.methods, _HTTP_METHOD, "an HTTP method. Use a name such as 'POST'.", problems)
    _require("hosts", made.hosts, _HOST, "a host. Use a name such as 'mcp.example.com' or '*.example.com'.", problems)
    for index, (name, _) in enumerate(made.headers):
        if not fit_name(name):
            with problems.at("headers", index, "name"):
                problems.add("Invalid", f"{name!r} is not a header name. Use letters, digits and hyphens.")
    if made == Inline() and problems.error_count == before:
        said = "The authorization of type Inline has no condition and would grant everything. Add a condition."
        problems.add("Invalid", said)
    return (made,) if problems.error_count == before else ()


def _paths(written: tuple[PathRule, ...], problems: Problems) -> tuple[str, ...]:
    """Return whole paths, and prefixes that end with ``*``, each once."""
    found: dict[str, None] = {}
    for index, each in enumerate(written):
        with problems.at("paths", index):
            found |= dict.fromkeys(_path(each, problems))
    return tuple(found)


def _path(written: PathRule, problems: Problems) -> tuple[str, ...]:
    if written.pattern is not None and written.type is written.value is None:
        if not _PATH.fullmatch(written.pattern):
            said = "a path. Use a path such as '/mcp', or '/mcp/*' for a prefix."
            problems.add("Invalid", f"{written.pattern!r} is not {said}")
        return (written.pattern,)
    value = written.value
    if written.pattern is not None or value is None:
        problems.add("Invalid", "The path is not valid. Expected a string, or 'type' and 'value'.")
        return ()
    if not _PATH.fullmatch(value) or value.endswith("*"):
        # A '*' at the end would mean more than is written.
        with problems.at("value"):
            problems.add("Invalid", f"{value!r} is not a path. Use a path such as '/mcp'.")
        return ()
    if written.type == "Exact":
        return (value,)
    # Gateway API, HTTPPathMatch: a prefix is compared by whole segments, and a slash at its end means nothing.
    bare = value.rstrip("/")
    return (bare, f"{bare}/*") if bare else ("/*",)


def _require(field: str, values: tuple[str, ...], pattern: re.Pattern[str], wanted: str, problems: Problems) -> None:
    for index, value in enumerate(values):
        if not pattern.fullmatch(value):
            with problems.at(field, index):
                problems.add("Invalid", f"{value!r} is not {wanted}")


def _mcp(written: McpAttributes, problems: Problems) -> McpGrant | None:
    methods: list[Method | Family] = []
    with problems.at("mcp"):
        for index, each in enumerate(written.methods):
            with problems.at("methods", index):
                methods += _method(each, problems)
    base = written.mcp_base_protocol_methods_option == MATCH_BASE
    # Without a method there is no condition on MCP, unless the rule names only the base protocol.
    return McpGrant(methods=tuple(methods), base=base) if methods or base else None


def _method(written: McpMethod, problems: Problems) -> tuple[Method | Family, ...]:
    if written.name in _FAMILIES:
        if written.params:
            with problems.at("params"):
                said = f"{written.name!r} matches several methods, whose 'params' differ. Name a single method."
                problems.add("Invalid", said)
            return ()
        return (Family(f"{written.name}/"),)
    if not _METHOD.fullmatch(written.name):
        with problems.at("name"):
            problems.add("Invalid", f"{written.name!r} is not an MCP method. Use a name such as 'tools/call'.")
        return ()
    if written.params and written.name not in _ABOUT:
        with problems.at("params"):
            problems.add("Invalid", f"{written.name!r} has no parameter that 'params' can match. Remove 'params'.")
        return ()
    return (Method(written.name, frozenset(written.params) if written.params else None),)
