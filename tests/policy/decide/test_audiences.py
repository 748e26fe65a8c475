"""Policies that look at no audience, and what expressions know of a request besides MCP."""

from datetime import UTC, datetime

import pytest
from tests.support.policies.callers import bearer
from tests.support.policies.compiled import compiled, errors, policies, warnings
from tests.support.policies.documents import ADD, BACKEND, anybody, policy, rule, settings
from tests.support.policies.judging import judge, word
from tests.support.policies.mcp_requests import ADD_CALL, call

UNBOUND = rule("{type: OIDC, oidc: {issuerUrl: 'https://issuer.example'}}", ADD)


@pytest.mark.requirement("J18")
def test_a_policy_without_audiences_is_warned_of_and_under_strict_denies() -> None:
    lax = compiled(BACKEND, policy(UNBOUND))
    assert errors(lax) == []
    assert [each for each in warnings(lax) if "AudiencesMissing" in each]
    assert word(judge(lax.policies, ADD_CALL, bearer(aud="anybody"))) == "allow"
    strict = compiled(BACKEND, policy(UNBOUND), settings("{strict: true}"))
    assert [each for each in errors(strict) if "AudiencesMissing" in each]
    assert word(judge(strict.policies, ADD_CALL, bearer(aud="anybody"))) == "403"


KNOWN = {
    "the path without the query": ('request.url_path == "/mcp"', "allow"),
    "the same by its other name": ('request.path == "/mcp"', "allow"),
    "the query": ('request.query == "a=1"', "allow"),
    "the host": ('request.host == "mcp.example"', "allow"),
    "another host": ('request.host == "other.example"', "403"),
    "the time": ('request.time < timestamp("2026-01-02T00:00:00Z")', "allow"),
    "a time that is over": ('request.time < timestamp("2025-01-02T00:00:00Z")', "403"),
}


@pytest.mark.requirement("R58")
@pytest.mark.parametrize(("text", "want"), KNOWN.values(), ids=KNOWN.keys())
def test_expressions_know_path_query_host_and_time(text: str, want: str) -> None:
    made = policies(BACKEND, policy(anybody(f"[{{type: CEL, cel: '{text}'}}]")))
    asked = call("add", query="a=1", time=datetime(2026, 1, 1, 12, tzinfo=UTC))
    assert word(judge(made, asked)) == want


@pytest.mark.requirement("R58")
def test_without_a_time_an_expression_about_it_denies() -> None:
    made = policies(
        BACKEND, policy(anybody("[{type: CEL, cel: 'request.time > timestamp(\"2020-01-01T00:00:00Z\")'}]"))
    )
    assert word(judge(made, call("add"))) == "403"
