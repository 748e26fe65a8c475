"""What `authplane init` has to know about an MCP server and its callers."""

import re
from typing import Final

from authplane.core.problems import Problems
from authplane.core.text import shorten
from authplane.core.values import dataclass
from authplane.devkit.local.dev_issuer import DEV_ADDRESS
from authplane.policy.identity.tokens.issuer_url import parse_issuer_url
from authplane.resources.mcp_places import parse_mcp_url

DEV: Final = "dev"
"""What to answer instead of an issuer's URL to use the development issuer."""
DEV_URL: Final = f"https://{DEV_ADDRESS}"
ALL_TOOLS: Final = "*"

_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_LONGEST: Final = 128
_LONGEST_SHOWN: Final = 64
_MOST_GROUPS: Final = 64


@dataclass(frozen=True, slots=True)
class Grant:
    """A group of callers, and the tools that it may call; ``*`` is every tool."""

    group: str
    tools: tuple[str, ...]

    @property
    def everything(self) -> bool:
        """Whether the group may call every tool."""
        return ALL_TOOLS in self.tools


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """Everything that a folder for one MCP server is made of."""

    name: str
    url: str
    issuer: str
    """A URL, or `DEV`."""
    audience: str
    claim: str = "groups"
    grants: tuple[Grant, ...]
    port: int = 8090
    """Where Envoy listens."""

    @property
    def issuer_url(self) -> str:
        """What policies name."""
        return DEV_URL if self.issuer == DEV else self.issuer

    @property
    def served_url(self) -> str:
        """What clients use."""
        return f"http://127.0.0.1:{self.port}/default/{self.name}"


def name_problem(text: str) -> str:
    """Say what is wrong with the name of a Backend; empty if nothing."""
    if _LABEL.fullmatch(text):
        return ""
    return f"{_shown(text)} is not a name. Use lower-case letters, digits and hyphens."


def url_problem(text: str) -> str:
    """Say what is wrong with the URL of an MCP server; empty if nothing."""
    parsed = parse_mcp_url(text)
    return parsed if isinstance(parsed, str) else ""


def issuer_problem(text: str) -> str:
    """Say what is wrong with an issuer; empty if nothing."""
    if text == DEV:
        return ""
    if not text.startswith("https://"):
        return f"{_shown(text)} does not start with https://. Use the issuer's URL, or {DEV} for a development issuer."
    problems = Problems()
    parse_issuer_url(text, problems)
    return problems.errors[0].message if problems.errors else ""


def audience_problem(text: str) -> str:
    """Say what is wrong with an audience; empty if nothing."""
    return _text_problem(text, "an audience", "Use the value that the issuer writes into the claim 'aud'.")


def claim_problem(text: str) -> str:
    """Say what is wrong with the name of a claim; empty if nothing."""
    return _text_problem(text, "the name of a claim", "Use the claim that lists the groups of a caller.")


def parse_grant(text: str) -> Grant | str:
    """Read ``GROUP=TOOL,TOOL``; the answer is a message for the user if that is not possible."""
    group, equals, listed = text.partition("=")
    group, tools = group.strip(), tuple(dict.fromkeys(each.strip() for each in listed.split(",") if each.strip()))
    if not equals or not group or not tools:
        return f"{_shown(text)} does not name a group and its tools. Use GROUP=TOOL,TOOL or GROUP=* for every tool."
    for each, what in ((group, "the name of a group"), *((tool, "the name of a tool") for tool in tools)):
        wrong = _text_problem(each, what, "Use printable characters.")
        if wrong:
            return wrong
    return Grant(group, tools)


def grants_problem(grants: tuple[Grant, ...]) -> str:
    """Say what is wrong with groups together; empty if nothing."""
    if not grants:
        return "No group is set. Use --group GROUP=TOOL,TOOL at least once."
    if len(grants) > _MOST_GROUPS:
        return f"A policy can have at most {_MOST_GROUPS} rules, one for each group. Use fewer groups."
    names = [each.group for each in grants]
    twice = next((each for each in names if names.count(each) > 1), "")
    return f"The group {_shown(twice)} occurs twice. Name the group once, with all its tools." if twice else ""


def _text_problem(text: str, what: str, remedy: str) -> str:
    if text and text == text.strip() and text.isprintable() and len(text) <= _LONGEST:
        return ""
    return f"{_shown(text)} is not {what}. {remedy}"


def _shown(text: str) -> str:
    return repr(shorten(text, _LONGEST_SHOWN))
