"""Rules that Envoy's filter is given for a policy."""

from dataclasses import replace
from typing import Final

from tests.policy.access.world import BACKEND, OIDC, SERVICES, SPIFFE, TO_SHOP, asks, compiled, policy, rule

from authplane.cel.envoy import nodes
from authplane.cel.envoy.wire import render_check, render_condition
from authplane.policy.access.settings import BodyInspection
from authplane.policy.placement.model import Choices, Plan
from authplane.policy.placement.plan import place_way
from authplane.render.rules import policies_of, render_rules

KEY: Final = "default/p/rule-0"


def plan(*documents: str) -> Plan:
    made = compiled(BACKEND, SERVICES, *documents).policies
    way = made.way(TO_SHOP)
    assert way is not None
    return place_way(replace(way, body_inspection=BodyInspection.NATIVE), made.settings, Choices())


def test_what_is_not_for_envoy_to_judge_is_told_first_by_what_cannot_fail() -> None:
    made = plan(policy(rule()))
    rules = render_rules(policies_of(made)[0], made, tells_apart=False)
    assert sorted(rules.policies) == ["!ask", f"{KEY}/0:InlineTools", f"{KEY}/base_protocol", "~ask"]
    first = rules.policies["!ask"]
    assert not first.HasField("condition")
    assert [each.not_rule for each in first.permissions] == [render_check(made.front.check)]


def test_what_could_fail_is_demanded_of_all_that_is_granted() -> None:
    made = plan(policy(f"[{rule()[1:-1]}, {rule(OIDC)[1:-1]}]"))
    for entry in policies_of(made)[0].native:
        granted = entry.granted()
        assert granted is not None
        rules = render_rules(policies_of(made)[0], made, tells_apart=True)
        trees = [*([granted.tree] if granted.expressed else []), made.front.tree]
        want = render_condition(nodes.every(trees))
        assert rules.policies[policies_of(made)[0].key(entry)].condition == want
    asked = [each.condition for name, each in rules.policies.items() if name.startswith("~ask")]
    assert render_condition(nodes.negated(made.front.tree)) in asked


def test_whom_the_server_may_grant_something_is_told_by_certificate() -> None:
    made = plan(policy(f"[{rule(SPIFFE, f'[{asks()}]')[1:-1]}]"))
    rules = render_rules(policies_of(made)[0], made, tells_apart=False)
    asked = rules.policies["~ask"]
    assert [each.WhichOneof("identifier") for each in asked.principals] == ["custom"]
    assert rules.policies["~ask#2"].condition == render_condition(nodes.negated(made.front.tree))
