"""Paths of rules: texts, and HTTPPathMatches of the Gateway API as upstream's XAccessPolicy v1alpha1 has them."""

from typing import NamedTuple

import pytest
from tests.support.policies.compiled import compiled, errors, load, policies
from tests.support.policies.documents import BACKEND, GATEWAY, anybody, policy
from tests.support.policies.judging import judge, word
from tests.support.policies.mcp_requests import request
from tests.support.policies.names import EDGE

from authplane.policy.attached.attachments import RequestTarget

SERVICE = RequestTarget(gateway=EDGE, section="web")
"""Something behind a Gateway that is no MCP server."""
REACHED = ("/", "/mcp", "/mcp/", "/mcp/a", "/mcpx", "/other")


class Case(NamedTuple):
    written: str
    granted: tuple[str, ...]
    """Of `REACHED`."""


CASES = {
    "a text": Case("[/mcp]", ("/mcp",)),
    "a text with a star": Case("['/mcp*']", ("/mcp", "/mcp/", "/mcp/a", "/mcpx")),
    "a pattern": Case("[{pattern: '/mcp/*'}]", ("/mcp/", "/mcp/a")),
    "an exact path": Case("[{type: Exact, value: /mcp}]", ("/mcp",)),
    "a prefix": Case("[{type: PathPrefix, value: /mcp}]", ("/mcp", "/mcp/", "/mcp/a")),
    "a prefix with a slash": Case("[{type: PathPrefix, value: /mcp/}]", ("/mcp", "/mcp/", "/mcp/a")),
    "no type": Case("[{value: /mcp}]", ("/mcp", "/mcp/", "/mcp/a")),
    "the root as a prefix": Case("[{value: /}]", REACHED),
    "the root": Case("[{type: Exact, value: /}]", ("/",)),
    "both forms": Case("[/other, {type: Exact, value: /mcp}]", ("/mcp", "/other")),
}


@pytest.mark.requirement("B6", "I7")
@pytest.mark.parametrize("kind", ["AccessPolicy", "XAccessPolicy"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_rule_is_for_the_paths_that_are_written(case: Case, kind: str) -> None:
    rules = anybody(f"[{{type: Inline, paths: {case.written}}}]")
    made = policies(GATEWAY, policy(rules, kind=kind, targets="[{kind: Gateway, name: edge}]"))
    asked = {path: word(judge(made, request(path=path), target=SERVICE)) for path in REACHED}
    assert tuple(path for path, said in asked.items() if said == "allow") == case.granted


AT = "spec.rules[0].authorization[0].paths[0]"
WRONG = {
    "an exact path with a star": (
        "{type: Exact, value: '/a*'}",
        f"{AT}.value: '/a*' is not a path. Use a path such as '/mcp'. [Invalid]",
    ),
    "a prefix with a star": (
        "{value: '/a/*'}",
        (f"{AT}.value: '/a/*' is not a path. Use a path such as '/mcp'. [Invalid]"),
    ),
    "no slash": ("{type: Exact, value: mcp}", f"{AT}.value: 'mcp' is not a path. Use a path such as '/mcp'. [Invalid]"),
    "a query": (
        "/mcp?a=b",
        (f"{AT}: '/mcp?a=b' is not a path. Use a path such as '/mcp', or '/mcp/*' for a prefix. [Invalid]"),
    ),
    "no value": ("{type: Exact}", f"{AT}: The path is not valid. Expected a string, or 'type' and 'value'. [Invalid]"),
    "nothing": ("{}", f"{AT}: The path is not valid. Expected a string, or 'type' and 'value'. [Invalid]"),
    "two forms": (
        "{pattern: /a, value: /b}",
        (f"{AT}: The path is not valid. Expected a string, or 'type' and 'value'. [Invalid]"),
    ),
    "a text with a type": (
        "{pattern: /a, type: Exact}",
        (f"{AT}: The path is not valid. Expected a string, or 'type' and 'value'. [Invalid]"),
    ),
}


@pytest.mark.requirement("B6")
@pytest.mark.parametrize(("written", "problem"), WRONG.values(), ids=WRONG.keys())
def test_a_path_that_cannot_be_meant_makes_the_policy_deny(written: str, problem: str) -> None:
    made = compiled(BACKEND, policy(anybody(f"[{{type: Inline, paths: [{written}]}}]"), kind="XAccessPolicy"))
    assert errors(made) == [problem]
    assert word(judge(made.policies)) == "403"


@pytest.mark.requirement("B6")
def test_a_regular_expression_is_refused_and_the_policy_denies() -> None:
    text = policy(anybody("[{type: Inline, paths: [{type: RegularExpression, value: '/.*'}]}]"), kind="XAccessPolicy")
    loaded = load(BACKEND, text)
    assert [str(each.problem) for each in loaded.findings] == [
        f"{AT}.type: Expected one of 'Exact', 'PathPrefix', got 'RegularExpression'. [FieldInvalid]"
    ]
    assert word(judge(compiled(BACKEND, text).policies)) == "403"


@pytest.mark.requirement("I3")
@pytest.mark.parametrize("written", ["null", "~", ""])
def test_a_source_without_a_value_is_an_error_and_does_not_mean_everybody(written: str) -> None:
    text = policy(f"[{{source: {written}, authorization: [{{type: InlineTools, tools: [add]}}]}}]")
    assert [str(each.problem) for each in load(BACKEND, text).findings] == [
        "spec.rules[0].source: 'source' has no value. Set a value, or remove the line. [FieldInvalid]"
    ]
    assert word(judge(compiled(BACKEND, text).policies)) == "403"
