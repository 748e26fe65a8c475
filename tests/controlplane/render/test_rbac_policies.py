"""Rules that Envoy's filter is given for a policy."""

from typing import Final

from tests.support.policies.compiled import compiled
from tests.support.policies.documents import BACKEND, OIDC, SPIFFE, policy, rule
from tests.support.policies.external_services import SERVICES, asks
from tests.support.policies.names import TO_SHOP

from authplane.cel.envoy.envoy_attributes import JWT_METADATA, METHOD, TOKEN_AGE, TOKEN_TYPE
from authplane.cel.envoy.request_checks import PRESENT, Equals, Every, Metadata, every
from authplane.cel.envoy.wire import render_check, render_condition
from authplane.controlplane.render.native.rbac_policies import policies_of, render_rules
from authplane.controlplane.render.native.request_classification import recognised, render_front
from authplane.policy.placement.placement_model import Choices, Plan, Sender
from authplane.policy.placement.placement_plan import place_chain

KEY: Final = "default/p/rule-0"


def plan(*documents: str) -> Plan:
    made = compiled(BACKEND, SERVICES, *documents).policies
    way = made.chain(TO_SHOP)
    assert way is not None
    return place_chain(way, made.settings, Choices())


FOUND: Final = ("envoy.filters.http.rbac", "front_shadow_effective_policy_id")


def test_what_is_not_for_envoy_to_judge_is_told_first_by_what_cannot_fail() -> None:
    made = plan(policy(rule()))
    rules = render_rules(policies_of(made)[0], made, tells_apart=False)
    assert sorted(rules.policies) == ["!ask", f"{KEY}/0:InlineTools", f"{KEY}/base_protocol"]
    first = rules.policies["!ask"]
    assert not first.HasField("condition")
    assert [each.not_rule for each in first.permissions] == [render_check(Metadata(METHOD, (PRESENT,)))]


def test_what_all_targets_want_to_know_stands_in_none_of_them() -> None:
    made = plan(policy(f"[{rule()[1:-1]}, {rule(OIDC)[1:-1]}]"))
    rules = render_rules(policies_of(made)[0], made, tells_apart=True)
    assert [name for name, each in rules.policies.items() if each.HasField("condition")] == []
    assert "iat" not in str({name: each for name, each in rules.policies.items() if not name.startswith("~ask")})


def test_whom_the_server_may_grant_something_is_told_by_certificate() -> None:
    made = plan(policy(f"[{rule(SPIFFE, f'[{asks()}]')[1:-1]}]"))
    rules = render_rules(policies_of(made)[0], made, tells_apart=False)
    asked = rules.policies["~ask"]
    assert [each.WhichOneof("identifier") for each in asked.principals] == ["custom"]


def test_options_that_one_rule_needs_are_those_of_all() -> None:
    joined = '[{type: CEL, cel: {expression: \'request.method + "!" == "GET!"\'}}]'
    made = plan(policy(f"[{rule()[1:-1]}, {rule(SPIFFE, joined)[1:-1]}]"))
    rules = render_rules(policies_of(made)[0], made, tells_apart=False)
    assert {each.cel_config.enable_string_concat for each in rules.policies.values()} == {True}
    assert {each.cel_config.enable_string_conversion for each in rules.policies.values()} == {False}


def test_the_token_of_an_issuer_is_looked_for_once() -> None:
    made = plan(policy(rule(OIDC)))
    entry = policies_of(made)[0].native[0]
    assert isinstance(entry.sender, Sender)
    token = entry.sender.token
    assert token is not None
    rules = render_front([token]).rbac.shadow_rules
    [name] = rules.policies
    # The access log shows the name.
    assert name == token.issuer
    assert rules.policies[name].condition == render_condition(token.condition.tree)
    looked_for = recognised(entry.sender, reads_mcp=False).check
    assert looked_for == every((Metadata(FOUND, (Equals(name),)), entry.sender.condition.check))


def test_where_messages_are_read_a_token_needs_no_expression() -> None:
    made = plan(policy(rule(OIDC)))
    entry = policies_of(made)[0].native[0]
    assert isinstance(entry.sender, Sender)
    assert entry.sender.token is not None
    found = recognised(entry.sender, reads_mcp=True)
    assert found == entry.sender.token.read.and_then(entry.sender.condition)
    assert not found.expressed
    assert isinstance(found.check, Every)
    keys = [each.keys for each in found.check.checks[:3] if isinstance(each, Metadata)]
    assert keys == [(JWT_METADATA, entry.sender.token.issuer, "iss"), TOKEN_AGE, TOKEN_TYPE]
